"""`k spark-submit replay`: sends landed records, or a range of a topic, to a topic again."""

from __future__ import annotations

import re
import time

import click

from kcli.command.command import Manual, Options, command
from kcli.command.options import dry_run, is_set, option, option_group, refuse
from kcli.command.statuses import DONE
from kcli.rows.listing import Format, formatted, rows
from kcli.rows.shapes import RowField, RowShape
from kcli.spark.jobs import shared
from kcli.spark.jobs.landed_files import FORMATS
from kcli.spark.jobs.places import END, START, Place, parse_place
from kcli.spark.jobs.replay_frames import Replay, parts, replayed
from kcli.spark.options import batch_options
from kserver.wire.special_offsets import EARLIEST, LATEST

READ, WRITTEN = "Input", "Output"
TOPIC = "topic:"
VALUES = ("raw", "string")
UNBUFFERED = {"spark.buffer.size": "1024"}
"""Buffer between Spark and Python, if rows have to be passed on as soon as they are due."""
_RATE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(?:/(s|m|h))?")
_PER_S = {None: 1, "s": 1, "m": 60, "h": 3600}

SHAPE = RowShape(
    "k.spark-submit.replay",
    1,
    "The records of one partition that would be sent.",
    (
        RowField("topic", "string", "The topic that the records were in."),
        RowField("partition", "integer", "Their partition in that topic."),
        RowField("records", "integer", "Their number."),
        RowField("first_offset", "integer", "Their lowest offset."),
        RowField("last_offset", "integer", "The highest."),
        RowField("first_timestamp_ms", "integer", "Their earliest time, in ms since 1970."),
        RowField("last_timestamp_ms", "integer", "The latest."),
    ),
)

MANUAL = Manual(
    examples=(
        (
            "k spark-submit replay --from /lake/orders --start 2026-01-31T06:00Z \\\n"
            "    --end 2026-01-31T09:00Z --to orders-again --dry-run",
            "Count the landed records of these three hours, by partition.",
        ),
        (
            "k spark-submit replay --from /lake/orders --to orders-again --rate 5000/s \\\n"
            "    --keep-timestamps --keep-partition",
            "All landed records, unchanged, at a limited rate.",
        ),
        (
            "k spark-submit replay --from topic:orders --start -2h --to orders-again",
            "The last two hours of a topic.",
        ),
    ),
    differences=("Kafka's scripts have no such command.",),
    see_also=("k-spark-submit", "k-spark-submit-land", "k-spark(7)"),
)


@command(manual=MANUAL)
@option_group(
    option(
        "--from",
        "Where records come from: a directory that the job land has written, or a topic; required.",
        "DIRECTORY|topic:NAME",
        section=READ,
    ),
    option(
        "--format",
        f"Of a directory: {', '.join(FORMATS)}.  Default: {FORMATS[0]}.",
        "FORMAT",
        type=click.Choice(FORMATS),
        section=READ,
    ),
    option(
        "--value",
        "Of a directory: the --value that land was run with.  Default: raw.",
        "|".join(VALUES),
        type=click.Choice(VALUES),
        section=READ,
    ),
    option(
        "--topics",
        "Of a directory: only what landed of these topics.  Default: all.",
        "TOPIC,...",
        section=READ,
    ),
    option(
        "--start",
        "Start at a time, such as 2026-01-31T06:00Z, in ms since 1970, or relative, such as -2h"
        " or -1d; or at offsets as JSON, one for each partition.  In a topic, all records from"
        " the first such record on are sent.  Default: all records.",
        "WHEN",
        section=READ,
    ),
    option(
        "--end",
        "Stop before a time or before offsets, in the same form.  Default: all records at the "
        "start of the job.",
        "WHEN",
        section=READ,
    ),
    option("--to", "The topic to write to; required.", "TOPIC", section=WRITTEN),
    option(
        "--rate",
        "Maximum records per second over all tasks, or per minute or hour, such as 100/m."
        "  Default: no limit.",
        "N/s",
        section=WRITTEN,
    ),
    option(
        "--keep-timestamps",
        "Keep the times of records.  Default: the time of sending.",
        section=WRITTEN,
    ),
    option(
        "--keep-partition",
        "Send each record to the partition with the number that it had.  Default: by its key.",
        section=WRITTEN,
    ),
    option(
        "--exactly-once",
        "Write in transactions: read_committed consumers see each record once, or none if the job"
        " fails.  The job must end within 15 minutes, or within the transaction.timeout.ms that"
        " --command-property sets.",
        section=WRITTEN,
    ),
    dry_run,
    formatted(SHAPE),
    shared.cluster,
    shared.quiet,
)
def replay(options: Options) -> int:
    """Sends records to a topic again, from landed files or from a range of a topic.

    Keys, values and headers are unchanged.  The records of a partition are sent in the order of
    their offsets.  The end of a topic is determined when the job begins, so a topic can be sent to
    itself.  Without --exactly-once, a task that fails and is run again sends its records again.

    --dry-run prints a row for each partition with the records that would be sent, and sends none.
    """
    plan = _replay(options)
    summary = shared.Summary(quiet=options.quiet or options.dry_run)
    settings = {} if plan.per_s is None else UNBUFFERED
    with shared.session(settings, shows_stages=not options.quiet) as spark:
        if options.dry_run:
            options.output = options.output or Format("table")
            with rows(options, SHAPE) as out:
                for part in parts(spark, plan):
                    out.row(**vars(part))
            return DONE
        count = replayed(spark, plan)
    summary.report(f"{count:,} records sent to {plan.to}")
    return DONE


def check(options: Options) -> None:
    for name, what in (("from", "the source of records"), ("to", "the destination")):
        if not getattr(options, name):
            refuse(f"name {what}: --{name}")
    if getattr(options, "from").startswith(TOPIC):
        for name in ("format", "topics", "value"):
            if is_set(options, name):
                refuse(f"--{name} is for a directory, but --from names a topic")
    if options.output is not None and not options.dry_run:
        refuse("--output is only allowed with --dry-run")
    plan = _replay(options)
    if plan.from_topic is not None:
        batch_options(plan.read_options)
        return
    shared.check_table("--from", plan.from_path, plan.format)
    _check_offsets(plan.start, START, EARLIEST)
    _check_offsets(plan.end, END, LATEST)


def look(options: Options) -> None:
    if not options.dry_run:
        shared.check_target(options, options.to)


def _check_offsets(edge: Place, option: str, all_there_is: int) -> None:
    """Refuse special offsets, which files do not have."""
    for partition, offset in (edge.offsets or {}).items():
        if offset < 0 and offset != all_there_is:
            refuse(
                f"{option} has {offset} for {partition}, which is for topics only; give an offset"
            )


def _replay(options: Options) -> Replay:
    """Return the replay. Raises ConfigError or click's UsageError if the options are invalid."""
    now_ms = int(time.time() * 1000)
    source = getattr(options, "from")
    is_topic = source.startswith(TOPIC)
    return Replay(
        client=shared.client_options_of(options),
        to=options.to,
        from_topic=source.removeprefix(TOPIC) if is_topic else None,
        from_path="" if is_topic else source,
        format=options.format or FORMATS[0],
        texts=options.value == "string",
        topics=tuple(name.strip() for name in (options.topics or "").split(",") if name.strip()),
        start=parse_place(options.start, START, now_ms),
        end=parse_place(options.end, END, now_ms),
        per_s=None if options.rate is None else per_second(options.rate),
        keep_timestamps=options.keep_timestamps,
        keep_partition=options.keep_partition,
        exactly_once=options.exactly_once,
    )


def per_second(text: str) -> float:
    """Return the records per second of a rate: 100, 100/s, 6000/m."""
    match = _RATE.fullmatch(text)
    if match is None or not float(match[1]):
        refuse(
            "--rate must be a number of records above 0, such as 100/s, 100/m or 100/h, not"
            f" '{text}'"
        )
    return float(match[1]) / _PER_S[match[2]]
