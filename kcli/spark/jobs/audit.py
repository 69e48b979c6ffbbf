"""`k spark-submit audit`: the records of topics against the landed rows, counted by window."""

from __future__ import annotations

import time
from collections.abc import Iterable

import click

from kcli.client.blocking import Blocking
from kcli.client.producer.producer import Producer
from kcli.command.command import Duration, Manual, Options, command
from kcli.command.options import client_properties, option, option_group, refuse
from kcli.command.statuses import DONE, FOUND
from kcli.rows.listing import Format, formatted, rows
from kcli.rows.row_formats import json_text
from kcli.rows.shapes import RowField, RowShape
from kcli.spark.jobs import shared
from kcli.spark.jobs.audit_queries import Audit, audited
from kcli.spark.jobs.audit_windows import WINDOWS_MS, WindowResult
from kcli.spark.jobs.ends import for_reading, of_producer
from kcli.spark.jobs.landed_files import FORMATS
from kcli.spark.jobs.places import START, parse_place
from kcli.spark.options import batch_options

COMPARISON = "Comparison"
REPORT = "Report"
GRACE_S = 3600.0

SHAPE = RowShape(
    "k.spark-submit.audit",
    1,
    "A topic and a window of time, with counts.",
    (
        RowField("topic", "string", "Its name."),
        RowField("window", "string", "When the window begins, in UTC."),
        RowField("broker", "integer", "Records that the topic holds now."),
        RowField("landed", "integer", "Rows that have landed."),
        RowField("missing", "integer", "Records that should have landed but have not."),
        RowField("duplicates", "integer", "Rows of records that had landed before."),
        RowField(
            "extra",
            "integer",
            "Landed records that the topic should still hold but does not, or that differ from"
            " the records at their offsets.",
        ),
        RowField(
            "aged_out",
            "integer",
            "Landed records that retention or compaction has since removed from the topic; not a"
            " difference.",
        ),
        RowField("waiting", "integer", "Records that still have to land; not a difference."),
    ),
)

MANUAL = Manual(
    examples=(
        (
            "k spark-submit audit --topics orders --path /lake/orders --start -26h --fail-on-gap",
            "From cron, every hour: prints nothing if no record is missing, otherwise ends with"
            " status 3.",
        ),
        (
            "k spark-submit audit --topics orders,payments --path /lake --window day --all",
            "Every day of two topics that landed in one place.",
        ),
        (
            "k spark-submit audit --pattern '.*' --path /lake --format delta \\\n"
            "    --report-topic audits -o jsonl",
            "A Delta table; the report is also sent to a topic.",
        ),
    ),
    statuses=((FOUND, "A difference was found, and --fail-on-gap was given."),),
    differences=("Kafka's scripts have no such command.",),
    see_also=("k-spark-submit", "k-spark-submit-land", "k-spark(7)"),
)


@command(manual=MANUAL)
@option_group(
    shared.topics,
    option(
        "--path",
        "Location of the landed topics: the directory of files or of a Delta table.  Repeatable: "
        "late rows land apart.  Required.",
        "DIRECTORY",
        multiple=True,
        section=COMPARISON,
    ),
    option(
        "--dlq",
        "The dead letter topic of land: records in it count as landed.",
        "TOPIC",
        section=COMPARISON,
    ),
    option(
        "--format",
        f"{', '.join(FORMATS)}.  Default: {FORMATS[0]}.",
        "FORMAT",
        type=click.Choice(FORMATS),
        section=COMPARISON,
    ),
    option(
        "--window",
        "Count by the hour or the day of records' times, in UTC.  Default: hour.",
        "hour|day",
        type=click.Choice(tuple(WINDOWS_MS)),
        section=COMPARISON,
    ),
    option(
        "--start",
        "Only records at or after a time: relative, such as -26h or -2d, absolute, such as"
        " 2026-01-31T06:00Z, or in ms since 1970; or from offsets, as JSON, one for each"
        " partition.  Default: all records of the topics.",
        "WHEN",
        section=COMPARISON,
    ),
    option(
        "--grace",
        "How long after the end of its window a record may still land, in seconds or with a unit,"
        " such as 10m or 2h.  After that it counts as missing.  Default: 1h.",
        "TIME",
        type=Duration(),
        section=COMPARISON,
    ),
    option("--all", "Report all windows, including those without a difference.", section=REPORT),
    option(
        "--report-topic",
        "Also send the report to a topic, as JSON, with the audited topic as the key.",
        "TOPIC",
        section=REPORT,
    ),
    option("--fail-on-gap", "End with status 3 if there is a difference.", section=REPORT),
    formatted(SHAPE),
    shared.cluster,
)
def audit(options: Options) -> int:
    """Compares the records of topics with the rows that have landed from them.

    Prints a row for each topic and window with a difference: records that are missing, that landed
    twice, or that landed but are not in the topic.  Records that retention or compaction has
    removed from the topic, and records that still have to land, are counted but are not a
    difference.  A record before the last landed record of its partition will not land later, so it
    counts as missing at once.

    If a row has a different timestamp than the record at its offset, the row is extra and the
    record is missing.  This happens if a topic was deleted and created again.  Two records with the
    same timestamp at the same offset cannot be distinguished: keys and values are not compared.

    Landed rows must have the columns topic, partition, offset and timestamp, as the job land writes
    them.  Read topics in the same way as land did: with --command-property
    isolation.level=read_committed, if land used it.  Offsets are determined before anything is
    counted, so records that are written or land meanwhile do not matter.  But if land has several
    queries, for late rows or dead letters, let its run end first.
    """
    with shared.session(shows_stages=True) as spark:
        findings = audited(spark, _audit(options))
    shown = [row for row in findings if options.all or row.differs]
    # Print nothing without a difference, so that cron sends no mail.
    if shown or options.output is not None:
        options.output = options.output or Format("table")
        with rows(options, SHAPE) as out:
            for row in shown:
                out.row(**vars(row))
    if options.report_topic is not None:
        _report(options, shown)
    return FOUND if options.fail_on_gap and any(row.differs for row in findings) else DONE


def check(options: Options) -> None:
    shared.check_topics(options)
    if not options.path:
        refuse("name the directory of the landed topics: --path DIRECTORY")
    for path in options.path:
        shared.check_table("--path", path, options.format)
    _audit(options)


def _audit(options: Options) -> Audit:
    """Return the audit. Raises Refused if the options are invalid."""
    now_ms = int(time.time() * 1000)
    grace_s = GRACE_S if options.grace is None else options.grace
    audit = Audit(
        source=for_reading(shared.client_options_of(options)) | shared.subscription(options),
        paths=options.path,
        format=options.format or FORMATS[0],
        window_ms=WINDOWS_MS[options.window or "hour"],
        overdue_ms=now_ms - int(grace_s * 1000),
        start=parse_place(options.start, START, now_ms),
        dlq=options.dlq,
    )
    batch_options(audit.read_options)
    return audit


def _report(options: Options, findings: Iterable[WindowResult]) -> None:
    """Send a record for each finding, with its topic as the key."""
    with Blocking(Producer, of_producer(client_properties(options))) as producer:
        sent = [
            producer.send(options.report_topic, _json(row), key=row.topic.encode())
            for row in findings
        ]
        producer.flush()
        for delivery in sent:
            delivery.result()


def _json(finding: WindowResult) -> bytes:
    return json_text({"schema": SHAPE.id, **vars(finding)}).encode()
