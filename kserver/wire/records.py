"""Encoding of the records within a batch: the hot loops of consumers and producers.

Pure: values and bytes only.

    record: varint length, int8 attributes (none), varlong timestamp delta, varint offset delta,
            varint key length (-1: null), key, varint value length (-1: null), value,
            varint count of headers, each a varint key length, key, varint value length, value

Varints of one and two bytes are decoded inline, as a call for each would halve the speed.  The
module is plain typed code that mypyc can compile: see setup.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from kserver.errors import ProtocolError
from kserver.wire import varint

MIN_RECORD_BYTES = 7
PART_BYTES = 1 << 20
"""Bytes of a batch that are decoded at a time, unless a single record is larger."""
MAX_LENGTH_BYTES = 5
NULL = 1
"""Length -1, zigzag-encoded."""

Headers = Sequence[tuple[str, bytes | None]]
NewRecord = tuple[int, bytes | None, bytes | None, Headers]
"""Timestamp in ms, key, value, headers."""
Row = tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
"""Offset, timestamp in ms, key, value, headers.  A plain tuple, which Python creates and collects
fastest."""

_INT64 = range(-(1 << 63), 1 << 63)
_FAR_FROM_OVERFLOW = range(-(1 << 62), 1 << 62)

# Lengths by zigzag encoding in one or two bytes.  A negative one maps past any end, where the next
# read or comparison fails.
_PAST_ANY_END = 1 << 40
_LENGTHS = [_PAST_ANY_END] * (1 << 14)
_LENGTHS[::2] = range(1 << 13)
# By first byte + 128 * second byte, as the high bit of the first is set.
_LENGTHS_OF_TWO = [_PAST_ANY_END] * 128 + _LENGTHS


class RecordReader:
    """Reads the records of one batch in parts; `remaining` is the number of records still to read.

    If `append_time` is set, it is every record's timestamp.  The constructor and the methods raise
    ProtocolError if the bytes do not match the batch's header.
    """

    __slots__ = (
        "_append_time",
        "_at",
        "_base_offset",
        "_base_timestamp",
        "_data",
        "_end_offset",
        "_names",
        "_next_delta",
        "remaining",
    )

    def __init__(
        self,
        data: bytes,
        count: int,
        base_offset: int,
        last_offset_delta: int,
        base_timestamp: int,
        append_time: int | None,
    ) -> None:
        if not 0 <= count <= len(data) // MIN_RECORD_BYTES or (data and not count):
            raise ProtocolError(f"{count} records in {len(data)} bytes")
        if last_offset_delta < count - 1:
            raise ProtocolError(f"{count} records up to offset {last_offset_delta} of the batch")
        self.remaining = count
        self._data = data
        self._at = 0
        self._base_offset = base_offset
        self._end_offset = base_offset + last_offset_delta + 1
        self._base_timestamp = base_timestamp
        self._append_time = append_time
        self._next_delta = 0
        self._names: dict[bytes, str] = {}

    def take(self, most: int, most_bytes: int = PART_BYTES) -> list[Row]:
        """Return the next records, at most `most`, and none after those that reach `most_bytes`."""
        full_at = self._at + most_bytes
        # Estimated number of records that reach it, if they all have the same size.
        few = max(1, most_bytes * self.remaining // max(1, len(self._data) - self._at))
        rows: list[Row] = []
        try:
            while self.remaining and len(rows) < most and self._at < full_at:
                count = min(few, most - len(rows), self.remaining)
                rows += self._read(count)
                self.remaining -= count
        except IndexError as error:
            raise ProtocolError("truncated record") from error
        if self._at > len(self._data) or (not self.remaining and self._at < len(self._data)):
            raise ProtocolError("the last record does not end where the batch does")
        if rows and (rows[-1][0] >= self._end_offset or rows[-1][0] not in _INT64):
            raise ProtocolError("a record past the batch's last offset")
        return rows

    def _read(self, count: int) -> list[Row]:
        """Read records.  A read past the end raises IndexError, or fails where lengths are
        compared."""
        data, at = self._data, self._at
        base_offset, next_delta = self._base_offset, self._next_delta
        base_timestamp, append_time = self._base_timestamp, self._append_time
        has_deltas = append_time is None
        if append_time is not None:
            base_timestamp = append_time
        near_overflow = base_timestamp not in _FAR_FROM_OVERFLOW
        lengths, lengths_of_two, null = _LENGTHS, _LENGTHS_OF_TWO, NULL
        rows: list[Row] = []
        append = rows.append
        offset = base_offset + next_delta // 2 - 1
        key: bytes | None
        value: bytes | None
        headers: tuple[tuple[str, bytes | None], ...] = ()
        # Headers are often identical to those of the record before.
        known_headers = b"\0"
        last_headers: tuple[tuple[str, bytes | None], ...] = ()
        for _ in range(count):
            # Length of the record.
            if (size := data[at]) < 0x80:
                at += 1
                size = lengths[size]
            elif (high := data[at + 1]) < 0x80:
                at += 2
                size = lengths_of_two[size + high * 128]
            else:
                size, at = long_length(data, at)
            end = at + size

            # Timestamp delta, after the byte of attributes, which are all unused.
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

            # Offset delta, compared as it is encoded.
            if (delta := data[at]) < 0x80:
                at += 1
            elif (high := data[at + 1]) < 0x80:
                at += 2
                delta += high * 128 - 128
            else:
                size, at = long_length(data, at)
                delta = 2 * size
            offset += 1
            if delta != next_delta:
                # Compaction left a gap.
                if delta < next_delta or delta & 1:
                    raise ProtocolError("records whose offsets do not ascend")
                next_delta = delta
                offset = base_offset + delta // 2
            next_delta += 2

            # Key.
            if (size := data[at]) == null:
                at += 1
                key = None
            else:
                if size < 0x80:
                    at += 1
                    size = lengths[size]
                elif (high := data[at + 1]) < 0x80:
                    at += 2
                    size = lengths_of_two[size + high * 128]
                else:
                    size, at = long_length(data, at)
                stop = at + size
                key = data[at:stop]
                at = stop

            # Value.
            if (size := data[at]) == null:
                at += 1
                value = None
            else:
                if size < 0x80:
                    at += 1
                    size = lengths[size]
                elif (high := data[at + 1]) < 0x80:
                    at += 2
                    size = lengths_of_two[size + high * 128]
                else:
                    size, at = long_length(data, at)
                stop = at + size
                value = data[at:stop]
                at = stop

            # Headers: none, those of the record before, or others.
            if data[at] == 0:
                at += 1
                headers = ()
            elif end - at == len(known_headers) and data[at:end] == known_headers:
                at = end
                headers = last_headers
            else:
                start = at
                headers, at = self._read_headers(at)
                known_headers, last_headers = data[start:at], headers
            if at != end:
                raise ProtocolError("a record whose length does not match its fields")
            append((offset, timestamp, key, value, headers))
        self._at, self._next_delta = at, next_delta
        if near_overflow and not all(row[1] in _INT64 for row in rows):
            raise ProtocolError("a timestamp of more than 64 bits")
        return rows

    def _read_headers(self, at: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
        data, lengths, names = self._data, _LENGTHS, self._names
        value: bytes | None
        if (count := data[at]) < 0x80:
            at += 1
            count = lengths[count]
        else:
            count, at = long_length(data, at)
        if count > len(data) - at:
            raise ProtocolError("a record with an impossible number of headers")
        headers: list[tuple[str, bytes | None]] = []
        for _ in range(count):
            if (size := data[at]) < 0x80:
                at += 1
                size = lengths[size]
            else:
                size, at = long_length(data, at)
            stop = at + size
            raw = data[at:stop]
            at = stop
            if (name := names.get(raw)) is None:
                # Java's clients also replace bytes that are not UTF-8.
                name = names[raw] = raw.decode(errors="replace")
            if (size := data[at]) == NULL:
                at += 1
                value = None
            else:
                if size < 0x80:
                    at += 1
                    size = lengths[size]
                else:
                    size, at = long_length(data, at)
                stop = at + size
                value = data[at:stop]
                at = stop
            headers.append((name, value))
        return tuple(headers), at


def long_length(data: bytes, at: int) -> tuple[int, int]:
    """Return a length of up to five bytes, and the position after it.  Null never occurs here, as
    it always takes one byte.

    Java's clients reject a sixth byte, even if it is redundant, and would get stuck at the batch.
    """
    zigzag, end = varint.decode_unsigned(data, at)
    if zigzag & 1 or zigzag >> 32 or end - at > MAX_LENGTH_BYTES:
        raise ProtocolError("a length that is negative, or has more than 32 bits or five bytes")
    return zigzag >> 1, end


# Zigzag varints of 0 to 8191: first those of one byte, then those of two.
_VARINTS = [bytes((low,)) for low in range(0, 0x80, 2)]
_VARINTS += [bytes((low, high)) for high in range(1, 0x80) for low in range(0x80, 0x100, 2)]
_TABLED = len(_VARINTS)
_NO_SIZE = -2


def encode_records(records: Sequence[NewRecord]) -> bytes:
    """Encode records, without a batch's header."""
    return encode_and_date(records)[0]


def encode_and_date(records: Sequence[NewRecord]) -> tuple[bytes, int]:
    """Encode records, and return the largest timestamp too.  Offset deltas are relative to 0,
    timestamp deltas to the first record.

    Consecutive records often differ only in their bytes and offsets; then the encoded fields
    between those are reused from the record before.
    """
    table, tabled, encode = _VARINTS, _TABLED, varint.encode
    parts: list[bytes] = []
    base_timestamp = last_timestamp = largest = records[0][0] if records else 0
    head = b"\0\0"  # attributes and timestamp delta
    tail = b"\0"  # headers
    length = key_length = value_length = b""
    key_size = value_size = last_key_size = last_value_size = _NO_SIZE
    last_headers: Headers = ()
    longer_from = 64  # offset from which deltas take one more byte
    for offset, (timestamp, key, value, headers) in enumerate(records):
        delta = table[offset] if offset < tabled else encode(offset)
        key_size = -1 if key is None else len(key)
        value_size = -1 if value is None else len(value)
        if (
            value_size != last_value_size
            or key_size != last_key_size
            or timestamp != last_timestamp
            or headers != last_headers
            or offset == longer_from
        ):
            if offset == longer_from:
                longer_from <<= 7
            if timestamp != last_timestamp:
                last_timestamp = timestamp
                largest = max(largest, timestamp)
                head = b"\0" + encode(timestamp - base_timestamp)
            if headers != last_headers:
                last_headers = headers
                tail = _encode_headers(headers) if headers else b"\0"
            last_key_size, last_value_size = key_size, value_size
            size = len(head) + len(delta) + len(tail)
            if key_size < 0:
                key_length = b"\1"
                size += 1
            else:
                key_length = table[key_size] if key_size < tabled else encode(key_size)
                size += len(key_length) + key_size
            if value_size < 0:
                value_length = b"\1"
                size += 1
            else:
                value_length = table[value_size] if value_size < tabled else encode(value_size)
                size += len(value_length) + value_size
            length = table[size] if size < tabled else encode(size)
        if key is None:
            parts += (length, head, delta, key_length, value_length, value or b"", tail)
        else:
            parts += (length, head, delta, key_length, key, value_length, value or b"", tail)
    return b"".join(parts), largest


def _encode_headers(headers: Headers) -> bytes:
    table, tabled, encode = _VARINTS, _TABLED, varint.encode
    parts: list[bytes] = [encode(len(headers))]
    for name, value in headers:
        if value is None:
            parts += (_encode_name(name), b"\1")
        else:
            size = len(value)
            parts += (_encode_name(name), table[size] if size < tabled else encode(size), value)
    return b"".join(parts)


@lru_cache(1024)
def _encode_name(name: str) -> bytes:
    """Encode a name with its length; cached, as an application has few."""
    raw = name.encode()
    return varint.encode(len(raw)) + raw
