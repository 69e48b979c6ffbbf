from __future__ import annotations

from dataclasses import dataclass

import pytest

from kserver.config.topic import TopicConfig
from kserver.log.cleanable import Dirty, dirty

NOW_MS = 1_000_000


@dataclass
class Row:
    base_offset: int
    size: int = 100
    first_timestamp: int = -1
    newest: int = 0

    def largest_timestamp(self) -> int:
        return self.newest


def looked_at(
    *rows: Row, cleaned_to: int = 0, start: int = 0, limit: int = 1 << 40, **config: object
) -> Dirty:
    return dirty(
        rows,
        TopicConfig(cleanup_policy=("compact",), **config),
        cleaned_to=cleaned_to,
        log_start_offset=start,
        limit=limit,
        now_ms=NOW_MS,
    )


FOUR = Row(0), Row(10), Row(20), Row(30)


def test_all_but_the_active_segment_is_dirty_at_first():
    assert looked_at(*FOUR) == Dirty(0, 30, 0, 300, False)
    assert looked_at(Row(0)) == Dirty(0, 0, 0, 0, False)


def test_what_was_cleaned_is_clean():
    assert looked_at(*FOUR, cleaned_to=20) == Dirty(20, 30, 200, 100, False)
    assert looked_at(*FOUR, cleaned_to=30) == Dirty(30, 30, 300, 0, False)


def test_a_segment_that_was_cleaned_in_part_is_dirty():
    assert looked_at(*FOUR, cleaned_to=15) == Dirty(15, 30, 100, 200, False)


@pytest.mark.parametrize("cleaned_to", [5, 31, 1000])
def test_a_point_that_the_log_does_not_have_counts_as_none(cleaned_to):
    assert looked_at(*FOUR, cleaned_to=cleaned_to, start=10).first_offset == 10


@pytest.mark.parametrize(("limit", "end"), [(9, 0), (10, 10), (29, 20), (30, 30)])
def test_what_is_not_decided_or_not_on_disk_is_left_alone(limit, end):
    assert looked_at(*FOUR, limit=limit).end_offset == end


def test_a_young_record_keeps_its_segment_and_all_later_ones_dirty():
    rows = Row(0, newest=NOW_MS - 100), Row(10, newest=NOW_MS - 50), Row(20, newest=0), Row(30)
    assert looked_at(*rows, min_compaction_lag_ms=60).end_offset == 10
    assert looked_at(*rows, min_compaction_lag_ms=0).end_offset == 30


def test_a_record_that_was_dirty_for_too_long_is_due_whatever_the_ratio():
    rows = Row(0, 10_000), Row(10, 10, first_timestamp=NOW_MS - 100), Row(20)
    config = TopicConfig(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.5)
    assert not looked_at(*rows, cleaned_to=10, max_compaction_lag_ms=100).is_due(config)
    late = looked_at(*rows, cleaned_to=10, max_compaction_lag_ms=99)
    assert late.is_overdue
    assert late.is_due(config)


def test_a_log_is_due_above_its_ratio_and_never_without_dirt():
    config = TopicConfig(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.5)
    assert not Dirty(0, 10, 100, 100, False).is_due(config)
    assert Dirty(0, 10, 100, 101, False).is_due(config)
    assert not Dirty(10, 10, 0, 0, True).is_due(config)
    eager = TopicConfig(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0)
    assert not Dirty(10, 10, 100, 0, False).is_due(eager)
