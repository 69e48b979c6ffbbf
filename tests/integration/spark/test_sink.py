"""Test the write and writeStream of a frame with `format("k")`, in a real Spark."""

from __future__ import annotations

import pytest

from tests.support import spark_connector, tools
from tests.support.brokers import create_topic, until
from tests.support.frames import T0, of, refusal, values

ROWS = "key string, value string, partition int, headers array<struct<key:string,value:binary>>"


def to(writer, broker, topic: str | None, **options: object):
    """Return a frame's write or writeStream to a topic, with these options."""
    writer = writer.format("k").option("kafka.bootstrap.servers", broker.address)
    if topic is not None:
        writer = writer.option("topic", topic)
    return writer.options(**{name: str(value) for name, value in options.items()})


def append(frame, broker, topic: str | None, **options: object) -> None:
    to(frame.write, broker, topic, **options).mode("append").save()


def records(spark, broker, topic: str) -> list[tuple]:
    """Return partition, key, value and headers of each record."""
    frame = of(spark.read, broker, topic, includeHeaders=True).load()
    rows = frame.orderBy("partition", "offset").collect()
    return [
        (
            row.partition,
            row.key and bytes(row.key).decode(),
            row.value and bytes(row.value).decode(),
            [(h.key, h.value and bytes(h.value)) for h in row.headers or ()],
        )
        for row in rows
    ]


def test_values_are_written_however_many(spark, broker, topic):
    frame = spark.range(30_000, numPartitions=3).selectExpr("cast(id as string) AS value")
    append(frame, broker, topic)
    found = of(spark.read, broker, topic).load().selectExpr("cast(cast(value as string) as int)")
    assert sorted(row[0] for row in found.collect()) == [*range(30_000)]


def test_a_row_says_where_it_goes_and_what_it_has(spark, broker, topic):
    rows = [
        ("a", "1", 1, [("h", b"x"), ("h", None)]),
        (None, None, 0, None),
        ("a", "2", 1, []),
    ]
    append(spark.createDataFrame(rows, ROWS).coalesce(1), broker, topic)
    assert records(spark, broker, topic) == [
        (0, None, None, []),
        (1, "a", "1", [("h", b"x"), ("h", None)]),
        (1, "a", "2", []),
    ]


def test_times_are_kept_on_request(spark, broker, topic):
    frame = spark.sql(
        f"SELECT 'x' AS value, timestamp_millis({T0 + 7}) AS timestamp"
        " UNION ALL SELECT 'y', cast(null AS timestamp)"
    )
    append(frame.coalesce(1), broker, topic, keepTimestamps=True)
    append(frame.where("value = 'x'").selectExpr("timestamp", "'z' AS value"), broker, topic)
    read = of(spark.read, broker, topic).load()
    times = {
        bytes(row.value): row.ms
        for row in read.selectExpr("value", "unix_millis(timestamp) AS ms").collect()
    }
    assert times.pop(b"x") == T0 + 7
    assert min(times.values()) > T0 + 1000
    assert times.keys() == {b"y", b"z"}


def copied(spark, broker, topic: str, target: str, where, **options: object) -> None:
    """Copy a topic with a stream that ends at the current end."""
    stream = of(spark.readStream, broker, topic, startingOffsets="earliest").load()
    query = (
        to(stream.select("key", "value").writeStream, broker, target, **options)
        .option("checkpointLocation", str(where))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)


BEFORE = [
    ("'x' AS value", None, "topic option required when no 'topic' attribute is present"),
    ("'x' AS v", "t", "required attribute 'value' not found"),
    ("1 AS value", "t", "value attribute unsupported type int"),
    ("1 AS key, 'x' AS value", "t", "key attribute unsupported type int"),
    ("'x' AS value, 1L AS partition", "t", "partition attribute unsupported type bigint"),
    ("'x' AS value, 'h' AS headers", "t", "headers attribute unsupported type string"),
    ("'x' AS value, 1 AS topic", None, "topic attribute unsupported type int"),
]


def test_frames_are_refused_as_by_sparks_own_sink(spark, broker):
    if not spark_connector.jars():
        tools.require("mvn")
    for columns, topic, told in BEFORE:
        frame = spark.sql(f"SELECT {columns}")
        for name in ("k", "kafka"):
            writer = to(frame.write, broker, topic).format(name).mode("append")
            text = refusal(writer.save).lower().replace('"', "").replace("`", "")
            assert told in text, (name, columns)


@pytest.mark.parametrize("exactly_once", [True, False])
def test_a_batch_of_a_stream_that_is_run_anew(spark, broker, topic, tmp_path, exactly_once):
    target = create_topic(broker.address, f"{topic}-copy", partitions=2)
    options = {"exactlyOnce": exactly_once, "kafka.linger.ms": 0}
    append(spark.range(100).selectExpr("cast(id AS string) AS value"), broker, topic)
    copied(spark, broker, topic, target, tmp_path, **options)
    # As if the driver had been killed before it recorded that the batch is done.
    for file in (tmp_path / "commits").iterdir():
        file.unlink()
    copied(spark, broker, topic, target, tmp_path, **options)
    append(spark.sql("SELECT 'more' AS value"), broker, topic)
    copied(spark, broker, topic, target, tmp_path, **options)
    read = of(spark.read, broker, target, **{"kafka.isolation.level": "read_committed"}).load()
    times = 1 if exactly_once else 2
    assert values(read) == sorted([*map(str, range(100))] * times + ["more"])


def test_a_batch_that_fails_leaves_nothing_when_it_is_written_exactly_once(spark, broker, topic):
    frame = spark.range(1000, numPartitions=4).selectExpr(
        "if(id = 999, raise_error('enough'), cast(id AS string)) AS value"
    )
    # A task that is killed at its start may leave a transaction that only the broker can end.
    options = {"exactlyOnce": True, "kafka.transaction.timeout.ms": 10_000}
    told = refusal(lambda: append(frame, broker, topic, **options))
    assert "enough" in told
    append(spark.sql("SELECT 'more' AS value"), broker, topic, exactlyOnce=True)
    read = of(spark.read, broker, topic, **{"kafka.isolation.level": "read_committed"}).load()
    until(lambda: values(read) == ["more"])


def test_exactly_once_is_refused_where_it_cannot_be_kept(spark, broker, topic, tmp_path):
    frame = spark.sql("SELECT 'x' AS value")
    spark.sparkContext.setLocalProperty("spark.speculation", "true")
    try:
        told = refusal(lambda: append(frame, broker, topic, exactlyOnce=True))
    finally:
        spark.sparkContext.setLocalProperty("spark.speculation", None)
    assert "set spark.speculation to false" in told

    def again(batch, _id: int) -> None:
        append(batch.select("value"), broker, topic, exactlyOnce=True)

    append(frame, broker, topic)
    stream = of(spark.readStream, broker, topic, startingOffsets="earliest").load()
    query = stream.writeStream.foreachBatch(again).trigger(availableNow=True).start()
    told = refusal(lambda: query.awaitTermination(120))
    assert "exactlyOnce is not for writes within foreachBatch" in told
    assert values(of(spark.read, broker, topic).load()) == ["x"]
