from __future__ import annotations

import functools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcli.client.producer.partition_queue import RecordMetadata
from kserver.errors import ErrorCode, KafkaError
from kserver.model import TopicPartition
from tests.support.partition_queues import Bench, values


def test_records_gather_in_a_batch_until_it_is_full():
    bench = Bench(batch_size=200)
    for n in range(20):
        assert bench.offer(b"%02d" % n)
    assert len(bench.opened) > 1
    assert bench.full == [bench.queue()] * (len(bench.opened) - 1)
    assert [v for batch in bench.opened for v in values(batch)] == [b"%02d" % n for n in range(20)]
    assert all(batch.size <= 200 for batch in bench.opened)


def test_a_record_larger_than_a_batch_has_one_for_itself():
    bench = Bench(batch_size=100)
    bench.offer(b"small")
    bench.offer(b"x" * 500)
    bench.offer(b"small")
    assert [len(batch.records) for batch in bench.opened] == [1, 1, 1]


def test_a_record_larger_than_any_request_is_refused_with_the_limit():
    bench = Bench(max_request_size=1000)
    with pytest.raises(KafkaError, match=r"larger than 1000, .* max\.request\.size") as caught:
        bench.offer(b"x" * 1000)
    assert caught.value.code is ErrorCode.message_too_large


def test_an_unknown_topic_takes_nothing():
    bench = Bench()
    assert not bench.accumulator.offer("other", b"v")
    assert not bench.accumulator.offer("other", b"v", b"key")
    assert not bench.accumulator.knows("other")


def test_a_partition_that_is_not_there_is_refused():
    with pytest.raises(KafkaError, match="t has no partition 3, but 2"):
        Bench(partitions=2).offer(partition=3)


def test_what_does_not_fit_into_memory_is_not_taken_until_some_is_finished():
    bench = Bench(batch_size=100, buffer_memory=250)
    taken = 0
    while bench.offer(b"x" * 20):
        taken += 1
    assert 0 < bench.accumulator.used_bytes <= 250
    batch = bench.take()
    bench.queue().complete(batch, appended=True)
    bench.accumulator.finish(batch)
    assert bench.offer(b"x" * 20)


def test_even_a_record_larger_than_the_memory_is_taken_when_nothing_waits():
    bench = Bench(batch_size=100, buffer_memory=200)
    assert bench.offer(b"x" * 500)
    assert not bench.offer(b"y")


def test_records_with_a_key_keep_together_and_those_with_a_partition_go_there():
    bench = Bench(partitions=8)
    for n in range(40):
        bench.offer(b"%d" % n, b"key-%d" % (n % 4))
    by_key = {}
    for batch in bench.opened:
        for _, key, _, _ in batch.records:
            by_key.setdefault(key, set()).add(batch.queue.partition.partition)
    assert all(len(partitions) == 1 for partitions in by_key.values())
    bench.offer(b"there", b"key-1", partition=5)
    assert b"there" in values(bench.queue(5).open)


def test_with_ignored_keys_they_are_spread_like_the_others():
    bench = Bench(partitions=8, batch_size=100, ignore_keys=True)
    for _ in range(100):
        bench.offer(b"v", b"same key")
    assert len({batch.queue.partition for batch in bench.opened}) > 3


def test_records_without_a_key_stay_for_a_batch_and_then_move_on():
    bench = Bench(partitions=8, batch_size=200)
    for _ in range(400):
        bench.offer()
    assert all(len(batch.records) > 5 for batch in bench.opened[:-1])
    assert len({batch.queue.partition for batch in bench.opened}) == 8


def test_records_without_a_key_avoid_partitions_without_a_leader():
    bench = Bench(partitions=8, batch_size=200)
    for queue in bench.accumulator.queues("t")[:4]:
        queue.leader = None
    for _ in range(400):
        bench.offer()
    led = [batch for batch in bench.opened if batch.queue.leader is not None]
    assert len(led) > 0.9 * len(bench.opened)


def test_records_without_a_key_avoid_a_partition_that_is_stuck():
    bench = Bench(partitions=2, batch_size=100, stuck_after=5.0, adaptive=False)
    for _ in range(20):
        bench.offer(partition=0)
    bench.now = 10.0
    before = len(bench.opened)
    for _ in range(200):
        bench.offer()
    later = bench.opened[before:]
    assert sum(batch.queue is bench.queue(1) for batch in later) > 0.9 * len(later)


def test_topics_that_were_not_used_for_long_are_told_apart():
    bench = Bench()
    bench.accumulator.grow("u", 1)
    bench.now = 10.0
    bench.offer()
    assert bench.accumulator.topics() == ["t", "u"]
    assert bench.accumulator.topics(since=5.0) == ["t"]
    assert bench.accumulator.topics(since=50.0) == ["t"], "it has a batch that is not finished"


@given(
    st.lists(st.binary(max_size=300), max_size=40),
    st.integers(1, 3),
    st.sampled_from([250, 1000, 1 << 20]),
)
def test_many_values_are_taken_as_they_would_be_one_by_one(values, partitions, memory):
    one, many = (Bench(partitions, batch_size=200, buffer_memory=memory) for _ in range(2))
    taken = 0
    while taken < len(values) and one.offer(values[taken]):
        taken += 1
    assert many.accumulator.offer_all("t", values) == taken
    assert [b.records for b in many.opened] == [b.records for b in one.opened]
    assert [b.size for b in many.opened] == [b.size for b in one.opened]
    assert many.full == [many.queue(queue.partition.partition) for queue in one.full]


def test_the_time_is_read_once_a_turn_and_anew_for_each_batch():
    bench = Bench(batch_size=200)
    for _ in range(5):
        bench.offer()
    bench.now_ms = 2000
    bench.offer()
    assert bench.stamps == 1
    bench.accumulator.stamp_ms = 0  # the turn is over
    bench.offer(b"later")
    assert [r[0] for r in bench.opened[0].records] == [1000] * 6 + [2000]
    bench.now_ms = 3000
    while len(bench.opened) == 1:
        bench.offer()
    bench.offer()
    assert bench.opened[1].records[1][0] == 3000


def test_each_record_hears_of_its_own_outcome():
    bench = Bench()
    heard = []
    for n in range(4):
        told = functools.partial(lambda *outcome: heard.append(outcome), n)
        bench.offer(b"v", on_delivery=told if n % 2 else None, timestamp=100 + n)
    batch = bench.take()
    for tell, error, metadata in batch.deliver(None, 50, -1):
        tell(error, metadata)
    assert heard == [
        (1, None, RecordMetadata("t", 0, 51, 101)),
        (3, None, RecordMetadata("t", 0, 53, 103)),
    ]
    assert [m for _, _, m in batch.deliver(None, 50, 999)] == [
        RecordMetadata("t", 0, 51, 999),
        RecordMetadata("t", 0, 53, 999),
    ]
    error = KafkaError(ErrorCode.invalid_timestamp)
    assert [outcome[1:] for outcome in batch.deliver(error, -1, -1)] == [(error, None)] * 2


def test_an_open_batch_is_taken_only_when_it_is_due():
    bench = Bench()
    bench.offer()
    queue = bench.queue()
    assert queue.next_batch(0) is None
    assert bench.accumulator.due_all() == [queue]
    assert queue.next_batch(0) is bench.opened[0]


def test_the_halves_of_a_batch_have_its_records_its_place_and_its_sequences():
    bench = Bench()
    heard = []
    for n in range(5):
        told = functools.partial(lambda n, error, metadata: heard.append((n, metadata.offset)), n)
        bench.offer(b"%d" % n, on_delivery=told)
    whole = bench.take()
    bench.offer(b"after")
    used = bench.accumulator.used_bytes
    bench.accumulator.split(whole)
    assert bench.accumulator.used_bytes == used
    offset = 10
    for expected, sequence in (([b"0", b"1"], 0), ([b"2", b"3", b"4"], 2), ([b"after"], 5)):
        half = bench.take()
        assert (values(half), half.base_sequence) == (expected, sequence)
        bench.queue().complete(half, appended=True)
        bench.accumulator.finish(half)
        for tell, error, metadata in half.deliver(None, offset, -1):
            tell(error, metadata)
        offset += len(half.records)
    assert heard == [(n, 10 + n) for n in range(5)]
    assert bench.accumulator.used_bytes == 0


def test_queues_grow_with_the_topic():
    bench = Bench(partitions=2)
    bench.accumulator.grow("t", 4)
    bench.accumulator.grow("t", 3)
    partitions = [queue.partition for queue in bench.accumulator.queues("t")]
    assert partitions == [TopicPartition("t", n) for n in range(4)]
