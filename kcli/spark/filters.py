"""Filters: a query's own conditions as bounds of a read.

Pure: filters in, bounds out.

    topic, partition    every comparison: other partitions are not read at all
    offset              =, <, <=, >, >=, and for IN the range from its least to its greatest
    timestamp           =, >, >=, and IN: nothing before the first record late enough.  Times
                        need not ascend, so older ones may follow it, and no offset is known after
                        which all records are too late

Conditions that a smaller read does not answer fully are left to Spark, which checks each row again.
"""

from __future__ import annotations

import datetime
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from kserver.model import Offset, TopicPartition

_END = 1 << 63
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)
_TYPES = {"topic": str, "partition": int, "offset": int, "timestamp": datetime.datetime}

_COMPARISONS: dict[type[Filter], Callable[[Any, Any], bool]] = {
    EqualTo: operator.eq,
    EqualNullSafe: operator.eq,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    In: lambda value, among: value in among,
    StringStartsWith: str.startswith,
    StringEndsWith: str.endswith,
    StringContains: operator.contains,
}


@dataclass(frozen=True)
class Bounds:
    """Bounds of a read: `conditions` on topic and partition, offsets from `start` on before `end`,
    and records from the first that is not older than `since_ms`.
    """

    conditions: tuple[Filter, ...] = ()
    start: Offset = 0
    end: Offset = _END
    since_ms: int | None = None

    def take(self, partition: TopicPartition) -> bool:
        """Whether the partition may have any wanted records."""
        values = partition._asdict()
        return self.start < self.end and all(
            _holds(condition, values) for condition in self.conditions
        )

    def cut(self, start: Offset, end: Offset) -> tuple[Offset, Offset]:
        """Return the part of a range within these bounds; it may be empty."""
        start = min(max(start, self.start), end)
        return start, max(min(end, self.end), start)


def bounds_of(filters: Iterable[Filter]) -> tuple[Bounds, list[Filter]]:
    """Return the bounds of filters that all have to hold, and the filters left to Spark."""
    bounds, others = Bounds(), []
    for source_filter in filters:
        bounds, is_answered = _with(bounds, source_filter)
        if not is_answered:
            others.append(source_filter)
    return bounds, others


def _with(bounds: Bounds, source_filter: Filter) -> tuple[Bounds, bool]:
    """Return the bounds narrowed by one filter, and whether they answer it fully."""
    negated = isinstance(source_filter, Not)
    plain = source_filter.child if isinstance(source_filter, Not) else source_filter
    column, *nested = getattr(plain, "attribute", ("",))
    if nested or column not in _TYPES:
        return bounds, False
    if isinstance(plain, IsNull | IsNotNull):
        # None of these columns is ever null.
        return (bounds, True) if isinstance(plain, IsNotNull) != negated else (_NOTHING, True)
    if not _is_understood(plain, _TYPES[column]):
        return bounds, False
    if column in ("topic", "partition"):
        return replace(bounds, conditions=(*bounds.conditions, source_filter)), True
    if negated:
        return bounds, False
    if column == "timestamp":
        return _since(bounds, plain), False
    return _within(bounds, plain)


_NOTHING = Bounds(end=0)


def _is_understood(plain: Filter, kind: type) -> bool:
    """Whether the filter compares only with values of this type; null has rules of its own."""
    if type(plain) not in _COMPARISONS:
        return False
    value = plain.value  # type: ignore[attr-defined]
    values = value if isinstance(plain, In) else (value,)
    return bool(values) and all(
        # A time without a zone has another type.
        type(each) is kind and getattr(each, "tzinfo", _EPOCH.tzinfo) is not None
        for each in values
    )


def _holds(condition: Filter, values: dict[str, Any]) -> bool:
    if isinstance(condition, Not):
        return not _holds(condition.child, values)
    value = values[condition.attribute[0]]  # type: ignore[attr-defined]
    return _COMPARISONS[type(condition)](value, condition.value)  # type: ignore[attr-defined]


def _within(bounds: Bounds, plain: Any) -> tuple[Bounds, bool]:
    match plain:
        case EqualTo(value=offset) | EqualNullSafe(value=offset):
            start, end = offset, offset + 1
        case GreaterThan(value=offset):
            start, end = offset + 1, _END
        case GreaterThanOrEqual(value=offset):
            start, end = offset, _END
        case LessThan(value=offset):
            start, end = 0, offset
        case LessThanOrEqual(value=offset):
            start, end = 0, offset + 1
        case In(value=offsets):
            start, end = min(offsets), max(offsets) + 1
        case _:
            return bounds, False
    result = replace(bounds, start=max(bounds.start, start), end=min(bounds.end, end))
    return result, not isinstance(plain, In)


def _since(bounds: Bounds, plain: Any) -> Bounds:
    match plain:
        case EqualTo(value=time) | EqualNullSafe(value=time) | GreaterThanOrEqual(value=time):
            ms = -(-_micros(time) // 1000)
        case GreaterThan(value=time):
            ms = _micros(time) // 1000 + 1
        case In(value=times):
            ms = -(-min(map(_micros, times)) // 1000)
        case _:
            return bounds
    # Times in ListOffsets begin at 0: negative ones have special meanings.
    return bounds if ms < 0 else replace(bounds, since_ms=max(bounds.since_ms or 0, ms))


def _micros(time: datetime.datetime) -> int:
    return (time - _EPOCH) // _MICROSECOND
