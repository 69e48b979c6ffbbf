"""What of the logs a query's conditions leave to read: never too little, and what is left to ask.

Whatever is generated, the rows within the bounds that satisfy the filters that are left are those
that satisfy all filters.
"""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="the extra spark")

import datetime
from typing import Any, NamedTuple

from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyspark.sql import datasource as spark

from kcli.spark.filters import Bounds, bounds_of
from kserver.model import TopicPartition

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class Row(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp: datetime.datetime


def at(micros: int) -> datetime.datetime:
    return EPOCH + datetime.timedelta(microseconds=micros)


def is_let_through(row: Row, one: spark.Filter) -> bool:
    """By SQL's rules: what is null is not let through, and its negation neither."""
    found = _truth(row, one)
    return found is True


def _truth(row: Row, one: Any) -> bool | None:
    if isinstance(one, spark.Not):
        inner = _truth(row, one.child)
        return None if inner is None else not inner
    value = getattr(row, one.attribute[0])
    match one:
        case spark.IsNull():
            return value is None
        case spark.IsNotNull():
            return value is not None
        case spark.EqualNullSafe():
            return value == one.value
        case spark.In():
            if value in [each for each in one.value if each is not None]:
                return True
            return None if None in one.value else False
    if one.value is None:
        return None
    match one:
        case spark.EqualTo():
            return value == one.value
        case spark.LessThan():
            return value < one.value
        case spark.LessThanOrEqual():
            return value <= one.value
        case spark.GreaterThan():
            return value > one.value
        case spark.GreaterThanOrEqual():
            return value >= one.value
        case spark.StringStartsWith():
            return value.startswith(one.value)
        case spark.StringEndsWith():
            return value.endswith(one.value)
        case spark.StringContains():
            return one.value in value
    raise AssertionError(one)


VALUES = {
    "topic": st.sampled_from(["a", "ab", "b", "é", "\U0001f600", "\uffff"]),
    "partition": st.integers(0, 3),
    "offset": st.integers(0, 12),
    "timestamp": (st.integers(-3, 6).map(lambda ms: 1000 * ms) | st.integers(-3000, 6000)).map(at),
}
COMPARED = [
    spark.EqualTo,
    spark.EqualNullSafe,
    spark.LessThan,
    spark.LessThanOrEqual,
    spark.GreaterThan,
    spark.GreaterThanOrEqual,
]
TEXTUAL = [spark.StringStartsWith, spark.StringEndsWith, spark.StringContains]


@st.composite
def filters(draw) -> spark.Filter:
    column = draw(st.sampled_from([*VALUES, "offset", "timestamp"]))
    value = st.none() | VALUES[column] if draw(st.integers(0, 9)) == 0 else VALUES[column]
    kinds = [*COMPARED, spark.In, spark.IsNull, spark.IsNotNull]
    kind = draw(st.sampled_from(kinds + (TEXTUAL if column == "topic" else [])))
    if kind in (spark.IsNull, spark.IsNotNull):
        one = kind((column,))
    elif kind is spark.In:
        one = kind((column,), tuple(draw(st.lists(value, max_size=3))))
    else:
        one = kind((column,), draw(value))
    return spark.Not(one) if draw(st.integers(0, 4)) == 0 else one


ROWS = st.lists(
    st.builds(
        Row,
        VALUES["topic"],
        VALUES["partition"],
        VALUES["offset"],
        st.integers(-3, 6).map(lambda ms: at(1000 * ms)),
    ),
    max_size=30,
    unique_by=lambda row: row[:3],
).map(sorted)


def within(rows: list[Row], bounds: Bounds) -> list[Row]:
    """What is read: of each partition a range, from the first row that is late enough on."""
    found = []
    for partition in sorted({TopicPartition(row.topic, row.partition) for row in rows}):
        log = [row for row in rows if (row.topic, row.partition) == partition]
        if not bounds.take(partition):
            continue
        begin, end = log[0].offset, log[-1].offset + 1
        if (since := bounds.since_ms) is not None:
            late = [row.offset for row in log if row.timestamp >= at(1000 * since)]
            begin = late[0] if late else end
        begin, end = bounds.cut(begin, end)
        found += [row for row in log if begin <= row.offset < end]
    return found


@settings(max_examples=400)
@given(ROWS, st.lists(filters(), max_size=4))
@example([Row("a", 0, 0, at(5000)), Row("a", 0, 1, at(0))], [spark.LessThan(("timestamp",), at(1))])
def test_what_is_read_and_asked_again_is_what_was_asked_for(rows, given_):
    bounds, left = bounds_of(given_)
    assert all(any(one is each for each in given_) for one in left)
    wanted = [row for row in rows if all(is_let_through(row, one) for one in given_)]
    read = within(rows, bounds)
    assert [row for row in read if all(is_let_through(row, one) for one in left)] == wanted


def test_what_reading_less_answers_for_is_not_asked_again():
    answered = [
        spark.EqualTo(("topic",), "t"),
        spark.Not(spark.In(("partition",), (1, 2))),
        spark.IsNotNull(("offset",)),
        spark.GreaterThan(("offset",), 4),
        spark.LessThanOrEqual(("offset",), 9),
    ]
    bounds, left = bounds_of(answered)
    assert left == []
    assert (bounds.start, bounds.end) == (5, 10)
    assert [n for n in range(4) if bounds.take(TopicPartition("t", n))] == [0, 3]
    assert not bounds.take(TopicPartition("u", 0))


def test_the_bound_of_a_time_is_the_first_millisecond_that_is_not_older():
    for micros, late_ms, later_ms in ((5000, 5, 6), (5001, 6, 6), (4999, 5, 5)):
        since = spark.GreaterThanOrEqual(("timestamp",), at(micros))
        after = spark.GreaterThan(("timestamp",), at(micros))
        assert bounds_of([since]) == (Bounds(since_ms=late_ms), [since])
        assert bounds_of([after]) == (Bounds(since_ms=later_ms), [after])


def test_an_upper_bound_on_times_bounds_no_offset():
    early = spark.LessThan(("timestamp",), at(0))
    assert bounds_of([early]) == (Bounds(), [early])


def test_columns_that_are_not_the_logs_and_values_of_other_kinds_are_left_to_spark():
    left = [
        spark.EqualTo(("value",), b"x"),
        spark.EqualTo(("value", "partition"), 1),
        spark.EqualTo(("partition",), True),
        spark.EqualTo(("offset",), 1.0),
        spark.In(("partition",), (1, None)),
        spark.EqualTo(("timestamp",), datetime.datetime(2020, 1, 1)),
    ]
    assert bounds_of(left) == (Bounds(), left)
