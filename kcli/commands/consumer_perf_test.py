"""`k consumer-perf-test`: reads records, and reports the throughput."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kcli.command.command import OLDER, Manual, Milliseconds, Options, command
from kcli.command.command_runner import run, with_warnings
from kcli.command.options import (
    INT,
    LONG,
    Refused,
    attribute_of,
    broker_list,
    client_options,
    client_properties,
    name_pattern,
    option,
    option_group,
    refuse,
)
from kcli.command.output import print_output, transient
from kcli.perf import dates, judging
from kcli.perf.consumed import DETAILED_HEADER, HEADER, Consumed
from kcli.perf.consuming import ConsumerPerfOptions, Consuming
from kcli.rows.listing import Rows, formatted, rows_if_asked
from kcli.rows.shapes import RowField, RowShape

if TYPE_CHECKING:
    from kcli.client.config import ConsumerConfig

CLIENT_ID = "perf-consumer-client"
TIMEOUT_MS = 10_000
REPORT_EVERY_MS = 5000
FETCH_BYTES = 1 << 20
SOCKET_BUFFER_BYTES = 2 << 20
DATE_FORMAT = "yyyy-MM-dd HH:mm:ss:SSS"
REPORT = "Report"
NOT_METRICS = ("start_ms", "end_ms")
METRICS = tuple(field for field in Consumed._fields if field not in NOT_METRICS)

RUN = RowShape(
    "k.consumer-perf-test.run",
    1,
    "A reporting interval (window), or the whole run (total).",
    (
        RowField("phase", "string", "window or total."),
        RowField("start_ms", "integer", "Start time, in ms since 1970."),
        RowField("end_ms", "integer", "End time."),
        RowField("records", "integer", "Records read."),
        RowField("mib", "number", "Size of their keys and values, in units of 1048576 bytes."),
        RowField("records_per_s", "number", "Records a second."),
        RowField("mib_per_s", "number", "1048576 bytes a second."),
        RowField(
            "rebalance_ms",
            "integer",
            "Time to find the partitions, or to join the group.",
        ),
        RowField("fetch_ms", "integer", "The rest of the time."),
        RowField("fetch_records_per_s", "number", "Records per second of that time."),
        RowField("fetch_mib_per_s", "number", "Units of 1048576 bytes per second of that time."),
    ),
)

MANUAL = Manual(
    kafka="kafka-consumer-perf-test.sh",
    examples=(
        (
            "k consumer-perf-test --topic perf --num-records 1000000",
            "Read the oldest million records.",
        ),
        (
            "k consumer-perf-test --topic perf --num-records 10000000 --show-detailed-stats",
            "A line every five seconds.",
        ),
        (
            "k consumer-perf-test --topic perf --num-records 1000000 --history read.jsonl \\\n"
            "    --baseline read.jsonl --fail-if 'fetch_records_per_s<-10%'",
            "Compared with the runs before.",
        ),
    ),
    statuses=(judging.STATUS,),
    differences=(
        "Without --group, all partitions are read without joining a group; rebalance.time.ms is "
        "the time to find them.  Kafka's tool generates a group, perf-consumer-NNNNN.  group.id "
        "among the properties is ignored, as with Kafka's tool.",
        "Properties take precedence over the defaults of --fetch-size and --socket-buffer-size, "
        "and over check.crcs=false.",
        "A cluster that cannot be reached within --timeout ends with exit status 124; Kafka's tool "
        "prints a line of zeros and ends with 0.  A topic without enough records ends with 0, as "
        "with Kafka's tool: see --fail-if 'records<N'.",
        "A rate over a time of 0 is 0.",
        "--timeout has Kafka's meaning: milliseconds without a record.",
        "--print-metrics is refused with exit status 1: the client has no metrics.  -o prints "
        "the measurements.",
        "Older spellings are accepted without a warning; --threads and --num-fetch-threads are "
        "ignored without one.",
        *judging.DIFFERENCES,
    ),
    see_also=("k-perf-test", "k-producer-perf-test", "k-e2e-latency", "k-console-consumer"),
)


@command(manual=MANUAL)
@option_group(
    option("--topic", "The topic to read.", "NAME"),
    option("--include", "All topics whose whole name matches this pattern.", "PATTERN"),
    option("--num-records", "Stop after this many records.  Required.", "N", type=LONG),
    option("--from-latest", "Start with new records, not with the oldest."),
    option(
        "--timeout",
        "Stop when no record has arrived for this long: milliseconds, or with a unit: 500ms, 2s, "
        f"5m.  Default: {TIMEOUT_MS}.",
        "[TIME]",
        type=Milliseconds(),
        if_bare=str(TIMEOUT_MS),
    ),
    option(
        "--group",
        "Read as a member of this group, from its committed offsets.",
        "ID",
    ),
    option(
        "--fetch-size",
        f"Maximum bytes of a partition in one response.  Default: {FETCH_BYTES}.",
        "BYTES",
        type=INT,
    ),
    option(
        "--socket-buffer-size",
        f"Size of the socket buffer.  Default: {SOCKET_BUFFER_BYTES}.",
        "BYTES",
        type=INT,
    ),
    option("--print-metrics", "Not supported: the client has no metrics.  See -o."),
    option(
        "--show-detailed-stats",
        "Print a line for each reporting interval, and none at the end.",
        section=REPORT,
    ),
    option(
        "--reporting-interval",
        "Reporting interval in milliseconds, with --show-detailed-stats.  Default: "
        f"{REPORT_EVERY_MS}.",
        "MS",
        type=LONG,
        section=REPORT,
    ),
    option(
        "--date-format",
        "Format of times, as in Java's SimpleDateFormat.  Default: yyyy-MM-dd HH:mm:ss:SSS.",
        "PATTERN",
        section=REPORT,
    ),
    option("--hide-header", "Omit the heading.", section=REPORT),
    formatted(RUN),
    judging.OPTIONS,
    client_options("consumer"),
    option(
        "--messages",
        "The same as --num-records.",
        "N",
        type=LONG,
        instead="--num-records",
        section=OLDER,
    ),
    broker_list,
    option("--threads", "Ignored.", "N", section=OLDER),
    option("--num-fetch-threads", "Ignored.", "N", section=OLDER),
)
def consumer_perf_test(options: Options) -> int:
    """Reads records as fast as possible, and reports the rate.

    The result is a line of comma-separated numbers, under a heading that names them.
    """
    _check(options)
    from kcli.client.config import ConsumerConfig

    properties = _properties(options)
    config = with_warnings(ConsumerConfig.of(properties))
    subject = options.topic or options.include
    workload = {"records": options.num_records, "from_latest": options.from_latest}
    evaluation = judging.RunEvaluation(
        options, METRICS, judging.run_of("consumer", subject, properties, workload)
    )
    timeout_ms = TIMEOUT_MS if options.timeout is None else options.timeout
    perf_options = ConsumerPerfOptions(
        options.topic,
        None if options.include is None else name_pattern(options.include),
        options.num_records,
        timeout_ms / 1000,
        (options.reporting_interval or REPORT_EVERY_MS) / 1000,
    )
    with rows_if_asked(options, RUN) as out:
        return _run(options, perf_options, config, evaluation, out)


def _run(
    options: Options,
    perf_options: ConsumerPerfOptions,
    config: ConsumerConfig,
    evaluation: judging.RunEvaluation,
    out: Rows | None,
) -> int:
    from kcli.client.producer.producer import wall_clock_ms

    date = functools.partial(_date, options.date_format or DATE_FORMAT)
    detailed = options.show_detailed_stats
    if out is None and not options.hide_header:
        print_output(DETAILED_HEADER if detailed else HEADER)
    on_window = functools.partial(_window, out, detailed, date)
    consuming = Consuming(perf_options, config, on_window, wall_clock_ms)
    try:
        run(consuming.all(), None, while_read=True)
        if consuming.total.records < perf_options.records:
            _warn(perf_options, out)
    finally:
        total = consuming.total
        if out is not None:
            out.row(phase="total", **total.values())
        elif not detailed:
            print_output(total.total_line(date(total.start_ms), date(total.end_ms)))
    return evaluation.conclude(total.values(), out)


def _window(
    out: Rows | None,
    detailed: bool,
    date: Callable[[int], str],
    window: Consumed,
    all_mib: float,
    all_records: int,
) -> None:
    if out is not None:
        out.row(phase="window", **window.values())
    elif detailed:
        print_output(window.window_line(date(window.end_ms), all_mib, all_records))
    else:
        transient(f"{all_records} records, {window.records_per_s:.0f} a second")
    sys.stdout.flush()


def _warn(perf_options: ConsumerPerfOptions, out: Rows | None) -> None:
    """Warn of too few records; like Kafka's tool on standard output."""
    why = (
        "Exiting before consuming the expected number of records: timeout "
        f"({perf_options.patience_s * 1000:.0f} ms) exceeded. You can use the --timeout option to "
        "increase the timeout."
    )
    if out is None:
        print_output(f"WARNING: {why}")
    else:
        out.problem(None, "TOO_FEW", why)


def _date(pattern: str, time_ms: int) -> str:
    return dates.formatted(datetime.fromtimestamp(time_ms / 1000, UTC).astimezone(), pattern)


def _check(options: Options) -> None:
    """Check the rules between options, mostly in Kafka's words."""
    if options.num_records is None:
        refuse('Missing required argument "[num-records]"')
    if (options.topic is None) == (options.include is None):
        refuse("Exactly one of the following arguments is required: [topic], [include]")
    for name in ("num-records", "reporting-interval", "fetch-size"):
        if (value := getattr(options, attribute_of(name))) is not None and value <= 0:
            refuse(f"--{name} should be greater than zero.")
    try:
        _date(options.date_format or DATE_FORMAT, 0)
    except ValueError as error:
        refuse(f"--date-format {options.date_format}: {error}")
    if options.print_metrics:
        raise Refused(judging.NO_METRICS)


def _properties(options: Options) -> dict[str, str]:
    """Return the consumer's properties, in decreasing precedence: options, --command-property,
    --command-config, the defaults of this test.
    """
    properties = client_properties(
        options,
        client_id=CLIENT_ID,
        check_crcs="false",
        max_partition_fetch_bytes=str(FETCH_BYTES),
        receive_buffer_bytes=str(SOCKET_BUFFER_BYTES),
    )
    properties.pop("group.id", None)
    if options.group is not None:
        properties["group.id"] = options.group
    else:
        properties.pop("enable.auto.commit", None)
    properties["auto.offset.reset"] = "latest" if options.from_latest else "earliest"
    if options.fetch_size is not None:
        properties["max.partition.fetch.bytes"] = str(options.fetch_size)
    if options.socket_buffer_size is not None:
        properties["receive.buffer.bytes"] = str(options.socket_buffer_size)
    return properties
