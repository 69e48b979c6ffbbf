"""Record batches of format version 2 (KIP-98), and control records.

A batch is a header of 61 bytes and the records, which may be compressed as a whole:

    base_offset         int64   offset of the first record as it was written
    batch_length        int32   bytes that follow this field
    leader_epoch        int32   of the leader that appended it
    magic               int8    2
    crc                 uint32  CRC-32C of everything that follows
    attributes          int16   bits 0-2 compression, 3 timestamp type, 4 transactional, 5 control,
                                6 delete horizon
    last_offset_delta   int32   of the last record as it was written, kept by compaction
    base_timestamp      int64   base of the records' deltas; the delete horizon if bit 6 is set
    max_timestamp       int64
    producer_id         int64   -1: not idempotent
    producer_epoch      int16
    base_sequence       int32
    count               int32

The CRC does not cover offset and leader epoch, so a leader can set them without a new one.  The
records themselves are in records.py.
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
"""Bytes of base_offset and batch_length, which batch_length does not include."""
MAGIC = 2
MAGIC_AT = 16
CRC_START = 21
"""Position of the first byte that the CRC covers."""
MAX_RECORDS_BYTES = 1 << 28
"""Maximum size of a batch's records after decompression, in bytes."""

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

    Raises ProtocolError if the bytes are not a complete batch of format version 2.
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
        """Size of the batch with its header, in bytes."""
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
        """Sequence of the last record, which wraps from 2^31 - 1 to 0; -1 if there is none."""
        base = self.base_sequence
        return base if base < 0 else (base + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def count(self) -> int:
        return self._fields[12]

    @property
    def compression(self) -> Compression:
        """Compression codec.  Raises ProtocolError if it is unknown."""
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
        """Time from which compaction may remove its tombstones or marker (KIP-534), or None."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None

    def is_valid_crc(self) -> bool:
        return crc32c(self.buffer[CRC_START:]) == self.crc

    def records(self, limit_bytes: int = MAX_RECORDS_BYTES) -> list[Record]:
        """Return all records, decompressed.

        Raises ProtocolError if they do not match the header, and KafkaError(corrupt_message) if
        they cannot be decompressed within `limit_bytes`.
        """
        unfolded = self.unfolded(limit_bytes)
        return named(self.reader(unfolded).take(self.count, len(unfolded)))

    def unfolded(self, limit_bytes: int = MAX_RECORDS_BYTES) -> bytes:
        """Return the records' decompressed bytes.  Raises KafkaError(corrupt_message) like
        `records`."""
        return decompress(self.compression, self.buffer[HEADER_SIZE:], limit_bytes)

    def reader(self, unfolded: bytes) -> RecordReader:
        """Return a reader of the same records as plain tuples, in parts, as few compressed bytes
        may contain enough records to fill the memory.  Raises ProtocolError like `records`."""
        return RecordReader(
            unfolded,
            self.count,
            self.base_offset,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp if self.attributes & LOG_APPEND_TIME else None,
        )

    def records_by_parts(self, unfolded: bytes, most: int = 4096) -> Iterator[list[Record]]:
        """Yield the records of `reader` in parts, as named tuples."""
        reader = self.reader(unfolded)
        while reader.remaining:
            yield named(reader.take(most))


def named(rows: Sequence[Row]) -> list[Record]:
    """Convert rows to named tuples.  The named tuple's own constructor takes twice as long."""
    return list(map(tuple.__new__, repeat(Record), rows))


def batches(buffer: Buffer) -> Iterator[RecordBatch]:
    """Yield the complete batches in order; stop at a truncated one, as at the end of a fetched
    slice.

    Raises ProtocolError for an invalid length or format version.
    """
    position = 0
    while (remaining := len(buffer) - position) >= HEADER_SIZE:
        length = int.from_bytes(buffer[position + 8 : position + LOG_OVERHEAD], signed=True)
        if length + LOG_OVERHEAD > remaining and buffer[position + MAGIC_AT] == MAGIC:
            return
        batch = RecordBatch(buffer, position)
        yield batch
        position += batch.size


def encode_batch(records: Sequence[NewRecord], **fields: Any) -> bytes:
    """Return a complete batch of at least one record, with its checksum; `fields` as for
    `batch_in_two`."""
    return b"".join(batch_in_two(records, **fields))


class EncodedRecords(Sequence[NewRecord]):
    """Records already encoded as by `encode_records`, with their largest and first timestamps.
    Access to a single one takes as long as decoding all."""

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
        records: list[NewRecord] = [
            (r.timestamp, r.key, r.value, r.headers) for r in batch.records()
        ]
        return records[index]


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
    """Return a batch's header and its records separately, as joining them would copy the
    records."""
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
    """Type in a control record's key; every other type is `unknown`."""

    unknown = -1
    abort = 0
    commit = 1


class ControlRecord(NamedTuple):
    type: ControlType
    coordinator_epoch: int


_CONTROL_KEY = struct.Struct(">hh")
_END_TRANSACTION = struct.Struct(">hi")


def end_transaction_marker(commit: bool, coordinator_epoch: int) -> tuple[bytes, bytes]:
    """Return key and value of the control record that ends a transaction."""
    kind = ControlType.commit if commit else ControlType.abort
    return _CONTROL_KEY.pack(0, kind), _END_TRANSACTION.pack(0, coordinator_epoch)


def read_control_record(record: Record) -> ControlRecord:
    """Decode a record of a control batch.  Raises ProtocolError if it is malformed."""
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
