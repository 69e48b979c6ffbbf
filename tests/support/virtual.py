"""Coordinators and their clients in virtual time, without an event loop: thousands of runs.

    time = VirtualTime(seed)
    coordinator = VirtualCoordinator(time, make_shard, image)
    network = VirtualNetwork(time, Weather(mean_delay_ms=5, loss=0.01, repeats=0.01))
    network.call(line, coordinator.ask, request, told, timeout_ms=2000)
    time.run(60_000)

A VirtualCoordinator does to a shard what `kserver.coordinator.runtime` does, with a list as its
log.  Everything is a call at a virtual time, in order; chance comes from `time.random`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Generic, NamedTuple, TypeVar

from kserver.coordinator.shard import Now, Outcome, Shard, Transactional
from kserver.errors import ErrorCode, KafkaError
from kserver.metadata import ClusterMetadata
from kserver.model import NO_PRODUCER_ID, ProducerId
from tests.support.clock import DAY_ONE_MS

S = TypeVar("S", bound=Shard)
Reply = Callable[[Any], None]
"""Called with the response, or with a KafkaError."""
LOST = KafkaError(ErrorCode.network_exception)
"""The connection broke: the outcome is unknown."""


class Timer:
    __slots__ = ("arguments", "at_ms", "call")

    def __init__(self, at_ms: int, call: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        self.at_ms = at_ms
        self.call: Callable[..., None] | None = call
        self.arguments = arguments

    def cancel(self) -> None:
        self.call = None


class VirtualTime:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.now_ms = 0
        self.trace: list[tuple[Any, ...]] = []
        """All events, for comparing runs."""
        self._timers: list[tuple[int, int, Timer]] = []
        self._serial = 0

    @property
    def now_s(self) -> float:
        return self.now_ms / 1000

    def at(self, at_ms: int, call: Callable[..., None], *arguments: Any) -> Timer:
        timer = Timer(max(at_ms, self.now_ms), call, arguments)
        self._serial += 1
        heapq.heappush(self._timers, (timer.at_ms, self._serial, timer))
        return timer

    def after(self, ms: float, call: Callable[..., None], *arguments: Any) -> Timer:
        return self.at(self.now_ms + round(ms), call, *arguments)

    def run(self, until_ms: int) -> None:
        timers = self._timers
        while timers and timers[0][0] <= until_ms:
            at_ms, _, timer = heapq.heappop(timers)
            if timer.call is not None:
                self.now_ms = at_ms
                timer.call(*timer.arguments)
        self.now_ms = until_ms

    def some(self, mean_ms: float) -> float:
        return self.random.expovariate(1 / mean_ms)


class VirtualProcess:
    """The state of a process: while it is stopped, its callbacks wait; once it ended, they are
    dropped.
    """

    def __init__(self, time: VirtualTime) -> None:
        self._time = time
        self.is_alive = True
        self.is_asleep = False
        self._slept: list[tuple[Callable[..., None], tuple[Any, ...]]] = []

    def do(self, call: Callable[..., None], *arguments: Any) -> None:
        if self.is_asleep:
            self._slept.append((call, arguments))
        elif self.is_alive:
            call(*arguments)

    def after(self, ms: float, call: Callable[..., None], *arguments: Any) -> None:
        self._time.after(ms, self.do, call, *arguments)

    def wake(self) -> None:
        self.is_asleep = False
        slept, self._slept = self._slept, []
        for call, arguments in slept:
            self.do(call, *arguments)


class Weather(NamedTuple):
    mean_delay_ms: float = 2
    loss: float = 0.0
    """Probability that a request or a response is lost; its connection breaks."""
    repeats: float = 0.0
    """Probability that a request arrives twice, the second time late."""


class Line:
    """A client's connection, and its successors: requests arrive in the order of sending."""

    __slots__ = ("arrives_ms",)

    def __init__(self) -> None:
        self.arrives_ms = 0


class VirtualNetwork:
    def __init__(self, time: VirtualTime, weather: Weather) -> None:
        self.time = time
        self.weather = weather
        self.on_loss: Callable[[], None] = lambda: None
        self._calls: dict[_Call, None] = {}

    def call(
        self,
        line: Line,
        server: Callable[[Any, Reply], None],
        request: Any,
        told: Reply,
        *,
        timeout_ms: int,
        may_repeat: bool = True,
    ) -> None:
        """Send a request; call `told` once, with LOST after `timeout_ms` at the latest."""
        time, weather = self.time, self.weather
        time.trace.append((time.now_ms, request))
        call = _Call(told, self._calls)
        self._calls[call] = None
        time.after(timeout_ms, call.answer, LOST)
        line.arrives_ms = max(line.arrives_ms, time.now_ms + round(self._delay_ms()))
        if self._is_lost():
            return

        def reply(answer: Any) -> None:
            if not self._is_lost():
                time.after(self._delay_ms(), call.answer, answer)

        time.at(line.arrives_ms, server, request, reply)
        if may_repeat and time.random.random() < weather.repeats:
            time.after(time.some(1000), server, request, lambda _: None)

    def end(self) -> None:
        """End all calls with LOST."""
        for call in list(self._calls):
            call.answer(LOST)

    def _is_lost(self) -> bool:
        lost = self.time.random.random() < self.weather.loss
        if lost:
            self.on_loss()
        return lost

    def _delay_ms(self) -> float:
        return self.time.some(self.weather.mean_delay_ms)


class _Call:
    __slots__ = ("_open", "_told")

    def __init__(self, told: Reply, calls: dict[_Call, None]) -> None:
        self._told = told
        self._open = calls

    def answer(self, answer: Any) -> None:
        if self in self._open:
            del self._open[self]
            self._told(answer)


@dataclass(frozen=True, slots=True)
class Batch:
    events: Sequence[Any]
    records: Sequence[tuple[bytes, bytes | None]]
    producer: Transactional | None = None

    @property
    def producer_id(self) -> ProducerId:
        return NO_PRODUCER_ID if self.producer is None else self.producer.producer_id


@dataclass(frozen=True, slots=True)
class Marker:
    producer_id: ProducerId
    epoch: int
    commit: bool
    version: int = 0
    """Transaction version: from 2 on no transaction under this epoch has begun yet."""


class Producers:
    """The producers of a partition: epochs, and the first offsets of open transactions."""

    def __init__(self) -> None:
        self.open: dict[ProducerId, int] = {}
        self._epochs: dict[ProducerId, int] = {}

    def is_open(self, producer_id: ProducerId, epoch: int) -> bool:
        """Return whether the transaction with this epoch is open, disregarding one of the epoch
        before.
        """
        return producer_id in self.open and self._epochs[producer_id] == epoch

    def write(self, producer: Transactional, offset: int) -> None:
        """Write a record. Raises INVALID_PRODUCER_EPOCH, as `end` does."""
        producer_id, epoch = producer
        if epoch < self._epochs.get(producer_id, -1):
            raise KafkaError(ErrorCode.invalid_producer_epoch)
        self._epochs[producer_id] = epoch
        self.open.setdefault(producer_id, offset)

    def end(self, marker: Marker) -> None:
        known = self._epochs.get(marker.producer_id, -1)
        is_late = marker.version >= 2 and marker.producer_id in self.open and known >= marker.epoch
        if marker.epoch < known or is_late:
            raise KafkaError(ErrorCode.invalid_producer_epoch)
        self._epochs[marker.producer_id] = marker.epoch
        self.open.pop(marker.producer_id, None)


class VirtualCoordinator(Generic[S]):
    """The coordinator of one partition, which may move, crash and lose uncommitted writes."""

    def __init__(
        self,
        time: VirtualTime,
        make: Callable[[], S],
        image: ClusterMetadata,
        *,
        mean_commit_ms: float = 2,
        mean_load_ms: float = 50,
        perform: Callable[[Any], None] | None = None,
    ) -> None:
        self.shard: S = make()
        self.log: list[Batch | Marker] = []
        self.image = image
        self.fails = 0.0
        """Probability that a write fails."""
        self.check: Callable[[S], None] = lambda shard: None
        self.on_end: Callable[[], None] = lambda: None
        self._time = time
        self._make = make
        self._perform = perform
        self._mean_commit_ms = mean_commit_ms
        self._mean_load_ms = mean_load_ms
        self._committed = 0
        self._commits_ms = 0
        self._refusal: ErrorCode | None = None
        self._producers = Producers()
        self._waiting: dict[Reply, None] = {}
        self._uncommitted: list[tuple[int, Outcome]] = []
        self._timer: Timer | None = None
        self._term = 0
        """Grows with each shard: callbacks for an earlier one are ignored."""
        self._begin()

    # Requests

    def ask(self, request: Any, reply: Reply) -> None:
        if self._refusal is not None:
            reply(KafkaError(self._refusal))
            return
        self._waiting[reply] = None
        try:
            outcome = self.shard.handle(request, reply, self._now())
        except KafkaError as error:
            self._answer([(reply, error)])
            return
        self._carry_out(outcome)

    def end_transaction(self, marker: Marker, reply: Reply) -> None:
        """Write a marker for the producers' records in this partition."""
        if self._refusal is not None:
            reply(KafkaError(ErrorCode.not_leader_or_follower))
            return
        try:
            self._producers.end(marker)
        except KafkaError as error:
            reply(error)
            return
        self._waiting[reply] = None
        self.log.append(marker)
        self.shard.replay_end(marker.producer_id, marker.commit)
        self._commit_soon()
        self._complete_once_committed(Outcome(responses=[(reply, ErrorCode.none)]))
        self._set_timer()

    def _now(self) -> Now:
        return Now(self._time.now_ms, DAY_ONE_MS + self._time.now_ms)

    def _carry_out(self, outcome: Outcome) -> None:
        shard, producer = self.shard, outcome.transactional
        if outcome.events:
            if self.fails and self._time.random.random() < self.fails:
                if outcome.only_events:
                    self._refuse(outcome)
                else:
                    self.move()
                return
            batch = Batch(outcome.events, [shard.encode(e) for e in outcome.events], producer)
            if producer is not None:
                try:
                    self._producers.write(producer, len(self.log))
                except KafkaError as error:
                    self._answer([(reply, error) for reply, _ in outcome.responses])
                    return
            self.log.append(batch)
            for event in outcome.events:
                shard.replay(event, batch.producer_id)
            self._commit_soon()
            self.check(shard)
        if outcome.responses or outcome.effects:
            self._complete_once_committed(outcome)
        self._set_timer()

    def _refuse(self, outcome: Outcome) -> None:
        """Restore the shard, as after a write with too few in-sync replicas."""
        error = KafkaError(ErrorCode.coordinator_not_available)
        self._answer([(reply, error) for reply, _ in outcome.responses])
        self.check(self.shard)
        self._set_timer()

    def _commit_soon(self) -> None:
        time = self._time
        self._commits_ms = max(
            self._commits_ms, time.now_ms + round(time.some(self._mean_commit_ms))
        )
        time.at(self._commits_ms, self._commit, self._term, len(self.log))

    def _commit(self, term: int, end: int) -> None:
        if term != self._term:
            return
        self._committed = max(self._committed, end)
        while self._uncommitted and self._uncommitted[0][0] <= self._committed:
            _, outcome = self._uncommitted.pop(0)
            self._complete(outcome)

    def _complete_once_committed(self, outcome: Outcome) -> None:
        if self._committed == len(self.log):
            self._complete(outcome)
        else:
            self._uncommitted.append((len(self.log), outcome))

    def _complete(self, outcome: Outcome) -> None:
        self._answer(outcome.responses)
        for effect in outcome.effects:
            assert self._perform is not None
            self._perform(effect)

    def _answer(self, answers: Sequence[tuple[Reply, Any]]) -> None:
        for reply, answer in answers:
            if reply in self._waiting:
                del self._waiting[reply]
                reply(answer)

    def _set_timer(self) -> None:
        at_ms = self.shard.next_deadline_ms
        if at_ms is None or (self._timer is not None and self._timer.at_ms <= at_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._time.at(at_ms, self._expire)

    def _expire(self) -> None:
        self._timer = None
        self._carry_out(self.shard.expire(self._now()))

    # Changes

    def image_changed(self, image: ClusterMetadata) -> None:
        self.image = image
        if self._refusal is None:
            self._carry_out(self.shard.image_changed(image, self._now()))

    def move(self) -> None:
        """Move elsewhere and soon back again; waiting requests fail with an error."""
        self.on_end()
        self._end(KafkaError(ErrorCode.not_coordinator))
        self._load_after(0)

    def crash(self, down_ms: float) -> None:
        """Crash: waiting requests have no response, and the last uncommitted writes may be lost."""
        self.on_end()
        self._end(LOST)
        self._load_after(down_ms)

    def _end(self, answer: KafkaError) -> None:
        self._term += 1
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, {}
        self._uncommitted.clear()
        del self.log[self._time.random.randint(self._committed, len(self.log)) :]
        self._committed = len(self.log)
        self._refusal = ErrorCode.not_coordinator
        for reply in waiting:
            reply(answer)

    def _load_after(self, down_ms: float) -> None:
        self._time.after(down_ms, self._load, self._term)

    def _load(self, term: int) -> None:
        if term != self._term:
            return
        self._refusal = ErrorCode.coordinator_load_in_progress
        self.shard = self._make()
        self._producers = Producers()
        for at, entry in enumerate(self.log):
            if isinstance(entry, Marker):
                self._producers.end(entry)
                self.shard.replay_end(entry.producer_id, entry.commit)
                continue
            if entry.producer is not None:
                self._producers.write(entry.producer, at)
            for kept, record in zip(entry.events, entry.records, strict=True):
                event = self.shard.decode(*record)
                assert event == kept, "it is not loaded as it was kept"
                self.shard.replay(event, entry.producer_id)
        self.check(self.shard)
        self._time.after(self._time.some(self._mean_load_ms), self._loaded, term)

    def _loaded(self, term: int) -> None:
        if term == self._term:
            self._refusal = None
            self._begin()

    def _begin(self) -> None:
        now = self._now()
        self._carry_out(self.shard.image_changed(self.image, now))
        self._carry_out(self.shard.loaded(now))
