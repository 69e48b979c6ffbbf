"""So many records in a second and no more."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcli.console.pace import BURST_S, RecordPace


@given(
    st.floats(0.1, 1e6),
    st.lists(st.tuples(st.floats(0, 5), st.integers(1, 5000)), max_size=50),
)
def test_no_more_go_than_the_rate_allows(per_second, steps):
    pace, now, gone = RecordPace(per_second, 10.0), 10.0, 0
    for pause, most in steps:
        now += pause
        taken = pace.take(most, now)
        assert 0 <= taken <= most
        gone += taken
        assert gone <= (now - 10.0) * per_second + 1 + 1e-3


@pytest.mark.parametrize("per_second", [0.5, 3, 100, 12_345])
def test_whoever_pauses_as_told_reaches_the_rate(per_second):
    pace, now, gone = RecordPace(per_second, 0.0), 0.0, 0
    while now < 60:
        gone += pace.take(1_000_000, now)
        now += pace.pause_s
    assert gone == pytest.approx(60 * per_second, rel=0.05)


def test_a_long_pause_is_followed_by_no_flood():
    pace = RecordPace(1000, 0.0)
    assert pace.take(5000, 3600.0) == 1000 * BURST_S
