"""`k e2e-latency`: measures the time of a record through the cluster and back."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from kcli.command.command import Manual, Options, command
from kcli.command.command_runner import run
from kcli.command.options import (
    CONNECTION,
    INT,
    attribute_of,
    bootstrap_server,
    client_properties,
    option,
    option_group,
    refuse,
    timeout,
)
from kcli.command.output import complain, print_output
from kcli.perf import judging
from kcli.perf.round_trip import PARTITIONS, REPLICATION_FACTOR, RoundTrips, Trip
from kcli.perf.tally import Sum, whole
from kcli.rows.listing import Rows, formatted, rows_if_asked
from kcli.rows.shapes import RowField, RowShape

if TYPE_CHECKING:
    from kcli.client.config import AdminConfig, ConsumerConfig, ProducerConfig

POSITIONS = ("bootstrap_server", "topic", "num_records", "producer_acks", "record_size")
METRICS = ("records", "avg_ms", "max_ms", "p50_ms", "p95_ms", "p99_ms", "p999_ms")
LAST_INT = (1 << 31) - 1

RUN = RowShape(
    "k.e2e-latency.run",
    1,
    "The whole run: times from the sending of a record until it was read.",
    (
        RowField("records", "integer", "Number of records sent and read back."),
        RowField("avg_ms", "number or null", "The mean time; null without records, as all times."),
        RowField("max_ms", "number or null", "The longest time."),
        RowField("p50_ms", "number or null", "The median time."),
        RowField("p95_ms", "number or null", "A time that 95 % do not exceed."),
        RowField("p99_ms", "number or null", "A time that 99 % do not exceed."),
        RowField("p999_ms", "number or null", "A time that 99.9 % do not exceed."),
    ),
)

MANUAL = Manual(
    kafka="kafka-e2e-latency.sh",
    examples=(
        (
            "k e2e-latency --topic latency --num-records 10000 --producer-acks all \\\n"
            "    --record-size 200",
            "Ten thousand records of 200 bytes, one after the other.",
        ),
        (
            "k e2e-latency localhost:9092 latency 1000 1 100 client.properties",
            "In the older form, with security in a file.",
        ),
        (
            "k e2e-latency --topic latency --num-records 10000 --producer-acks 1 \\\n"
            "    --record-size 200 --fail-if 'p99>20ms'",
            "A check: exit status 3 when one of a hundred takes longer.",
        ),
    ),
    statuses=(judging.STATUS,),
    differences=(
        "Percentiles are from buckets of constant memory: off by less than 0.1 %.",
        "Properties in the file that no client knows are reported on standard error.",
        "The older form with positional arguments is accepted without a warning.",
        *judging.DIFFERENCES,
    ),
    see_also=("k-perf-test", "k-producer-perf-test", "k-consumer-perf-test"),
)


@command(manual=MANUAL)
@option_group(
    click.argument("words", nargs=-1, metavar="[SERVER TOPIC N ACKS BYTES [FILE]]"),
    option("--topic", "The topic, which is created if it does not exist.  Required.", "NAME"),
    option("--num-records", "Number of records.  Required.", "N", type=INT),
    option("--producer-acks", "1 or all.  Required.", "ACKS"),
    option("--record-size", "Size of a value.  Required.", "BYTES", type=INT),
    option("--record-key-size", "Size of a key.  Default: 0, no key.", "BYTES", type=INT),
    option("--num-headers", "Number of headers.  Default: 0.", "N", type=INT),
    option("--record-header-key-size", "Size of a header's name.  Default: 0.", "BYTES", type=INT),
    option(
        "--record-header-size",
        "Size of a header's value, -1 for null.  Default: 0.",
        "BYTES",
        type=INT,
    ),
    formatted(RUN),
    judging.OPTIONS,
    bootstrap_server,
    option(
        "--command-config",
        "A file of properties for producer, consumer and admin client.",
        "FILE",
        section=CONNECTION,
    ),
    timeout,
)
def e2e_latency(options: Options) -> int:
    """Sends one record at a time, reads it back, and measures how long that takes.

    Every thousandth record is printed as a line with its number and its time in milliseconds; mean
    and percentiles follow at the end.
    """
    _take_words(options)
    _check(options)
    trip = Trip(
        options.topic,
        options.num_records,
        options.record_size,
        options.record_key_size or 0,
        options.num_headers or 0,
        options.record_header_key_size or 0,
        options.record_header_size or 0,
    )
    properties = client_properties(options)
    configs = _configs(properties, options.producer_acks)
    workload = {
        "acks": options.producer_acks,
        "records": trip.records,
        "value_bytes": trip.value_bytes,
        "key_bytes": trip.key_bytes,
        "headers": [trip.headers, trip.header_key_bytes, trip.header_value_bytes],
    }
    evaluation = judging.RunEvaluation(
        options, METRICS, judging.run_of("e2e", trip.topic, properties, workload)
    )
    with rows_if_asked(options, RUN) as out:
        return _run(options, trip, configs, evaluation, out)


def _run(
    options: Options,
    trip: Trip,
    configs: tuple[AdminConfig, ProducerConfig, ConsumerConfig],
    evaluation: judging.RunEvaluation,
    out: Rows | None,
) -> int:
    def created() -> None:
        if out is None:
            print_output(
                f'Topic "{trip.topic}" does not exist. Will create topic with {PARTITIONS} '
                f"partition(s) and replication factor = {REPLICATION_FACTOR}"
            )

    def gone(number: int, took_ns: int) -> None:
        if out is None:
            print_output(f"{number}\t{took_ns / 1000 / 1000}")
            sys.stdout.flush()

    trips = RoundTrips(trip, *configs, on_created=created, on_trip=gone)
    try:
        run(trips.all(), options.timeout)
    finally:
        total = trips.total
        if total.records:
            _print(total, out)
    return evaluation.conclude(total.values(), out)


def _print(total: Sum, out: Rows | None) -> None:
    if out is not None:
        values = total.values()
        out.row(**{name: values[name] for name in RUN.names})
        return
    print_output(f"Avg latency: {total.avg_ms:.4f} ms")
    print_output(
        f"Percentiles: 50th = {whole(total.p50_ms)}, 99th = {whole(total.p99_ms)}, "
        f"99.9th = {whole(total.p999_ms)}"
    )


def _take_words(options: Options) -> None:
    """Convert the older form, five or six words, to options."""
    words = options.words
    if not words:
        return
    if len(words) not in (5, 6) or any(getattr(options, name) is not None for name in POSITIONS):
        refuse(
            f"Invalid number of arguments. Expected 5 or 6 positional arguments, but got "
            f"{len(words)}. Usage: bootstrap-server topic num-records producer-acks record-size "
            "[optional] command-config"
        )
    for name, word in zip(POSITIONS, words, strict=False):
        is_count = name in ("num_records", "record_size")
        if is_count and not (re.fullmatch(r"[+-]?[0-9]+", word) and abs(int(word)) <= LAST_INT):
            refuse(f"Cannot parse argument '{word}' of option {name.replace('_', '-')}")
        setattr(options, name, int(word) if is_count else word)
    if len(words) > 5 and words[5].strip():
        options.command_config = words[5]


def _check(options: Options) -> None:
    """Check the options, in Kafka's words."""
    for name in ("topic", "num-records", "producer-acks", "record-size"):
        if getattr(options, attribute_of(name)) is None:
            refuse(f'Missing required argument "[{name}]"')
    if options.num_records <= 0:
        refuse("Value for --num-records must be a positive integer.")
    for name in ("record-size", "record-key-size", "record-header-key-size", "num-headers"):
        if (getattr(options, attribute_of(name)) or 0) < 0:
            refuse(f"Value for --{name} must be a non-negative integer.")
    if (options.record_header_size or 0) < -1:
        refuse(
            "Value for --record-header-size must be a non-negative integer or -1 for null header "
            "value."
        )
    if options.producer_acks not in ("1", "all"):
        refuse(
            "Invalid value for --producer-acks. Latency testing requires synchronous "
            "acknowledgement. Please use '1' or 'all'."
        )


def _configs(
    properties: Mapping[str, str], acks: str
) -> tuple[AdminConfig, ProducerConfig, ConsumerConfig]:
    """Return the configurations of the clients; neither batches nor fetches wait for more
    records.
    """
    from kcli.client.config import AdminConfig, ConsumerConfig, ProducerConfig

    admin = AdminConfig.of(properties)
    producer = ProducerConfig.of({**properties, "linger.ms": "0", "acks": acks})
    consumer = ConsumerConfig.of(
        {**properties, "auto.offset.reset": "latest", "fetch.max.wait.ms": "0"}
    )
    for warning in producer.warnings:
        if warning in consumer.warnings and warning in admin.warnings:
            complain(warning)
    return admin, producer, consumer
