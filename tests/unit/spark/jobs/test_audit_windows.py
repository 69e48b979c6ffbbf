"""Reckoning: counts of a topic and of what has landed, into what is missing, twice or all right."""

from __future__ import annotations

from kcli.spark.jobs.audit_windows import (
    DAY_MS,
    HOUR_MS,
    Counts,
    Window,
    WindowResult,
    findings,
    shown,
    sum_counts,
)


def one(counts: Counts, overdue: bool = False) -> WindowResult:
    (found,) = findings({Window("t", 7): counts}, HOUR_MS, 8 * HOUR_MS if overdue else 0)
    return found


def test_what_has_landed_whole_does_not_differ():
    found = one(Counts(due=10, rows=10, distinct=10))
    assert (found.broker, found.landed, found.differs) == (10, 10, False)
    assert one(Counts()).differs is False


def test_a_gap_and_a_duplicate_that_make_up_for_each_other_are_both_found():
    found = one(Counts(due=10, rows=10, distinct=9))
    assert (found.broker, found.landed) == (10, 10)
    assert (found.missing, found.duplicates, found.differs) == (1, 1, True)


def test_what_has_aged_out_or_was_compacted_away_is_no_gap():
    found = one(Counts(due=4, rows=7, distinct=7, before_rows=3, before=3, compacted=3))
    assert (found.aged_out, found.landed, found.extra, found.differs) == (6, 10, 0, False)
    # A gap beside it is still one.
    found = one(Counts(due=4, rows=6, distinct=6, compacted=3))
    assert (found.missing, found.aged_out) == (1, 3)
    # So is what landed twice before it aged out.
    assert one(Counts(before_rows=4, before=3)).duplicates == 1


def test_what_landed_and_never_was_there_is_extra():
    assert one(Counts(due=4, rows=6, distinct=6)).extra == 2


def test_rows_of_other_records_than_those_at_their_offsets_are_extra_and_those_are_missing():
    found = one(Counts(due=250, rows=250, distinct=250, others=100))
    assert (found.missing, found.extra, found.differs) == (100, 100, True)
    # By other times they may be in a window where the topic holds nothing.
    found = one(Counts(rows=100, distinct=100, others=100))
    assert (found.missing, found.extra) == (0, 100)


def test_what_comes_after_the_last_that_landed_waits_until_its_window_is_long_over():
    found = one(Counts(due=4, after=3, rows=4, distinct=4))
    assert (found.broker, found.waiting, found.missing, found.differs) == (7, 3, 0, False)
    found = one(Counts(due=4, after=3, rows=4, distinct=4), overdue=True)
    assert (found.broker, found.waiting, found.missing, found.differs) == (7, 0, 3, True)


def test_a_window_is_overdue_only_when_its_end_is():
    late = {Window("t", 7): Counts(after=1)}
    assert next(findings(late, HOUR_MS, 8 * HOUR_MS - 1)).waiting == 1
    assert next(findings(late, HOUR_MS, 8 * HOUR_MS)).missing == 1


def test_windows_are_told_by_topic_and_time_and_counts_are_added():
    counts = sum_counts(
        [
            (Window("b", 1), Counts(due=1)),
            (Window("a", 2), Counts(rows=1, distinct=1)),
            (Window("a", 2), Counts(due=2)),
            (Window("a", 1), Counts(due=1)),
        ]
    )
    found = list(findings(counts, HOUR_MS, 0))
    assert [(f.topic, f.window) for f in found] == [
        ("a", "1970-01-01T01:00Z"),
        ("a", "1970-01-01T02:00Z"),
        ("b", "1970-01-01T01:00Z"),
    ]
    assert found[1].missing == 1


def test_windows_are_shown_in_utc():
    assert shown(1_700_000_000_000 // HOUR_MS, HOUR_MS) == "2023-11-14T22:00Z"
    assert shown(1_700_000_000_000 // DAY_MS, DAY_MS) == "2023-11-14"
    # Records without a time have -1.
    assert shown(-1 // HOUR_MS, HOUR_MS) == "1969-12-31T23:00Z"
