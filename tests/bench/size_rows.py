"""Rows at size: many partitions, connections, records and segments, and concurrent work.

Each row is measured at its own broker in its own directory, so that rows do not affect each other.
"Back" means that every partition has a leader again and returns its end offset.
"""

from __future__ import annotations

import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from kserver.errors import ErrorCode
from kserver.wire.api_key import ApiKey
from kserver.wire.batch import batches, encode_batch
from kserver.wire.special_offsets import EARLIEST, LATEST
from tests.bench.figures import at_least_times, at_most, at_most_times
from tests.bench.load import Outcome
from tests.bench.machine import BenchError
from tests.bench.rounds import warm_up
from tests.bench.row import Row, Work
from tests.bench.servers import API_VERSIONS_V0, Server, running
from tests.support.wire_client import WireClient, milliseconds

ALL_REPLICAS = -1
ONE_RECORD = encode_batch([(int(time.time() * 1000), None, b"v" * 200, ())])
TOPIC = "many"
PATIENCE_S = 120
ASK_AGAIN_S = 0.02

PARTITIONS = 2000
AT_ONCE = 200
"""Partitions in one request."""
IDLE_S = 5
SETTLE_S = 60
"""Maximum: recovered data is still flushed for a while after the start."""
QUIET = 0.02
"""Share of a core, over a second, below which a broker counts as idle."""

CONNECTIONS = 1000
LARGE_BYTES = 50 << 20
LARGE_FILL_BYTES = 1 << 28
RECORD_BYTES = 209
"""Size in a batch of a record with a value of 200 bytes."""
MILLION = 1_000_000
MILLIONS = 10
SEGMENTS = 100
SEGMENT_BYTES = 1 << 22
KEPT_BYTES = 1 << 26
SLOW_BYTES, SLOW_PAUSE_S = 1 << 16, 0.05
KEYED_KEYS, KEYED_ROUNDS, KEYED_VALUE_BYTES = 45_000, 10, 1000

CREATED, CLEAN, KILLED = "s to create and write each", "s back, clean", "s back after kill -9"
MB, IDLE_CORE = "MB", "% of a core, idle"
IDLE_KB, BUSY_KB = "KB an idle connection", "KB a busy connection"
ALONE_P99, BESIDE_P99 = "p99 us alone", "p99 us during"
EARLY_MB, LATE_MB = "MB after 1 million", "MB after 10 million"
ALONE_MB_S, BESIDE_MB_S = "MB/s alone", "MB/s during"


@contextmanager
def alone(work: Work, server: Server, *settings: str, warm: bool = False) -> Iterator[Server]:
    """Start a new broker of the same kind; remove its data at the end.

    With `warm`, run load first until it has its full speed.
    """
    directory = new_directory(work)
    try:
        with running(server.kind, directory, *settings) as fresh:
            if warm:
                warm_up(work.load, fresh)
            yield fresh
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def new_directory(work: Work) -> Path:
    return work.directory / f"size-{time.monotonic_ns()}"


def partitions(work: Work, server: Server, _: str) -> Mapping[str, float]:
    """Measure 2,000 partitions with one record each: creation, restart, and idle use.

    They are deleted with all of the run's data at the end: ext4 creates files slowly after many
    were deleted (it does not reuse an inode for five seconds), which would slow down the next
    broker.
    """
    with running(server.kind, new_directory(work)) as broker:
        began = time.perf_counter()
        with client(broker) as wire:
            create(wire, PARTITIONS)
            for some in shares(PARTITIONS):
                write_one_to_each(wire, some)
        created = time.perf_counter() - began
        return {
            CREATED: created,
            CLEAN: back_after(broker, broker.stop, TOPIC, PARTITIONS),
            KILLED: back_after(broker, broker.kill, TOPIC, PARTITIONS),
            MB: broker.resident_mb(),
            IDLE_CORE: idle_core(broker),
        }


def client(broker: Server) -> WireClient:
    return WireClient(broker.address, timeout_s=PATIENCE_S)


def create(wire: WireClient, partitions: int) -> None:
    topic = {"name": TOPIC, "num_partitions": partitions, "replication_factor": 1}
    (made,) = wire.call(
        ApiKey.CREATE_TOPICS, 5, topics=[topic], timeout=milliseconds(PATIENCE_S * 1000)
    ).topics
    if made.error_code is not ErrorCode.none:
        raise BenchError(f"the topic was not made: {made.error_code.name}")


def shares(partitions: int) -> Iterator[Sequence[int]]:
    for first in range(0, partitions, AT_ONCE):
        yield range(first, min(first + AT_ONCE, partitions))


def write_one_to_each(wire: WireClient, partitions: Sequence[int]) -> None:
    """Produce one record to each partition; try again where the leader is not ready yet."""
    ends = time.monotonic() + PATIENCE_S
    left = list(partitions)
    while left:
        data = [{"index": index, "records": ONE_RECORD} for index in left]
        (answer,) = wire.call(
            ApiKey.PRODUCE,
            7,
            acks=ALL_REPLICAS,
            timeout=milliseconds(30_000),
            topic_data=[{"name": TOPIC, "partition_data": data}],
        ).responses
        left = [p.index for p in answer.partition_responses if p.error_code is not ErrorCode.none]
        pause(left, ends, "takes no records")


def await_leaders(wire: WireClient, topic: str, partitions: Sequence[int]) -> None:
    """Wait until each partition returns an end offset above 0."""
    ends = time.monotonic() + PATIENCE_S
    left = list(partitions)
    while left:
        asked = [{"partition_index": index, "timestamp": LATEST} for index in left]
        (answer,) = wire.call(
            ApiKey.LIST_OFFSETS, 2, replica_id=-1, topics=[{"name": topic, "partitions": asked}]
        ).topics
        left = [p.partition_index for p in answer.partitions if p.offset < 1]
        pause(left, ends, "is not back")


def pause(left: Sequence[int], ends: float, what: str) -> None:
    if left:
        if time.monotonic() > ends:
            raise BenchError(f"partition {left[0]} {what}")
        time.sleep(ASK_AGAIN_S)


def back_after(broker: Server, end: Callable[[], None], topic: str, partitions: int) -> float:
    """End and restart the broker; return the seconds from its start until every partition is
    back."""
    end()
    began = time.perf_counter()
    broker.start()
    with client(broker) as wire:
        for some in shares(partitions):
            await_leaders(wire, topic, some)
    return time.perf_counter() - began


def idle_core(broker: Server) -> float:
    """Return the CPU use, in percent of a core, once the broker has settled."""
    ends = time.monotonic() + SETTLE_S
    while core(broker, 1) > QUIET and time.monotonic() < ends:
        pass
    return core(broker, IDLE_S) * 100


def core(broker: Server, seconds: float) -> float:
    """Return the share of a core used over the next `seconds`."""
    before = broker.cpu_s()
    time.sleep(seconds)
    return (broker.cpu_s() - before) / seconds


def connections(work: Work, server: Server, _: str) -> Mapping[str, float]:
    """Measure the memory per connection: idle after an ApiVersions request, and producing one
    record after the other."""
    with alone(work, server) as broker, broker.topic(4) as topic, ExitStack() as stack:
        produce_small(work, broker, topic, work.seconds)
        before = broker.resident_mb()
        for _ in range(CONNECTIONS):
            one = stack.enter_context(socket.create_connection(("127.0.0.1", broker.port)))
            one.sendall(API_VERSIONS_V0)
            one.recv(1 << 12)
        idle = broker.resident_mb()
        stack.close()
        with during(lambda: produce_small(work, broker, topic, 2 * work.seconds, CONNECTIONS)):
            time.sleep(work.seconds)
            busy = broker.resident_mb()
    return {
        IDLE_KB: max(idle - before, 0) * 1000 / CONNECTIONS,
        BUSY_KB: max(busy - before, 0) * 1000 / CONNECTIONS,
    }


def produce_small(
    work: Work, broker: Server, topic: str, seconds: float, connections: int = 1
) -> Outcome:
    """Produce one record per request; each connection waits for its response."""
    return work.load.produce(
        broker, topic, "1", seconds=seconds, connections=connections, partitions=4, in_flight=1
    )


@contextmanager
def during(run: Callable[[], object]) -> Iterator[None]:
    """Run `run` in a thread during the block; wait for its end and raise its BenchError."""
    failed: list[BenchError] = []

    def attempt() -> None:
        try:
            run()
        except BenchError as error:
            failed.append(error)

    thread = threading.Thread(target=attempt)
    thread.start()
    try:
        yield
    finally:
        thread.join()
    if failed:
        raise failed[0]


def small_beside_large(work: Work, server: Server, _: str) -> Mapping[str, float]:
    """Produce one record per request on one connection, alone and while another fetches 50 MB at a
    time."""
    with (
        alone(work, server, warm=True) as broker,
        broker.topic(4) as small,
        broker.topic(1) as large,
    ):
        work.load.fill(broker, large, 1, LARGE_FILL_BYTES, "1m")
        os.sync()
        alone_p99 = produce_small(work, broker, small, work.seconds).p99_us
        seconds = work.seconds + 1

        def fetch() -> object:
            return work.load.fetch(broker, large, seconds=seconds, max_bytes=LARGE_BYTES)

        with during(fetch):
            time.sleep(0.5)
            beside = produce_small(work, broker, small, work.seconds)
        return {ALONE_P99: alone_p99, BESIDE_P99: beside.p99_us}


def records(work: Work, server: Server, _: str) -> Mapping[str, float]:
    with alone(work, server) as broker, broker.topic(1) as topic:
        work.load.fill(broker, topic, 1, MILLION * RECORD_BYTES, "16k")
        early = broker.resident_mb()
        work.load.fill(broker, topic, 1, (MILLIONS - 1) * MILLION * RECORD_BYTES, "16k")
        return {EARLY_MB: early, LATE_MB: broker.resident_mb()}


def segments(work: Work, server: Server, _: str) -> Mapping[str, float]:
    """Measure the start with a log of 100 segments that are not in the page cache."""
    with alone(work, server) as broker, broker.topic(1, segment_bytes=SEGMENT_BYTES) as topic:
        work.load.fill(broker, topic, 1, SEGMENTS * SEGMENT_BYTES, "64k")

        def cold(end: Callable[[], None]) -> None:
            end()
            forget(broker)

        return {
            CLEAN: back_after(broker, lambda: cold(broker.stop), topic, 1),
            KILLED: back_after(broker, lambda: cold(broker.kill), topic, 1),
        }


def forget(broker: Server) -> None:
    """Let the page cache drop the broker's files."""
    os.sync()
    for path in (broker.directory / "data").rglob("*"):
        if path.is_file():
            with open(path, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def beside_retention(work: Work, server: Server, _: str) -> Mapping[str, float]:
    """Produce batches of 64 KB to a log without retention, then to one whose old segments are
    deleted continuously while a slow consumer reads it."""
    with alone(work, server, "log.retention.check.interval.ms=500", warm=True) as broker:
        with broker.topic(1) as topic:
            kept = work.load.produce(broker, topic, "64k", seconds=work.seconds)
        config = {"segment_bytes": KEPT_BYTES // 4, "retention_bytes": KEPT_BYTES}
        with broker.topic(1, **config) as topic:
            ends = time.monotonic() + work.seconds
            with during(lambda: read_slowly(broker, topic, ends)):
                thinned = work.load.produce(broker, topic, "64k", seconds=work.seconds)
    return {
        ALONE_MB_S: kept.megabytes_s,
        BESIDE_MB_S: thinned.megabytes_s,
    }


def read_slowly(broker: Server, topic: str, ends: float) -> None:
    """Fetch 64 KB, 20 times a second; restart at the log's start when its offset was deleted."""
    offset = 0
    with client(broker) as wire:
        while time.monotonic() < ends:
            wanted = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": SLOW_BYTES}
            (found,) = wire.call(
                ApiKey.FETCH,
                4,
                replica_id=-1,
                max_wait=milliseconds(500),
                min_bytes=1,
                max_bytes=SLOW_BYTES,
                topics=[{"topic": topic, "partitions": [wanted]}],
            ).responses
            (partition,) = found.partitions
            if partition.error_code is ErrorCode.offset_out_of_range:
                asked = [{"partition_index": 0, "timestamp": EARLIEST}]
                (listed,) = wire.call(
                    ApiKey.LIST_OFFSETS,
                    2,
                    replica_id=-1,
                    topics=[{"name": topic, "partitions": asked}],
                ).topics
                offset = listed.partitions[0].offset
            else:
                for batch in batches(partition.records or b""):
                    offset = batch.last_offset + 1
            time.sleep(SLOW_PAUSE_S)


def beside_compaction(work: Work, server: Server, _: str) -> Mapping[str, float]:
    """Produce batches of 64 KB, before and while compaction removes 9 of 10 records of another
    log."""
    config = {"segment_bytes": 1 << 24, "cleanup_policy": "delete"}
    with (
        alone(work, server, "log.cleaner.backoff.ms=100", warm=True) as broker,
        broker.topic(1, **config) as keyed,
    ):
        fill_keyed(broker, keyed)
        full = on_disk(broker, keyed)
        with broker.topic(1) as topic:
            before = work.load.produce(broker, topic, "64k", seconds=work.seconds)
        begin_compaction(broker, keyed)
        with broker.topic(1) as topic:
            beside = work.load.produce(broker, topic, "64k", seconds=work.seconds)
        ends = time.monotonic() + PATIENCE_S
        while on_disk(broker, keyed) > full / 2:
            if time.monotonic() > ends:
                raise BenchError("nothing was compacted")
            time.sleep(ASK_AGAIN_S)
    return {ALONE_MB_S: before.megabytes_s, BESIDE_MB_S: beside.megabytes_s}


def fill_keyed(broker: Server, topic: str) -> None:
    value = b"v" * KEYED_VALUE_BYTES
    now_ms = int(time.time() * 1000)  # recent, so that retention does not delete the records
    rows = [(now_ms, b"%09d" % key, value, ()) for key in range(KEYED_KEYS)]
    at_once = (1 << 20) // (KEYED_VALUE_BYTES + 30)
    parts = [encode_batch(rows[n : n + at_once]) for n in range(0, KEYED_KEYS, at_once)]
    with client(broker) as wire:
        for _ in range(KEYED_ROUNDS):
            for part in parts:
                data = [{"index": 0, "records": part}]
                topics = [{"name": topic, "partition_data": data}]
                wire.call(
                    ApiKey.PRODUCE,
                    7,
                    acks=1,
                    timeout=milliseconds(PATIENCE_S * 1000),
                    topic_data=topics,
                )


def begin_compaction(broker: Server, topic: str) -> None:
    changes = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
    configs = [
        {"name": name, "config_operation": 0, "value": value} for name, value in changes.items()
    ]
    resource = {"resource_type": 2, "resource_name": topic, "configs": configs}
    with client(broker) as wire:
        (changed,) = wire.call(
            ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, resources=[resource], validate_only=False
        ).responses
    if changed.error_code is not ErrorCode.none:
        raise BenchError(f"the topic is not compacted: {changed.error_code.name}")


def on_disk(broker: Server, topic: str) -> int:
    found = (broker.directory / "data" / f"{topic}-0").glob("*.log")
    return sum(path.stat().st_size for path in found)


ROWS = (
    Row(
        "partitions-2000",
        "2,000 partitions: made and written to once, found again, idle",
        partitions,
        {
            CREATED: at_most(3),
            CLEAN: None,
            KILLED: at_most(5),
            MB: at_most(200),
            IDLE_CORE: at_most(2),
        },
    ),
    Row(
        "connections-1000",
        "memory of 1,000 connections: idle, and each writing one record after the other",
        connections,
        {IDLE_KB: at_most_times(1), BUSY_KB: at_most_times(1)},
    ),
    Row(
        "small-during-large",
        "produce, one record a request, alone and during fetches of 50 MB",
        small_beside_large,
        {ALONE_P99: None, BESIDE_P99: at_most_times(1)},
    ),
    Row(
        "records-10m",
        "resident memory while one partition grows to 10 million records",
        records,
        {EARLY_MB: None, LATE_MB: at_most(120)},
    ),
    Row(
        "segments-100",
        "a log of 100 segments of 4 MB, out of the page cache: until its end offset is returned",
        segments,
        {CLEAN: at_most(1), KILLED: at_most(1)},
    ),
    Row(
        "during-retention",
        "produce, batches of 64 KB, while old segments go and a slow consumer reads",
        beside_retention,
        {ALONE_MB_S: None, BESIDE_MB_S: at_least_times(1)},
    ),
    Row(
        "during-compaction",
        "produce, batches of 64 KB, while 450 MB of another log, mostly old, are compacted",
        beside_compaction,
        {ALONE_MB_S: None, BESIDE_MB_S: at_least_times(1)},
    ),
)
