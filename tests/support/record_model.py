"""Records and batches of any kind, for tests of the codec: strategies, and a second implementation
of the format, byte by byte and slow.
"""

from __future__ import annotations

import io

from hypothesis import strategies as st

from kserver.wire.batch import CRC_START, HEADER, HEADER_SIZE, Record
from kserver.wire.checksum import crc32c

NOW = 1_700_000_000_000
FIELDS = [
    "base_offset",
    "batch_length",
    "leader_epoch",
    "magic",
    "crc",
    "attributes",
    "last_offset_delta",
    "base_timestamp",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "count",
]

bytes_or_null = st.none() | st.binary(max_size=40) | st.sampled_from([bytes(64), bytes(8192)])
headers = st.lists(st.tuples(st.text(max_size=5), bytes_or_null), max_size=3).map(tuple)
timestamps = st.integers(NOW - 10_000, NOW + 10_000) | st.integers(-(1 << 61), 1 << 61)
records = st.lists(st.tuples(timestamps, bytes_or_null, bytes_or_null, headers), max_size=8)


class Refused(Exception):
    pass


def slow_varint(number, size=0):
    """Encode in at least `size` bytes, as an encoder that reserves space first may do."""
    zigzag = 2 * number if number >= 0 else -2 * number - 1
    out = []
    while zigzag > 0x7F or len(out) + 1 < size:
        out.append(zigzag % 0x80 + 0x80)
        zigzag //= 0x80
    return bytes([*out, zigzag])


def slow_read(source, size):
    data = source.read(size)
    if len(data) != size:
        raise Refused
    return data


def slow_read_varint(source, bits=32):
    zigzag = 0
    for place in range(5 if bits == 32 else 10):
        (byte,) = slow_read(source, 1)
        zigzag += byte % 0x80 * 0x80**place
        if byte < 0x80:
            break
    else:
        raise Refused
    if zigzag >= 2**bits:
        raise Refused
    return zigzag // 2 if zigzag % 2 == 0 else -(zigzag + 1) // 2


def slow_read_bytes(source, nullable=True):
    start = source.tell()
    size = slow_read_varint(source)
    if size == -1 and nullable and source.tell() == start + 1:
        return None
    if size < 0:
        raise Refused
    return slow_read(source, size)


def slow_decode(data, base_offset, base_timestamp, count, last_offset_delta, append_time=None):
    if count < 0 or last_offset_delta < count - 1:
        raise Refused
    source = io.BytesIO(data)
    found = []
    before = -1
    for _ in range(count):
        size = slow_read_varint(source)
        if size < 0:
            raise Refused
        start = source.tell()
        slow_read(source, 1)
        timestamp = base_timestamp + slow_read_varint(source, bits=64)
        if append_time is not None:
            timestamp = append_time
        delta = slow_read_varint(source)
        if not before < delta <= last_offset_delta or not -(2**63) <= timestamp < 2**63:
            raise Refused
        if base_offset + delta >= 2**63:
            raise Refused
        before = delta
        key, value = slow_read_bytes(source), slow_read_bytes(source)
        names = []
        header_count = slow_read_varint(source)
        if header_count < 0:
            raise Refused
        for _ in range(header_count):
            name = slow_read_bytes(source, nullable=False)
            names.append((name.decode(errors="replace"), slow_read_bytes(source)))
        if source.tell() != start + size:
            raise Refused
        found.append(Record(base_offset + delta, timestamp, key, value, tuple(names)))
    if source.read():
        raise Refused
    return found


def slow_encode(new, deltas=None, padding=0, attributes=0):
    """Return the records' bytes; every varint that is not a null takes at least `padding` bytes."""

    def counted(data):
        return b"\x01" if data is None else slow_varint(len(data), padding) + data

    out = []
    for delta, (timestamp, key, value, names) in zip(deltas or range(len(new)), new, strict=True):
        body = bytes([attributes])
        body += slow_varint(timestamp - new[0][0], padding) + slow_varint(delta, padding)
        body += counted(key) + counted(value) + slow_varint(len(names), padding)
        for name, content in names:
            body += counted(name.encode()) + counted(content)
        out.append(slow_varint(len(body), padding) + body)
    return b"".join(out)


def sealed(body, **fields):
    """Return a batch of any bytes with a correct length and checksum."""
    header = dict.fromkeys(FIELDS, 0) | {
        "batch_length": HEADER_SIZE - 12 + len(body),
        "magic": 2,
        "producer_id": -1,
    }
    batch = bytearray(HEADER.pack(*(header | fields).values()) + body)
    batch[17:21] = crc32c(batch[CRC_START:]).to_bytes(4)
    return bytes(batch)


def changed(body, edits):
    body = bytearray(body)
    for kind, place, byte in edits:
        at = place % (len(body) + 1)
        match kind:
            case "set":
                body[at : at + 1] = [byte]
            case "insert":
                body[at:at] = [byte]
            case "remove":
                del body[at : at + 1]
            case "cut":
                del body[at:]
    return bytes(body)


edits = st.lists(
    st.tuples(
        st.sampled_from(["set", "set", "insert", "remove", "cut"]),
        st.integers(0, 1 << 16),
        st.integers(0, 255) | st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]),
    ),
    max_size=3,
)
