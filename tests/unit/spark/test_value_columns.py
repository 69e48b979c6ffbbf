"""keyFormat and valueFormat: what is taken, the columns by them, and what becomes of values."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="the extra spark")
pytest.importorskip("pyarrow", reason="the extra spark")

import pickle

import msgpack
import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    LongType,
    StringType,
    StructField,
    StructType,
    VariantType,
)

from kcli.spark.options import batch_options
from kcli.spark.source import COLUMNS, columns_of
from kcli.spark.value_columns import BadValue, ValueColumns, read_schema
from kcli.spark.value_options import ValueOptions, value_options
from kserver.errors import ConfigError
from kserver.model import TopicPartition

BASE = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}
T0 = TopicPartition("t", 0)
ID = StructType([StructField("id", LongType())])


def options(**given: str) -> ValueOptions:
    return value_options(given.get)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            {"valueFormat": "avro"},
            "option valueFormat must be one of raw, string, json, msgpack, not",
        ),
        (
            {"valueFormat": "string", "valueSchema": "a int"},
            "option valueSchema is for valueFormat",
        ),
        ({"keySchema": "a int"}, "option keySchema is for keyFormat json or msgpack"),
        (
            {"mode": "DROPMALFORMED"},
            "option mode must be PERMISSIVE or FAILFAST, not 'DROPMALFORMED'",
        ),
    ],
)
def test_what_cannot_be_taken_is_refused_by_name(given, told):
    with pytest.raises(ConfigError, match=told):
        batch_options(BASE | given)


def test_a_schema_in_ddl_stands_in_the_ddl_of_all_columns():
    assert read_schema(COLUMNS, options()) == COLUMNS
    as_text = read_schema(COLUMNS, options(keyFormat="String"))
    assert isinstance(as_text, StructType)
    assert (as_text["key"].dataType, as_text["value"].dataType) == (StringType(), BinaryType())
    ddl = read_schema(COLUMNS, options(valueFormat="json", valueSchema="id bigint, n array<int>"))
    assert ddl == (
        "key binary, value struct<id bigint, n array<int>>, topic string, partition int,"
        " offset bigint, timestamp timestamp, timestampType int"
    )
    whole = read_schema(COLUMNS, options(valueFormat="json", valueSchema=" map<string,int>"))
    assert "value  map<string,int>, topic" in whole
    as_json = read_schema(COLUMNS, options(valueFormat="msgpack", valueSchema=ID.json()))
    assert as_json["value"].dataType == ID


def test_a_schema_is_required_and_to_be_one():
    for schema, told in ((None, "requires valueSchema"), ("{}", "not Spark's JSON of a schema")):
        given = {"valueFormat": "json"} | ({"valueSchema": schema} if schema else {})
        with pytest.raises(ConfigError, match=told):
            read_schema(COLUMNS, options(**given))


def test_of_what_is_decoded_the_schema_tells_the_type():
    columns_of(StructType([StructField("value", ID)]), options(valueFormat="json"))
    columns_of(StructType([StructField("key", StringType())]), options(keyFormat="string"))
    for schema, given, told in (
        (ID, options(valueFormat="json"), "names a column id"),
        (StructType([StructField("value", ID)]), options(keyFormat="json"), "it is binary"),
        (
            StructType([StructField("value", BinaryType())]),
            options(valueFormat="string"),
            "the schema has value as binary, but it is string",
        ),
        (
            StructType([StructField("value", VariantType())]),
            options(valueFormat="json"),
            "a value as variant",
        ),
    ):
        with pytest.raises(ConfigError, match=told):
            columns_of(schema, given)


def read(value_type, values: list[bytes | None], **given: str) -> pa.RecordBatch:
    """What a task makes of these values, in another process."""
    schema = StructType([StructField("offset", LongType()), StructField("value", value_type)])
    columns = pickle.loads(pickle.dumps(ValueColumns(schema, options(**given))))
    assert columns.read == ("offset", "value")
    batch = pa.RecordBatch.from_pydict(
        {"offset": pa.array(range(7, 7 + len(values))), "value": pa.array(values, pa.binary())}
    )
    return columns.decoded(batch, T0)


GOOD = {"json": b'{"id":1}', "msgpack": msgpack.packb({"id": 1})}


@pytest.mark.parametrize("format", GOOD)
def test_a_bad_value_is_null_or_stops_the_query(format):
    values = [GOOD[format], b"\xff", None]
    found = read(ID, values, valueFormat=format)
    assert found["value"].to_pylist() == [{"id": 1}, None, None]
    with pytest.raises(BadValue, match="the value at offset 8 of t-0: "):
        read(ID, values, valueFormat=format, mode="failfast")
    assert read(ID, [values[0], None], valueFormat=format, mode="failfast").num_rows == 2


def test_to_tell_the_offset_of_a_bad_value_it_is_read():
    schema = StructType([StructField("value", StringType())])
    strict = ValueColumns(schema, options(valueFormat="string", mode="FAILFAST"))
    assert strict.read == ("value", "offset")
    batch = pa.RecordBatch.from_pydict({"value": pa.array([b"a"]), "offset": pa.array([3])})
    assert strict.decoded(batch, T0).schema.names == ["value"]
    assert ValueColumns(schema, options(valueFormat="string")).read == ("value",)


@pytest.mark.parametrize(
    ("kind", "kept"),
    [
        ("string", "\N{REPLACEMENT CHARACTER}"),
        ("binary", b"\xff"),
        ("struct", {"record": b"\xff", "reason": "not JSON: it is not UTF-8"}),
    ],
)
def test_a_field_of_the_schema_takes_what_is_bad(kind, kept):
    both = StructType([StructField("record", BinaryType()), StructField("reason", StringType())])
    types = {"string": StringType(), "binary": BinaryType(), "struct": both}
    with_bad = StructType([StructField("bad", types[kind]), *ID])
    values = [b'{"id":1}', b"\xff", None]
    found = read(with_bad, values, valueFormat="json", columnNameOfCorruptRecord="bad")
    assert found["value"].to_pylist() == [{"bad": None, "id": 1}, {"bad": kept, "id": None}, None]


def test_a_field_for_what_is_bad_has_a_type_for_it_and_no_other_field_is_required():
    for fields, told in (
        ([StructField("_corrupt_record", LongType())], "has _corrupt_record as int64"),
        (
            [StructField("_corrupt_record", StringType()), StructField("id", LongType(), False)],
            "has id NOT NULL together with _corrupt_record",
        ),
    ):
        schema = StructType([StructField("value", StructType(fields))])
        with pytest.raises(ConfigError, match=told):
            ValueColumns(schema, options(valueFormat="json"))


def test_a_required_field_that_is_not_there_is_bad():
    required = StructType([StructField("id", LongType(), False), StructField("n", LongType())])
    for format, value in (("json", b'{"n":1}'), ("msgpack", msgpack.packb({"n": 1}))):
        found = read(required, [value, GOOD[format]], valueFormat=format)
        assert found["value"].to_pylist() == [None, {"id": 1, "n": None}]


def test_text_is_utf_8_or_null():
    found = read(StringType(), ["é".encode(), b"\xff", None], valueFormat="string")
    assert found["value"].to_pylist() == ["é", None, None]
