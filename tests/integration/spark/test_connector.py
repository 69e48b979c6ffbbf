"""Test that `format("k")` and Spark's own `format("kafka")` read the same rows of the same topics,
for each option, from our broker and Apache's, and refuse the same options.

$records and the like are topics of tests/support/connector_topics.py.
"""

from __future__ import annotations

import functools
from collections import defaultdict

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, functions

from kcli.spark.offset_ranges import DataLost
from kcli.spark.option_docs import NAMES
from kcli.spark.source import KafkaSource
from kserver.errors import ConfigError
from tests.integration.spark.test_connector_streams import LIMITED, REFUSED_STREAMS, STREAMS
from tests.support.connector_topics import filled_in
from tests.support.frames import T0

FORMATS = ("kafka", "k")
BOOTSTRAP = "kafka.bootstrap.servers"
COMMITTED = {"kafka.isolation.level": "read_committed"}

ALL = {
    "startingOffsets": '{"$times":{"0":0,"1":0}}',
    "endingOffsets": '{"$times":{"0":12,"1":8}}',
}
"""Spark's own source splits only partitions with explicit offsets, and reads each other one in a
single task."""
BATCHES = (
    # Topics and columns
    {"subscribe": "$records"},
    {"subscribe": "$records", "includeHeaders": "true"},
    {"subscribe": "$records, $times,$times"},
    {"subscribe": "$appended"},
    {"subscribe": "$compacted"},
    {"subscribe": "$transactions"},
    {"subscribe": "$transactions"} | COMMITTED,
    {"assign": '{"$times":[1],"$records":[0,2]}'},
    {"subscribePattern": "$prefix-(t|re).*"},
    {"subscribePattern": "  $prefix-times"},
    # Starting offsets
    {"subscribe": "$times", "startingOffsets": "Earliest"},
    {"subscribe": "$times", "startingOffsets": '{"$times":{"0":3,"1":-2}}'},
    {"subscribe": "$times", "startingOffsets": '{"$times":{"0":12,"1":8}}'},
    {"subscribe": "$transactions", "startingOffsets": '{"$transactions":{"0":3}}'} | COMMITTED,
    {"subscribe": "$compacted", "startingOffsets": '{"$compacted":{"0":2}}'},
    {"subscribe": "$times", "startingTimestamp": f"{T0 + 5}"},
    {"subscribe": "$times", "startingOffsetsByTimestamp": f'{{"$times":{{"0":{T0 + 5},"1":0}}}}'},
    {
        "subscribe": "$times",
        "startingTimestamp": f"{T0 + 7}",
        "startingOffsetsByTimestamp": '{"$times":{"0":0,"1":0}}',
        "startingOffsets": '{"$times":{"0":1,"1":1}}',
    },
    {
        "subscribe": "$times",
        "startingTimestamp": f"{T0 + 9}",
        "startingOffsetsByTimestampStrategy": "Latest",
    },
    # Ending offsets
    {"subscribe": "$times", "endingOffsets": "latest"},
    {"subscribe": "$times", "endingOffsets": '{"$times":{"0":4,"1":-1}}'},
    {"subscribe": "$times", "endingTimestamp": f"{T0 + 9}"},
    {"subscribe": "$times", "endingOffsetsByTimestamp": f'{{"$times":{{"0":{T0 + 2},"1":0}}}}'},
    {
        "subscribe": "$times",
        "endingTimestamp": f"{T0 + 3}",
        "endingOffsetsByTimestamp": f'{{"$times":{{"0":{T0 + 5},"1":{T0 + 5}}}}}',
        "endingOffsets": '{"$times":{"0":1,"1":1}}',
    },
    {
        "subscribe": "$times",
        "startingTimestamp": f"{T0 + 2}",
        "endingOffsets": '{"$times":{"0":4,"1":5}}',
    },
    # Size of tasks
    {"subscribe": "$times", "minPartitions": "7"},
    {"subscribe": "$times", "maxRecordsPerPartition": "3"} | ALL,
    {"subscribe": "$times", "minPartitions": "3", "maxRecordsPerPartition": "5"} | ALL,
    # Lost data
    {"subscribe": "$trimmed"},
    {
        "subscribe": "$trimmed",
        "startingOffsets": '{"$trimmed":{"0":1}}',
        "failOnDataLoss": "FALSE",
    },
    # Client configs
    {"subscribe": "$times", "kafka.group.id": "mine", "kafka.fetch.max.bytes": "1000"},
    {"subscribe": "$times", "groupIdPrefix": "mine"},
    {
        "subscribe": "$times",
        "kafkaConsumer.pollTimeoutMs": "60000",
        "fetchOffset.numRetries": "2",
        "fetchOffset.retryIntervalMs": "10",
    },
)

ENDS_LATE = {"endingOffsets": '{"$times":{"0":13,"1":8}}', "kafkaConsumer.pollTimeoutMs": "1000"}
QUICKLY = {"fetchOffset.numRetries": "1", "fetchOffset.retryIntervalMs": "1"}
OURS_ALONE = {
    "keyFormat",
    "valueFormat",
    "keySchema",
    "valueSchema",
    "mode",
    "columnNameOfCorruptRecord",
}
"""Options for decoding values, which Spark's own source leaves to expressions."""
EMPTY = ({"subscribe": "$times", "startingOffsets": '{"$times":{"0":12,"1":8}}'},)
REFUSED_BATCHES = (
    {},
    {"subscribe": "$times", BOOTSTRAP: ""},
    {"subscribe": "$times", "assign": '{"$times":[0]}'},
    {"subscribe": " , "},
    {"subscribePattern": " "},
    {"subscribePattern": "$prefix-("},
    {"assign": "$times"},
    {"assign": '{"$times":0}'},
    {"subscribe": "$prefix-absent"},
    {"subscribe": "$times", "startingOffsets": "latest"},
    {"subscribe": "$times", "startingOffsets": '{"$times":{"0":3,"1":-1}}'},
    {"subscribe": "$times", "startingOffsets": '{"$times":{"0":3}}'},
    {"subscribe": "$times", "startingOffsets": '{"$times":{"0":3,"1":0,"2":0}}'},
    {"subscribe": "$times", "startingOffsets": "soon"},
    {"subscribe": "$times", "startingTimestamp": "soon"},
    {"subscribe": "$times", "startingTimestamp": f"{T0 + 9}"},
    {"subscribe": "$times", "startingOffsetsByTimestamp": f'{{"$times":{{"0":{T0 + 5}}}}}'},
    {"subscribe": "$times", "startingOffsetsByTimestampStrategy": "soon"},
    {"subscribe": "$times", "endingOffsets": "earliest"},
    {"subscribe": "$times", "endingOffsets": '{"$times":{"0":3,"1":-2}}'},
    {"subscribe": "$times"} | ENDS_LATE,
    {"subscribe": "$trimmed", "startingOffsets": '{"$trimmed":{"0":1}}'},
    {"subscribe": "$times", "minPartitions": "0"},
    {"subscribe": "$times", "maxRecordsPerPartition": "0"},
    {"subscribe": "$times", "failOnDataLoss": "perhaps"},
    {"subscribe": "$times", "includeHeaders": "perhaps"},
    {"subscribe": "$times", "kafka.auto.offset.reset": "earliest"},
    {"subscribe": "$times", "kafka.key.deserializer": "x"},
    {"subscribe": "$times", "kafka.value.deserializer": "x"},
    {"subscribe": "$times", "kafka.enable.auto.commit": "true"},
    {"subscribe": "$times", "kafka.interceptor.classes": "x"},
)
REFUSED_BY_OURS_ALONE = (
    {"assign": '{"$times":[0,2]}'},
    {"subscribe": "$times", "startingOffset": "latest"},
    {"subscribe": "$times", "kafka.key.serializer": "x"},
)
"""Spark's own source ignores partitions and options that do not exist."""


def frame(spark, either, format: str, options: dict[str, str]):
    return spark.read.format(format).option(BOOTSTRAP, either.address).options(**options).load()


def test_both_read_the_same(spark, either, topics):
    """All cases run in one job, which takes a fifth of the time."""
    every, schemas = [], defaultdict(list)
    for number, given in enumerate(BATCHES):
        for format in FORMATS:
            read = frame(spark, either, format, filled_in(given, topics))
            schemas[number].append(read.schema)
            if "headers" not in read.columns:
                read = read.withColumn("headers", functions.lit(None))
            every.append(
                read.select(
                    functions.lit(number),
                    functions.lit(format),
                    functions.spark_partition_id(),
                    "*",
                )
            )
    found, tasks = defaultdict(list), defaultdict(set)
    for number, format, task, *row in functools.reduce(DataFrame.unionAll, every).collect():
        found[number, format].append(tuple(row))
        tasks[number, format].add(task)
    for number, given in enumerate(BATCHES):
        theirs, ours = ((number, format) for format in FORMATS)
        assert schemas[number][0] == schemas[number][1], given
        assert sorted(found[ours], key=place) == sorted(found[theirs], key=place), given
        assert len(tasks[ours]) == len(tasks[theirs]), given
        assert found[ours] or given in EMPTY, given


def place(row: tuple) -> tuple:
    return row[2:5]


def test_both_refuse_the_same(spark, either, topics):
    """Our source is called directly, in the way Spark does."""
    taken = []
    for given in (*REFUSED_BATCHES, *REFUSED_BY_OURS_ALONE):
        options = QUICKLY | filled_in(given, topics)
        with pytest.raises((ConfigError, DataLost)):
            read_in_here({BOOTSTRAP: either.address} | options)
        try:
            frame(spark, either, "kafka", options).collect()
        except (PySparkException, Py4JJavaError):
            continue
        taken.append(given)
    assert tuple(taken) == REFUSED_BY_OURS_ALONE


def read_in_here(options: dict[str, str]) -> None:
    """Make all calls that Spark makes in its processes."""
    source = KafkaSource(options)
    reader = source.reader(source.schema())
    for task in reader.partitions():
        list(reader.read(task))


def test_every_option_is_compared():
    """Only options of reads are compared, here or in streams."""
    tables = (BATCHES, REFUSED_BATCHES, STREAMS, (LIMITED,), REFUSED_STREAMS)
    compared = {name for table in tables for given in table for name in given}
    assert set(NAMES) - compared == OURS_ALONE
