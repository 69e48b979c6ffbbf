"""Consumed: the records read in a time, and the lines of kafka-consumer-perf-test.sh about them.

Pure: counts and times in, lines out.
"""

from __future__ import annotations

from typing import NamedTuple

from kcli.perf.tally import MEBIBYTE, ratio

_AMOUNTS = (
    "data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, "
    "fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
)
HEADER = f"start.time, end.time, {_AMOUNTS}"
DETAILED_HEADER = f"time, threadId, {_AMOUNTS}"


class Consumed(NamedTuple):
    """Mebibytes are those of keys and values; rates are over the whole time, and over the time
    without the search for partitions.
    """

    start_ms: int
    end_ms: int
    records: int
    mib: float
    records_per_s: float
    mib_per_s: float
    rebalance_ms: int
    fetch_ms: int
    fetch_records_per_s: float
    fetch_mib_per_s: float

    @classmethod
    def of(
        cls, start_ms: int, end_ms: int, rebalance_ms: int, records: int, size_bytes: int
    ) -> Consumed:
        mib = size_bytes / MEBIBYTE
        elapsed_s = (end_ms - start_ms) / 1000
        fetch_ms = end_ms - start_ms - rebalance_ms
        return cls(
            start_ms,
            end_ms,
            records,
            mib,
            ratio(records, elapsed_s),
            ratio(mib, elapsed_s),
            rebalance_ms,
            fetch_ms,
            ratio(records, fetch_ms / 1000),
            ratio(mib, fetch_ms / 1000),
        )

    def values(self) -> dict[str, float]:
        """Return values by name, rounded to a thousandth."""
        return {name: round(value, 3) for name, value in self._asdict().items()}

    def total_line(self, start: str, end: str) -> str:
        """Return the line at the end; the times are formatted by --date-format."""
        return f"{start}, {end}, {self._amounts(self.mib, self.records)}"

    def window_line(self, end: str, all_mib: float, all_records: int) -> str:
        """Return a line of --show-detailed-stats: amounts since the start, rates since the last
        line.
        """
        return f"{end}, 0, {self._amounts(all_mib, all_records)}"

    def _amounts(self, mib: float, records: int) -> str:
        return (
            f"{mib:.4f}, {self.mib_per_s:.4f}, {records}, {self.records_per_s:.4f}, "
            f"{self.rebalance_ms}, {self.fetch_ms}, {self.fetch_mib_per_s:.4f}, "
            f"{self.fetch_records_per_s:.4f}"
        )
