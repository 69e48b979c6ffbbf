"""Test the contract of every disk: `OsDisk` in a temporary directory and in memory, and the
simulated disk."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import shutil
import tempfile

import pytest

from kserver.world.clock import WallClock
from kserver.world.disk import FileRange, OsDisk
from tests.support.clock import StillClock
from tests.support.disk import SimDisk

MEMORY = "/dev/shm"
KINDS = ["os", "os-in-memory", "simulated"] if os.path.isdir(MEMORY) else ["os", "simulated"]


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def root(kind, tmp_path):
    if kind == "os-in-memory":  # a file system that does not report which pages are cached
        directory = tempfile.mkdtemp(dir=MEMORY)
        yield directory
        shutil.rmtree(directory)
    else:
        yield str(tmp_path) if kind == "os" else "/data"


@pytest.fixture
def disk(kind, root):
    disk = SimDisk(random.Random(0), StillClock()) if kind == "simulated" else OsDisk()
    disk.make_directories(root)
    return disk


@pytest.fixture
def file(disk, root):
    return disk.open(f"{root}/file", create=True)


def test_a_new_file_is_empty(disk, root, file):
    assert file.path == f"{root}/file"
    assert file.size() == 0
    assert file.read_at(0, 10) == b""
    assert disk.read_file(file.path) == b""


@pytest.mark.parametrize("kind_of_buffer", [bytes, bytearray, memoryview])
def test_what_is_written_is_read_back(file, kind_of_buffer):
    file.write_at(0, kind_of_buffer(b"hello world"))
    file.write_at(6, kind_of_buffer(b"there"))
    assert file.read_at(0, 11) == b"hello there"
    assert type(file.read_at(0, 11)) is bytes


def test_an_empty_write_changes_nothing(file):
    file.write_at(5, b"")
    assert file.size() == 0


def test_a_read_is_short_only_at_the_end(file):
    file.write_at(0, b"0123456789")
    assert file.read_at(8, 5) == b"89"
    assert file.read_at(10, 5) == b""
    assert file.read_at(20, 5) == b""
    assert file.read_at(3, 0) == b""


def test_a_write_beyond_the_end_leaves_zeros(file):
    file.write_at(4, b"x")
    assert file.read_at(0, 9) == b"\0\0\0\0x"


def test_what_was_just_written_is_in_memory(file):
    file.write_at(0, b"0123456789")
    assert file.read_cached(2, 3) == b"234"
    assert file.read_cached(8, 5) == b"89"
    assert file.read_cached(10, 5) == b""
    assert type(file.read_cached(2, 3)) is bytes


def test_truncate_cuts_and_extends(file):
    file.write_at(0, b"0123456789")
    file.truncate(4)
    assert file.size() == 4
    file.truncate(6)
    assert file.read_at(0, 10) == b"0123\0\0"


def test_sync_keeps_what_is_there(file):
    file.write_at(0, b"abc")
    file.sync()
    assert file.read_at(0, 3) == b"abc"


def test_opening_twice_shows_one_file(disk, file):
    again = disk.open(file.path)
    file.write_at(0, b"abc")
    assert again.read_at(0, 3) == b"abc"


def test_opening_to_create_keeps_what_is_there(disk, file):
    file.write_at(0, b"abc")
    assert disk.open(file.path, create=True).size() == 3


def test_a_missing_file_is_not_opened(disk, root):
    with pytest.raises(FileNotFoundError):
        disk.open(f"{root}/none")
    with pytest.raises(FileNotFoundError):
        disk.open(f"{root}/none/file", create=True)
    assert not disk.exists(f"{root}/none")


def test_a_directory_is_not_opened(disk, root):
    with pytest.raises(IsADirectoryError):
        disk.open(root)
    with pytest.raises(IsADirectoryError):
        disk.read_file(root)


def test_an_open_file_outlives_its_removal(disk, file):
    file.write_at(0, b"abc")
    disk.remove(file.path)
    assert not disk.exists(file.path)
    file.write_at(3, b"def")
    assert FileRange(file, 1, 4).read() == b"bcde"


def test_a_mapping_and_its_file_are_the_same_bytes(file):
    file.write_at(0, b"0123")
    mapping = file.map(8)
    assert len(mapping) == 8
    assert file.size() == 8
    assert mapping[0:6] == b"0123\0\0"
    mapping[4:6] = b"45"
    assert file.read_at(0, 8) == b"012345\0\0"
    file.write_at(6, b"67")
    assert mapping[5:100] == b"567"
    mapping.flush()
    mapping.close()
    assert file.read_at(0, 8) == b"01234567"


def test_a_mapping_takes_what_fits_only(file):
    mapping = file.map(8)
    with pytest.raises((ValueError, IndexError)):
        mapping[0:4] = b"abc"
    with pytest.raises((ValueError, IndexError)):
        mapping[6:10] = b"abcd"
    assert mapping[0:8] == bytes(8)


def test_a_closed_mapping_is_of_no_use(file):
    mapping = file.map(8)
    mapping.close()
    with pytest.raises(ValueError):
        mapping[0:1]


def test_nothing_is_not_mapped(file):
    with pytest.raises(ValueError):
        file.map(0)


def test_a_mapping_outlives_its_file_object(disk, root):
    mapping = disk.open(f"{root}/index", create=True).map(4)
    mapping[0:4] = b"abcd"
    assert mapping[0:4] == b"abcd"
    assert disk.read_file(f"{root}/index") == b"abcd"


def test_a_smaller_mapping_leaves_the_file_its_size(file):
    file.write_at(0, b"01234567")
    assert len(file.map(4)) == 4
    assert file.size() == 8


def test_replaced_content_is_whole(disk, root):
    path = f"{root}/state"
    disk.replace_file(path, b"a longer one")
    old = disk.open(path)
    disk.replace_file(path, b"new")
    assert disk.read_file(path) == b"new"
    assert old.read_at(0, 20) == b"a longer one"
    assert disk.list(root) == ["state"]


def test_an_open_directory_is_the_same_under_another_name(disk, root):
    disk.make_directories(f"{root}/old")
    directory = disk.open_directory(f"{root}/old")
    disk.rename(f"{root}/old", f"{root}/gone")
    disk.make_directories(f"{root}/old")
    directory.replace_file("state", b"its own")
    directory.sync()
    assert disk.read_file(f"{root}/gone/state") == b"its own"
    assert disk.list(f"{root}/gone") == ["state"]
    assert disk.list(f"{root}/old") == []
    with pytest.raises(FileNotFoundError):
        disk.open_directory(f"{root}/none")


def test_a_file_in_a_missing_directory_is_not_replaced(disk, root):
    with pytest.raises(FileNotFoundError):
        disk.replace_file(f"{root}/none/state", b"x")


def test_directories_are_listed_sorted(disk, root):
    disk.make_directories(f"{root}/b/c")
    disk.make_directories(f"{root}/b/c")
    disk.open(f"{root}/a", create=True)
    disk.open(f"{root}/b/d", create=True)
    assert disk.list(root) == ["a", "b"]
    assert disk.list(f"{root}/b") == ["c", "d"]
    assert disk.is_directory(f"{root}/b")
    assert not disk.is_directory(f"{root}/a")
    assert not disk.is_directory(f"{root}/none")


def test_what_is_no_directory_is_not_listed(disk, root, file):
    with pytest.raises(NotADirectoryError):
        disk.list(file.path)
    with pytest.raises(FileNotFoundError):
        disk.list(f"{root}/none")
    with pytest.raises(FileExistsError):
        disk.make_directories(file.path)


def test_a_rename_replaces_a_file(disk, root, file):
    file.write_at(0, b"abc")
    disk.open(f"{root}/other", create=True).write_at(0, b"x")
    disk.rename(file.path, f"{root}/other")
    assert disk.list(root) == ["other"]
    assert disk.read_file(f"{root}/other") == b"abc"
    file.write_at(3, b"d")
    assert disk.read_file(f"{root}/other") == b"abcd"


def test_a_rename_moves_a_directory_with_its_files(disk, root):
    disk.make_directories(f"{root}/t-0")
    disk.open(f"{root}/t-0/log", create=True).write_at(0, b"abc")
    disk.rename(f"{root}/t-0", f"{root}/t-0.x-delete")
    assert disk.list(root) == ["t-0.x-delete"]
    assert disk.read_file(f"{root}/t-0.x-delete/log") == b"abc"


def test_a_rename_does_not_replace_a_full_directory(disk, root):
    disk.make_directories(f"{root}/a/x")
    disk.make_directories(f"{root}/b/y")
    with pytest.raises(OSError):
        disk.rename(f"{root}/a", f"{root}/b")
    with pytest.raises(FileNotFoundError):
        disk.rename(f"{root}/none", f"{root}/c")


def test_files_are_removed_one_by_one(disk, root, file):
    disk.remove(file.path)
    assert disk.list(root) == []
    with pytest.raises(FileNotFoundError):
        disk.remove(file.path)
    with pytest.raises(IsADirectoryError):
        disk.remove(root)


def test_a_tree_is_removed_whole(disk, root):
    disk.make_directories(f"{root}/a/b")
    disk.open(f"{root}/a/b/file", create=True)
    disk.remove_tree(f"{root}/a")
    disk.remove_tree(f"{root}/a")
    assert disk.list(root) == []


def test_a_file_is_no_tree(disk, file):
    with pytest.raises(NotADirectoryError):
        disk.remove_tree(file.path)


def test_a_directory_is_synced(disk, root):
    disk.sync_directory(root)
    with pytest.raises(FileNotFoundError):
        disk.sync_directory(f"{root}/none")


def test_a_lock_is_held_once(disk, root):
    lock = disk.lock(f"{root}/.lock")
    with pytest.raises(BlockingIOError):
        disk.lock(f"{root}/.lock")
    lock.release()
    lock.release()
    disk.lock(f"{root}/.lock").release()
    assert disk.exists(f"{root}/.lock")


def test_a_written_file_was_modified_now(kind, disk, file):
    clock = disk.clock if kind == "simulated" else WallClock()
    file.write_at(0, b"abc")
    assert abs(disk.modified_ms(file.path) - clock.now_ms()) < 10_000


def test_few_files_may_be_opened_and_not_any_number(disk):
    disk.require_files(10)
    assert disk.files_left() > 10
    with pytest.raises(OSError, match="Too many open files") as refused:
        disk.require_files(disk.files_left() + 1000)
    assert refused.value.errno == errno.EMFILE


def test_there_is_room(disk, root):
    assert 0 < disk.free_bytes(root) <= disk.total_bytes(root)


def test_work_is_offloaded_and_answers(disk):
    async def main():
        assert await disk.offload(lambda: 6 * 7) == 42
        with pytest.raises(ZeroDivisionError):
            await disk.offload(lambda: 1 // 0)

    asyncio.run(main())


def test_cancelling_the_wait_does_not_stop_the_work(disk, file):
    async def main():
        started = asyncio.create_task(disk.offload(lambda: file.write_at(0, b"done")))
        await asyncio.sleep(0)
        started.cancel()
        while file.size() == 0:
            await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(main(), 10))
    assert file.read_at(0, 4) == b"done"
