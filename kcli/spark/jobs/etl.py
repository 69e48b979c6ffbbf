"""`k spark-submit etl`: topics through SQL or a user function, to a topic or files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from kcli.command.command import Manual, Options, command
from kcli.command.options import option, option_group, refuse
from kcli.spark.jobs import functions, leftovers, payloads, shared
from kcli.spark.jobs.ends import for_reading, for_writing
from kcli.spark.jobs.etl_options import (
    CONSOLE,
    TOPIC,
    Target,
    packed,
    quoted,
    target,
    watermark,
)
from kcli.spark.jobs.leftovers import Files
from kcli.spark.jobs.store import opened
from kserver.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from kcli.spark.progress import Totals

DONE_WITH, WRITTEN = "Transformation", "Output"
VIEW, RECORD = "records", "record"
MODES = ("append", "update", "complete")
ROWS, DEAD = "rows", "dlq"
SETTINGS = {
    # Each partition keeps a state for aggregates from the first batch on; few tables of per-minute
    # counts are worth Spark's default of two hundred.
    "spark.sql.shuffle.partitions": "16",
}

MANUAL = Manual(
    examples=(
        (
            "k spark-submit etl --topics access --value json \\\n"
            "    --schema 'at timestamp, status int' --watermark at:10m \\\n"
            '    --sql \'SELECT window(at, "1 minute").start AS minute, status, count(*) AS hits\n'
            '           FROM records GROUP BY window(at, "1 minute"), status\' \\\n'
            "    --to topic:access-per-minute --exactly-once --trigger 10s \\\n"
            "    --checkpoint /lake/_checkpoints/per-minute",
            "Counts per minute, as JSON.  A minute is written once the watermark, 10 minutes"
            " behind the latest record, has passed it.",
        ),
        (
            "k spark-submit etl --topics access --value string \\\n"
            "    --sql \"SELECT key, value FROM records WHERE value LIKE '%ERROR%'\" \\\n"
            "    --to topic:errors --checkpoint /lake/_checkpoints/errors",
            "Send the records that match, unchanged.",
        ),
        (
            "k spark-submit etl --topics orders --value msgpack --schema 'id bigint, sum int' \\\n"
            "    --dlq orders-dead --py clean:orders --to parquet:/lake/orders-clean \\\n"
            "    --checkpoint /lake/_checkpoints/orders-clean",
            "Transform by the function orders(frame) of clean.py, and write files; invalid values"
            " go to a dead letter topic.",
        ),
    ),
    differences=("Kafka's scripts have no such command.",),
    see_also=("k-spark-submit", "k-spark-submit-land", "k-spark(7)"),
)


@command(manual=MANUAL)
@option_group(
    shared.topics,
    payloads.value(
        "The format of values.  raw: the column value has their bytes; string: their text; json"
        " and msgpack: each field of --schema is a column.  Default: raw.",
    ),
    payloads.schema,
    option(
        "--dlq",
        "Send records that cannot be decoded, and rows that cannot be written, to this topic,"
        " with the reason in their headers, and continue.  Default: the job fails at the first.",
        "TOPIC",
        section=payloads.DECODED,
    ),
    option(
        "--sql",
        "A Spark SQL query over the view records, or @FILE to read one from a file.  One of --sql"
        " and --py is required.",
        "QUERY",
        section=DONE_WITH,
    ),
    option(
        "--py",
        "A function that receives the frame of records and returns another.  It is in an"
        " importable module or in a file, which is sent to the executors: clean.py:errors.",
        "MODULE:FUNCTION",
        section=DONE_WITH,
    ),
    option(
        "--watermark",
        "A column of times, and how far a row may be behind the latest of them and still be"
        " counted: at:10m.  Windows older than that are written and dropped from the state.",
        "COLUMN:TIME",
        section=DONE_WITH,
    ),
    option(
        "--to",
        "The destination: a topic, files in a directory, or console, which prints rows.  Required.",
        "topic:NAME|parquet:DIRECTORY|json:DIRECTORY|console",
        section=WRITTEN,
    ),
    option(
        "--output-mode",
        "append writes each row once, when it is final; update writes it each time it has"
        " changed; complete writes all rows each time.  A topic accepts append and complete,"
        " files accept append.  Default: append.",
        "|".join(MODES),
        type=click.Choice(MODES),
        section=WRITTEN,
    ),
    option(
        "--exactly-once",
        "Write to the topic in transactions, so that read_committed consumers see each row once."
        "  Files are always written exactly once.",
        section=WRITTEN,
    ),
    shared.stream,
    shared.cluster,
    shared.quiet,
)
def etl(options: Options) -> int:
    """Transforms the records of topics, and writes the result to a topic or to files.

    The view records has the fields of --schema as columns, and the columns of the source k: key,
    value (the bytes, or the text with --value string), topic, partition, offset, timestamp,
    timestampType and headers.  A field with the name of one of these columns replaces it; the
    struct record has all columns of the source, as in record.timestamp.

    For a topic, the column value becomes the value of a record, and other columns except key,
    partition, headers and timestamp are ignored.  Without a column value, all columns except
    these and topic become the value, as a JSON object without fields that are null.  Structs,
    arrays and maps are written as JSON, other types as text.  The column partition determines the
    partition of a record, by default its key does.  The column timestamp is the time of a record,
    by default the time of the write.

    For files, _spark_metadata lists the files that were written, and Spark uses this list.  Other
    readers see all files, including those that a killed run has left; the next run removes them
    after it has completed that run's work.

    --checkpoint stores the progress and the state of the job.  Another query requires another
    checkpoint.
    """
    summary = shared.Summary(quiet=options.quiet)
    with shared.session(SETTINGS) as spark:
        status, totals = transformed(spark, options)
    done = [f"{shared.number(totals[ROWS], 'row')} written to {options.to}"]
    if DEAD in totals:
        done.append(f"{shared.number(totals[DEAD], 'dead letter')} in {options.dlq}")
    summary.report(", ".join(done))
    return status


def check(options: Options) -> None:
    if (options.sql is None) == (options.py is None):
        refuse("name a transformation: --sql QUERY or --py MODULE:FUNCTION")
    if not options.to:
        refuse(
            "name the destination of rows: --to topic:NAME, parquet:DIRECTORY, json:DIRECTORY or "
            "console"
        )
    shared.check_stream(options)
    payloads.check(options)
    text = payloads.text_of("--sql", options.sql)
    if text is not None and not re.search(rf"\b{VIEW}\b", text, re.IGNORECASE):
        refuse(f"--sql does not read the records; add FROM {VIEW}, the view of the topics")
    try:
        to = target(options.to)
        if options.watermark is not None:
            watermark(options.watermark)
    except ConfigError as error:
        refuse(str(error))
    if options.py is not None:
        functions.parse_name("--py", options.py)
    if options.exactly_once and to.kind == CONSOLE:
        refuse("--exactly-once is for a topic; the console has no transactions")
    if to.is_topic and options.output_mode == "update":
        # Spark does not support this mode for sinks in Python, and says so only when the query
        # starts.
        refuse("--output-mode update is for the console: a topic accepts append or complete")
    if not to.is_topic and to.kind != CONSOLE and options.output_mode not in (None, "append"):
        refuse(
            f"--output-mode {options.output_mode} is for a topic or the console; files accept"
            " append"
        )


def transformed(spark: SparkSession, options: Options) -> tuple[int, dict[str, Totals]]:
    """Run the queries; return the status and the totals of each."""
    read_options = for_reading(shared.source_options(options)) | {"includeHeaders": "true"}
    read = payloads.decoded(spark.readStream.format("k").options(**read_options).load(), options)
    rows = _records(payloads.valid_rows(read, fails=options.dlq is None), options)
    if options.watermark is not None:
        rows = rows.withWatermark(*watermark(options.watermark))
    if options.py is None:
        done = _query(spark, rows, options)
    else:
        done = functions.function(spark, "--py", options.py)(rows)
    writers = {ROWS: _writer(done, target(options.to), ROWS, options)}
    if options.dlq is not None:
        dead = payloads.dead_letters(read)
        writers[DEAD] = _writer(dead, Target(TOPIC, options.dlq), DEAD, options)
    return leftovers.follow(
        spark, writers, _files(spark, options), trigger=shared.trigger(options), quiet=options.quiet
    )


def _files(spark: SparkSession, options: Options) -> dict[str, Files]:
    """Return the files of the query that writes them, if one does."""
    to = target(options.to)
    if to.is_topic or to.kind == CONSOLE:
        return {}
    return {ROWS: Files(opened(spark, to.name), opened(spark, f"{options.checkpoint}/{ROWS}"))}


def _records(frame: DataFrame, options: Options) -> DataFrame:
    """Return the columns of the view."""
    own = [name for name in frame.columns if name not in ("data", "reason")]
    if (options.value or payloads.RAW) not in payloads.WITH_SCHEMA:
        return frame.selectExpr(*("data AS value" if name == "value" else name for name in own))
    fields = frame.select("data.*").columns
    own_fields = [name for name in own if name not in fields]
    hidden = len(own_fields) < len(own) and RECORD not in fields
    record = [f"struct({', '.join(own)}) AS {RECORD}"] if hidden else []
    return frame.selectExpr(*own_fields, *(f"data.{quoted(name)}" for name in fields), *record)


def _query(spark: SparkSession, rows: DataFrame, options: Options) -> DataFrame:
    rows.createOrReplaceTempView(VIEW)
    text = payloads.text_of("--sql", options.sql)
    assert text is not None
    return spark.sql(text.strip().removesuffix(";"))


def _writer(frame: DataFrame, to: Target, name: str, options: Options) -> DataStreamWriter:
    """Return the writer of the query for these rows."""
    if to.is_topic and name == ROWS:
        frame = frame.selectExpr(*packed({c.name: c.dataType.simpleString() for c in frame.schema}))
    writer = shared.counted(frame).writeStream.queryName(name)
    writer = writer.option("checkpointLocation", f"{options.checkpoint}/{name}")
    if name == ROWS:
        writer = writer.outputMode(options.output_mode or MODES[0])
    if not to.is_topic:
        writer = writer.format(to.kind)
        return writer if to.kind == CONSOLE else writer.option("path", to.name)
    write_options = {**for_writing(shared.client_options_of(options)), "topic": to.name}
    if options.exactly_once or name == DEAD:
        write_options["exactlyOnce"] = "true"
    if "timestamp" in frame.columns:
        write_options["keepTimestamps"] = "true"
    if options.dlq is not None and name == ROWS:
        write_options["dlqTopic"] = options.dlq
    return writer.format("k").options(**write_options)
