"""One cleaning of one compacted log: sealed segments in, segments with the same offsets out.

    1  read the dirty part, and note the newest offset of each key, until the map is full
    2  group neighbouring segments that fit into one, from the log's start to there
    3  write the retained records of each group (log/record_filter) to one `.cleaned` segment

It reads sealed segments, writes and syncs new files, and changes nothing else: the caller
(log/cleaner) swaps the new segments in, or drops them.  It runs in a process of its own, since it
takes minutes of CPU time that would block the broker's event loop.

    memory   the map of keys (log.cleaner.dedupe.buffer.size), a read buffer, one batch decompressed
    disk     the size of the retained records of all groups, until they are swapped in

Every batch's CRC and offset are checked first: a damaged one must neither hide good records nor get
a new CRC.  Kafka: LogCleaner.Cleaner.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kserver.errors import KafkaError, ProtocolError, StorageError
from kserver.log.record_filter import CleanedTransactionMetadata, KeyMap, filtered
from kserver.log.segment import (
    CLEANED,
    LOG,
    MAX_RELATIVE_OFFSET,
    OFFSET_INDEX,
    SEGMENT_SUFFIXES,
    TIME_INDEX,
    Header,
    LogSegment,
    segment_path,
)
from kserver.log.transaction_index import AbortedTransaction
from kserver.model import Offset, ProducerId
from kserver.wire.batch import (
    CONTROL,
    HEADER,
    HEADER_SIZE,
    MAGIC,
    ControlType,
    RecordBatch,
    read_control_record,
)

if TYPE_CHECKING:
    from kserver.config.topic import TopicConfig
    from kserver.world.disk import Disk
    from kserver.world.rate_limiter import RateLimiter

_WRITE_BYTES = 1 << 20


class CannotClean(StorageError):
    """A batch is invalid; the log stays as it is."""


@dataclass(frozen=True, slots=True)
class Job:
    directory: str
    bases: tuple[Offset, ...]
    """Base offsets of the segments that may be cleaned: from the log's first to the last before
    `end_offset`."""
    first_dirty: Offset
    end_offset: Offset
    """Base offset of the first segment that is not cleaned."""
    config: TopicConfig
    now_ms: int
    aborted: Sequence[AbortedTransaction]
    """Aborted transactions of the whole log."""
    last_of: Mapping[ProducerId, tuple[Offset | None, int]]
    """Offset of the last data batch of each producer, or None if it has none, and its epoch."""
    map_bytes: int
    buffer_bytes: int


class SegmentGroup(NamedTuple):
    """Neighbouring segments, and the one segment that is to replace them."""

    sources: tuple[Offset, ...]
    """Base offsets; the first one is also the base offset of the new segment."""
    has_changed: bool
    """Whether records were removed or segments merged; if not, there is no `.cleaned` segment."""


class Compacted(NamedTuple):
    groups: tuple[SegmentGroup, ...]
    cleaned_to: Offset
    """Offset below which the log is clean."""
    read_bytes: int
    written_bytes: int
    keys: int


def compact(disk: Disk, rate_limiter: RateLimiter, job: Job) -> Compacted:
    """Compact the log's cleanable segments into `.cleaned` files.  Raises CannotClean, OSError."""
    run = _Run(disk, rate_limiter, job)
    run.note_keys()
    groups = []
    for sources in run.groups():
        groups.append(run.clean(sources))
    return Compacted(
        tuple(groups), run.keys.next_offset, run.read_bytes, run.written_bytes, len(run.keys)
    )


def remove_cleaned(disk: Disk, directory: str, bases: Iterable[Offset]) -> None:
    """Remove the `.cleaned` files of the segments at these base offsets."""
    for base in bases:
        for suffix in SEGMENT_SUFFIXES:
            path = segment_path(directory, base, suffix) + CLEANED
            if disk.exists(path):
                disk.remove(path)


class _Run:
    def __init__(self, disk: Disk, rate_limiter: RateLimiter, job: Job) -> None:
        self.keys = KeyMap(job.map_bytes)
        self.read_bytes = 0
        self.written_bytes = 0
        self._disk = disk
        self._rate_limiter = rate_limiter
        self._job = job
        self._transactions = self._all_transactions()

    def _all_transactions(self) -> CleanedTransactionMetadata:
        return CleanedTransactionMetadata(self._job.aborted, self._job.last_of)

    def note_keys(self) -> None:
        """Note the newest offset of each dirty key, as far as the map has room."""
        job, keys = self._job, self.keys
        ends = (*job.bases[1:], job.end_offset)
        transactions = self._all_transactions()
        keys.next_offset = job.first_dirty
        for base, end in zip(job.bases, ends, strict=True):
            if end <= job.first_dirty:
                continue
            for header, batch in self._batches(base):
                if header.last_offset < job.first_dirty:
                    continue
                if not keys.has_room(header.record_count):
                    return
                if not transactions.check_retention(header, _marker(header, batch)).discards:
                    self._note(header, batch)
                keys.next_offset = header.last_offset + 1
        keys.next_offset = job.end_offset

    def _note(self, header: Header, batch: RecordBatch) -> None:
        if header.record_count and not header.attributes & CONTROL:
            try:
                self.keys.note(header, batch.unfolded())
            except (ProtocolError, KafkaError) as error:
                raise self._cannot(header, error) from error

    def groups(self) -> Iterator[tuple[Offset, ...]]:
        """Yield the base offsets of segments to merge (Kafka: LogCleaner.groupSegmentsBySize)."""
        job = self._job
        config = job.config
        group: list[Offset] = []
        sizes = [0, 0, 0]
        limits = (config.segment_bytes, config.segment_index_bytes, config.segment_index_bytes)
        ends = (*job.bases[1:], job.end_offset)
        for base, end in zip(job.bases, ends, strict=True):
            if base >= self.keys.next_offset:
                break
            more = [self._size(base, suffix) for suffix in (LOG, OFFSET_INDEX, TIME_INDEX)]
            total = [a + b for a, b in zip(sizes, more, strict=True)]
            fits = all(size <= limit for size, limit in zip(total, limits, strict=True))
            if group and (not fits or end - 1 - group[0] > MAX_RELATIVE_OFFSET):
                yield tuple(group)
                group, total = [], more
            group.append(base)
            sizes = total
        if group:
            yield tuple(group)

    def _size(self, base: Offset, suffix: str) -> int:
        return self._disk.open(segment_path(self._job.directory, base, suffix)).size()

    def clean(self, sources: tuple[Offset, ...]) -> SegmentGroup:
        job = self._job
        new = LogSegment.create(
            self._disk, job.directory, sources[0], job.config, job.now_ms, state=CLEANED
        )
        out = _SegmentWriter(new)
        has_changed = len(sources) > 1
        for base in sources:
            for header, batch in self._batches(base):
                retention = self._transactions.check_retention(header, _marker(header, batch))
                # The batch with the last offset stays, so that the log keeps its offsets.
                if header.last_offset + 1 == job.end_offset:
                    retention = retention._replace(stays=True)
                try:
                    remaining = filtered(
                        batch,
                        header,
                        retention,
                        self.keys,
                        job.now_ms,
                        job.config.delete_retention_ms,
                    )
                except (ProtocolError, KafkaError) as error:
                    raise self._cannot(header, error) from error
                if remaining is not batch.buffer:
                    has_changed = True
                if remaining:
                    out.add(remaining)
                    self._rate_limiter.spend(len(remaining))
                if retention.aborted is not None:
                    new.aborted.append(retention.aborted)
        out.flush()
        if not has_changed:
            remove_cleaned(self._disk, job.directory, sources[:1])
            return SegmentGroup(sources, has_changed=False)
        self.written_bytes += new.size
        new.seal()
        new.sync()
        return SegmentGroup(sources, has_changed=True)

    def _batches(self, base: Offset) -> Iterator[tuple[Header, RecordBatch]]:
        """Yield every batch of a segment, with its CRC and offset checked."""
        path = segment_path(self._job.directory, base, LOG)
        file = self._disk.open(path)
        size, position = file.size(), 0
        last_offset = base - 1
        while position < size:
            chunk = memoryview(file.read_at(position, self._job.buffer_bytes))
            if len(chunk) >= HEADER_SIZE:
                first = Header._make(HEADER.unpack_from(chunk)).size
                if len(chunk) < first <= size - position:
                    chunk = memoryview(file.read_at(position, first))
            at = 0
            while len(chunk) - at >= HEADER_SIZE:
                header = Header._make(HEADER.unpack_from(chunk, at))
                if header.magic != MAGIC or header.size < HEADER_SIZE:
                    raise CannotClean(f"{path}: no valid batch header at position {position + at}")
                if at + header.size > len(chunk):
                    break
                batch = RecordBatch(chunk[at : at + header.size])
                if not batch.is_valid_crc():
                    raise CannotClean(f"{path}: CRC mismatch at position {position + at}")
                # The CRC does not cover the offset.
                if not last_offset < header.base_offset <= base + MAX_RELATIVE_OFFSET:
                    raise CannotClean(f"{path}: offset out of order at position {position + at}")
                last_offset = header.last_offset
                yield header, batch
                at += header.size
            if not at:
                raise CannotClean(f"{path}: incomplete batch at position {position}")
            self.read_bytes += at
            self._rate_limiter.spend(at)
            position += at

    def _cannot(self, header: Header, error: Exception) -> CannotClean:
        where = f"{self._job.directory}: the batch at offset {header.base_offset}"
        return CannotClean(f"{where} cannot be read: {error}")


class _SegmentWriter:
    """Appends batches to a new segment in large writes."""

    def __init__(self, segment: LogSegment) -> None:
        self._segment = segment
        self._data = bytearray()
        self._headers: list[Header] = []

    def add(self, batch: memoryview | bytes) -> None:
        if self._data and len(self._data) + len(batch) > _WRITE_BYTES:
            self.flush()
        self._data += batch
        self._headers.append(Header._make(HEADER.unpack_from(batch)))

    def flush(self) -> None:
        if self._data:
            self._segment.append(memoryview(self._data), self._headers)
            self._data = bytearray()
            self._headers = []


def _marker(header: Header, batch: RecordBatch) -> ControlType | None:
    """Return the type of a control batch; None for data, and for an emptied marker."""
    if not header.attributes & CONTROL or not header.record_count:
        return None
    return read_control_record(batch.records()[0]).type
