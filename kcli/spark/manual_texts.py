"""What the manual page k-spark(7) says beside the options of the data source."""

from __future__ import annotations

from collections.abc import Mapping

INTRODUCTION = """
The data source k of Spark reads topics as tables, spark.read.format("k"), and as streams,
spark.readStream.format("k"), from any Kafka cluster and without jars, and writes frames and streams
to topics.  Options, columns and what they mean are those of Spark's own Kafka source: a job moves
by its format's name.

Columns are key and value (binary), topic (string), partition (int), offset (bigint), timestamp and
timestampType (int).  A schema with fewer of them reads no more: .schema("value binary").  What the
bytes of key and value mean, valueFormat says, or an expression: see VALUES.

Spark needs the package with its extra spark, and finds k by itself, also through k spark-submit.
Names of options are read in any case.  One that is not known is refused.

Offsets in a checkpoint are written such that Spark's own source reads them, and the other way
round: with the same checkpoint, a query of one goes on as one of the other's.  Next to the offsets
of a topic is its id, as {"orders":{"0":23},"orders@Yz8KCm5LTjWyg0GhD4S8XQ":{}}.

A row that is written has a column value (string or binary), and may have key (string or binary),
topic (string), partition (int) and headers (array<struct<key:string,value:binary>>).  Other columns
are ignored.  A batch is written with mode("append"): a topic cannot be overwritten, and Spark knows
no other modes for sources in Python.  A stream is written in the mode append or complete, in which
all of a result is added each time; the mode update Spark does not have for these either.
"""
DIFFERENCES = (
    "Unknown options, partitions in assign that do not exist, and an end of a stream, "
    "endingTimestamp too, are refused; Spark's own source ignores them.",
    "Offsets that a log does not have are reported when a query is planned; in Spark's own "
    "source, by its tasks.",
    "maxOffsetsPerTrigger takes in just as many as it says; there each partition's share is "
    "rounded down.",
    "maxRecordsPerPartition holds wherever a batch begins and ends; there only where both are "
    "offsets by number.",
    "A topic that was deleted and created again is recognized by its id, and is data lost; there "
    "only where it holds less than before.  A checkpoint of Spark's own source has no ids: they "
    "count from the first batch on that k has planned.",
    "Patterns in subscribePattern have no \\G, \\X, \\b{g}, flags u and U, or classes by script or "
    "block.",
)
TYPES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "What fits in JSON": (
        (
            "tinyint, smallint, int, bigint",
            "A number without fraction or exponent that has as many bits at most.",
        ),
        (
            "float, double",
            "A number; NaN, Infinity and -Infinity, also as strings.",
        ),
        ("decimal(P,S)", "A number, or a string that is one, rounded half up to S digits."),
        ("boolean", "true or false."),
        ("string", "A string; of anything else its JSON."),
        ("binary", "A string in base64."),
        ("date", 'Such as "2020-01-31".'),
        (
            "timestamp",
            'Such as "2020-01-31T23:59:59.123456Z", with +01:00, or without a zone in UTC; a blank '
            "for T; what is finer than microseconds is cut off.  An integer is seconds since 1970.",
        ),
        ("timestamp_ntz", "The same without a zone."),
        ("array<T>", "An array."),
        ("map<string,V>", "An object; of a name that comes twice the last one."),
        (
            "struct<...>",
            "An object.  Fields that are not in the schema are ignored, missing fields are null, "
            "and the last of duplicate fields counts.",
        ),
    ),
    "What fits in msgpack": (
        ("tinyint, smallint, int, bigint", "An integer that has as many bits at most."),
        ("float, double", "A float or an integer."),
        ("boolean", "true or false."),
        ("string", "A str that is UTF-8."),
        ("binary", "A bin, or the bytes of a str."),
        (
            "timestamp, timestamp_ntz",
            "The extension -1, the latter in UTC; what is finer than microseconds is cut off.",
        ),
        ("array<T>", "An array."),
        ("map<K,V>", "A map; of a key that comes twice the last one."),
        (
            "struct<...>",
            "A map.  Keys that are not a str or not in the schema are ignored, missing fields "
            "are null, and the last of duplicate keys counts.",
        ),
    ),
}
"""By their types in Spark."""

NOTES: Mapping[str, str] = {
    "Values": """
JSON's null and msgpack's nil are null everywhere, but not as a whole value, as the key of a map, or
where a schema says NOT NULL.  A value that does not fit is bad as a whole: no half of it is kept.
So is one with bytes after its end, and one that is nested too deep (msgpack: 1024, JSON: what
Python's reader takes).  Lengths in msgpack are believed only when the bytes are there.  A record
without a value is null and not bad.

The same as expressions, for any frame: from kcli.spark.values import decoded, from_msgpack,
to_msgpack.  decoded(frame, "json", "id bigint, at timestamp") adds the columns data and reason, one
of which is null; formats are those of valueFormat.  from_msgpack("value", "id bigint") and
to_msgpack(struct("id")) are columns.

Spark's own from_json reads JSON too: it keeps the half of a value that fits and takes no notice of
what follows the first object.
""",
    "Avro and Protobuf": """
Spark has from_avro and from_protobuf in jars of their own, by Spark's versions: --packages
org.apache.spark:spark-avro_2.13:VERSION or spark-protobuf_2.13:VERSION of k spark-submit, or files
with --jars.  They take the column value as it is read by default.  Where a schema registry's five
bytes stand before it, substring(value, 6) is what follows them.
""",
    "Conditions": """
With spark.sql.python.filterPushdown.enabled=true, which k spark-submit sets, a batch reads less
where a query's own conditions say so: other partitions and topics not at all; of a partition only
offsets that conditions on offset leave; and nothing before the first record as late as a condition
on timestamp with =, > or >= says.  Times need not ascend, so timestamp < ... reads no less.  Where
a producer names other times in a batch's header than in its records, the header counts.  Rows are
the same with it and without.  Streams have no such conditions.
""",
    "How far a stream is behind": """
A query's progress has startOffset, endOffset and latestOffset of each source: latestOffset less
endOffset is what the topics hold beyond the batch.  Spark asks no source in Python for metrics, so
minOffsetsBehindLatest, maxOffsetsBehindLatest and avgOffsetsBehindLatest are not in the event:
kcli.spark.progress.metrics(event["sources"][0]) makes them of it, and kcli.spark.progress.lag of
the event gives the sum over all sources.
""",
}

EXAMPLES = (
    (
        'spark.read.format("k").option("kafka.bootstrap.servers", "localhost:9092")'
        '.option("subscribe", "orders").load()',
        "All records that a topic holds now.",
    ),
    (
        'spark.readStream.format("k").option("kafka.bootstrap.servers", "localhost:9092")'
        '.option("subscribe", "orders").option("maxOffsetsPerTrigger", 100000).load()',
        "New records from now on, with a limit for each batch.",
    ),
    (
        'spark.read.format("k").option("kafka.bootstrap.servers", "localhost:9092")'
        '.option("subscribe", "orders").option("valueFormat", "json")'
        '.option("valueSchema", "id bigint, at timestamp").load().select("value.*")',
        "What is in the values of a topic; a row of nulls where a value is bad.",
    ),
    (
        'spark.read.format("k").option("kafka.bootstrap.servers", "localhost:9092")'
        '.option("subscribe", "orders").load()'
        '.select(from_avro("value", schema, {"mode": "PERMISSIVE"}).alias("order"))',
        "Values in Avro, with Spark's jar and from pyspark.sql.avro.functions import from_avro.",
    ),
    (
        'frame.selectExpr("id AS key", "to_json(struct(*)) AS value").write.format("k")'
        '.option("kafka.bootstrap.servers", "localhost:9092").option("topic", "orders")'
        '.mode("append").save()',
        "Rows to a topic as JSON.",
    ),
)
