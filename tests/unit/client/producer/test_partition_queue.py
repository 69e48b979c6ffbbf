from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from kcli.client.producer.partition_queue import ProducerBatch
from tests.support.partition_queues import Bench, values


def test_everything_waits_for_the_first_batch_of_an_epoch():
    bench = Bench()
    bench.offer(b"1")
    first = bench.take()
    bench.offer(b"2")
    assert bench.take() is None
    bench.queue().put_back(first, 0, maybe_appended=False)
    assert bench.take() is first
    assert bench.take() is None
    bench.queue().complete(first, appended=True)
    assert values(bench.take()) == [b"2"]
    bench.offer(b"3")
    assert values(bench.take()) == [b"3"]


def test_sequences_count_records_and_wrap():
    bench = Bench().begin()
    queue = bench.queue()
    queue._next_sequence = 0x7FFFFFFE
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
    bench.queue().put_back(first, 0, maybe_appended=False)
    assert bench.take() is first
    bench.queue().complete(second, appended=False)
    assert not bench.queue().broken


def test_with_one_request_in_flight_a_partition_has_one_batch_in_flight():
    bench = Bench(idempotent=False, max_in_flight=1)
    bench.offer(b"1")
    first = bench.take()
    bench.offer(b"2")
    assert bench.take() is None
    bench.queue().complete(first, appended=True)
    assert values(bench.take()) == [b"2"]


def test_what_is_put_back_goes_before_what_is_younger_and_waits_its_time():
    bench = Bench().begin()
    taken = []
    for n in range(3):
        bench.offer(b"%d" % n)
        taken.append(bench.take())
    bench.offer(b"3")
    for batch in taken:
        bench.queue().put_back(batch, 5.0, maybe_appended=False)
    assert bench.take() is None
    bench.now = 5.0
    assert bench.take() is taken[0]
    assert bench.take() is None, "tries after a failure go one at a time"
    bench.queue().complete(taken[0], appended=True)
    assert bench.take() is taken[1]


def test_a_batch_that_is_given_up_in_flight_is_told_once_and_settled_by_its_answer():
    bench = Bench()
    bench.offer()
    batch = bench.take()
    bench.accumulator.finish(batch)
    assert bench.accumulator.used_bytes == batch.reserved_bytes > 0
    assert not bench.accumulator.incomplete
    bench.queue().complete(batch, appended=True)
    bench.accumulator.free(batch)
    assert bench.accumulator.used_bytes == 0
    bench.offer()
    assert not bench.queue().broken
    assert bench.take().base_sequence == 1


def test_what_fails_for_good_breaks_the_queue_until_nothing_is_out_and_then_a_new_epoch_begins():
    bench = Bench().begin()
    batches = []
    for n in range(3):
        bench.offer(b"%d" % n)
        batches.append(bench.take())
    bench.queue().complete(batches[0], appended=False)
    bench.accumulator.finish(batches[0])
    bench.offer(b"3")
    assert bench.take() is None
    bench.queue().put_back(batches[1], 0, maybe_appended=False)
    bench.queue().put_back(batches[2], 0, maybe_appended=False)
    queue = bench.queue()
    assert (queue.producer_id, queue.epoch) == (7, 1)
    assert bench.take() is batches[1]
    assert batches[1].base_sequence == 0
    assert batches[2].base_sequence == 1


def test_what_may_have_been_appended_is_tried_under_its_old_numbers_before_a_new_epoch():
    bench = Bench().begin()
    batches = []
    for n in range(3):
        bench.offer(b"%d" % n)
        batches.append(bench.take())
    for batch in batches:
        bench.queue().put_back(batch, 0, maybe_appended=True)
    bench.accumulator.give_up(batches[0])
    bench.accumulator.finish(batches[0])
    assert bench.take() is batches[1]
    assert (bench.queue().epoch, batches[1].base_sequence) == (0, 2)
    assert bench.take() is None
    bench.queue().complete(batches[1], appended=True)
    assert bench.take() is batches[2]
    bench.queue().put_back(batches[2], 0, maybe_appended=False)
    assert bench.take() is batches[2]
    assert (bench.queue().epoch, batches[2].base_sequence) == (1, 0)


def test_a_restarted_broker_is_asked_for_the_youngest_in_doubt_which_settles_the_older_ones():
    bench = Bench().begin()
    batches = []
    for n in range(4):
        bench.offer(b"%d" % n)
        batches.append(bench.take())
    for batch in batches:
        bench.queue().put_back(batch, 0, maybe_appended=True)
    assert bench.take() is batches[0]
    bench.queue().out_of_order(batches[0], 0)
    assert bench.take() is batches[3]
    bench.queue().out_of_order(batches[3], 0)
    assert bench.take() is batches[2]
    assert bench.queue().complete(batches[2], appended=True) == batches[:2]
    for batch in batches[:3]:
        bench.accumulator.finish(batch)
    assert bench.take() is batches[3]
    assert (bench.queue().epoch, batches[3].base_sequence) == (1, 0)


def test_a_batch_in_flight_is_not_passed_by_more_than_a_broker_remembers():
    """A former leader holds the response of one, while the new leader appends the others."""
    bench = Bench().begin()
    bench.offer(b"held")
    held = bench.take()
    for n in range(4):
        bench.offer(b"%d" % n)
        bench.queue().complete(bench.take(), appended=True)
    bench.offer(b"4")
    assert bench.take() is None, "the leader recognizes the last five batches only"
    bench.queue().put_back(held, 0, maybe_appended=True)
    assert bench.take() is held
    bench.queue().complete(held, appended=True)
    assert values(bench.take()) == [b"4"]


def test_another_queue_goes_on_in_its_epoch():
    bench = Bench(partitions=2)
    bench.offer(partition=0)
    bench.offer(partition=1)
    broken, other = bench.take(0), bench.take(1)
    bench.queue(0).complete(broken, appended=False)
    bench.queue(1).complete(other, appended=True)
    bench.offer(partition=1)
    assert bench.take(1).base_sequence == 1
    assert bench.queue(1).epoch == 0


def test_after_the_last_epoch_comes_a_new_producer_id():
    bench = Bench().begin()
    bench.offer(b"1")
    first = bench.take()
    bench.queue().epoch = 0x7FFF
    bench.offer(b"2")
    second = bench.take()
    bench.queue().complete(first, appended=False)
    bench.queue().put_back(second, 0, maybe_appended=False)
    assert bench.rules.producer_id == -1, "the sender has to fetch one"
    bench.rules.producer_id, bench.rules.producer_epoch = 8, 0
    assert bench.take() is second
    assert (bench.queue().producer_id, bench.queue().epoch, second.base_sequence) == (8, 0, 0)


class ModelBroker:
    """One partition as a broker keeps it: by producer, the epoch, the next sequence, the log."""

    def __init__(self) -> None:
        self.log: list[bytes | None] = []
        self.epoch = -1
        self.next: int | None = 0
        self.last: list[tuple[int, int, int]] = []

    def append(self, batch: ProducerBatch) -> str:
        epoch, sequence = batch.queue.epoch, batch.base_sequence
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
    """A producer's queue and a broker, with one connection between them that breaks by chance."""

    def __init__(self, seed: int, weight: int, *, forgetful: bool) -> None:
        self.random = Random(seed)
        self.weight = weight
        self.forgetful = forgetful
        self.bench, self.broker = Bench(batch_size=150), ModelBroker()
        self.accumulator = self.bench.accumulator
        self.wire: list[ProducerBatch] = []
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

    def settle(self, batch: ProducerBatch, outcome: str) -> None:
        accumulator, queue, was_finished = self.accumulator, batch.queue, batch.finished
        if outcome == "appended":
            for done in [*queue.complete(batch, appended=True), batch]:
                if not done.finished:
                    accumulator.finish(done)
                    self.acked += values(done)
        elif was_finished:
            queue.complete(batch, appended=None if outcome == "unknown" else False)
        elif outcome == "split" and len(batch.records) > 1:
            accumulator.split(batch)
        elif outcome in ("refused", "split"):
            queue.complete(batch, appended=False)
            self.give_up(batch)
        elif outcome == "out of order":
            queue.out_of_order(batch, 0)
        else:
            maybe_appended = batch.maybe_appended or outcome == "unknown"
            queue.put_back(batch, 0, maybe_appended=maybe_appended)
        if was_finished:
            accumulator.free(batch)

    def give_up(self, batch: ProducerBatch) -> None:
        self.accumulator.give_up(batch)
        self.accumulator.finish(batch)
        self.lost += values(batch)

    def break_connection(self) -> None:
        """Some of what is out had arrived, nothing is answered."""
        arrived = self.wire[: self.random.randrange(len(self.wire) + 1)]
        for batch in arrived:
            self.broker.append(batch)
        if self.random.random() < 0.5:
            self.broker.restart()
        if self.forgetful and self.random.random() < 0.3:
            self.broker.forget()
        self.bench.queue().on_connect()
        out, self.wire = self.wire, []
        for batch in out:
            self.settle(batch, "unknown")

    def step(self, *, calm: bool) -> None:
        kind = self.random.randrange(12)
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
            refusals = [None, None, "later"] + ["refused", "split"] * (not batch.maybe_appended)
            refusal = None if calm else self.random.choice(refusals)
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
