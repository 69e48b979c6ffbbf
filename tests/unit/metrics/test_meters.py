"""What is counted stays counted; what is told of the last windows is of those alone."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from kserver.metrics.meters import (
    BOUNDS,
    FINEST,
    NOTED,
    TICK_S,
    AllTopics,
    Histogram,
    IdleShare,
    OneMinuteRate,
    RequestMeter,
)

VALUES = st.floats(FINEST, BOUNDS[-1])


@given(st.lists(VALUES, min_size=1), st.floats(0.001, 1))
def test_a_quantile_is_never_too_low_and_at_most_a_fifth_too_high(values, share):
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    (told,) = histogram.quantiles([share])
    true = sorted(values)[math.ceil(share * len(values)) - 1]
    assert true <= told <= true * 1.2
    assert histogram.count == len(values)
    assert math.isclose(histogram.sum, math.fsum(values))


@given(st.lists(st.floats(allow_nan=False, min_value=0)))
def test_a_value_outside_of_all_buckets_is_counted_in_the_nearest(values):
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    assert histogram.count == len(values)
    assert all(FINEST <= told <= BOUNDS[-1] for told in histogram.quantiles([0.5, 1]) if values)


@given(st.lists(st.floats(0, 1e6)))
def test_many_are_added_as_if_one_by_one(values):
    one_by_one, together = Histogram(), Histogram()
    for value in values:
        one_by_one.add(value)
    together.add_all(list(values))
    assert together.counts == one_by_one.counts
    assert math.isclose(together.sum, one_by_one.sum)


def test_quantiles_are_of_the_last_windows_and_count_and_sum_of_all():
    histogram = Histogram()
    histogram.add(1000)
    histogram.rotate(2)
    histogram.add(10)
    assert histogram.quantiles([1])[0] < 12
    histogram.rotate(2)
    histogram.add(1)
    assert 10 <= histogram.quantiles([1])[0] < 12
    histogram.rotate(2)
    assert histogram.quantiles([1])[0] < 1.2
    histogram.rotate(2)
    assert histogram.quantiles([0.5, 1]) == [0, 0]
    assert (histogram.count, histogram.sum) == (3, 1011)


def test_the_sum_over_topics_keeps_what_a_deleted_one_had():
    topics = AllTopics()
    topics.of("a").messages_in += 3
    topics.of("b").messages_in += 4
    topics.forget("a")
    topics.forget("never there")
    assert topics.total("messages_in") == 7
    topics.of("a").messages_in += 1
    assert topics.total("messages_in") == 8
    assert topics.of("a").messages_in == 1


def test_the_idle_share_is_of_the_last_windows():
    now = {"clock": 0.0, "busy": 0.0}
    idle = IdleShare(lambda: now["clock"], lambda: now["busy"])
    assert idle.read() == 1
    now |= {"clock": 10, "busy": 10}
    assert idle.read() == 0
    idle.rotate(2)
    now |= {"clock": 20, "busy": 10}
    assert idle.read() == 0.5
    idle.rotate(2)
    assert idle.read() == 1
    now |= {"clock": 21, "busy": 11.5}
    assert math.isclose(idle.read(), 1 - 1.5 / 11)


def test_a_request_is_counted_by_version_however_many_there_are():
    meter = RequestMeter(3)
    for _ in range(NOTED + 7):
        meter.add(2, 0.5)
    meter.add(0, 0.25)
    assert meter.versions == [1, 0, NOTED + 7]
    assert meter.times_ms.count == NOTED + 8
    assert meter.times_ms.sum == 500 * (NOTED + 7) + 250


def test_a_rate_is_of_the_last_minute():
    """The values of a Meter of Kafka's metrics library (EWMA, M1_ALPHA)."""
    rate = OneMinuteRate(100)
    for _ in range(10):
        rate.mark(101)
    assert rate.read(104.9) == 0
    assert rate.read(100 + TICK_S) == 2
    assert math.isclose(rate.read(100 + TICK_S + 60), 2 * math.exp(-1))
    again = OneMinuteRate(0)
    for second in range(600):
        again.mark(second)
    assert math.isclose(again.read(600), 1, rel_tol=0.01)
    assert math.isclose(again.read(660), math.exp(-1), rel_tol=0.01)
