"""The options of the data source `k`, as its manual page has them; the defaults are Spark's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class OptionDoc(NamedTuple):
    """`default` is a value, or what holds where nothing is said; "" for nothing."""

    name: str
    values: str
    default: str
    doc: str


_ABOUT_CONSUMERS = "Accepted and ignored: it applies to the consumers of Spark's own source."

SECTIONS: Mapping[str, tuple[OptionDoc, ...]] = {
    "What is read": (
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
            "One more column, headers: array<struct<key:string,value:binary>>, null where a record "
            "has none.",
        ),
    ),
    "What keys and values are": (
        OptionDoc(
            "valueFormat",
            "raw|string|json|msgpack",
            "raw",
            "What the column value is: the bytes, the text in them, or what valueSchema names.  "
            "What is not UTF-8, not JSON or not msgpack, or does not fit the schema, is null.",
        ),
        OptionDoc(
            "valueSchema",
            "SCHEMA",
            "",
            "In DDL, such as 'id bigint, tags array<string>', or in JSON as Spark writes it.  "
            "Required where valueFormat is json or msgpack, unless .schema() names the columns.  "
            "A field that is NOT NULL has to be there.",
        ),
        OptionDoc("keyFormat", "raw|string|json|msgpack", "raw", "The same of the column key."),
        OptionDoc("keySchema", "SCHEMA", "", "Its schema."),
        OptionDoc(
            "mode",
            "PERMISSIVE|FAILFAST",
            "PERMISSIVE",
            "Whether a query goes on with null where a key or value is not what it should be, or "
            "fails and names the first one's offset and what is wrong.",
        ),
        OptionDoc(
            "columnNameOfCorruptRecord",
            "NAME",
            "_corrupt_record",
            "The field that takes what is bad, where a schema has it: as string its text, as "
            "binary its bytes, as struct<record binary, reason string> also what is wrong.  All "
            "other fields are null then.",
        ),
    ),
    "Where it begins": (
        OptionDoc(
            "startingOffsets",
            'earliest|latest|{"TOPIC":{"0":23,"1":-2}}',
            "earliest in a batch, latest in a stream",
            "Offsets list every partition that is read; -2 is earliest, -1 latest.  A batch cannot "
            "begin at latest.  A stream begins there once: from then on its checkpoint counts, and "
            "partitions that are new begin at earliest.",
        ),
        OptionDoc(
            "startingOffsetsByTimestamp",
            '{"TOPIC":{"0":MS,"1":MS}}',
            "",
            "The first record of each partition that is not older than a time in ms since 1970.  "
            "It goes before startingOffsets.",
        ),
        OptionDoc(
            "startingTimestamp",
            "MS",
            "",
            "One time for all partitions.  It goes before startingOffsetsByTimestamp.",
        ),
        OptionDoc(
            "startingOffsetsByTimestampStrategy",
            "error|latest",
            "error",
            "What to do where no record is as late as a time says: fail, or begin at latest.",
        ),
    ),
    "Where a batch ends": (
        OptionDoc(
            "endingOffsets",
            'earliest|latest|{"TOPIC":{"0":23,"1":-1}}',
            "latest",
            "The offset after the last one that is read.  A batch cannot end at earliest.",
        ),
        OptionDoc(
            "endingOffsetsByTimestamp",
            '{"TOPIC":{"0":MS,"1":MS}}',
            "",
            "Before the first record that is not older than a time; latest where there is none.  "
            "It goes before endingOffsets.",
        ),
        OptionDoc(
            "endingTimestamp",
            "MS",
            "",
            "One time for all partitions.  It goes before endingOffsetsByTimestamp.",
        ),
    ),
    "How much at once": (
        OptionDoc(
            "minPartitions",
            "N",
            "a task for each partition, but that small ones share tasks where there are over 64",
            "Use at least this many tasks: what would be the largest is split further.",
        ),
        OptionDoc(
            "maxRecordsPerPartition", "N", "no limit", "A task reads at most this many offsets."
        ),
        OptionDoc(
            "maxOffsetsPerTrigger",
            "N",
            "no limit",
            "A micro-batch takes in at most this many offsets, shared out by how far each "
            "partition is behind.",
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
    "What is lost": (
        OptionDoc(
            "failOnDataLoss",
            "true|false",
            "true",
            "Whether a query fails where records that it was to read have aged out or been "
            "deleted, or a topic is gone or was deleted and created again; else it goes on with "
            "what is there, in a stream with the earliest record of a topic that was created "
            "again.",
        ),
    ),
    "The client": (
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
"""The documents of all but the client's settings."""

WRITE_SECTIONS: Mapping[str, tuple[OptionDoc, ...]] = {
    "What is written": (
        OptionDoc("kafka.bootstrap.servers", "HOST:PORT,...", "", "As for reads.  Required."),
        OptionDoc(
            "topic",
            "TOPIC",
            "",
            "Where all rows go, whatever their column topic says.  Required where they have no "
            "such column.",
        ),
        OptionDoc(
            "keepTimestamps",
            "true|false",
            "false",
            "A record's time is that of the column timestamp, and where that is null the time of "
            "the write.  By default the column is ignored, as in Spark's own sink, so a copied "
            "topic gets new times.",
        ),
        OptionDoc(
            "kafka.*",
            "",
            "Kafka's",
            "Configs of the producer, such as kafka.compression.type=lz4.  kafka.batch.size is "
            "131072 where nothing is said.  kafka.key.serializer, kafka.value.serializer and "
            "kafka.transactional.id are refused.",
        ),
        OptionDoc(
            "dlqTopic",
            "TOPIC",
            "a row that cannot be written fails the query",
            "Where rows go that cannot be written: too large for the topic or kafka.max.request."
            "size, without a topic or with one that does not exist, for a partition that is not "
            "there, without a key to a compacted topic, from before 1970.  Key, value and headers "
            "are kept behind the headers k.dlq.reason, k.dlq.topic and k.dlq.partition.  Where "
            "that is too large for this topic too, the value is cut and k.dlq.value.length has "
            "its length; likewise k.dlq.key.length and k.dlq.headers.count.  How large a record "
            "may be and whether it needs a key is asked of the topic: authorizers are asked for "
            "DescribeConfigs.",
        ),
    ),
    "How often it is written": (
        OptionDoc(
            "exactlyOnce",
            "true|false",
            "false",
            "By default a row is written at least once: a task or a batch that Spark runs again "
            "is written again.  With true each task writes in a transaction, and when all have "
            "ended well the driver commits them; readers with "
            "kafka.isolation.level=read_committed see each row once, whatever was killed, once "
            "the query has been started again with its checkpoint.  The query must give the same "
            "rows to the same tasks when a batch is run again, spark.speculation must be off, "
            "and a batch must not take longer than kafka.transaction.timeout.ms (here 15 minutes "
            "by default, which is the most that brokers allow by default).  What is seen to "
            "break this is refused.  A query that was killed is to be started again before the "
            "brokers forget what its groups committed, after offsets.retention.minutes.  In a "
            "batch, not a stream, all or nothing of it is committed, but where the driver dies "
            "as it commits; it is not for use within foreachBatch.",
        ),
        OptionDoc(
            "transactionalIdPrefix",
            "PREFIX",
            "k",
            "A task's transactional.id is PREFIX-QUERY-TASK, by the query's id and the task's "
            "number.  A group of the same name notes which batches it has written: it is not to "
            "be changed while a checkpoint is in use.  Authorizers are asked for Write on the id "
            "and Read on the group.",
        ),
        OptionDoc(
            "markerTopic",
            "TOPIC",
            "__consumer_offsets",
            "The topic for whose partition 0 these groups commit offsets; nothing is written to "
            "it.  It is not to be changed either.  Authorizers are asked for Read.",
        ),
    ),
}

WRITE_NAMES = tuple(
    option.name
    for options in WRITE_SECTIONS.values()
    for option in options
    if not option.name.startswith("kafka.")
)
"""The documents of all but the client's settings."""
