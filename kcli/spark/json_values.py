"""Decodes values in JSON into columns of Arrow.

Pure: bytes in, columns out.

    a schema's type                 accepts
    tinyint, smallint, int, bigint  a number without fraction or exponent that fits the type
    float, double                   a number; NaN, Infinity, -Infinity, also as strings
    decimal(P,S)                    a number, or a string that is one; rounded to S digits
    boolean                         true, false
    string                          a string; any other value as its JSON
    binary                          a string in base64
    date                            "2020-01-31"
    timestamp                       "2020-01-31T23:59:59.123456Z" or with +01:00; a blank for T; UTC
                                    without a zone; an integer is seconds since 1970
    timestamp_ntz                   the same without a zone
    array<T>                        an array
    map<string,V>                   an object
    struct<...>                     an object; fields not in the schema are ignored, missing fields
                                    are null

null is null everywhere, but not as a whole value, nor where the schema has NOT NULL.

Spark's own from_json accepts nearly the same, but is not exact enough. Even with a column for
corrupt records it accepts {"id":1}{"id":2} as the first object, replaces invalid UTF-8 and single
surrogates, converts 1.50 to the string 1.5, and an empty value to null. It keeps a part of a value
that does not fit, and never reports a reason. A million values of 200 bytes took it 1.7 s on two
cores and this decoder 1.8 s; with 1 % invalid values 1.3 and 7.2 s; with a map in the schema, which
is decoded one by one, 1.3 and 6.6 s.

If a schema has neither maps nor binary, Arrow's reader is tried first, for all values at once, with
times and dates as strings. Each value is the field "r" of a line. No value can extend into the next
line, as strings have no line breaks, nor be two fields, which Arrow refuses, nor be two lines, as
lines are counted. Values that it does not accept are decoded in smaller parts, and few one by one.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

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

_MAX_BYTES = 1 << 30
"""Maximum bytes for Arrow's reader at once."""
_NOT_FINITE = {"NaN", "Infinity", "-Infinity", "+INF", "INF", "-INF", "+Infinity"}
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[T ]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,9}))?"
    r"(Z|[+-][0-9]{2}:[0-9]{2})?"
)
# The years that Arrow decodes equally; Python does not have the year 0.
_YEAR = "([1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"
_PLAIN_DATE = f"^{_YEAR}-[0-9]{{2}}-[0-9]{{2}}"
_PLAIN_TIME = f"{_PLAIN_DATE}[T ][0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}([.][0-9]+)?"
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_INT64 = range(-(1 << 63), 1 << 63)


class _Real(float):
    """A number with a fraction or an exponent, and its text."""

    text: str


def decode_json(values: pa.Array, kind: pa.DataType) -> Decoded:
    """Decode one value of this type from each binary value. Raises ConfigError if JSON does not
    have the type.
    """
    read_as = _read_as(kind)

    def at_once(part: pa.Array) -> pa.Array | None:
        return _at_once(part, read_as, kind)

    return decode(values, kind, parse, leaf_converter, at_once if read_as is not None else None)


def _read_as(kind: pa.DataType) -> pa.DataType | None:
    """Return the type for Arrow's reader; None if it cannot give the same results as `parse` and
    `leaf_converter`.
    """
    if pa.types.is_struct(kind):
        parts = [(field.name, _read_as(field.type)) for field in kind]
        is_plain = parts and all(part is not None for _, part in parts)
        return pa.struct(parts) if is_plain else None
    if pa.types.is_list(kind):
        part = _read_as(kind.value_type)
        return None if part is None else pa.list_(part)
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return pa.string()
    if pa.types.is_floating(kind):
        return pa.float64()
    if pa.types.is_decimal(kind):
        # It does not detect an overflow of longer decimals.
        return pa.decimal128(38, kind.scale) if kind.precision < 30 else None
    return None if pa.types.is_map(kind) or pa.types.is_binary(kind) else kind


def _at_once(values: pa.Array, read_as: pa.DataType, kind: pa.DataType) -> pa.Array | None:
    """Decode all values with Arrow; return None if any is invalid as far as Arrow can tell."""
    if not 0 < values.nbytes <= _MAX_BYTES:
        return None
    try:
        texts = pc.fill_null(values.cast(pa.string()), "null")
        text = _text_of(pc.binary_join_element_wise('{"r":', texts, "}\n", ""))
        read = pa.json.read_json(
            pa.BufferReader(text),
            pa.json.ReadOptions(use_threads=False, block_size=text.size),
            pa.json.ParseOptions(
                explicit_schema=pa.schema([("r", read_as)]), unexpected_field_behavior="ignore"
            ),
        )
        if len(read) != len(values):
            return None
        column = pa.concat_arrays(read["r"].chunks)
        # A null in JSON is not a value.
        return _as(column, kind) if column.null_count == values.null_count else None
    except (pa.ArrowInvalid, ColumnReadFailed):
        return None


def _as(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert columns of Arrow's reader to the wanted type."""
    if pa.types.is_struct(kind):
        parts = []
        for field, part in zip(kind, column.flatten(), strict=True):
            # If the whole is null the part may be null, but that needs a closer look.
            if part.null_count and not field.nullable:
                raise ColumnReadFailed
            parts.append(_as(part, field.type))
        mask = column.is_null() if column.null_count else None
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=mask)
    if pa.types.is_list(kind):
        elements = column.flatten()
        if elements.null_count and not kind.value_field.nullable:
            raise ColumnReadFailed
        ends = pc.cumulative_sum(pc.fill_null(pc.list_value_length(column), 0))
        at = pa.concat_arrays([pa.array([0], pa.int32()), ends])
        mask = column.is_null() if column.null_count else None
        return pa.ListArray.from_arrays(at, _as(elements, kind.value_type), type=kind, mask=mask)
    if pa.types.is_floating(kind):
        # Arrow accepts more numbers that are not finite than JSON has.
        if pc.all(pc.is_finite(column)).as_py() is False:
            raise ColumnReadFailed
        return column.cast(kind, safe=False)
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return _as_time(column, kind)
    return column.cast(kind)


def _as_time(column: pa.Array, kind: pa.DataType) -> pa.Array:
    pattern = _PLAIN_DATE if pa.types.is_date(kind) else _PLAIN_TIME
    zone = "(Z|[+-][0-9]{2}:[0-9]{2})" if pa.types.is_timestamp(kind) and kind.tz else ""
    if pc.all(pc.match_substring_regex(column, f"{pattern}{zone}$")).as_py() is False:
        raise ColumnReadFailed
    return column.cast(kind)


def _text_of(lines: pa.Array) -> pa.Buffer:
    """Return the concatenated elements; the array must not be a slice."""
    _, at, data = lines.buffers()
    return data.slice(0, pa.Array.from_buffers(pa.int32(), len(lines) + 1, [None, at])[-1].as_py())


def parse(value: bytes) -> Any:
    """Parse a value. Raises SchemaMismatch if the bytes are invalid."""
    try:
        return json.loads(value.decode(), object_pairs_hook=Pairs, parse_float=_real)
    except UnicodeDecodeError:
        raise SchemaMismatch("not JSON: it is not UTF-8") from None
    except RecursionError:
        raise SchemaMismatch("refused: it is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise SchemaMismatch(f"not JSON: {error}" if value.strip() else "it is empty") from None
    except ValueError:
        raise SchemaMismatch("refused: a number has too many digits") from None


def _real(text: str) -> _Real:
    number = _Real(text)
    number.text = text
    return number


def leaf_converter(kind: pa.DataType) -> Converter | None:
    if (convert := common_leaf_converter(kind)) is not None:
        return convert
    if pa.types.is_floating(kind):
        return _float
    if pa.types.is_decimal(kind):
        return _decimal(kind)
    if pa.types.is_string(kind):
        return _string
    if pa.types.is_binary(kind):
        return _binary
    if pa.types.is_date(kind):
        return _date
    if pa.types.is_timestamp(kind):
        return _timestamp if kind.tz else _timestamp_ntz
    return None


def _float(value: Any) -> float:
    if type(value) is str and value in _NOT_FINITE:
        return float(value)
    if type(value) not in (float, _Real, int):
        raise type_mismatch(value, "a number")
    try:
        return float(value)
    except OverflowError:
        raise SchemaMismatch("an integer too large for a float") from None


def _decimal(kind: pa.Decimal128Type) -> Converter:
    last = decimal.Decimal(1).scaleb(-kind.scale)
    most = decimal.Decimal(1).scaleb(kind.precision - kind.scale)
    exact = decimal.Context(prec=100, rounding=decimal.ROUND_HALF_UP)

    def convert(value: Any) -> decimal.Decimal:
        if type(value) not in (int, _Real, str) or (type(value) is str and "_" in value):
            raise type_mismatch(value, "a number")
        try:
            number = decimal.Decimal(getattr(value, "text", value))
            if number.is_finite() and -most < number < most:
                number = number.quantize(last, context=exact)
                if -most < number < most:
                    return number
        except decimal.InvalidOperation:
            raise type_mismatch(value, "a number") from None
        raise SchemaMismatch(f"a number that does not fit decimal({kind.precision},{kind.scale})")

    return convert


def _string(value: Any) -> str:
    if type(value) is not str:
        text = getattr(value, "text", None)
        return text if text is not None else json.dumps(_plain(value), separators=(",", ":"))
    return valid_text(value)


def _plain(parsed_value: Any) -> Any:
    if type(parsed_value) is Pairs:
        return {name: _plain(value) for name, value in parsed_value}
    return [_plain(value) for value in parsed_value] if type(parsed_value) is list else parsed_value


def _binary(value: Any) -> bytes:
    if type(value) is not str:
        raise type_mismatch(value, "a string in base64")
    try:
        return base64.b64decode(value, validate=True)
    except ValueError:
        raise SchemaMismatch("a string that is not base64") from None


def _date(value: Any) -> datetime.date:
    if type(value) is not str:
        raise type_mismatch(value, "a date")
    try:
        if _DATE.fullmatch(value):
            return datetime.date.fromisoformat(value)
    except ValueError:
        pass
    raise SchemaMismatch("a string that is not a date, such as 2020-01-31")


def _timestamp(value: Any) -> int:
    if type(value) is int:
        if value * 1_000_000 not in _INT64:
            raise SchemaMismatch("a time outside Spark's range")
        return value * 1_000_000
    return _micros(value, zoned=True)


def _timestamp_ntz(value: Any) -> int:
    return _micros(value, zoned=False)


def _micros(value: Any, *, zoned: bool) -> int:
    if type(value) is not str:
        raise type_mismatch(value, "a time")
    parts = _TIME.fullmatch(value)
    try:
        if parts is not None and (zoned or parts[4] is None):
            zone = (parts[4] or "Z").replace("Z", "+00:00")
            time = datetime.datetime.fromisoformat(f"{parts[1]}T{parts[2]}{zone}")
            micros = int((parts[3] or "0").ljust(6, "0")[:6])
            return (time - _EPOCH) // datetime.timedelta(microseconds=1) + micros
    except ValueError:
        pass
    example = "2020-01-31T23:59:59.123" + ("Z" if zoned else "")
    raise SchemaMismatch(f"a string that is not a time, such as {example}")
