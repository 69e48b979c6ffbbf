"""All rows, with their figures and aims."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack

from tests.bench import (
    client_rows,
    clients,
    cluster_rows,
    command_rows,
    group_rows,
    micro,
    size_rows,
    spark_rows,
)
from tests.bench.figures import Aim, at_least, at_least_times, at_most, at_most_times
from tests.bench.load import RECORDS, Outcome, batch
from tests.bench.row import FILL_BYTES, Row, Work
from tests.bench.servers import OURS, Server, running

MB_S, CPU_GB = "MB/s", "broker CPU s/GB"
PLAIN = "MB/s, plain write"
"""Rate of a write into the page cache right before the run: the machine's speed at that moment."""
REQUESTS_S, P50, P99 = "requests/s", "p50 us", "p99 us"
CPU_REQUEST = "broker CPU us/request"
MESSAGES_S = "messages/s"
IDLE, LOADED = "MB idle", "MB loaded"
START = "s to first answer"

IDLE_AFTER_S = 1


def produce(
    name: str,
    about: str,
    batch: str,
    aims: Mapping[str, Aim | None],
    *,
    cores: int = 0,
    unwalked: bool = False,
    **shape: int,
) -> Row:
    """Return a row that produces `batch`.

    With `unwalked`, our broker validates headers only; Apache's always iterates over the records.
    """

    def measure(work: Work, server: Server, topic: str) -> Mapping[str, float]:
        with server.on_cores(cores), ExitStack() as stack:
            if unwalked and server.kind is OURS:
                config = {"validate_records": "header"}
                topic = stack.enter_context(server.topic(shape.get("partitions", 1), **config))
            found = work.load.produce(
                server, topic, batch, seconds=work.seconds, touched=PLAIN in aims, **shape
            )
        return every_figure(found, batch)

    partitions = shape.get("partitions", 1)
    return Row(name, about, measure, aims, partitions=partitions, of_broker=True)


def fetch(
    name: str, about: str, aims: Mapping[str, Aim | None], *, cores: int = 0, **shape: int
) -> Row:
    def measure(work: Work, server: Server, topic: str) -> Mapping[str, float]:
        with server.on_cores(cores):
            found = work.load.fetch(server, topic, seconds=work.seconds, **shape)
        return every_figure(found, "16k")

    return Row(
        name,
        about,
        measure,
        aims,
        partitions=shape.get("partitions", 1),
        fill_bytes=FILL_BYTES,
        of_broker=True,
    )


def every_figure(found: Outcome, batch: str) -> Mapping[str, float]:
    """Return all figures of an outcome. A shaped batch holds as many records as one of 16 KB."""
    return {
        MB_S: found.megabytes_s,
        CPU_GB: found.cpu_s_per_gb,
        REQUESTS_S: found.requests_s,
        MESSAGES_S: found.requests_s * RECORDS.get(batch, RECORDS["16k"]),
        P50: found.p50_us,
        P99: found.p99_us,
        CPU_REQUEST: found.cpu_us_per_request,
        PLAIN: found.plain_mb_s,
    }


def start(work: Work, server: Server, _: str) -> Mapping[str, float]:
    """Start a broker in a new directory each time; Apache's storage is formatted before."""
    fresh = Server(server.kind, work.directory / f"start-{time.monotonic_ns()}")
    try:
        return {START: fresh.start()}
    finally:
        fresh.stop()


def memory(work: Work, server: Server, _: str) -> Mapping[str, float]:
    """Measure a new broker's memory: a second after its start, and after produce load of all
    sizes."""
    with running(server.kind, work.directory / f"memory-{time.monotonic_ns()}") as fresh:
        time.sleep(IDLE_AFTER_S)
        idle = fresh.resident_mb()
        with fresh.topic(4) as topic:
            for batch, in_flight in (("1m", 5), ("64k", 5), ("16k", 5), ("1", 1)):
                work.load.produce(
                    fresh,
                    topic,
                    batch,
                    seconds=work.seconds / 4,
                    connections=8,
                    partitions=4,
                    in_flight=in_flight,
                    most_bytes=1 << 29,
                )
            return {IDLE: idle, LOADED: fresh.resident_mb()}


def java_produce(work: Work, server: Server, topic: str) -> Mapping[str, float]:
    return {MESSAGES_S: clients.java_produce(server, topic, work.seconds)}


def java_consume(work: Work, server: Server, topic: str) -> Mapping[str, float]:
    return {MESSAGES_S: clients.java_consume(server, topic, FILLED_MESSAGES)}


def in_process(work: Work, server: Server, _: str) -> Mapping[str, float]:
    return micro.measure(work.directory, work.seconds)


FILLED_MESSAGES = FILL_BYTES // len(batch(RECORDS["16k"])) * RECORDS["16k"]
"""Minimum number of messages in a filled topic of one partition."""

ROWS = (
    produce(
        "produce-1m",
        "produce, batches of 1 MB, one connection, 5 requests in flight",
        "1m",
        {MB_S: at_least_times(4), CPU_GB: at_most_times(0.2), PLAIN: None},
    ),
    produce(
        "produce-1m-header",
        "the same, validate.records=header",
        "1m",
        {MB_S: None, CPU_GB: None, PLAIN: None},
        unwalked=True,
    ),
    produce(
        "produce-lz4",
        "produce, batches of 16 KB that lz4 halved, one connection, 5 requests in flight",
        "lz4",
        {REQUESTS_S: None, CPU_REQUEST: None},
    ),
    produce(
        "produce-lz4-header",
        "the same, validate.records=header",
        "lz4",
        {REQUESTS_S: None, CPU_REQUEST: None},
        unwalked=True,
    ),
    produce(
        "produce-1m-4",
        "produce-1m on 4 connections to 4 partitions",
        "1m",
        {MB_S: at_least_times(1.5), CPU_GB: None, PLAIN: None},
        connections=4,
        partitions=4,
    ),
    produce(
        "produce-1m-4-core",
        "the same, the broker on one core",
        "1m",
        {MB_S: None, CPU_GB: None, PLAIN: None},
        cores=1,
        connections=4,
        partitions=4,
    ),
    produce(
        "produce-64k",
        "produce, batches of 64 KB, one connection, 5 requests in flight",
        "64k",
        {MB_S: at_least_times(2.5), CPU_GB: None, PLAIN: None},
    ),
    produce(
        "produce-16k",
        "produce, batches of 16 KB, one connection, 5 requests in flight",
        "16k",
        {MB_S: at_least_times(3.5), CPU_GB: None, PLAIN: None},
    ),
    produce(
        "one-record-8",
        "produce, one record of 200 bytes a request, 8 connections, each waits for its answer",
        "1",
        {
            REQUESTS_S: at_least_times(1.2),
            P50: None,
            P99: at_most_times(1),
            CPU_REQUEST: at_most_times(0.6),
        },
        connections=8,
        in_flight=1,
    ),
    produce(
        "one-record-8-header",
        "the same, validate.records=header",
        "1",
        {REQUESTS_S: None, P50: None, P99: None, CPU_REQUEST: None},
        unwalked=True,
        connections=8,
        in_flight=1,
    ),
    produce(
        "one-record-1",
        "one record a request on one connection",
        "1",
        {REQUESTS_S: None, P50: at_most_times(1.2), P99: at_most_times(1), CPU_REQUEST: None},
        in_flight=1,
    ),
    fetch(
        "fetch-1m",
        "fetch up to 1 MB at a time out of the page cache, one connection",
        {MB_S: at_least_times(1.3), CPU_GB: None},
        max_bytes=1 << 20,
        partitions=4,
    ),
    fetch(
        "fetch-1m-4",
        "the same on 4 connections",
        {MB_S: None, CPU_GB: None},
        max_bytes=1 << 20,
        connections=4,
        partitions=4,
    ),
    fetch(
        "fetch-1m-4-core",
        "the same, the broker on one core",
        {MB_S: None, CPU_GB: None},
        cores=1,
        max_bytes=1 << 20,
        connections=4,
        partitions=4,
    ),
    fetch(
        "fetch-16k",
        "fetch up to 16 KB at a time out of the page cache, 8 connections to 4 partitions",
        {REQUESTS_S: at_least_times(1.6), P50: None, P99: None, CPU_REQUEST: None},
        max_bytes=1 << 14,
        connections=8,
        partitions=4,
    ),
    produce(
        "paper-1",
        "the Kafka paper's producer: messages of 200 bytes, one a request, 64 requests in flight",
        "1",
        {MESSAGES_S: at_least(50_000), CPU_REQUEST: None},
        in_flight=64,
    ),
    produce(
        "paper-50",
        "the same in batches of 50",
        "50",
        {MESSAGES_S: at_least(400_000), CPU_REQUEST: None},
        in_flight=64,
    ),
    Row(
        "java-produce",
        "Apache's kafka-producer-perf-test.sh, messages of 200 bytes, unthrottled, JVM warm",
        java_produce,
        {MESSAGES_S: at_least_times(1)},
        partitions=1,
    ),
    Row(
        "java-consume",
        "Apache's Java consumer on an assigned partition, JVM warm",
        java_consume,
        {MESSAGES_S: None},
        partitions=1,
        fill_bytes=FILL_BYTES,
    ),
    *client_rows.ROWS,
    *group_rows.ROWS,
    *spark_rows.ROWS,
    *command_rows.ROWS,
    Row(
        "start",
        "from the start of the process to its first answer, to ApiVersions",
        start,
        {START: at_most(0.4)},
        of_broker=True,
    ),
    Row(
        "memory",
        "resident memory of a new broker, and after 8 connections wrote to it in every size",
        memory,
        {IDLE: at_most(60), LOADED: at_most(120)},
        of_broker=True,
    ),
    *size_rows.ROWS,
    *cluster_rows.ROWS,
    Row(
        "micro",
        "single calls inside the process: the log with one record, the codec with 1 MB",
        in_process,
        dict.fromkeys(
            (
                "validate us",
                "append us",
                "read us",
                "decode M records/s",
                "encode M records/s",
            )
        ),
        has_rival=False,
    ),
)
