"""Checks messages before kio decodes them: validates arrays, and removes unknown tagged fields.

Pure: bytes and types only.

kio 0.6.5 allocates memory for as many elements as an array claims before it reads the first one,
so a frame of 20 bytes could claim 34 GB, and a failed allocation in native code ends the process.
It reads null as None if an array must not be null.  It also rejects unknown tagged fields, which
every reader has to skip (KIP-482).  So each message is scanned once by its lengths.  Other errors
are left to kio.

An element of three bytes becomes an object of two hundred, so a request has at most MAX_ELEMENTS
in all of its arrays together.  This is far more than any client sends, and fits into a broker's
memory.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import struct
import typing
from collections.abc import Callable
from typing import Any

from kserver.errors import ProtocolError
from kserver.wire import varint

Guard = Callable[[memoryview, int], tuple[memoryview, int]]
"""Maps a frame and a message's position to the buffer and position to decode it from.

May raise ProtocolError, IndexError and struct.error.
"""

MAX_ELEMENTS = 200_000


class Edits(list[tuple[int, int, bytes]]):
    """Replacements: start, end, and new bytes of a range."""

    __slots__ = ("remaining",)

    def __init__(self, limit: float) -> None:
        self.remaining = limit
        """Number of elements and unknown tagged fields that are still allowed."""

    def spend(self, elements: int) -> None:
        self.remaining -= elements
        if self.remaining < 0:
            raise ProtocolError(f"a message of more than {MAX_ELEMENTS} elements")


Skip = Callable[[memoryview, int, Edits], int]
"""Maps the position of a value to the position after it."""
Part = int | Skip
"""How to skip a value: its fixed size in bytes, or a function that reads its lengths."""

_FIXED_SIZES = {
    "bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "error_code": 2, "int32": 4,
    "uint32": 4, "timedelta_i32": 4, "int64": 8, "uint64": 8, "timedelta_i64": 8,
    "datetime_i64": 8, "float64": 8, "uuid": 16,
}  # fmt: skip
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


def guard(cls: Any) -> Guard:
    """Return the guard of messages of kio's dataclass `cls`."""
    part = _entity(cls)
    most = MAX_ELEMENTS if cls.__type__.name == "request" else math.inf

    def prepare(frame: memoryview, at: int) -> tuple[memoryview, int]:
        edits = Edits(most)
        if not isinstance(part, int):
            part(frame, at, edits)
        return (_edited(frame[at:], at, edits), 0) if edits else (frame, at)

    return prepare


def entity_in(hint: Any) -> Any:
    """Return the dataclass in a field's type hint, however wrapped, or None."""
    if args := typing.get_args(hint):
        return next((entity for arg in args if (entity := entity_in(arg))), None)
    return hint if dataclasses.is_dataclass(hint) else None


def _edited(message: memoryview, start: int, edits: Edits) -> memoryview:
    parts: list[bytes | memoryview] = []
    at = 0
    for first, end, new in sorted(edits):
        parts += (message[at : first - start], new)
        at = end - start
    return memoryview(b"".join([*parts, message[at:]]))


@functools.cache
def _entity(cls: Any) -> Part:
    hints = typing.get_type_hints(cls)
    steps: list[tuple[int, Skip]] = []
    fixed = 0
    tagged: dict[int, Part] = {}
    for field in dataclasses.fields(cls):
        part = _value(field, hints[field.name], cls.__flexible__)
        if "tag" in field.metadata:
            tagged[field.metadata["tag"]] = part
        elif isinstance(part, int):
            fixed += part
        else:
            steps.append((fixed, part))
            fixed = 0
    if cls.__flexible__:
        steps.append((fixed, _tagged_fields(tagged)))
        fixed = 0
    return _sequence(tuple(steps), fixed) if steps else fixed


def _value(field: dataclasses.Field[Any], hint: Any, flexible: bool) -> Part:
    entity = entity_in(hint)
    part = _entity(entity) if entity else _primitive(field.metadata["kafka_type"], flexible)
    kinds = (hint, *typing.get_args(hint))
    if any(typing.get_origin(kind) is tuple for kind in kinds):
        return _array(part, flexible, nullable=type(None) in kinds)
    # A tagged struct is null if it is absent.
    return (
        _nullable(part) if entity and type(None) in kinds and "tag" not in field.metadata else part
    )


def _primitive(kafka_type: str, flexible: bool) -> Part:
    if size := _FIXED_SIZES.get(kafka_type):
        return size
    if flexible:
        return _compact_bytes
    return _string if kafka_type == "string" else _bytes


def _sequence(steps: tuple[tuple[int, Skip], ...], last: int) -> Skip:
    """Return a function that skips, before each step, this many bytes of fixed size, and after all
    steps `last` more."""

    def skip(frame: memoryview, at: int, edits: Edits) -> int:
        for fixed, step in steps:
            at = step(frame, at + fixed, edits)
        return at + last

    return skip


def _array(part: Part, flexible: bool, *, nullable: bool) -> Skip:
    least = part if isinstance(part, int) else 1

    def skip(frame: memoryview, at: int, edits: Edits) -> int:
        count: int
        if not flexible:
            count = _INT32.unpack_from(frame, at)[0]
            at += 4
        elif (count := frame[at] - 1) < 0x7F:
            at += 1
        else:
            count, at = varint.decode_unsigned(frame, at)
            count -= 1
        if count * least > len(frame) - at:
            raise ProtocolError(f"an array of {count} elements in {len(frame) - at} bytes")
        if count < 0 and not nullable:
            raise ProtocolError("an array that is null and must not be")
        if count > 0:
            edits.spend(count)
        if isinstance(part, int):
            return at + count * part if count > 0 else at
        for _ in range(count):
            at = part(frame, at, edits)
        return at

    return skip


def _nullable(part: Part) -> Skip:
    """Skip a nullable struct: its first byte is 1, or -1 for null (KIP-893)."""

    def skip(frame: memoryview, at: int, edits: Edits) -> int:
        if frame[at] == 0xFF:
            return at + 1
        return at + 1 + part if isinstance(part, int) else part(frame, at + 1, edits)

    return skip


def _tagged_fields(parts_by_tag: dict[int, Part]) -> Skip:
    def skip(frame: memoryview, at: int, edits: Edits) -> int:
        if frame[at] == 0:
            return at + 1
        start = at
        count, at = varint.decode_unsigned(frame, at)
        edits.spend(count)
        body, known_count = at, 0
        for _ in range(count):
            field_at = at
            tag, size_at = varint.decode_unsigned(frame, at)
            size, at = varint.decode_unsigned(frame, size_at)
            end = at + size
            if end > len(frame):
                raise ProtocolError(f"a tagged field of {size} bytes in {len(frame) - at}")
            if tag not in parts_by_tag:
                edits.append((field_at, end, b""))
            else:
                known_count += 1
                before, part = len(edits), parts_by_tag[tag]
                if end != (at + part if isinstance(part, int) else part(frame, at, edits)):
                    raise ProtocolError(f"a tagged field of {size} bytes that has another size")
                if grown := sum(len(new) - (last - first) for first, last, new in edits[before:]):
                    edits.append((size_at, at, varint.encode_unsigned(size + grown)))
            at = end
        if known_count < count:
            edits.append((start, body, varint.encode_unsigned(known_count)))
        return at

    return skip


def _compact_bytes(frame: memoryview, at: int, _edits: Edits) -> int:
    size = frame[at]
    if 0 < size < 0x80:
        return at + size
    size, at = varint.decode_unsigned(frame, at)
    return at + size - 1 if size else at


def _string(frame: memoryview, at: int, _edits: Edits) -> int:
    size: int = _INT16.unpack_from(frame, at)[0]
    return at + 2 + size if size > 0 else at + 2


def _bytes(frame: memoryview, at: int, _edits: Edits) -> int:
    size: int = _INT32.unpack_from(frame, at)[0]
    return at + 4 + size if size > 0 else at + 4
