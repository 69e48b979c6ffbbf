"""Messages of format versions 0 and 1 are read as the brokers of their day wrote them."""

import struct
import zlib

import pytest

from kcli.segments.old_messages import OldBatch
from kserver.errors import ProtocolError
from kserver.wire.compression import Compression, compress


def field(data):
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def message(offset, key, value, magic=1, attributes=0, timestamp=1000):
    body = struct.pack(">bb", magic, attributes)
    body += struct.pack(">q", timestamp) if magic else b""
    body += field(key) + field(value)
    return struct.pack(">qiI", offset, 4 + len(body), zlib.crc32(body)) + body


def batch(data):
    return OldBatch(memoryview(data))


@pytest.mark.parametrize(("magic", "timestamp"), [(0, -1), (1, 1000)])
def test_a_message_is_a_record(magic, timestamp):
    one = batch(message(7, b"k", None, magic))
    assert (one.last_offset, one.magic, one.max_timestamp, one.is_valid_crc()) == (
        7,
        magic,
        timestamp,
        True,
    )
    assert [tuple(record) for record in one.records()] == [
        (7, timestamp, b"k", None, one.crc, True)
    ]


def test_a_changed_byte_shows():
    data = bytearray(message(7, None, b"value"))
    data[-1] ^= 1
    assert not batch(data).is_valid_crc()


def test_offsets_inside_a_wrapper_of_version_1_count_up_to_its_own():
    inner = b"".join(message(n, None, b"%d" % n, timestamp=n) for n in range(3))
    packed = message(12, None, compress(Compression.gzip, inner), attributes=Compression.gzip)
    records = batch(packed).records()
    assert [(r.offset, r.timestamp, r.value) for r in records] == [
        (10, 0, b"0"),
        (11, 1, b"1"),
        (12, 2, b"2"),
    ]


def test_offsets_inside_a_wrapper_of_version_0_are_absolute():
    inner = b"".join(message(n, None, b"x", magic=0) for n in (10, 12))
    packed = message(12, None, compress(Compression.gzip, inner), 0, Compression.gzip)
    assert [record.offset for record in batch(packed).records()] == [10, 12]


def test_append_time_of_a_wrapper_is_that_of_its_records():
    inner = message(0, None, b"x", timestamp=5)
    packed = message(
        3, None, compress(Compression.gzip, inner), attributes=0x08 | Compression.gzip, timestamp=99
    )
    assert [record.timestamp for record in batch(packed).records()] == [99]


@pytest.mark.parametrize("cut", [5, 16, 20, 30])
def test_a_cut_message_is_no_message(cut):
    with pytest.raises(ProtocolError):
        batch(message(7, b"key", b"value")[:cut])


def test_a_field_longer_than_its_message_is_refused():
    data = bytearray(message(7, None, b"value"))
    struct.pack_into(">i", data, len(data) - 9, 1 << 30)
    with pytest.raises(ProtocolError):
        batch(data)
