from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcli.perf.histogram import BUCKETS, ERROR, LatencyHistogram

FRACTIONS = [0.0, 0.5, 0.95, 0.99, 0.999, 0.9999, 1.0]

durations = st.integers(0, 1 << 20) | st.integers(0, (1 << 42) - 1)


def exact(values: list[int], fraction: float) -> int:
    return sorted(values)[min(int(fraction * len(values)), len(values) - 1)]


def filled(values: list[int]) -> LatencyHistogram:
    histogram = LatencyHistogram()
    for value in values:
        histogram.add(value)
    return histogram


def buckets(histogram: LatencyHistogram) -> int:
    return len(histogram._buckets)


@given(st.lists(durations, min_size=1), st.sampled_from(FRACTIONS) | st.floats(0, 1))
def test_a_percentile_is_the_exact_one_within_the_error(values, fraction):
    found, true = filled(values).percentile_us(fraction), exact(values, fraction)
    assert abs(found - true) <= true * ERROR


@given(st.lists(st.integers(0, 1023), min_size=1), st.sampled_from(FRACTIONS))
def test_below_a_millisecond_percentiles_are_exact(values, fraction):
    assert filled(values).percentile_us(fraction) == exact(values, fraction)


@given(st.lists(st.tuples(durations, st.integers(1, 1000)), min_size=1))
def test_many_at_once_are_as_many_one_by_one(counted):
    at_once = LatencyHistogram()
    for value, times in counted:
        at_once.add(value, times)
    values = [value for value, times in counted for _ in range(times)]
    assert at_once.count == len(values)
    assert at_once.mean_us == sum(values) / len(values)
    assert (at_once.min_us, at_once.max_us) == (min(values), max(values))
    for fraction in FRACTIONS:
        true = exact(values, fraction)
        assert abs(at_once.percentile_us(fraction) - true) <= true * ERROR


DISTRIBUTIONS = {
    "uniform": (lambda random: random.uniform(0, 1e6), lambda p: p * 1e6),
    "exponential": (lambda random: random.expovariate(1e-4), lambda p: -1e4 * math.log1p(-p)),
    "Pareto": (lambda random: 100 * random.paretovariate(2), lambda p: 100 * (1 - p) ** -0.5),
    "two modes": (
        lambda random: 50_000 if random.random() < 0.02 else 400,
        lambda p: 50_000 if p > 0.98 else 400,
    ),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_percentiles_of_a_known_distribution_are_its_quantiles(name):
    draw, quantile = DISTRIBUTIONS[name]
    random, count = Random(7), 100_000
    histogram = filled([round(draw(random)) for _ in range(count)])
    for p in (0.5, 0.95, 0.99, 0.999):
        # Four standard deviations of the share of draws that lie below a quantile.
        spread = 4 * math.sqrt(p * (1 - p) / count)
        low, high = quantile(p - spread), quantile(min(p + spread, 1 - 1e-9))
        found = histogram.percentile_us(p)
        assert low * (1 - ERROR) - 1 <= found <= high * (1 + ERROR) + 1


def test_memory_does_not_grow_and_what_lasts_for_ever_is_counted():
    histogram = LatencyHistogram()
    before = buckets(histogram)
    for bits in range(0, 70):
        histogram.add((1 << bits) + 1)
    assert buckets(histogram) == before == BUCKETS
    assert histogram.count == 70
    assert histogram.percentile_us(1) >= 1 << 41


def test_a_duration_below_nothing_is_nothing():
    assert filled([-5, -1]).percentile_us(0.5) == 0
    assert filled([-5]).mean_us == 0


def test_an_empty_histogram_has_no_mean():
    assert math.isnan(LatencyHistogram().mean_us)
    assert LatencyHistogram().percentile_us(0.5) == 0
