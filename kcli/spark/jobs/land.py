"""`k spark-submit land`: topics to files, a directory for each hour or day.

Each destination has a query with a checkpoint of its own: `landed`, `late`, `dlq`. Each query reads
the topics, and selects its own rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kcli.command.command import Duration, Manual, Options, command
from kcli.command.options import is_set, option, option_group, refuse
from kcli.spark.jobs import leftovers, payloads, shared
from kcli.spark.jobs.ends import for_reading, for_writing
from kcli.spark.jobs.land_paths import (
    CODECS,
    DEFAULT_CODEC,
    EVENT_TIME,
    PARTITIONS,
    is_field,
    late_sql,
    source_of_time,
    time_sql,
    undecoded_sql,
)
from kcli.spark.jobs.leftovers import Files
from kcli.spark.jobs.store import opened
from kcli.spark.progress import Totals

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

WRITTEN = "Output"

FORMATS = tuple(CODECS)
LATE_AFTER_S = 3600.0
LANDED, LATE, DLQ = "landed", "late", "dlq"
FILES_A_CORE = 4
"""Maximum per batch and directory."""

SETTINGS = {
    # A type that other readers know; Spark's default is deprecated in Parquet.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")

MANUAL = Manual(
    examples=(
        (
            "k spark-submit land --topics orders --path /lake/orders --partition-by hour \\\n"
            "    --checkpoint /lake/_checkpoints/orders",
            "Land all records that have not landed yet; run it from cron.",
        ),
        (
            "k spark-submit land --topics orders --path /lake/orders --partition-by hour \\\n"
            "    --value json --schema 'id bigint, at timestamp' --event-time at \\\n"
            "    --late-path /lake/orders-late --late-after 30m --dlq orders-dead \\\n"
            "    --checkpoint /lake/_checkpoints/orders",
            "Partition by the time in the value; late records and invalid values go to separate"
            " places.",
        ),
        (
            "k spark-submit land --pattern 'logs-.*' --format delta --path /lake/logs \\\n"
            "    --partition-by day --trigger 30s --checkpoint /lake/_checkpoints/logs",
            "A Delta table, a commit every 30 seconds until Ctrl-C.",
        ),
    ),
    differences=("Kafka's scripts have no such command.",),
    see_also=("k-spark-submit", "k-spark(7)"),
)


@command(manual=MANUAL)
@option_group(
    shared.topics,
    payloads.value(
        "The format of values.  raw lands their bytes and string their text; json and msgpack"
        " land the fields of --schema, as a struct in the column value.  Default: raw.",
    ),
    payloads.schema,
    option(
        "--event-time",
        "Where to read a row's time: a field of the value, such as at or order.at, or"
        " header:NAME.  A number is ms since 1970.  A text is ms since 1970, or a date and time,"
        " in UTC if it has no zone.  Default: the record's timestamp, which is also used for a"
        " record without a value.",
        "FIELD",
        section=payloads.DECODED,
    ),
    option(
        "--dlq",
        "Send records that cannot be decoded, or that have no event time, to this topic, exactly"
        " once and with the reason in their headers, and continue.  Default: the job fails at the"
        " first.",
        "TOPIC",
        section=payloads.DECODED,
    ),
    option("--path", "The directory for rows; required.", "DIRECTORY", section=WRITTEN),
    option(
        "--format",
        f"{', '.join(FORMATS)}.  Default: {FORMATS[0]}.",
        "FORMAT",
        type=click.Choice(FORMATS),
        section=WRITTEN,
    ),
    option(
        "--partition-by",
        "Write a directory for each day, date=2026-11-22, or for each hour,"
        " date=2026-11-22/hour=05, of the event time, in UTC.  Default: one directory for all"
        " rows.",
        "|".join(PARTITIONS),
        type=click.Choice(tuple(PARTITIONS)),
        section=WRITTEN,
    ),
    option(
        "--late-path",
        "Land late rows here, in directories with the same names.  A row is late if its record's"
        " timestamp is --late-after or more after the end of the hour or day of its event time."
        "  Default: late rows land with the others.",
        "DIRECTORY",
        section=WRITTEN,
    ),
    option(
        "--late-after",
        "How long after its end an hour or day is closed, in seconds or with a unit, such as 10m"
        f" or 1h.  Default: {LATE_AFTER_S:.0f}s.",
        "TIME",
        type=Duration(),
        section=WRITTEN,
    ),
    option(
        "--codec",
        "Compression: none, snappy, gzip, lz4 or zstd; for json none, gzip or bzip2.  Default:"
        f" {DEFAULT_CODEC['parquet']}, for json {DEFAULT_CODEC['json']}.",
        "CODEC",
        section=WRITTEN,
    ),
    shared.stream,
    shared.cluster,
    shared.quiet,
)
def land(options: Options) -> int:
    """Writes the records of topics to files, each record once.

    Columns are key, value, topic, partition, offset, timestamp, timestampType and headers, as in
    the source k, except the value, which --value controls.  In json, bytes are in base64.

    Rows, late rows and dead letters are written by one query each.  Each query has its own
    checkpoint under --checkpoint, and reads the topics separately.  Each writes exactly once: if a
    run is killed, the next one continues its work.  The queries do not wait for each other, so for
    a while one may be ahead of another.

    In parquet and json, _spark_metadata lists the files that have landed, and Spark uses this list.
    Other readers see all files, including those that a killed run has left; the next run removes
    them after it has completed that run's work.  Only this job and k spark-submit compact may write
    to the directory.

    A batch writes at most four files per processor, for each hour or day in it.  With many
    partitions, one task reads several.

    A topic that was deleted and created again since the last run is recognized by its id in the
    checkpoint; the job then fails, unless --ignore-data-loss is given.

    In delta, each batch is one commit to the table, which names the query and the batch.  A batch
    that is already in the table is not written again.
    """
    summary = shared.Summary(quiet=options.quiet)
    with shared.session(SETTINGS) as spark:
        status, totals = landed(spark, options)
    done = [_done(name, total, options) for name, total in totals.items()]
    batches = sum(total.batches for total in totals.values())
    summary.report(f"{', '.join(done)}, {batches:,} {'batch' if batches == 1 else 'batches'}")
    return status


def check(options: Options) -> None:
    if not options.path:
        refuse("name the directory for rows: --path DIRECTORY")
    shared.check_table("--path", options.path, options.format)
    shared.check_stream(options)
    _check_values(options)
    _check_late(options)
    codecs = CODECS[options.format or FORMATS[0]]
    if options.codec is not None and options.codec not in codecs:
        refuse(
            f"--codec for {options.format or FORMATS[0]} must be one of {', '.join(codecs)}, not"
            f" {options.codec}"
        )


def _check_values(options: Options) -> None:
    payloads.check(options)
    if options.event_time is None:
        return
    if not is_field(options.event_time):
        refuse(
            "--event-time must be a field, such as order.at, or header:NAME, not"
            f" {options.event_time}"
        )
    if not options.event_time.startswith("header:") and not options.schema:
        refuse("--event-time FIELD requires --value json or msgpack; header:NAME does not")


def _check_late(options: Options) -> None:
    if is_set(options, "late_after") and not options.late_path:
        refuse("--late-after requires --late-path, where late rows land")
    if not options.late_path:
        return
    shared.check_table("--late-path", options.late_path, options.format)
    if not options.event_time:
        refuse(
            "--late-path requires --event-time: by its record's own timestamp no row is ever late"
        )
    if not options.partition_by:
        refuse(
            "--late-path requires --partition-by: a row is late if it comes after its hour or day"
        )
    late, path = (f"{directory.rstrip('/')}/" for directory in (options.late_path, options.path))
    if late.startswith(path) or path.startswith(late):
        refuse(
            "--late-path and --path are the same directory, or one is inside the other; give"
            " separate directories"
        )


def landed(spark: SparkSession, options: Options) -> tuple[int, dict[str, Totals]]:
    """Run the queries; return the status and the totals of each."""
    rows = _rows(spark, options)
    return leftovers.follow(
        spark,
        {name: _writer(rows, name, options) for name in _queries(options)},
        _files(spark, options),
        trigger=shared.trigger(options),
        quiet=options.quiet,
    )


def _files(spark: SparkSession, options: Options) -> dict[str, Files]:
    """Return the files of the queries that write Spark's list of files."""
    paths = {LANDED: options.path} | ({LATE: options.late_path} if options.late_path else {})
    return {
        name: Files(opened(spark, path), opened(spark, f"{options.checkpoint}/{name}"))
        for name, path in paths.items()
        if options.format != "delta"
    }


def _queries(options: Options) -> list[str]:
    return [LANDED, *([LATE] if options.late_path else []), *([DLQ] if options.dlq else [])]


def _done(name: str, totals: Totals, options: Options) -> str:
    if name == DLQ:
        return f"{shared.number(totals, 'dead letter')} in {options.dlq}"
    if name == LATE:
        return f"{shared.number(totals, 'late row')} in {options.late_path}"
    return f"{shared.number(totals, 'row')} landed in {options.path}"


def _rows(spark: SparkSession, options: Options) -> DataFrame:
    """Return the records: `data`, or the `reason` that there is none; the row's time, and whether
    it is late.
    """
    from pyspark.sql import functions as f

    read_options = for_reading(shared.source_options(options)) | {"includeHeaders": "true"}
    frame = spark.readStream.format("k").options(**read_options).load()
    frame = payloads.decoded(frame, options)
    if options.event_time is None:
        frame = frame.withColumn(EVENT_TIME, f.col("timestamp"))
    else:
        source = source_of_time(options.event_time)
        kind = frame.selectExpr(f"{source} AS source").schema["source"].dataType.typeName()
        time = f"CASE WHEN value IS NULL THEN timestamp ELSE {time_sql(source, kind)} END"
        frame = frame.withColumn(EVENT_TIME, f.expr(time))
        lacking = f.when(
            f.col(EVENT_TIME).isNull(), f.lit(f"it has no time in {options.event_time}")
        )
        frame = frame.withColumn("reason", f.coalesce("reason", lacking))
    late_after_s = LATE_AFTER_S if options.late_after is None else options.late_after
    late = late_sql(options.partition_by, late_after_s) if options.late_path else "false"
    return frame.withColumn("late", f.expr(late))


def _writer(rows: DataFrame, name: str, options: Options) -> DataStreamWriter:
    """Return the writer of the query for its rows."""
    if name == DLQ:
        writer = _dead_letters(rows, options)
    else:
        writer = _rows_writer(rows, name, options)
    writer = writer.queryName(name)
    return writer.option("checkpointLocation", f"{options.checkpoint}/{name}")


def _rows_writer(rows: DataFrame, name: str, options: Options) -> DataStreamWriter:
    undecoded = "false" if options.dlq else undecoded_sql(payloads.WITHOUT_DLQ)
    own = "late" if name == LATE else "NOT late"
    frame = rows.where(f"CASE WHEN reason IS NOT NULL THEN {undecoded} ELSE {own} END")
    parts = PARTITIONS.get(options.partition_by, {})
    columns = ["data AS value" if column == "value" else column for column in COLUMNS]
    frame = shared.counted(
        frame.selectExpr(*columns, *(f"{sql} AS {c}" for c, sql in parts.items()))
    )
    # Each task writes a file, which costs more than a thousand rows in it. With hundreds of
    # partitions, one task reads several.
    frame = frame.coalesce(FILES_A_CORE * frame.sparkSession.sparkContext.defaultParallelism)
    format = options.format or FORMATS[0]
    path = options.late_path if name == LATE else options.path
    codec = options.codec or DEFAULT_CODEC[format]
    if format == "delta":
        from kcli.spark.jobs.delta import DeltaSink

        frame.sparkSession.dataSource.register(DeltaSink)
        sink_options = {"path": path, "parts": ",".join(parts), "codec": codec}
        return frame.writeStream.format(DeltaSink.name()).options(**sink_options)
    writer = frame.writeStream.format(format).option("path", path).option("compression", codec)
    return writer.partitionBy(*parts) if parts else writer


def _dead_letters(rows: DataFrame, options: Options) -> DataStreamWriter:
    frame = shared.counted(payloads.dead_letters(rows))
    write_options = for_writing(shared.client_options_of(options))
    writer = frame.writeStream.format("k").options(**write_options).option("topic", options.dlq)
    return writer.option("exactlyOnce", "true")
