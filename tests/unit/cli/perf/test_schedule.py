from __future__ import annotations

from itertools import pairwise

from hypothesis import assume, given
from hypothesis import strategies as st

from kcli.perf.schedule import Fixed, Unlimited

START_MS = 1_700_000_000_000

rates = st.floats(0.1, 1e6) | st.sampled_from([1.0, 3.0, 7.0, 999.0, 1000.0, 1001.0, 1e5, 1e6])
spans = st.tuples(st.integers(0, 10**6), st.integers(1, 3000))


def given_stamps(schedule, first, end, elapsed_s=0.0):
    """The timestamp of each record from `first` to before `end`."""
    stamps = []
    while first < end:
        ms, count = schedule.run(first, end, elapsed_s)
        assert 0 < count <= end - first
        stamps += [ms] * count
        first += count
    return stamps


@given(rates, spans)
def test_every_record_is_in_one_run_with_the_millisecond_in_which_it_is_due(rate, span):
    schedule = Fixed(rate, START_MS)
    first, end = span[0], sum(span)
    stamps = given_stamps(schedule, first, end)
    assert len(stamps) == end - first
    for index, stamp in zip(range(first, end), stamps, strict=True):
        assert stamp == START_MS + int(index * 1000 / rate)


@given(rates, spans)
def test_a_timestamp_tells_when_its_records_were_due_within_half_a_millisecond(rate, span):
    schedule = Fixed(rate, START_MS)
    first, end = span[0], sum(span)
    for index, stamp in zip(range(first, end), given_stamps(schedule, first, end), strict=True):
        assert abs(schedule.due_at(stamp) - schedule.time_of(index)) <= 0.0005 + 1e-9


@given(st.floats(0.1, 1000), spans)
def test_with_at_most_a_record_a_millisecond_it_tells_exactly(rate, span):
    schedule = Fixed(rate, START_MS)
    first, end = span[0], sum(span)
    stamps = given_stamps(schedule, first, end)
    assume(len(set(stamps)) == len(stamps))
    for index, stamp in zip(range(first, end), stamps, strict=True):
        middle = schedule.due_at(stamp)
        # A neighbour outside the span may share its millisecond.
        assert abs(middle - schedule.time_of(index)) <= 1e-9 + 0.5 / rate * (rate > 999)


@given(rates, st.floats(0, 1e4))
def test_what_is_due_is_what_time_has_come(rate, elapsed_s):
    schedule = Fixed(rate, START_MS)
    due = schedule.due(elapsed_s)
    assert due >= 1
    assert schedule.time_of(due - 1) <= elapsed_s + 1e-9
    assert schedule.time_of(due) > elapsed_s - 1e-9


@given(rates, st.integers(1, 5000), st.integers(1, 5000), st.integers(1, 700))
def test_warm_up_and_the_rest_part_at_a_timestamp(rate, warmup, more, step):
    schedule = Fixed(rate, START_MS, warmup)
    total = warmup + more
    stamps = []
    for first in range(0, total, step):
        stamps += given_stamps(schedule, first, min(first + step, total))
    assert all(a <= b for a, b in pairwise(stamps))
    assert sum(stamp >= schedule.steady_ms for stamp in stamps) == more
    for index, stamp in enumerate(stamps):
        assert abs(schedule.due_at(stamp) - schedule.time_of(index)) <= 0.0015 + 1e-9


@given(st.integers(0, 3000), st.lists(st.tuples(st.integers(1, 2000), st.floats(0, 0.003))))
def test_without_a_limit_a_record_is_due_when_it_is_sent(warmup, sends):
    schedule = Unlimited(START_MS, warmup)
    elapsed_s, first, stamps = 0.0, 0, []
    for count, later_s in sends:
        elapsed_s += later_s
        for stamp in given_stamps(schedule, first, first + count, elapsed_s):
            assert abs(schedule.due_at(stamp) - elapsed_s) <= 0.0015 + 1e-9
            stamps.append(stamp)
        first += count
    steady = sum(stamp >= schedule.steady_ms for stamp in stamps)
    assert steady == max(0, first - warmup)
    assert all(a <= b for a, b in pairwise(stamps))
    assert schedule.due(0) > 10**12
