"""The progress of streams: Spark's events, added up and formatted as a line.

Pure: progress events in, numbers and a line out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Totals:
    """The totals of one query since it was started here."""

    batch: int = -1
    """The last batch that was counted."""
    batches: int = 0
    """Batches with any rows."""
    rows_in: int = 0
    observed: dict[str, int] = field(default_factory=dict)
    """The query's own counts by name (`frame.observe`)."""
    rows_per_s: float = 0.0
    batch_s: float = 0.0
    lag: int | None = None

    def add(self, events: Iterable[Mapping[str, Any]]) -> bool:
        """Add events; return whether they have a batch that was not counted before."""
        new = [event for event in events if event["batchId"] > self.batch]
        for event in new:
            self._add(event)
        return bool(new)

    def _add(self, event: Mapping[str, Any]) -> None:
        self.batch = event["batchId"]
        rows = event["numInputRows"]
        self.rows_in += rows
        self.batches += rows > 0
        self.rows_per_s = event.get("processedRowsPerSecond") or 0.0
        self.batch_s = (event.get("durationMs") or {}).get("triggerExecution", 0) / 1000
        self.lag = lag(event)
        for row in (event.get("observedMetrics") or {}).values():
            for name, count in row.asDict().items():
                self.observed[name] = self.observed.get(name, 0) + (count or 0)


def lag(event: Mapping[str, Any]) -> int | None:
    """Return the number of offsets that no batch has read yet; None if Spark does not report it.

    A partition that the batch had not seen is counted from the next batch on, because Spark does
    not report its lag before.
    """
    of_sources = [_behind(source) for source in event.get("sources") or ()]
    lags = [behind for behind in of_sources if behind is not None]
    return sum(map(sum, lags)) if lags else None


def metrics(source: Mapping[str, Any]) -> dict[str, str]:
    """Return the `metrics` that Spark's own source would have in an event, which Spark does not
    request from sources in Python; empty if Spark does not report offsets.
    """
    behind = _behind(source)
    if not behind:
        return {}
    return {
        "minOffsetsBehindLatest": str(min(behind)),
        "maxOffsetsBehindLatest": str(max(behind)),
        "avgOffsetsBehindLatest": str(sum(behind) / len(behind)),
    }


def _behind(source: Mapping[str, Any]) -> list[int] | None:
    """Return the lag of each partition."""
    latest, end = _offsets(source.get("latestOffset")), _offsets(source.get("endOffset"))
    if latest is None or end is None:
        return None
    return [max(0, latest[p] - end[p]) for p in latest.keys() & end.keys()]


def _offsets(text: str | None) -> dict[tuple[str, str], int] | None:
    try:
        offsets = json.loads(text or "")
    except ValueError:
        return None
    if not isinstance(offsets, dict):
        return None
    return {
        (topic, partition): offset
        for topic, of in offsets.items()
        if isinstance(of, dict)
        for partition, offset in of.items()
    }


def line(totals: Mapping[str, Totals], *, stopping: bool) -> str:
    """Return `landed: batch 12, 1,234,567 rows, 98,000/s, 45,000 behind, 2.3 s a batch`, for
    each.
    """
    parts = [f"{name}: {_of(total)}" for name, total in totals.items()]
    return ("stopping after this batch; " if stopping else "") + "; ".join(parts)


def _of(totals: Totals) -> str:
    if totals.batch < 0:
        return "starting"
    behind = "" if totals.lag is None else f", {totals.lag:,} behind"
    return (
        f"batch {totals.batch}, {totals.rows_in:,} rows, {totals.rows_per_s:,.0f}/s{behind}, "
        f"{totals.batch_s:.1f} s a batch"
    )
