"""Test InitProducerId requests, in every served version, against our broker or Apache's."""

import pytest

from kserver.api import init_producer_id as module
from kserver.errors import ErrorCode
from tests.contract.api.calls import batch, produce
from tests.contract.api.transaction_calls import (
    NAMES,
    add,
    begun,
    end,
    init,
    stable_offset,
    write,
)
from tests.support.brokers import until
from tests.support.wire_client import WireClient, milliseconds

KEY, VERSIONS = module.KEY, module.VERSIONS
FIRST_FLEXIBLE = 2
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


@pytest.mark.parametrize("version", [v for v in VERSIONS if v >= FIRST_FLEXIBLE])
def test_a_transactional_id_that_no_record_can_hold_is_refused(client, only_ours, version):
    """Apache's broker closes the connection instead."""
    begun(client)
    answer = ask(client, version, transactional_id="x" * 40_000)
    assert answer.error_code is ErrorCode.invalid_request


@every_version
def test_a_transactional_id_has_one_producer_id_and_each_who_begins_a_higher_epoch(client, version):
    name = next(NAMES)
    first, second = init(client, name, version), init(client, name, version)
    assert (first.error_code, first.producer_epoch) == (ErrorCode.none, 0)
    assert (second.producer_id, second.producer_epoch) == (first.producer_id, 1)
    assert init(client, next(NAMES), version).producer_id != first.producer_id


@every_version
def test_a_transaction_that_is_open_is_aborted_first(client, topic, version):
    old = begun(client)
    assert set(add(client, 3, old, {topic.name: (0,)}).values()) == {ErrorCode.none}
    assert write(client, old, topic, b"a").error_code is ErrorCode.none
    new = init(client, old.transactional_id, version)
    assert new.error_code is ErrorCode.none
    assert (new.producer_id, new.producer_epoch) == (old.producer_id, old.producer_epoch + 2)
    assert stable_offset(client, topic) == 2
    assert end(client, old, commit=True) is ErrorCode.producer_fenced
    late = write(client, old, topic, b"b", sequence=1)
    assert late.error_code is ErrorCode.invalid_producer_epoch


@pytest.mark.parametrize("version", [v for v in VERSIONS if v >= 3])
def test_who_goes_on_after_an_error_may_ask_again_and_a_zombie_may_not(client, version):
    old = begun(client)
    named = {"producer_id": old.producer_id, "producer_epoch": old.producer_epoch}
    for _ in range(2):
        answer = init(client, old.transactional_id, version, **named)
        assert (answer.error_code, answer.producer_epoch) == (ErrorCode.none, 1)
    begun(client, old.transactional_id)
    answer = init(client, old.transactional_id, version, **named)
    is_known = version >= module.FIRST_WITH_FENCED
    assert answer.error_code is (
        ErrorCode.producer_fenced if is_known else ErrorCode.invalid_producer_epoch
    )
    assert (answer.producer_id, answer.producer_epoch) == (-1, -1)


@pytest.mark.parametrize("version", [v for v in VERSIONS if v >= 3])
def test_an_id_without_its_epoch_is_refused(client, version):
    answer = ask(client, version, transactional_id=next(NAMES), producer_id=5)
    assert answer.error_code is ErrorCode.invalid_request


@every_version
@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_is_within_what_the_broker_allows(client, version, timeout_ms):
    timeout = milliseconds(timeout_ms)
    answer = init(client, next(NAMES), version, transaction_timeout=timeout)
    assert answer.error_code is ErrorCode.invalid_transaction_timeout
