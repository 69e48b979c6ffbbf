"""One segment of a log: a file of batches, its offset and time index, its aborted transactions.

    00000000000000004711.log            batches, back to back; 4711 is the segment's base offset
    00000000000000004711.index          log/index.OffsetIndex
    00000000000000004711.timeindex      log/index.TimeIndex
    00000000000000004711.txnindex       log/transaction_index, once there is an entry
    00000000000000004711.snapshot       producers before offset 4711; the log writes it

    state     entered by           appends   left by
    active    create, activate     yes       seal (a roll, or a clean close)
    sealed    seal, load           no        activate (truncation back into it), removal

The base offset is a lower bound: the first batch may start later.  `end_offset`, the next segment's
base or the log's end, is an upper bound.  Kafka: LogSegment.

The log decides when to roll, flush or delete; a segment only knows whether it has room.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from kserver.errors import NO_ROOM, StorageError, no_room
from kserver.log.index import OffsetIndex, TimeIndex, TimestampOffset
from kserver.log.transaction_index import TransactionIndex
from kserver.model import NO_TIMESTAMP, Offset
from kserver.wire.batch import HEADER, HEADER_SIZE, LOG_OVERHEAD, MAGIC, MAGIC_AT

if TYPE_CHECKING:
    from kserver.config.topic import TopicConfig
    from kserver.log.validator import ValidBatch
    from kserver.world.disk import Disk, File

log = logging.getLogger(__name__)

LOG = ".log"
OFFSET_INDEX = ".index"
TIME_INDEX = ".timeindex"
TRANSACTION_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"
SEGMENT_SUFFIXES = (LOG, OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX)
FILES_A_LOG = 3
"""Files that a new log keeps open: the records and two indexes."""

DELETED = ".deleted"
CLEANED = ".cleaned"
SWAP = ".swap"

MAX_RELATIVE_OFFSET = 0x7FFF_FFFF
_BLOCK_BYTES = 8192
"""Read size when looking for an offset: one index interval and a header more."""
_SCAN_BYTES = 1 << 18
_FAR_BYTES = 1 << 20
"""Bytes that are searched for an offset on the event loop; a thread searches further."""
_NAVIGATION = struct.Struct(">qi11xi")
"""Base offset, batch length, last offset delta."""

ReadAt: TypeAlias = Callable[[int, int], bytes | None]


class Header(NamedTuple):
    """A batch header as it is in the file; `wire/batch.HEADER` with names."""

    base_offset: Offset
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> Offset:
        return self.base_offset + self.last_offset_delta


class BatchPosition(NamedTuple):
    """A batch: its position in the file, its size, its last offset."""

    position: int
    size: int
    last_offset: Offset


class Cut(NamedTuple):
    """Where a segment is truncated: the file at `position`, the offsets at `end_offset`."""

    position: int
    end_offset: Offset
    latest: TimestampOffset
    """Largest remaining timestamp, and its offset."""
    first_timestamp: int


def segment_path(directory: str, base_offset: Offset, suffix: str) -> str:
    return f"{directory}/{base_offset:020d}{suffix}"


class LogSegment:
    __slots__ = (
        "aborted",
        "base_offset",
        "created_ms",
        "directory",
        "disk",
        "end_offset",
        "file",
        "first_timestamp",
        "index_interval_bytes",
        "is_index_full",
        "jitter_ms",
        "max_bytes",
        "max_ms",
        "max_timestamp",
        "offset_of_max_timestamp",
        "offsets",
        "size",
        "state",
        "times",
        "unindexed_bytes",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: Offset,
        config: TopicConfig,
        now_ms: int,
        *,
        jitter_ms: int = 0,
        create: bool = False,
        state: str = "",
    ) -> None:
        """Open the `.log` file; the indexes follow with `load`, `rebuild` or `activate`.

        `state` is a suffix of all file names; compaction writes segments with CLEANED.
        """
        self.state = state
        self.disk = disk
        self.directory = directory
        self.base_offset = base_offset
        self.file: File = disk.open(self.path(LOG), create=create)
        self.size = self.file.size()
        self.end_offset = base_offset
        self.offsets = OffsetIndex(disk, self.path(OFFSET_INDEX), base_offset)
        self.times = TimeIndex(disk, self.path(TIME_INDEX), base_offset)
        self.aborted = TransactionIndex(disk, self.path(TRANSACTION_INDEX), base_offset)
        self.max_timestamp = NO_TIMESTAMP
        self.offset_of_max_timestamp = base_offset
        self.first_timestamp = NO_TIMESTAMP
        """Maximum timestamp of the first batch, from which `segment.ms` counts."""
        self.created_ms = now_ms
        """Start of `segment.ms` if the first batch has no timestamp."""
        self.jitter_ms = jitter_ms
        self.unindexed_bytes = 0
        """Bytes from the batch of the last index entry, or the file's start, to the end."""
        self.is_index_full = False
        self.configure(config)

    @classmethod
    def create(
        cls,
        disk: Disk,
        directory: str,
        base_offset: Offset,
        config: TopicConfig,
        now_ms: int,
        jitter_ms: int = 0,
        state: str = "",
    ) -> LogSegment:
        """Create an active segment, removing any files of the same name."""
        for suffix in SEGMENT_SUFFIXES:
            path = segment_path(directory, base_offset, suffix) + state
            if disk.exists(path):
                disk.remove(path)
        segment = cls(
            disk,
            directory,
            base_offset,
            config,
            now_ms,
            jitter_ms=jitter_ms,
            create=True,
            state=state,
        )
        if config.preallocate:
            segment.file.truncate(config.segment_bytes)
        segment.activate(config)
        return segment

    def path(self, suffix: str) -> str:
        return segment_path(self.directory, self.base_offset, suffix) + self.state

    def relocate(self, directory: str) -> None:
        self.directory = directory
        self.offsets.file.path = self.path(OFFSET_INDEX)
        self.times.file.path = self.path(TIME_INDEX)
        self.aborted.path = self.path(TRANSACTION_INDEX)
        self.file.path = self.path(LOG)

    def configure(self, config: TopicConfig) -> None:
        self.max_bytes = config.segment_bytes
        max_ms = config.segment_ms
        if "compact" in config.cleanup_policy:
            # Only a sealed segment can be cleaned (Kafka: LogConfig.maxSegmentMs).
            max_ms = min(max_ms, config.max_compaction_lag_ms)
        self.max_ms = max_ms - self.jitter_ms
        self.index_interval_bytes = config.index_interval_bytes

    def load(self) -> None:
        """Load the indexes as they are.  Raises FileNotFoundError, or StorageError if one is
        invalid."""
        self.offsets.file.load()
        self.times.file.load()
        self.aborted.check()
        self.offsets.check_ends(self.size)
        self.times.check_ends()
        self.max_timestamp, self.offset_of_max_timestamp = self.times.last()
        self.unindexed_bytes = self.size - self.offsets.last().position

    def activate(self, config: TopicConfig) -> None:
        """Make room for appends."""
        self.offsets.file.grow(config.segment_index_bytes)
        self.times.file.grow(config.segment_index_bytes)
        self.is_index_full = self.offsets.is_full() or self.times.is_full()

    def seal(self) -> None:
        """Take no more appends: add the largest timestamp to the index, and trim the files.

        Raises NoRoom if the disk is full; the segment then stays active.
        """
        if self.max_timestamp >= 0:
            try:
                self.times.append(self.max_timestamp, self.offset_of_max_timestamp)
            except OSError as error:
                if error.errno in NO_ROOM:
                    raise no_room(self.times.file.path, error) from error
                raise
        self.offsets.file.seal()
        self.times.file.seal()
        self.trim()

    def trim(self) -> None:
        """Cut the file after the last batch."""
        if self.file.size() != self.size:
            self.file.truncate(self.size)

    def has_room(self, size: int, last_offset: Offset, max_timestamp: int, now_ms: int) -> bool:
        """Return whether batches of `size` bytes in total, up to these values, can be appended
        here."""
        if last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
            return False
        own_size = self.size
        if not own_size:
            return True
        first = self.first_timestamp
        age_ms = max_timestamp - first if first >= 0 else now_ms - self.created_ms
        return (
            own_size + size <= self.max_bytes and age_ms <= self.max_ms and not self.is_index_full
        )

    def append(self, records: memoryview, batches: Sequence[ValidBatch | Header]) -> None:
        """Write `records` at the end; `batches` are the headers of all batches in it.

        On a full disk, removes the part that was written and raises NoRoom.
        """
        position = self.size
        try:
            self.file.write_at(position, records)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            self.file.truncate(position)
            raise no_room(self.file.path, error) from error
        if not position:
            self.first_timestamp = max(batch.max_timestamp for batch in batches)
        self.size = position + len(records)
        for batch in batches:
            self.note(position, batch.size, batch.last_offset, batch.max_timestamp)
            position += batch.size

    def note(self, position: int, size: int, last_offset: Offset, max_timestamp: int) -> None:
        """Update timestamps, indexes and end for the batch at `position`, the segment's last."""
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.offset_of_max_timestamp = last_offset
        if self.unindexed_bytes > self.index_interval_bytes:
            self._index(position, last_offset)
        self.unindexed_bytes += size
        self.end_offset = last_offset + 1

    def _index(self, position: int, last_offset: Offset) -> None:
        try:
            if not self.offsets.is_full():
                self.offsets.append(last_offset, position)
            if not self.times.is_full():
                self.times.append(self.max_timestamp, self.offset_of_max_timestamp)
        except OSError as error:
            if error.errno in NO_ROOM:
                # The indexes may be sparser: the next batch is entered once there is room.
                return
            raise
        self.unindexed_bytes = 0
        self.is_index_full = self.offsets.is_full() or self.times.is_full()

    def rebuild(self, config: TopicConfig) -> None:
        """Clear the indexes and the state they are built from; `note` then fills them again."""
        self.activate(config)
        self.offsets.file.truncate(0)
        self.times.file.truncate(0)
        self.aborted.reset()
        self.max_timestamp = NO_TIMESTAMP
        self.offset_of_max_timestamp = self.base_offset
        self.unindexed_bytes = 0
        self.is_index_full = self.offsets.is_full() or self.times.is_full()
        self.end_offset = self.base_offset

    def find(self, offset: Offset) -> BatchPosition:
        """Return the first batch that ends at `offset` or later, or the segment's end with size 0.

        May wait for the disk.
        """
        batch = self._find(self._position_before(offset), offset, self.file.read_at, self.size)
        assert batch is not None
        return batch

    def find_cached(self, offset: Offset) -> BatchPosition | None:
        """Do the same, but return None if that would wait or search through too many bytes."""
        position = self.offsets.position_before(offset)
        if position:
            head = self.file.read_cached(position, HEADER_SIZE)
            if head is None or not self._is_batch_before(offset, head):
                return None
        return self._find(position, offset, self.file.read_cached, position + _FAR_BYTES)

    def _position_before(self, offset: Offset) -> int:
        """Return the position in the index for `offset`, or 0 if the index is corrupt there."""
        position = self.offsets.position_before(offset)
        if position and not self._is_batch_before(offset, self.file.read_at(position, HEADER_SIZE)):
            log.warning(
                "ignoring corrupt index %s; it will be rebuilt at the next start",
                self.offsets.file.path,
            )
            self.offsets.file.give_up()
            return 0
        return position

    def _find(
        self, position: int, offset: Offset, read: ReadAt, limit: int
    ) -> BatchPosition | None:
        end = self.size
        while position < end:
            block = read(position, min(_BLOCK_BYTES, end - position))
            if block is None or position > limit:
                return None
            at = 0
            while len(block) - at >= _NAVIGATION.size:
                base_offset, length, delta = _NAVIGATION.unpack_from(block, at)
                if base_offset + delta >= offset:
                    return BatchPosition(position + at, length + LOG_OVERHEAD, base_offset + delta)
                if length <= 0:
                    raise self.broken(position + at)
                at += length + LOG_OVERHEAD
            if not at:
                raise self.broken(position)
            position += at
        return BatchPosition(end, 0, self.end_offset - 1)

    def _is_batch_before(self, offset: Offset, head: bytes) -> bool:
        """Return whether `head`, to which the index led, is a batch that does not start after
        `offset`.

        Then that batch or a later one holds the offset.
        """
        if len(head) < HEADER_SIZE or head[MAGIC_AT] != MAGIC:
            return False
        base_offset, length, delta = _NAVIGATION.unpack_from(head)
        is_header = length + LOG_OVERHEAD >= HEADER_SIZE and 0 <= delta <= MAX_RELATIVE_OFFSET
        return bool(is_header and self.base_offset <= base_offset <= offset)

    def check_largest_timestamp(self) -> None:
        """Raise StorageError if the last entry of the time index matches no batch, or if it is
        empty although the first batch has a timestamp.  Waits for the disk."""
        if not self.times.file.count:
            _, first = next(self.headers(), (0, None))
            if first is not None and first.max_timestamp >= 0:
                raise StorageError(f"{self.times.file.path} has no entries")
        elif self._position_of(self.times.last()) is None:
            raise StorageError(f"{self.times.file.path} ends with {self.times.last()}")

    def position_of_time(self, timestamp: int, start: Offset) -> int:
        """Return the position of a batch at `start` or later, before which no record from `start`
        on has `timestamp` or a later one.  May wait for the disk."""
        entry = self.times.lookup(timestamp)
        if entry.offset > start:
            position = self._position_of(entry)
            if position is not None:
                return position
            log.warning(
                "ignoring time index %s: it does not match the batches", self.times.file.path
            )
        return self.find(start).position

    def _position_of(self, entry: TimestampOffset) -> int | None:
        """Return the position of the batch that a time index entry describes, or None."""
        if entry.timestamp == NO_TIMESTAMP:
            return 0
        batch = self.find(entry.offset)
        header = next(self.headers(batch.position), None)
        is_it = header is not None and header[1].max_timestamp == entry.timestamp
        return batch.position if is_it else None

    def batch_at(self, position: int) -> BatchPosition | None:
        """Return the batch that begins at `position`; None if its header is not in memory."""
        head = self.file.read_cached(position, _NAVIGATION.size)
        if head is None:
            return None
        base_offset, length, delta = _NAVIGATION.unpack(head)
        return BatchPosition(position, length + LOG_OVERHEAD, base_offset + delta)

    def upper_bound(self, position: int, up_to: Offset) -> Offset:
        """Return a bound above every offset before `position`, at most `up_to`; exact if that is
        cheap."""
        if self.aborted.is_empty or (entry := self.offsets.entry_from(position)) is None:
            return up_to
        if not position <= entry.position <= self.size - HEADER_SIZE:
            return up_to
        batch = self.batch_at(entry.position)
        if batch is None or batch.last_offset > entry.offset:
            return up_to
        return min(entry.offset, up_to)

    def headers(self, position: int = 0, end: int | None = None) -> Iterator[tuple[int, Header]]:
        """Yield position and header of each batch, from disk; raises StorageError if one is
        invalid."""
        end = self.size if end is None else end
        while position < end:
            block = self.file.read_at(position, min(_SCAN_BYTES, end - position))
            at = 0
            while len(block) - at >= HEADER_SIZE:
                header = Header._make(HEADER.unpack_from(block, at))
                if header.magic != MAGIC or header.size < HEADER_SIZE:
                    raise self.broken(position + at)
                if position + at + header.size > end:
                    raise self.broken(position + at)
                yield position + at, header
                at += header.size
            if not at:
                raise self.broken(position)
            position += at

    def broken(self, position: int) -> StorageError:
        return StorageError(f"{self.file.path}: incomplete batch at position {position}")

    def cut_at(self, offset: Offset) -> Cut:
        """Return where to cut to remove every record of `offset` and above.  Waits for the disk."""
        batch = self.find(offset)
        end = self.base_offset
        for _, header in self.headers(self._position_before(offset - 1), batch.position):
            end = header.last_offset + 1
        latest = self.times.last_before(offset)
        start = self._position_before(latest.offset)
        for _, header in self.headers(start, batch.position):
            if header.max_timestamp > latest.timestamp:
                latest = TimestampOffset(header.max_timestamp, header.last_offset)
        first = next(self.headers(0, batch.position), None)
        first_timestamp = first[1].max_timestamp if first else NO_TIMESTAMP
        return Cut(batch.position, end, latest, first_timestamp)

    def truncate(self, cut: Cut, config: TopicConfig) -> None:
        """Activate the segment, ending at the cut.

        The file keeps its length: the caller truncates it, since that takes time.
        """
        self.activate(config)
        self.offsets.truncate(cut.end_offset)
        self.times.truncate(cut.end_offset)
        self.aborted.truncate_to(cut.end_offset)
        self.size = cut.position
        self.end_offset = cut.end_offset
        self.unindexed_bytes = self.size - self.offsets.last().position
        self.is_index_full = self.offsets.is_full() or self.times.is_full()
        self.max_timestamp, self.offset_of_max_timestamp = cut.latest
        self.first_timestamp = cut.first_timestamp

    def largest_timestamp(self) -> int:
        """Return the largest timestamp of its records, or else the file's modification time."""
        if self.max_timestamp >= 0:
            return self.max_timestamp
        return self.disk.modified_ms(self.file.path)

    @property
    def is_sealed(self) -> bool:
        return not self.offsets.file.is_growing

    def unsynced(self) -> list[File]:
        """Return the files to sync before this segment may be trusted after a crash.

        The indexes of an active segment need no sync: recovery rebuilds them.
        """
        return [self.file, *self.index_files()] if self.is_sealed else [self.file]

    def index_files(self) -> list[File]:
        """Return the index files that exist: a corrupt one was removed."""
        files = (self.offsets.file, self.times.file)
        return [file.open() for file in files if self.disk.exists(file.path)]

    def sync(self) -> None:
        """Sync records, indexes and their sizes.  Waits for the disk."""
        for file in (self.file, *self.index_files()):
            file.sync()
        self.aborted.sync()

    def remove_indexes(self) -> None:
        for suffix in (OFFSET_INDEX, TIME_INDEX):
            self.disk.remove(self.path(suffix))

    def keep(self) -> None:
        """Keep it readable after its files are renamed or removed."""
        self.offsets.file.keep()
        self.times.file.keep()

    def files(self) -> list[str]:
        """Return the paths that exist, including the producers' snapshot."""
        paths = [self.path(suffix) for suffix in (*SEGMENT_SUFFIXES, SNAPSHOT)]
        return [path for path in paths if self.disk.exists(path)]

    def check(self) -> None:
        """Check the invariants, reading every header; for tests."""
        self.offsets.file.check()
        self.times.file.check()
        last = self.base_offset - 1
        starts = {}
        largest, end = NO_TIMESTAMP, 0
        for position, header in self.headers():
            assert header.base_offset > last, (self.file.path, position)
            last = header.last_offset
            largest = max(largest, header.max_timestamp)
            starts[position] = last
            end = position + header.size
        assert end == self.size, self.file.path
        assert last < self.end_offset, self.file.path
        assert largest == self.max_timestamp, self.file.path
        for number in range(self.offsets.file.count):
            entry = self.offsets.entry(number)
            assert starts[entry.position] == entry.offset, (self.offsets.file.path, entry)
