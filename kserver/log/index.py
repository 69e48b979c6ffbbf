"""The sparse indexes of one segment: offset to position, and timestamp to offset.

    .index       relative offset i32 | position i32       8 bytes per entry
    .timeindex   timestamp i64 | relative offset i32      12 bytes per entry

An offset entry holds the last offset of a batch and the position where that batch begins.  A time
entry holds the largest timestamp so far and the last offset of the batch that has it.  There is one
of each per `index.interval.bytes` of log, and one more time entry when the segment is sealed.
Kafka: AbstractIndex, OffsetIndex, TimeIndex.

    state     file                                mapping
    growing   `segment.index.bytes`, zeros last   all of it
    sealed    just the entries                    created at the first look-up

Entries are big-endian and never negative, so they sort as bytes do, and a search compares slices of
the mapping without decoding them.

A mapping is dropped, never closed: a thread may be searching in it.
"""

from __future__ import annotations

import contextlib
import struct
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from kserver.errors import StorageError
from kserver.model import NO_TIMESTAMP, Offset

if TYPE_CHECKING:
    from kserver.world.disk import Disk, File, Mapping

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_PAGE_BYTES = 4096
_NO_BYTES = bytes(_PAGE_BYTES)
_WARM_BYTES = 8192
"""Bytes at the end that searches try first: those pages are in memory, the middle may not be."""


class OffsetPosition(NamedTuple):
    offset: Offset
    position: int


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: Offset


class EntryFile:
    """Sorted entries of one size in a mapped file, with a key of `key_size` bytes first in each."""

    __slots__ = (
        "_disk",
        "_mapping",
        "capacity",
        "count",
        "entry_size",
        "is_growing",
        "key_size",
        "last",
        "path",
    )

    def __init__(self, disk: Disk, path: str, entry_size: int, key_size: int) -> None:
        self.path = path
        self.entry_size = entry_size
        self.key_size = key_size
        self.count = 0
        self.capacity = 0
        """Number of entries that fit; 0 while the file is sealed."""
        self.is_growing = False
        self.last = b""
        """The last entry, available without the mapping."""
        self._disk = disk
        self._mapping: Mapping | None = None

    def load(self) -> None:
        """Load the file as sealed.  Raises FileNotFoundError, or StorageError if its size is
        invalid."""
        file = self.open()
        size = file.size()
        self.count, rest = divmod(size, self.entry_size)
        if rest:
            raise StorageError(f"{self.path}: size {size} is not a multiple of {self.entry_size}")
        self.last = file.read_at(size - self.entry_size, self.entry_size) if size else b""
        if size and not any(self.last):
            raise StorageError(f"{self.path}: incomplete, its last entry is empty")

    def ends(self, layout: struct.Struct) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the first and the last entry of a file that was just loaded."""
        return layout.unpack(self.open().read_at(0, self.entry_size)), layout.unpack(self.last)

    def give_up(self) -> None:
        """Drop all entries, which are corrupt.  A sealed file is removed, so that the next start
        rebuilds it."""
        if self.is_growing:
            self.truncate(0)
            return
        self.count, self.last, self._mapping = 0, b"", None
        with contextlib.suppress(FileNotFoundError):
            self._disk.remove(self.path)

    def grow(self, capacity_bytes: int) -> None:
        """Make room for appends, keeping the entries."""
        self.is_growing = True
        self.capacity = max(capacity_bytes // self.entry_size, self.count)
        size = self.capacity * self.entry_size
        file = self._disk.open(self.path, create=True)
        self._mapping = file.map(size) if size else None

    def seal(self) -> None:
        """Trim the file to the entries; it takes no more appends."""
        self.open().truncate(self.count * self.entry_size)
        self._mapping = None
        self.is_growing = False
        self.capacity = 0

    def append(self, entry: bytes) -> None:
        assert self.count < self.capacity
        assert self._mapping is not None
        at = self.count * self.entry_size
        end = at + self.entry_size
        page = (end - 1) // _PAGE_BYTES * _PAGE_BYTES
        if page >= at:
            # Storing into a page that the disk has no room for kills the process (SIGBUS); writing
            # it first raises ENOSPC instead.
            room = self.capacity * self.entry_size - page
            self.open().write_at(page, _NO_BYTES[:room])
        self._mapping[at:end] = entry
        self.count += 1
        self.last = entry

    def entry(self, number: int) -> bytes:
        at = number * self.entry_size
        return self.mapping()[at : at + self.entry_size]

    def floor(self, key: bytes) -> int:
        """Return the number of the last entry whose key is at most `key`, or -1 without one."""
        low, high = -1, self.count
        if high == 0:
            return -1
        mapping, entry_size, key_size = self.mapping(), self.entry_size, self.key_size
        warm = high - _WARM_BYTES // entry_size
        if warm > 0:
            at = warm * entry_size
            if mapping[at : at + key_size] <= key:
                low = warm
            else:
                high = warm
        while high - low > 1:
            middle = (low + high) >> 1
            at = middle * entry_size
            if mapping[at : at + key_size] <= key:
                low = middle
            else:
                high = middle
        return low

    def truncate(self, count: int) -> None:
        """Keep the first `count` entries, and fill the rest with zeros."""
        if count < self.count:
            assert self._mapping is not None
            at, end = count * self.entry_size, self.count * self.entry_size
            self._mapping[at:end] = bytes(end - at)
            self.count = count
            self.last = self.entry(count - 1) if count else b""

    def keep(self) -> None:
        """Map the file, so that the entries stay readable after it is renamed or removed."""
        if self.count:
            self.mapping()

    def mapping(self) -> Mapping:
        mapping = self._mapping
        if mapping is None:
            try:
                mapping = self.open().map(self.count * self.entry_size)
            except FileNotFoundError:
                # This runs in a thread; the loop has called `keep` and renamed the file meanwhile.
                mapping = self._mapping
                if mapping is None:
                    raise
            self._mapping = mapping
        return mapping

    def open(self) -> File:
        """Open the file for one operation: keeping every index open would take many descriptors."""
        return self._disk.open(self.path)

    def check(self) -> None:
        entries = [self.entry(number) for number in range(self.count)]
        keys = [entry[: self.key_size] for entry in entries]
        assert all(a < b for a, b in pairwise(keys)), self.path
        assert self.last == (entries[-1] if entries else b""), self.path
        assert self.capacity == 0 or self.count <= self.capacity, self.path


class OffsetIndex:
    """Maps an offset to a position in the segment at which to start reading."""

    __slots__ = ("base_offset", "file")

    def __init__(self, disk: Disk, path: str, base_offset: Offset) -> None:
        self.base_offset = base_offset
        self.file = EntryFile(disk, path, _OFFSET_ENTRY.size, 4)

    def is_full(self) -> bool:
        return self.file.count >= self.file.capacity

    def append(self, offset: Offset, position: int) -> None:
        self.file.append(_OFFSET_ENTRY.pack(offset - self.base_offset, position))

    def entry(self, number: int) -> OffsetPosition:
        relative, position = _OFFSET_ENTRY.unpack(self.file.entry(number))
        return OffsetPosition(self.base_offset + relative, position)

    def last(self) -> OffsetPosition:
        """Return the last entry, or (base offset, 0) if there is none."""
        if not self.file.count:
            return OffsetPosition(self.base_offset, 0)
        relative, position = _OFFSET_ENTRY.unpack(self.file.last)
        return OffsetPosition(self.base_offset + relative, position)

    def position_before(self, offset: Offset) -> int:
        """Return the position of a batch at or before the one that holds `offset`."""
        relative = offset - self.base_offset
        if relative < 0:
            return 0
        number = self.file.floor(min(relative, 0x7FFFFFFF).to_bytes(4))
        return int.from_bytes(self.file.entry(number)[4:]) if number >= 0 else 0

    def check_ends(self, size: int) -> None:
        """Raise StorageError if the first or the last entry is impossible in a segment of `size`
        bytes.

        The entries between are checked when they are used.  Kafka: OffsetIndex.sanityCheck.
        """
        if self.file.count:
            first, last = self.file.ends(_OFFSET_ENTRY)
            if not (0 <= first[0] <= last[0] and 0 <= first[1] <= last[1] < size):
                raise StorageError(
                    f"{self.file.path} has invalid entries from {first} to {last} for a log file"
                    f" of {size} bytes"
                )

    def entry_from(self, position: int) -> OffsetPosition | None:
        """Return the first entry at or after `position`: its offset is above all before `position`.

        Kafka: OffsetIndex.fetchUpperBoundOffset.
        """
        number = self.count_before(position)
        return self.entry(number) if number < self.file.count else None

    def count_before(self, position: int) -> int:
        """Return the number of entries whose batch begins before `position`."""
        low, high = -1, self.file.count
        while high - low > 1:
            middle = (low + high) >> 1
            if self.entry(middle).position < position:
                low = middle
            else:
                high = middle
        return high

    def truncate(self, offset: Offset) -> None:
        """Remove the entries at or above `offset`."""
        relative = max(offset - self.base_offset, 0)
        self.file.truncate(self.file.floor((relative - 1).to_bytes(4)) + 1 if relative else 0)


class TimeIndex:
    """Maps a timestamp to the first offset that reached it."""

    __slots__ = ("base_offset", "file")

    def __init__(self, disk: Disk, path: str, base_offset: Offset) -> None:
        self.base_offset = base_offset
        self.file = EntryFile(disk, path, _TIME_ENTRY.size, 8)

    def is_full(self) -> bool:
        """Whether only the entry that sealing the segment adds still fits."""
        return self.file.count >= self.file.capacity - 1

    def append(self, timestamp: int, offset: Offset) -> None:
        """Add an entry, unless the last one has this timestamp already or the index is full."""
        file = self.file
        if file.count < file.capacity and timestamp > self.last().timestamp:
            file.append(_TIME_ENTRY.pack(timestamp, offset - self.base_offset))

    def entry(self, number: int) -> TimestampOffset:
        timestamp, relative = _TIME_ENTRY.unpack(self.file.entry(number))
        return TimestampOffset(timestamp, self.base_offset + relative)

    def last(self) -> TimestampOffset:
        """Return the last entry, or (-1, base offset) if there is none."""
        if not self.file.count:
            return TimestampOffset(NO_TIMESTAMP, self.base_offset)
        timestamp, relative = _TIME_ENTRY.unpack(self.file.last)
        return TimestampOffset(timestamp, self.base_offset + relative)

    def check_ends(self) -> None:
        """Raise StorageError if the first or the last entry is impossible.

        Kafka: TimeIndex.sanityCheck.
        """
        if self.file.count:
            first, last = self.file.ends(_TIME_ENTRY)
            if not (0 <= first[0] <= last[0] and first[1] >= 0 and last[1] >= 0):
                raise StorageError(f"{self.file.path} has invalid entries from {first} to {last}")

    def lookup(self, timestamp: int) -> TimestampOffset:
        """Return the last entry whose timestamp is at most `timestamp`."""
        number = self.file.floor(timestamp.to_bytes(8)) if timestamp >= 0 else -1
        if number < 0:
            return TimestampOffset(NO_TIMESTAMP, self.base_offset)
        return self.entry(number)

    def last_before(self, offset: Offset) -> TimestampOffset:
        """Return the last entry below `offset`."""
        count = self._count_before(offset)
        return self.entry(count - 1) if count else TimestampOffset(NO_TIMESTAMP, self.base_offset)

    def truncate(self, offset: Offset) -> None:
        """Remove the entries at or above `offset`."""
        self.file.truncate(self._count_before(offset))

    def _count_before(self, offset: Offset) -> int:
        count = self.file.count
        while count and self.entry(count - 1).offset >= offset:
            count -= 1
        return count
