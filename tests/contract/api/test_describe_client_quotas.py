"""Test DescribeClientQuotas requests, in every served version, against our broker or Apache's."""

import pytest

from kserver.api import describe_client_quotas as module
from kserver.errors import ErrorCode
from tests.contract.api.calls import alter_quotas
from tests.support.brokers import until

KEY, VERSIONS = module.KEY, module.VERSIONS
every_version = pytest.mark.parametrize("version", VERSIONS)
EXACT, DEFAULT, ANY = 0, 1, 2


def describe(client, version, *components, strict=False):
    """Return the described quotas as {entity: bounds}, both as sorted pairs."""
    asked = [{"entity_type": t, "match_type": how, "match": name} for t, how, name in components]
    answer = client.call(KEY, version, components=asked, strict=strict)
    assert answer.error_code is ErrorCode.none, answer.error_message
    return {
        tuple(sorted((e.entity_type, e.entity_name) for e in entry.entity)): {
            value.key: value.value for value in entry.values
        }
        for entry in answer.entries
    }


@pytest.fixture
def quotas(client, name):
    """Quotas of a user of that name: alone, with a client id, and with the default client id."""
    made = {
        (("user", name),): {"producer_byte_rate": 1e6, "request_percentage": 50.5},
        (("client-id", "c"), ("user", name)): {"consumer_byte_rate": 2e6},
        (("client-id", None), ("user", name)): {"consumer_byte_rate": 3e6},
    }
    for entity, bounds in made.items():
        assert alter_quotas(client, entity, **bounds).error_code is ErrorCode.none
    until(lambda: describe(client, 1, ("user", EXACT, name)) == made)
    yield made
    for entity, bounds in made.items():
        alter_quotas(client, entity, **dict.fromkeys(bounds))


@every_version
@pytest.mark.usefixtures("quotas")
def test_what_was_set_is_told(client, name, version, quotas):
    assert describe(client, version, ("user", EXACT, name)) == quotas
    everything = describe(client, version)
    assert quotas.items() <= everything.items()


@every_version
@pytest.mark.parametrize(
    "keys",
    [
        (
            "producer_byte_rate",
            "consumer_byte_rate",
            "controller_mutation_rate",
            "request_percentage",
        ),
        ("consumer_byte_rate", "request_percentage", "producer_byte_rate"),
        ("consumer_byte_rate", "controller_mutation_rate", "producer_byte_rate"),
        ("request_percentage", "producer_byte_rate"),
        ("consumer_byte_rate", "producer_byte_rate"),
        ("consumer_byte_rate", "controller_mutation_rate"),
        ("controller_mutation_rate", "request_percentage"),
    ],
    ids=lambda keys: len(keys),
)
def test_types_of_an_entity_and_keys_stand_in_kafkas_order(client, name, version, keys):
    entity = (("user", name), ("client-id", "c"))
    bounds = dict.fromkeys(sorted(keys), 1000.0)
    assert alter_quotas(client, entity, **bounds).error_code is ErrorCode.none
    asked = [{"entity_type": "user", "match_type": EXACT, "match": name}]

    def entries():
        return client.call(KEY, version, components=asked, strict=False).entries

    until(lambda: len(entries()) == 1)
    (entry,) = entries()
    alter_quotas(client, entity, **dict.fromkeys(keys))
    assert [one.entity_type for one in entry.entity] == ["client-id", "user"]
    assert tuple(value.key for value in entry.values) == keys


@every_version
def test_a_filter_may_name_the_default_or_any(client, name, version, quotas):
    default = (("client-id", None), ("user", name))
    asked = [("user", EXACT, name), ("client-id", DEFAULT, None)]
    assert describe(client, version, *asked) == {default: quotas[default]}
    asked = [("user", EXACT, name), ("client-id", ANY, None)]
    assert len(describe(client, version, *asked)) == 2
    own = (("user", name),)
    assert describe(client, version, ("user", EXACT, name), strict=True) == {own: quotas[own]}


@every_version
@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("user", EXACT, None)], ErrorCode.invalid_request),
        ([("user", ANY, None)] * 2, ErrorCode.invalid_request),
        ([("user", ANY, None), ("ip", ANY, None)], ErrorCode.invalid_request),
        ([("planet", ANY, None)], ErrorCode.unsupported_version),
    ],
)
def test_a_filter_that_makes_no_sense_is_refused(client, version, components, code):
    asked = [{"entity_type": t, "match_type": how, "match": name} for t, how, name in components]
    answer = client.call(KEY, version, components=asked)
    assert answer.error_code is code
    assert not answer.entries
