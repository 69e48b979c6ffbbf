from __future__ import annotations

import errno
import os
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kserver.errors import StorageError
from kserver.log.index import OffsetIndex, OffsetPosition, TimeIndex, TimestampOffset
from tests.support.clock import StillClock
from tests.support.disk import SimDisk

BASE = 1000


def make_disk() -> SimDisk:
    return SimDisk(random.Random(0), StillClock())


def offset_index(disk: SimDisk, capacity_bytes: int = 1 << 16) -> OffsetIndex:
    index = OffsetIndex(disk, "/i.index", BASE)
    index.file.grow(capacity_bytes)
    return index


rising = st.lists(st.integers(1, 50), max_size=40).map(
    lambda steps: [sum(steps[: n + 1]) for n in range(len(steps))]
)


@settings(deadline=None)
@given(offsets=rising, wanted=st.integers(-10, 2100))
def test_a_look_up_finds_the_last_entry_at_or_before_an_offset(
    offsets: list[int], wanted: int
) -> None:
    index = offset_index(make_disk())
    for number, offset in enumerate(offsets):
        index.append(BASE + offset, 100 * (number + 1))
    before = [100 * (n + 1) for n, offset in enumerate(offsets) if offset <= wanted]
    assert index.position_before(BASE + wanted) == (before[-1] if before else 0)


@settings(deadline=None)
@given(offsets=rising, position=st.integers(0, 5000))
def test_the_bound_after_a_position_is_above_all_that_lie_before_it(
    offsets: list[int], position: int
) -> None:
    index = offset_index(make_disk())
    for number, offset in enumerate(offsets):
        index.append(BASE + offset, 100 * (number + 1))
    places = [(BASE + offset, 100 * (n + 1)) for n, offset in enumerate(offsets)]
    behind = [place for place in places if place[1] >= position]
    assert index.entry_from(position) == (behind[0] if behind else None)


@settings(deadline=None)
@given(entries=rising, wanted=st.integers(-10, 2100))
def test_a_look_up_finds_the_last_entry_at_or_before_a_timestamp(
    entries: list[int], wanted: int
) -> None:
    index = TimeIndex(make_disk(), "/i.timeindex", BASE)
    index.file.grow(1 << 16)
    for number, timestamp in enumerate(entries):
        index.append(timestamp, BASE + number)
    before = [TimestampOffset(t, BASE + n) for n, t in enumerate(entries) if t <= wanted]
    assert index.lookup(wanted) == (before[-1] if before else TimestampOffset(-1, BASE))


@settings(deadline=None)
@given(offsets=rising, cut=st.integers(0, 2100))
def test_truncation_removes_the_entries_at_and_above_an_offset_and_appends_go_on(
    offsets: list[int], cut: int
) -> None:
    disk = make_disk()
    positions = offset_index(disk)
    times = TimeIndex(disk, "/i.timeindex", BASE)
    times.file.grow(1 << 16)
    for number, offset in enumerate(offsets):
        positions.append(BASE + offset, number + 1)
        times.append(number, BASE + offset)
    positions.truncate(BASE + cut)
    times.truncate(BASE + cut)
    kept = [BASE + offset for offset in offsets if offset < cut]
    for index in (positions, times):
        index.file.check()
        assert [index.entry(n).offset for n in range(index.file.count)] == kept
    positions.append(BASE + 3000, 5000)
    times.append(5000, BASE + 3000)
    assert positions.last() == OffsetPosition(BASE + 3000, 5000)
    assert times.last() == TimestampOffset(5000, BASE + 3000)


def test_a_growing_file_has_room_and_a_sealed_one_only_its_entries() -> None:
    disk = make_disk()
    index = offset_index(disk, 85)
    assert index.file.capacity == 10
    assert len(disk.read_file("/i.index")) == 80
    index.append(BASE + 1, 7)
    index.append(BASE + 5, 90)
    index.file.seal()
    assert disk.read_file("/i.index") == bytes.fromhex("0000000100000007 000000050000005a")
    again = OffsetIndex(disk, "/i.index", BASE)
    again.file.load()
    assert [again.entry(n) for n in range(2)] == [(BASE + 1, 7), (BASE + 5, 90)]
    assert again.last() == (BASE + 5, 90)


def test_a_time_index_keeps_its_last_place_for_the_seal() -> None:
    index = TimeIndex(make_disk(), "/i.timeindex", BASE)
    index.file.grow(36)
    index.append(1, BASE)
    assert not index.is_full()
    index.append(2, BASE + 1)
    assert index.is_full()
    index.append(3, BASE + 2)
    assert index.last() == (3, BASE + 2)


def test_a_timestamp_that_is_not_larger_makes_no_entry() -> None:
    index = TimeIndex(make_disk(), "/i.timeindex", BASE)
    index.file.grow(120)
    index.append(5, BASE)
    index.append(5, BASE + 1)
    index.append(4, BASE + 2)
    assert index.file.count == 1


def test_a_full_disk_is_an_error_and_not_a_bus_error() -> None:
    disk = make_disk()
    index = offset_index(disk)
    disk.capacity_bytes = 4096
    for number in range(512):
        index.append(BASE + number, number + 1)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        index.append(BASE + 512, 513)
    assert index.file.count == 512


def test_a_file_with_half_an_entry_is_refused() -> None:
    disk = make_disk()
    disk.open("/i.index", create=True).write_at(0, bytes(12))
    with pytest.raises(StorageError, match=r"/i.index: size 12 is not a multiple of 8"):
        OffsetIndex(disk, "/i.index", BASE).file.load()


def test_the_last_pages_are_searched_as_the_others_are() -> None:
    index = offset_index(make_disk(), 1 << 17)
    for number in range(5000):
        index.append(BASE + 2 * number, 10 * number)
    for offset in [*range(0, 9999, 7), 9998, 9999, 12000]:
        assert index.position_before(BASE + offset) == 10 * min(offset // 2, 4999)
