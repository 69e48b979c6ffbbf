"""The data source `k`: its readers, its writers and its columns.

The columns are those of Spark's own Kafka source. A user's schema with fewer of them reads only
these: `spark.read.schema("value binary")`. keyFormat and valueFormat give key and value other
types. For the columns of a write see write_options.

Spark starts a Python process for each call, so each method imports only what it needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kcli.spark.value_options import ValueOptions, value_options
from kserver.errors import ConfigError

if TYPE_CHECKING:
    from kcli.spark.value_columns import ValueColumns
    from kcli.spark.write_options import WriteOptions

COLUMNS = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
)
HEADERS = StructField(
    "headers",
    ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
)


class KafkaSource(DataSource):
    """`format("k")` of spark.read, spark.readStream, a frame's write and its writeStream."""

    @classmethod
    def name(cls) -> str:
        return "k"

    def schema(self) -> StructType | str:
        # Other errors are left to the readers, which know whether they are batch or stream.
        include = self.options.get("includeHeaders", "false").strip().lower() == "true"
        columns = StructType([*COLUMNS, HEADERS]) if include else COLUMNS
        options = value_options(self.options.get)
        if set(options.formats.values()) == {"raw"}:
            return columns
        from kcli.spark.value_columns import read_schema

        return read_schema(columns, options)

    def reader(self, schema: StructType) -> DataSourceReader:
        from kcli.spark.batch import batch_reader
        from kcli.spark.options import batch_options

        options = batch_options(self.options)
        return batch_reader(options, columns_of(schema, options.values))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from kcli.spark.options import stream_options
        from kcli.spark.stream import StreamReader

        options = stream_options(self.options)
        return StreamReader(options, columns_of(schema, options.values))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from kcli.spark.sink import BatchWriter

        if overwrite:
            raise ConfigError(
                "a topic cannot be overwritten: mode('append') adds to it, and k topics --delete"
                " makes way for a new one"
            )
        return BatchWriter(*_write_options(schema, self.options))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the writer; in complete mode each batch is appended too, as by Spark's own
        sink.
        """
        from kcli.spark.sink import StreamWriter

        return StreamWriter(*_write_options(schema, self.options))


def columns_of(schema: StructType, options: ValueOptions) -> ValueColumns:
    """Return the columns of a schema. Raises ConfigError if one does not exist or has another
    type.
    """
    from kcli.spark.value_columns import PLAIN, ValueColumns

    types = {field.name: field.dataType for field in [*COLUMNS, HEADERS]}
    # The schema determines the type of decoded columns.
    any_type = {name for name, format in options.formats.items() if format not in PLAIN}
    types |= {name: PLAIN.get(format, types[name]) for name, format in options.formats.items()}
    for field in schema:
        if field.name not in types:
            raise ConfigError(
                f"the schema names a column {field.name}, which does not exist; columns are "
                f"{', '.join(types)}"
            )
        if field.dataType != types[field.name] and field.name not in any_type:
            raise ConfigError(
                f"the schema has {field.name} as {field.dataType.simpleString()}, but it is"
                f" {types[field.name].simpleString()}: cast it after the read"
            )
    return ValueColumns(schema, options)


def _write_options(
    schema: StructType, texts: Mapping[str, str]
) -> tuple[WriteOptions, tuple[str, ...]]:
    """Return the options of a write and the columns to write."""
    from kcli.spark import write_options

    options = write_options.write_options(texts)
    types = {field.name: field.dataType.simpleString() for field in schema}
    return options, write_options.columns_of(types, options)
