"""`k replica-verification`: compares the replicas of partitions."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kcli.command.command import OLDER, Manual, Milliseconds, Options, command
from kcli.command.command_runner import CLUSTER, admin_config, reason, run, unwrap
from kcli.command.options import (
    INT,
    LONG,
    Refused,
    cluster,
    is_set,
    name_filter,
    option,
    option_group,
    refuse,
)
from kcli.command.output import complain, print_output
from kcli.command.statuses import DONE, FAILED, FOUND
from kcli.partitions.replica_comparison import (
    OffsetsDiffer,
    Replica,
    ReplicaComparison,
    ReplicaSum,
    UnreadableReplica,
)
from kcli.rows.listing import Rows, formatted, rows_if_asked
from kcli.rows.shapes import RowField, RowShape
from kserver.errors import KafkaError, ProtocolError
from kserver.model import BrokerId, Offset, TopicPartition
from kserver.wire.special_offsets import LATEST

if TYPE_CHECKING:
    from kcli.client.admin.admin import Admin
    from kcli.client.admin.replica_fetches import ReplicaFetch

CLIENT_ID = "replica-verification"
FETCH_BYTES, MAX_WAIT_MS, REPORT_EVERY_MS = 1 << 20, 1000, 30_000
MIN_ROUND_S = 0.01
"""Minimum time of a round, if --max-wait-ms is lower."""
ANSWER_MS = 30_000
"""Time for a response, in addition to its wait for records."""

Placed = Mapping[BrokerId, list[TopicPartition]]

MANUAL = Manual(
    kafka="kafka-replica-verification.sh",
    examples=(
        (
            "k replica-verification --topics-include orders --time -2",
            "Verify all existing records, then new ones, until Ctrl-C.",
        ),
        (
            "k replica-verification --sums --topics-include 'orders|bills'",
            "Verify once; exit status 3 if a replica differs.",
        ),
    ),
    statuses=((FOUND, "With --sums: replicas differ."),),
    differences=(
        "Checksums are computed from the bytes of each batch, so a replica whose bytes have "
        "changed on disk is reported; the script compares only the stored checksums.",
        "A broker that is down when the command starts, or a replica that returns an error, is "
        "reported on standard error; the script ends. As with the script, the partitions on that "
        "broker are not verified meanwhile.",
        "A partition without a record at or after --time is verified from its end on.",
        "Partitions in the format of Kafka 0.10 and older are refused.",
        "The tool prints no deprecation warning.",
    ),
    see_also=("k-log-dirs", "k-dump-log", "k-topics"),
)

SUMS = RowShape(
    "k.replica-verification.sums",
    1,
    "A replica, and the checksum of its bytes between offsets that all replicas of the partition "
    "have.",
    (
        RowField("topic", "string", "The partition's topic."),
        RowField("partition", "integer", "Its number."),
        RowField("replica", "integer", "The broker that has the replica."),
        RowField("start_offset", "integer", "The first offset included."),
        RowField("end_offset", "integer", "The first offset after the range."),
        RowField("bytes", "integer", "Number of bytes."),
        RowField("sha256", "string", "Their SHA-256 checksum."),
        RowField(
            "differs",
            "boolean",
            "Whether the checksum differs from that of the partition's first replica.",
        ),
    ),
)


@command(manual=MANUAL)
@option_group(
    option(
        "--topics-include",
        "Topics whose names match this regular expression.  Default: all, internal ones too.",
        "REGEX",
    ),
    option(
        "--time",
        "Where to start: -1 at the end (default), -2 at the beginning, or at a time in "
        "milliseconds since 1970.",
        "MS",
        type=LONG,
    ),
    option(
        "--report-interval-ms",
        "Reporting interval: milliseconds, or with a unit: 30s, 5m.  Default: 30000.",
        "MS",
        type=Milliseconds(),
    ),
    option(
        "--fetch-size", "Maximum bytes of a partition per fetch.  Default: 1048576.", "N", type=INT
    ),
    option(
        "--max-wait-ms",
        "How long a fetch waits for records: milliseconds, or with a unit: 2s, 5m.  Default: 1000.",
        "MS",
        type=Milliseconds(32),
    ),
    option(
        "--sums",
        "Compute a checksum of each replica from its start to its end, once, and exit.  Use it "
        "on idle partitions: each replica runs retention and compaction on its own.",
    ),
    formatted(SUMS),
    cluster,
    option(
        "--broker-list",
        "The same as --bootstrap-server.",
        "HOST:PORT,...",
        instead="--bootstrap-server",
        section=OLDER,
    ),
    option(
        "--topic-white-list",
        "The same as --topics-include.",
        "REGEX",
        instead="--topics-include",
        section=OLDER,
    ),
)
def replica_verification(options: Options) -> int:
    """Fetches all replicas of topics and compares them, batch by batch, until Ctrl-C.

    It prints batches that differ, ends with status 1 at once if their offsets differ, and reports
    how far the verification is behind the high watermark.
    """
    _check(options)
    with rows_if_asked(options, SUMS) as out:
        if options.sums:
            status = run(_sum_up(options, out), options.timeout, CLUSTER)
            return status if out is None else out.status or status
        return run(_verify(options), options.timeout, while_read=True)


def _check(options: Options) -> None:
    if is_set(options, "output") and not options.sums:
        refuse("--output is only allowed with --sums")
    for name in ("time", "report-interval-ms"):
        if options.sums and is_set(options, name):
            refuse(f'Option "[sums]" can\'t be used with option "[{name}]"')
    if options.fetch_size is not None and options.fetch_size < 1:
        refuse(f"--fetch-size must be at least 1, not {options.fetch_size}")
    if options.max_wait_ms is not None and options.max_wait_ms < 0:
        refuse(f"--max-wait-ms must be at least 0, not {options.max_wait_ms}")


# Batch by batch


async def _verify(options: Options) -> int:
    from kcli.client.admin.admin import Admin

    async with Admin(admin_config(options, client_id=CLIENT_ID)) as admin:
        placed = await _replicas_by_broker(admin, options)
        time_or_end = LATEST if options.time is None else options.time
        verification = _Verification(
            admin, options, placed, await _begins(admin, placed, time_or_end)
        )
        return await verification.run()


class _Verification:
    """Rounds of fetching from every broker and comparing the replicas."""

    def __init__(
        self,
        admin: Admin,
        options: Options,
        placed: Placed,
        offsets: Mapping[TopicPartition, Offset],
    ) -> None:
        self._fetches = _Fetches(admin, options)
        self._replicas_by_broker = placed
        self._comparison = ReplicaComparison(offsets)
        every_ms = options.report_interval_ms
        self._report_every_s = (REPORT_EVERY_MS if every_ms is None else every_ms) / 1000
        self._min_round_s = max(self._fetches.max_wait_ms / 1000, MIN_ROUND_S)

    async def run(self) -> int:
        """Run until offsets differ, or until it is cancelled."""
        loop = asyncio.get_running_loop()
        _print_with_time("verification process is started")
        reported_s = loop.time()
        while True:
            began_s = loop.time()
            before = dict(self._comparison.offsets)
            fetched = await self._fetch()
            try:
                for difference in self._comparison.compare(fetched):
                    _print_with_time(difference)
            except OffsetsDiffer as error:
                _print_with_time(str(error))
                return FAILED
            except UnreadableReplica as error:
                raise Refused(str(error)) from error
            if loop.time() - reported_s > self._report_every_s:
                reported_s = loop.time()
                lag = self._comparison.lag
                partition = "null" if lag.partition is None else lag.partition
                _print_with_time(
                    f"max lag is {lag.offsets} for partition {partition} at offset {lag.at} "
                    f"among {len(before)} partitions"
                )
            if before == self._comparison.offsets:
                # If a replica is behind or unreachable, the others respond at once in each round.
                await asyncio.sleep(self._min_round_s - (loop.time() - began_s))

    async def _fetch(self) -> dict[TopicPartition, dict[BrokerId, Replica]]:
        offsets = self._comparison.offsets
        responses_by_broker = await asyncio.gather(
            *(
                self._fetches.of(broker, {p: offsets[p] for p in partitions})
                for broker, partitions in self._replicas_by_broker.items()
            )
        )
        fetched: dict[TopicPartition, dict[BrokerId, Replica]] = {p: {} for p in offsets}
        for broker, responses in zip(self._replicas_by_broker, responses_by_broker, strict=True):
            for partition, replica in responses.items():
                fetched[partition][broker] = Replica(replica.records, replica.high_watermark)
        return fetched


class _Fetches:
    """Fetches from brokers; an error is reported when it first occurs."""

    def __init__(self, admin: Admin, options: Options) -> None:
        self.max_wait_ms = MAX_WAIT_MS if options.max_wait_ms is None else options.max_wait_ms
        self.partition_bytes = FETCH_BYTES if options.fetch_size is None else options.fetch_size
        self._cluster = admin.cluster
        self._last_errors: dict[tuple[BrokerId, TopicPartition | None], str] = {}

    async def of(
        self, broker: BrokerId, offsets: Mapping[TopicPartition, Offset]
    ) -> dict[TopicPartition, ReplicaFetch]:
        from kcli.client.admin.replica_fetches import NOTHING

        try:
            responses = await self.ask(broker, offsets, self.max_wait_ms)
        except (OSError, KafkaError, ProtocolError) as error:
            self._report_error(broker, None, reason(error))
            # Its address may have changed.
            with contextlib.suppress(OSError, KafkaError, ProtocolError):
                await self._cluster.refresh(())
            return dict.fromkeys(offsets, NOTHING)
        self._last_errors.pop((broker, None), None)
        for partition, response in responses.items():
            if response.error is None:
                self._last_errors.pop((broker, partition), None)
            else:
                self._report_error(broker, partition, reason(response.error))
        return responses

    async def ask(
        self, broker: BrokerId, offsets: Mapping[TopicPartition, Offset], max_wait_ms: int
    ) -> dict[TopicPartition, ReplicaFetch]:
        """Fetch replicas. Raises OSError, KafkaError or ProtocolError if the broker does not
        respond.
        """
        from kcli.client.admin.replica_fetches import fetch_replicas

        return await fetch_replicas(
            self._cluster,
            broker,
            offsets,
            partition_bytes=self.partition_bytes,
            max_wait_ms=max_wait_ms,
            response_ms=ANSWER_MS + max_wait_ms,
        )

    def _report_error(self, broker: BrokerId, partition: TopicPartition | None, why: str) -> None:
        if self._last_errors.get((broker, partition)) != why:
            self._last_errors[broker, partition] = why
            of = f"replica {broker}" if partition is None else f"{partition}, replica {broker}"
            complain(f"k replica-verification: {of}: {why}")


async def _replicas_by_broker(
    admin: Admin, options: Options
) -> dict[BrokerId, list[TopicPartition]]:
    """Return the partitions of the requested topics, by each broker with a replica."""
    includes = name_filter(options.topics_include if options.topics_include is not None else ".*")
    names = [topic.name for topic in await admin.list_topics() if includes(topic.name)]
    if not names:
        raise Refused(
            "No topics found. --topics-include, if specified, is either filtering out all topics "
            "or there is no topic."
        )
    placed: dict[BrokerId, list[TopicPartition]] = defaultdict(list)
    for name, topic in (await admin.describe_topics(names)).items():
        for partition in unwrap(topic).partitions:
            for broker in partition.replicas:
                placed[broker].append(TopicPartition(name, partition.partition))
    return {broker: sorted(placed[broker]) for broker in sorted(placed)}


async def _begins(admin: Admin, placed: Placed, spec: int) -> dict[TopicPartition, Offset]:
    """Return the offset that `spec` stands for in each partition, or its end if there is no such
    record.
    """
    partitions = sorted({p for of in placed.values() for p in of})
    results = await admin.list_offsets(dict.fromkeys(partitions, spec))
    offsets = {p: unwrap(results[p]).offset for p in partitions}
    missing = [p for p, offset in offsets.items() if offset < 0]
    ends = await admin.list_offsets(dict.fromkeys(missing, LATEST)) if missing else {}
    return offsets | {p: unwrap(ends[p]).offset for p in missing}


def _print_with_time(text: str) -> None:
    """Print a line with the local time, as Kafka's tool does; at once, since the command runs for
    long.
    """
    now_ms = time.time_ns() // 1_000_000
    date = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now_ms // 1000))
    print_output(f"{date},{now_ms % 1000:03}: {text}")
    sys.stdout.flush()


# Checksums


async def _sum_up(options: Options, out: Rows | None) -> int:
    from kcli.client.admin.admin import Admin

    async with Admin(admin_config(options, client_id=CLIENT_ID)) as admin:
        placed = await _replicas_by_broker(admin, options)
        ends = await _begins(admin, placed, LATEST)
        fetches = _Fetches(admin, options)
        sums, refused = await _begin_sums(fetches, placed, ends)
        await asyncio.gather(*(_read(fetches, broker, of, refused) for broker, of in sums.items()))
    return _print_sums(sums, refused, out)


Sums = dict[BrokerId, dict[TopicPartition, ReplicaSum]]
Refusals = dict[tuple[TopicPartition, BrokerId], Exception]


async def _begin_sums(
    fetches: _Fetches, placed: Placed, ends: Mapping[TopicPartition, Offset]
) -> tuple[Sums, Refusals]:
    """Return a sum for each replica, with a start and end that all replicas of its partition
    have.
    """
    refused: Refusals = {}
    starts: dict[TopicPartition, list[Offset]] = defaultdict(list)
    end_bounds: dict[TopicPartition, list[Offset]] = defaultdict(list)
    replicas: list[tuple[TopicPartition, BrokerId]] = []
    for broker, partitions in placed.items():
        part = {p: ends[p] for p in partitions}
        try:
            responses = await fetches.ask(broker, part, 0)
        except (OSError, KafkaError, ProtocolError) as error:
            refused |= {(p, broker): error for p in partitions}
            continue
        for partition, response in responses.items():
            if response.error is not None:
                refused[partition, broker] = response.error
                continue
            replicas.append((partition, broker))
            starts[partition].append(max(response.log_start, 0))
            end_bounds[partition].append(min(response.high_watermark, ends[partition]))
    sums: Sums = defaultdict(dict)
    for partition, broker in replicas:
        start = max(starts[partition])
        sums[broker][partition] = ReplicaSum(start, max(min(end_bounds[partition]), start))
    return sums, refused


async def _read(
    fetches: _Fetches,
    broker: BrokerId,
    sums: dict[TopicPartition, ReplicaSum],
    refused: Refusals,
) -> None:
    """Read a broker's replicas, until each is complete or has failed."""
    while rest := {
        p: of for p, of in sums.items() if not of.is_done and (p, broker) not in refused
    }:
        try:
            responses = await fetches.ask(broker, {p: of.next_offset for p, of in rest.items()}, 0)
        except (OSError, KafkaError, ProtocolError) as error:
            refused |= {(p, broker): error for p in rest}
            return
        for partition, response in responses.items():
            try:
                if response.error is not None:
                    raise response.error
                rest[partition].take(response.records)
            except (KafkaError, ProtocolError) as error:
                refused[partition, broker] = error
        if not any(response.records or response.error for response in responses.values()):
            return  # there is nothing between this offset and the end


def _print_sums(sums: Sums, refused: Refusals, out: Rows | None) -> int:
    by_replica = {(p, broker): total for broker, of in sums.items() for p, total in of.items()}
    first: dict[TopicPartition, tuple[int, str]] = {}
    status = DONE
    for partition, broker in sorted({*by_replica, *refused}):
        error = refused.get((partition, broker))
        if error is not None:
            subject = f"{partition}, replica {broker}"
            if out is None:
                complain(f"k replica-verification: {subject}: {reason(error)}")
            else:
                out.refused(subject, error)
            status = FAILED
            continue
        total = by_replica[partition, broker]
        differs = first.setdefault(partition, (total.bytes, total.sha256)) != (
            total.bytes,
            total.sha256,
        )
        if differs and status == DONE:
            status = FOUND
        if out is None:
            print_output(
                f"{partition}\treplica: {broker}\toffsets: {total.start} to {total.end}\t"
                f"bytes: {total.bytes}\tsha256: {total.sha256}" + ("\tdiffers" if differs else "")
            )
        else:
            out.row(
                topic=partition.topic,
                partition=partition.partition,
                replica=broker,
                start_offset=total.start,
                end_offset=total.end,
                bytes=total.bytes,
                sha256=total.sha256,
                differs=differs,
            )
    return status
