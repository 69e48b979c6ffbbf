"""Values: decoding of keys or values, as expressions for any frame.

    decoded(frame, "json", "id bigint, at timestamp")    two more columns, data and reason
    from_msgpack("value", "id bigint, tags array<string>")
    to_msgpack(struct("id", "tags"))

They do what valueFormat does as an option of a read. Spark's own from_json reads JSON too, but it
keeps a part of a value that does not fit, and the first of two objects in one value. For Avro and
Protobuf there are Spark's from_avro and from_protobuf, in jars that the user provides.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kcli.spark.value_options import FORMATS
from kserver.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

_BOTH = "_k_decoded"
"""A temporary column."""


def decoded(
    frame: DataFrame, format: str, schema: StructType | str | None = None, column: str = "value"
) -> DataFrame:
    """Return the frame with two more columns: `data`, the decoded bytes of `column`, and `reason`,
    a string, why they are invalid. One of them is null, or both if there are no bytes.

    raw gives the bytes, string their text, json and msgpack the fields of `schema`: a StructType,
    or a text for `schema_of`. Raises ConfigError if the format or the schema is invalid.
    """
    from pyspark.sql import functions as f

    content = frame[column]
    if format == "raw":
        return frame.withColumns({"data": content, "reason": f.lit(None).cast("string")})
    if format == "string":
        text = content.cast("string")
        is_text = f.is_valid_utf8(text)
        reason = f.when(~is_text, f.lit("it is not UTF-8"))
        return frame.withColumns({"data": f.when(is_text, text), "reason": reason})
    if format not in FORMATS:
        raise ConfigError(f"the format {format} does not exist; use {', '.join(FORMATS)}")
    if schema is None:
        raise ConfigError(f"values in {format} require a schema, such as 'id bigint, name string'")
    both = frame.withColumn(_BOTH, _decoder(format, schema_of(schema), with_reason=True)(content))
    pair = {"data": f.col(f"{_BOTH}.data"), "reason": f.col(f"{_BOTH}.reason")}
    return both.withColumns(pair).drop(_BOTH)


def from_msgpack(column: Column | str, schema: StructType | str) -> Column:
    """Return msgpack's bytes decoded by the schema; null if they are invalid."""
    result: Column = _decoder("msgpack", schema_of(schema), with_reason=False)(column)
    return result


def to_msgpack(column: Column | str) -> Column:
    """Return a struct, or any other column, encoded in msgpack."""
    import pyarrow as pa

    from kcli.spark.msgpack_values import encode_msgpack

    def encode(values: pa.Array) -> pa.Array:
        return encode_msgpack(values)

    result: Column = _arrow_udf(encode, "binary", pa.Array)(column)
    return result


def schema_of(text: StructType | str) -> StructType:
    """Parse DDL or Spark's JSON, in the driver. Raises ConfigError if it is neither."""
    from pyspark.errors import ParseException
    from pyspark.sql.types import StructType

    if isinstance(text, StructType):
        return text
    try:
        if text.lstrip().startswith("{"):
            return StructType.fromJson(json.loads(text))
        schema = StructType.fromDDL(text)
    except (ParseException, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ConfigError(f"the schema {text!r:.200} is neither DDL nor JSON: {reason}") from error
    if not isinstance(schema, StructType):
        raise ConfigError(f"the schema {text!r:.200} names no fields; give 'NAME TYPE, ...'")
    return schema


def _decoder(format: str, schema: StructType, *, with_reason: bool) -> Any:
    """Return a function of Arrow columns; errors of the schema are raised here, in the driver."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_type
    from pyspark.sql.types import StringType, StructField, StructType

    from kcli.spark.value_columns import decoder_of

    kind = to_arrow_type(schema, timezone="UTC")
    decode_all = decoder_of(format, kind)
    pair = StructType([StructField("data", schema), StructField("reason", StringType())])

    def decode(values: pa.Array) -> pa.Array:
        columns = decode_all(values)
        if not with_reason:
            return columns.data
        return pa.StructArray.from_arrays(list(columns), names=["data", "reason"])

    return _arrow_udf(decode, pair if with_reason else schema, pa.Array)


def _arrow_udf(of: Callable[..., Any], returns: DataType | str, kind: type) -> Any:
    from pyspark.sql.pandas.functions import arrow_udf

    # Spark needs hints as types, but in this module they are texts.
    of.__annotations__ = {"values": kind, "return": kind}
    make: Any = arrow_udf
    return make(of, returns)
