"""Test keys and values as text, JSON and msgpack, with options of a read and as expressions, in
Spark."""

from __future__ import annotations

import json

import msgpack
import pytest

from tests.support import spark_connector, tools
from tests.support.brokers import append
from tests.support.frames import T0, of, refusal, run

SCHEMA = "id bigint, tags array<string>, at timestamp, more struct<f: double>"
GOOD = {"id": 1, "tags": ["a", None], "more": {"f": 1.5}, "unknown": [1]}
AT = "2020-01-31T23:59:59.123456Z"
JSON = [
    json.dumps(GOOD | {"at": AT}),
    "{}",
    '{"id":"1"}',
    "",
    None,
    "null",
    '{"more":{"f":"x"}}',
    '[{"id":1}]',
    '{"tags":[1]}',
    '{"id":1',
    '{"id":1}{"id":2}',
]
SECONDS = 1_580_515_199
PACKED = [
    msgpack.packb(GOOD | {"at": msgpack.Timestamp(SECONDS, 123_456_789)}),
    b"\x80",
    msgpack.packb({"id": "1"}),
    b"",
    None,
    b"\xc0",
    b"\xdf\xff\xff\xff\xff",
]


@pytest.fixture
def put(broker, topic):
    def put(values, key: bytes | None = None) -> None:
        records = [(T0, key, v.encode() if isinstance(v, str) else v, ()) for v in values]
        append(broker.address, topic, records)

    return put


def good(frame, column: str = "value"):
    """Return the first row's decoded value, which is valid."""
    row = frame.orderBy("offset").select(f"{column}.*").first().asDict(recursive=True)
    assert row.pop("at").timestamp() == SECONDS + 0.123456
    return row


KEPT = {"id": 1, "tags": ["a", None], "more": {"f": 1.5}}


@pytest.mark.parametrize(("format", "values"), [("json", JSON), ("msgpack", PACKED)])
def test_a_read_decodes_and_so_does_an_expression(spark, broker, topic, put, format, values):
    from kcli.spark.values import decoded

    put(values, key="ключ".encode())
    frame = of(
        spark.read,
        broker,
        topic,
        valueFormat=format,
        valueSchema=f"{SCHEMA}, bad struct<record: binary, reason: string>",
        columnNameOfCorruptRecord="bad",
        keyFormat="string",
    ).load()
    assert good(frame.drop("bad").selectExpr("offset", "value")) == KEPT | {"bad": None}
    rows = frame.orderBy("offset").select("key", "value.bad", "value").collect()
    assert {row.key for row in rows} == {"ключ"}
    plain = of(spark.read, broker, topic).load()
    told = decoded(plain, format, SCHEMA).orderBy("offset")
    assert good(told, "data") == KEPT
    for row, one, value in zip(rows, told.collect(), values, strict=True):
        if value is None:
            assert row.value is row.bad is one.data is one.reason is None
        elif one.reason is None:
            assert row.bad is None
            assert row.value.asDict()["id"] == one.data.id
        else:
            assert one.data is None, value
            assert row.bad is not None, value
            assert bytes(row.bad.record) == (value.encode() if format == "json" else value)
            assert row.bad.reason == one.reason
    assert sum(row.bad is not None for row in rows) >= 4


def test_a_schema_in_json_and_columns_of_the_users(spark, broker, topic, put):
    from pyspark.sql.types import StructType

    put(PACKED)
    schema = StructType.fromDDL(SCHEMA)
    named = of(spark.read, broker, topic, valueFormat="msgpack", valueSchema=schema.json()).load()
    assert named.schema["value"].dataType == schema
    assert good(named) == KEPT
    chosen = of(spark.read, broker, topic, valueFormat="msgpack").schema("value struct<id: long>")
    ids = [row.value and row.value.id for row in chosen.load().collect()]
    assert ids == [1, None, None, None, None, None, None]


def test_a_query_stops_at_what_is_bad_or_passes_it_by(spark, broker, topic, put, tmp_path):
    from pyspark.sql.functions import col

    put(JSON)
    options = {"valueFormat": "json", "valueSchema": "id bigint", "startingOffsets": "earliest"}
    strict = of(spark.read, broker, topic, **options, mode="FAILFAST").load()
    told = refusal(strict.select("value").collect)
    assert f"the value at offset 2 of {topic}-0: id: expected an integer, found a string" in told
    stream = of(spark.readStream, broker, topic, **options).load()
    read, _ = run(
        stream.select(col("value.id").cast("string").cast("binary").alias("value")).where(
            "value is not null"
        ),
        tmp_path / "c",
    )
    assert read == ["1"]


def test_what_the_options_cannot_say_is_refused(spark, broker, topic):
    told = refusal(of(spark.read, broker, topic, valueFormat="json").load)
    assert "option valueFormat json requires valueSchema" in told
    wrong = of(spark.read, broker, topic, valueFormat="msgpack", valueSchema="d decimal(9,2)")
    assert "the schema has d as decimal128(9, 2)" in refusal(wrong.load().collect)


def test_expressions_go_both_ways_and_take_any_column(spark, broker):
    from pyspark.sql.functions import col, struct

    from kcli.spark.values import decoded, from_msgpack, to_msgpack

    frame = spark.sql(
        "select id, array(string(id), null) tags, timestamp_micros(id) at from range(3)"
    )
    packed = frame.select(to_msgpack(struct("id", "tags", "at")).alias("p"), "id")
    back = packed.select(from_msgpack("p", "at timestamp, id int, tags array<string>").alias("b"))
    zone = spark.conf.get("spark.sql.session.timeZone")
    try:
        for other in (zone, "America/New_York"):
            spark.conf.set("spark.sql.session.timeZone", other)
            assert back.select("b.id", "b.tags", "b.at").collect() == frame.collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    texts = spark.createDataFrame([(b"a",), (b"\xff",), (None,)], "p binary")
    assert [
        tuple(r) for r in decoded(texts, "string", column="p").select("data", "reason").collect()
    ] == [("a", None), (None, "it is not UTF-8"), (None, None)]
    raw = decoded(texts, "raw", column="p").where(col("data").eqNullSafe(col("p")))
    assert raw.where("reason is null").count() == 3


@pytest.mark.parametrize(
    ("value", "taken", "reason"),
    [
        (b'{"id":1}{"id":2}', (1, None), "not JSON: Extra data"),
        (b'{"id":1} x', (1, None), "not JSON: Extra data"),
        (b'{"s":"\xff"}', (None, "\ufffd"), "not JSON: it is not UTF-8"),
        (b'{"s":"\\ud800"}', (None, "?"), "s: a string that is not UTF-8"),
    ],
)
def test_sparks_own_from_json_takes_for_good_what_is_not(spark, value, taken, reason):
    """Otherwise from_json could replace kcli/spark/json_values.py."""
    from pyspark.sql.functions import from_json

    from kcli.spark.values import decoded

    frame = spark.createDataFrame([(value,)], "value binary")
    row = decoded(frame, "json", "id int, s string").first()
    assert row.data is None
    assert row.reason.startswith(reason)
    schema = "id int, s string, bad string"
    kept = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "bad"}
    text = frame.value.cast("string")
    assert frame.select(from_json(text, schema, kept)).first()[0] == (*taken, None)


def test_a_schema_that_is_none_is_refused_in_the_driver(spark, broker):
    from kcli.spark.values import decoded, schema_of
    from kserver.errors import ConfigError

    frame = spark.createDataFrame([(b"",)], "value binary")
    for schema in ("id bigbigint", "{}", "int"):
        with pytest.raises(ConfigError, match="the schema"):
            schema_of(schema)
    with pytest.raises(ConfigError, match="require a schema"):
        decoded(frame, "json")
    with pytest.raises(ConfigError, match="the format avro does not exist; use raw, string"):
        decoded(frame, "avro", "id bigint")


def test_avro_is_read_and_written_by_sparks_own_functions(spark, broker, topic):
    from pyspark.sql.avro.functions import from_avro, to_avro
    from pyspark.sql.functions import struct

    if not spark_connector.jars():
        tools.require("mvn")
    fields = [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]}]
    schema = json.dumps({"type": "record", "name": "order", "fields": fields})
    rows = [(1, "a"), (2, None)]
    frame = spark.createDataFrame(rows, "id bigint, name string")
    written = frame.select(to_avro(struct("id", "name"), schema).alias("value"))
    writer = written.write.format("k").option("kafka.bootstrap.servers", broker.address)
    writer.option("topic", topic).mode("append").save()
    read = of(spark.read, broker, topic).load()
    found = read.select(from_avro("value", schema).alias("order")).select("order.*")
    assert sorted(map(tuple, found.collect())) == rows
