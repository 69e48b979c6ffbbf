"""Test that Spark's own `format("kafka")` writes to our broker as to Apache's, and that
`format("k")` writes the same records, in batches and streams."""

from __future__ import annotations

import time

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from kcli.client import Blocking, Consumer
from kserver.model import TopicPartition
from tests.integration.spark.test_connector_streams import (
    BOOTSTRAP,
    EARLIEST,
    FORMATS,
    RUN_S,
    stream,
)
from tests.support import brokers
from tests.support.brokers import create_topic
from tests.support.frames import fill

PARTITIONS = 3
ROWS = (
    "key binary, value string, partition int, headers array<struct<key:string,value:binary>>,"
    " topic string, timestamp timestamp"
)
RECORDS = [
    (b"k", "headers", 1, [("a", b"1"), ("a", b"2"), ("", b""), ("null", None)], None, None),
    (None, None, 0, None, None, None),
    (b"", "", 0, [], None, None),
    (b"\xff", "\u00fc" * 500, 2, None, None, None),
    (b"deleted", None, 1, None, None, None),
]
KEYED = [(b"%d" % n, f"{n}", None, None, None, None) for n in range(30)]
"""Rows whose partition depends on their key."""
REFUSED = (
    ("SELECT 'x' AS value", {}),
    ("SELECT 'x' AS key", {"topic": "$topic"}),
    ("SELECT 1 AS value", {"topic": "$topic"}),
    ("SELECT 'x' AS value, 1 AS key", {"topic": "$topic"}),
    ("SELECT 'x' AS value, '1' AS partition", {"topic": "$topic"}),
    ("SELECT 'x' AS value, 'h' AS headers", {"topic": "$topic"}),
    ("SELECT 'x' AS value, 1 AS topic", {}),
    ("SELECT 'x' AS value, cast(null AS string) AS topic", {}),
    (
        f"SELECT 'x' AS value, {PARTITIONS} AS partition",
        {"topic": "$topic", "kafka.max.block.ms": "300", "kafka.delivery.timeout.ms": "31000"},
    ),
    ("SELECT 'x' AS value", {"topic": "$topic", "kafka.key.serializer": "x"}),
    ("SELECT 'x' AS value", {"topic": "$topic", "kafka.value.serializer": "x"}),
)

RAISED = (PySparkException, Py4JJavaError)

_names = brokers.names("sunk")


def written(broker, topic: str) -> list[list[tuple]]:
    """Return key, value and headers of all records, by partition."""
    all_of = [TopicPartition(topic, n) for n in range(PARTITIONS)]
    found: list[list[tuple]] = [[] for _ in all_of]
    given = {"bootstrap.servers": broker.address, "isolation.level": "read_committed"}
    with Blocking(Consumer, given) as consumer:
        consumer.assign(all_of)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(all_of)
        deadline = time.monotonic() + RUN_S
        while any(consumer.position(p) < end for p, end in ends.items()):
            assert time.monotonic() < deadline, f"{topic} does not end at {ends}"
            for record in consumer.poll(1000):
                found[record.partition].append((record.key, record.value, tuple(record.headers)))
    return found


def new_topic(broker) -> str:
    return create_topic(broker.address, f"{next(_names)}-{broker.address[-5:]}", PARTITIONS)


def append(frame, broker, format: str, options: dict[str, str]) -> None:
    writer = frame.write.format(format).option(BOOTSTRAP, broker.address)
    writer.options(**options).mode("append").save()


def test_both_write_the_same_records(spark, either):
    """The option `topic` overrides the column; without the option, the column determines the
    topic."""
    frame = spark.createDataFrame(RECORDS + KEYED, ROWS).coalesce(1)
    found = {}
    for format in FORMATS:
        by_option, by_column = new_topic(either), new_topic(either)
        append(frame, either, format, {"topic": by_option, "kafka.compression.type": "zstd"})
        named = frame.drop("topic").selectExpr("*", f"'{by_column}' AS topic")
        append(named, either, format, {"kafka.linger.ms": "5"})
        found[format] = written(either, by_option), written(either, by_column)
    assert found["k"] == found["kafka"]
    by_option, by_column = found["k"]
    assert by_option == by_column
    assert sum(map(len, by_option)) == len(RECORDS) + len(KEYED)
    assert (b"k", b"headers", (("a", b"1"), ("a", b"2"), ("", b""), ("null", None))) in by_option[1]
    assert (None, None, ()) in by_option[0]
    assert all(by_option)


def test_both_refuse_the_same_writes(spark, either):
    topic = new_topic(either)
    for sql, given in REFUSED:
        options = {name: topic if text == "$topic" else text for name, text in given.items()}
        with pytest.raises(RAISED):
            append(spark.sql(sql), either, "kafka", options)
        with pytest.raises(RAISED, match=r"ConfigError|WriteFailed"):
            append(spark.sql(sql), either, "k", options)
    assert not any(written(either, topic))


@pytest.mark.parametrize(
    ("format", "given"), [("kafka", {}), ("k", {}), ("k", {"exactlyOnce": "true"})]
)
def test_a_stream_from_topic_to_topic_goes_on(spark, either, tmp_path, format, given):
    source, sink = new_topic(either), new_topic(either)

    def run() -> None:
        frame = stream(spark, either, format, {"subscribe": source} | EARLIEST)
        query = (
            frame.select("key", "value", "partition")
            .writeStream.format(format)
            .option(BOOTSTRAP, either.address)
            .options(topic=sink, **given)
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(RUN_S)

    fill(either, source, 5, 3, 1)
    run()
    fill(either, source, 2, 0, 1, start=10)
    run()
    run()
    assert written(either, sink) == written(either, source)
