from __future__ import annotations

import pytest

from tests.bench.figures import (
    at_least,
    at_least_times,
    at_least_times_of,
    at_most,
    at_most_times,
    lines,
    shown,
)


def test_a_figure_is_the_median_of_its_rounds():
    ours = [{"MB/s": 300.0}, {"MB/s": 100.0}, {"MB/s": 200.0}]
    rival = [{"MB/s": 30.0}, {"MB/s": 50.0}]
    (line,) = lines("row", {"MB/s": None}, ours, rival)
    assert (line.ours, line.rival, line.ratio) == (200, 40, 5)


def test_figures_come_in_the_order_of_the_aims_and_others_are_left_out():
    sample = {"a": 1.0, "b": 2.0, "c": 3.0}
    found = lines("row", {"c": None, "a": None}, [sample], [sample])
    assert [(line.figure, line.ours) for line in found] == [("c", 3), ("a", 1)]


@pytest.mark.parametrize(
    ("aim", "ours", "is_short"),
    [
        (at_least_times(4), 40.0, False),
        (at_least_times(4), 39.9, True),
        (at_most_times(0.2), 2.0, False),
        (at_most_times(0.2), 2.1, True),
        (at_least(50), 50.0, False),
        (at_least(50), 49.0, True),
        (at_most(0.4), 0.4, False),
        (at_most(0.4), 0.5, True),
        (None, 0.0, False),
    ],
)
def test_an_aim_holds_our_figure_to_a_bound_or_to_the_rivals(aim, ours, is_short):
    (line,) = lines("row", {"f": aim}, [{"f": ours}], [{"f": 10.0}])
    assert line.is_short is is_short


def test_without_a_rival_there_is_no_ratio_and_only_absolute_aims_can_be_missed():
    relative, absolute = lines(
        "row", {"a": at_least_times(4), "b": at_least(4)}, [{"a": 1.0, "b": 1.0}]
    )
    assert relative.rival is relative.ratio is None
    assert not relative.is_short
    assert absolute.is_short


@pytest.mark.parametrize(("ours", "is_short"), [(30.0, False), (29.0, True)])
def test_an_aim_may_hold_a_figure_to_another_one_of_ours(ours, is_short):
    aims = {"a": at_least_times_of("b", 1.5), "b": None}
    line, _ = lines("row", aims, [{"a": ours, "b": 20.0}], [{"a": 1.0, "b": 1.0}])
    assert line.is_short is is_short
    assert str(line.aim) == ">= 1.5x b"


def test_a_figure_that_was_not_taken_of_the_rival_has_no_ratio():
    _, line = lines("row", {"a": None, "b": None}, [{"a": 1.0, "b": 2.0}], [{"a": 1.0}])
    assert (line.ours, line.rival, line.ratio) == (2, None, None)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2521.4, "2,521"),
        (1_240_000.0, "1,240,000"),
        (99.96, "100"),
        (78.44, "78.4"),
        (0.378, "0.378"),
        (4.0, "4"),
        (0.0, "0"),
        (0.00012, "0.00012"),
        (None, ""),
    ],
)
def test_numbers_are_shown_with_three_digits_and_no_power_of_ten(value, text):
    assert shown(value) == text


@pytest.mark.parametrize(
    ("aim", "text"),
    [
        (at_least_times(4), ">= 4x"),
        (at_most_times(0.2), "<= 0.2x"),
        (at_least(400_000), ">= 400,000"),
        (at_most(60), "<= 60"),
    ],
)
def test_an_aim_reads_as_its_bound(aim, text):
    assert str(aim) == text
