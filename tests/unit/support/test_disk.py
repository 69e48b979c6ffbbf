"""What the simulated disk loses and when, beyond what every disk does."""

from __future__ import annotations

import asyncio
import errno
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.clock import StillClock
from tests.support.disk import PAGE_BYTES, SimDisk


def new_disk(seed: int = 0) -> SimDisk:
    """With an empty directory /data that a power cut leaves there."""
    disk = SimDisk(random.Random(seed), StillClock())
    disk.make_directories("/data")
    disk.sync_directory("/")
    return disk


@pytest.fixture
def disk():
    return new_disk()


def durable_file(disk: SimDisk, path: str, data: bytes):
    file = disk.open(path, create=True)
    file.write_at(0, data)
    file.sync()
    disk.sync_directory("/data")
    return file


def test_a_power_cut_loses_what_was_not_synced(disk):
    file = durable_file(disk, "/data/log", b"abc")
    file.write_at(3, b"def")
    assert disk.crash(keep=0.0).read_file("/data/log") == b"abc"


def test_a_power_cut_undoes_a_truncation_that_was_not_synced(disk):
    durable_file(disk, "/data/log", b"abc").truncate(1)
    assert disk.crash(keep=0.0).read_file("/data/log") == b"abc"


def test_a_power_cut_may_keep_everything(disk):
    file = durable_file(disk, "/data/log", b"abc")
    file.write_at(3, b"def")
    file.truncate(5)
    assert disk.crash(keep=1.0).read_file("/data/log") == b"abcde"


def test_a_power_cut_keeps_what_it_kept_once(disk):
    durable_file(disk, "/data/log", b"abc").write_at(3, b"def")
    disk = disk.crash(keep=1.0)
    assert disk.crash(keep=0.0).read_file("/data/log") == b"abcdef"


def test_a_power_cut_may_keep_a_later_write_and_tear_an_earlier_one():
    left = set()
    for seed in range(100):
        disk = new_disk(seed)
        file = durable_file(disk, "/data/log", b"")
        file.write_at(0, b"aa")
        file.write_at(2, b"bb")
        left.add(disk.crash().read_file("/data/log"))
    assert {b"", b"a", b"aa", b"a\0bb", b"\0\0bb", b"aab", b"aabb"} <= left


def test_the_name_of_a_synced_file_needs_its_directory_synced(disk):
    disk.open("/data/log", create=True).sync()
    assert disk.crash(keep=0.0).list("/data") == []


def test_a_directory_needs_its_parent_synced(disk):
    disk.make_directories("/data/t-0")
    disk.open("/data/t-0/log", create=True)
    disk.sync_directory("/data/t-0")
    assert disk.crash(keep=0.0).list("/data") == []


def test_a_file_in_synced_directories_stays(disk):
    disk.make_directories("/data/t-0")
    disk.open("/data/t-0/log", create=True)
    disk.sync_directory("/data/t-0")
    disk.sync_directory("/data")
    assert disk.crash(keep=0.0).list("/data/t-0") == ["log"]


def test_a_power_cut_undoes_a_rename_that_was_not_synced(disk):
    durable_file(disk, "/data/old", b"abc")
    disk.rename("/data/old", "/data/new")
    assert disk.crash(keep=0.0).list("/data") == ["old"]


def test_a_power_cut_undoes_a_removal_that_was_not_synced(disk):
    durable_file(disk, "/data/log", b"abc")
    disk.remove("/data/log")
    assert disk.crash(keep=0.0).read_file("/data/log") == b"abc"


@given(st.integers())
def test_a_renamed_file_is_there_under_one_name(seed):
    disk = new_disk(seed)
    durable_file(disk, "/data/old", b"abc")
    disk.rename("/data/old", "/data/new")
    disk.open("/data/later", create=True)
    assert disk.crash().list("/data") in (["old"], ["new"], ["later", "new"])


@given(st.integers())
def test_replaced_content_is_the_old_or_the_new(seed):
    disk = new_disk(seed)
    disk.replace_file("/data/state", b"old")
    disk.fail("sync_directory", times=1)
    with pytest.raises(OSError):
        disk.replace_file("/data/state", b"new")
    assert disk.crash().read_file("/data/state") in (b"old", b"new")


def test_a_failed_replacement_leaves_nothing_behind(disk):
    disk.replace_file("/data/state", b"old")
    disk.fail("write_at", errno.ENOSPC, path="*.tmp", times=1)
    with pytest.raises(OSError):
        disk.replace_file("/data/state", b"new")
    assert disk.list("/data") == ["state"]
    assert disk.read_file("/data/state") == b"old"


def test_what_goes_through_a_mapping_is_lost_until_synced(disk):
    file = durable_file(disk, "/data/index", bytes(4))
    mapping = file.map(4)
    mapping[0:2] = b"ab"
    mapping.flush()
    mapping[2:4] = b"cd"
    assert disk.crash(keep=0.0).read_file("/data/index") == b"ab\0\0"


def test_a_killed_process_leaves_all_it_wrote(disk):
    disk.open("/data/log", create=True).write_at(0, b"abc")
    lock = disk.lock("/data/.lock")
    after = disk.kill()
    assert after.read_file("/data/log") == b"abc"
    after.lock("/data/.lock")
    lock.release()


def test_the_disk_of_a_dead_process_refuses(disk):
    file = disk.open("/data/log", create=True)
    disk.kill()
    with pytest.raises(OSError):
        file.write_at(0, b"abc")
    with pytest.raises(OSError):
        disk.list("/data")


def test_work_offloaded_by_a_dead_process_never_runs(disk):
    async def main():
        nonlocal disk
        waiting = asyncio.create_task(disk.offload(lambda: ran.append(1)))
        await asyncio.sleep(0)
        disk = disk.kill()
        await disk.offload(lambda: None)
        await asyncio.sleep(0.1)
        waiting.cancel()

    ran = []
    asyncio.run(main())
    assert not ran


def test_a_failed_sync_loses_its_bytes_and_the_next_does_not_tell(disk):
    file = durable_file(disk, "/data/log", b"abc")
    file.write_at(3, b"def")
    disk.fail("sync", times=1)
    with pytest.raises(OSError) as caught:
        file.sync()
    assert caught.value.errno == errno.EIO
    assert file.read_at(0, 6) == b"abcdef"
    file.write_at(6, b"ghi")
    file.sync()
    assert disk.crash(keep=0.0).read_file("/data/log") == b"abc\0\0\0ghi"


def test_a_failure_strikes_where_and_as_often_as_told(disk):
    disk.fail("read_file", errno.EACCES, path="*.log", times=2)
    disk.open("/data/a.log", create=True)
    disk.open("/data/a.index", create=True)
    disk.read_file("/data/a.index")
    for _ in range(2):
        with pytest.raises(PermissionError):
            disk.read_file("/data/a.log")
    disk.read_file("/data/a.log")


def test_a_failure_lasts_until_it_is_cleared(disk):
    fault = disk.fail("list")
    for _ in range(3):
        with pytest.raises(OSError):
            disk.list("/data")
    fault.clear()
    disk.list("/data")


def test_a_full_disk_takes_a_part_and_refuses(disk):
    disk.capacity_bytes = 10
    file = disk.open("/data/log", create=True)
    file.write_at(0, b"01234567")
    with pytest.raises(OSError) as caught:
        file.write_at(8, b"89abc")
    assert caught.value.errno == errno.ENOSPC
    assert b"0123456789".startswith(file.read_at(0, 20))
    file.write_at(0, b"overwritten"[:8])
    disk.remove("/data/log")
    assert disk.free_bytes("/data") == 10


def test_zeros_that_a_truncation_adds_take_no_room(disk):
    disk.capacity_bytes = 10
    file = disk.open("/data/index", create=True)
    mapping = file.map(2 * PAGE_BYTES)
    assert disk.free_bytes("/data") == 10
    mapping[0:8] = b"01234567"
    mapping[8:16] = b"01234567"  # on the same page
    with pytest.raises(AssertionError, match="bus error"):
        mapping[PAGE_BYTES : PAGE_BYTES + 8] = b"01234567"


def test_touching_what_was_cut_under_a_mapping_is_a_bus_error(disk):
    file = disk.open("/data/index", create=True)
    mapping = file.map(8)
    file.truncate(4)
    assert mapping[0:4] == bytes(4)
    with pytest.raises(AssertionError, match="bus error"):
        mapping[4:8]
    with pytest.raises(AssertionError, match="bus error"):
        mapping[4:8] = bytes(4)


def test_cold_bytes_are_not_in_memory(disk):
    file = durable_file(disk, "/data/log", b"abc")
    disk.cold_chance = 1.0
    assert file.read_cached(0, 3) is None
    assert file.read_at(0, 3) == b"abc"
