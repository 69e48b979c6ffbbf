"""The options of the data source `k`, for its manual page; the defaults are Spark's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class OptionDoc(NamedTuple):
    """`default` is a value, or a description of the behavior without one; "" for none."""

    name: str
    values: str
    default: str
    doc: str


_ABOUT_CONSUMERS = "Accepted and ignored: it applies to the consumers of Spark's own source."

SECTIONS: Mapping[str, tuple[OptionDoc, ...]] = {
    "Topics and columns": (
        OptionDoc(
            "kafka.bootstrap.servers",
            "HOST:PORT,...",
            "",
            "Brokers to connect to first.  Required.",
        ),
        OptionDoc("subscribe", "TOPIC,...", "", "Topics by name."),
        OptionDoc(
            "subscribePattern",
            "PATTERN",
            "",
            "Topics whose whole name matches this regular expression, in Java's dialect.  "
            "Internal topics are left out, unless kafka.exclude.internal.topics is false.",
        ),
        OptionDoc(
            "assign",
            '{"TOPIC":[0,1]}',
            "",
            "Partitions.  One of subscribe, subscribePattern and assign is required.",
        ),
        OptionDoc(
            "includeHeaders",
            "true|false",
            "false",
            "Add the column headers: array<struct<key:string,value:binary>>, null if a record has"
            " none.",
        ),
    ),
    "Keys and values": (
        OptionDoc(
            "valueFormat",
            "raw|string|json|msgpack",
            "raw",
            "The format of the column value: raw is its bytes, string their text, json and"
            " msgpack the fields of valueSchema.  A value that is not valid in this format, or"
            " that does not fit the schema, is null.",
        ),
        OptionDoc(
            "valueSchema",
            "SCHEMA",
            "",
            "In DDL, such as 'id bigint, tags array<string>', or in JSON as Spark writes it."
            "  Required if valueFormat is json or msgpack, unless .schema() names the columns.  A"
            " field that is NOT NULL must be present.",
        ),
        OptionDoc("keyFormat", "raw|string|json|msgpack", "raw", "The same for the column key."),
        OptionDoc("keySchema", "SCHEMA", "", "Its schema."),
        OptionDoc(
            "mode",
            "PERMISSIVE|FAILFAST",
            "PERMISSIVE",
            "Whether a query continues with null for a bad key or value, or fails with the offset"
            " of the first one and the reason.",
        ),
        OptionDoc(
            "columnNameOfCorruptRecord",
            "NAME",
            "_corrupt_record",
            "The field for a bad key or value, if the schema has it: as string its text, as"
            " binary its bytes, as struct<record binary, reason string> also the reason.  All"
            " other fields are null then.",
        ),
    ),
    "Start": (
        OptionDoc(
            "startingOffsets",
            'earliest|latest|{"TOPIC":{"0":23,"1":-2}}',
            "earliest in a batch, latest in a stream",
            "Offsets list every partition that is read; -2 is earliest, -1 latest.  A batch"
            " cannot begin at latest.  A stream begins there once.  After that its checkpoint is"
            " used, and new partitions begin at earliest.",
        ),
        OptionDoc(
            "startingOffsetsByTimestamp",
            '{"TOPIC":{"0":MS,"1":MS}}',
            "",
            "Begin at the first record of each partition that is not older than a time in ms"
            " since 1970.  Takes precedence over startingOffsets.",
        ),
        OptionDoc(
            "startingTimestamp",
            "MS",
            "",
            "One time for all partitions.  Takes precedence over startingOffsetsByTimestamp.",
        ),
        OptionDoc(
            "startingOffsetsByTimestampStrategy",
            "error|latest",
            "error",
            "What to do if no record is as late as the given time: fail, or begin at latest.",
        ),
    ),
    "End of a batch": (
        OptionDoc(
            "endingOffsets",
            'earliest|latest|{"TOPIC":{"0":23,"1":-1}}',
            "latest",
            "The offset after the last one to read.  A batch cannot end at earliest.",
        ),
        OptionDoc(
            "endingOffsetsByTimestamp",
            '{"TOPIC":{"0":MS,"1":MS}}',
            "",
            "End before the first record that is not older than a time; at latest if there is"
            " none.  Takes precedence over endingOffsets.",
        ),
        OptionDoc(
            "endingTimestamp",
            "MS",
            "",
            "One time for all partitions.  Takes precedence over endingOffsetsByTimestamp.",
        ),
    ),
    "Amount of work": (
        OptionDoc(
            "minPartitions",
            "N",
            "a task for each partition; with more than 64 partitions, small ones share tasks",
            "Use at least this many tasks: the largest are split further.",
        ),
        OptionDoc(
            "maxRecordsPerPartition", "N", "no limit", "A task reads at most this many offsets."
        ),
        OptionDoc(
            "maxOffsetsPerTrigger",
            "N",
            "no limit",
            "A micro-batch reads at most this many offsets, shared by how far each partition is"
            " behind.",
        ),
        OptionDoc(
            "minOffsetsPerTrigger",
            "N",
            "",
            "A micro-batch waits for this many offsets.  With availableNow it does not wait.",
        ),
        OptionDoc(
            "maxTriggerDelay",
            "TIME",
            "15m",
            "How long it waits for them at most: a number and ms, s, m, h or d.",
        ),
    ),
    "Data loss": (
        OptionDoc(
            "failOnDataLoss",
            "true|false",
            "true",
            "Whether a query fails if records have aged out or were deleted before it read them,"
            " or if a topic was deleted, or deleted and created again.  Otherwise it continues"
            " with the records that exist; a stream then reads a topic that was created again"
            " from its earliest record.",
        ),
    ),
    "Client": (
        OptionDoc(
            "kafka.*",
            "",
            "Kafka's",
            "Configs of the consumer, such as kafka.isolation.level=read_committed.  "
            "kafka.auto.offset.reset, kafka.key.deserializer, kafka.value.deserializer, "
            "kafka.key.serializer, kafka.value.serializer, kafka.enable.auto.commit and "
            "kafka.interceptor.classes are refused.",
        ),
        OptionDoc(
            "groupIdPrefix",
            "PREFIX",
            "",
            "Accepted and ignored, as is kafka.group.id: no group is used, so none needs to be "
            "authorized.",
        ),
        OptionDoc("kafkaConsumer.pollTimeoutMs", "MS", "", _ABOUT_CONSUMERS),
        OptionDoc("fetchOffset.numRetries", "N", "", _ABOUT_CONSUMERS),
        OptionDoc("fetchOffset.retryIntervalMs", "MS", "", _ABOUT_CONSUMERS),
    ),
}

NAMES = tuple(
    option.name
    for options in SECTIONS.values()
    for option in options
    if not option.name.startswith("kafka.")
)
"""Names of all options except the client's configs."""

WRITE_SECTIONS: Mapping[str, tuple[OptionDoc, ...]] = {
    "Destination": (
        OptionDoc("kafka.bootstrap.servers", "HOST:PORT,...", "", "As for reads.  Required."),
        OptionDoc(
            "topic",
            "TOPIC",
            "",
            "The topic of all rows; their column topic is ignored.  Required if they have no such"
            " column.",
        ),
        OptionDoc(
            "keepTimestamps",
            "true|false",
            "false",
            "Take a record's time from the column timestamp, or from the time of the write if"
            " that is null.  By default the column is ignored, as in Spark's own sink, so a"
            " copied topic gets new times.",
        ),
        OptionDoc(
            "kafka.*",
            "",
            "Kafka's",
            "Configs of the producer, such as kafka.compression.type=lz4.  kafka.batch.size is"
            " 131072 by default.  kafka.key.serializer, kafka.value.serializer and"
            " kafka.transactional.id are refused.",
        ),
        OptionDoc(
            "dlqTopic",
            "TOPIC",
            "a row that cannot be written fails the query",
            "The topic for rows that cannot be written: too large for the topic or"
            " kafka.max.request.size, without a topic or with one that does not exist, for a"
            " partition that does not exist, without a key to a compacted topic, from before"
            " 1970.  Key, value and headers are kept, after the headers k.dlq.reason, k.dlq.topic"
            " and k.dlq.partition.  If that is too large for this topic too, the value is"
            " truncated and k.dlq.value.length has its length; likewise k.dlq.key.length and"
            " k.dlq.headers.count.  The limits of a topic are read from its configs, which"
            " requires DescribeConfigs on it.",
        ),
    ),
    "Delivery": (
        OptionDoc(
            "exactlyOnce",
            "true|false",
            "false",
            "By default a row is written at least once: a task or a batch that Spark runs again"
            " is written again.  With true each task writes in a transaction, and the driver"
            " commits them when all tasks have succeeded.  Consumers with"
            " kafka.isolation.level=read_committed then see each row once, whichever processes"
            " were killed, after the query was started again with its checkpoint.  The query must"
            " give the same rows to the same tasks when a batch is run again, spark.speculation"
            " must be off, and a batch must not take longer than kafka.transaction.timeout.ms (15"
            " minutes by default, the longest that brokers allow by default).  A query that is"
            " found to break these rules fails.  A killed query must be started again within"
            " offsets.retention.minutes, after which the brokers forget the offsets that its"
            " groups committed.  A batch, unlike a stream, is committed as a whole or not at all,"
            " except if the driver dies while it commits.  Not for use within foreachBatch.",
        ),
        OptionDoc(
            "transactionalIdPrefix",
            "PREFIX",
            "k",
            "A task's transactional.id is PREFIX-QUERY-TASK, by the query's id and the task's"
            " number.  A group of the same name notes which batches it has written, so the prefix"
            " must not be changed while a checkpoint is in use.  Requires Write on the id and"
            " Read on the group.",
        ),
        OptionDoc(
            "markerTopic",
            "TOPIC",
            "__consumer_offsets",
            "The topic for whose partition 0 these groups commit offsets; nothing is written to"
            " it.  It must not be changed while a checkpoint is in use either.  Requires Read on"
            " it.",
        ),
    ),
}

WRITE_NAMES = tuple(
    option.name
    for options in WRITE_SECTIONS.values()
    for option in options
    if not option.name.startswith("kafka.")
)
"""Names of all options except the client's configs."""
