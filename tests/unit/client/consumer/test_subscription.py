from __future__ import annotations

from kcli.client.consumer.completed_fetch import CompletedFetch
from kcli.client.consumer.subscription import SubscriptionState, TopicPartitionState
from kserver.model import TopicPartition
from kserver.wire.batch import encode_batch

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def completed(start: int, count: int) -> CompletedFetch:
    records = [(0, None, b"", ())] * count
    return CompletedFetch(A, start, encode_batch(records, base_offset=start))


def test_what_stays_assigned_keeps_its_position():
    subscription = SubscriptionState()
    subscription.assign([A])
    subscription[A].seek(7)
    subscription.assign([B, A])
    assert subscription.partitions() == (B, A)
    assert subscription[A].position == 7
    assert subscription[B].position is None
    subscription.assign([B])
    assert subscription.get(A) is None


def test_fetches_run_ahead_of_the_position_up_to_a_limit():
    state = TopicPartitionState(A)
    assert not state.is_fetchable(0, 2)
    state.seek(5)
    assert state.is_fetchable(0, 2)
    state.add_fetch(completed(5, 3))
    assert (state.position, state.fetch_offset) == (5, 8)
    state.add_fetch(completed(8, 3))
    assert not state.is_fetchable(0, 2)


def test_a_seek_drops_what_was_fetched_and_what_is_on_its_way():
    state = TopicPartitionState(A)
    state.seek(5)
    generation = state.generation
    state.add_fetch(completed(5, 3))
    state.error = ValueError()
    state.seek(100, 4)
    assert (state.position, state.fetch_offset, state.epoch) == (100, 100, 4)
    assert not state.completed_fetches
    assert state.error is None
    assert state.generation > generation


def test_a_seek_to_an_end_leaves_no_position_until_it_is_looked_up():
    state = TopicPartitionState(A)
    state.seek(5)
    state.seek_by(-2)
    assert (state.position, state.reset) == (None, -2)
    assert not state.is_fetchable(0, 2)


def test_pauses_errors_and_waits_hold_fetches_back():
    state = TopicPartitionState(A)
    state.seek(5)
    state.paused = True
    assert not state.is_fetchable(0, 2)
    state.paused = False
    state.not_before = 10
    assert not state.is_fetchable(9, 2)
    assert state.is_fetchable(10, 2)
    state.error = ValueError()
    assert not state.is_fetchable(10, 2)


def test_a_leader_of_a_new_epoch_has_the_position_checked_if_its_epoch_is_known():
    state = TopicPartitionState(A)
    state.seek(5, 3)
    state.on_leader_change(3)
    assert not state.unchecked
    state.add_fetch(completed(5, 3))
    state.on_leader_change(4)
    assert state.unchecked
    assert not state.completed_fetches, "what the old leader sent may be what the new one lacks"
    assert (state.position, state.fetch_offset) == (5, 5)
    assert not state.is_fetchable(0, 2)


def test_a_position_of_unknown_epoch_needs_no_check():
    state = TopicPartitionState(A)
    state.seek(5)
    state.on_leader_change(3)
    state.on_leader_change(4)
    assert not state.unchecked


def test_a_partition_that_comes_back_is_not_taken_for_what_it_was():
    subscription = SubscriptionState()
    subscription.assign([A])
    subscription[A].seek(5)
    before = subscription[A].generation
    subscription.assign([])
    subscription.assign([A])
    subscription[A].seek(3)
    assert subscription[A].generation > before, "an answer on its way would be believed"
    once_more = subscription[A].generation
    subscription.assign([])
    subscription.assign([])
    subscription.assign([A])
    assert subscription[A].generation > once_more
