"""Tally: the records delivered in a time, and Kafka's lines about them.

Pure: times are seconds of any monotonic clock.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from kcli.perf.histogram import LatencyHistogram

MEBIBYTE = 1 << 20


class Tally:
    def __init__(self, since_s: float) -> None:
        self.since_s = since_s
        self.bytes = 0
        self.latencies = LatencyHistogram()

    def add(self, latency_us: int, records: int, size_bytes: int) -> None:
        """Count `records` records of this total size and this latency."""
        self.latencies.add(latency_us, records)
        self.bytes += size_bytes

    def sum(self, now_s: float) -> Sum:
        """Return the sums and rates in the time until now."""
        latencies, elapsed_s = self.latencies, now_s - self.since_s
        unit = 1000 if latencies.count else math.nan
        p50, p95, p99, p999 = (latencies.percentile_us(p) / unit for p in (0.5, 0.95, 0.99, 0.999))
        return Sum(
            latencies.count,
            elapsed_s * 1000,
            ratio(latencies.count, elapsed_s),
            ratio(self.bytes / MEBIBYTE, elapsed_s),
            latencies.mean_us / 1000,
            latencies.max_us / unit,
            p50,
            p95,
            p99,
            p999,
        )


class Sum(NamedTuple):
    """Mebibytes are those of the values alone; a latency is NaN if there was none."""

    records: int
    elapsed_ms: float
    records_per_s: float
    mib_per_s: float
    avg_ms: float
    max_ms: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    p999_ms: float

    def values(self) -> dict[str, float]:
        """Return values by name, rounded to a thousandth."""
        return {name: round(value, 3) for name, value in self._asdict().items()}

    def window_line(self) -> str:
        """Return the line that kafka-producer-perf-test.sh prints while it sends."""
        return (
            f"{self.records} records sent, {self.records_per_s:.1f} records/sec "
            f"({self.mib_per_s:.2f} MB/sec), {number(self.avg_ms, 1)} ms avg latency, "
            f"{_or_0(self.max_ms):.1f} ms max latency."
        )

    def total_line(self, of: str = "") -> str:
        """Return the last line; `of` names the records, such as " steady state"."""
        return (
            f"{self.records}{of} records sent, {self.records_per_s:f} records/sec "
            f"({self.mib_per_s:.2f} MB/sec), {number(self.avg_ms, 2)} ms avg latency, "
            f"{_or_0(self.max_ms):.2f} ms max latency, {whole(self.p50_ms)} ms 50th, "
            f"{whole(self.p95_ms)} ms 95th, {whole(self.p99_ms)} ms 99th, "
            f"{whole(self.p999_ms)} ms 99.9th."
        )


def ratio(amount: float, of: float) -> float:
    """Return the ratio, 0 if the divisor is."""
    return amount / of if of > 0 else 0.0


def number(value: float, digits: int) -> str:
    """Return the text that Java prints: `NaN`."""
    return "NaN" if math.isnan(value) else f"{value:.{digits}f}"


def whole(value: float) -> int:
    """Return the integer part, as in Kafka's percentiles; 0 for NaN."""
    return int(_or_0(value))


def _or_0(value: float) -> float:
    return 0.0 if math.isnan(value) else value
