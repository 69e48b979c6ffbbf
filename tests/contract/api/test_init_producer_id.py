import pytest

from kserver.api import init_producer_id as module
from kserver.errors import ErrorCode
from tests.contract.api.calls import batch, produce
from tests.support.brokers import until
from tests.support.wire_client import WireClient, milliseconds

KEY, VERSIONS = module.KEY, module.VERSIONS
every_version = pytest.mark.parametrize("version", VERSIONS)


def ask(client, version, **fields):
    default = {"transactional_id": None, "transaction_timeout": milliseconds(60_000)}
    return client.call(KEY, version, **default | fields)


@pytest.fixture(autouse=True)
def _ids_are_given(client):
    until(lambda: ask(client, 0).error_code is ErrorCode.none)


@every_version
def test_every_producer_gets_an_id_of_its_own_and_can_use_it(broker, client, topic, version):
    given = []
    for _ in range(3):
        with WireClient(broker.address) as one:
            answer = ask(one, version)
        assert (answer.error_code, answer.producer_epoch) == (ErrorCode.none, 0)
        given.append(answer.producer_id)
    assert len(set(given)) == 3
    assert min(given) >= 0
    for offset, producer_id in enumerate(given):
        records = batch(b"a", producer_id=producer_id, producer_epoch=0, base_sequence=0)
        assert produce(client, 9, topic, records).base_offset == offset


@pytest.mark.parametrize("version", [v for v in VERSIONS if v >= 3])
def test_an_idempotent_producer_that_has_an_id_gets_one_that_begins_anew(client, version):
    answer = ask(client, version, producer_id=5_000_000, producer_epoch=7)
    assert answer.error_code is ErrorCode.none
    assert (answer.producer_id, answer.producer_epoch) != (5_000_000, 7)


@every_version
def test_an_empty_transactional_id_is_refused(client, version):
    assert ask(client, version, transactional_id="").error_code is ErrorCode.invalid_request


@every_version
@pytest.mark.usefixtures("only_ours")
def test_transactions_are_refused_in_a_way_that_clients_retry(client, version):
    answer = ask(client, version, transactional_id="t")
    assert answer.error_code is ErrorCode.coordinator_not_available
    assert (answer.producer_id, answer.producer_epoch) == (-1, -1)
