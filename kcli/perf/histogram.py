"""LatencyHistogram: counts of durations in constant memory, for percentiles.

Pure: no clock; durations are whole microseconds.

Buckets are log-linear, as in Gil Tene's HdrHistogram: up to 1023 us each value has its own; from
there each doubling has 512 buckets of one width. A bucket is represented by its middle, so a
percentile is off by at most 1/1024 of its value (ERROR); count, mean, minimum and maximum are
exact.
"""

from __future__ import annotations

import math
from itertools import accumulate

_EXACT_BITS = 10
_HALF = 1 << _EXACT_BITS - 1
_LIMIT_BITS = 42
"""Longer than 50 days counts as the last bucket."""

ERROR = 1 / (2 * _HALF)
BUCKETS = (_LIMIT_BITS - _EXACT_BITS + 2) * _HALF


class LatencyHistogram:
    __slots__ = ("_buckets", "count", "max_us", "min_us", "total_us")

    def __init__(self) -> None:
        self._buckets = [0] * BUCKETS
        self.count = 0
        self.total_us = 0
        self.min_us = 0
        self.max_us = 0

    def add(self, duration_us: int, times: int = 1) -> None:
        """Count a duration `times` times; negative ones count as 0."""
        if duration_us < 0:
            duration_us = 0
        self._buckets[_bucket(duration_us)] += times
        self.total_us += duration_us * times
        if duration_us > self.max_us:
            self.max_us = duration_us
        if duration_us < self.min_us or not self.count:
            self.min_us = duration_us
        self.count += times

    @property
    def mean_us(self) -> float:
        """NaN while nothing was counted."""
        return self.total_us / self.count if self.count else math.nan

    def percentile_us(self, fraction: float) -> int:
        """Return the duration at index `int(fraction * count)` of all durations, sorted, as in
        Kafka's tools; 0 while nothing was counted.
        """
        if not self.count:
            return 0
        index = min(int(fraction * self.count), self.count - 1)
        for bucket, below in enumerate(accumulate(self._buckets)):
            if below > index:
                return min(max(_middle(bucket), self.min_us), self.max_us)
        raise AssertionError("the buckets hold what was counted")


def _bucket(value: int) -> int:
    shift = value.bit_length() - _EXACT_BITS
    if shift <= 0:
        return value
    # The highest ten bits are 512 to 1023.
    return min(shift * _HALF + (value >> shift), BUCKETS - 1)


def _middle(bucket: int) -> int:
    if bucket < 2 * _HALF:
        return bucket
    shift, rest = divmod(bucket, _HALF)
    shift -= 1
    return (rest + _HALF << shift) + (1 << shift - 1)
