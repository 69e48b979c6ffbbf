"""Texts of the manual page k-spark(7), besides the options of the data source."""

from __future__ import annotations

from collections.abc import Mapping

INTRODUCTION = """
k is a data source of Spark.  It reads topics as tables, spark.read.format("k"), and as streams,
spark.readStream.format("k"), and writes frames and streams to topics.  It works with any Kafka
cluster and requires no jars.  Options, columns and their meaning are those of Spark's own Kafka
source: to move a job, change the name of its format.

Columns are key and value (binary), topic (string), partition (int), offset (bigint), timestamp and
timestampType (int).  With a schema of fewer columns only these are read: .schema("value binary").
The option valueFormat, or an expression, decodes the bytes of key and value: see VALUES.

Install the package with its extra spark; Spark then finds k by itself, also through k spark-submit.
Names of options are not case-sensitive.  Unknown options are refused.

Checkpoints are compatible with Spark's own source in both directions: with the same checkpoint, a
query of one source continues as a query of the other.  The offsets of a topic have its id next to
them, as {"orders":{"0":23},"orders@Yz8KCm5LTjWyg0GhD4S8XQ":{}}.

A row that is written has a column value (string or binary), and may have key (string or binary),
topic (string), partition (int) and headers (array<struct<key:string,value:binary>>).  Other columns
are ignored.  A batch is written with mode("append"): a topic cannot be overwritten, and Spark has
no other modes for sources in Python.  A stream is written in the mode append or complete; complete
adds the whole result each time.  Spark does not have the mode update for sources in Python.
"""
DIFFERENCES = (
    "Unknown options, partitions in assign that do not exist, and any end of a stream, including"
    " endingTimestamp, are refused; Spark's own source ignores them.",
    "Offsets that a log does not have are reported when a query is planned; in Spark's own "
    "source, by its tasks.",
    "maxOffsetsPerTrigger is exact; in Spark's own source each partition's share is rounded down.",
    "maxRecordsPerPartition always applies; in Spark's own source only if a batch begins and ends"
    " at numeric offsets.",
    "A topic that was deleted and created again is recognized by its id, and counts as data loss;"
    " in Spark's own source only if it has fewer records than before.  A checkpoint of Spark's"
    " own source has no ids: they are used from the first batch that k has planned.",
    "Patterns in subscribePattern have no \\G, \\X, \\b{g}, flags u and U, or classes by script or "
    "block.",
)
TYPES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "Types in JSON": (
        (
            "tinyint, smallint, int, bigint",
            "A number without fraction or exponent that fits the type.",
        ),
        (
            "float, double",
            "A number; NaN, Infinity and -Infinity, also as strings.",
        ),
        ("decimal(P,S)", "A number, or a string that is one, rounded half up to S digits."),
        ("boolean", "true or false."),
        ("string", "A string; any other value as its JSON."),
        ("binary", "A string in base64."),
        ("date", 'Such as "2020-01-31".'),
        (
            "timestamp",
            'Such as "2020-01-31T23:59:59.123456Z"; also with +01:00, without a zone (UTC), or '
            "with a blank for T.  Truncated to microseconds.  An integer is seconds since 1970.",
        ),
        ("timestamp_ntz", "The same without a zone."),
        ("array<T>", "An array."),
        ("map<string,V>", "An object; the last of duplicate names counts."),
        (
            "struct<...>",
            "An object.  Fields that are not in the schema are ignored, missing fields are null, "
            "and the last of duplicate fields counts.",
        ),
    ),
    "Types in msgpack": (
        ("tinyint, smallint, int, bigint", "An integer that fits the type."),
        ("float, double", "A float or an integer."),
        ("boolean", "true or false."),
        ("string", "A str that is UTF-8."),
        ("binary", "A bin, or the bytes of a str."),
        (
            "timestamp, timestamp_ntz",
            "The extension -1; timestamp_ntz in UTC.  Truncated to microseconds.",
        ),
        ("array<T>", "An array."),
        ("map<K,V>", "A map; the last of duplicate keys counts."),
        (
            "struct<...>",
            "A map.  Keys that are not a str or not in the schema are ignored, missing fields "
            "are null, and the last of duplicate keys counts.",
        ),
    ),
}
"""Accepted values by Spark's type."""

NOTES: Mapping[str, str] = {
    "Values": """
JSON's null and msgpack's nil are null everywhere, except as a whole value, as the key of a map, or
where a schema has NOT NULL: there they are bad.  A value that does not fit is bad as a whole; no
part of it is kept.  A value with bytes after its end is bad, and so is one nested too deeply
(msgpack: 1024 levels, JSON: the limit of Python's decoder).  A length in msgpack that exceeds the
bytes present is bad.  A record without a value is null and not bad.

As expressions, for any frame: from kcli.spark.values import decoded, from_msgpack,
to_msgpack.  decoded(frame, "json", "id bigint, at timestamp") adds the columns data and reason, one
of which is null; formats are those of valueFormat.  from_msgpack("value", "id bigint") and
to_msgpack(struct("id")) are columns.

Spark's own from_json reads JSON too, but it keeps the part of a value that fits, and ignores
everything after the first object.
""",
    "Avro and Protobuf": """
Spark has from_avro and from_protobuf in separate jars, one for each version of Spark.  Give them to
k spark-submit with --packages org.apache.spark:spark-avro_2.13:VERSION or
spark-protobuf_2.13:VERSION, or as files with --jars.  They accept the column value as it is read by
default.  If values begin with the five bytes of a schema registry, use substring(value, 6).
""",
    "Conditions": """
With spark.sql.python.filterPushdown.enabled=true, which k spark-submit sets, a batch uses the
conditions of a query to read less.  It skips partitions and topics that the conditions exclude, and
offsets outside the conditions on offset.  With a condition on timestamp by =, > or >=, it skips all
records before the first one that is late enough.  Timestamps need not ascend, so timestamp < ...
saves nothing.  If a producer wrote other times into a batch's header than into its records, the
header's are used.  The resulting rows are the same with and without it.  Streams do not use
conditions.
""",
    "Lag of a stream": """
A query's progress has startOffset, endOffset and latestOffset of each source: latestOffset minus
endOffset is the lag behind the topics.  Spark does not request metrics from sources in Python, so
minOffsetsBehindLatest, maxOffsetsBehindLatest and avgOffsetsBehindLatest are not in the event.
kcli.spark.progress.metrics(event["sources"][0]) computes them from it, and
kcli.spark.progress.lag(event) returns the sum over all sources.
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
        "The fields of a topic's values; a row of nulls for a bad value.",
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
        "Write rows to a topic as JSON.",
    ),
)
