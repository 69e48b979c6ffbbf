"""Converts parsed values into a schema's types, or returns the reason why not.

Pure: values in, values out.

Parsed values are Python's: None, bool, int, float, str, bytes, list, and Pairs for a map. A format
provides its leaves: the conversions into types that have no parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from kserver.errors import ConfigError

MAX_REASON_LENGTH = 300
"""Characters of a reason."""
MIN_AT_ONCE, ONE_BY_ONE = 128, 256
"""Decoding many values at once takes as long as 50 one by one. If few are accepted at once,
ONE_BY_ONE are decoded singly before it is tried again.
"""


class Pairs(list[tuple[Any, Any]]):
    """A map as in the value: keys of any type, in order, perhaps with duplicates."""


class SchemaMismatch(Exception):
    """The reason why a value does not match the schema, and the field."""

    def __init__(self, why: str, *path: str) -> None:
        super().__init__(why)
        self.why, self.path = why, path

    def __str__(self) -> str:
        where = "".join(self.path).lstrip(".")
        text = f"{where}: {self.why}" if where else self.why
        return text if len(text) <= MAX_REASON_LENGTH else f"{text[:MAX_REASON_LENGTH]}..."

    def within(self, step: str) -> SchemaMismatch:
        return SchemaMismatch(self.why, step, *self.path)


class Decoded(NamedTuple):
    """A column: for each value its data, or null and the reason; null without a reason for null."""

    data: pa.Array
    reasons: pa.Array


Converter: TypeAlias = Callable[[Any], Any]
"""Returns the element of an Arrow column; raises SchemaMismatch."""
LeafConverter: TypeAlias = Callable[[pa.DataType], Converter | None]
"""Returns None for a type that the format does not have."""


class ColumnReadFailed(Exception):
    """One of many values needs a closer look."""


def decode(
    values: pa.Array,
    kind: pa.DataType,
    parse: Converter,
    leaf_converter: LeafConverter,
    at_once: Callable[[pa.Array], pa.Array | None] | None,
) -> Decoded:
    """Decode with `at_once`, which returns None if it finds anything odd about the values; then
    they are decoded in smaller parts, and few values one by one. Raises ConfigError if the format
    does not have a type.
    """
    convert = converter_of(kind, leaf_converter)
    columns: list[Decoded] = []
    at, size = 0, len(values)
    while at < len(values) or not columns:
        part = values[at : at + size]
        if at_once is not None and (data := at_once(part)) is not None:
            columns.append(Decoded(data, pa.nulls(len(data), pa.string())))
            size *= 4
        elif at_once is not None and size // 4 >= MIN_AT_ONCE:
            size //= 4
            continue
        else:
            part = values[at : at + ONE_BY_ONE]
            columns.append(decode_each(part.to_pylist(), kind, parse, convert))
            size = MIN_AT_ONCE
        at += len(part)
    if len(columns) == 1:
        return columns[0]
    return Decoded(*(pa.concat_arrays(column) for column in zip(*columns, strict=True)))


def decode_each(
    values: Iterable[bytes | None], kind: pa.DataType, parse: Converter, convert: Converter
) -> Decoded:
    """Decode values one by one: the fallback of every format."""
    data: list[Any] = []
    reasons: list[str | None] = []
    for value in values:
        element = reason = None
        if value is not None:
            try:
                element = convert(parse(value))
            except SchemaMismatch as mismatch:
                reason = str(mismatch)
            except RecursionError:
                reason = "refused: it is nested too deeply"
        data.append(element)
        reasons.append(reason)
    return Decoded(pa.array(data, kind), pa.array(reasons, pa.string()))


def converter_of(kind: pa.DataType, leaf_converter: LeafConverter) -> Converter:
    """Return the conversion of whole values into this type, in which null is an error. Raises
    ConfigError if the format does not have a type.
    """
    return _required(_converter(kind, leaf_converter, ""))


def _converter(kind: pa.DataType, leaf_converter: LeafConverter, where: str) -> Converter:
    # A variant is a struct to Arrow, and only Spark can create one.
    is_struct = pa.types.is_struct(kind)
    is_variant = is_struct and any(b"variant" in (field.metadata or ()) for field in kind)
    if is_struct and not is_variant:
        return _struct(kind, leaf_converter, where)
    if pa.types.is_map(kind):
        return _map(kind, leaf_converter, where)
    if pa.types.is_list(kind):
        return _list(kind, leaf_converter, where)
    if is_variant or (convert := leaf_converter(kind)) is None:
        name = "variant" if is_variant else kind
        raise ConfigError(
            f"the schema has {where.lstrip('.') or 'a value'} as {name}, which this format does"
            " not have; declare it as another type, such as string, and cast it"
        )
    return convert


def _required(convert: Converter) -> Converter:
    def required(value: Any) -> Any:
        if value is None:
            raise SchemaMismatch("is null or missing")
        return convert(value)

    return required


def _element(field: pa.Field, leaf_converter: LeafConverter, where: str) -> Converter:
    convert = _converter(field.type, leaf_converter, where)
    if not field.nullable:
        return _required(convert)
    return lambda value: None if value is None else convert(value)


def _struct(kind: pa.StructType, leaf_converter: LeafConverter, where: str) -> Converter:
    fields = [(f.name, _element(f, leaf_converter, f"{where}.{f.name}")) for f in kind]

    def convert(items: Any) -> dict[str, Any]:
        if type(items) is not Pairs:
            raise type_mismatch(items, "a map")
        by_name = {name: value for name, value in items if type(name) is str}
        row = {}
        for name, element in fields:
            try:
                row[name] = element(by_name.get(name))
            except SchemaMismatch as error:
                raise error.within(f".{name}") from None
        return row

    return convert


def _list(kind: pa.ListType, leaf_converter: LeafConverter, where: str) -> Converter:
    element = _element(kind.value_field, leaf_converter, f"{where}[]")

    def convert(items: Any) -> list[Any]:
        if type(items) is not list:
            raise type_mismatch(items, "an array")
        row = []
        for i, value in enumerate(items):
            try:
                row.append(element(value))
            except SchemaMismatch as error:
                raise error.within(f"[{i}]") from None
        return row

    return convert


def _map(kind: pa.MapType, leaf_converter: LeafConverter, where: str) -> Converter:
    key = _required(_converter(kind.key_type, leaf_converter, f"{where} (keys)"))
    item = _element(kind.item_field, leaf_converter, f"{where}[]")
    if pa.types.is_nested(kind.key_type):
        raise ConfigError(
            f"the schema has a map with keys of {kind.key_type}; use keys of a simple type"
        )

    def convert(items: Any) -> list[tuple[Any, Any]]:
        if type(items) is not Pairs:
            raise type_mismatch(items, "a map")
        row = {}
        for name, value in items:
            try:
                row[key(name)] = item(value)
            except SchemaMismatch as error:
                raise error.within(f"[{name!r:.40}]") from None
        return list(row.items())

    return convert


_NAMES = {
    type(None): "null",
    bool: "a boolean",
    int: "an integer",
    float: "a float",
    str: "a string",
    bytes: "binary",
    Pairs: "a map",
    list: "an array",
}


def type_mismatch(value: Any, expected: str) -> SchemaMismatch:
    what = next((name for kind, name in _NAMES.items() if isinstance(value, kind)), "an extension")
    return SchemaMismatch(f"expected {expected}, found {what}")


def common_leaf_converter(kind: pa.DataType) -> Converter | None:
    """Return the conversions that all formats share."""
    if pa.types.is_signed_integer(kind):
        return integer(kind)
    return boolean if pa.types.is_boolean(kind) else None


def valid_text(text: str) -> str:
    """Return the string; raises SchemaMismatch if it cannot be encoded in UTF-8."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise SchemaMismatch(
                "a string that is not UTF-8, or has half a surrogate pair"
            ) from None
    return text


def integer(kind: pa.DataType) -> Converter:
    """Return the conversion of integers, which have to fit the type's bits."""
    most = (1 << (kind.bit_width - 1)) - 1
    least = -most - 1

    def convert(value: Any) -> int:
        if type(value) is not int:
            raise type_mismatch(value, "an integer")
        if not least <= value <= most:
            raise SchemaMismatch(f"{value} has more than {kind.bit_width} bits")
        return value

    return convert


def boolean(value: Any) -> bool:
    if type(value) is not bool:
        raise type_mismatch(value, "a boolean")
    return value
