"""What is kept of a transactional id comes back from its record."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kserver.errors import ProtocolError
from kserver.model import NO_PRODUCER_ID, NO_TIMESTAMP, TopicPartition
from kserver.txn.events import TransactionalIdForgotten, TransactionChanged, decode, encode
from kserver.txn.records import RECORDS, TRANSACTION
from kserver.txn.transaction import LAST_EPOCH, PREPARED, RESTING, Transaction, TransactionState

KEPT = [
    state
    for state in TransactionState
    if state not in (TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE)
]
partitions = st.frozensets(st.builds(TopicPartition, st.text(min_size=1), st.integers(0, 99)))


@st.composite
def transactions(draw):
    state = draw(st.sampled_from(KEPT))
    epoch = draw(st.integers(0, LAST_EPOCH))
    previous_id = draw(st.integers(10, 20)) if state in RESTING and epoch == 0 else NO_PRODUCER_ID
    return Transaction(
        draw(st.text(min_size=1)),
        draw(st.integers(0, 9)),
        epoch,
        draw(st.integers(1, 10**6)),
        draw(st.integers(0, 10**13)),
        state,
        frozenset() if state in RESTING else draw(partitions),
        NO_TIMESTAMP if state is TransactionState.EMPTY else draw(st.integers(0, 10**13)),
        previous_id,
        draw(st.integers(21, 30)) if state in PREPARED else NO_PRODUCER_ID,
        draw(st.integers(0, 2)),
    )


@given(transactions(), st.integers(0, 2))
def test_every_transaction_comes_back_whatever_the_cluster_has_finalized(transaction, version):
    assert decode(*encode(TransactionChanged(transaction), version)) == TransactionChanged(
        transaction
    )


@given(st.text(min_size=1), st.integers(0, 2))
def test_one_that_is_forgotten_leaves_a_tombstone(name, version):
    key, value = encode(TransactionalIdForgotten(name), version)
    assert value is None
    assert decode(key, value) == TransactionalIdForgotten(name)


@pytest.mark.parametrize(("version", "written"), [(0, 0), (1, 1), (2, 1)])
def test_brokers_of_before_read_what_is_written_below_version_1(version, written):
    _, value = encode(TransactionChanged(Transaction("a", 1, 2, 3, 4)), version)
    assert RECORDS.decode_value(TRANSACTION, value)[0] == written


def test_records_of_other_kinds_are_passed_over_and_broken_ones_refused():
    key, value = encode(TransactionChanged(Transaction("a", 1, 2, 3, 4)), 2)
    assert decode(b"\0\7" + key[2:], value) is None
    with pytest.raises(ProtocolError):
        decode(key, value[:9])
    values = {"transactionStatus": 99, "transactionPartitions": None}
    with pytest.raises(ProtocolError, match="99 is not a transaction state"):
        decode(key, RECORDS.encode_value(TRANSACTION, 1, values))


def test_kafkas_own_records_name_the_producer_id_before_though_it_is_the_same():
    values = {
        "producerId": 5,
        "previousProducerId": 5,
        "producerEpoch": 0,
        "transactionStatus": TransactionState.EMPTY.value,
        "transactionPartitions": None,
        "transactionStartTimestampMs": NO_TIMESTAMP,
    }
    key, _ = encode(TransactionalIdForgotten("a"), 2)
    found = decode(key, RECORDS.encode_value(TRANSACTION, 1, values))
    assert found.transaction.previous_id == NO_PRODUCER_ID
    found.transaction.check()
