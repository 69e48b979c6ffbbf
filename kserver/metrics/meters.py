"""Counters: plain numbers, incremented by the code that they measure, and read when scraped.

Pure: no I/O, no clock, no await.

A request only increments attributes of objects that its code already holds.  Sums over topics,
rates and quantiles are computed when they are read.  Memory is constant: one meter per topic, and
one per API.

    TopicMeters        traffic of one topic              held by its partitions
    ReplicationMeters  replication of all partitions     held by the senders, fetchers and leaders
    GroupMeters        activity of all groups            held by each shard of the coordinator
    RequestMeter       one API's requests and times      held by the dispatch of each connection
    Histogram          distribution of values            quantiles are of the last windows
    OneMinuteRate      events per second                 a moving average
    IdleShare          share of idle time                of the last windows
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp
from typing import Protocol

TICK_S = 5.0
_WEIGHT = 1 - exp(-TICK_S / 60)
"""Weight of the newest TICK_S in a moving average over one minute."""
NOTED = 1000
"""Number of times that a meter collects before it counts them."""
FINEST = 0.01
STEPS = 96
BOUNDS = tuple(FINEST * 2 ** (step / 4) for step in range(STEPS))
"""Upper bounds of a histogram's buckets, each 19 % above the last: 0.01 to 140,000, in
milliseconds from negligible to two minutes."""


COUNTERS = (
    "bytes_in",
    "bytes_out",
    "bytes_rejected",
    "failed_fetch_requests",
    "failed_produce_requests",
    "messages_in",
    "total_fetch_requests",
    "total_produce_requests",
)


class TopicMeters:
    """Counters of Kafka's BrokerTopicMetrics, for one topic."""

    __slots__ = COUNTERS

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.bytes_rejected = 0
        self.total_produce_requests = 0
        """A request counts once for each of its partitions, as in Kafka."""
        self.failed_produce_requests = 0
        self.total_fetch_requests = 0
        self.failed_fetch_requests = 0


class AllTopics:
    """Meters of every topic, including removed ones, so that the sum never decreases."""

    def __init__(self) -> None:
        self.by_topic: dict[str, TopicMeters] = {}
        self._removed_topics = TopicMeters()

    def of(self, topic: str) -> TopicMeters:
        meters = self.by_topic.get(topic)
        if meters is None:
            meters = self.by_topic[topic] = TopicMeters()
        return meters

    def forget(self, topic: str) -> None:
        """Remove a topic that has no partitions here any more; its counts stay in the totals."""
        meters = self.by_topic.pop(topic, None)
        if meters is not None:
            for name in COUNTERS:
                setattr(
                    self._removed_topics,
                    name,
                    getattr(self._removed_topics, name) + getattr(meters, name),
                )

    def total(self, name: str) -> int:
        """Return the sum of a counter over all topics, including removed ones."""
        count: int = getattr(self._removed_topics, name)
        for meters in self.by_topic.values():
            count += getattr(meters, name)
        return count


@dataclass(slots=True)
class ReplicationMeters:
    """Replication counters of a broker; they never decrease."""

    bytes_in: int = 0
    bytes_out: int = 0
    isr_shrinks: int = 0
    isr_expands: int = 0
    failed_isr_updates: int = 0


@dataclass(slots=True)
class GroupMeters:
    """Counters of all groups that this broker has coordinated."""

    offsets_committed: int = 0
    offsets_expired: int = 0
    offsets_deleted: int = 0
    """Offsets deleted by request."""
    rebalances: int = 0
    """Completed rebalances of classic groups."""


class ControllerMeters:
    """Counters of this broker's time as the controller."""

    __slots__ = ("election_times_ms", "queue_times_ms", "unclean_elections")

    def __init__(self) -> None:
        self.election_times_ms = Histogram()
        """Duration of each event that changed the leader of a partition, in ms."""
        self.queue_times_ms = Histogram()
        """Time that events waited in the queue, in ms."""
        self.unclean_elections = 0


class Windowed(Protocol):
    """Values of the last time windows; the caller of `rotate` keeps the time."""

    def rotate(self, windows: int) -> None:
        """Start a window; keep `windows` - 1 earlier ones."""


class Histogram:
    """Distribution of values from FINEST upwards: exact count and sum, quantiles within 19 %.

    Quantiles are of the values added in the last windows: over a broker's whole life, they would
    no longer react to a problem.
    """

    __slots__ = ("_then", "counts", "sum")

    def __init__(self) -> None:
        self.sum = 0.0
        self.counts = [0] * (STEPS + 1)
        self._then: list[list[int]] = []

    @property
    def count(self) -> int:
        return sum(self.counts)

    def add(self, value: float) -> None:
        self.sum += value
        self.counts[bisect_left(BOUNDS, value)] += 1

    def add_all(self, values: list[float]) -> None:
        """Add all values; faster than one by one if there are many.  Sorts the list."""
        values.sort()
        self.sum += sum(values)
        counts, start = self.counts, 0
        while start < len(values):
            bucket = bisect_left(BOUNDS, values[start])
            end = bisect_right(values, BOUNDS[bucket]) if bucket < STEPS else len(values)
            counts[bucket] += end - start
            start = end

    def rotate(self, windows: int) -> None:
        self._then.append(list(self.counts))
        del self._then[:-windows]

    def quantiles(self, shares: Sequence[float]) -> list[float]:
        """Return upper bounds of the values that these shares of all values do not exceed; 0 if
        there are none."""
        counts = self.counts
        if self._then:
            counts = [now - then for now, then in zip(counts, self._then[0], strict=True)]
        total = sum(counts)
        quantile_values = []
        for share in shares:
            remaining = share * total
            bucket = 0
            while bucket < STEPS and remaining > counts[bucket]:
                remaining -= counts[bucket]
                bucket += 1
            quantile_values.append(BOUNDS[min(bucket, STEPS - 1)] if total else 0.0)
        return quantile_values


class RequestMeter:
    """Number of answered requests of one API by version, and their durations.

    Durations are collected first and counted in groups: requests and their system calls evict a
    histogram from the processor's caches, so to count each one separately would cost a
    microsecond.
    """

    __slots__ = ("_noted", "_times_ms", "_versions")

    def __init__(self, versions: int) -> None:
        """Create a meter of this many versions, from 0 on."""
        self._noted: list[list[float]] = [[] for _ in range(versions)]
        """Collected durations in seconds, by version."""
        self._versions = [0] * versions
        self._times_ms = Histogram()

    def add(self, version: int, took_s: float) -> None:
        noted = self._noted[version]
        noted.append(took_s)
        if len(noted) >= NOTED:
            self._count()

    @property
    def versions(self) -> Sequence[int]:
        """Number of requests by version."""
        self._count()
        return self._versions

    @property
    def times_ms(self) -> Histogram:
        self._count()
        return self._times_ms

    def rotate(self, windows: int) -> None:
        self.times_ms.rotate(windows)

    def _count(self) -> None:
        for version, noted in enumerate(self._noted):
            if noted:
                self._versions[version] += len(noted)
                self._times_ms.add_all([took_s * 1000 for took_s in noted])
                noted.clear()


class OneMinuteRate:
    """Events per second, as an exponential moving average over one minute, updated every TICK_S.
    It is 0 until the first TICK_S have passed.

    (Kafka: `oneMinuteRate` of a Meter.)
    """

    __slots__ = ("_events", "_rate", "_ticked_s")

    def __init__(self, now_s: float) -> None:
        self._ticked_s = now_s
        self._events = 0
        self._rate: float | None = None

    def mark(self, now_s: float) -> None:
        self.read(now_s)
        self._events += 1

    def read(self, now_s: float) -> float:
        ticks = int((now_s - self._ticked_s) / TICK_S)
        if ticks > 0:
            newest = self._events / TICK_S
            before = newest if self._rate is None else self._rate
            rate = before + _WEIGHT * (newest - before)
            # No events occurred in the ticks after the first of these.
            self._rate = rate * (1 - _WEIGHT) ** (ticks - 1)
            self._events = 0
            self._ticked_s += ticks * TICK_S
        return self._rate or 0.0


class IdleShare:
    """Share of the time in which something was idle, from 0 to 1; both clocks return seconds."""

    def __init__(self, clock: Callable[[], float], busy: Callable[[], float]) -> None:
        self._clock = clock
        self._busy = busy
        self._then = [(clock(), busy())]

    def rotate(self, windows: int) -> None:
        self._then.append((self._clock(), self._busy()))
        del self._then[:-windows]

    def read(self) -> float:
        began, busy = self._then[0]
        passed = self._clock() - began
        share = 1 - (self._busy() - busy) / passed if passed > 0 else 1.0
        return min(max(share, 0.0), 1.0)
