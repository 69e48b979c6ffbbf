"""Replay's frames: the records to send again, their order and their rate.

A partition's records are read by one task, in the order of their offsets, so that those of one key
keep their order. The range is fixed when the job begins, so a topic may be replayed into itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kcli.client.admin.admin import Admin
from kcli.client.blocking import Blocking
from kcli.command.command_runner import reason
from kcli.command.options import Refused
from kcli.spark.jobs.ends import for_reading, for_writing, of_client
from kcli.spark.jobs.landed_files import landed
from kcli.spark.jobs.pace import chunk
from kcli.spark.jobs.pace_server import Address, pace_column, pacing_server
from kcli.spark.jobs.places import EVERYTHING, Place, reading
from kserver.errors import KafkaError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

PLACES = ("topic", "partition", "offset", "timestamp")
CONTENTS = ("key", "value")
HEADERS = "headers"
LOCAL = "127.0.0.1"
ARROW_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"


@dataclass(frozen=True)
class Replay:
    client: Mapping[str, str]
    """The cluster, as options of the data source."""
    to: str
    from_topic: str | None = None
    from_path: str = ""
    """Used if `from_topic` is None."""
    format: str = "parquet"
    texts: bool = False
    """Whether values have landed as texts."""
    topics: tuple[str, ...] = ()
    """The landed topics to send; all if empty."""
    start: Place = EVERYTHING
    end: Place = EVERYTHING
    per_s: float | None = None
    keep_timestamps: bool = False
    keep_partition: bool = False
    exactly_once: bool = False

    @property
    def read_options(self) -> dict[str, str]:
        """Options to read `from_topic`."""
        source = {"subscribe": self.from_topic or "", "includeHeaders": "true"}
        return {**for_reading(self.client), **source, **reading(self.start, self.end)}


@dataclass(frozen=True)
class ReplayedPartition:
    """The records to send of one partition."""

    topic: str
    partition: int
    records: int
    first_offset: int
    last_offset: int
    first_timestamp_ms: int
    last_timestamp_ms: int


def parts(spark: SparkSession, replay: Replay) -> list[ReplayedPartition]:
    """Return the records that would be sent, by partition."""
    from pyspark.sql import functions as F

    counted = (
        _selection(spark, replay, ())
        .groupBy("topic", "partition")
        .agg(
            F.count("*").alias("records"),
            F.min("offset").alias("first_offset"),
            F.max("offset").alias("last_offset"),
            F.min(F.unix_millis("timestamp")).alias("first_timestamp_ms"),
            F.max(F.unix_millis("timestamp")).alias("last_timestamp_ms"),
        )
    )
    return [
        ReplayedPartition(**row.asDict()) for row in counted.orderBy("topic", "partition").collect()
    ]


def replayed(spark: SparkSession, replay: Replay) -> int:
    """Send the records; return their number."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    there = _count_partitions(replay, replay.to, "--to")
    records = _selection(spark, replay, CONTENTS)
    if replay.keep_partition:
        _check_partitions(_partition_count(records, replay), replay.to, there)
    if replay.from_topic is None:
        records = records.repartition("topic", "partition")
        records = records.sortWithinPartitions("topic", "partition", "offset")
    names = [*CONTENTS, *(name for name in (HEADERS,) if name in records.columns)]
    names += ["partition"] * replay.keep_partition + ["timestamp"] * replay.keep_timestamps
    observed = Observation("replayed")
    sent = records.select(*names).observe(observed, F.count(F.lit(1)).alias("records"))
    options = {**for_writing(replay.client), "topic": replay.to}
    if replay.keep_timestamps:
        options["keepTimestamps"] = "true"
    if replay.exactly_once:
        options["exactlyOnce"] = "true"
    with _at_rate(spark, sent, replay.per_s) as frame:
        frame.write.format("k").options(**options).mode("append").save()
    return int(observed.get["records"])


def _selection(spark: SparkSession, replay: Replay, contents: tuple[str, ...]) -> DataFrame:
    """Return the records of the range: their places and these columns, and headers with the
    contents.
    """
    from pyspark.sql.types import StructType

    from kcli.spark.source import COLUMNS

    if replay.from_topic is not None:
        reader = spark.read.format("k").options(**replay.read_options)
        if not contents:
            reader = reader.schema(StructType([COLUMNS[name] for name in PLACES]))
        return reader.load()
    rows = landed(
        spark,
        replay.from_path,
        replay.format,
        (*PLACES, *contents),
        (HEADERS,) if contents else (),
        texts=replay.texts,
    )
    if replay.topics:
        rows = rows.where(rows.topic.isin(*replay.topics))
    for edge, is_start in ((replay.start, True), (replay.end, False)):
        if (condition := _within(edge, is_start)) is not None:
            rows = rows.where(condition)
    return rows


def _within(edge: Place, is_start: bool) -> Column | None:
    """Return the condition of landed records on the right side of a bound; None if it has no
    limit.
    """
    from pyspark.sql import functions as F

    def right_side(column: Column, limit: int) -> Column:
        return column >= limit if is_start else column < limit

    if edge.time_ms is not None:
        return right_side(F.unix_millis("timestamp"), edge.time_ms)
    if edge.offsets is None:
        return None
    condition = F.lit(False)
    for (topic, number), offset in edge.offsets.items():
        is_it = (F.col("topic") == topic) & (F.col("partition") == number)
        condition |= is_it & (right_side(F.col("offset"), offset) if offset >= 0 else F.lit(True))
    return condition


def _count_partitions(replay: Replay, topic: str, option: str) -> int:
    with Blocking(Admin, of_client(replay.client)) as admin:
        (description,) = admin.describe_topics([topic]).values()
    if isinstance(description, KafkaError):
        raise Refused(f"{option} names {topic}: {reason(description)}")
    return len(description.partitions)


def _partition_count(records: DataFrame, replay: Replay) -> int:
    """Return the number of partitions needed to keep each record's partition."""
    from pyspark.sql import functions as F

    if replay.from_topic is not None:
        return _count_partitions(replay, replay.from_topic, "--from")
    last = records.agg(F.max("partition")).collect()[0][0]
    return 0 if last is None else last + 1


def _check_partitions(count: int, to: str, there: int) -> None:
    if count > there:
        raise Refused(
            f"--keep-partition requires {count} partitions, but {to} has {there}; add some with"
            f" k topics --alter --topic {to} --partitions {count}"
        )


@contextlib.contextmanager
def _at_rate(spark: SparkSession, frame: DataFrame, per_s: float | None) -> Iterator[DataFrame]:
    """Return the same rows, at `per_s` rows a second over all tasks."""
    if per_s is None:
        yield frame
        return
    is_local = str(spark.conf.get("spark.master")).startswith("local")
    host = LOCAL if is_local else str(spark.conf.get("spark.driver.host"))
    before = str(spark.conf.get(ARROW_ROWS))
    spark.conf.set(ARROW_ROWS, str(min(int(before), chunk(per_s))))
    try:
        with pacing_server(per_s, host) as address:
            yield frame.withColumn("value", _pace_function(address)("value"))
    finally:
        spark.conf.set(ARROW_ROWS, before)


def _pace_function(address: Address) -> Any:
    """Return a function of a column that keeps the pace. mapInArrow would need pandas."""
    import pyarrow as pa
    from pyspark.sql.pandas import functions

    arrow_udf: Any = functions.arrow_udf
    function = pace_column(address)
    # Spark reads type hints, which are not available at run time here.
    function.__annotations__ = {"chunks": Iterator[pa.Array], "return": Iterator[pa.Array]}
    return arrow_udf(function, "binary")
