"""The disk: files that are appended to and read at positions, directories, atomic replacement.

`Disk` and `File` are the protocol, `OsDisk` and `OsFile` the real implementation; simulated ones
are in `tests/support/disk.py`. One contract test covers all (`tests/contract/test_disk.py`).

Failures are OSError; the log turns them into StorageError with the directory's name.

A file's descriptor lives as long as the object: a FileRange in a connection's queue keeps it open
after the segment was deleted, and the last reference closes it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeAlias, TypeVar

from kserver.world import process_resources

T = TypeVar("T")
Buffer: TypeAlias = bytes | bytearray | memoryview


class File(Protocol):
    """One open file.  Positions and sizes are bytes."""

    path: str

    def write_at(self, position: int, data: Buffer) -> None:
        """Write all of `data`, or raise; a part of it may have been written then (a full disk)."""

    def read_at(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes; fewer only at the end of the file. May wait for the disk."""

    def read_cached(self, position: int, size: int) -> bytes | None:
        """Return the bytes if memory holds all of them, else None. Does not wait for the disk where
        the file system supports that (ext4, xfs, btrfs); elsewhere (tmpfs, overlayfs) it just
        reads.
        """

    def read_cached_into(self, position: int, buffer: memoryview) -> bool:
        """Fill `buffer` like `read_cached`; return whether memory, and the file, had enough
        bytes.
        """

    def size(self) -> int: ...

    def truncate(self, size: int) -> None:
        """Truncate, or extend with zeros that take no space on the disk."""

    def sync(self) -> None:
        """Write data and size to disk; the name of a new file needs `sync_directory`. Blocks; call
        it through `offload`. After a failure the bytes may be lost, and a second `sync` would not
        fail.
        """

    def map(self, size: int) -> Mapping:
        """Map the first `size` > 0 bytes as writable memory; the file is extended to it. A file
        that is truncated below `size` must not be accessed through the mapping.
        """

    def fileno(self) -> int:
        """Return the descriptor for sendfile; -1 if there is none (simulation)."""


class Directory(Protocol):
    """An open directory: the same one even if it is renamed or its name is reused."""

    def replace_file(self, name: str, data: bytes) -> None:
        """Replace a file like `Disk.replace_file`."""

    def sync(self) -> None:
        """Write entries to disk like `Disk.sync_directory`."""


class Mapping(Protocol):
    """Writable memory over a file's first bytes (an index); slices have no step."""

    def __len__(self) -> int: ...
    def __getitem__(self, at: slice, /) -> bytes: ...
    def __setitem__(self, at: slice, data: bytes, /) -> None:
        """Fill the slice with `data`. Raises ValueError or IndexError unless the size matches."""

    def flush(self) -> object:
        """Write these bytes to disk like `File.sync`."""

    def close(self) -> None:
        """Close without a flush."""


@dataclass(frozen=True, slots=True)
class FileRange:
    """`size` bytes of `file` from `position`: part of a Fetch response that is sent without
    reading.
    """

    file: File
    position: int
    size: int

    def read(self) -> bytes:
        return self.file.read_at(self.position, self.size)


class Disk(Protocol):
    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing. Raises FileNotFoundError unless `create`."""

    def exists(self, path: str) -> bool:
        """Whether the path exists. Raises OSError if access is denied."""

    def list(self, directory: str) -> list[str]:
        """Return the names in a directory, sorted."""

    def is_directory(self, path: str) -> bool: ...

    def make_directories(self, path: str) -> None: ...

    def read_file(self, path: str) -> bytes: ...

    def replace_file(self, path: str, data: bytes) -> None:
        """Replace atomically and durably: after a crash the file has its old content or the new.
        Uses `<path>.tmp`, so only one call at a time for a path. Blocks.
        """

    def open_directory(self, path: str) -> Directory:
        """Open a directory. Raises FileNotFoundError if it does not exist."""

    def rename(self, old: str, new: str) -> None:
        """Rename, replacing the file `new`; an open file keeps following its bytes."""

    def remove(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None:
        """Remove a directory with all below it, if it exists."""

    def sync_directory(self, path: str) -> None:
        """Write the directory's created, renamed and removed entries to disk."""

    def lock(self, path: str) -> Lock:
        """Lock a file. Raises BlockingIOError while another holder has it, be it in this process or
        Apache's broker.
        """

    def modified_ms(self, path: str) -> int:
        """Return ms since 1970 of the last change of the content."""

    def free_bytes(self, path: str) -> int:
        """Return the bytes that this process may still write on the file system of `path`."""

    def total_bytes(self, path: str) -> int:
        """Return the size of that file system in bytes."""

    def files_left(self) -> int:
        """Return how many more files may be opened by new connections and partitions; existing ones
        have a reserve. Counts the open files: 0.2 us each.
        """

    def require_files(self, files: int) -> None:
        """Raises OSError (EMFILE) unless `files` more may be opened. Tries it: 0.7 us each."""

    async def offload(self, work: Callable[[], T]) -> T:
        """Run blocking work off the loop: the only use of threads. Cancelling the wait does not
        stop the work.
        """

    async def compute(self, work: Callable[..., T], *arguments: object) -> T:
        """Run long CPU-bound work in a process of its own: a module's function, with arguments that
        can be pickled. Cancelling the wait ends it.
        """


class Lock(Protocol):
    def release(self) -> None:
        """Release the lock; a second call does nothing."""


class OsFile:
    __slots__ = ("_fd", "_supports_nowait", "path")

    def __init__(self, path: str, *, create: bool = False) -> None:
        self.path = path
        self._fd = -1
        self._supports_nowait = True
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        self._fd = os.open(path, flags, 0o644)

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def write_at(self, position: int, data: Buffer) -> None:
        done = os.pwrite(self._fd, data, position)
        if done == len(data):
            return
        rest = memoryview(data)
        while done < len(data):
            step = os.pwrite(self._fd, rest[done:], position + done)
            if step == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
            done += step

    def read_at(self, position: int, size: int) -> bytes:
        data = os.pread(self._fd, size, position)
        if len(data) == size or not data:
            return data
        parts = [data]
        got = len(data)
        while got < size and (data := os.pread(self._fd, size - got, position + got)):
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def read_cached(self, position: int, size: int) -> bytes | None:
        if not self._supports_nowait:
            return self.read_at(position, size)
        buffer = bytearray(size)
        try:
            got = os.preadv(self._fd, [buffer], position, os.RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            self._supports_nowait = False
            return self.read_at(position, size)
        if got == size:
            return bytes(buffer)
        return bytes(buffer[:got]) if position + got >= self.size() else None

    def read_cached_into(self, position: int, buffer: memoryview) -> bool:
        flags = os.RWF_NOWAIT if self._supports_nowait else 0
        try:
            return os.preadv(self._fd, [buffer], position, flags) == len(buffer)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            self._supports_nowait = False
            return self.read_cached_into(position, buffer)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def sync(self) -> None:
        # Unlike fsync it does not write the times, but does write a size that reading needs.
        os.fdatasync(self._fd)

    def map(self, size: int) -> Mapping:
        if self.size() < size:
            os.ftruncate(self._fd, size)
        return mmap.mmap(self._fd, size)

    def fileno(self) -> int:
        return self._fd


class OsDirectory:
    __slots__ = ("_fd", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = -1
        self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def replace_file(self, name: str, data: bytes) -> None:
        temporary, here = name + ".tmp", self._fd
        try:
            with open(temporary, "wb", opener=partial(os.open, mode=0o644, dir_fd=here)) as file:
                file.write(data)
                file.flush()
                os.fdatasync(file.fileno())
            os.replace(temporary, name, src_dir_fd=here, dst_dir_fd=here)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.remove(temporary, dir_fd=here)
            error.filename = f"{self.path}/{name}"
            raise
        self.sync()

    def sync(self) -> None:
        os.fsync(self._fd)


class OsLock:
    """A lock of the open file description: unlike POSIX's it also excludes two openers in one
    process, and unlike flock's it is seen by Java's FileLock.
    """

    def __init__(self, path: str) -> None:
        whole_file = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, whole_file)
        except OSError:
            self.release()
            raise

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class OsDisk:
    def open(self, path: str, *, create: bool = False) -> OsFile:
        return OsFile(path, create=create)

    def exists(self, path: str) -> bool:
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def list(self, directory: str) -> list[str]:
        return sorted(os.listdir(directory))

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    def make_directories(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def read_file(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def replace_file(self, path: str, data: bytes) -> None:
        directory, name = os.path.split(path)
        OsDirectory(directory or ".").replace_file(name, data)

    def open_directory(self, path: str) -> OsDirectory:
        return OsDirectory(path)

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def remove(self, path: str) -> None:
        os.remove(path)

    def remove_tree(self, path: str) -> None:
        import shutil

        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path)

    def sync_directory(self, path: str) -> None:
        OsDirectory(path).sync()

    def lock(self, path: str) -> OsLock:
        return OsLock(path)

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def free_bytes(self, path: str) -> int:
        room = os.statvfs(path)
        return room.f_bavail * room.f_frsize

    def total_bytes(self, path: str) -> int:
        room = os.statvfs(path)
        return room.f_blocks * room.f_frsize

    def files_left(self) -> int:
        return process_resources.files_left()

    def require_files(self, files: int) -> None:
        if not process_resources.can_open(files):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    async def offload(self, work: Callable[[], T]) -> T:
        # Tools that read logs offline need no loop, and importing asyncio takes 50 ms.
        import asyncio

        return await asyncio.get_running_loop().run_in_executor(None, work)

    async def compute(self, work: Callable[..., T], *arguments: object) -> T:
        from kserver.world import worker_process

        return await worker_process.run(work, arguments)
