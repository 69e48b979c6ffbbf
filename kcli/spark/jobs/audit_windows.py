"""Counts of a topic's records and its landed rows, compared by window.

    broker       records that the topic holds now
    landed       landed rows, of the offsets that were compared
    missing      records that should have landed but have not: the gap
    duplicates   rows that landed more than once
    extra        rows of records that the topic should hold but does not; or that differ from the
                 record at their offset
    aged_out     landed, and removed since by retention or compaction: not a difference
    waiting      not landed yet: after the last landed record of its partition, in a window that
                 ended recently: not a difference

A job lands the records of a partition in order, so a record missing before the last landed one
stays missing.

Pure: counts in, rows out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import NamedTuple

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
WINDOWS_MS = {"hour": HOUR_MS, "day": DAY_MS}


class Window(NamedTuple):
    """One topic's records of one time window, the `number`th since 1970."""

    topic: str
    number: int


@dataclass
class Counts:
    """The counts of one window."""

    due: int = 0
    """Records on the broker, up to the last landed record of each partition."""
    after: int = 0
    """Records on the broker, after that."""
    rows: int = 0
    """Landed rows, of the offsets that were compared."""
    distinct: int = 0
    """Distinct records among these rows."""
    before_rows: int = 0
    """Landed rows, of offsets before those that the broker holds now."""
    before: int = 0
    """Distinct records among these."""
    compacted: int = 0
    """Landed records, of offsets between those that the broker holds."""
    others: int = 0
    """Landed records, of offsets where the broker holds another record."""

    def __iadd__(self, other: Counts) -> Counts:
        for field in fields(self):
            name = field.name
            setattr(self, name, getattr(self, name) + getattr(other, name))
        return self


@dataclass(frozen=True)
class WindowResult:
    """The result of one window."""

    topic: str
    window: str
    broker: int
    landed: int
    missing: int
    duplicates: int
    extra: int
    aged_out: int
    waiting: int

    @property
    def differs(self) -> bool:
        return bool(self.missing or self.duplicates or self.extra)


def sum_counts(counts: Iterable[tuple[Window, Counts]]) -> dict[Window, Counts]:
    """Add up the counts of each window."""
    sums: dict[Window, Counts] = {}
    for window, part in counts:
        sums.setdefault(window, Counts()).__iadd__(part)
    return sums


def findings(
    counts: dict[Window, Counts], window_ms: int, overdue_ms: int
) -> Iterator[WindowResult]:
    """Return results by topic and time. Waiting records of a window that had ended at `overdue_ms`
    are missing.
    """
    for window, count in sorted(counts.items()):
        is_overdue = (window.number + 1) * window_ms <= overdue_ms
        difference = count.due - (count.distinct - count.compacted - count.others)
        yield WindowResult(
            topic=window.topic,
            window=shown(window.number, window_ms),
            broker=count.due + count.after,
            landed=count.rows + count.before_rows,
            missing=max(difference, 0) + (count.after if is_overdue else 0),
            duplicates=count.rows - count.distinct + count.before_rows - count.before,
            extra=max(-difference, 0) + count.others,
            aged_out=count.before + count.compacted,
            waiting=0 if is_overdue else count.after,
        )


def shown(number: int, window_ms: int) -> str:
    """Return the start of a window, in UTC: 2026-01-31T06:00Z, or 2026-01-31 for days."""
    begin = datetime.fromtimestamp(number * window_ms / 1000, UTC)
    return f"{begin:%Y-%m-%d}" if window_ms == DAY_MS else f"{begin:%Y-%m-%dT%H:%MZ}"
