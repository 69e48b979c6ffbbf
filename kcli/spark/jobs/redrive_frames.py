"""Redrive's frames: the dead letters to send back, and the receipts of those sent before.

A letter and its receipt, a record in the dead letter topic, are written in one transaction, so
neither exists without the other. A letter with a receipt is not sent again, whatever the filter of
a run, its machine, and whatever was killed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kcli.client.blocking import Blocking
from kcli.command.options import Refused
from kcli.spark.dead_letters import (
    ATTEMPTS,
    REASON,
    REDRIVEN,
    header_value_sql,
    is_cut_sql,
    place_sql,
    receipt_sql,
    returned_headers_sql,
)
from kcli.spark.jobs.ends import for_reading, for_writing
from kcli.spark.jobs.functions import function
from kcli.spark.jobs.land_paths import text_sql
from kcli.spark.jobs.places import offsets_text
from kcli.spark.logs import Logs
from kcli.spark.options import Offsets, batch_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COMMITTED = {"kafka.isolation.level": "read_committed"}
LOOK_AGAIN_S = 0.5
NEEDED = ("letter", "topic", "key", "value", "headers", "timestamp")
STATES = ("sent", "passed_over", "given_up", "unaddressed", "cut")
"""Outcomes of a letter."""


@dataclass(frozen=True)
class Redrive:
    client: Mapping[str, str]
    """The cluster, as options of the data source."""
    dlq: str
    to: str | None = None
    """The topic of all letters; None sends each to the topic in its headers."""
    filter: str | None = None
    fix: str | None = None
    max_attempts: int | None = None
    keep_timestamps: bool = False
    wait_s: float = 60.0
    """Seconds to wait for open transactions in the dead letter topic."""

    @property
    def read_options(self) -> dict[str, str]:
        return {
            **for_reading(self.client),
            **COMMITTED,
            "subscribe": self.dlq,
            "includeHeaders": "true",
        }


@dataclass(frozen=True)
class RedriveOutcome:
    """The outcome of letters for one topic with one reason that were not sent back before."""

    topic: str | None
    reason: str | None
    sent: int
    passed_over: int
    given_up: int
    unaddressed: int
    cut: int


def redriven(
    spark: SparkSession, redrive: Redrive, *, sends: bool = True
) -> tuple[list[RedriveOutcome], int]:
    """Return the outcome of the letters, and how many were sent back: none, unless it `sends`."""
    # A record may have the same header more than once.
    spark.conf.set("spark.sql.mapKeyDedupPolicy", "LAST_WIN")
    letters = _letters(spark, redrive).persist()
    try:
        outcomes = _outcomes(letters)
        if not sends or not any(outcome.sent for outcome in outcomes):
            return outcomes, 0
        return outcomes, _send(spark, letters.where("state = 'sent'").drop("state"), redrive)
    finally:
        letters.unpersist()


def _letters(spark: SparkSession, redrive: Redrive) -> DataFrame:
    """Return letters without a receipt, with the fields of their headers, and their state."""
    from pyspark.sql import functions as f

    read = (
        spark.read.format("k")
        .options(**redrive.read_options, endingOffsets=offsets_text(_ends(redrive)))
        .load()
        .withColumnRenamed("topic", "_dlq")
    )
    receipts = read.selectExpr(f"{header_value_sql(REDRIVEN)} AS place").where("place IS NOT NULL")
    headers = "map_from_entries(transform(headers, h -> struct(h.key, CAST(h.value AS STRING))))"
    attempts = f"coalesce(try_cast({header_value_sql(ATTEMPTS)} AS INT), 0)"
    letters = read.where(f"{header_value_sql(REDRIVEN)} IS NULL").selectExpr(
        "key",
        "value",
        "headers",
        f"{header_value_sql(REASON)} AS reason",
        *place_sql(),
        f"{attempts} AS attempts",
        f"{headers} AS header",
        "struct(partition, offset, timestamp) AS letter",
    )
    # A broadcast keeps the letters of a partition in order.
    place = f.concat_ws(":", "letter.partition", "letter.offset")
    unsent = letters.join(f.broadcast(receipts), place == receipts["place"], "left_anti")
    to = "topic" if redrive.to is None else text_sql(redrive.to)
    most = "false" if redrive.max_attempts is None else f"attempts >= {redrive.max_attempts}"
    state = (
        f"CASE WHEN NOT coalesce(({redrive.filter or 'true'}), false) THEN 'passed_over'"
        f" WHEN {to} IS NULL THEN 'unaddressed' WHEN {is_cut_sql()} THEN 'cut'"
        f" WHEN {most} THEN 'given_up' ELSE 'sent' END"
    )
    return unsent.withColumn("state", f.expr(state)).withColumn("topic", f.expr(to))


def _ends(redrive: Redrive) -> Offsets:
    """Return the end offsets of the dead letter topic. Raises Refused if transactions in it stay
    open, because their receipts would be invisible.
    """
    uncommitted = batch_options(
        {**redrive.read_options, "kafka.isolation.level": "read_uncommitted"}
    )
    with Blocking(Logs, uncommitted) as logs:
        ids = logs.partitions()
        ends: Offsets = logs.latest(ids)
    deadline_s = time.monotonic() + redrive.wait_s
    with Blocking(Logs, batch_options(redrive.read_options)) as logs:
        while True:
            stable: Offsets = logs.latest(ids)
            open_partitions = sorted(p for p, end in ends.items() if stable[p] < end)
            if not open_partitions:
                return ends
            if time.monotonic() >= deadline_s:
                raise Refused(
                    f"a transaction in {open_partitions[0]} has been open for more than"
                    f" {redrive.wait_s:.0f} s, perhaps from a redrive that was killed; wait until"
                    " it times out, or look for it with k transactions find-hanging"
                )
            time.sleep(LOOK_AGAIN_S)


def _outcomes(letters: DataFrame) -> list[RedriveOutcome]:
    from pyspark.sql import functions as f

    counts = [f.count_if(f.col("state") == state).alias(state) for state in STATES]
    rows = letters.groupBy("topic", "reason").agg(*counts).orderBy("topic", "reason").collect()
    return [RedriveOutcome(**row.asDict()) for row in rows]


def _send(spark: SparkSession, letters: DataFrame, redrive: Redrive) -> int:
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    frame = letters.withColumn("headers", f.expr(returned_headers_sql("attempts + 1")))
    if redrive.fix is not None:
        frame = function(spark, "--fix", redrive.fix)(frame)
        if lacking := [name for name in NEEDED if name not in frame.columns]:
            raise Refused(f"--fix {redrive.fix} returned a frame without {', '.join(lacking)}")
    sent = Observation("sent")
    pairs = frame.observe(sent, f.count(f.lit(1)).alias("records")).selectExpr(
        f"inline(array({_record_sql()}, {_receipt_sql(redrive.dlq)}))"
    )
    options = {**for_writing(redrive.client), "exactlyOnce": "true"}
    if redrive.keep_timestamps:
        options["keepTimestamps"] = "true"
    pairs.write.format("k").options(**options).mode("append").save()
    return int(sent.get["records"])


def _record_sql() -> str:
    return (
        "named_struct('topic', topic, 'key', CAST(key AS BINARY), 'value', CAST(value AS BINARY),"
        " 'headers', headers, 'timestamp', timestamp, 'partition', CAST(NULL AS INT))"
    )


def _receipt_sql(dlq: str) -> str:
    """Return the receipt, in the partition of its letter, behind it, so that it ages out later."""
    headers = receipt_sql("letter.partition", "letter.offset")
    return (
        f"named_struct('topic', {text_sql(dlq)}, 'key', CAST(NULL AS BINARY), 'value',"
        f" CAST(NULL AS BINARY), 'headers', {headers}, 'timestamp', CAST(NULL AS TIMESTAMP),"
        " 'partition', letter.partition)"
    )
