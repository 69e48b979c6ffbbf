"""Batches by name, each with its records or refused: a test of every decoder of records.

Each refused one differs from a valid one only as its name says. The verdicts are those of Apache's
readers, with these differences, which all of ours share. Refused although Apache reads it: a length
below -1 and a null in two bytes (null there), bits of a number beyond its width (dropped), a time
beyond 64 bits (wraps), offsets that do not ascend or lie past the batch's last (its clients do not
look).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kserver.wire.batch import (
    CONTROL,
    DELETE_HORIZON,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    Record,
    encode_records,
    end_transaction_marker,
)
from kserver.wire.compression import Compression, compress
from tests.support.record_bytes import varint
from tests.support.record_model import NOW, sealed, slow_encode

LARGEST = (1 << 63) - 1


class Entry(NamedTuple):
    name: str
    data: bytes
    records: list[Record] | None
    """The records, or None if the batch is refused."""


def one(fields: str, time: str = "00", offset: str = "00") -> bytes:
    """Return a record whose own length is right: its fields in hex, from the key on."""
    body = b"\0" + bytes.fromhex(time + offset + fields)
    return varint(2 * len(body)) + body


GOOD = one("02 6b 02 76 00")
"""A record with key "k" and value "v"."""
PLAIN = Record(0, NOW, b"k", b"v")
ALL = ((NOW, b"k", b"v", (("h", b"x"), ("n", None))), (NOW + 9, None, b"", ()))


def batch(body: bytes, **fields: int) -> bytes:
    """Return a batch of `count` records, by default one."""
    count = fields.get("count", 1)
    default = {"base_timestamp": NOW, "max_timestamp": NOW, "count": 1}
    return sealed(body, **(default | {"last_offset_delta": count - 1} | fields))


def patched(at: int, value: bytes) -> bytes:
    data = batch(GOOD)
    return data[:at] + value + data[at + len(value) :]


def corpus() -> list[Entry]:
    return [
        *(Entry(name, data, records) for name, data, records in read()),
        *(Entry(name, data, None) for name, data in refused()),
    ]


def read() -> Iterator[tuple[str, bytes, list[Record]]]:
    def written(new, *, deltas=None, padding=0, attributes=0, **fields):
        """Return the batch and the records of `new`."""
        body = slow_encode(new, deltas, padding, attributes)
        at = deltas or range(len(new))
        header = {"base_timestamp": new[0][0], "max_timestamp": max(time for time, *_ in new)}
        header |= {"count": len(new), "last_offset_delta": at[-1]} | fields
        base = header.get("base_offset", 0)
        records = [Record(base + d, *record) for d, record in zip(at, new, strict=True)]
        return batch(body, **header), records

    yield "one record", batch(GOOD), [PLAIN]
    yield "emptied by compaction", batch(b"", base_offset=10, count=0, last_offset_delta=4), []
    yield "null key and value", *written([(NOW, None, None, ())])
    yield "empty key and value", *written([(NOW, b"", b"", ())])
    headers = (("", b""), ("h", None), ("h", b"x" * 70), ("\u20ac" * 30, b"\0"))
    yield "headers", *written([(NOW, None, b"v", headers), (NOW, None, b"v", headers)])
    no_text = one("01 01 02 04 61 ff 02 76")
    yield (
        "a name that is no text",
        batch(no_text),
        [Record(0, NOW, None, None, (("a\ufffd", b"v"),))],
    )
    falling = [(NOW - 70 * n, b"%d" % n, None, ()) for n in range(200)]
    yield "times that fall", *written(falling)
    yield "no time", *written([(-1, b"k", b"v", ())])
    yield "the largest time", *written([(LARGEST - 1, b"k", b"v", ()), (LARGEST, b"k", b"v", ())])
    appended = {"attributes": LOG_APPEND_TIME, "max_timestamp": NOW + 500, "count": 2}
    late = [Record(n, NOW + 500, *record[1:]) for n, record in enumerate(ALL)]
    yield "log append time", batch(encode_records(ALL), **appended), late
    for codec in Compression:
        many = [(NOW + n, b"%d" % n, b"value" * n, (("h", None),)) for n in range(100)]
        data = batch(compress(codec, encode_records(many)), attributes=codec, count=100)
        yield codec.name, data, [Record(n, *record) for n, record in enumerate(many)]
    marker = end_transaction_marker(True, 11)
    control = {"producer_id": 7, "base_sequence": -1}
    data = batch(
        encode_records([(NOW, *marker, ())]), attributes=CONTROL | TRANSACTIONAL, **control
    )
    yield "a marker", data, [Record(0, NOW, *marker)]
    yield "in a transaction", batch(GOOD, attributes=TRANSACTIONAL, producer_id=7), [PLAIN]
    yield "a delete horizon", batch(GOOD, attributes=DELETE_HORIZON), [PLAIN]
    yield "attributes of a record", *written(ALL, attributes=255)
    sizes = (0, 63, 64, 8191, 8192, 1 << 20)
    wide = [(NOW + n, None, bytes(sizes[n] if n < 6 else 1), ()) for n in range(8300)]
    yield "numbers of one to three bytes", *written(wide, base_offset=5)
    yield "numbers padded to five bytes", *written(ALL, padding=5)
    padded_time = one("02 6b 02 76 00", time="80808080808080808000")
    yield "a time padded to ten bytes", batch(padded_time), [PLAIN]
    yield "gaps", *written(ALL * 2, deltas=[0, 3, 70, 20_000], base_offset=1 << 40)
    yield "a gap before the end", *written(ALL, last_offset_delta=9)
    yield "the last offset", *written(ALL, base_offset=LARGEST - 1)


def refused() -> Iterator[tuple[str, bytes]]:
    yield "a wrong checksum", patched(HEADER_SIZE + 5, b"K")
    yield "a length below a header's", patched(8, (48).to_bytes(4))
    yield "a negative length", patched(8, b"\xff" * 4)
    yield "a batch cut short", batch(GOOD)[:-1]
    for magic in (0, 1, 3):
        yield f"magic {magic}", patched(16, bytes([magic]))
    yield "a codec that is none", batch(GOOD, attributes=5)
    for codec in Compression:
        if codec:
            yield f"no {codec.name}", batch(b"garbage" * 9, attributes=codec)
            yield f"torn {codec.name}", batch(compress(codec, GOOD)[:-1], attributes=codec)
    unsaid = compress(Compression.gzip, GOOD)
    yield "compressed and not said to be", batch(unsaid)
    bomb = varint(1 << 30) + compress(Compression.snappy, bytes(1 << 15))[23:]
    yield "a bomb", batch(bomb, attributes=Compression.snappy)

    two = encode_records(ALL)
    for count in (-1, 0, 1, 3, LARGEST >> 32):
        fields = {"count": count, "last_offset_delta": max(count - 1, 1)}
        yield f"{count} records of 2", batch(two, **fields)
    yield "a record and none said", batch(GOOD, count=0, last_offset_delta=0)
    yield "fewer offsets than records", batch(two, count=2, last_offset_delta=0)
    for size in range(len(GOOD)):
        yield f"cut after {size} bytes", batch(GOOD[:size])
    yield "a byte after the last record", batch(GOOD + b"\0")
    yield "a record after the last", batch(GOOD + GOOD, last_offset_delta=1)
    for name, length in {
        "-6": "0b",
        "0": "00",
        "one less": "0e",
        "one more": "12",
        "-2^31": "ffffffff0f",
        "of six bytes": "908080808000",
        "of eleven bytes": "9080808080808080808000",
    }.items():
        yield f"a record's length, {name}", batch(bytes.fromhex(length) + GOOD[1:])
    for name, fields in {
        "a key of -2 bytes": "03 01 00",
        "a key beyond the record": "08 6b 01 00",
        "a key's length of six bytes": "828080808000 6b 01 00",
        "a key's length of 35 bits": "feffffff7f 01 00",
        "a key of 2 GB": "feffffff0f 01 00",
        "a null key in two bytes": "8100 01 00",
        "a value of -2 bytes": "01 03 00",
        "a value of -1048576 bytes": "01 ffff7f 00",
        "a value beyond the record": "01 08 76 00",
        "a value's length of six bytes": "01 828080808000 76 00",
        "a value's length of eleven bytes": "01 8280808080808080808000 76 00",
        "a value of 2 GB": "01 feffffff0f 00",
        "-2 headers": "01 01 03",
        "a header that is not there": "01 01 02",
        "2^31 - 1 headers": "01 01 feffffff0f",
        "a count of headers of six bytes": "01 01 828080808000 02 68 01",
        "a header without a name": "01 01 02 01 01",
        "a header's name of -2 bytes": "01 01 02 03 01",
        "a header's name beyond the record": "01 01 02 08 68 01",
        "a header's name of six bytes": "01 01 02 828080808000 68 01",
        "a header's value of -2 bytes": "01 01 02 02 68 03",
        "a header's value beyond the record": "01 01 02 02 68 08",
        "a byte after the headers": "01 01 02 02 68 01 00",
        "a byte after no headers": "01 01 00 00",
    }.items():
        yield name, batch(one(fields))
    # With more records after it, the bytes beyond a record are in the next one, not past the end.
    long = one("01 ac04" + "00" * 278 + "00", offset="02")
    for name, fields in {
        "a key that reaches into the next": "50 01 00",
        "a value that reaches into the next": "01 50 00",
        "a header that reaches into the next": "01 01 02 02 68 50",
    }.items():
        yield name, batch(one(fields) + long, count=2)
    for name, time in {
        "a time of eleven bytes": "8080808080808080808000",
        "a time of 65 bits": "ffffffffffffffffff02",
    }.items():
        yield name, batch(one("01 01 00", time=time))
    for name, offset in {"of six bytes": "808080808000", "of 33 bits": "8080808020"}.items():
        yield (
            f"an offset {name}",
            batch(one("01 01 00", offset=offset), last_offset_delta=LARGEST >> 32),
        )
    for deltas in ([0, 0], [1, 0], [4, 2], [-1, 0], [0, -3], [0, 6]):
        body = slow_encode([(NOW, b"k", b"v", ())] * 2, deltas)
        name = "negative offsets" if min(deltas) < 0 else "offsets"
        yield f"{name} {deltas} of 5", batch(body, count=2, last_offset_delta=5)
    yield "a time beyond 64 bits", batch(one("01 01 00", time="02"), base_timestamp=LARGEST)
    yield "an offset beyond 64 bits", batch(two, base_offset=LARGEST, count=2)
