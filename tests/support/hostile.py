"""Requests of a hostile or broken client: valid ones of every kind, and ways to corrupt them; and
responses of a hostile broker.

`random_request` fills any request with values that handlers distinguish (existing and missing
topics, edges of every integer, nulls, valid batches). `spoilt` cuts bytes, flips bits and writes
false lengths. All is drawn from a `Random`, so a seed repeats it.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import struct
import typing
import uuid
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any, NamedTuple

from kserver.errors import ErrorCode
from kserver.wire import varint
from kserver.wire.batch import CRC_START, encode_batch
from kserver.wire.checksum import crc32c
from kserver.wire.codec import request_type, response_type, write_request, write_response
from kserver.wire.compression import Compression
from kserver.wire.guard import entity_in

ZERO_ID = uuid.UUID(int=0)
SHORT_WAITS_MS = (0, 1, 5, 20)
LENGTHS = (
    *(struct.pack(">i", n) for n in (-1, -2, -3, -6, 0, 1, 2, 1 << 20, 2**31 - 1, -(2**31))),
    *(struct.pack(">h", n) for n in (-1, -2, -6, 0, 1, 2**15 - 1, -(2**15))),
    *(varint.encode_unsigned(n) for n in (0, 1, 2, 127, 1 << 20, 2**31, 2**32 - 1)),
    b"\x80\x80\x80\x80\x80\x80",
    b"\xff" * 10,
)
"""Bytes that overwrite a length, of an array or a string, plain or compact."""
STRAY_NAMES = ("", "t" * 249, "t" * 250, "..", "../../etc", "a/b", "\x00", "\x1b[31m\n", "ü" * 99)
BATCH_AT_CRC = CRC_START


class Known(NamedTuple):
    """Topics that the broker has."""

    names: Sequence[str]
    ids: Sequence[uuid.UUID]


def random_request(random: Random, api_key: int, version: int, known: Known) -> bytes:
    """Return a whole valid request, without its length."""
    request = _entity(random, request_type(api_key, version), known)
    client_id = random.choice([None, "", "hostile", "ü\n\x1b[31m"])
    return write_request(request, random.randrange(1 << 31), client_id)[4:]


def random_answer(
    random: Random, api_key: int, version: int, correlation_id: int, known: Known
) -> bytes:
    """Return a response of a hostile broker, filled as in `random_request`."""
    answer = _entity(random, response_type(api_key, version), known)
    return write_response(api_key, version, correlation_id, answer)[4:]


def random_batch(random: Random) -> bytes:
    records = [
        (1_700_000_000_000 + n, random.choice([None, b"key"]), bytes(random.randrange(40)), ())
        for n in range(random.randrange(1, 4))
    ]
    producer = random.random() < 0.3
    return encode_batch(
        records,
        compression=random.choice(list(Compression)),
        producer_id=random.randrange(3) if producer else -1,
        producer_epoch=0 if producer else -1,
        base_sequence=random.choice([0, 1, 2**31 - 1]) if producer else -1,
        transactional=random.random() < 0.1,
    )


def with_right_crc(batch: bytes) -> bytes:
    """Set the batch's CRC, so that it does not detect the corruption behind it."""
    if len(batch) <= BATCH_AT_CRC:
        return batch
    return batch[:17] + struct.pack(">I", crc32c(batch[BATCH_AT_CRC:])) + batch[BATCH_AT_CRC:]


def cuts(frame: bytes) -> Iterator[bytes]:
    """Yield every prefix of the frame."""
    return (frame[:end] for end in range(len(frame)))


def lies(frame: bytes, start: int = 0) -> Iterator[bytes]:
    """Yield the frame with each length written over each position from `start`."""
    for at in range(start, len(frame)):
        for lie in LENGTHS:
            yield frame[:at] + lie + frame[at + len(lie) :]


def spoilt(random: Random, data: bytes) -> bytes:
    """Corrupt the bytes in one to three ways."""
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        data = random.choice(_WAYS)(random, data)
    return data


def _cut(random: Random, data: bytes) -> bytes:
    return data[: random.randrange(len(data) + 1)]


def _flip(random: Random, data: bytes) -> bytes:
    if not data:
        return data
    at = random.randrange(len(data))
    return data[:at] + bytes((data[at] ^ 1 << random.randrange(8),)) + data[at + 1 :]


def _lie(random: Random, data: bytes) -> bytes:
    at = random.randrange(len(data) + 1)
    lie = random.choice(LENGTHS)
    return data[:at] + lie + data[at + len(lie) :]


def _insert(random: Random, data: bytes) -> bytes:
    at = random.randrange(len(data) + 1)
    return data[:at] + random.randbytes(random.randrange(1, 20)) + data[at:]


def _repeat(random: Random, data: bytes) -> bytes:
    at = random.randrange(len(data) + 1)
    end = min(len(data), at + random.randrange(1, 40))
    return data[:end] + data[at:end] * random.randrange(1, 4) + data[end:]


_WAYS: Sequence[Callable[[Random, bytes], bytes]] = (
    _cut,
    _flip,
    _lie,
    _lie,
    _insert,
    _repeat,
)


def _entity(random: Random, cls: Any, known: Known) -> Any:
    return cls(**{field.name: _value(random, field, hint, known) for field, hint in _fields(cls)})


@functools.cache
def _fields(cls: Any) -> list[tuple[Any, Any]]:
    hints = typing.get_type_hints(cls)
    return [(field, hints[field.name]) for field in dataclasses.fields(cls)]


def _value(random: Random, field: Any, hint: Any, known: Known) -> Any:
    kinds = (hint, *typing.get_args(hint))
    if type(None) in kinds and random.random() < 0.2:
        return None
    entity = entity_in(hint)

    def one() -> Any:
        if entity is not None:
            return _entity(random, entity, known)
        return _primitive(random, field, known)

    if any(typing.get_origin(kind) is tuple for kind in kinds):
        return tuple(one() for _ in range(random.choice((0, 1, 1, 2))))
    return one()


def _primitive(random: Random, field: Any, known: Known) -> Any:
    kind = field.metadata["kafka_type"]
    if kind.startswith(("int", "uint")):
        bits = int(kind.lstrip("uint"))
        low, high = (
            (0, 2**bits - 1) if kind[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        )
        return random.choice([0, 0, 0, 1, 1, 2, -1 if low else 0, low, high])
    match kind:
        case "bool":
            return random.random() < 0.5
        case "string":
            return random.choice([*known.names * 3, "absent", *STRAY_NAMES])
        case "uuid":
            return random.choice([*known.ids * 3, ZERO_ID, uuid.UUID(int=7)])
        case "bytes" | "records":
            return random.choice([random_batch(random), b"", b"stray"])
        case "error_code":
            return ErrorCode.none
        case "float64":
            return random.choice([0.0, -1.0, float("inf"), float("nan")])
        case "timedelta_i32" | "timedelta_i64":
            return datetime.timedelta(milliseconds=random.choice(SHORT_WAITS_MS))
        case "datetime_i64":
            return datetime.datetime.fromtimestamp(1_700_000_000, datetime.UTC)
    raise AssertionError(kind)
