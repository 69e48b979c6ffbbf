"""Key and value decoded into the columns of keyFormat and valueFormat.

    read_schema       the source's columns
    ValueColumns      decodes the batches that a task has read

A schema in DDL is parsed by Spark itself, as a part of the DDL of all columns, because there is no
JVM where the source runs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.types import BinaryType, DataType, StringType, StructField, StructType

from kcli.spark.schema_converter import Decoded, converter_of
from kcli.spark.value_options import ValueOptions
from kserver.errors import ConfigError
from kserver.model import TopicPartition

_WHOLE = re.compile(r"\s*(struct|array|map)\s*<", re.IGNORECASE)
PLAIN: Mapping[str, DataType] = {"raw": BinaryType(), "string": StringType()}
"""The formats with a fixed type."""
BOTH = pa.struct([pa.field("record", pa.binary()), pa.field("reason", pa.string())])


def read_schema(columns: StructType, options: ValueOptions) -> StructType | str:
    """Return these columns with the types of decoded keys and values; DDL if a schema is DDL."""
    types = {f.name: f.dataType for f in columns} | {
        name: _type_of(name, format, options.schemas[name])
        for name, format in options.formats.items()
    }
    parsed = [StructField(name, kind) for name, kind in types.items() if not isinstance(kind, str)]
    if len(parsed) == len(types):
        return StructType(parsed)
    texts = types | {field.name: field.dataType.simpleString() for field in parsed}
    return ", ".join(f"{name} {text}" for name, text in texts.items())


def _type_of(name: str, format: str, schema: str | None) -> DataType | str:
    if format in PLAIN:
        return PLAIN[format]
    if schema is None or not schema.strip():
        raise ConfigError(
            f"option {name}Format {format} requires {name}Schema, such as 'id bigint, name string'"
        )
    if not schema.lstrip().startswith("{"):
        return schema if _WHOLE.match(schema) else f"struct<{schema}>"
    try:
        return StructType.fromJson(json.loads(schema))
    except Exception as error:  # errors of many types, for missing or invalid parts
        raise ConfigError(
            f"option {name}Schema is not Spark's JSON of a schema: {type(error).__name__}: {error}"
        ) from error


class ValueColumns:
    """Decodes batches of raw columns into those of a schema. Sent to the tasks."""

    def __init__(self, schema: StructType, options: ValueOptions) -> None:
        """Raises ConfigError if a format does not have a type."""
        from pyspark.sql.pandas.types import to_arrow_schema

        arrow = to_arrow_schema(schema, timezone="UTC")
        self._fails = options.fails
        self._decoders = {
            name: Decoder(name, format, arrow.field(name).type, options.corrupt)
            for name, format in options.formats.items()
            if format != "raw" and name in schema.names
        }
        self._schema = arrow
        # Errors name the offset.
        self.read = tuple(schema.names)
        if self._fails and self._decoders and "offset" not in self.read:
            self.read += ("offset",)

    def decoded(self, batch: pa.RecordBatch, partition: TopicPartition) -> pa.RecordBatch:
        """Decode a batch. Raises BadValue for the first invalid value if the mode is FAILFAST."""
        if not self._decoders:
            return batch
        columns = []
        for name in self._schema.names:
            column = batch.column(name)
            if (decoder := self._decoders.get(name)) is not None:
                data, reasons = decoder(column)
                if self._fails:
                    _check(name, reasons, batch.column("offset"), partition)
                column = data
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


class BadValue(Exception):
    """A value does not match valueFormat and valueSchema, and the mode is FAILFAST."""


def _check(name: str, reasons: pa.Array, offsets: pa.Array, partition: TopicPartition) -> None:
    if reasons.null_count == len(reasons):
        return
    import pyarrow.compute as pc  # imported here: slow to load, and most queries do not need it

    i = pc.index(reasons.is_valid(), True).as_py()
    raise BadValue(
        f"the {name} at offset {offsets[i]} of {partition}: {reasons[i]}; to read on, set the"
        " option mode to PERMISSIVE"
    )


class Decoder:
    """Decodes one column."""

    def __init__(self, name: str, format: str, kind: pa.DataType, corrupt: str) -> None:
        self._format = format
        self._kind = kind
        self._corrupt: pa.Field | None = None
        self._inner = kind
        if format == "string":
            return
        if pa.types.is_struct(kind) and kind.get_field_index(corrupt) >= 0:
            self._corrupt = kind.field(corrupt)
            self._inner = pa.struct([field for field in kind if field.name != corrupt])
            _check_corrupt(name, self._corrupt, self._inner)
        decoder_of(format, self._inner)

    def __call__(self, values: pa.Array) -> Decoded:
        if self._format == "string":
            return _texts(values)
        column = decoder_of(self._format, self._inner)(values)
        return column if self._corrupt is None else self._with_corrupt(values, column)

    def _with_corrupt(self, values: pa.Array, decoded_column: Decoded) -> Decoded:
        """Set all fields of an invalid value to null, except the field for corrupt records."""
        import pyarrow.compute as pc

        assert self._corrupt is not None
        bad = decoded_column.reasons.is_valid()
        record = pc.if_else(bad, values, pa.scalar(None, values.type))
        column: Any
        if pa.types.is_string(self._corrupt.type):
            column = pa.array(
                [
                    None if each is None else each.decode(errors="replace")
                    for each in record.to_pylist()
                ],
                pa.string(),
            )
        elif pa.types.is_binary(self._corrupt.type):
            column = record
        else:
            column = pa.StructArray.from_arrays(
                [record, decoded_column.reasons], fields=list(BOTH), mask=pc.invert(bad)
            ).cast(self._corrupt.type)
        parts = dict(zip([f.name for f in self._inner], decoded_column.data.flatten(), strict=True))
        parts[self._corrupt.name] = column
        data = pa.StructArray.from_arrays(
            [parts[field.name] for field in self._kind],
            fields=list(self._kind),
            mask=pc.and_(decoded_column.data.is_null(), pc.invert(bad)),
        )
        return Decoded(data, decoded_column.reasons)


def decoder_of(format: str, kind: pa.DataType) -> Callable[[pa.Array], Decoded]:
    """Return the decoder of binary values into this type, in json or msgpack. Raises ConfigError if
    the format does not have a type.
    """
    if format == "json":
        from kcli.spark.json_values import decode_json as decode
        from kcli.spark.json_values import leaf_converter
    else:
        from kcli.spark.msgpack_values import decode_msgpack as decode
        from kcli.spark.msgpack_values import leaf_converter
    converter_of(kind, leaf_converter)
    return lambda values: decode(values, kind)


def _check_corrupt(name: str, corrupt: pa.Field, rest: pa.StructType) -> None:
    if corrupt.type not in (pa.string(), pa.binary(), BOTH):
        raise ConfigError(
            f"option {name}Schema has {corrupt.name} as {corrupt.type}; its type must be string,"
            " binary or struct<record binary, reason string>"
        )
    for field in [corrupt, *rest]:
        if not field.nullable:
            raise ConfigError(
                f"option {name}Schema has {field.name} NOT NULL together with {corrupt.name}: one "
                f"of them is always null; leave out NOT NULL, or {corrupt.name}"
            )


def _texts(values: pa.Array) -> Decoded:
    try:
        return Decoded(values.cast(pa.string()), pa.nulls(len(values), pa.string()))
    except pa.ArrowInvalid:
        pass
    texts, reasons = [], []
    for value in values.to_pylist():
        text = reason = None
        if value is not None:
            try:
                text = value.decode()
            except UnicodeDecodeError:
                reason = "it is not UTF-8"
        texts.append(text)
        reasons.append(reason)
    return Decoded(pa.array(texts, pa.string()), pa.array(reasons, pa.string()))
