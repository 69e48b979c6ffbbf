"""Test EndTxn requests, in every served version, against our broker or Apache's."""

import pytest

from kserver.api import end_txn as module
from kserver.errors import ErrorCode
from kserver.wire.api_key import ApiKey
from kserver.wire.batch import batches
from tests.contract.api.calls import fetch, fetch_fields
from tests.contract.api.transaction_calls import (
    BY_TOPIC_NAME,
    IMPLICIT,
    add,
    begun,
    end,
    ended,
    init,
    settled,
    stable_offset,
    write,
)
from tests.support.brokers import until
from tests.support.wire_client import WireClient

KEY, VERSIONS = module.KEY, module.VERSIONS
every_version = pytest.mark.parametrize("version", VERSIONS)
before_5 = pytest.mark.parametrize("version", [v for v in VERSIONS if v < 5])
from_5 = pytest.mark.parametrize("version", [v for v in VERSIONS if v >= 5])
NONE = ErrorCode.none
READ_COMMITTED = 1
LONG_MS = 25_000
"""Less than a client's timeout."""


def begin(client, producer, topic, version, value=b"a", sequence=0):
    """Produce one record in a transaction, as a client of that version of EndTxn does."""
    if version < module.FIRST_WITH_EPOCH_BUMPS:
        assert set(add(client, 3, producer, {topic.name: (0,)}).values()) == {NONE}
        written = write(client, producer, topic, value, sequence=sequence, version=BY_TOPIC_NAME)
    else:
        written = write(client, producer, topic, value, sequence=sequence, version=IMPLICIT)
    assert written.error_code is NONE


def following(client, producer, answer, version):
    """Wait for the end of the transaction; return the producer with its next epoch."""
    settled(client, producer)
    if version < module.FIRST_WITH_EPOCH_BUMPS:
        return producer
    assert answer.producer_id == producer.producer_id
    assert answer.producer_epoch == producer.producer_epoch + 1
    return producer._replace(producer_epoch=answer.producer_epoch)


@every_version
@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_is_seen_whole_once_it_has_ended(client, topic, version, commit):
    producer = begun(client)
    begin(client, producer, topic, version)
    assert stable_offset(client, topic) == 0
    answer = ended(client, producer, commit=commit, version=version)
    assert answer.error_code is NONE
    told = settled(client, producer)
    assert told.transaction_state == ("CompleteCommit" if commit else "CompleteAbort")
    assert told.topics == {}
    until(lambda: stable_offset(client, topic) == 2)
    found = fetch(client, 11, topic, 0, isolation_level=READ_COMMITTED)
    aborted = [] if commit else [(producer.producer_id, 0)]
    assert [(a.producer_id, a.first_offset) for a in found.aborted_transactions or ()] == aborted


@every_version
def test_transactions_follow_one_another(client, topic, version):
    producer, sequence = begun(client), 0
    for number in range(3):
        begin(client, producer, topic, version, sequence=sequence)
        answer = ended(client, producer, commit=number != 1, version=version)
        assert answer.error_code is NONE
        producer = following(client, producer, answer, version)
        sequence += version < module.FIRST_WITH_EPOCH_BUMPS
    until(lambda: stable_offset(client, topic) == 6)


@every_version
@pytest.mark.parametrize("commit", [True, False])
def test_sent_again_it_is_answered_as_before_and_the_other_way_refused(
    client, topic, version, commit
):
    producer = begun(client)
    begin(client, producer, topic, version)
    first = ended(client, producer, commit=commit, version=version)
    settled(client, producer)
    again = ended(client, producer, commit=commit, version=version)
    assert (again.error_code, again) == (NONE, first)
    assert end(client, producer, commit=not commit, version=version) is ErrorCode.invalid_txn_state


@before_5
@pytest.mark.parametrize("commit", [True, False])
def test_what_was_not_begun_has_no_end(client, version, commit):
    producer = begun(client)
    assert end(client, producer, commit=commit, version=version) is ErrorCode.invalid_txn_state


@from_5
def test_what_was_not_begun_may_be_aborted_and_not_committed(client, version):
    producer = begun(client)
    assert end(client, producer, commit=True, version=version) is ErrorCode.invalid_txn_state
    answer = ended(client, producer, commit=False, version=version)
    assert answer.error_code is NONE
    following(client, producer, answer, version)


@every_version
def test_a_zombie_is_fenced(client, topic, version):
    old = begun(client)
    begin(client, old, topic, version)
    init(client, old.transactional_id)
    is_known = version >= module.FIRST_WITH_FENCED
    assert end(client, old, commit=True, version=version) is (
        ErrorCode.producer_fenced if is_known else ErrorCode.invalid_producer_epoch
    )


@every_version
def test_an_id_that_is_not_known_is_told(client, version):
    producer = begun(client)._replace(producer_id=10**9)
    code = end(client, producer, commit=True, version=version)
    assert code is ErrorCode.invalid_producer_id_mapping


@every_version
def test_an_empty_transactional_id_is_refused(client, version):
    producer = begun(client)._replace(transactional_id="")
    assert end(client, producer, commit=True, version=version) is ErrorCode.invalid_request


@pytest.mark.parametrize("commit", [True, False])
def test_a_read_committed_consumer_that_waits_is_answered_when_the_transaction_ends(
    broker, client, topic, commit
):
    producer = begun(client)
    begin(client, producer, topic, 3)
    with WireClient(broker.address) as waiting:
        fields = fetch_fields(
            11, topic, {0: 0}, max_wait_ms=LONG_MS, isolation_level=READ_COMMITTED
        )
        asked = waiting.send(ApiKey.FETCH, 11, **fields)
        assert end(client, producer, commit=commit) is NONE
        answer = waiting.receive(ApiKey.FETCH, 11, asked)
    (found,) = answer.responses[0].partitions
    assert found.last_stable_offset == 2
    assert len(found.aborted_transactions or ()) == (not commit)
    assert next(batches(found.records)).base_offset == 0
