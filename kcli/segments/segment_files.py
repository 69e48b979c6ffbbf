"""The entries of a broker's files.

    .log .checkpoint   batches, and with `deep` their records
    .index .timeindex  entries, checked against the log next to them
    .txnindex          aborted transactions
    .snapshot          producers
    checkpoints        leader epochs, or partitions with their offsets

Pure: bytes in, entries out; inconsistencies are collected in Problems. Raises ProtocolError if the
bytes are invalid. `segment_text` and `segment_rows` print entries.
"""

from __future__ import annotations

import bisect
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from kcli.segments import old_messages
from kserver.errors import ProtocolError
from kserver.log import checkpoint
from kserver.log.producer_state import ProducerStateEntry, ProducerStateManager
from kserver.wire.batch import LOG_OVERHEAD, Record, RecordBatch

MIN_HEADER_BYTES = 17
"""Bytes up to and with the magic byte: fewer cannot be a batch."""
MIN_RECORD_BYTES = 14
"""Minimum of the length field in any format version."""
UNLIMITED = 0x7FFFFFFF
NEVER = 1 << 62
LAST_SEQUENCE = 0x7FFFFFFF

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_ABORTED = struct.Struct(">hqqqq")

AnyBatch = RecordBatch | old_messages.OldBatch
AnyRecord = Record | old_messages.OldRecord


class BatchEntry(NamedTuple):
    """A batch, its position in its file, and whether its CRC is right."""

    position: int
    batch: AnyBatch
    is_valid: bool


class RecordEntry(NamedTuple):
    """A record of the batch at `position`."""

    position: int
    batch: AnyBatch
    record: AnyRecord


class Junk(NamedTuple):
    """Bytes after the last complete batch of a file."""

    path: str
    size: int


class IndexEntry(NamedTuple):
    offset: int
    position: int


class TimeEntry(NamedTuple):
    timestamp: int
    offset: int


class AbortedEntry(NamedTuple):
    version: int
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class ProducerEntry(NamedTuple):
    id: int
    producer: ProducerStateEntry


class EpochEntry(NamedTuple):
    epoch: int
    start_offset: int


class OffsetEntry(NamedTuple):
    topic: str
    partition: int
    offset: int


Entry = (
    BatchEntry
    | RecordEntry
    | Junk
    | IndexEntry
    | TimeEntry
    | AbortedEntry
    | ProducerEntry
    | EpochEntry
    | OffsetEntry
)


@dataclass(slots=True)
class Problems:
    """Problems by absolute path; pairs are the actual and the expected value."""

    mismatches: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    times: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    orders: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    missing: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    gaps: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    corrupt: dict[str, list[int]] = field(default_factory=dict)
    """Positions of batches whose CRC is wrong."""
    junk: dict[str, int] = field(default_factory=dict)
    """Number of bytes after the last complete batch."""

    def lines(self) -> Iterator[str]:
        """Yield the lines of Kafka's tool."""
        for path, pairs in self.mismatches.items():
            yield f"Mismatches in :{path}"
            yield from (f"  Index offset: {a}, log offset: {b}" for a, b in pairs)
        for path, pairs in self.times.items():
            yield f"Found timestamp mismatch in :{path}"
            yield from (f"  Index timestamp: {a}, log timestamp: {b}" for a, b in pairs)
        for path, pairs in self.orders.items():
            yield f"Found out of order timestamp in :{path}"
            yield from (
                f"  Index timestamp: {a}, Previously indexed timestamp: {b}" for a, b in pairs
            )
        for path, pairs in self.missing.items():
            yield f"The following indexed offsets are not found in :{path}"
            yield from (f"Indexed offset: {a}, found log offset: {b}" for a, b in pairs)
        for path, pairs in self.gaps.items():
            yield f"Non-consecutive offsets in {path}"
            yield from (f"  {a} is followed by {b}" for a, b in pairs)

    def all_problems(self) -> Iterator[tuple[str, str, str]]:
        """Yield all problems: path, code, and description."""
        for path, positions in self.corrupt.items():
            for position in positions:
                yield path, "CORRUPT_BATCH", f"the CRC of the batch at position {position} is wrong"
        for path, count in self.junk.items():
            yield path, "INVALID_BYTES", f"{count} bytes follow the last whole batch"
        for code, text, entries in (
            ("OFFSET_GAP", "offset {} is followed by {}", self.gaps),
            ("INDEX_MISMATCH", "index offset {}, log offset {}", self.mismatches),
            ("TIMESTAMP_MISMATCH", "index timestamp {}, log timestamp {}", self.times),
            ("TIMESTAMP_ORDER", "index timestamp {} after {}", self.orders),
            ("OFFSET_NOT_FOUND", "index offset {}, found log offset {}", self.missing),
        ):
            for path, pairs in entries.items():
                for pair in pairs:
                    yield path, code, text.format(*pair)


def log_entries(
    path: str, data: memoryview, deep: bool, limit_bytes: int, problems: Problems
) -> Iterator[BatchEntry | RecordEntry | Junk]:
    """Yield a segment's batches, up to `limit_bytes` of the file; with `deep` each before its
    records.
    """
    read = data[:limit_bytes]
    end = 0
    last_offset: int | None = None
    for position, batch in batches(read, path):
        is_valid = batch.is_valid_crc()
        if not is_valid:
            problems.corrupt.setdefault(path, []).append(position)
        yield BatchEntry(position, batch, is_valid)
        if deep:
            for record in batch.records():
                if last_offset is not None and record.offset != last_offset + 1:
                    problems.gaps.setdefault(path, []).append((last_offset, record.offset))
                last_offset = record.offset
                yield RecordEntry(position, batch, record)
        end = position + batch.size
    if end < len(read) and limit_bytes == UNLIMITED:
        problems.junk[path] = len(read) - end
        yield Junk(path, len(read) - end)


def batches(data: memoryview, path: str, position: int = 0) -> Iterator[tuple[int, AnyBatch]]:
    """Yield the complete batches of any format version, each with its position."""
    end = len(data)
    while position < end - MIN_HEADER_BYTES:
        length = int.from_bytes(data[position + 8 : position + LOG_OVERHEAD], signed=True)
        if length < MIN_RECORD_BYTES:
            raise ProtocolError(
                f"Found record size {length} smaller than minimum record overhead "
                f"({MIN_RECORD_BYTES}) in file {path}."
            )
        if position > end - LOG_OVERHEAD - length:
            return
        old = data[position + 16] < 2
        batch = (old_messages.OldBatch if old else RecordBatch)(data, position)
        yield position, batch
        position += batch.size


def index_entries(
    path: str,
    entries: bytes,
    base_offset: int,
    log: memoryview,
    max_message_bytes: int,
    problems: Problems,
) -> Iterator[IndexEntry]:
    """Yield an offset index; each entry must have the last offset of the batch at its position."""
    for number, (relative, position) in enumerate(_whole(_OFFSET_ENTRY, entries)):
        if relative == 0 and number > 0:
            return  # the zeros after the entries of an active index
        offset = base_offset + relative
        slice_ = log[position : position + max_message_bytes]
        _, batch = next(batches(slice_, path), (0, None))
        if batch is None or batch.last_offset != offset:
            last_offset = -1 if batch is None else batch.last_offset
            problems.mismatches.setdefault(path, []).append((offset, last_offset))
        yield IndexEntry(offset, position)


def time_index_entries(
    path: str,
    entries: bytes,
    base_offset: int,
    index: bytes,
    log: memoryview,
    problems: Problems,
) -> Iterator[TimeEntry]:
    """Yield a time index; each entry must have the last offset of a batch with that maximum
    timestamp.
    """
    positions = list(_whole(_OFFSET_ENTRY, index))
    growing = next((n for n, (relative, _) in enumerate(positions) if n and not relative), None)
    del positions[growing:]
    previous = -1
    for number, (timestamp, relative) in enumerate(_whole(_TIME_ENTRY, entries)):
        if relative == 0 and number > 0:
            return
        offset = base_offset + relative
        slot = bisect.bisect_right(positions, relative, key=lambda entry: entry[0]) - 1
        start = positions[slot][1] if slot >= 0 else 0
        matches = (b for _, b in batches(log, path, start) if b.last_offset >= offset)
        batch = next(matches, None)
        if batch is None or batch.last_offset != offset:
            last = -1 if batch is None else batch.last_offset
            problems.missing.setdefault(path, []).append((offset, last))
        else:
            newest = max((record.timestamp for record in batch.records()), default=-1)
            if newest != timestamp:
                problems.times.setdefault(path, []).append((timestamp, newest))
            if previous >= timestamp:
                problems.orders.setdefault(path, []).append((timestamp, previous))
        yield TimeEntry(timestamp, offset)
        previous = timestamp


def insane_index(path: str, entries: bytes, base_offset: int) -> str | None:
    """Return why a broker would rebuild this offset index at its start, or None."""
    last = entries[-8:-4] if len(entries) % 8 == 0 else b""
    if last and int.from_bytes(last, signed=True) < 0:
        offset = base_offset + int.from_bytes(last, signed=True)
        return (
            f"Corrupt index found, index file {path} has non-zero size but the last offset is "
            f"{offset} which is less than the base offset {base_offset}"
        )
    if len(entries) % 8:
        return (
            f"Index file {path} is corrupt, found {len(entries)} bytes which is neither positive "
            "nor a multiple of 8"
        )
    return None


def insane_time_index(path: str, entries: bytes, base_offset: int) -> str | None:
    """Return why a broker would rebuild this time index at its start, or None."""
    times = list(_whole(_TIME_ENTRY, entries))
    begin = f"Corrupt time index found, time index file ({path}) has non-zero size but the last "
    if times and times[-1][0] < times[0][0]:
        return (
            f"{begin}timestamp is {times[-1][0]} which is less than the first timestamp "
            f"{times[0][0]}"
        )
    if times and times[-1][1] < 0:
        return (
            f"{begin}offset is {base_offset + times[-1][1]} which is less than the first offset "
            f"{base_offset}"
        )
    if len(entries) % 12:
        return (
            f"Time index file {path} is corrupt, found {len(entries)} bytes which is neither "
            "positive nor a multiple of 12"
        )
    return None


def aborted_entries(entries: bytes) -> Iterator[AbortedEntry]:
    return map(AbortedEntry._make, _whole(_ABORTED, entries))


def producer_entries(path: str, snapshot: bytes) -> Iterator[ProducerEntry]:
    """Yield the producers. Raises StorageError if the snapshot is corrupt."""
    state = ProducerStateManager(expiration_ms=NEVER)
    state.restore(snapshot, path, now_ms=0)
    return map(ProducerEntry._make, state.producers.items())


def time_type(batch: AnyBatch) -> str:
    """Return the type of a batch's timestamps, in Kafka's words."""
    if batch.magic == 0:
        return "NoTimestampType"
    return "LogAppendTime" if batch.timestamp_type else "CreateTime"


def sequence_of(batch: AnyBatch, record: AnyRecord) -> int:
    """Return a record's sequence; -1 if the producer is not idempotent."""
    if not isinstance(batch, RecordBatch) or batch.base_sequence < 0:
        return -1
    return batch.base_sequence + record.offset - batch.base_offset & LAST_SEQUENCE


def _whole(entry: struct.Struct, data: bytes) -> Iterator[tuple[int, ...]]:
    return entry.iter_unpack(data[: len(data) // entry.size * entry.size])


def epoch_entries(path: str, data: bytes) -> Iterator[EpochEntry]:
    return (EpochEntry(*start) for start in checkpoint.decode_epochs(data, path))


def offset_entries(path: str, data: bytes) -> Iterator[OffsetEntry]:
    for partition, offset in checkpoint.decode_offsets(data, path).items():
        yield OffsetEntry(*partition, offset)
