"""`k producer-perf-test`: sends generated records, and reports the throughput."""

from __future__ import annotations

import functools
import math
import os
import sys
import uuid
from random import Random
from typing import TYPE_CHECKING

import click

from kcli.command.command import OLDER, Manual, Options, command
from kcli.command.command_runner import run, with_warnings
from kcli.command.options import (
    INT,
    LONG,
    Refused,
    attribute_of,
    client_options,
    client_properties,
    is_set,
    option,
    option_group,
    refuse,
    timeout,
)
from kcli.command.output import print_output
from kcli.command.statuses import FAILED
from kcli.patterns.java_patterns import PatternError
from kcli.perf import judging, payloads
from kcli.perf.payloads import Payloads
from kcli.perf.producing import ProducerLoad, Producing
from kcli.perf.tally import Sum
from kcli.rows.listing import Rows, formatted, rows_if_asked
from kcli.rows.shapes import RowField, RowShape

if TYPE_CHECKING:
    from kcli.client.config import ProducerConfig

CLIENT_ID = "perf-producer-client"
REPORT_EVERY_MS = 5000
SEED = 0
TRANSACTION_MS = 3000
PAYLOAD = "Payload"
TRANSACTIONS = "Transactions"
PAYLOADS = ("record-size", "payload-file", "payload-monotonic")
METRICS = tuple(field for field in Sum._fields if field != "elapsed_ms")

SUM = (
    RowField("records", "integer", "Records that were delivered."),
    RowField("elapsed_ms", "number", "Duration of the delivery."),
    RowField("records_per_s", "number", "Records a second."),
    RowField("mib_per_s", "number", "Rate of their values, in units of 1048576 bytes per second."),
    RowField(
        "avg_ms", "number or null", "The mean latency; null without records, as all latencies."
    ),
    RowField("max_ms", "number or null", "The longest latency."),
    RowField("p50_ms", "number or null", "The median latency."),
    RowField("p95_ms", "number or null", "A latency that 95 % do not exceed."),
    RowField("p99_ms", "number or null", "A latency that 99 % do not exceed."),
    RowField("p999_ms", "number or null", "A latency that 99.9 % do not exceed."),
)
RUN = RowShape(
    "k.producer-perf-test.run",
    1,
    "A reporting interval (window), the whole run (total), or the run after the warm-up (steady).",
    (
        RowField("phase", "string", "window, total or steady."),
        RowField("lost", "integer", "Records that were not delivered, since the start."),
        *SUM,
    ),
)

MANUAL = Manual(
    kafka="kafka-producer-perf-test.sh",
    examples=(
        (
            "k producer-perf-test --topic perf --num-records 1000000 --record-size 200 \\\n"
            "    --throughput -1",
            "As fast as possible.",
        ),
        (
            "k producer-perf-test --topic perf --num-records 60000 --record-size 200 \\\n"
            "    --throughput 1000 --warmup-records 5000 --history perf.jsonl \\\n"
            "    --baseline perf.jsonl --fail-if 'p99>+10%,records_per_s<-5%'",
            "A minute at a fixed rate, compared with earlier runs: a line for cron.",
        ),
        (
            "k producer-perf-test --topic perf --num-records 100000 --payload-file orders.txt \\\n"
            "    --throughput -1 --command-property compression.type=zstd linger.ms=20 -o json",
            "Values from a file, compressed; the result as JSON.",
        ),
    ),
    statuses=(
        (1, "Refused, or at least one record was not delivered; the reason is on standard error."),
        judging.STATUS,
    ),
    differences=(
        "At a fixed --throughput, the latency of a record is measured from the time when it was "
        "due, not from when it could be sent, so records that a stalled broker delays count as "
        "late (coordinated omission).  Latencies of Kafka's tool are shorter then.  Without a "
        "limit, records are due when they are sent, as with Kafka's tool.",
        "A record's timestamp is the millisecond in which it is due.  Latencies are accurate to "
        "half a millisecond, or to a microsecond at a fixed rate of up to 1000 records a second; "
        "they include the delay of the machine's timer, a millisecond or less.",
        "Percentiles are over all records, from a histogram of constant size with an error of "
        "less than 0.1 %.  Kafka's tool samples 500000 records.",
        "Time is measured from when the topic is known; with Kafka's tool, the first latencies "
        "include the time to connect.",
        "If a record was not delivered, the exit status is 1, and each reason is printed once; "
        "Kafka's tool prints a stack trace for each record and ends with 0.",
        "If within max.block.ms the topic does not exist or no memory becomes free, or if a "
        "record is larger than max.request.size, the command ends; Kafka's tool continues with "
        "the next record.",
        "Random values are taken from 4 MiB of random data.",
        "--throughput 0 is refused; Kafka's tool sends one record and sleeps forever.",
        "A property may contain more than one =; it is split at the first.",
        "--print-metrics is refused with exit status 1: the client has no metrics.  -o prints "
        "the measurements.",
        "A transaction that fails ends the command.",
        "Older spellings are accepted without a warning.",
        *judging.DIFFERENCES,
    ),
    see_also=("k-perf-test", "k-consumer-perf-test", "k-e2e-latency", "k-console-producer"),
)


@command(manual=MANUAL)
@option_group(
    click.argument("properties", nargs=-1, metavar="[KEY=VALUE]..."),
    option("--topic", "The topic to send to.  Required.", "NAME"),
    option("--num-records", "Number of records.  Required.", "N", type=LONG),
    option(
        "--throughput",
        "Records per second; below 0, as many as possible.  Required.",
        "RATE",
    ),
    option(
        "--warmup-records",
        "Also report without the first N records; --fail-if and --history use that report.",
        "N",
        type=LONG,
    ),
    option(
        "--reporting-interval",
        f"Reporting interval in milliseconds.  Default: {REPORT_EVERY_MS}.",
        "MS",
        type=LONG,
    ),
    option("--print-metrics", "Not supported: the client has no metrics.  See -o."),
    formatted(RUN),
    option(
        "--record-size",
        "Send values of this many random letters.",
        "BYTES",
        type=INT,
        section=PAYLOAD,
    ),
    option("--payload-file", "Send values at random from this file.", "FILE", section=PAYLOAD),
    option(
        "--payload-delimiter",
        "A pattern between the values in the file.  Default: \\n, a newline.",
        "PATTERN",
        section=PAYLOAD,
    ),
    option("--payload-monotonic", "Send values that count from 0.", section=PAYLOAD),
    judging.OPTIONS,
    client_options("producer", "KEY=VALUE..."),
    timeout,
    option(
        "--transactional-id",
        "Send in transactions, under this id.  Default, with --transaction-duration-ms: "
        "performance-producer- and a random UUID.",
        "ID",
        section=TRANSACTIONS,
    ),
    option(
        "--transaction-duration-ms",
        "Commit after this long, and begin the next transaction.  Default, in transactions: "
        f"{TRANSACTION_MS}.",
        "MS",
        type=LONG,
        section=TRANSACTIONS,
    ),
    option(
        "--producer-props",
        "The same as --command-property.",
        "KEY=VALUE...",
        multiple=True,
        instead="--command-property",
        section=OLDER,
    ),
)
def producer_perf_test(options: Options) -> int:
    """Sends generated records, as fast as possible or at a fixed rate, and reports the throughput
    and the latencies.

    It prints a line for each reporting interval, and one with percentiles for the whole run.
    """
    _check(options)
    from kcli.client.config import ProducerConfig

    properties = _properties(options)
    config = with_warnings(ProducerConfig.of(properties))
    transaction_ms = None
    if config.transactional_id is not None:
        transaction_ms = options.transaction_duration_ms or TRANSACTION_MS
    rate = _rate(options.throughput)
    workload = {
        "records": options.num_records,
        "records_per_s": rate,
        "warmup_records": options.warmup_records,
    } | {attribute_of(name): getattr(options, attribute_of(name)) for name in PAYLOADS}
    if transaction_ms is not None:
        workload["transaction_ms"] = transaction_ms
    evaluation = judging.RunEvaluation(
        options, METRICS, judging.run_of("producer", options.topic, properties, workload)
    )
    load = ProducerLoad(
        options.topic,
        options.num_records,
        _payloads(options),
        rate,
        max(0, options.warmup_records or 0),
        (options.reporting_interval or REPORT_EVERY_MS) / 1000,
        None if transaction_ms is None else transaction_ms / 1000,
    )
    with rows_if_asked(options, RUN) as out:
        return _run(options, load, config, evaluation, out)


def _run(
    options: Options,
    load: ProducerLoad,
    config: ProducerConfig,
    evaluation: judging.RunEvaluation,
    out: Rows | None,
) -> int:
    producing = Producing(load, config, functools.partial(_window, out))
    if load.warmup and out is None:
        print_output(
            f"Warmup first {load.warmup} records. Steady state results will print after the "
            "complete test summary."
        )
    try:
        run(producing.all(), options.timeout)
    finally:
        if producing.has_begun:
            _print_sums(producing, out)
    failure = None
    if lost := producing.lost.total():
        failure = f"{lost} of {load.records} records were not delivered: " + "; ".join(
            producing.lost
        )
        judging.report_problem(out, "NOT_DELIVERED", failure)
    status = evaluation.conclude((producing.steady or producing.total).values(), out, failure)
    return FAILED if lost else status


def _window(out: Rows | None, window: Sum, lost: int, is_first_steady: bool) -> None:
    if out is not None:
        out.row(phase="window", lost=lost, **window.values())
    else:
        if is_first_steady:
            print_output("In steady state.")
        print_output(window.window_line())
    sys.stdout.flush()


def _print_sums(producing: Producing, out: Rows | None) -> None:
    lost = producing.lost.total()
    for phase, of, tally in (
        ("total", "", producing.total),
        ("steady", " steady state", producing.steady),
    ):
        if tally is None:
            continue
        if out is None:
            print_output(tally.total_line(of))
        else:
            out.row(phase=phase, lost=lost, **tally.values())


def _check(options: Options) -> None:
    """Check the rules between options, mostly in Kafka's words."""
    for name in ("topic", "num-records", "throughput"):
        if getattr(options, attribute_of(name)) is None:
            refuse(f'Missing required argument "[{name}]"')
    for name in ("num-records", "record-size", "reporting-interval", "transaction-duration-ms"):
        if (value := getattr(options, attribute_of(name))) is not None and value <= 0:
            refuse(f"--{name} should be greater than zero.")
    payloads = [name for name in PAYLOADS if is_set(options, name)]
    if len(payloads) != 1:
        refuse(f"Exactly one of --{', --'.join(PAYLOADS)} is required")
    if (options.warmup_records or 0) >= options.num_records:
        refuse(
            "The value for --warmup-records must be strictly fewer than the number of records in "
            "the test, --num-records."
        )
    if options.properties and not options.command_property:
        refuse(f"unrecognized arguments: {' '.join(options.properties)}")
    if options.print_metrics:
        raise Refused(judging.NO_METRICS)


def _rate(text: str) -> float | None:
    """Return the records per second, None without a limit."""
    try:
        rate = float(text)
    except ValueError:
        rate = math.nan
    if not math.isfinite(rate):
        refuse(f"Cannot parse argument '{text}' of option throughput")
    if rate == 0:
        refuse("--throughput 0 would send nothing; use -1 for no limit")
    return rate if rate > 0 else None


def _properties(options: Options) -> dict[str, str]:
    """Return the producer's properties; words after an option's value are properties too."""
    options.command_property = (*options.command_property, *options.properties)
    for pair in options.command_property:
        if pair.find("=") < 1:
            refuse(f"Invalid property: {pair}")
    properties = client_properties(options, client_id=CLIENT_ID)
    if options.transactional_id is not None:
        properties["transactional.id"] = options.transactional_id
    elif options.transaction_duration_ms is not None and "transactional.id" not in properties:
        properties["transactional.id"] = f"performance-producer-{uuid.uuid4()}"
    return properties


def _payloads(options: Options) -> Payloads:
    if options.record_size is not None:
        return payloads.Letters(options.record_size, options.num_records, Random(SEED))
    if options.payload_monotonic:
        return payloads.Counting()
    path = options.payload_file
    if options.output is None:
        print_output(f"Reading payloads from: {os.path.abspath(path)}")
    with open(path, encoding="utf-8", errors="replace", newline="") as file:
        text = file.read()
    if not text:
        raise Refused(f"{path}: the file is empty; it must contain values to send")
    try:
        values = payloads.split(text, options.payload_delimiter or "\n")
    except PatternError as error:
        refuse(f"--payload-delimiter {error}")
    if options.output is None:
        print_output(f"Number of records read: {len(values)}")
    return payloads.OfFile(values, Random(SEED))
