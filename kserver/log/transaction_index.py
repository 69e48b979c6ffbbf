"""Index of the aborted transactions of one segment: its `.txnindex` file.

Read_committed consumers drop the records of these transactions.  Entries are in the order of their
abort markers, so last offsets rise; commits are not written.  The file is created with the first
entry.  Kafka: TransactionIndex, AbortedTxn.

    version i16 = 0 | producer id i64 | first offset i64 | last offset i64 | last stable offset i64
"""

from __future__ import annotations

import contextlib
import struct
from typing import TYPE_CHECKING, NamedTuple

from kserver.errors import NO_ROOM, NoRoom, StorageError, no_room
from kserver.model import Offset, ProducerId

if TYPE_CHECKING:
    from kserver.world.disk import Disk, File

_ENTRY = struct.Struct(">hqqqq")
_VERSION = 0


class AbortedTransaction(NamedTuple):
    """One aborted transaction, from its first record to its abort marker, both inclusive."""

    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset
    last_stable_offset: Offset
    """Last stable offset after this abort, ignoring the high watermark."""


class TransactionIndex:
    __slots__ = (
        "_disk",
        "_file",
        "_is_new",
        "_last_offset",
        "_size",
        "_unwritten",
        "base_offset",
        "path",
    )

    def __init__(self, disk: Disk, path: str, base_offset: Offset) -> None:
        self.path = path
        self.base_offset = base_offset
        self._disk = disk
        self._file: File | None = disk.open(path) if disk.exists(path) else None
        self._is_new = False
        """Whether its name is not on disk yet."""
        self._unwritten: list[AbortedTransaction] = []
        """Entries for which the disk had no room."""
        # A torn last entry is overwritten by the next append.
        whole = self._file.size() // _ENTRY.size if self._file else 0
        self._size = whole * _ENTRY.size
        self._last_offset: Offset | None = None
        if self._file and whole:
            last = self._file.read_at(self._size - _ENTRY.size, _ENTRY.size)
            self._last_offset = _ENTRY.unpack(last)[3]

    @property
    def is_empty(self) -> bool:
        return self._size == 0 and not self._unwritten

    def append(self, entry: AbortedTransaction) -> None:
        """Add an entry; since its marker is in the log, on a full disk it waits for `write`."""
        assert self._last_offset is None or entry.last_offset > self._last_offset, entry
        self._unwritten.append(entry)
        self._last_offset = entry.last_offset
        with contextlib.suppress(NoRoom):
            self.write()

    def write(self) -> None:
        """Write the entries that are not in the file yet; raises NoRoom while the disk is full."""
        if not self._unwritten:
            return
        try:
            if self._file is None:
                self._file = self._disk.open(self.path, create=True)
                self._is_new = True
            data = b"".join(_ENTRY.pack(_VERSION, *entry) for entry in self._unwritten)
            self._file.write_at(self._size, data)
        except OSError as error:
            if error.errno in NO_ROOM:
                raise no_room(self.path, error) from error
            raise
        self._size += len(data)
        self._unwritten = []

    def entries(self) -> list[AbortedTransaction]:
        """Return all entries; raises StorageError if one has an unknown version."""
        if self._file is None or self._size == 0:
            return list(self._unwritten)
        entries: list[AbortedTransaction] = []
        for version, *fields in _ENTRY.iter_unpack(self._file.read_at(0, self._size)):
            if version != _VERSION:
                raise StorageError(
                    f"{self.path}: entry {len(entries)} has version {version}, not {_VERSION}; "
                    "remove the file to let recovery rebuild it from the log"
                )
            entries.append(AbortedTransaction(*fields))
        return entries + self._unwritten

    def collect(self, first: Offset, upper_bound: Offset) -> tuple[list[AbortedTransaction], bool]:
        """Return the aborted transactions with records in [first, upper_bound), and whether these
        are all.

        If they are not, a later segment's index may hold more, since a transaction's entry is in
        the segment of its marker.
        """
        transactions = []
        for entry in self.entries():
            if entry.last_offset >= first and entry.first_offset < upper_bound:
                transactions.append(entry)
            # At that abort, everything below the bound was decided: later entries start above it.
            if entry.last_stable_offset >= upper_bound:
                return transactions, True
        return transactions, False

    def truncate_to(self, offset: Offset) -> None:
        """Remove the transactions whose marker is at or after `offset`.  Raises NoRoom."""
        self.write()
        entries = self.entries()
        remaining = [entry for entry in entries if entry.last_offset < offset]
        if len(remaining) < len(entries):
            self._cut(len(remaining), remaining[-1].last_offset if remaining else None)

    def reset(self) -> None:
        self._unwritten = []
        self._cut(0, None)

    def check(self) -> None:
        """Raise StorageError if the file is not valid for this segment, so recovery rebuilds it."""
        previous = self.base_offset - 1
        if self._file is not None and self._file.size() != self._size:
            raise StorageError(f"{self.path}: size {self._file.size()} is not a multiple of 34")
        for entry in self.entries():
            if not (entry.first_offset <= entry.last_offset and entry.last_offset > previous):
                raise StorageError(f"{self.path}: {entry} is out of order (after {previous})")
            previous = entry.last_offset

    def sync(self) -> None:
        """Sync the written entries.  Waits for the disk."""
        if self._file is None:
            return
        self._file.sync()
        if self._is_new:
            self._disk.sync_directory(self.path.rpartition("/")[0] or "/")
            self._is_new = False

    def _cut(self, entries: int, last_offset: Offset | None) -> None:
        self._size = entries * _ENTRY.size
        self._last_offset = last_offset
        if self._file is not None:
            self._file.truncate(self._size)
