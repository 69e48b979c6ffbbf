"""A disk in memory that loses unsynced writes, and fails on demand.

    disk = SimDisk(loop.random, clock)
    ...
    disk = disk.crash()          a power cut: each unsynced write is lost, torn or kept
    disk = disk.kill()           the process died: all its writes stay
    disk.fail("sync", errno.EIO, path="*.log", times=1)
    disk.capacity_bytes = 1 << 20
    disk.operations_left = 17    all later ones fail, as if the machine had stopped there

It is as strict as POSIX lets a disk be:

- A sync makes a file's bytes and size durable, never its name.  Entries that were created, renamed
  or removed are durable once their directory was synced, and those of a new directory once its
  parent was as well.  Of the unsynced entries, a power cut keeps the first few, each rename whole.
- A sync that fails loses the bytes, as Linux does: they can be read until the power cut, and the
  next sync succeeds without them.
- A write that fails may have written a part.
- The disk of a dead process refuses everything, and its offloaded work never runs, or never ends.
- Offloaded work acts as a thread: at some of its disk operations the loop runs meanwhile.
"""

from __future__ import annotations

import asyncio
import collections
import errno
import fnmatch
import os
import posixpath
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TypeVar

from greenlet import getcurrent, greenlet

from kserver.world.clock import Clock
from kserver.world.disk import Buffer
from tests.support.inodes import Change, Directory, Inode

T = TypeVar("T")

MEAN_OFFLOAD_S = 0.002
PAUSE_CHANCE = 0.1
"""Probability that offloaded work lets the loop run before an operation."""
MUCH_ROOM_BYTES = 1 << 40
PAGE_BYTES = 4096


class SimDisk:
    def __init__(self, random: Random, clock: Clock) -> None:
        self.capacity_bytes = MUCH_ROOM_BYTES
        self.cold_chance = 0.0
        """Probability that `read_cached` finds that the bytes are not in memory."""
        self.counts: collections.Counter[str] = collections.Counter()
        """Calls of each operation."""
        self.operations_left: int | None = None
        self.most_files_left = 1 << 20
        self.mean_offload_s = MEAN_OFFLOAD_S
        """Mean duration of offloaded work in seconds, and of each of its pauses."""
        self.random = random
        self.clock = clock
        self._root = Directory()
        self._locks: set[str] = set()
        self._faults: list[Fault] = []
        self.on_truncate: Callable[[str], None] = lambda path: None
        """Called with the path of each file that is truncated."""
        self._is_dead = False
        self._killed: list[greenlet] = []
        """Killed greenlets. A greenlet without a reference would be ended by an exception. Nothing
        else may hold the tasks that wait for them: asyncio reports tasks that vanish.
        """

    def kill(self) -> SimDisk:
        """Return the disk as the next process finds it."""
        return self._next(self._root)

    def crash(self, keep: float | None = None) -> SimDisk:
        """Return the disk as it is after a power cut. `keep` 1.0 keeps all unsynced writes, 0.0
        none; with None, chance decides for each write and directory.
        """
        return self._next(self._root.after_crash(self.random, keep))

    def fail(
        self, operation: str, error: int = errno.EIO, *, path: str = "*", times: int | None = None
    ) -> Fault:
        """Make `operation` (a method's name, of the disk or a file; * for any) fail on matching
        paths.
        """
        fault = Fault(operation, error, path, times)
        self._faults.append(fault)
        return fault

    def open(self, path: str, *, create: bool = False) -> SimFile:
        self.touch("open", path)
        directory, name = self._parent(path)
        node = directory.entries.get(name)
        if node is None:
            if not create:
                raise _error(errno.ENOENT, path)
            node = Inode(self.clock.now_ms())
            directory.change({name: node})
        if isinstance(node, Directory):
            raise _error(errno.EISDIR, path)
        return SimFile(self, path, node)

    def exists(self, path: str) -> bool:
        self.touch("exists", path)
        return self._find(path) is not None

    def list(self, directory: str) -> list[str]:
        self.touch("list", directory)
        return sorted(self._directory(directory).entries)

    def is_directory(self, path: str) -> bool:
        self.touch("is_directory", path)
        return isinstance(self._find(path), Directory)

    def make_directories(self, path: str) -> None:
        self.touch("make_directories", path)
        directory = self._root
        for name in _names(path):
            node = directory.entries.get(name)
            if node is None:
                node = Directory()
                directory.change({name: node})
            if isinstance(node, Inode):
                raise _error(errno.EEXIST, path)
            directory = node

    def read_file(self, path: str) -> bytes:
        self.touch("read_file", path)
        data = self._file(path).data
        return data.read(0, len(data))

    def replace_file(self, path: str, data: bytes) -> None:
        directory, name = posixpath.split(path)
        self.open_directory(directory).replace_file(name, data)

    def open_directory(self, path: str) -> SimDirectory:
        self.touch("open_directory", path)
        return SimDirectory(self, path, self._directory(path))

    def rename(self, old: str, new: str) -> None:
        self.touch("rename", old)
        (source, old_name), (target, new_name) = self._parent(old), self._parent(new)
        moved, replaced = source.entries.get(old_name), target.entries.get(new_name)
        if moved is None:
            raise _error(errno.ENOENT, old)
        if isinstance(replaced, Directory):
            if isinstance(moved, Inode):
                raise _error(errno.EISDIR, new)
            if replaced.entries:
                raise _error(errno.ENOTEMPTY, new)
        elif replaced is not None and isinstance(moved, Directory):
            raise _error(errno.ENOTDIR, new)
        if source is target:
            source.change({old_name: None, new_name: moved})
        else:
            target.change({new_name: moved})
            source.change({old_name: None})

    def remove(self, path: str) -> None:
        self.touch("remove", path)
        self._file(path)
        directory, name = self._parent(path)
        directory.change({name: None})

    def remove_tree(self, path: str) -> None:
        self.touch("remove_tree", path)
        if self._find(path) is not None:
            self._directory(path)
            directory, name = self._parent(path)
            directory.change({name: None})

    def sync_directory(self, path: str) -> None:
        self.touch("sync_directory", path)
        self._directory(path).sync()

    def lock(self, path: str) -> SimLock:
        if path in self._locks:
            raise _error(errno.EAGAIN, path)
        self.open(path, create=True)
        return SimLock(self._locks, path)

    def modified_ms(self, path: str) -> int:
        self.touch("modified_ms", path)
        return self._file(path).modified_ms

    def free_bytes(self, path: str) -> int:
        self.touch("free_bytes", path)
        return self.room_bytes()

    def total_bytes(self, path: str) -> int:
        self.touch("total_bytes", path)
        return self.capacity_bytes

    def files_left(self) -> int:
        return self.most_files_left

    def require_files(self, files: int) -> None:
        if files > self.most_files_left:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    async def offload(self, work: Callable[[], T]) -> T:
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._go_on_later(greenlet(partial(self._run, work, done)))
        return await done

    async def compute(self, work: Callable[..., T], *arguments: object) -> T:
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        process = greenlet(partial(self._run, partial(work, *arguments), done))
        self._go_on_later(process)
        try:
            return await done
        except asyncio.CancelledError:
            self._killed.append(process)
            raise

    def room_bytes(self) -> int:
        return max(0, self.capacity_bytes - self.used_bytes())

    def used_bytes(self) -> int:
        return sum(inode.used_bytes for inode in self._root.inodes())

    def touch(self, operation: str, path: str) -> None:
        """Raise the error with which this operation on this path has to fail."""
        if getcurrent().parent is not None and self.random.random() < PAUSE_CHANCE:
            self._pause()
        self.counts[operation] += 1
        if self._is_dead or self.operations_left == 0:
            raise _error(errno.EIO, path)
        if self.operations_left is not None:
            self.operations_left -= 1
        for fault in self._faults:
            if fault.strikes(operation, path):
                raise _error(fault.error, path)

    def _go_on_later(self, thread: greenlet) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(self.random.expovariate(1 / self.mean_offload_s), self._go_on, thread)

    def _go_on(self, thread: greenlet) -> None:
        """Run the work until it ends, or pauses."""
        if self._is_dead:
            self._killed.append(thread)
        elif thread not in self._killed:
            thread.switch()

    def _pause(self) -> None:
        """Let the loop run, and continue the work on this greenlet a little later."""
        thread = getcurrent()
        self._go_on_later(thread)
        assert thread.parent is not None
        thread.parent.switch()

    def _run(self, work: Callable[[], T], done: asyncio.Future[T]) -> None:
        try:
            result = work()
        except Exception as error:
            if not done.done():
                done.set_exception(error)
        else:
            if not done.done():
                done.set_result(result)

    def _next(self, root: Directory) -> SimDisk:
        self._is_dead = True
        disk = SimDisk(self.random, self.clock)
        disk._root = root
        disk.capacity_bytes, disk.cold_chance = self.capacity_bytes, self.cold_chance
        disk.on_truncate = self.on_truncate
        return disk

    def _find(self, path: str) -> Inode | Directory | None:
        node: Inode | Directory | None = self._root
        for name in _names(path):
            if not isinstance(node, Directory):
                return None
            node = node.entries.get(name)
        return node

    def _directory(self, path: str) -> Directory:
        node = self._find(path)
        if node is None:
            raise _error(errno.ENOENT, path)
        if isinstance(node, Inode):
            raise _error(errno.ENOTDIR, path)
        return node

    def _file(self, path: str) -> Inode:
        node = self._find(path)
        if node is None:
            raise _error(errno.ENOENT, path)
        if isinstance(node, Directory):
            raise _error(errno.EISDIR, path)
        return node

    def _parent(self, path: str) -> tuple[Directory, str]:
        *_, name = _names(path)
        return self._directory(posixpath.dirname(path)), name


class SimFile:
    def __init__(self, disk: SimDisk, path: str, inode: Inode) -> None:
        self.path = path
        self._disk = disk
        self._inode = inode

    def write_at(self, position: int, data: Buffer) -> None:
        written = bytes(data)
        try:
            self._disk.touch("write_at", self.path)
            room = self._room(position, len(written))
            if room < len(written):
                raise _error(errno.ENOSPC, self.path)
        except OSError as error:
            if error.errno == errno.ENOSPC:
                part = self._room(position, self._disk.random.randrange(len(written) + 1))
                self._change(("write", position, written[:part]))
            raise
        self._change(("write", position, written))

    def read_at(self, position: int, size: int) -> bytes:
        self._disk.touch("read_at", self.path)
        return self._inode.data.read(position, size)

    def read_cached(self, position: int, size: int) -> bytes | None:
        if self._disk.cold_chance and self._disk.random.random() < self._disk.cold_chance:
            return None
        return self.read_at(position, size)

    def read_cached_into(self, position: int, buffer: memoryview) -> bool:
        data = self.read_cached(position, len(buffer))
        if data is None or len(data) < len(buffer):
            return False
        buffer[:] = data
        return True

    def size(self) -> int:
        self._disk.touch("size", self.path)
        return len(self._inode.data)

    def truncate(self, size: int) -> None:
        self._disk.touch("truncate", self.path)
        self._disk.on_truncate(self.path)
        self._change(("truncate", size, b""))

    def sync(self) -> None:
        try:
            self._disk.touch("sync", self.path)
        except OSError:
            self._inode.pending.clear()
            raise
        self._inode.sync()

    def map(self, size: int) -> SimMapping:
        self._disk.touch("map", self.path)
        if size <= 0:
            raise ValueError("cannot map nothing")
        if len(self._inode.data) < size:
            self.truncate(size)
        return SimMapping(self, size)

    def fileno(self) -> int:
        return -1

    def store(self, position: int, data: bytes) -> None:
        """Write through a mapping, which cannot return an error."""
        end = position + len(data)
        assert end <= len(self._inode.data), "bus error: the file was cut under its mapping"
        page_end = -(-self._inode.used_bytes // PAGE_BYTES) * PAGE_BYTES
        has_room = end <= page_end or self._room(position, len(data)) == len(data)
        assert has_room, "bus error: no room under a mapping"
        self._change(("write", position, data))

    def _room(self, position: int, size: int) -> int:
        """Return how many of these bytes the disk still has space for."""
        if self._disk.capacity_bytes == MUCH_ROOM_BYTES:
            return size  # fast path: does not add up all files
        growth = position + size - self._inode.used_bytes
        return size - max(0, min(size, growth - self._disk.room_bytes()))

    def _change(self, change: Change) -> None:
        self._inode.modified_ms = self._disk.clock.now_ms()
        self._inode.change(change)


class SimDirectory:
    def __init__(self, disk: SimDisk, path: str, directory: Directory) -> None:
        self._disk = disk
        self._path = path
        self._directory = directory

    def replace_file(self, name: str, data: bytes) -> None:
        path, temporary = f"{self._path}/{name}", f"{name}.tmp"
        self._disk.touch("replace_file", path)
        inode = Inode(self._disk.clock.now_ms())
        file = SimFile(self._disk, path + ".tmp", inode)
        try:
            self._disk.touch("open", file.path)
            self._directory.change({temporary: inode})
            file.write_at(0, data)
            file.sync()
            self._disk.touch("rename", file.path)
            self._directory.change({temporary: None, name: inode})
        except OSError:
            if temporary in self._directory.entries:
                self._directory.change({temporary: None})
            raise
        self.sync()

    def sync(self) -> None:
        self._disk.touch("sync_directory", self._path)
        self._directory.sync()


class SimMapping:
    def __init__(self, file: SimFile, size: int) -> None:
        self._file: SimFile | None = file
        self._size = size

    def __len__(self) -> int:
        self._mapped()
        return self._size

    def __getitem__(self, at: slice) -> bytes:
        start, stop, _ = at.indices(self._size)
        data = self._mapped().read_at(start, max(0, stop - start))
        assert len(data) == max(0, stop - start), "bus error: the file was cut under its mapping"
        return data

    def __setitem__(self, at: slice, data: bytes) -> None:
        start, stop, _ = at.indices(self._size)
        file = self._mapped()
        if len(data) != max(0, stop - start):
            raise IndexError("slice assignment is wrong size")
        file.store(start, bytes(data))

    def flush(self) -> None:
        self._mapped().sync()

    def close(self) -> None:
        self._file = None

    def _mapped(self) -> SimFile:
        if self._file is None:
            raise ValueError("closed")
        return self._file


class SimLock:
    def __init__(self, locks: set[str], path: str) -> None:
        self._locks = locks
        self._path = path
        locks.add(path)

    def release(self) -> None:
        self._locks.discard(self._path)


@dataclass(slots=True)
class Fault:
    operation: str
    error: int
    path: str
    times: int | None
    """Number of failures left; None: until cleared."""

    def strikes(self, operation: str, path: str) -> bool:
        if self.operation not in (operation, "*") or not fnmatch.fnmatchcase(path, self.path):
            return False
        if self.times is not None:
            if self.times == 0:
                return False
            self.times -= 1
        return True

    def clear(self) -> None:
        self.times = 0


def _names(path: str) -> list[str]:
    assert path.startswith("/"), "paths in a simulation are absolute"
    return [name for name in path.split("/") if name]


def _error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)
