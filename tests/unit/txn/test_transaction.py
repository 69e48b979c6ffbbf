"""One transactional id: who may go on with it, and under which identity."""

from dataclasses import replace

import pytest

from kserver.errors import ErrorCode, KafkaError
from kserver.model import NO_PRODUCER_ID, TopicPartition
from kserver.txn.transaction import (
    LAST_EPOCH,
    NO_EPOCH,
    RESTING,
    VALID_PREVIOUS_STATES,
    ProducerIdAndEpoch,
    Transaction,
    TransactionState,
)

NEW = 77
PARTITION = TopicPartition("t", 0)


def empty(epoch=5, **fields):
    return Transaction("a", 1, epoch, 60_000, 0, **fields)


def ongoing(epoch=5, version=2):
    return empty(epoch).with_partitions([PARTITION], version, 10)


def ended(one, *, commit=True, version=2, new_id=NO_PRODUCER_ID):
    return one.ended(commit=commit, version=version, new_id=new_id, now_ms=20)


def initialized(one, expected=None, new_id=NEW):
    return one.initialized(60_000, expected, new_id, 30)


def test_every_state_is_reached_from_another_and_none_from_a_dead_one():
    assert VALID_PREVIOUS_STATES.keys() == set(TransactionState)
    assert all(before for before in VALID_PREVIOUS_STATES.values())
    assert not any(TransactionState.DEAD in before for before in VALID_PREVIOUS_STATES.values())
    assert str(TransactionState.PREPARE_EPOCH_FENCE) == "PrepareEpochFence"


def test_whoever_begins_fences_all_before():
    one = initialized(empty(5))
    assert one.identity == (1, 6)
    assert initialized(one).identity == (1, 7)


def test_who_goes_on_after_an_error_may_ask_again():
    one = initialized(empty(5), ProducerIdAndEpoch(1, 5))
    assert one.identity == (1, 6)
    assert initialized(one, ProducerIdAndEpoch(1, 5)).identity == (1, 6)
    assert initialized(one, ProducerIdAndEpoch(1, 6)).identity == (1, 7)


@pytest.mark.parametrize(
    "named", [ProducerIdAndEpoch(1, 4), ProducerIdAndEpoch(1, 6), ProducerIdAndEpoch(2, 5)]
)
def test_whoever_was_replaced_does_not_go_on(named):
    with pytest.raises(KafkaError) as refused:
        initialized(empty(5), named)
    assert refused.value.code is ErrorCode.producer_fenced


def test_after_another_began_the_one_before_does_not_go_on_though_its_epoch_was_the_last():
    one = initialized(empty(5))
    with pytest.raises(KafkaError):
        initialized(one, ProducerIdAndEpoch(1, 5))


def test_used_up_epochs_lead_to_a_new_producer_id_and_their_owner_may_ask_again():
    owner = ProducerIdAndEpoch(1, LAST_EPOCH)
    used_up = empty(LAST_EPOCH)
    assert used_up.needs_new_id(None)
    assert used_up.needs_new_id(owner)
    one = initialized(used_up, owner)
    assert one.identity == (NEW, 0)
    assert not one.needs_new_id(owner)
    assert initialized(one, owner).identity == (NEW, 0)
    one.check()


def test_whose_epochs_another_used_up_does_not_go_on():
    one = initialized(empty(LAST_EPOCH))
    assert one.identity == (NEW, 0)
    with pytest.raises(KafkaError):
        initialized(one, ProducerIdAndEpoch(1, LAST_EPOCH))


def test_before_version_2_the_epoch_stays_from_transaction_to_transaction():
    one = ended(ongoing(version=0), version=0)
    assert (one.state, one.identity) == (TransactionState.PREPARE_COMMIT, (1, 5))
    assert one.completed(30).identity == (1, 5)


def test_from_version_2_on_the_epoch_rises_with_every_end():
    one = ended(ongoing(), commit=False)
    assert (one.state, one.identity) == (TransactionState.PREPARE_ABORT, (1, 6))
    done = one.completed(30)
    assert (done.state, done.identity, done.partitions) == (
        TransactionState.COMPLETE_ABORT,
        (1, 6),
        frozenset(),
    )


def test_the_markers_of_the_last_epoch_go_out_under_the_old_id():
    one = ended(ongoing(LAST_EPOCH), new_id=NEW)
    one.check()
    assert (one.identity, one.next_id) == ((1, LAST_EPOCH + 1), NEW)
    done = one.completed(30)
    done.check()
    assert (done.identity, done.previous_id) == ((NEW, 0), 1)
    assert done.with_partitions([PARTITION], 2, 40).previous_id == NO_PRODUCER_ID


def test_a_fenced_producer_of_version_2_may_go_on_and_one_before_may_not():
    aborted = ongoing().fenced(2, 20).completed(30)
    assert aborted.identity == (1, 6)
    assert initialized(aborted, ProducerIdAndEpoch(1, 5)).identity == (1, 6)
    aborted = ongoing(version=0).fenced(0, 20).completed(30)
    with pytest.raises(KafkaError):
        initialized(aborted, ProducerIdAndEpoch(1, 5))


def test_one_that_was_fenced_in_its_last_epoch_goes_on_under_a_new_id():
    aborted = ongoing(LAST_EPOCH).fenced(2, 20).completed(30)
    aborted.check()
    owner = ProducerIdAndEpoch(1, LAST_EPOCH)
    assert aborted.needs_new_id(owner)
    assert initialized(aborted, owner).identity == (NEW, 0)


@pytest.mark.parametrize("state", sorted(RESTING, key=str))
def test_an_abort_of_what_never_came_to_be_begun_raises_the_epoch(state):
    started = {} if state is TransactionState.EMPTY else {"started_ms": 3}
    one = ended(empty(state=state, **started), commit=False)
    one.check()
    assert (one.state, one.identity) == (TransactionState.PREPARE_ABORT, (1, 6))
    one.completed(30).check()


def test_a_transaction_times_out_by_its_own_age():
    one = ongoing().with_partitions([TopicPartition("t", 1)], 2, 50_000)
    assert not one.has_timed_out(60_010)
    assert one.has_timed_out(60_011)
    assert not ended(one).has_timed_out(10**9)


def test_the_epoch_before_is_not_kept():
    one = initialized(empty(5), ProducerIdAndEpoch(1, 5))
    assert one.last_epoch == 5
    assert one == replace(one, last_epoch=NO_EPOCH)
