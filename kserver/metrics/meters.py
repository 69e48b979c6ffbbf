"""The counters themselves: plain numbers, added to where something happens, read at a scrape.

Pure: no I/O, no clock, no await.

What happens once a request is an increment of an attribute here, on an object that its user holds;
all else (sums over topics, rates, quantiles) is made of them when somebody asks.  Memory is
constant: a meter a topic, a meter an API.

    TopicMeters      what one topic takes and gives     held by its partitions
    RequestMeter     one API's requests and times       held by the dispatch of each connection
    Histogram        how values spread                  quantiles are of the last windows
    IdleShare        how much of the time was free      of the last windows
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Protocol

FINEST = 0.01
STEPS = 96
BOUNDS = tuple(FINEST * 2 ** (step / 4) for step in range(STEPS))
"""Of a histogram's buckets, each 19 % above the last: 0.01 to 140,000, in milliseconds from one
that is nothing to two minutes."""


class TopicMeters:
    """What Kafka's BrokerTopicMetrics count, of one topic."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "bytes_rejected",
        "failed_fetch_requests",
        "failed_produce_requests",
        "messages_in",
        "total_fetch_requests",
        "total_produce_requests",
    )

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.bytes_rejected = 0
        self.total_produce_requests = 0
        """As in Kafka, a request counts once for each of its partitions."""
        self.failed_produce_requests = 0
        self.total_fetch_requests = 0
        self.failed_fetch_requests = 0


class AllTopics:
    """The meters of every topic, and of those that are gone: the sum never falls."""

    def __init__(self) -> None:
        self.by_topic: dict[str, TopicMeters] = {}
        self._gone = TopicMeters()

    def of(self, topic: str) -> TopicMeters:
        meters = self.by_topic.get(topic)
        if meters is None:
            meters = self.by_topic[topic] = TopicMeters()
        return meters

    def forget(self, topic: str) -> None:
        """The topic has no partition here any more."""
        meters = self.by_topic.pop(topic, None)
        if meters is not None:
            for name in TopicMeters.__slots__:
                setattr(self._gone, name, getattr(self._gone, name) + getattr(meters, name))

    def total(self, name: str) -> int:
        """Of one of the counters, over all topics that there ever were."""
        count: int = getattr(self._gone, name)
        for meters in self.by_topic.values():
            count += getattr(meters, name)
        return count


class Windowed(Protocol):
    """What it tells is of the last windows of time; somebody else keeps the time."""

    def rotate(self, windows: int) -> None:
        """Begin a window; of those before it, `windows` - 1 are kept."""


class Histogram:
    """How values, from FINEST upwards, spread: exact count and sum, quantiles to 19 %.

    Quantiles are of what was added in the last windows: those of a broker's whole life would no
    longer move when something goes wrong.
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

    def rotate(self, windows: int) -> None:
        self._then.append(list(self.counts))
        del self._then[:-windows]

    def quantiles(self, wanted: Sequence[float]) -> list[float]:
        """Upper bounds of the values that these shares of all do not exceed; 0 where there are
        none."""
        counts = self.counts
        if self._then:
            counts = [now - then for now, then in zip(counts, self._then[0], strict=True)]
        total = sum(counts)
        found = []
        for share in wanted:
            left = share * total
            bucket = 0
            while bucket < STEPS and left > counts[bucket]:
                left -= counts[bucket]
                bucket += 1
            found.append(BOUNDS[min(bucket, STEPS - 1)] if total else 0.0)
        return found


class RequestMeter:
    """The requests of one API that were answered, by version, and how long that took."""

    __slots__ = ("times_ms", "versions")

    def __init__(self, versions: int) -> None:
        """`versions`: how many there are, from 0 on."""
        self.versions = [0] * versions
        self.times_ms = Histogram()

    def add(self, version: int, took_s: float) -> None:
        self.versions[version] += 1
        self.times_ms.add(took_s * 1000)


class IdleShare:
    """How much of the time something was not busy, from 0 to 1; both clocks tell seconds."""

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
