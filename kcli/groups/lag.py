"""Lag as it changes: the records a group has left to read, and their change per second.

Pure: measurements in, numbers and lines out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from kcli.groups.group_text import NOTHING, GroupPosition
from kserver.model import Offset, TopicPartition

WINDOW = 10
"""Number of samples of a trend."""
SETTLED = ("Stable", "Empty")
"""States in which the partitions that a group reads are known."""

WIDTHS = (24, 15, 20, 15, 12, 12)
HEADINGS = ("TIME", "GROUP", "STATE", "LAG", "LAG-SECONDS", "TREND")


class Look(NamedTuple):
    """One sample of a group."""

    time_ms: int
    group: str
    state: str
    members: int
    partitions: int
    lag: int | None
    """In records, of all partitions; None if unknown for one."""
    lag_seconds: float | None
    """Age of the oldest record that is left to read; None if unknown for all."""
    records_per_second: float | None
    """Change of the lag, below zero if it shrinks. None in the first sample."""

    def has_come_to(self, lag: int) -> bool:
        return self.state in SETTLED and self.lag is not None and self.lag <= lag


class PartitionLag(NamedTuple):
    """One partition of a sample; `lag` and `lag_seconds` as in `Look`."""

    reading: GroupPosition
    lag: int | None
    lag_seconds: float | None


class GroupLag(NamedTuple):
    look: Look
    parts: Sequence[PartitionLag]


class Trend:
    """The rate of change of a number, over the last samples."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque(maxlen=WINDOW)

    def per_second(self, time_s: float, lag: int | None) -> float | None:
        """Add a sample, and return the change per second."""
        if lag is None:
            self._samples.clear()
            return None
        self._samples.append((time_s, lag))
        first_s, first = self._samples[0]
        return (lag - first) / (time_s - first_s) if time_s > first_s else None


def with_start(reading: GroupPosition, starts: Mapping[TopicPartition, Offset]) -> GroupPosition:
    """Return the position with the partition's start as its committed offset, if there is none or
    if retention has deleted the records from the committed offset on.
    """
    start = starts.get(reading.partition)
    if reading.committed is None or (start is not None and start > reading.committed):
        return reading._replace(committed=start)
    return reading


def lag_of(reading: GroupPosition) -> int | None:
    """Return the number of records left to read."""
    return None if reading.lag is None else max(0, reading.lag)


def total(lags: Iterable[int | None]) -> int | None:
    """Return the sum; None if one is unknown, or if there are none."""
    lags = list(lags)
    numbers = [lag for lag in lags if lag is not None]
    return sum(numbers) if numbers and len(numbers) == len(lags) else None


def oldest(ages: Sequence[float | None]) -> float | None:
    return max((age for age in ages if age is not None), default=None)


def heading() -> str:
    return _line(HEADINGS)


def line(look: Look) -> str:
    time = datetime.fromtimestamp(look.time_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return _line(
        (
            time.replace("+00:00", "Z"),
            look.group,
            look.state,
            NOTHING if look.lag is None else str(look.lag),
            seconds(look.lag_seconds),
            rate(look.records_per_second),
        )
    )


def seconds(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.1f}"


def rate(per_second: float | None) -> str:
    """Return `-40.0/s`; `+` if the lag grows."""
    return NOTHING if per_second is None else f"{per_second:+.1f}/s"


def _line(cells: Sequence[str]) -> str:
    return " ".join(f"{cell:{width}}" for cell, width in zip(cells, WIDTHS, strict=True)).rstrip()


def left_behind(looks: Sequence[Look], until_lag: int) -> str:
    """Describe the groups whose lag is still above --until-lag."""
    return ", ".join(_place(look) for look in looks if not look.has_come_to(until_lag))


def _place(look: Look) -> str:
    if look.state not in SETTLED:
        return f"{look.group} is {look.state}"
    return f"the lag of {look.group} is {'not known' if look.lag is None else f'{look.lag:,}'}"
