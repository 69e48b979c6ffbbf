"""Test `spark.read.format("k")` in a real Spark: the rows of a batch, and refused options."""

from __future__ import annotations

import json

import pytest

from kcli.client import Blocking, Consumer, Producer
from kcli.spark.offset_ranges import DataLost, KafkaOffsetRange
from kcli.spark.options import ReadOptions, batch_options
from kcli.spark.range_fetcher import read_ranges
from kserver.model import TopicPartition
from kserver.wire.compression import Compression
from tests.support.brokers import append, create_topic
from tests.support.frames import (
    T0,
    admin_of,
    delete_before,
    fill,
    made_anew,
    of,
    offsets,
    planned,
    refusal,
    values,
)


def test_every_column_is_what_spark_has_in_every_codec(spark, broker, topic):
    headers = (("a", b"1"), ("b", None))
    for codec in Compression:
        append(
            broker.address,
            topic,
            [(T0, b"k", codec.name.encode(), headers), (T0 + 1, None, None, ())],
            compression=codec,
        )
    frame = of(spark.read, broker, topic, includeHeaders=True).load()
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    rows = sorted(frame.collect(), key=lambda row: row.offset)
    assert [row.offset for row in rows] == list(range(2 * len(Compression)))
    for codec, row, bare in zip(Compression, rows[::2], rows[1::2], strict=True):
        assert (bytes(row.key), bytes(row.value).decode()) == (b"k", codec.name)
        assert (row.topic, row.partition, row.timestampType) == (topic, 0, 0)
        assert row.timestamp.timestamp() == T0 / 1000
        assert [(h.key, h.value and bytes(h.value)) for h in row.headers] == list(headers)
        assert bare.key is bare.value is bare.headers is None
    without = of(spark.read, broker, topic).load()
    assert without.columns == frame.columns[:-1]
    assert without.count() == len(rows)


def test_a_schema_with_fewer_columns_reads_no_more(spark, broker, topic):
    fill(broker, topic, 3, 2)
    two = of(spark.read, broker, topic).schema("offset bigint, value binary").load()
    assert two.columns == ["offset", "value"]
    assert values(two) == ["0:0", "0:1", "0:2", "1:0", "1:1"]
    told = refusal(of(spark.read, broker, topic).schema("value string").load().collect)
    assert "the schema has value as string, but it is binary" in told
    told = refusal(of(spark.read, broker, topic).schema("payload binary").load().collect)
    assert "the schema names a column payload" in told


def test_topics_are_subscribed_matched_or_assigned(spark, broker, topic):
    other = create_topic(broker.address, f"{topic}-other")
    fill(broker, topic, 1, 1)
    fill(broker, other, 1)
    assert of(spark.read, broker, f"{topic},{other}").load().count() == 3
    assert of(spark.read, broker, "", subscribePattern=f"{topic}-.*").load().count() == 1
    internal = f"{topic}|__consumer_offsets"
    with Blocking(Consumer, {"bootstrap.servers": broker.address, "group.id": topic}) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.poll(10_000)
        consumer.commit()
    assert of(spark.read, broker, "", subscribePattern=internal).load().count() == 2
    shown = {"subscribePattern": internal, "kafka.exclude.internal.topics": False}
    assert of(spark.read, broker, "", **shown).load().count() > 2
    assigned = of(spark.read, broker, "", assign=json.dumps({topic: [1]})).load()
    assert values(assigned) == ["1:0"]
    told = refusal(of(spark.read, broker, "nothing-here").load().count)
    assert "option subscribe names nothing-here, which does not exist" in told
    told = refusal(of(spark.read, broker, "", assign=json.dumps({topic: [7]})).load().count)
    assert f"option assign names {topic}-7, which does not exist" in told


def test_a_batch_begins_and_ends_where_it_is_told(spark, broker, topic):
    fill(broker, topic, 10, 5)

    def read(**options) -> list[str]:
        return values(of(spark.read, broker, topic, **options).load())

    start, end = offsets(topic, p0=8, p1=-2), offsets(topic, p0=-1, p1=1)
    assert read(startingOffsets=start, endingOffsets=end) == ["0:8", "0:9", "1:0"]
    assert read(startingTimestamp=T0 + 3, endingTimestamp=T0 + 4) == ["0:3", "1:3"]
    times = offsets(topic, p0=T0 + 9, p1=T0 + 4)
    assert read(startingOffsetsByTimestamp=times) == ["0:9", "1:4"]
    late = {"startingTimestamp": T0 + 7}
    assert read(**late, startingOffsetsByTimestampStrategy="latest") == ["0:7", "0:8", "0:9"]
    told = refusal(lambda: read(**late))
    assert f"no record of {topic}-1 is as late as {T0 + 7}" in told
    told = refusal(lambda: read(startingOffsets=offsets(topic, p0=1)))
    assert f"it leaves out {topic}-1" in told
    here = offsets(topic, p0=3, p1=1)
    assert read(startingOffsets=here, endingOffsets=here) == []


def test_many_small_partitions_share_tasks(spark, broker, topic):
    many = create_topic(broker.address, f"{topic}-many", 200)
    fill(broker, many, *(n % 4 for n in range(200)))
    frame = of(spark.read, broker, many).load()
    assert 64 <= frame.rdd.getNumPartitions() < 150
    assert values(frame) == sorted(f"{p}:{n}" for p in range(200) for n in range(p % 4))


def test_ranges_are_split_into_tasks(spark, broker, topic):
    fill(broker, topic, 12, 4)
    for options, tasks in (
        ({}, 2),
        ({"minPartitions": 4}, 4),
        ({"maxRecordsPerPartition": 3}, 6),
    ):
        frame = of(spark.read, broker, topic, **options).load()
        assert frame.rdd.getNumPartitions() == tasks
        assert frame.count() == 16


def test_open_and_aborted_transactions_are_left_out_on_request(spark, broker, topic):
    with Blocking(
        Producer, {"bootstrap.servers": broker.address, "transactional.id": topic}
    ) as producer:
        producer.init_transactions()
        for n, commit in enumerate((True, False, True)):
            producer.begin_transaction()
            producer.send(topic, b"%d" % n, partition=0).result()
            (producer.commit_transaction if commit else producer.abort_transaction)()
        producer.begin_transaction()
        producer.send(topic, b"open", partition=0).result()
        assert values(of(spark.read, broker, topic).load()) == ["0", "1", "2", "open"]
        committed = {"kafka.isolation.level": "read_committed"}
        assert values(of(spark.read, broker, topic, **committed).load()) == ["0", "2"]
        producer.abort_transaction()
    assert values(of(spark.read, broker, topic, **committed).load()) == ["0", "2"]


def test_data_that_is_lost_fails_a_batch_or_is_passed_over(spark, broker, topic):
    fill(broker, topic, 6)
    delete_before(broker, topic, 4)
    named = {"startingOffsets": offsets(topic, p0=1, p1=0)}
    told = refusal(of(spark.read, broker, topic, **named).load().count)
    assert f"startingOffsets names offset 1 of {topic}-0, which holds 4 to 6" in told
    assert "set the option failOnDataLoss to false" in told
    passed = of(spark.read, broker, topic, **named, failOnDataLoss=False).load()
    assert values(passed) == ["0:4", "0:5"]


def test_options_are_refused_by_name(spark, broker, topic):
    told = refusal(of(spark.read, broker, topic, startingOffset="latest").load().count)
    assert "option startingoffset is not known; did you mean startingOffsets?" in told


def ranges(broker, topic: str, **options: object) -> tuple[ReadOptions, list[KafkaOffsetRange]]:
    """Return the offset ranges that the tasks of a batch would read if it was planned now."""
    texts = {name: str(value) for name, value in options.items()}
    read = batch_options({"kafka.bootstrap.servers": broker.address, "subscribe": topic} | texts)
    return read, planned(read)


def read_offsets(read: ReadOptions, wanted: list[KafkaOffsetRange]) -> list[int]:
    return [n for _, b in read_ranges(read, wanted, ["offset"]) for n in b[0].to_pylist()]


def test_what_is_lost_after_planning_fails_the_task_or_is_passed_over(broker, topic):
    fill(broker, topic, 6)
    strict, parts = ranges(broker, topic)
    lenient, _ = ranges(broker, topic, failOnDataLoss=False)
    delete_before(broker, topic, 4)
    with pytest.raises(DataLost, match=f"offset 0 of {topic}-0 is out of range: .* at 4 now"):
        read_offsets(strict, parts)
    assert read_offsets(lenient, parts) == [4, 5]
    made_anew(broker, topic)
    fill(broker, topic, 6)
    with pytest.raises(DataLost, match=f"topic {topic} was deleted and created again"):
        read_offsets(strict, parts)
    assert read_offsets(lenient, parts) == []
    with admin_of(broker) as admin:
        admin.delete_topics([topic])
    with pytest.raises(DataLost, match=f"partition {topic}-0 was deleted"):
        read_offsets(strict, parts)
    assert read_offsets(lenient, parts) == []


def test_many_answers_make_one_range(broker, topic):
    for n in range(40):
        fill(broker, topic, 25, start=25 * n)
    read, parts = ranges(broker, topic, **{"kafka.max.partition.fetch.bytes": 2000})
    assert read_offsets(read, parts) == list(range(1000))
    assert read_offsets(read, [KafkaOffsetRange(parts[0].partition, 110, 620)]) == [
        *range(110, 620)
    ]
