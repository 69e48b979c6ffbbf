"""A broker's files as the lines that Kafka's dump-log prints of them.

    .log .checkpoint   batches, and with `deep` their records
    .index .timeindex  entries, checked against the log beside them
    .txnindex          aborted transactions
    .snapshot          producers

Pure: bytes in, lines out; what does not fit together is collected in Problems.  Raises
ProtocolError where the bytes make no sense.
"""

from __future__ import annotations

import bisect
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from kcli import control_records, old_messages
from kserver.errors import ProtocolError
from kserver.log.producer_state import ProducerState
from kserver.wire.batch import LOG_OVERHEAD, Record, RecordBatch

LEAST_HEADER = 17
"""Bytes up to and with the magic byte: fewer are no batch at all."""
LEAST_SIZE = 14
"""The least length field of any format version."""
UNLIMITED = 0x7FFFFFFF
NEVER = 1 << 62

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_ABORTED = struct.Struct(">hqqqq")

AnyBatch = RecordBatch | old_messages.OldBatch
AnyRecord = Record | old_messages.OldRecord


@dataclass(slots=True)
class Problems:
    """What was found to be wrong, by absolute path."""

    mismatches: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    times: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    orders: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    missing: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    gaps: dict[str, list[tuple[int, int]]] = field(default_factory=dict)

    def lines(self) -> Iterator[str]:
        """Kafka's words for them."""
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


@dataclass(frozen=True, slots=True)
class Printing:
    """How records are shown: their bytes as text by these decoders, or only their metadata."""

    deep: bool = False
    contents: bool = False
    metadata: bool = True
    key: Callable[[bytes], str] = lambda data: data.decode(errors="replace")
    value: Callable[[bytes], str] = lambda data: data.decode(errors="replace")


def log_lines(
    path: str, data: memoryview, printing: Printing, limit_bytes: int, problems: Problems
) -> Iterator[str]:
    """A segment's batches, up to `limit_bytes` of the file."""
    read = data[:limit_bytes]
    valid = 0
    last_offset: int | None = None
    for position, batch in batches(read, path):
        yield _batch_line(position, batch)
        if printing.deep:
            for record in batch.records():
                if last_offset is not None and record.offset != last_offset + 1:
                    problems.gaps.setdefault(path, []).append((last_offset, record.offset))
                last_offset = record.offset
                yield _record_line(batch, record, printing)
        valid = position + batch.size
    if valid < len(read) and limit_bytes == UNLIMITED:
        name = path.rpartition("/")[2]
        yield f"Found {len(read) - valid} invalid bytes at the end of {name}"


def batches(data: memoryview, path: str, position: int = 0) -> Iterator[tuple[int, AnyBatch]]:
    """The complete batches of any format version, each with its position."""
    end = len(data)
    while position < end - LEAST_HEADER:
        length = int.from_bytes(data[position + 8 : position + LOG_OVERHEAD], signed=True)
        if length < LEAST_SIZE:
            raise ProtocolError(
                f"Found record size {length} smaller than minimum record overhead ({LEAST_SIZE}) "
                f"in file {path}."
            )
        if position > end - LOG_OVERHEAD - length:
            return
        old = data[position + 16] < 2
        batch = (old_messages.OldBatch if old else RecordBatch)(data, position)
        yield position, batch
        position += batch.size


def index_lines(
    path: str,
    entries: bytes,
    base_offset: int,
    log: memoryview,
    max_message_bytes: int,
    verify_only: bool,
    problems: Problems,
) -> Iterator[str]:
    """An offset index; each entry must name the last offset of the batch at its position."""
    for number, (relative, position) in enumerate(_whole(_OFFSET_ENTRY, entries)):
        if relative == 0 and number > 0:
            return  # the zeros after the entries of a growing index
        offset = base_offset + relative
        slice_ = log[position : position + max_message_bytes]
        _, batch = next(batches(slice_, path), (0, None))
        if batch is None or batch.last_offset != offset:
            found = -1 if batch is None else batch.last_offset
            problems.mismatches.setdefault(path, []).append((offset, found))
        if not verify_only:
            yield f"offset: {offset} position: {position}"


def time_index_lines(
    path: str,
    entries: bytes,
    base_offset: int,
    index: bytes,
    log: memoryview,
    verify_only: bool,
    problems: Problems,
) -> Iterator[str]:
    """A time index; each entry must name the last offset of a batch with that maximum timestamp."""
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
        found = (b for _, b in batches(log, path, start) if b.last_offset >= offset)
        batch = next(found, None)
        if batch is None or batch.last_offset != offset:
            last = -1 if batch is None else batch.last_offset
            problems.missing.setdefault(path, []).append((offset, last))
        else:
            newest = max((record.timestamp for record in batch.records()), default=-1)
            if newest != timestamp:
                problems.times.setdefault(path, []).append((timestamp, newest))
            if previous >= timestamp:
                problems.orders.setdefault(path, []).append((timestamp, previous))
        if not verify_only:
            yield f"timestamp: {timestamp} offset: {offset}"
        previous = timestamp


def insane_index(path: str, entries: bytes, base_offset: int) -> str | None:
    """Why a broker would build this offset index anew when it starts, or None."""
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
    """Why a broker would build this time index anew when it starts, or None."""
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


def aborted_lines(entries: bytes) -> Iterator[str]:
    for version, producer_id, first, last, stable in _whole(_ABORTED, entries):
        yield (
            f"version: {version} producerId: {producer_id} firstOffset: {first} "
            f"lastOffset: {last} lastStableOffset: {stable}"
        )


def producer_lines(path: str, snapshot: bytes) -> Iterator[str]:
    """Raises StorageError for a snapshot that is corrupt."""
    state = ProducerState(expiration_ms=NEVER)
    state.restore(snapshot, path, now_ms=0)
    for producer_id, producer in state.producers.items():
        line = (
            f"producerId: {producer_id} producerEpoch: {producer.epoch} "
            f"coordinatorEpoch: {producer.coordinator_epoch} "
            f"currentTxnFirstOffset: {_optional(producer.transaction_start)} "
            f"lastTimestamp: {producer.last_timestamp} "
        )
        for last in producer.batches[-1:]:
            line += (
                f"firstSequence: {last.first_sequence} lastSequence: {last.last_sequence} "
                f"lastOffset: {last.last_offset} "
                f"offsetDelta: {last.last_offset - last.first_offset} timestamp: {last.timestamp}"
            )
        yield line


def _whole(entry: struct.Struct, data: bytes) -> Iterator[tuple[int, ...]]:
    return entry.iter_unpack(data[: len(data) // entry.size * entry.size])


def _batch_line(position: int, batch: AnyBatch) -> str:
    if isinstance(batch, RecordBatch):
        horizon = batch.delete_horizon_ms
        line = (
            f"baseOffset: {batch.base_offset} lastOffset: {batch.last_offset} "
            f"count: {batch.count} baseSequence: {batch.base_sequence} "
            f"lastSequence: {batch.last_sequence} producerId: {batch.producer_id} "
            f"producerEpoch: {batch.producer_epoch} partitionLeaderEpoch: {batch.leader_epoch} "
            f"isTransactional: {_boolean(batch.is_transactional)} "
            f"isControl: {_boolean(batch.is_control)} "
            f"deleteHorizonMs: {_optional(-1 if horizon is None else horizon)}"
        )
    else:
        line = f"offset: {batch.last_offset}"
    return (
        f"{line} position: {position} {_time_type(batch)}: {batch.max_timestamp} "
        f"size: {batch.size} magic: {batch.magic} compresscodec: {batch.compression.name} "
        f"crc: {batch.crc} isvalid: {_boolean(batch.is_valid_crc())}"
    )


def _record_line(batch: AnyBatch, record: AnyRecord, printing: Printing) -> str:
    is_control = isinstance(batch, RecordBatch) and batch.is_control
    line = ""
    if printing.metadata:
        line = (
            f"| offset: {record.offset} {_time_type(batch)}: {record.timestamp} "
            f"keySize: {_size(record.key)} valueSize: {_size(record.value)}"
        )
        if isinstance(record, Record):
            assert isinstance(batch, RecordBatch)
            sequence = batch.base_sequence
            if sequence >= 0:
                sequence = sequence + record.offset - batch.base_offset & 0x7FFFFFFF
            names = ",".join(name for name, _ in record.headers)
            line += f" sequence: {sequence} headerKeys: [{names}]"
            if batch.is_control:
                line += f" {control_records.text(record)}"
        else:
            line += f" isValid: {_boolean(record.is_valid_crc)} crc: {record.crc}"
    if printing.contents and not is_control:
        if record.key is not None:
            line += f"{' ' if line else '| '}key: {printing.key(record.key)}"
        if record.value is not None:
            line += f"{' ' if line else '| '}payload: {printing.value(record.value)}"
    return line


def _time_type(batch: AnyBatch) -> str:
    if batch.magic == 0:
        return "NoTimestampType"
    return "LogAppendTime" if batch.timestamp_type else "CreateTime"


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _boolean(value: bool) -> str:
    return "true" if value else "false"


def _optional(value: int) -> str:
    """As Java prints an OptionalLong; negative stands for none."""
    return "OptionalLong.empty" if value < 0 else f"OptionalLong[{value}]"
