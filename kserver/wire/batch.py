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

    record: varint length, int8 attributes (none), varlong timestamp delta, varint offset delta,
            varint key length (-1: null), key, varint value length (-1: null), value,
            varint count of headers, each a varint key length, key, varint value length, value

Offset and leader epoch lie before the CRC, so a leader stamps them without a new one.
The module is plain typed code that mypyc can compile as it stands.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from kserver.errors import ProtocolError
from kserver.wire import compression, varint
from kserver.wire.checksum import Buffer, crc32c
from kserver.wire.compression import Compression

HEADER = struct.Struct(">qiiBIhiqqqhii")
HEADER_SIZE = 61
LOG_OVERHEAD = 12
"""Bytes of base_offset and batch_length, which batch_length does not count."""
MAGIC = 2
CRC_START = 21
"""Where the bytes begin that the CRC covers."""
MAX_RECORDS_BYTES = 1 << 28
"""How large the records of one batch may become when they are decompressed."""
MIN_RECORD_BYTES = 7

COMPRESSION_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

Headers = Sequence[tuple[str, bytes | None]]
NewRecord = tuple[int, bytes | None, bytes | None, Headers]
"""Timestamp in ms, key, value, headers."""

_CRC_FIELD = struct.Struct(">I")


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
            raise ProtocolError("a record batch that is cut short")
        fields = HEADER.unpack_from(buffer, position)
        size = fields[1] + LOG_OVERHEAD
        if fields[3] != MAGIC:
            raise ProtocolError(f"a record batch of unknown format version {fields[3]}")
        if not HEADER_SIZE <= size <= len(buffer) - position:
            raise ProtocolError(f"a record batch whose length is {fields[1]}")
        self._fields = fields
        self.buffer = memoryview(buffer)[position : position + size]

    @property
    def base_offset(self) -> int:
        return int(self._fields[0])

    @property
    def size(self) -> int:
        """All its bytes."""
        return len(self.buffer)

    @property
    def leader_epoch(self) -> int:
        return int(self._fields[2])

    @property
    def magic(self) -> int:
        return int(self._fields[3])

    @property
    def crc(self) -> int:
        return int(self._fields[4])

    @property
    def attributes(self) -> int:
        return int(self._fields[5])

    @property
    def last_offset_delta(self) -> int:
        return int(self._fields[6])

    @property
    def last_offset(self) -> int:
        return int(self._fields[0] + self._fields[6])

    @property
    def next_offset(self) -> int:
        return self.last_offset + 1

    @property
    def base_timestamp(self) -> int:
        return int(self._fields[7])

    @property
    def max_timestamp(self) -> int:
        return int(self._fields[8])

    @property
    def producer_id(self) -> int:
        return int(self._fields[9])

    @property
    def producer_epoch(self) -> int:
        return int(self._fields[10])

    @property
    def base_sequence(self) -> int:
        return int(self._fields[11])

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record: after 2^31 - 1 comes 0.  -1 where there is none."""
        base = self.base_sequence
        return base if base < 0 else (base + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def count(self) -> int:
        return int(self._fields[12])

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
        codec = self.compression
        data = compression.decompress(codec, self.buffer[HEADER_SIZE:], limit_bytes)
        try:
            return _decode(
                data,
                self.count,
                self.base_offset,
                self.last_offset_delta,
                self.base_timestamp,
                self.max_timestamp if self.attributes & LOG_APPEND_TIME else None,
            )
        except (IndexError, UnicodeDecodeError) as error:
            raise ProtocolError(f"a broken record: {error}") from error


def batches(buffer: Buffer) -> Iterator[RecordBatch]:
    """The complete batches in order; a cut one ends them, as a fetched slice may.

    Raises ProtocolError for a length or format version that no batch has.
    """
    position, end = 0, len(buffer)
    while end - position >= HEADER_SIZE:
        length = int.from_bytes(buffer[position + 8 : position + LOG_OVERHEAD], signed=True)
        whole = position + LOG_OVERHEAD + length <= end
        if not whole and buffer[position + 16] == MAGIC:
            return
        batch = RecordBatch(buffer, position)
        yield batch
        position += batch.size


def _decode(
    data: bytes,
    count: int,
    base_offset: int,
    last_offset_delta: int,
    base_timestamp: int,
    append_time: int | None,
) -> list[Record]:
    """The hot loop of a consumer: one- and two-byte varints are read in place.

    `append_time` stands for every timestamp where it is given.
    """
    if not 0 <= count <= len(data) // MIN_RECORD_BYTES:
        raise ProtocolError(f"a record batch of {len(data)} bytes with {count} records")
    records: list[Record] = []
    at = 0
    previous = -1
    for _ in range(count):
        size, at = _read_int(data, at)
        end = at + size
        at += 1
        delta, at = varint.decode(data, at)
        timestamp = base_timestamp + delta if append_time is None else append_time
        delta, at = _read_int(data, at)
        if not previous < delta <= last_offset_delta:
            raise ProtocolError(f"a record with offset delta {delta} after {previous}")
        previous = delta
        size, at = _read_int(data, at)
        key = None
        if size >= 0:
            key = data[at : at + size]
            at += size
        elif size != -1:
            raise ProtocolError("a record with a negative key length")
        size, at = _read_int(data, at)
        value = None
        if size >= 0:
            value = data[at : at + size]
            at += size
        elif size != -1:
            raise ProtocolError("a record with a negative value length")
        size, at = _read_int(data, at)
        headers: tuple[tuple[str, bytes | None], ...] = ()
        if size:
            headers, at = _decode_headers(data, at, size)
        if at != end or at > len(data):
            raise ProtocolError("a record whose length is not that of its fields")
        records.append(Record(base_offset + delta, timestamp, key, value, headers))
    if at != len(data):
        raise ProtocolError("bytes after the last record")
    return records


def _decode_headers(
    data: bytes, at: int, count: int
) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    if not 0 <= count <= (len(data) - at) // 2:
        raise ProtocolError(f"a record with {count} headers")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        size, at = _read_int(data, at)
        if size < 0:
            raise ProtocolError("a header without a key")
        key = data[at : at + size].decode()
        at += size
        size, at = _read_int(data, at)
        value = None
        if size >= 0:
            value = data[at : at + size]
            at += size
        elif size != -1:
            raise ProtocolError("a header with a negative value length")
        headers.append((key, value))
    return tuple(headers), at


def _read_int(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag varint of 32 bits."""
    number, at = varint.decode(data, at)
    if not -0x80000000 <= number <= 0x7FFFFFFF:
        raise ProtocolError("a varint of more than 32 bits")
    return number, at


def encode_records(records: Sequence[NewRecord]) -> bytes:
    """The records' bytes, without a batch's header: offset deltas count from 0, timestamps from the
    first record's.  The hot loop of a producer.
    """
    encode = varint.encode
    parts: list[bytes] = []
    base_timestamp = records[0][0] if records else 0
    for delta, (timestamp, key, value, headers) in enumerate(records):
        body = [b"\0", encode(timestamp - base_timestamp), encode(delta)]
        body += [b"\x01"] if key is None else [encode(len(key)), key]
        body += [b"\x01"] if value is None else [encode(len(value)), value]
        body += [_encode_headers(headers) if headers else b"\0"]
        record = b"".join(body)
        parts += (encode(len(record)), record)
    return b"".join(parts)


def _encode_headers(headers: Headers) -> bytes:
    encode = varint.encode
    parts = [encode(len(headers))]
    for key, value in headers:
        name = key.encode()
        parts += (encode(len(name)), name)
        parts += (b"\x01",) if value is None else (encode(len(value)), value)
    return b"".join(parts)


def encode_batch(
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
) -> bytes:
    """A whole batch, checksum included."""
    body = encode_records(records)
    if compression:
        body = _compress(compression, body, level)
    timestamps = [record[0] for record in records]
    attributes = (
        compression
        | (LOG_APPEND_TIME if timestamp_type else 0)
        | (TRANSACTIONAL if transactional else 0)
        | (CONTROL if control else 0)
    )
    header = bytearray(HEADER_SIZE)
    HEADER.pack_into(
        header,
        0,
        base_offset,
        HEADER_SIZE - LOG_OVERHEAD + len(body),
        leader_epoch,
        MAGIC,
        0,
        attributes,
        len(records) - 1,
        timestamps[0] if timestamps else -1,
        max(timestamps, default=-1),
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    batch = header + body
    _CRC_FIELD.pack_into(batch, 17, crc32c(memoryview(batch)[CRC_START:]))
    return bytes(batch)


_compress = compression.compress


class BatchBuilder:
    """Collects records for one batch."""

    __slots__ = ("records", "size")

    def __init__(self) -> None:
        self.records: list[NewRecord] = []
        self.size = HEADER_SIZE
        """An upper bound of the batch's bytes before compression."""

    def __len__(self) -> int:
        return len(self.records)

    def append(
        self, timestamp: int, key: bytes | None, value: bytes | None, headers: Headers = ()
    ) -> int:
        """Takes one record; the new `size`."""
        self.records.append((timestamp, key, value, headers))
        self.size += record_size_limit(key, value, headers)
        return self.size

    def build(self, **fields: Any) -> bytes:
        """The batch; `fields` as `encode_batch` takes them."""
        return encode_batch(self.records, **fields)


def record_size_limit(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """An upper bound of one record's bytes."""
    size = 36 + (len(key) if key else 0) + (len(value) if value else 0)
    for name, content in headers:
        size += 10 + 3 * len(name) + (len(content) if content else 0)
    return size


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
        raise ProtocolError("a control record that is cut short") from error
    return ControlRecord(ControlType(kind), coordinator_epoch)
