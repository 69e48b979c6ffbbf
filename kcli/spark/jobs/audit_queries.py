"""Audit's queries: the records of topics and the landed rows, counted by Spark.

The offsets that a topic holds are looked up once, before anything is counted, and only records of
these offsets are compared: records written or landed meanwhile are not a difference.

Only the timestamp column of a topic is read. Each window has a count and a sum of hashes of its
timestamps. If sums differ, or records were compacted away, the topic is read once more and compared
with the landed rows offset by offset: a row whose timestamp differs from that of the record at its
offset is of another record, as after a topic was deleted and created again.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from kcli.client.admin.admin import Admin
from kcli.client.admin.descriptions import ResourceType
from kcli.client.blocking import Blocking
from kcli.spark.dead_letters import place_sql
from kcli.spark.jobs.audit_windows import Counts, Window, WindowResult, findings, sum_counts
from kcli.spark.jobs.ends import of_client
from kcli.spark.jobs.landed_files import landed
from kcli.spark.jobs.places import EVERYTHING, Place, offsets_text, reading
from kcli.spark.logs import Logs
from kcli.spark.options import Offsets, batch_options
from kserver.errors import KafkaError
from kserver.model import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

RECORD = ("topic", "partition", "offset", "timestamp")
CLEANUP_POLICY = "cleanup.policy"

Ranges = dict[TopicPartition, tuple[int, int]]
"""The offsets to compare, the last one exclusive."""


@dataclass(frozen=True)
class Audit:
    source: Mapping[str, str]
    """Options of the data source: the cluster, and the topics."""
    paths: tuple[str, ...]
    format: str
    window_ms: int
    overdue_ms: int
    """Records of windows that had ended by then count as missing if they have not landed."""
    start: Place = EVERYTHING
    dlq: str | None = None
    """The topic of records that could not land."""

    @property
    def client(self) -> dict[str, str]:
        return {name: text for name, text in self.source.items() if name.startswith("kafka.")}

    @property
    def read_options(self) -> dict[str, str]:
        return {**self.source, **reading(self.start, EVERYTHING)}


def audited(spark: SparkSession, audit: Audit) -> list[WindowResult]:
    """Return every window of every topic that has records on the broker or landed."""
    earliest, ranges = _ranges(audit)
    compacted = _compacted_topics(audit, {p.topic for p in ranges})
    records = _rows_by_offset(spark, audit, earliest, ranges)
    counts: list[tuple[Window, Counts]] = []
    sums: dict[Window, int] = defaultdict(int)
    last: Offsets = {}
    for row in _count_landed(records).collect():
        window = Window(row.topic, row.window)
        if row.is_before:
            counts.append((window, Counts(before_rows=row.rows, before=row.distinct)))
            continue
        counts.append((window, Counts(rows=row.rows, distinct=row.distinct)))
        sums[window] += row.times
        partition = TopicPartition(row.topic, row.partition)
        last[partition] = max(row.last, last.get(partition, row.last))
    for window, count, times in _count_topic_records(spark, audit, ranges, last):
        counts.append((window, count))
        sums[window] -= times
    differing = {window.topic for window, sum in sums.items() if sum}
    for topic in sorted(differing.union(compacted)):
        is_compacted = topic in compacted
        counts += _compare(spark, audit, topic, ranges, records, is_compacted=is_compacted)
    return list(findings(sum_counts(counts), audit.window_ms, audit.overdue_ms))


def _ranges(audit: Audit) -> tuple[Offsets, Ranges]:
    """Return the log start offsets, and the ranges to compare."""
    options = batch_options(audit.read_options)
    with Blocking(Logs, options) as logs:
        ids = logs.partitions()
        earliest = logs.earliest(ids)
        starts = logs.resolve_marks(logs.marks(ids, options.start), "--start")
        latest = logs.latest(ids)
    return earliest, {p: (starts[p], max(starts[p], latest[p])) for p in ids}


def _compacted_topics(audit: Audit, topics: set[str]) -> list[str]:
    """Return the compacted topics, and those whose configuration cannot be read."""
    resources = [(ResourceType.TOPIC, name) for name in sorted(topics)]
    with Blocking(Admin, of_client(audit.client)) as admin:
        configs = admin.describe_configs(resources, [CLEANUP_POLICY])
    return [
        name
        for (_, name), entries in configs.items()
        if isinstance(entries, KafkaError) or not entries or "compact" in str(entries[0].value)
    ]


def _rows_by_offset(
    spark: SparkSession, audit: Audit, earliest: Offsets, ranges: Ranges
) -> DataFrame:
    """Return a row for each landed record of the ranges, or of aged-out records before them: its
    offset, its window and time, whether it `is_before` the range, and how many `copies` landed. Of
    copies with different times the latest counts: if a topic was created again and has landed
    again, it is that of the new topic.
    """
    from pyspark.sql import functions as F

    ends = [(*p, earliest[p], start, end) for p, (start, end) in ranges.items()]
    places = spark.createDataFrame(
        ends, "topic string, partition int, earliest bigint, start bigint, end bigint"
    )
    rows = reduce(
        lambda first, second: first.unionAll(second),
        [landed(spark, path, audit.format, RECORD, gaps=True) for path in audit.paths],
    )
    if audit.dlq is not None:
        rows = rows.unionAll(_dead_letters(spark, audit, audit.dlq))
    rows = _since(rows, audit).join(F.broadcast(places), ["topic", "partition"])
    # Records before the start are ignored, except aged-out ones if the topic begins there.
    if audit.start.offsets is not None:
        rows = rows.where("offset >= start OR start = earliest")
    return (
        rows.where("offset < end")
        .groupBy("topic", "partition", "offset")
        .agg(
            F.max(_window(audit)).alias("window"),
            F.max(F.unix_millis("timestamp")).alias("time"),
            F.min(F.col("offset") < F.col("start")).alias("is_before"),
            F.count("*").alias("copies"),
        )
    )


def _dead_letters(spark: SparkSession, audit: Audit, dlq: str) -> DataFrame:
    """Return the records of dead letters. Only dead letters have the header topic."""
    from pyspark.sql.types import StructType

    from kcli.spark.source import HEADERS

    letters = (
        spark.read.format("k")
        .options(**audit.client, subscribePattern=re.escape(dlq))
        .option("kafka.isolation.level", "read_committed")
        .schema(StructType([HEADERS]))
        .load()
    )
    # Several jobs may have sent the same record there.
    return letters.selectExpr(*place_sql()).distinct()


def _count_landed(records: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return records.groupBy("topic", "partition", "window", "is_before").agg(
        F.sum("copies").alias("rows"),
        F.count("*").alias("distinct"),
        F.max("offset").alias("last"),
        F.sum(F.hash("time")).alias("times"),
    )


def _count_topic_records(
    spark: SparkSession, audit: Audit, ranges: Ranges, last: Offsets
) -> Iterator[tuple[Window, Counts, int]]:
    """Yield the records of topics up to the `last` landed ones, with the sum of the hashes of their
    times, and those after them.
    """
    cuts = {p: last.get(p, start - 1) + 1 for p, (start, _) in ranges.items()}
    due = {p: (start, cuts[p]) for p, (start, _) in ranges.items()}
    after = {p: (cuts[p], end) for p, (_, end) in ranges.items()}
    for window, rows, times in _count_by_window(spark, audit, due):
        yield window, Counts(due=rows), times
    for window, rows, _ in _count_by_window(spark, audit, after):
        yield window, Counts(after=rows), 0


def _count_by_window(
    spark: SparkSession, audit: Audit, parts: Ranges
) -> Iterator[tuple[Window, int, int]]:
    from pyspark.sql import functions as F

    topics = {p.topic for p, (start, end) in parts.items() if start < end}
    mine = {p: part for p, part in parts.items() if p.topic in topics}
    if not mine:
        return
    # The column topic is needed only with more than one topic.
    contents = (
        _topic_records(spark, audit, mine, "topic string, timestamp timestamp")
        if len(topics) > 1
        else _topic_records(spark, audit, mine, "timestamp timestamp").withColumn(
            "topic", F.lit(*topics)
        )
    )
    contents = _since(contents, audit)
    counted = contents.groupBy("topic", _window(audit).alias("window")).agg(
        F.count("*").alias("rows"),
        F.sum(F.hash(F.unix_millis("timestamp"))).alias("times"),
    )
    for row in counted.collect():
        yield Window(row.topic, row.window), row.rows, row.times


def _compare(
    spark: SparkSession,
    audit: Audit,
    topic: str,
    ranges: Ranges,
    records: DataFrame,
    *,
    is_compacted: bool,
) -> Iterator[tuple[Window, Counts]]:
    """Yield the landed records that the topic does not hold any more, if it `is_compacted`, and
    those that are of other records than the ones at these offsets now.
    """
    from pyspark.sql import functions as F

    mine = {p: part for p, part in ranges.items() if p.topic == topic}
    contents = _topic_records(
        spark, audit, mine, "partition int, offset bigint, timestamp timestamp"
    )
    contents = contents.withColumn("held", F.unix_millis("timestamp")).drop("timestamp")
    landed = records.where((records.topic == topic) & ~records.is_before)
    both = landed.join(contents, ["partition", "offset"], "left")
    compared = both.groupBy("window").agg(
        F.count_if(F.col("held").isNull()).alias("gone"),
        F.count_if(F.col("held") != F.col("time")).alias("others"),
    )
    for row in compared.collect():
        gone = row.gone if is_compacted else 0
        yield Window(topic, row.window), Counts(compacted=gone, others=row.others)


def _topic_records(spark: SparkSession, audit: Audit, parts: Ranges, schema: str) -> DataFrame:
    """Return the records that the topics hold at these offsets."""
    starts = {p: start for p, (start, _) in parts.items()}
    ends = {p: end for p, (_, end) in parts.items()}
    options = {
        **audit.client,
        "subscribe": ",".join(sorted({p.topic for p in parts})),
        "startingOffsets": offsets_text(starts),
        "endingOffsets": offsets_text(ends),
    }
    return spark.read.format("k").options(**options).schema(schema).load()


def _since(rows: DataFrame, audit: Audit) -> DataFrame:
    """Return the rows that are not older than the start; Spark skips files by their oldest time."""
    from pyspark.sql import functions as F

    if audit.start.time_ms is None:
        return rows
    return rows.where(F.col("timestamp") >= F.timestamp_millis(F.lit(audit.start.time_ms)))


def _window(audit: Audit) -> Column:
    """Return the number of a record's window, whatever the session's time zone."""
    from pyspark.sql import functions as F

    return F.floor(F.unix_millis("timestamp") / audit.window_ms)
