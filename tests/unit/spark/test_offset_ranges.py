"""What tasks read and where micro-batches end, for any offsets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcli.spark.offset_ranges import (
    MANY,
    TASK_OFFSETS,
    DataLost,
    KafkaOffsetRange,
    changed,
    clamp,
    grouped,
    limited,
    split,
)
from kserver.model import TopicPartition

TOPIC = [TopicPartition("t", n) for n in range(8)]


@st.composite
def ranges(draw):
    sizes = draw(st.lists(st.integers(0, 10_000), max_size=8))
    starts = [draw(st.integers(0, 1 << 60)) for _ in sizes]
    return [KafkaOffsetRange(p, s, s + n) for p, s, n in zip(TOPIC, starts, sizes, strict=False)]


@given(ranges(), st.none() | st.integers(1, 60), st.none() | st.integers(100, 20_000))
def test_parts_cover_every_offset_once_and_keep_to_what_was_asked(whole, least, most):
    parts = split(whole, min_partitions=least, max_records=most)
    for r in whole:
        mine = [part for part in parts if part.partition == r.partition]
        if r.size:
            assert [mine[0].start, *(part.end for part in mine)] == [
                *(part.start for part in mine),
                r.end,
            ]
        else:
            assert not mine
    assert all(part.size > 0 for part in parts)
    assert most is None or all(part.size <= most for part in parts)
    assert len(parts) >= min(least or 0, sum(r.size for r in whole))


def test_each_range_is_one_task_where_nothing_is_asked():
    whole = [
        KafkaOffsetRange(TOPIC[0], 0, 10),
        KafkaOffsetRange(TOPIC[1], 5, 5),
        KafkaOffsetRange(TOPIC[2], 1, 3),
    ]
    assert split(whole) == [whole[0], whole[2]]


@given(
    st.lists(st.integers(1, 30_000), max_size=300),
    st.none() | st.integers(1, 300),
    st.none() | st.integers(1, 30_000),
)
def test_tasks_read_every_part_once_in_order_and_there_are_enough_of_them(sizes, least, most):
    parts = [KafkaOffsetRange(TopicPartition("t", n), 5, 5 + size) for n, size in enumerate(sizes)]
    tasks = grouped(parts, min_partitions=least, max_records=most)
    most = min(most or TASK_OFFSETS, TASK_OFFSETS)
    assert [part for task in tasks for part in task] == parts
    assert all(tasks)
    assert len(tasks) >= min(len(parts), max(MANY, least or 0))
    assert all(len(task) == 1 or sum(p.size for p in task) <= most for task in tasks)


def test_parts_share_a_task_only_where_they_are_many_and_small():
    def tasks(count: int, size: int) -> int:
        parts = [KafkaOffsetRange(TopicPartition("t", n), 0, size) for n in range(count)]
        return len(grouped(parts))

    assert tasks(MANY, 1) == MANY
    assert tasks(10 * MANY, 1) == MANY
    assert tasks(10 * MANY, TASK_OFFSETS // 5) == 2 * MANY
    assert tasks(10 * MANY, TASK_OFFSETS) == 10 * MANY


def test_what_is_largest_is_split_first():
    whole = [KafkaOffsetRange(TOPIC[0], 0, 900), KafkaOffsetRange(TOPIC[1], 0, 100)]
    assert [(p.partition.partition, p.size) for p in split(whole, min_partitions=4)] == [
        (0, 300),
        (0, 300),
        (0, 300),
        (1, 100),
    ]


@given(ranges(), st.integers(1, 30_000))
def test_a_micro_batch_takes_in_just_as_many_as_it_may(whole, most):
    start = {r.partition: r.start for r in whole}
    latest = {r.partition: r.end for r in whole}
    end = limited(start, latest, most)
    assert end.keys() == latest.keys()
    assert all(start[p] <= end[p] <= latest[p] for p in end)
    total = sum(r.size for r in whole)
    assert sum(end[p] - start[p] for p in end) == min(most, total)
    if most >= sum(r.size > 0 for r in whole):
        assert all(end[r.partition] > r.start for r in whole if r.size)


def test_offsets_are_shared_out_by_lag():
    start = dict.fromkeys(TOPIC[:2], 0)
    assert limited(start, {TOPIC[0]: 3000, TOPIC[1]: 1000}, 100) == {TOPIC[0]: 75, TOPIC[1]: 25}


def test_an_offset_that_the_log_does_not_hold_is_data_lost():
    low, high = {TOPIC[0]: 10}, {TOPIC[0]: 20}
    for offset, inside in ((9, 10), (21, 20)):
        with pytest.raises(DataLost, match=rf"x names offset {offset} of t-0.* failOnDataLoss"):
            clamp({TOPIC[0]: offset}, low, high, "x", fail_on_data_loss=True)
        found = clamp({TOPIC[0]: offset}, low, high, "x", fail_on_data_loss=False)
        assert found == {TOPIC[0]: inside}
    assert clamp({TOPIC[0]: 20}, low, high, "x", fail_on_data_loss=True) == {TOPIC[0]: 20}


def test_what_is_gone_went_back_or_came_late_is_told():
    start = {TOPIC[0]: 5, TOPIC[1]: 5, TOPIC[2]: 5}
    end = {TOPIC[1]: 4, TOPIC[2]: 6, TOPIC[3]: 9, TOPIC[4]: 9}
    assert changed(start, end, {TOPIC[3]: 0, TOPIC[4]: 2}) == [
        "partition t-0 was deleted",
        "partition t-1 ended at 5 and ends at 4 now",
        "partition t-4 is new and begins at 2, not at 0",
    ]
