"""Record batches, format version 2 (KIP-98): read, built, and marked with control records.

A batch is a header of 61 bytes and the records, which may be compressed as a whole:

    base_offset         int64   offset of the first record as it was written
    batch_length        int32   bytes that follow this field
    leader_epoch        int32   of the leader that appended it
    magic               int8    2
    crc                 uint32  CRC-32C of all that follows
    attributes          int16   bits 0-2 compression, 3 timestamp type, 4 transactional, 5 control,
                                6 delete horizon
    last_offset_delta   int32   of the last record as it was written, kept by compaction
    base_timestamp      int64   what the records' deltas count from; the delete horizon if bit 6
    max_timestamp       int64
    producer_id         int64   -1: not idempotent
    producer_epoch      int16
    base_sequence       int32
    count               int32

Offset and leader epoch lie before the CRC, so a leader stamps them without a new one.  The records
themselves are in records.py.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Any, NamedTuple, overload

from kserver.errors import ProtocolError
from kserver.wire.checksum import Buffer, crc32c
from kserver.wire.compression import Compression, compress, decompress
from kserver.wire.records import (
    Headers,
    NewRecord,
    RecordReader,
    Row,
    encode_and_date,
    encode_records,
)

__all__ = ["Headers", "NewRecord", "RecordReader", "Row", "encode_records"]

HEADER = struct.Struct(">qiiBIhiqqqhii")
HEADER_SIZE = 61
LOG_OVERHEAD = 12
"""Bytes of base_offset and batch_length, which batch_length does not count."""
MAGIC = 2
MAGIC_AT = 16
CRC_START = 21
"""Where the bytes begin that the CRC covers."""
MAX_RECORDS_BYTES = 1 << 28
"""How large the records of one batch may become when they are decompressed."""

COMPRESSION_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

_BEFORE_CRC = struct.Struct(">qiiBI")
_UNDER_CRC = struct.Struct(">hiqqqhii")


class TimestampType(enum.IntEnum):
    create_time = 0
    log_append_time = 1


class Record(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class RecordBatch:
    """A view over the bytes of one batch.

    Raises ProtocolError where the bytes cannot be a whole batch of format version 2.
    """

    __slots__ = ("_fields", "buffer")

    def __init__(self, buffer: Buffer, position: int = 0) -> None:
        if len(buffer) - position < HEADER_SIZE:
            raise ProtocolError("truncated record batch")
        fields: tuple[int, ...] = HEADER.unpack_from(buffer, position)
        size = fields[1] + LOG_OVERHEAD
        if fields[3] != MAGIC:
            raise ProtocolError(f"a record batch of unknown format version {fields[3]}")
        if not HEADER_SIZE <= size <= len(buffer) - position:
            raise ProtocolError(f"a record batch whose length is {fields[1]}")
        self._fields = fields
        self.buffer = memoryview(buffer)[position : position + size]

    @property
    def base_offset(self) -> int:
        return self._fields[0]

    @property
    def size(self) -> int:
        """All its bytes."""
        return len(self.buffer)

    @property
    def leader_epoch(self) -> int:
        return self._fields[2]

    @property
    def magic(self) -> int:
        return self._fields[3]

    @property
    def crc(self) -> int:
        return self._fields[4]

    @property
    def attributes(self) -> int:
        return self._fields[5]

    @property
    def last_offset_delta(self) -> int:
        return self._fields[6]

    @property
    def last_offset(self) -> int:
        return self._fields[0] + self._fields[6]

    @property
    def next_offset(self) -> int:
        return self.last_offset + 1

    @property
    def base_timestamp(self) -> int:
        return self._fields[7]

    @property
    def max_timestamp(self) -> int:
        return self._fields[8]

    @property
    def producer_id(self) -> int:
        return self._fields[9]

    @property
    def producer_epoch(self) -> int:
        return self._fields[10]

    @property
    def base_sequence(self) -> int:
        return self._fields[11]

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record: after 2^31 - 1 comes 0.  -1 where there is none."""
        base = self.base_sequence
        return base if base < 0 else (base + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def count(self) -> int:
        return self._fields[12]

    @property
    def compression(self) -> Compression:
        """Raises ProtocolError for a codec that does not exist."""
        try:
            return Compression(self.attributes & COMPRESSION_MASK)
        except ValueError as error:
            raise ProtocolError(f"a record batch with {error}") from error

    @property
    def timestamp_type(self) -> TimestampType:
        log_append_time = self.attributes & LOG_APPEND_TIME
        return TimestampType.log_append_time if log_append_time else TimestampType.create_time

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """From when compaction may drop its tombstones or marker (KIP-534)."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None

    def is_valid_crc(self) -> bool:
        return crc32c(self.buffer[CRC_START:]) == self.crc

    def records(self, limit_bytes: int = MAX_RECORDS_BYTES) -> list[Record]:
        """All records, decompressed.

        Raises ProtocolError where they are not what the header says, and
        KafkaError(corrupt_message) where they cannot be decompressed to `limit_bytes`.
        """
        unfolded = self.unfolded(limit_bytes)
        return named(self.reader(unfolded).take(self.count, len(unfolded)))

    def unfolded(self, limit_bytes: int = MAX_RECORDS_BYTES) -> bytes:
        """The records' bytes, decompressed.  KafkaError(corrupt_message) as for `records`."""
        return decompress(self.compression, self.buffer[HEADER_SIZE:], limit_bytes)

    def reader(self, unfolded: bytes) -> RecordReader:
        """For the same records as plain tuples, some at a time, since all that may be in few
        compressed bytes could fill the memory.  ProtocolError as for `records`.
        """
        return RecordReader(
            unfolded,
            self.count,
            self.base_offset,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp if self.attributes & LOG_APPEND_TIME else None,
        )

    def records_by_parts(self, unfolded: bytes, most: int = 4096) -> Iterator[list[Record]]:
        """What `reader` gives, with names."""
        reader = self.reader(unfolded)
        while reader.left:
            yield named(reader.take(most))


def named(rows: Sequence[Row]) -> list[Record]:
    """The same with names.  The named tuple's own constructor takes twice as long."""
    return list(map(tuple.__new__, repeat(Record), rows))


def batches(buffer: Buffer) -> Iterator[RecordBatch]:
    """The complete batches in order; a cut one ends them, as a fetched slice may.

    Raises ProtocolError for a length or format version that no batch has.
    """
    position = 0
    while (left := len(buffer) - position) >= HEADER_SIZE:
        length = int.from_bytes(buffer[position + 8 : position + LOG_OVERHEAD], signed=True)
        if length + LOG_OVERHEAD > left and buffer[position + MAGIC_AT] == MAGIC:
            return
        batch = RecordBatch(buffer, position)
        yield batch
        position += batch.size


def encode_batch(records: Sequence[NewRecord], **fields: Any) -> bytes:
    """A whole batch of at least one record, checksum included; `fields` as `batch_in_two` takes
    them.
    """
    return b"".join(batch_in_two(records, **fields))


class EncodedRecords(Sequence[NewRecord]):
    """Records as `encode_records` makes them, made elsewhere; `largest` is their last timestamp,
    `first` that of the first.  To look at single ones takes as long as to read them all.
    """

    __slots__ = ("body", "first", "largest", "number")

    def __init__(self, body: bytes, number: int, first: int, largest: int) -> None:
        self.body = body
        self.number = number
        self.first = first
        self.largest = largest

    def __len__(self) -> int:
        return self.number

    @overload
    def __getitem__(self, index: int) -> NewRecord: ...
    @overload
    def __getitem__(self, index: slice) -> list[NewRecord]: ...
    def __getitem__(self, index: int | slice) -> NewRecord | list[NewRecord]:
        batch = RecordBatch(b"".join(batch_in_two(self)))
        found: list[NewRecord] = [(r.timestamp, r.key, r.value, r.headers) for r in batch.records()]
        return found[index]


def batch_in_two(
    records: Sequence[NewRecord],
    *,
    base_offset: int = 0,
    compression: Compression = Compression.none,
    level: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    leader_epoch: int = -1,
    timestamp_type: TimestampType = TimestampType.create_time,
) -> tuple[bytes, bytes]:
    """A batch's header and its records, apart: to join them would copy the records once more."""
    assert records
    if isinstance(records, EncodedRecords):
        body, base_timestamp, max_timestamp = records.body, records.first, records.largest
    else:
        body, max_timestamp = encode_and_date(records)
        base_timestamp = records[0][0]
    if compression:
        body = compress(compression, body, level)
    under_crc = _UNDER_CRC.pack(
        compression
        | (LOG_APPEND_TIME if timestamp_type else 0)
        | (TRANSACTIONAL if transactional else 0)
        | (CONTROL if control else 0),
        len(records) - 1,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    length = HEADER_SIZE - LOG_OVERHEAD + len(body)
    crc = crc32c(body, crc32c(under_crc))
    before_crc = _BEFORE_CRC.pack(base_offset, length, leader_epoch, MAGIC, crc)
    return before_crc + under_crc, body


class ControlType(enum.IntEnum):
    """What a control record's key says; every other type is `unknown`."""

    unknown = -1
    abort = 0
    commit = 1


class ControlRecord(NamedTuple):
    type: ControlType
    coordinator_epoch: int


_CONTROL_KEY = struct.Struct(">hh")
_END_TRANSACTION = struct.Struct(">hi")


def end_transaction_marker(commit: bool, coordinator_epoch: int) -> tuple[bytes, bytes]:
    """Key and value of the control record that ends a transaction."""
    kind = ControlType.commit if commit else ControlType.abort
    return _CONTROL_KEY.pack(0, kind), _END_TRANSACTION.pack(0, coordinator_epoch)


def read_control_record(record: Record) -> ControlRecord:
    """What a record of a control batch says; raises ProtocolError for broken ones."""
    try:
        version, kind = _CONTROL_KEY.unpack_from(record.key or b"")
        if version < 0:
            raise ProtocolError(f"a control record of version {version}")
        if kind not in (ControlType.abort, ControlType.commit):
            return ControlRecord(ControlType.unknown, -1)
        _version, coordinator_epoch = _END_TRANSACTION.unpack_from(record.value or b"")
    except struct.error as error:
        raise ProtocolError("truncated control record") from error
    return ControlRecord(ControlType(kind), coordinator_epoch)
