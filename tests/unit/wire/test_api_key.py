from kserver.api.table import TABLE_BETWEEN_BROKERS
from kserver.wire.api_key import ApiKey
from kserver.wire.codec import api_name


def test_every_key_has_the_name_of_its_messages() -> None:
    names = {key: key.name.title().replace("_", "") for key in ApiKey}
    assert names == {key: api_name(key) for key in ApiKey}


def test_every_served_key_is_listed() -> None:
    assert TABLE_BETWEEN_BROKERS.keys() <= set(ApiKey)
