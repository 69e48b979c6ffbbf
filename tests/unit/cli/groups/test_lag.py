from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcli.groups.group_text import GroupPosition
from kcli.groups.lag import WINDOW, Look, Trend, heading, lag_of, line, oldest, total, with_start
from kserver.model import TopicPartition

T0 = TopicPartition("t", 0)
LAGS = st.one_of(st.none(), st.integers(0, 1000))


def look(**told):
    given = {
        "time_ms": 1_700_000_000_123,
        "group": "billing",
        "state": "Stable",
        "members": 1,
        "partitions": 1,
        "lag": 5,
        "lag_seconds": 1.25,
        "records_per_second": -2.0,
    }
    return Look(**given | told)


def test_where_nothing_was_committed_all_there_is_is_left():
    fresh = GroupPosition(T0, None, None, 10, None)
    assert lag_of(with_start(fresh, {T0: 4})) == 6
    assert lag_of(with_start(fresh, {})) is None
    assert lag_of(with_start(fresh._replace(committed=7), {T0: 4})) == 3
    assert lag_of(with_start(fresh._replace(end=None), {T0: 4})) is None
    # Retention has deleted some of what was not read, or all of it.
    assert lag_of(with_start(fresh._replace(committed=2), {T0: 4})) == 6
    assert lag_of(with_start(fresh._replace(committed=2), {T0: 10})) == 0
    assert lag_of(with_start(fresh._replace(committed=2), {})) == 8
    # More was committed than there is.
    assert lag_of(fresh._replace(committed=99)) == 0


@given(st.lists(LAGS))
def test_a_total_is_known_where_every_part_is(lags):
    if lags and None not in lags:
        assert total(iter(lags)) == sum(lags)
    else:
        assert total(iter(lags)) is None


def test_the_oldest_record_counts():
    assert oldest([1.0, None, 3.5, 0.0]) == 3.5
    assert oldest([None]) is None


def test_a_trend_is_that_of_the_last_looks():
    trend = Trend()
    assert trend.per_second(0.0, 100) is None
    assert trend.per_second(2.0, 80) == -10
    for n in range(WINDOW):
        last = trend.per_second(10.0 + n, 50 + 3 * n)
    assert last == 3


def test_a_trend_begins_anew_after_a_look_without_a_lag():
    trend = Trend()
    trend.per_second(0.0, 100)
    assert trend.per_second(1.0, None) is None
    assert trend.per_second(2.0, 50) is None
    assert trend.per_second(2.0, 60) is None  # no time between the two


@pytest.mark.parametrize(
    ("told", "is_there"),
    [
        ({"lag": 5}, True),
        ({"lag": 6}, False),
        ({"lag": None}, False),
        ({"state": "Empty"}, True),
        ({"state": "PreparingRebalance", "lag": 0}, False),
        ({"state": "Reconciling", "lag": 0}, False),
    ],
)
def test_a_group_has_come_as_far_as_is_known_of_it(told, is_there):
    assert look(**told).has_come_to(5) is is_there


def test_lines_stand_below_their_headings():
    shown = [
        heading(),
        line(look()),
        line(look(lag=None, lag_seconds=None, records_per_second=None)),
    ]
    assert shown == [
        "TIME                     GROUP           STATE                LAG             LAG-SECONDS"
        "  TREND",
        "2023-11-14T22:13:20.123Z billing         Stable               5               1.2"
        "          -2.0/s",
        "2023-11-14T22:13:20.123Z billing         Stable               -               -"
        "            -",
    ]
