"""Reckoning: what a topic holds against what has landed of it, window by window.

    broker       records that the topic holds now
    landed       rows that were landed of what was compared
    missing      records that should have landed and have not: the gap
    duplicates   rows that landed more than once
    extra        rows of records that the topic has not, and should have; or has another record at
                 their offset
    aged_out     landed, and gone from the topic since by retention or compaction: all right
    waiting      not landed yet: after the last record of its partition that has, and the window is
                 not long over: all right

A job that lands a partition takes its records in order, so what is missing before the last one that
landed stays missing.

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
    """One topic's records of one stretch of time, which is the `number`th since 1970."""

    topic: str
    number: int


@dataclass
class Counts:
    """The counts of one window."""

    due: int = 0
    """On the broker, up to the last record of each partition that has landed."""
    after: int = 0
    """On the broker, after that."""
    rows: int = 0
    """Landed, of the offsets that were compared."""
    distinct: int = 0
    """Records among these rows."""
    before_rows: int = 0
    """Landed, of offsets before those that the broker holds now."""
    before: int = 0
    """Records among these."""
    compacted: int = 0
    """Records that landed, of offsets between those that the broker holds."""
    others: int = 0
    """Records that landed, of offsets where the broker holds another record."""

    def __iadd__(self, other: Counts) -> Counts:
        for field in fields(self):
            name = field.name
            setattr(self, name, getattr(self, name) + getattr(other, name))
        return self


@dataclass(frozen=True)
class Finding:
    """A window, reckoned."""

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


def added(counts: Iterable[tuple[Window, Counts]]) -> dict[Window, Counts]:
    """Counts of the same window as one."""
    found: dict[Window, Counts] = {}
    for window, one in counts:
        found.setdefault(window, Counts()).__iadd__(one)
    return found


def findings(counts: dict[Window, Counts], window_ms: int, overdue_ms: int) -> Iterator[Finding]:
    """By topic and time.  What waits in a window that was over at `overdue_ms` is missing."""
    for window, one in sorted(counts.items()):
        is_overdue = (window.number + 1) * window_ms <= overdue_ms
        difference = one.due - (one.distinct - one.compacted - one.others)
        yield Finding(
            topic=window.topic,
            window=shown(window.number, window_ms),
            broker=one.due + one.after,
            landed=one.rows + one.before_rows,
            missing=max(difference, 0) + (one.after if is_overdue else 0),
            duplicates=one.rows - one.distinct + one.before_rows - one.before,
            extra=max(-difference, 0) + one.others,
            aged_out=one.before + one.compacted,
            waiting=0 if is_overdue else one.after,
        )


def shown(number: int, window_ms: int) -> str:
    """When a window begins, in UTC: 2026-01-31T06:00Z, or 2026-01-31 of days."""
    begin = datetime.fromtimestamp(number * window_ms / 1000, UTC)
    return f"{begin:%Y-%m-%d}" if window_ms == DAY_MS else f"{begin:%Y-%m-%dT%H:%MZ}"
