from __future__ import annotations

import random
from typing import Any

import pytest

from kserver.config.topic import TopicConfig
from kserver.errors import StorageError
from kserver.log.segment import OFFSET_INDEX, TIME_INDEX, LogSegment, segment_path
from kserver.log.validator import Origin, Validated, validate
from tests.support.clock import DAY_ONE_MS, StillClock
from tests.support.disk import SimDisk
from tests.support.logs import batch

BASE = 100


def make_disk() -> SimDisk:
    return SimDisk(random.Random(0), StillClock())


def make_segment(disk: SimDisk | None = None, **config: Any) -> LogSegment:
    return LogSegment.create(disk or make_disk(), "", BASE, TopicConfig(**config), DAY_ONE_MS)


def valid(offset: int, count: int = 1, **fields: Any) -> Validated:
    return validate(
        batch(count, **fields),
        TopicConfig(),
        DAY_ONE_MS,
        origin=Origin.client,
        first_offset=offset,
        leader_epoch=0,
        compacted=False,
    )


def fill(segment: LogSegment, batches: int, *, count: int = 1, size: int = 20) -> None:
    for number in range(batches):
        one = valid(segment.end_offset, count, size=size, timestamp=DAY_ONE_MS + 10 * number)
        segment.append(one.buffer, one.batches)


def test_an_entry_is_made_for_the_batch_after_each_index_interval() -> None:
    segment = make_segment(index_interval_bytes=250)
    fill(segment, 10)
    size = segment.size // 10
    entries = [segment.offsets.entry(n) for n in range(segment.offsets.file.count)]
    assert size == 91
    # 3 * 91 > 250: the fourth batch, and then every third.
    assert entries == [(103, 3 * size), (106, 6 * size), (109, 9 * size)]
    assert [segment.times.entry(n).offset for n in range(segment.times.file.count)] == [
        103, 106, 109,
    ]  # fmt: skip
    segment.check()


def test_each_batch_of_one_write_may_have_its_own_entry() -> None:
    segment = make_segment(index_interval_bytes=100)
    first, second = valid(100, 2, size=100), valid(102, 3, size=100)
    both = memoryview(bytes(first.buffer) + bytes(second.buffer))
    segment.append(both, [*first.batches, *second.batches])
    assert segment.offsets.last() == (104, len(first.buffer))
    segment.check()


def test_every_offset_is_found_whatever_the_index_holds() -> None:
    for interval in (0, 250, 1 << 20):
        segment = make_segment(index_interval_bytes=interval)
        fill(segment, 40, count=3, size=300)
        whole = segment.size // 40
        for offset in range(BASE, segment.end_offset):
            number = (offset - BASE) // 3
            assert segment.find(offset) == (number * whole, whole, BASE + 3 * number + 2)
        assert segment.find(segment.end_offset) == (segment.size, 0, segment.end_offset - 1)


def test_a_search_that_memory_does_not_serve_finds_nothing() -> None:
    disk = make_disk()
    segment = make_segment(disk)
    fill(segment, 3)
    disk.cold_chance = 1.0
    assert segment.find_cached(BASE + 1) is None
    assert segment.batch_at(0) is None
    assert segment.find(BASE + 1).position == segment.size // 3


def test_room_ends_with_bytes_age_index_and_relative_offset() -> None:
    segment = make_segment(segment_bytes=1000, segment_ms=500, segment_index_bytes=64)
    fits: dict[str, int] = {
        "size": 1000,
        "last_offset": BASE + 0x7FFF_FFFF,
        "max_timestamp": DAY_ONE_MS + 10**9,
        "now_ms": DAY_ONE_MS + 10**9,
    }
    assert segment.has_room(**fits)
    assert not segment.has_room(**{**fits, "last_offset": BASE + 0x8000_0000})
    fill(segment, 1)
    fits |= {"size": 1000 - segment.size, "max_timestamp": DAY_ONE_MS + 500}
    assert segment.has_room(**fits)
    assert not segment.has_room(**{**fits, "size": fits["size"] + 1})
    assert not segment.has_room(**{**fits, "max_timestamp": DAY_ONE_MS + 501})
    segment.is_index_full = True
    assert not segment.has_room(**fits)


def test_records_without_timestamps_age_by_the_clock() -> None:
    segment = make_segment(segment_ms=500)
    one = valid(BASE, timestamp=-1)
    segment.append(one.buffer, one.batches)
    assert segment.has_room(10, BASE + 1, -1, DAY_ONE_MS + 500)
    assert not segment.has_room(10, BASE + 1, -1, DAY_ONE_MS + 501)


def test_a_full_index_ends_the_room_and_loses_nothing() -> None:
    segment = make_segment(index_interval_bytes=0, segment_index_bytes=36)
    fill(segment, 3)
    assert segment.is_index_full
    fill(segment, 5)
    segment.check()
    segment.seal()
    assert segment.times.last().offset == segment.end_offset - 1
    assert segment.find(BASE + 7).last_offset == BASE + 7


def test_a_sealed_segment_is_loaded_as_it_was() -> None:
    disk = make_disk()
    segment = make_segment(disk, preallocate=True, segment_bytes=5000, index_interval_bytes=100)
    assert segment.size == 0
    assert len(disk.read_file(segment.file.path)) == 5000
    fill(segment, 10)
    segment.seal()
    assert segment.is_sealed
    again = LogSegment(disk, "", BASE, TopicConfig(), DAY_ONE_MS)
    again.load()
    again.end_offset = segment.end_offset
    again.check()
    assert again.size == segment.size
    assert (again.max_timestamp, again.offset_of_max_timestamp) == (DAY_ONE_MS + 90, BASE + 9)


@pytest.mark.parametrize("suffix", [OFFSET_INDEX, TIME_INDEX])
def test_an_index_of_ones_is_refused(suffix: str) -> None:
    disk = make_disk()
    segment = make_segment(disk, index_interval_bytes=0)
    fill(segment, 3)
    segment.seal()
    path = segment_path("", BASE, suffix)
    disk.replace_file(path, b"\xff" * len(disk.read_file(path)))
    with pytest.raises(StorageError, match="invalid entries from"):
        LogSegment(disk, "", BASE, TopicConfig(), DAY_ONE_MS).load()


def test_an_index_that_points_behind_the_records_is_refused() -> None:
    disk = make_disk()
    segment = make_segment(disk, index_interval_bytes=0)
    fill(segment, 3)
    segment.seal()
    segment.file.truncate(100)
    again = LogSegment(disk, "", BASE, TopicConfig(), DAY_ONE_MS)
    with pytest.raises(StorageError, match="for a log file of 100 bytes"):
        again.load()


def test_the_rebuilt_indexes_are_those_that_were_written() -> None:
    disk = make_disk()
    config = TopicConfig(index_interval_bytes=300)
    segment = make_segment(disk, index_interval_bytes=300)
    fill(segment, 50, count=2, size=60)
    segment.seal()
    paths = [segment.path(suffix) for suffix in (".index", ".timeindex")]
    written = [disk.read_file(path) for path in paths]
    segment.rebuild(config)
    for position, header in segment.headers():
        segment.note(position, header.size, header.last_offset, header.max_timestamp)
    segment.seal()
    assert [disk.read_file(path) for path in paths] == written


@pytest.mark.parametrize("at", range(BASE, BASE + 31))
def test_after_a_cut_the_segment_is_as_if_no_more_had_been_written(at: int) -> None:
    config = TopicConfig(index_interval_bytes=200)
    segment = make_segment(index_interval_bytes=200)
    fill(segment, 10, count=3)
    cut = segment.cut_at(at)
    assert cut.end_offset == BASE + (at - BASE) // 3 * 3
    segment.truncate(cut, config)
    segment.file.truncate(cut.position)
    segment.check()
    other = make_segment(index_interval_bytes=200)
    fill(other, (at - BASE) // 3, count=3)
    for name in ("size", "end_offset", "max_timestamp", "first_timestamp", "unindexed_bytes"):
        assert getattr(segment, name) == getattr(other, name), name
    fill(segment, 5)
    segment.check()


def test_a_file_that_holds_no_batches_is_named() -> None:
    segment = make_segment()
    fill(segment, 2)
    segment.file.write_at(segment.size // 2, bytes(70))
    with pytest.raises(StorageError, match=r"00100\.log: incomplete batch at position 91"):
        list(segment.headers())


def test_a_compacted_logs_segment_is_full_at_the_age_at_which_it_must_be_cleaned() -> None:
    for policy, is_full in ((("delete",), False), (("compact",), True)):
        segment = make_segment(cleanup_policy=policy, max_compaction_lag_ms=1000)
        fill(segment, 1)
        assert segment.has_room(1, BASE + 5, DAY_ONE_MS + 1001, DAY_ONE_MS) is not is_full
