"""Decodes values in msgpack into columns of Arrow, and encodes them.

Pure: bytes and columns in, the other out.

    a schema's type                 accepts
    tinyint, smallint, int, bigint  an integer that fits the type
    float, double                   a float or an integer
    boolean                         true, false
    string                          a str that is UTF-8
    binary                          a bin, or the bytes of a str
    timestamp, timestamp_ntz        the extension -1, down to microseconds; the latter in UTC
    array<T>                        an array
    map<K,V>                        a map; the last of duplicate keys counts
    struct<...>                     a map; keys that are not strings, or not in the schema, are
                                    ignored, missing fields are null

nil is null everywhere, but not as a whole value or a map's key, nor where the schema has NOT NULL.

Any other value, a truncated one, one with bytes after its end, or one nested deeper than msgpack's
reader supports, has a reason in place of data. Lengths are trusted only after the value was walked
through without creating objects, so an invalid length costs nothing.

Values are read all at once and converted a column at a time, some four times as fast as one by one.
If any of them is invalid they are decoded in smaller parts, and few one by one.

Encoding is the inverse: null as nil, structs as maps with all their fields.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate, chain, pairwise
from types import NoneType
from typing import Any

import msgpack
import pyarrow as pa

from kcli.spark.schema_converter import (
    ColumnReadFailed,
    Converter,
    Decoded,
    Pairs,
    SchemaMismatch,
    common_leaf_converter,
    decode,
    type_mismatch,
    valid_text,
)
from kserver.errors import ConfigError

_INT64 = range(-(1 << 63), 1 << 63)


def decode_msgpack(values: pa.Array, kind: pa.DataType) -> Decoded:
    """Decode one value of this type from each binary value. Raises ConfigError if msgpack does not
    have the type.
    """

    def at_once(part: pa.Array) -> pa.Array | None:
        return _at_once(part, kind)

    return decode(values, kind, parse, leaf_converter, at_once if _has_columns(kind) else None)


def _has_columns(kind: pa.DataType) -> bool:
    """Whether `_column` gives the same results as `parse` and `leaf_converter`."""
    if pa.types.is_struct(kind):
        return kind.num_fields > 0 and all(_has_columns(field.type) for field in kind)
    if pa.types.is_map(kind):
        # Keys of other types may be equal but different, such as 1 and true.
        return bool(pa.types.is_string(kind.key_type)) and _has_columns(kind.item_type)
    return not pa.types.is_list(kind) or _has_columns(kind.value_type)


def _at_once(values: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """Decode all values at once; return None if any is invalid, as far as that shows."""
    texts = values.to_pylist()
    try:
        rows = _stream([text for text in texts if text is not None])
        if any(row is None for row in rows):
            return None
        if values.null_count:
            iterator = iter(rows)
            rows = [None if text is None else next(iterator) for text in texts]
        return _column(rows, kind)
    except (
        ColumnReadFailed,
        SchemaMismatch,
        msgpack.UnpackException,
        ValueError,
        TypeError,
        OverflowError,
        RecursionError,
    ):
        return None


def _stream(texts: list[bytes]) -> list[Any]:
    """Return the values one after the other. Raises ColumnReadFailed if one does not end with its
    bytes.
    """
    data = b"".join(texts)
    room = max(len(data), 1)
    walker = msgpack.Unpacker(max_buffer_size=room)
    walker.feed(data)
    for end in accumulate(map(len, texts)):
        walker.skip()
        if walker.tell() != end:
            raise ColumnReadFailed
    reader = msgpack.Unpacker(
        max_buffer_size=room, strict_map_key=False, unicode_errors="surrogateescape"
    )
    reader.feed(data)
    return list(reader)


def _column(rows: list[Any], kind: pa.DataType) -> pa.Array:
    """Convert values to a column. Raises ColumnReadFailed, or Arrow's errors, if any has another
    type.
    """
    types = set(map(type, rows))
    if not types <= _python_types(kind):
        raise ColumnReadFailed
    if pa.types.is_timestamp(kind):
        return pa.array([None if row is None else _timestamp(row) for row in rows], kind)
    if not pa.types.is_nested(kind):
        return pa.array(rows, kind)
    mask = pa.array([row is None for row in rows]) if NoneType in types else None
    if pa.types.is_struct(kind):
        there = rows if mask is None else [row or {} for row in rows]
        parts = [_part([row.get(field.name) for row in there], field) for field in kind]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=mask)
    there = rows if mask is None else [row or () for row in rows]
    at = pa.array(accumulate(map(len, there), initial=0), pa.int32())
    if pa.types.is_list(kind):
        elements = _part(list(chain.from_iterable(there)), kind.value_field)
        return pa.ListArray.from_arrays(at, elements, type=kind, mask=mask)
    keys = _part(list(chain.from_iterable(there)), kind.key_field)
    items = [item for row in there if row for item in row.values()]
    return pa.MapArray.from_arrays(at, keys, _part(items, kind.item_field), type=kind, mask=mask)


def _part(rows: list[Any], field: pa.Field) -> pa.Array:
    column = _column(rows, field.type)
    # If the whole is null its parts may be null, but that needs a closer look.
    if column.null_count and not field.nullable:
        raise ColumnReadFailed
    return column


def _python_types(kind: pa.DataType) -> frozenset[type]:
    """Return the Python types that certainly fit, except for their size."""
    for is_kind, types in _PYTHON_TYPES:
        if is_kind(kind):
            return types
    return frozenset()


_PYTHON_TYPES: tuple[tuple[Callable[[pa.DataType], bool], frozenset[type]], ...] = tuple(
    (is_kind, frozenset({NoneType, *types}))
    for is_kind, types in (
        (pa.types.is_struct, (dict,)),
        (pa.types.is_map, (dict,)),
        (pa.types.is_list, (list,)),
        (pa.types.is_signed_integer, (int,)),
        (pa.types.is_floating, (float, int)),
        (pa.types.is_boolean, (bool,)),
        (pa.types.is_string, (str,)),
        (pa.types.is_binary, (bytes,)),
        (pa.types.is_timestamp, (msgpack.Timestamp,)),
    )
)


def parse(value: bytes) -> Any:
    """Parse a value. Raises SchemaMismatch if the bytes are not exactly one value."""
    walker = msgpack.Unpacker(max_buffer_size=max(len(value), 1))
    walker.feed(value)
    try:
        walker.skip()
    except msgpack.OutOfData:
        raise SchemaMismatch("not msgpack: it is truncated") from None
    except (msgpack.StackError, RecursionError):
        raise SchemaMismatch("refused: it is nested too deeply") from None
    except (msgpack.FormatError, ValueError):
        raise SchemaMismatch("not msgpack: a byte does not begin a value") from None
    if walker.tell() != len(value):
        raise SchemaMismatch(f"not msgpack: {len(value) - walker.tell()} bytes follow the value")
    try:
        return msgpack.unpackb(
            value, object_pairs_hook=Pairs, strict_map_key=False, unicode_errors="surrogateescape"
        )
    except (ValueError, RecursionError) as error:
        # An extension -1 that is not a valid time.
        raise SchemaMismatch(f"not msgpack: {error}") from None


def leaf_converter(kind: pa.DataType) -> Converter | None:
    if (convert := common_leaf_converter(kind)) is not None:
        return convert
    if pa.types.is_floating(kind):
        return _float
    if pa.types.is_string(kind):
        return _string
    if pa.types.is_binary(kind):
        return _binary
    if pa.types.is_timestamp(kind):
        return _timestamp
    return None


def _float(value: Any) -> float:
    if type(value) not in (float, int):
        raise type_mismatch(value, "a float")
    return float(value)


def _string(value: Any) -> str:
    if type(value) is not str:
        raise type_mismatch(value, "a string")
    return valid_text(value)


def _binary(value: Any) -> bytes:
    if type(value) is str:
        return value.encode(errors="surrogateescape")
    if type(value) is not bytes:
        raise type_mismatch(value, "binary")
    return value


def _timestamp(value: Any) -> int:
    if type(value) is not msgpack.Timestamp:
        raise type_mismatch(value, "a timestamp")
    micros: int = value.seconds * 1_000_000 + value.nanoseconds // 1000
    if micros not in _INT64:
        raise SchemaMismatch("a timestamp outside Spark's range")
    return micros


def encode_msgpack(values: pa.Array) -> pa.Array:
    """Encode each element, null as null. Raises ConfigError if msgpack does not have a type."""
    pack = msgpack.Packer().pack
    plain = _plain(values, "")
    return pa.array([None if value is None else pack(value) for value in plain], pa.binary())


def _plain(values: pa.Array, where: str) -> list[Any]:
    """Return the elements as the packer accepts them."""
    kind = values.type
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        parts = [_plain(values.field(i), f"{where}.{name}") for i, name in enumerate(names)]
        rows: list[Any] = [dict(zip(names, row, strict=True)) for row in zip(*parts, strict=True)]
        rows = rows or [{}] * len(values)
    elif pa.types.is_map(kind):
        pairs = list(zip(_plain(values.keys, where), _plain(values.items, where), strict=True))
        rows = [dict(pairs[first:last]) for first, last in _ranges(values)]
    elif pa.types.is_list(kind):
        elements = _plain(values.values, where)
        rows = [elements[first:last] for first, last in _ranges(values)]
    elif pa.types.is_timestamp(kind):
        return [None if us is None else _time(us) for us in values.cast(pa.int64()).to_pylist()]
    elif leaf_converter(kind) is None:
        raise ConfigError(
            f"{where.lstrip('.') or 'a value'} is {kind}, which msgpack does not have; cast it"
            " first, such as to string"
        )
    else:
        rows = values.to_pylist()
    if not values.null_count:
        return rows
    there = values.is_valid().to_pylist()
    return [row if is_there else None for row, is_there in zip(rows, there, strict=True)]


def _ranges(values: pa.Array) -> Any:
    """Return the range of each list in its flat elements."""
    return pairwise(values.offsets.to_pylist())


def _time(micros: int) -> msgpack.Timestamp:
    seconds, rest = divmod(micros, 1_000_000)
    return msgpack.Timestamp(seconds, rest * 1000)
