"""`k spark-submit redrive`: sends dead letters back to the topics that they were for."""

from __future__ import annotations

from kcli.command.command import Duration, Manual, Options, command
from kcli.command.options import INT, dry_run, option, option_group, refuse
from kcli.command.statuses import DONE
from kcli.rows.listing import Format, formatted, rows
from kcli.rows.shapes import RowField, RowShape
from kcli.spark.jobs import functions, shared
from kcli.spark.jobs.redrive_frames import Redrive, redriven
from kcli.spark.options import batch_options

LETTERS, WRITTEN = "Which letters", "Output"
WAIT_S = 60.0

SHAPE = RowShape(
    "k.spark-submit.redrive",
    1,
    "Dead letters of one topic with one reason, without those that were already sent back.",
    (
        RowField(
            "topic", "string or null", "The topic that they are sent to; null if none is known."
        ),
        RowField("reason", "string or null", "The reason in their headers; null if there is none."),
        RowField("sent", "integer", "Letters that are sent back."),
        RowField("passed_over", "integer", "Letters that --filter leaves out; they stay."),
        RowField(
            "given_up",
            "integer",
            "Letters that were sent back --max-attempts times before; they stay.",
        ),
        RowField("unaddressed", "integer", "Letters that name no topic, without --to; they stay."),
        RowField(
            "cut",
            "integer",
            "Letters that hold only the beginning of their record, which was too large for their "
            "topic; they stay.",
        ),
    ),
)

MANUAL = Manual(
    examples=(
        (
            "k spark-submit redrive --dlq orders-dead --dry-run",
            "Number of dead letters, by topic and reason.",
        ),
        (
            "k spark-submit redrive --dlq orders-dead --filter \"reason LIKE '%too large%'\" \\\n"
            "    --max-attempts 3",
            "Letters with one reason, to their topics, after the cause was fixed.",
        ),
        (
            "k spark-submit redrive --dlq orders-dead --fix mend:orders --to orders",
            "All letters, after a function has repaired them: it receives the frame of letters"
            " and returns another.",
        ),
    ),
    differences=("Kafka's scripts have no such command.",),
    see_also=("k-spark-submit", "k-spark-submit-etl", "k-spark-submit-land", "k-spark(7)"),
)


@command(manual=MANUAL)
@option_group(
    option("--dlq", "The topic of the dead letters; required.", "TOPIC", section=LETTERS),
    option(
        "--filter",
        "Only letters that match this SQL condition over the columns reason, topic, partition,"
        " offset and timestamp (where the record was, from the letter's headers), attempts, key,"
        " value, header (all headers by name, as texts) and letter (a struct: the partition,"
        " offset and timestamp of the letter itself).",
        "CONDITION",
        section=LETTERS,
    ),
    option(
        "--max-attempts",
        "Do not send letters that were already sent back this many times; they stay in the topic.",
        "N",
        type=INT,
        section=LETTERS,
    ),
    option(
        "--wait",
        "How long to wait for open transactions in the topic, in seconds or with a unit, such as"
        " 5m.  Default: 60s.",
        "TIME",
        type=Duration(),
        section=LETTERS,
    ),
    option(
        "--fix",
        "A function that receives the frame of the letters to send, with the columns of --filter,"
        " and returns the repaired frame.  It is in an importable module or in a file:"
        " mend.py:orders.  Letters that it leaves out are not sent, and stay in the topic.",
        "MODULE:FUNCTION",
        section=WRITTEN,
    ),
    option(
        "--to",
        "Send all letters to this topic.  Default: each to the topic in its headers.",
        "TOPIC",
        section=WRITTEN,
    ),
    option(
        "--keep-timestamps",
        "Keep the original time of each record, if its letter has it.  Default: the time of"
        " sending.",
        section=WRITTEN,
    ),
    dry_run,
    formatted(SHAPE),
    shared.cluster,
    shared.quiet,
)
def redrive(options: Options) -> int:
    """Sends dead letters back to their topics.

    Dead letters are the records that the jobs land and etl, and the sink of the source k, write to
    a dead letter topic.  Key, value and headers are those of the original record; the dead letter
    headers are removed, and k.dlq.attempts counts how often the record was sent back.

    For each letter that is sent, a receipt is written to the dead letter topic: a record without
    key and value, whose header k.dlq.redriven has the letter's partition and offset.  Both are
    written in one transaction, and a letter with a receipt is not sent again.  The job can be run
    any number of times, with different filters, but only one run at a time.  read_committed
    consumers see each record once.

    Prints a row for each topic and reason.  With --dry-run nothing is sent.
    """
    plan = _redrive(options)
    summary = shared.Summary(quiet=options.quiet or options.dry_run)
    with shared.session(shows_stages=not options.quiet) as spark:
        outcomes, sent = redriven(spark, plan, sends=not options.dry_run)
    if outcomes or options.output is not None:
        options.output = options.output or Format("table")
        with rows(options, SHAPE) as out:
            for outcome in outcomes:
                out.row(**vars(outcome))
    summary.report(f"letters sent back: {sent:,}")
    return DONE


def check(options: Options) -> None:
    if not options.dlq:
        refuse("name the topic of the dead letters: --dlq TOPIC")
    if options.to is not None and options.to == options.dlq:
        refuse("--to and --dlq are the same topic")
    if options.max_attempts is not None and options.max_attempts < 1:
        refuse("--max-attempts must be at least 1")
    if options.fix is not None:
        functions.parse_name("--fix", options.fix)
    batch_options(_redrive(options).read_options)


def _redrive(options: Options) -> Redrive:
    return Redrive(
        client=shared.client_options_of(options),
        dlq=options.dlq,
        to=options.to,
        filter=options.filter,
        fix=options.fix,
        max_attempts=options.max_attempts,
        keep_timestamps=options.keep_timestamps,
        wait_s=WAIT_S if options.wait is None else options.wait,
    )
