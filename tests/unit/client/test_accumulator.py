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
        batch = self.accumulator.sendable(lane, self.now)
        if batch is not None:
            self.accumulator.take(batch)
        return batch


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


def test_a_restarted_broker_is_asked_for_the_youngest_in_doubt_which_settles_the_older_ones():
    bench = Bench()
    batches = []
    for n in range(4):
        bench.offer(b"%d" % n)
        batches.append(bench.take())
    for batch in batches:
        bench.accumulator.put_back(batch, 0, doubtful=True)
    assert bench.take() is batches[0]
    bench.accumulator.out_of_order(batches[0], 0)
    assert bench.take() is batches[3]
    bench.accumulator.out_of_order(batches[3], 0)
    assert bench.take() is batches[2]
    assert bench.accumulator.answered(batches[2], appended=True) == batches[:2]
    for batch in batches[:3]:
        bench.accumulator.finish(batch)
    assert bench.take() is batches[3]
    assert (bench.lane().epoch, batches[3].base_sequence) == (1, 0)


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
        self.epoch = -1
        self.next: int | None = 0
        self.last: list[tuple[int, int, int]] = []

    def append(self, batch: Batch) -> str:
        epoch, sequence = batch.lane.epoch, batch.base_sequence
        this = (epoch, sequence, len(batch.records))
        if this in self.last:
            return "appended"
        if epoch > self.epoch and self.next is not None:
            self.epoch, self.next, self.last = epoch, 0, []
        if epoch < self.epoch or self.next not in (None, sequence):
            return "out of order"
        self.log += values(batch)
        self.epoch, self.next = epoch, sequence + len(batch.records)
        self.last = [*self.last, this][-5:]
        return "appended"

    def restart(self) -> None:
        """What a producer snapshot holds is its last batch."""
        self.last = self.last[-1:]

    def forget(self) -> None:
        """Retention or expiry took the producer's state: any sequence is a first one."""
        self.epoch, self.next, self.last = -1, None, []


class Run:
    """A producer's lane and a broker, with one connection between them that breaks by chance."""

    def __init__(self, seed: int, weight: int, *, forgetful: bool) -> None:
        self.chance = Random(seed)
        self.weight = weight
        self.forgetful = forgetful
        self.bench, self.broker = Bench(batch_size=150), ModelBroker()
        self.accumulator = self.bench.accumulator
        self.wire: list[Batch] = []
        self.acked: list[bytes | None] = []
        self.lost: list[bytes | None] = []
        self.sent = 0
        for _ in range(200):
            self.step(calm=False)
        for _ in range(5000):
            if not self.accumulator.incomplete and not self.wire:
                break
            self.step(calm=True)
        assert not self.accumulator.incomplete
        assert self.accumulator.used_bytes == 0
        told = sorted(int(value) for value in self.acked + self.lost)
        assert told == list(range(self.sent)), "one outcome each"

    def settle(self, batch: Batch, outcome: str) -> None:
        accumulator = self.accumulator
        if outcome == "appended":
            for done in [*accumulator.answered(batch, appended=True), batch]:
                if not done.finished:
                    accumulator.finish(done)
                    self.acked += values(done)
        elif batch.finished:
            accumulator.answered(batch, appended=None if outcome == "unknown" else False)
        elif outcome == "split" and len(batch.records) > 1:
            accumulator.split(batch)
        elif outcome in ("refused", "split"):
            accumulator.answered(batch, appended=False)
            self.give_up(batch)
        elif outcome == "out of order":
            accumulator.out_of_order(batch, 0)
        else:
            doubtful = batch.doubtful or outcome == "unknown"
            accumulator.put_back(batch, 0, doubtful=doubtful)

    def give_up(self, batch: Batch) -> None:
        self.accumulator.finish(batch)
        self.lost += values(batch)

    def break_connection(self) -> None:
        """Some of what is out had arrived, nothing is answered."""
        arrived = self.wire[: self.chance.randrange(len(self.wire) + 1)]
        for batch in arrived:
            self.broker.append(batch)
        if self.chance.random() < 0.5:
            self.broker.restart()
        if self.forgetful and self.chance.random() < 0.3:
            self.broker.forget()
        self.accumulator.connected(0)
        out, self.wire = self.wire, []
        for batch in out:
            self.settle(batch, "unknown")

    def step(self, *, calm: bool) -> None:
        kind = self.chance.randrange(12)
        if kind < self.weight and not calm:
            self.bench.offer(b"%d" % self.sent)
            self.sent += 1
        elif kind < 7:
            if batch := self.bench.take():
                self.wire.append(batch)
        elif kind == 7 and not calm:
            self.break_connection()
        elif kind == 8 and not calm and self.accumulator.incomplete:
            self.give_up(next(iter(self.accumulator.incomplete)))
        elif self.wire:
            batch = self.wire.pop(0)
            refusals = [None, None, "later"] + ["refused", "split"] * (not batch.doubtful)
            refusal = None if calm else self.chance.choice(refusals)
            self.settle(batch, refusal or self.broker.append(batch))


seeds_and_weights = (st.integers(0, 1 << 32), st.integers(1, 5))


@settings(max_examples=150)
@given(*seeds_and_weights)
def test_every_record_is_written_once_and_in_order_or_reported_lost(seed, weight):
    """Requests and answers are lost, batches refused, too large, or given up, and the broker
    restarts; afterwards it holds what was acknowledged, in order, once each, and besides only what
    was given up while nobody knew its fate."""
    run = Run(seed, weight, forgetful=False)
    numbers = [int(value) for value in run.broker.log]
    assert numbers == sorted(set(numbers)), "order, and no duplicates"
    assert set(run.acked) <= set(run.broker.log)


@settings(max_examples=150)
@given(*seeds_and_weights)
def test_even_a_broker_that_forgets_the_producer_loses_nothing_that_was_acknowledged(seed, weight):
    run = Run(seed, weight, forgetful=True)
    assert set(run.acked) <= set(run.broker.log)


def test_lanes_grow_with_the_topic():
    bench = Bench(partitions=2)
    bench.accumulator.grow("t", 4)
    bench.accumulator.grow("t", 3)
    partitions = [lane.partition for lane in bench.accumulator.lanes("t")]
    assert partitions == [TopicPartition("t", n) for n in range(4)]
