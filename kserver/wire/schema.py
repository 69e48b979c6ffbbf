"""Messages declared as tables, for encoding and decoding of Kafka's internal topics and requests.

    OffsetCommitValue 0-4 flexible 4+
        offset int64
        leaderEpoch int32 3+ = -1
        metadata string
        topicId uuid 4+ tag 0

A heading has the message's name, its versions, and its first flexible version (KIP-482).  A field
has Kafka's name, its type, its versions (default: all), the number of its tag, and its default (if
missing: the type's zero).

    type         value            type        value
    int8 .. 64   int              string      str
    uint16       int              bytes       bytes
    float64      float            uuid        UUID
    bool         bool             []int32     list
    {}           dict of the fields that are indented below
    []           list of such dicts
    suffix ?     also None

`decode` returns every field, with defaults for those that the version lacks; `encode` uses
defaults for missing fields.  `as_json` shows a message like Kafka's tools.

Pure: values and bytes only.  Malformed data raises ProtocolError.
"""

from __future__ import annotations

import base64
import copy
import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from kserver.errors import ProtocolError
from kserver.wire import varint

Values = dict[str, Any]

NEWEST = 0x7FFF
_HEADING = re.compile(r"(\w+) (\d+)(?:-(\d+))?(?: flexible (\d+)\+)?")
_FIELD = re.compile(
    r"(?P<name>\w+) (?P<array>\[\])?(?P<type>\w+|\{\})?(?P<nullable>\?)?"
    r"(?: (?P<first>\d+)(?P<last>\+|-\d+)?)?(?: tag (?P<tag>\d+))?(?: = (?P<default>\S+))?"
)
_NUMBERS = {
    "int8": struct.Struct(">b"),
    "int16": struct.Struct(">h"),
    "uint16": struct.Struct(">H"),
    "int32": struct.Struct(">i"),
    "int64": struct.Struct(">q"),
    "float64": struct.Struct(">d"),
    "bool": struct.Struct(">?"),
}
_ZEROS = {"string": "", "bytes": b"", "uuid": UUID(int=0), "bool": False, "float64": 0.0}


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    type: str
    """Type of the table above; STRUCT if it has fields of its own."""
    is_array: bool
    is_nullable: bool
    first: int
    last: int
    tag: int | None
    default: Any
    fields: tuple[Field, ...]

    def is_in(self, version: int) -> bool:
        return self.first <= version <= self.last

    @property
    def null_mark(self) -> int:
        """Marker of a null struct; Kafka uses a different one for tagged fields."""
        return -1 if self.tag is None else 0

    def initial(self) -> Any:
        """Return a copy of the default, which the caller may modify."""
        return copy.deepcopy(self.default)


STRUCT = "{}"
PRESENT_MARK = 1
"""Marker before a nullable struct that is not null."""


@dataclass(frozen=True, slots=True)
class Schema:
    """One message in all its versions."""

    name: str
    first: int
    last: int
    flexible: int
    fields: tuple[Field, ...]

    def decode(self, version: int, data: bytes | memoryview) -> Values:
        """Decode a message; bytes after the last field are ignored, as in Kafka."""
        self._check(version)
        return _ValueReader(data, version, version >= self.flexible).struct(self.fields)

    def encode(self, version: int, values: Mapping[str, Any]) -> bytes:
        """Encode a message; fields that the version lacks are dropped."""
        assert self.first <= version <= self.last, version
        out: list[bytes] = []
        _ValueWriter(out, version, version >= self.flexible).struct(self.fields, values)
        return b"".join(out)

    def as_json(self, version: int, values: Mapping[str, Any]) -> Values:
        """Return the fields of this version in JSON's types, with bytes in base64 and ids as Kafka
        writes them; tagged fields only if they differ from their default."""
        return _shown(self.fields, version, values)

    def _check(self, version: int) -> None:
        if not self.first <= version <= self.last:
            raise ProtocolError(f"{self.name} has no version {version}")


@dataclass(frozen=True, slots=True)
class KeyedRecords:
    """Records whose key starts with its kind and whose value starts with its version, both in two
    bytes, as in the coordinators' topics."""

    kinds: Mapping[int, tuple[Schema, Schema]]
    """Key and value by kind; keys have only version 0."""

    def decode_key(self, data: bytes) -> tuple[int, Values]:
        """Return kind and fields.  Raises UnknownKind."""
        kind = _leading(data)
        if kind not in self.kinds:
            raise UnknownKind(kind)
        return kind, self.kinds[kind][0].decode(0, memoryview(data)[2:])

    def decode_value(self, kind: int, data: bytes) -> tuple[int, Values]:
        """Return version and fields."""
        version = _leading(data)
        return version, self.kinds[kind][1].decode(version, memoryview(data)[2:])

    def encode_key(self, kind: int, values: Mapping[str, Any]) -> bytes:
        return kind.to_bytes(2) + self.kinds[kind][0].encode(0, values)

    def encode_value(self, kind: int, version: int, values: Mapping[str, Any]) -> bytes:
        return version.to_bytes(2) + self.kinds[kind][1].encode(version, values)


class UnknownKind(ProtocolError):
    """A record of an unknown kind, from a newer broker; to be ignored."""

    def __init__(self, kind: int) -> None:
        super().__init__(f"unknown record type {kind}")
        self.kind = kind


def keyed(table: str, kinds: Mapping[int, str]) -> KeyedRecords:
    """Return the kinds by number; `OffsetCommit` stands for OffsetCommitKey and
    OffsetCommitValue."""
    schemas_by_name = schemas(table)
    return KeyedRecords(
        {n: (schemas_by_name[f"{k}Key"], schemas_by_name[f"{k}Value"]) for n, k in kinds.items()}
    )


def _leading(data: bytes) -> int:
    if len(data) < 2:
        raise ProtocolError("a record is truncated")
    return int.from_bytes(data[:2], signed=True)


def schemas(table: str) -> dict[str, Schema]:
    """Return all messages of a table, by name."""
    schemas_by_name: dict[str, Schema] = {}
    lines = [line for line in table.splitlines() if line.strip()]
    starts = [at for at, line in enumerate(lines) if not line.startswith(" ")]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        heading = _HEADING.fullmatch(lines[start])
        assert heading is not None, lines[start]
        name, first, last, flexible = heading.groups()
        schemas_by_name[name] = Schema(
            name,
            int(first),
            int(last or first),
            int(flexible or NEWEST + 1),
            _fields(lines[start + 1 : end]),
        )
    return schemas_by_name


def _fields(lines: Sequence[str]) -> tuple[Field, ...]:
    """Return the fields with the least indentation, each with the deeper ones that follow it."""
    if not lines:
        return ()
    depths = [len(line) - len(line.lstrip()) for line in lines]
    starts = [at for at, depth in enumerate(depths) if depth == depths[0]]
    return tuple(
        _field(lines[start].strip(), _fields(lines[start + 1 : end]))
        for start, end in zip(starts, [*starts[1:], len(lines)], strict=True)
    )


def _field(line: str, inner: tuple[Field, ...]) -> Field:
    match = _FIELD.fullmatch(line)
    assert match is not None, line
    groups = match.groupdict()
    kind = STRUCT if inner else groups["type"]
    first = int(groups["first"] or 0)
    match groups["first"], groups["last"]:
        case None, _:
            last = NEWEST
        case _, None:
            last = first
        case _, "+":
            last = NEWEST
        case _, bounded:
            last = int(bounded[1:])
    is_array, is_nullable = bool(groups["array"]), bool(groups["nullable"])
    default = _default(kind, is_array, groups["default"], inner)
    tag = None if groups["tag"] is None else int(groups["tag"])
    return Field(groups["name"], kind, is_array, is_nullable, first, last, tag, default, inner)


def _default(kind: str, is_array: bool, text: str | None, inner: Iterable[Field]) -> Any:
    if text == "null":
        return None
    if is_array:
        return []
    if kind == STRUCT:
        return {field.name: field.initial() for field in inner}
    if text is None:
        return _ZEROS.get(kind, 0)
    return text == "true" if kind == "bool" else int(text)


class _ValueReader:
    def __init__(self, data: bytes | memoryview, version: int, flexible: bool) -> None:
        self.data = memoryview(data)
        self.at = 0
        self.version = version
        self.flexible = flexible

    def struct(self, fields: Iterable[Field]) -> Values:
        values: Values = {}
        tagged: dict[int, Field] = {}
        for field in fields:
            values[field.name] = field.initial()
            if field.is_in(self.version):
                if field.tag is None:
                    values[field.name] = self.value(field)
                else:
                    tagged[field.tag] = field
        if self.flexible:
            for _ in range(self.unsigned()):
                tag, size = self.unsigned(), self.unsigned()
                end = self.at + size
                if tag in tagged:
                    values[tagged[tag].name] = self.value(tagged[tag])
                    if self.at != end:
                        raise ProtocolError(f"a tagged field of {size} bytes is longer or shorter")
                self.take(end - self.at)
        return values

    def value(self, field: Field) -> Any:
        if not field.is_array:
            return self.single(field)
        count = self.count(field, ">i")
        # An element takes at least one byte, which limits the claimed number.
        if count is not None and count > len(self.data) - self.at:
            raise ProtocolError(f"{field.name} is truncated")
        return None if count is None else [self.element(field) for _ in range(count)]

    def single(self, field: Field) -> Any:
        if field.type == STRUCT and field.is_nullable and self.number("int8") == field.null_mark:
            return None
        if field.type in ("string", "bytes"):
            size = self.count(field, ">h" if field.type == "string" else ">i")
            return None if size is None else self.text_or_bytes(field, size)
        return self.element(field)

    def element(self, field: Field) -> Any:
        if field.type == STRUCT:
            return self.struct(field.fields)
        if field.type in _NUMBERS:
            return self.number(field.type)
        if field.type == "uuid":
            return UUID(bytes=bytes(self.take(16)))
        size = self.count(field, ">h" if field.type == "string" else ">i")
        if size is None:
            raise ProtocolError(f"{field.name} holds a null")
        return self.text_or_bytes(field, size)

    def text_or_bytes(self, field: Field, size: int) -> str | bytes:
        data = bytes(self.take(size))
        if field.type == "bytes":
            return data
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise ProtocolError(f"{field.name} is not UTF-8") from None

    def count(self, field: Field, width: str) -> int | None:
        """Return a size or a number of elements; None for null."""
        if self.flexible:
            count = self.unsigned() - 1
        else:
            (count,) = struct.unpack(width, self.take(struct.calcsize(width)))
        if count >= 0:
            return count
        if count == -1 and field.is_nullable:
            return None
        raise ProtocolError(f"{field.name} has no size")

    def number(self, kind: str) -> Any:
        packed = _NUMBERS[kind]
        (number,) = packed.unpack(self.take(packed.size))
        return number

    def unsigned(self) -> int:
        number, self.at = varint.decode_unsigned(self.data, self.at)
        return number

    def take(self, size: int) -> memoryview:
        end = self.at + size
        if size < 0 or end > len(self.data):
            raise ProtocolError("a message is truncated")
        piece, self.at = self.data[self.at : end], end
        return piece


class _ValueWriter:
    def __init__(self, out: list[bytes], version: int, flexible: bool) -> None:
        self.out = out
        self.version = version
        self.flexible = flexible

    def struct(self, fields: Iterable[Field], values: Mapping[str, Any]) -> None:
        tagged: dict[int, bytes] = {}
        for field in fields:
            if not field.is_in(self.version):
                continue
            value = values.get(field.name, field.default)
            if field.tag is None:
                self.value(field, value)
            elif value != field.default:
                content: list[bytes] = []
                _ValueWriter(content, self.version, self.flexible).value(field, value)
                tagged[field.tag] = b"".join(content)
        if self.flexible:
            self.unsigned(len(tagged))
            for tag, data in sorted(tagged.items()):
                self.unsigned(tag)
                self.unsigned(len(data))
                self.out.append(data)

    def value(self, field: Field, value: Any) -> None:
        if not field.is_array:
            if field.type == STRUCT and field.is_nullable:
                mark = field.null_mark if value is None else PRESENT_MARK
                self.out.append(_NUMBERS["int8"].pack(mark))
                if value is None:
                    return
            self.element(field, value)
            return
        self.count(None if value is None else len(value), ">i")
        for element in value or ():
            self.element(field, element)

    def element(self, field: Field, value: Any) -> None:
        if field.type == STRUCT:
            self.struct(field.fields, value)
        elif field.type in _NUMBERS:
            self.out.append(_NUMBERS[field.type].pack(value))
        elif field.type == "uuid":
            self.out.append(value.bytes)
        else:
            data = value.encode() if isinstance(value, str) else value
            self.count(
                None if data is None else len(data), ">h" if field.type == "string" else ">i"
            )
            self.out.append(data or b"")

    def count(self, count: int | None, width: str) -> None:
        number = -1 if count is None else count
        if self.flexible:
            self.unsigned(number + 1)
        else:
            self.out.append(struct.pack(width, number))

    def unsigned(self, number: int) -> None:
        self.out.append(varint.encode_unsigned(number))


def _shown(fields: Iterable[Field], version: int, values: Mapping[str, Any]) -> Values:
    values_by_name: Values = {}
    for field in fields:
        value = values[field.name]
        if field.is_in(version) and (field.tag is None or value != field.default):
            show = _SHOWN.get(field.type)
            if field.type == STRUCT:
                show = _struct_shown(field.fields, version)
            if value is not None and show is not None:
                value = [show(element) for element in value] if field.is_array else show(value)
            values_by_name[field.name] = value
    return values_by_name


def _struct_shown(fields: tuple[Field, ...], version: int) -> Callable[[Any], Values]:
    return lambda values: _shown(fields, version, values)


_SHOWN: Mapping[str, Callable[[Any], Any]] = {
    "bytes": lambda data: base64.b64encode(data).decode(),
    "uuid": lambda id: base64.urlsafe_b64encode(id.bytes).decode().rstrip("="),
}
