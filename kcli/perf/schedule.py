"""Schedule: the due time of each record, also from its timestamp.

Pure: times are seconds since the start, timestamps milliseconds of the wall clock.

A latency counts from the time when a record was due, not from when it could finally be sent.
Otherwise a broker that stalls for a second would delay one record, and not the thousand that would
have been sent meanwhile (coordinated omission).

A record's timestamp is the millisecond in which it is due, and the outcome of its batch has it: so
nothing is stored per record. At up to 1000 per second `due_at` is exact; with several records in
one millisecond it returns the middle, at most half a millisecond off.

The first `warmup` records have earlier timestamps than all others, which have `steady_ms` or later,
even if that is a millisecond too late.
"""

from __future__ import annotations

import math
from typing import Protocol


class Schedule(Protocol):
    @property
    def steady_ms(self) -> float: ...

    def due(self, elapsed_s: float) -> float:
        """Return the number of records that are due by then."""

    def time_of(self, index: int) -> float:
        """Return when a record is due; the first is number 0."""

    def run(self, first: int, end: int, elapsed_s: float) -> tuple[int, int]:
        """Return the timestamp of record `first`, and how many records before `end` have the
        same.
        """

    def due_at(self, timestamp_ms: int) -> float:
        """Return when the records with this timestamp were due."""


class Fixed:
    """`rate` records per second, evenly, the first at `start_ms`."""

    def __init__(self, rate: float, start_ms: int, warmup: int = 0) -> None:
        self.rate = rate
        self.start_ms = start_ms
        self._warmup = warmup
        self.steady_ms = start_ms + (self._ms(warmup - 1) + 1 if warmup else 0)

    def due(self, elapsed_s: float) -> float:
        return int(elapsed_s * self.rate) + 1

    def time_of(self, index: int) -> float:
        return index / self.rate

    def run(self, first: int, end: int, elapsed_s: float) -> tuple[int, int]:
        ms = self._ms(first)
        end = min(end, self._end_of(ms))
        if first < self._warmup:
            return self.start_ms + ms, min(end, self._warmup) - first
        return max(self.start_ms + ms, self.steady_ms), end - first

    def due_at(self, timestamp_ms: int) -> float:
        ms = timestamp_ms - self.start_ms
        first, end = self._end_of(ms - 1), self._end_of(ms)
        # A millisecond without due records has only those moved to `steady_ms` after the warm-up.
        return (first + end - 1) / 2 / self.rate if first < end else ms / 1000

    def _ms(self, index: int) -> int:
        return int(index * 1000 / self.rate)

    def _end_of(self, ms: int) -> int:
        """Return the first record that is due after this millisecond."""
        index = max(0, math.ceil((ms + 1) * self.rate / 1000))
        # Correct rounding errors of one.
        while index and self._ms(index - 1) > ms:
            index -= 1
        while self._ms(index) <= ms:
            index += 1
        return index


class Unlimited:
    """No limit: a record is due when it is sent, known to half a millisecond."""

    def __init__(self, start_ms: int, warmup: int = 0) -> None:
        self.start_ms = start_ms
        self._warmup = warmup
        self._warm_ms = start_ms
        self.steady_ms: float = math.inf if warmup else start_ms

    def due(self, elapsed_s: float) -> float:
        return math.inf

    def time_of(self, index: int) -> float:
        return 0.0

    def run(self, first: int, end: int, elapsed_s: float) -> tuple[int, int]:
        timestamp_ms = self.start_ms + int(elapsed_s * 1000)
        if first < self._warmup:
            self._warm_ms = timestamp_ms
            return timestamp_ms, min(end, self._warmup) - first
        if self.steady_ms == math.inf:
            self.steady_ms = self._warm_ms + 1
        return max(timestamp_ms, int(self.steady_ms)), end - first

    def due_at(self, timestamp_ms: int) -> float:
        return (timestamp_ms - self.start_ms + 0.5) / 1000
