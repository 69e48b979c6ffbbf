"""Pace: a rate that holds over all who ask, by a clock that is counted."""

from __future__ import annotations

from random import Random

from kcli.spark.jobs.pace import RowPace, chunk


def test_the_first_does_not_wait_and_the_next_waits_for_what_went_before():
    pace = RowPace(per_s=8)
    assert pace.take(4, now_s=100.0) == 0
    assert pace.take(1, now_s=100.0) == 0.5
    assert pace.take(1, now_s=100.25) == 0.375


def test_time_in_which_nobody_asked_is_not_made_up_for():
    pace = RowPace(per_s=8)
    pace.take(1, now_s=0.0)
    assert pace.take(1, now_s=60.0) == 0
    assert pace.take(1, now_s=60.0) == 0.125


def test_however_many_ask_no_second_holds_more_and_no_time_is_lost():
    random = Random(7)
    per_s, asked, tasks = 100, 2000, 5
    pace = RowPace(per_s)
    ready_s = [0.0] * tasks
    sent: list[tuple[float, int]] = []
    left = asked
    while left:
        task = min(range(tasks), key=ready_s.__getitem__)
        count = min(left, random.randint(1, chunk(per_s)))
        at = ready_s[task] + pace.take(count, ready_s[task])
        sent.append((at, count))
        ready_s[task] = at + random.random() * 0.01
        left -= count
    sent.sort()
    for begin, _ in sent:
        within = sum(count for at, count in sent if begin <= at < begin + 1)
        assert within <= per_s + chunk(per_s)
    last_s = sent[-1][0]
    assert asked / per_s - 0.5 <= last_s <= asked / per_s + 0.5


def test_a_slow_rate_asks_for_one_at_a_time():
    assert [chunk(rate) for rate in (0.5, 3, 10, 100, 12_345)] == [1, 1, 1, 10, 1234]
