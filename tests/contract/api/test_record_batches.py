"""Test which batches a broker accepts from a producer, and that accepted batches can be read.

The table has the responses of Apache 4.3.1, which `BROKERS=4.3.1` verifies. Where our broker
differs, it is listed in DIFFERENCES and in the module docstring of log/validator.py.
"""

import gzip
import struct
import zlib

import cramjam
import lz4.frame
import pytest

from kserver.errors import ErrorCode
from kserver.wire import varint
from kserver.wire.batch import (
    DELETE_HORIZON,
    HEADER,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    batches,
    encode_records,
)
from kserver.wire.checksum import crc32c
from kserver.wire.compression import Compression, compress
from tests.contract.api.calls import fetch, produce
from tests.support.brokers import OURS

PRODUCE_VERSION, FETCH_VERSION = 9, 12
TIME = 1_000
RECORDS = [(TIME, b"k%d" % n, b"a value, number %d" % n, ()) for n in range(3)]
LARGE_RECORDS = [(TIME, b"k%d" % n, b"%07d" % n * 20_000, ()) for n in range(3)]
BODY, LARGE = encode_records(RECORDS), encode_records(LARGE_RECORDS)
HALF = 30
GZIP, SNAPPY, LZ4, ZSTD = list(Compression)[1:]

ACCEPTED = ErrorCode.none
UNREADABLE = ErrorCode.unknown_server_error
INVALID, INVALID_TIME = ErrorCode.invalid_record, ErrorCode.invalid_timestamp

SKIPPABLE = b"\x50\x2a\x4d\x18\4\0\0\0skip"
GZIP_HEADER = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
XERIAL = struct.pack(">8sii", b"\x82SNAPPY\x00", 1, 1)


def forged(body=BODY, attributes=0, *, count=3, time=TIME, max_timestamp=None, tail=b"", **fields):
    header = {
        "base_offset": 0,
        "batch_length": HEADER.size - LOG_OVERHEAD + len(body),
        "leader_epoch": -1,
        "magic": 2,
        "crc": 0,
        "attributes": attributes,
        "last_offset_delta": count - 1,
        "base_timestamp": time,
        "max_timestamp": time if max_timestamp is None else max_timestamp,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "count": count,
    } | fields
    data = bytearray(HEADER.pack(*header.values()) + body)
    struct.pack_into(">I", data, 17, crc32c(data[21:]))
    return bytes(data) + tail


def framed(data, **options):
    return lz4.frame.compress(data, **({"block_linked": False, "store_size": False} | options))


def block(data):
    packed = bytes(cramjam.snappy.compress_raw(data))
    return len(packed).to_bytes(4) + packed


def zstd(data):
    return bytes(cramjam.zstd.compress(data))


def of_a_dictionary(data):
    """Return a zstd frame of one raw block that refers to dictionary 1."""
    size = len(data)
    return b"\x28\xb5\x2f\xfd\x21\1" + bytes([size]) + (size << 3 | 1).to_bytes(3, "little") + data


def numbered(*deltas):
    """Return records with these offset deltas."""
    records = [b"\0\0" + varint.encode(delta) + b"\2k\2v\0" for delta in deltas]
    return b"".join(varint.encode(len(record)) + record for record in records)


def timed(*timestamps):
    return encode_records([(timestamp, b"k", b"v", ()) for timestamp in timestamps])


TABLE = {
    # gzip
    "gzip": (forged(gzip.compress(BODY), GZIP), ACCEPTED),
    "gzip, members": (
        forged(gzip.compress(BODY[:HALF]) + gzip.compress(BODY[HALF:]), GZIP),
        ACCEPTED,
    ),
    "gzip, zeros behind": (forged(gzip.compress(BODY) + bytes(8), GZIP), ACCEPTED),
    "gzip, text behind": (forged(gzip.compress(BODY) + b"text" * 9000, GZIP), ACCEPTED),
    "gzip, a header behind": (forged(gzip.compress(BODY) + GZIP_HEADER, GZIP), ACCEPTED),
    "gzip, a broken member behind": (
        forged(gzip.compress(BODY) + GZIP_HEADER + b"\xff" * 40, GZIP),
        UNREADABLE,
    ),
    "gzip, records behind": (forged(gzip.compress(BODY) * 2, GZIP), INVALID),
    "gzip, a wrong checksum": (
        forged(gzip.compress(BODY)[:-8] + bytes(4) + gzip.compress(BODY)[-4:], GZIP),
        UNREADABLE,
    ),
    "gzip, torn": (forged(gzip.compress(BODY)[:-3], GZIP), UNREADABLE),
    "gzip, reserved flags": (
        forged(b"\x1f\x8b\x08\xe0" + gzip.compress(BODY)[4:], GZIP),
        ACCEPTED,
    ),
    "zlib": (forged(zlib.compress(BODY), GZIP), UNREADABLE),
    "gzip, nothing": (forged(b"", GZIP), UNREADABLE),
    # snappy
    "snappy, a bare block": (forged(bytes(cramjam.snappy.compress_raw(BODY)), SNAPPY), ACCEPTED),
    "snappy, Xerial's": (forged(compress(SNAPPY, BODY), SNAPPY), ACCEPTED),
    "snappy, Xerial's, large": (forged(compress(SNAPPY, LARGE), SNAPPY), ACCEPTED),
    "snappy, one large block": (forged(XERIAL + block(LARGE), SNAPPY), ACCEPTED),
    "snappy, streams": (
        forged(compress(SNAPPY, BODY[:HALF]) + compress(SNAPPY, BODY[HALF:]), SNAPPY),
        ACCEPTED,
    ),
    "snappy, other versions": (
        forged(struct.pack(">8sii", b"\x82SNAPPY\x00", 2, 1) + block(BODY), SNAPPY),
        ACCEPTED,
    ),
    "snappy, an empty block": (forged(XERIAL + block(b"") + block(BODY), SNAPPY), ACCEPTED),
    "snappy, a block of no bytes": (forged(XERIAL + bytes(4) + block(BODY), SNAPPY), UNREADABLE),
    "snappy, a torn size behind": (forged(XERIAL + block(BODY) + b"\0\0", SNAPPY), ACCEPTED),
    "snappy, a torn block": (forged(XERIAL + block(BODY)[:-2], SNAPPY), UNREADABLE),
    "snappy, text behind": (forged(XERIAL + block(BODY) + b"text", SNAPPY), UNREADABLE),
    "snappy, bare blocks": (
        forged(bytes(cramjam.snappy.compress_raw(BODY)) * 2, SNAPPY),
        UNREADABLE,
    ),
    "snappy, Google's frames": (forged(bytes(cramjam.snappy.compress(BODY)), SNAPPY), UNREADABLE),
    "snappy, nothing": (forged(b"", SNAPPY), UNREADABLE),
    # lz4
    "lz4": (forged(framed(BODY), LZ4), ACCEPTED),
    "lz4, large": (forged(framed(LARGE), LZ4), ACCEPTED),
    "lz4, a size": (forged(framed(BODY, store_size=True), LZ4), ACCEPTED),
    "lz4, checksums": (
        forged(framed(LARGE, block_checksum=True, content_checksum=True), LZ4),
        ACCEPTED,
    ),
    "lz4, blocks of 4 MB": (forged(framed(LARGE, block_size=7), LZ4), ACCEPTED),
    "lz4, python-lz4's default": (forged(lz4.frame.compress(LARGE), LZ4), UNREADABLE),
    "lz4, frames": (forged(framed(BODY[:HALF]) + framed(BODY[HALF:]), LZ4), INVALID),
    "lz4, an empty frame first": (forged(framed(b"") + framed(BODY), LZ4), INVALID),
    "lz4, a frame behind": (forged(framed(BODY) + framed(b"more"), LZ4), ACCEPTED),
    "lz4, text behind": (forged(framed(BODY) + b"text", LZ4), ACCEPTED),
    "lz4, a skippable frame behind": (forged(framed(BODY) + SKIPPABLE, LZ4), ACCEPTED),
    "lz4, a skippable frame first": (forged(SKIPPABLE + framed(BODY), LZ4), UNREADABLE),
    "lz4, no end": (forged(framed(BODY)[:-4], LZ4), UNREADABLE),
    "lz4, no checksum": (forged(framed(BODY, content_checksum=True)[:-4], LZ4), UNREADABLE),
    "lz4, a wrong checksum": (
        forged(framed(BODY, content_checksum=True)[:-4] + bytes(4), LZ4),
        ACCEPTED,
    ),
    "lz4, a wrong header": (forged(framed(BODY)[:6] + b"\0" + framed(BODY)[7:], LZ4), UNREADABLE),
    "lz4, nothing": (forged(b"", LZ4), UNREADABLE),
    # zstd
    "zstd": (forged(zstd(BODY), ZSTD), ACCEPTED),
    "zstd, frames": (forged(zstd(BODY[:HALF]) + zstd(BODY[HALF:]), ZSTD), ACCEPTED),
    "zstd, large frames": (forged(zstd(LARGE[:HALF]) + zstd(LARGE[HALF:]), ZSTD), ACCEPTED),
    "zstd, an empty frame first": (forged(zstd(b"") + zstd(BODY), ZSTD), ACCEPTED),
    "zstd, skippable frames": (forged(SKIPPABLE + zstd(BODY) + SKIPPABLE, ZSTD), ACCEPTED),
    "zstd, text behind": (forged(zstd(BODY) + b"text", ZSTD), UNREADABLE),
    "zstd, a magic number behind": (forged(zstd(BODY) + zstd(b"x")[:4], ZSTD), ACCEPTED),
    "zstd, records behind": (forged(zstd(BODY) * 2, ZSTD), INVALID),
    "zstd, torn": (forged(zstd(BODY)[:-2], ZSTD), UNREADABLE),
    "zstd, of a dictionary": (forged(of_a_dictionary(BODY), ZSTD), UNREADABLE),
    "zstd, nothing": (forged(b"", ZSTD), INVALID),
    # Attributes
    "a codec that does not exist": (forged(BODY, 5), UNREADABLE),
    "delete horizon": (forged(attributes=DELETE_HORIZON), ACCEPTED),
    "delete horizon, gzip": (forged(gzip.compress(BODY), DELETE_HORIZON | GZIP), ACCEPTED),
    "bit 0x80": (forged(attributes=0x80), ACCEPTED),
    "bit 0x80, zstd": (forged(zstd(BODY), 0x80 | ZSTD), ACCEPTED),
    "bits 0xff00": (forged(attributes=-0x100), ACCEPTED),
    "log append time": (forged(attributes=LOG_APPEND_TIME), ACCEPTED),
    "log append time, lz4": (forged(framed(BODY), LOG_APPEND_TIME | LZ4), ACCEPTED),
    "log append time, none": (forged(attributes=LOG_APPEND_TIME, max_timestamp=-1), INVALID_TIME),
    "log append time, to come": (
        forged(attributes=LOG_APPEND_TIME, max_timestamp=1 << 60),
        INVALID_TIME,
    ),
    # Offsets and counts
    "offset deltas all 0": (forged(numbered(0, 0, 0)), ACCEPTED),
    "offset deltas all 0, gzip": (forged(gzip.compress(numbered(0, 0, 0)), GZIP), UNREADABLE),
    "offset deltas from 5": (forged(numbered(5, 6, 7)), ACCEPTED),
    "offset deltas from 5, zstd": (forged(zstd(numbered(5, 6, 7)), ZSTD), UNREADABLE),
    "a count too low": (forged(count=2), INVALID),
    "a count too high": (forged(count=4), INVALID),
    "another last offset": (forged(last_offset_delta=5), INVALID),
    "another base offset": (forged(base_offset=5), INVALID),
    "a byte behind": (forged(tail=b"x"), ACCEPTED),
    # Timestamps
    "no timestamps": (forged(timed(-1, -1, -1), time=-1), ACCEPTED),
    "before 1970": (forged(timed(-5, -5, -5), time=-5), ACCEPTED),
    "before 1970, gzip": (forged(gzip.compress(timed(-5, -5, -5)), GZIP, time=-5), ACCEPTED),
    "before and after 1970": (forged(timed(-5, 9, -7), time=-5, max_timestamp=9), ACCEPTED),
    "the earliest time": (forged(timed(*[-1 << 63] * 3), time=-1 << 63), INVALID_TIME),
    "the latest time": (forged(timed(*[(1 << 63) - 1] * 3), time=(1 << 63) - 1), INVALID_TIME),
    # Producers
    "a producer without an epoch": (forged(producer_id=5_000_000, base_sequence=0), ACCEPTED),
    "a producer without a sequence": (forged(producer_id=5_000_001, producer_epoch=0), INVALID),
    "an epoch without a producer": (forged(producer_epoch=3, base_sequence=4), ACCEPTED),
    "a control batch": (forged(attributes=0x20), INVALID),
}

DIFFERENCES = {
    "gzip, reserved flags": INVALID,
    "lz4, a wrong checksum": INVALID,
    "zstd, a magic number behind": INVALID,
    "a codec that does not exist": ErrorCode.unsupported_compression_type,
    "offset deltas all 0": INVALID,
    "offset deltas from 5": INVALID,
    "a byte behind": INVALID,
    "a producer without an epoch": INVALID,
}


@pytest.mark.parametrize("name", TABLE)
def test_a_batch_is_accepted_and_read_or_refused_as_by_apache(client, topic, kind, since_4, name):
    sent, expected = TABLE[name]
    if kind == OURS:
        # An error in the client's batch is not reported as an error of the server.
        expected = DIFFERENCES.get(name, INVALID if expected is UNREADABLE else expected)
    answer = produce(client, PRODUCE_VERSION, topic, sent)
    assert (answer.error_code, answer.base_offset) == (expected, 0 if expected is ACCEPTED else -1)
    data = fetch(client, FETCH_VERSION, topic, 0, partition_max_bytes=1 << 21).records
    if expected is not ACCEPTED:
        assert not data
    elif name not in DIFFERENCES:
        (stored,) = batches(data)
        assert [record.offset for record in stored.records()] == [0, 1, 2]
        assert stored.is_valid_crc()


@pytest.mark.parametrize("name", ["log append time", "log append time, lz4"])
def test_a_topic_of_log_append_time_refuses_batches_that_claim_it(client, make_topic, name):
    topic = make_topic(message_timestamp_type="LogAppendTime")
    sent, _ = TABLE[name]
    assert produce(client, PRODUCE_VERSION, topic, sent).error_code is INVALID_TIME


def test_log_append_time_that_is_claimed_is_stored_as_create_time(client, topic):
    sent, _ = TABLE["log append time"]
    produce(client, PRODUCE_VERSION, topic, sent)
    (stored,) = batches(fetch(client, FETCH_VERSION, topic, 0).records)
    assert (stored.attributes, stored.max_timestamp) == (0, TIME)
