from __future__ import annotations

import functools
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kcli.client.accumulator import Accumulator, Batch, Lane, Limits, RecordMetadata
from kserver.errors import ErrorCode, KafkaError
from kserver.model import TopicPartition


class Bench:
    """An accumulator whose clock stands still unless moved, and what it told."""

    def __init__(self, partitions: int = 1, seed: int = 1, **limits) -> None:
        self.now = 0.0
        self.now_ms = 1000
        self.opened: list[Batch] = []
        self.full: list[Lane] = []
        self.stamps = 0
        self.accumulator = Accumulator(
            Limits(**limits),
            now=lambda: self.now,
            now_ms=lambda: self.now_ms,
            chance=Random(seed),
            on_open=self.opened.append,
            on_full=self.full.append,
            on_stamp=self._stamped,
        )
        self.accumulator.producer_id, self.accumulator.producer_epoch = 7, 0
        self.accumulator.grow("t", partitions)
        for lane in self.accumulator.lanes("t"):
            lane.leader = 0

    def _stamped(self) -> None:
        self.stamps += 1

    def lane(self, partition: int = 0) -> Lane:
        return self.accumulator.lanes("t")[partition]

    def offer(self, value: bytes | None = b"v", key: bytes | None = None, **rest) -> bool:
        return self.accumulator.offer("t", value, key, **rest)

    def take(self, partition: int = 0) -> Batch | None:
        lane = self.lane(partition)
        if lane.open is not None:
            self.accumulator.due(lane.open)
        if self.accumulator.sendable(lane, self.now) is None:
            return None
        return self.accumulator.take(lane)


def values(batch: Batch) -> list[bytes | None]:
    return [value for _, _, value, _ in batch.records]


def test_records_gather_in_a_batch_until_it_is_full():
    bench = Bench(batch_size=200)
    for n in range(20):
        assert bench.offer(b"%02d" % n)
    assert len(bench.opened) > 1
    assert bench.full == [bench.lane()] * (len(bench.opened) - 1)
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
    bench.accumulator.answered(batch, appended=True)
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
            by_key.setdefault(key, set()).add(batch.lane.partition.partition)
    assert all(len(partitions) == 1 for partitions in by_key.values())
    bench.offer(b"there", b"key-1", partition=5)
    assert b"there" in values(bench.lane(5).open)


def test_with_ignored_keys_they_are_spread_like_the_others():
    bench = Bench(partitions=8, batch_size=100, ignore_keys=True)
    for _ in range(100):
        bench.offer(b"v", b"same key")
    assert len({batch.lane.partition for batch in bench.opened}) > 3


def test_records_without_a_key_stay_for_a_batch_and_then_move_on():
    bench = Bench(partitions=8, batch_size=200)
    for _ in range(400):
        bench.offer()
    assert all(len(batch.records) > 5 for batch in bench.opened[:-1])
    assert len({batch.lane.partition for batch in bench.opened}) == 8


def test_records_without_a_key_avoid_partitions_without_a_leader():
    bench = Bench(partitions=8, batch_size=200)
    for lane in bench.accumulator.lanes("t")[:4]:
        lane.leader = None
    for _ in range(400):
        bench.offer()
    led = [batch for batch in bench.opened if batch.lane.leader is not None]
    assert len(led) > 0.9 * len(bench.opened)


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
    lane = bench.lane()
    assert bench.accumulator.sendable(lane, 0) is None
    assert bench.accumulator.due_all() == [lane]
    assert bench.accumulator.sendable(lane, 0) is bench.opened[0]


def test_sequences_count_records_and_wrap():
    bench = Bench()
    bench.offer()
    bench.take()
    lane = bench.lane()
    lane.next_sequence = 0x7FFFFFFE
    for _ in range(3):
        bench.offer()
    assert bench.take().base_sequence == 0x7FFFFFFE
    bench.offer()
    assert bench.take().base_sequence == 1


def test_without_idempotence_there_are_no_sequences_and_nothing_waits_for_its_elder():
    bench = Bench(idempotent=False)
    bench.offer(b"1")
    first = bench.take()
    assert first.base_sequence == -1
    bench.offer(b"2")
    second = bench.take()
    bench.accumulator.put_back(first, 0, doubtful=False)
    assert bench.take() is first
    bench.accumulator.answered(second, appended=False)
    assert not bench.lane().broken


def test_with_one_request_in_flight_a_partition_has_one_batch_in_flight():
    bench = Bench(idempotent=False, max_in_flight=1)
    bench.offer(b"1")
    first = bench.take()
    bench.offer(b"2")
    assert bench.take() is None
    bench.accumulator.answered(first, appended=True)
    assert values(bench.take()) == [b"2"]


def test_what_is_put_back_goes_before_what_is_younger_and_waits_its_time():
    bench = Bench()
    taken = []
    for n in range(3):
        bench.offer(b"%d" % n)
        taken.append(bench.take())
    bench.offer(b"3")
    for batch in taken:
        bench.accumulator.put_back(batch, 5.0, doubtful=False)
    assert bench.take() is None
    bench.now = 5.0
    assert bench.take() is taken[0]
    assert bench.take() is None, "tries after a failure go one at a time"
    bench.accumulator.answered(taken[0], appended=True)
    assert bench.take() is taken[1]


def test_a_batch_that_is_given_up_in_flight_is_told_once_and_settled_by_its_answer():
    bench = Bench()
    bench.offer()
    batch = bench.take()
    bench.accumulator.finish(batch)
    assert bench.accumulator.used_bytes == 0
    assert not bench.accumulator.incomplete
    bench.offer()
    bench.accumulator.answered(batch, appended=True)
    assert not bench.lane().broken
    assert bench.take().base_sequence == 1


def test_what_fails_for_good_breaks_the_lane_until_nothing_is_out_and_then_a_new_epoch_begins():
    bench = Bench()
    batches = []
    for n in range(3):
        bench.offer(b"%d" % n)
        batches.append(bench.take())
    bench.accumulator.answered(batches[0], appended=False)
    bench.accumulator.finish(batches[0])
    bench.offer(b"3")
    assert bench.take() is None
    bench.accumulator.put_back(batches[1], 0, doubtful=False)
    bench.accumulator.put_back(batches[2], 0, doubtful=False)
    lane = bench.lane()
    assert (lane.producer_id, lane.epoch) == (7, 1)
    assert bench.take() is batches[1]
    assert batches[1].base_sequence == 0
    assert batches[2].base_sequence == 1


def test_what_may_have_been_appended_is_tried_under_its_old_numbers_before_a_new_epoch():
    bench = Bench()
    batches = []
    for n in range(3):
        bench.offer(b"%d" % n)
        batches.append(bench.take())
    for batch in batches:
        bench.accumulator.put_back(batch, 0, doubtful=True)
    bench.accumulator.finish(batches[0])
    assert bench.take() is batches[1]
    assert (bench.lane().epoch, batches[1].base_sequence) == (0, 1)
    assert bench.take() is None
    bench.accumulator.answered(batches[1], appended=True)
    assert bench.take() is batches[2]
    bench.accumulator.put_back(batches[2], 0, doubtful=False)
    assert bench.take() is batches[2]
    assert (bench.lane().epoch, batches[2].base_sequence) == (1, 0)


def test_another_lane_goes_on_in_its_epoch():
    bench = Bench(partitions=2)
    bench.offer(partition=0)
    bench.offer(partition=1)
    broken, other = bench.take(0), bench.take(1)
    bench.accumulator.answered(broken, appended=False)
    bench.accumulator.answered(other, appended=True)
    bench.offer(partition=1)
    assert bench.take(1).base_sequence == 1
    assert bench.lane(1).epoch == 0


def test_after_the_last_epoch_comes_a_new_producer_id():
    bench = Bench()
    bench.offer(b"1")
    first = bench.take()
    bench.lane().epoch = 0x7FFF
    bench.offer(b"2")
    second = bench.take()
    bench.accumulator.answered(first, appended=False)
    bench.accumulator.put_back(second, 0, doubtful=False)
    assert bench.accumulator.producer_id == -1, "the sender has to fetch one"
    bench.accumulator.producer_id, bench.accumulator.producer_epoch = 8, 0
    assert bench.take() is second
    assert (bench.lane().producer_id, bench.lane().epoch, second.base_sequence) == (8, 0, 0)


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
        bench.accumulator.answered(half, appended=True)
        bench.accumulator.finish(half)
        for tell, error, metadata in half.deliver(None, offset, -1):
            tell(error, metadata)
        offset += len(half.records)
    assert heard == [(n, 10 + n) for n in range(5)]
    assert bench.accumulator.used_bytes == 0


class ModelBroker:
    """One partition as a broker keeps it: by producer, the epoch, the next sequence, the log."""

    def __init__(self) -> None:
        self.log: list[bytes | None] = []
        self.epoch, self.next, self.last = -1, 0, []

    def append(self, batch: Batch) -> str:
        epoch = batch.lane.epoch
        if epoch > self.epoch:
            if batch.base_sequence != 0:
                return "out of order"
            self.epoch, self.next, self.last = epoch, 0, []
        if (epoch, batch.base_sequence, len(batch.records)) in self.last:
            return "appended"
        if epoch < self.epoch or batch.base_sequence != self.next:
            return "out of order"
        self.log += values(batch)
        self.next += len(batch.records)
        self.last = [*self.last, (epoch, batch.base_sequence, len(batch.records))][-5:]
        return "appended"


@settings(max_examples=150)
@given(st.integers(0, 1 << 32), st.integers(1, 5))
def test_every_record_is_written_once_and_in_order_or_reported_lost(seed, weight):
    """Requests and answers are lost, batches refused, too large, or given up, in any order that one
    connection allows; afterwards the broker holds what was acknowledged, in order, once each, and
    besides only what was given up while nobody knew its fate."""
    chance = Random(seed)
    bench, broker = Bench(batch_size=150), ModelBroker()
    accumulator, lane = bench.accumulator, bench.lane()
    wire: list[Batch] = []
    acked: list[bytes | None] = []
    lost: list[bytes | None] = []
    sent = 0

    def settle(batch: Batch, outcome: str) -> None:
        if outcome == "appended":
            accumulator.answered(batch, appended=True)
            if not batch.finished:
                accumulator.finish(batch)
                acked.extend(values(batch))
        elif batch.finished:
            accumulator.answered(batch, appended=False)
        elif outcome == "split" and len(batch.records) > 1:
            accumulator.split(batch)
        elif outcome in ("refused", "split"):
            accumulator.answered(batch, appended=False)
            accumulator.finish(batch)
            lost.extend(values(batch))
        else:
            if outcome == "out of order" and accumulator.is_oldest(batch):
                lane.broken = True
            doubtful = outcome == "unknown" or (batch.doubtful and outcome == "later")
            accumulator.put_back(batch, 0, doubtful=doubtful)

    def step(calm: bool) -> None:
        nonlocal sent
        kind = chance.randrange(12)
        if kind < weight and not calm:
            bench.offer(b"%d" % sent)
            sent += 1
        elif kind < 7:
            if batch := bench.take():
                wire.append(batch)
        elif kind == 7 and not calm and wire:
            # The connection breaks: some of what is out had arrived, nothing is answered.
            for batch in wire[: chance.randrange(len(wire) + 1)]:
                broker.append(batch)
            for batch in list(wire):
                wire.remove(batch)
                settle(batch, "unknown")
        elif kind == 8 and not calm and accumulator.incomplete:
            batch = chance.choice(list(accumulator.incomplete))
            accumulator.finish(batch)
            lost.extend(values(batch))
        elif wire:
            batch = wire.pop(0)
            refusals = [None, None, "later"] + ["refused", "split"] * (not batch.doubtful)
            refusal = None if calm else chance.choice(refusals)
            settle(batch, refusal or broker.append(batch))

    for _ in range(200):
        step(calm=False)
    for _ in range(5000):
        if not accumulator.incomplete and not wire:
            break
        step(calm=True)
    assert not accumulator.incomplete
    assert accumulator.used_bytes == 0
    numbers = [int(value) for value in broker.log]
    assert numbers == sorted(set(numbers)), "order, and no duplicates"
    assert set(acked) <= set(broker.log)
    assert sorted(map(int, acked + lost)) == list(range(sent)), "one outcome each"


def test_lanes_grow_with_the_topic():
    bench = Bench(partitions=2)
    bench.accumulator.grow("t", 4)
    bench.accumulator.grow("t", 3)
    partitions = [lane.partition for lane in bench.accumulator.lanes("t")]
    assert partitions == [TopicPartition("t", n) for n in range(4)]
