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
from kserver.wire import varint
from kserver.wire.checksum import Buffer, crc32c
from kserver.wire.compression import Compression, compress, decompress

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
MIN_RECORD_BYTES = 7
NULL = 1
"""A length of -1 in zigzag order."""

COMPRESSION_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

Headers = Sequence[tuple[str, bytes | None]]
NewRecord = tuple[int, bytes | None, bytes | None, Headers]
"""Timestamp in ms, key, value, headers."""

_BEFORE_CRC = struct.Struct(">qiiBI")
_UNDER_CRC = struct.Struct(">hiqqqhii")
_INT64 = range(-(1 << 63), 1 << 63)
_FAR_FROM_OVERFLOW = range(-(1 << 62), 1 << 62)


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
        return self._decoded(self.unfolded(limit_bytes), self.count)

    def unfolded(self, limit_bytes: int = MAX_RECORDS_BYTES) -> bytes:
        """The records' bytes, decompressed.  KafkaError(corrupt_message) as for `records`."""
        return decompress(self.compression, self.buffer[HEADER_SIZE:], limit_bytes)

    def records_by_parts(self, unfolded: bytes, most: int = 4096) -> Iterator[list[Record]]:
        """The same records, at most so many at a time, since all that may be in few bytes could
        fill the memory.  ProtocolError as for `records`."""
        left, at, last_offset = self.count, 0, -1
        while left > 0:
            start, taken = at, 0
            # A part of a megabyte is full.
            while taken < min(left, most) and at - start <= 1 << 20 and at < len(unfolded):
                size, at = _long_length(unfolded, at)
                at += size
                taken += 1
            left -= taken
            records = self._decoded(unfolded[start:at], taken)
            if not records or records[0].offset <= last_offset:
                raise ProtocolError("records that are missing, or whose offsets do not ascend")
            last_offset = records[-1].offset
            yield records
        if left or at != len(unfolded):
            raise ProtocolError("the last record does not end where the batch does")

    def _decoded(self, data: bytes, count: int) -> list[Record]:
        try:
            return _decode(
                data,
                count,
                self.base_offset,
                self.last_offset_delta,
                self.base_timestamp,
                self.max_timestamp if self.attributes & LOG_APPEND_TIME else None,
            )
        except IndexError as error:
            raise ProtocolError("a record that is cut short") from error


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


# What a zigzag length of one or two bytes stands for.  A negative one leads past any end, where the
# next read or comparison fails.
_PAST_ANY_END = 1 << 40
_LENGTHS = [_PAST_ANY_END] * (1 << 14)
_LENGTHS[::2] = range(1 << 13)


def _decode(
    data: bytes,
    count: int,
    base_offset: int,
    last_offset_delta: int,
    base_timestamp: int,
    append_time: int | None,
) -> list[Record]:
    """The hot loop of a consumer; `append_time` is every record's timestamp where it is given.

    Varints of one and two bytes are read in place, since a call for each would halve the speed; the
    128 taken off make up for the high bit of the first byte.  What runs over the end raises
    IndexError, or fails where lengths are compared.
    """
    if not 0 <= count <= len(data) // MIN_RECORD_BYTES:
        raise ProtocolError(f"{count} records in {len(data)} bytes")
    has_deltas = append_time is None
    if append_time is not None:
        base_timestamp = append_time
    near_overflow = base_timestamp not in _FAR_FROM_OVERFLOW
    lengths = _LENGTHS
    new = tuple.__new__
    records: list[Record] = []
    append = records.append
    names: dict[bytes, str] = {}
    next_delta = at = 0
    offset = base_offset - 1
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    for _ in range(count):
        if (size := data[at]) < 0x80:
            at += 1
            size = lengths[size]
        elif (high := data[at + 1]) < 0x80:
            at += 2
            size = lengths[size + high * 128 - 128]
        else:
            size, at = _long_length(data, at)
        end = at + size

        # One byte of attributes, of which there are none, comes before the timestamp delta.
        if (delta := data[at + 1]) < 0x80:
            at += 2
        elif (high := data[at + 2]) < 0x80:
            at += 3
            delta += high * 128 - 128
        else:
            delta, at = varint.decode_unsigned(data, at + 1)
            near_overflow = True
        timestamp = base_timestamp
        if delta and has_deltas:
            timestamp += delta >> 1 ^ -(delta & 1)

        if (delta := data[at]) < 0x80:
            at += 1
        elif (high := data[at + 1]) < 0x80:
            at += 2
            delta += high * 128 - 128
        else:
            size, at = _long_length(data, at)
            delta = 2 * size
        offset += 1
        if delta != next_delta:
            # Compaction has left a gap.
            if delta < next_delta or delta & 1:
                raise ProtocolError("records whose offsets do not ascend")
            next_delta = delta
            offset = base_offset + delta // 2
        next_delta += 2

        if (size := data[at]) == NULL:
            at += 1
            key = None
        else:
            if size < 0x80:
                at += 1
                size = lengths[size]
            elif (high := data[at + 1]) < 0x80:
                at += 2
                size = lengths[size + high * 128 - 128]
            else:
                size, at = _long_length(data, at)
            stop = at + size
            key = data[at:stop]
            at = stop

        if (size := data[at]) == NULL:
            at += 1
            value = None
        else:
            if size < 0x80:
                at += 1
                size = lengths[size]
            elif (high := data[at + 1]) < 0x80:
                at += 2
                size = lengths[size + high * 128 - 128]
            else:
                size, at = _long_length(data, at)
            stop = at + size
            value = data[at:stop]
            at = stop

        if data[at] == 0:
            at += 1
            headers = ()
        else:
            headers, at = _decode_headers(data, at, names)
        if at != end:
            raise ProtocolError("a record whose length is not that of its fields")
        # The named tuple's own constructor takes twice as long.
        append(new(Record, (offset, timestamp, key, value, headers)))
    if at != len(data):
        raise ProtocolError("the last record does not end where the batch does")
    if offset > base_offset + last_offset_delta or offset not in _INT64:
        raise ProtocolError("a record past the batch's last offset")
    if near_overflow and not all(record.timestamp in _INT64 for record in records):
        raise ProtocolError("a timestamp of more than 64 bits")
    return records


def _decode_headers(
    data: bytes, at: int, names: dict[bytes, str]
) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    """As `_decode`; `names` holds the names met so far in the batch, which are few."""
    lengths = _LENGTHS
    value: bytes | None
    if (count := data[at]) < 0x80:
        at += 1
        count = lengths[count]
    else:
        count, at = _long_length(data, at)
    if count > len(data) - at:
        raise ProtocolError("a record with an impossible count of headers")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        if (size := data[at]) < 0x80:
            at += 1
            size = lengths[size]
        else:
            size, at = _long_length(data, at)
        stop = at + size
        raw = data[at:stop]
        at = stop
        if (name := names.get(raw)) is None:
            # As Java's clients do with names that are not UTF-8.
            name = names[raw] = raw.decode(errors="replace")
        if (size := data[at]) == NULL:
            at += 1
            value = None
        else:
            if size < 0x80:
                at += 1
                size = lengths[size]
            else:
                size, at = _long_length(data, at)
            stop = at + size
            value = data[at:stop]
            at = stop
        headers.append((name, value))
    return tuple(headers), at


def _long_length(data: bytes, at: int) -> tuple[int, int]:
    """A length in any number of bytes; never null, which nobody writes in more than one."""
    zigzag, at = varint.decode_unsigned(data, at)
    if zigzag & 1 or zigzag >> 32:
        raise ProtocolError("a length that is negative or has more than 32 bits")
    return zigzag >> 1, at


# The zigzag varints of 0 to 8191: all of one byte, then all of two.
_VARINTS = [bytes((low,)) for low in range(0, 0x80, 2)]
_VARINTS += [bytes((low, high)) for high in range(1, 0x80) for low in range(0x80, 0x100, 2)]
_TABLED = len(_VARINTS)


def encode_records(records: Sequence[NewRecord]) -> bytes:
    """The records' bytes, without a batch's header: offset deltas count from 0, timestamps from the
    first record's.  The hot loop of a producer.
    """
    table, tabled, encode = _VARINTS, _TABLED, varint.encode
    parts: list[bytes] = []
    base_timestamp = last_timestamp = records[0][0] if records else 0
    head = b"\0\0"  # attributes and timestamp delta
    for offset, (timestamp, key, value, headers) in enumerate(records):
        if timestamp != last_timestamp:
            last_timestamp = timestamp
            head = b"\0" + encode(timestamp - base_timestamp)
        delta = table[offset] if offset < tabled else encode(offset)
        tail = _encode_headers(headers) if headers else b"\0"
        if value is None:
            size = 0
            value_size = b"\1"
            value = b""
        else:
            size = len(value)
            value_size = table[size] if size < tabled else encode(size)
        size += len(head) + len(delta) + len(value_size) + len(tail)
        if key is None:
            size += 1
            length = table[size] if size < tabled else encode(size)
            parts += (length, head, delta, b"\1", value_size, value, tail)
        else:
            key_bytes = len(key)
            key_size = table[key_bytes] if key_bytes < tabled else encode(key_bytes)
            size += key_bytes + len(key_size)
            length = table[size] if size < tabled else encode(size)
            parts += (length, head, delta, key_size, key, value_size, value, tail)
    return b"".join(parts)


def _encode_headers(headers: Headers) -> bytes:
    table, tabled, encode = _VARINTS, _TABLED, varint.encode
    parts: list[bytes] = [encode(len(headers))]
    for name, value in headers:
        raw = name.encode()
        size = len(raw)
        parts += (table[size] if size < tabled else encode(size), raw)
        if value is None:
            parts.append(b"\1")
        else:
            size = len(value)
            parts += (table[size] if size < tabled else encode(size), value)
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
    """A whole batch of at least one record, checksum included."""
    assert records
    body = encode_records(records)
    if compression:
        body = compress(compression, body, level)
    under_crc = _UNDER_CRC.pack(
        compression
        | (LOG_APPEND_TIME if timestamp_type else 0)
        | (TRANSACTIONAL if transactional else 0)
        | (CONTROL if control else 0),
        len(records) - 1,
        records[0][0],
        max([record[0] for record in records]),
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    length = HEADER_SIZE - LOG_OVERHEAD + len(body)
    crc = crc32c(body, crc32c(under_crc))
    before_crc = _BEFORE_CRC.pack(base_offset, length, leader_epoch, MAGIC, crc)
    return b"".join((before_crc, under_crc, body))


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
