"""`k verifiable-consumer`: a group member that prints its events."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kcli.client.consumer.listener import RebalanceListener
from kcli.client.errors import ClientError
from kcli.command.command import Manual, Milliseconds, Options, command
from kcli.command.command_runner import reason, run, with_warnings
from kcli.command.options import (
    CONNECTION,
    INT,
    bootstrap_server,
    broker_list,
    client_properties,
    older_config,
    option,
    option_group,
    refuse,
    timeout,
)
from kcli.command.output import print_output
from kcli.command.statuses import DONE
from kserver.errors import ErrorCode, KafkaError
from kserver.model import Offset, TopicPartition

if TYPE_CHECKING:
    from kcli.client.config import ConsumerConfig
    from kcli.client.consumer.consumer import Consumer, ConsumerRecord

CLASSIC, CONSUMER = "classic", "consumer"
RANGE = "org.apache.kafka.clients.consumer.RangeAssignor"
SESSION_TIMEOUT_MS = 30_000
POLICIES = ("earliest", "latest", "none")
FOREVER_MS = 1 << 40

MANUAL = Manual(
    kafka="kafka-verifiable-consumer.sh",
    examples=(
        (
            "k verifiable-consumer --topic t --group-id g --max-messages 1000",
            "A thousand records, at least; several of these share the topic.",
        ),
        (
            "k verifiable-consumer --topic t --group-id g --group-protocol consumer --verbose \\\n"
            "    > seen.jsonl",
            "Each record, in a group with server-side assignment, until Ctrl-C or SIGTERM.",
        ),
    ),
    differences=(
        "Without --bootstrap-server, the usual default is used; --bootstrap-server takes "
        "precedence over the file.",
        "A failure while reading ends with exit status 1; Kafka's tool logs it and ends with 0.",
        "--session-timeout is ignored with --group-protocol consumer, because the brokers set "
        "the timeout.",
        "Strategies have Kafka's class names and short ones: range, roundrobin, sticky, "
        "cooperative-sticky.",
        "Older spellings are accepted without a warning.",
        "Names of options are not abbreviated.",
    ),
    see_also=("k-verifiable-producer", "k-console-consumer", "k-consumer-groups"),
)


@command(manual=MANUAL)
@option_group(
    option("--topic", "The topic to read.  Required.", "TOPIC"),
    option("--group-id", "The group that shares it.  Required.", "GROUP"),
    option("--group-instance-id", "Makes a static member of this name.", "ID"),
    option(
        "--group-protocol",
        f"{CLASSIC}, the default, or {CONSUMER}: the brokers assign partitions (KIP-848).",
        "PROTOCOL",
    ),
    option("--group-remote-assignor", f"The server-side assignor, with {CONSUMER}.", "NAME"),
    option(
        "--assignment-strategy",
        f"The client-side assignor, with {CLASSIC}.  Default: {RANGE}.",
        "CLASS",
    ),
    option(
        "--max-messages",
        "Stop after this many records; below 0, the default, never.",
        "N",
        type=INT,
    ),
    option(
        "--session-timeout",
        f"How long the group waits for a member without heartbeats, with {CLASSIC}: milliseconds, "
        f"or with a unit: 500ms, 2s, 5m.  Default: {SESSION_TIMEOUT_MS}.",
        "TIME",
        type=Milliseconds(32),
    ),
    option("--verbose", "Also print a line for each record."),
    option("--enable-autocommit", "Commit from time to time, not after each poll."),
    option(
        "--reset-policy",
        "Where to start partitions without a committed offset: earliest (default), latest, none.",
        "POLICY",
    ),
    bootstrap_server,
    option(
        "--command-config",
        "A file of consumer properties; the options above take precedence.",
        "FILE",
        section=CONNECTION,
    ),
    timeout,
    broker_list,
    older_config("--consumer.config"),
)
def verifiable_consumer(options: Options) -> int:
    """Reads a topic as a member of a group, and prints a line of JSON for each thing that happens.

    The first line is of the event startup_complete; then come partitions_assigned and
    partitions_revoked, with each poll that gave something records_consumed, after record_data of
    each if --verbose, and then offsets_committed; at the end shutdown_complete, before or after
    shutdown_requested.  Ctrl-C and SIGTERM let the member leave its group.
    """
    _check(options)
    from kcli.client.config import ConsumerConfig

    config = with_warnings(ConsumerConfig.of(_properties(options)))
    run(VerifiableConsumer(options, config).all(), options.timeout, while_read=True)
    return DONE


def _check(options: Options) -> None:
    for name in ("topic", "group_id"):
        if getattr(options, name) is None:
            refuse(f"argument --{name.replace('_', '-')} is required")
    protocol = options.group_protocol
    if protocol is not None and protocol.lower() not in (CLASSIC, CONSUMER):
        refuse(
            f"argument --group-protocol: invalid choice: '{protocol}' (choose from "
            f"{{{CLASSIC},{CONSUMER}}})"
        )
    if options.reset_policy is not None and options.reset_policy not in POLICIES:
        refuse(
            f"argument --reset-policy: invalid choice: '{options.reset_policy}' (choose from "
            f"{{{','.join(POLICIES)}}})"
        )


def _properties(options: Options) -> dict[str, str]:
    properties = client_properties(options)
    properties |= {
        "group.id": options.group_id,
        "enable.auto.commit": str(options.enable_autocommit).lower(),
        "auto.offset.reset": options.reset_policy or POLICIES[0],
    }
    if options.group_instance_id is not None:
        properties["group.instance.id"] = options.group_instance_id
    if (options.group_protocol or CLASSIC).lower() == CLASSIC:
        properties["partition.assignment.strategy"] = options.assignment_strategy or RANGE
        session_ms = options.session_timeout
        properties["session.timeout.ms"] = str(
            SESSION_TIMEOUT_MS if session_ms is None else session_ms
        )
        return properties
    properties["group.protocol"] = CONSUMER
    if options.group_remote_assignor is not None:
        properties["group.remote.assignor"] = options.group_remote_assignor
    return properties


class VerifiableConsumer(RebalanceListener):
    """One run."""

    def __init__(self, options: Options, config: ConsumerConfig) -> None:
        self._options = options
        self._config = config
        limit = options.max_messages
        self._remaining = None if limit is None or limit < 0 else limit

    async def all(self) -> None:
        """Raises the errors of poll."""
        from kcli.client.consumer.consumer import Consumer

        was_started = was_stopped = False
        try:
            # The context manager completes the close, even if standard output is closed meanwhile.
            async with Consumer(self._config) as consumer:
                was_started = True
                try:
                    await self._read(consumer)
                except asyncio.CancelledError:
                    was_stopped = True
                    _print_event("shutdown_requested")
                    raise
        finally:
            if was_started:
                _print_event("shutdown_complete")
                if not was_stopped:
                    # Apache's tool prints this while its process ends, for any reason.
                    _print_event("shutdown_requested")

    async def _read(self, consumer: Consumer) -> None:
        """Poll and commit until enough records were read."""
        _print_event("startup_complete")
        consumer.subscribe([self._options.topic], listener=self)
        while self._remaining != 0:
            records = await consumer.poll(FOREVER_MS)
            offsets: dict[TopicPartition, Offset] = {}
            try:
                offsets = self._offsets_of(records)
            finally:
                # Records that were not reported must not be committed when the consumer closes.
                await _seek_back(consumer, records, offsets)
            if not self._options.enable_autocommit:
                await self._commit(consumer, offsets)

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        _print_event("partitions_assigned", partitions=list(map(_partition, partitions)))

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        _print_event("partitions_revoked", partitions=list(map(_partition, partitions)))

    def _offsets_of(self, records: Sequence[ConsumerRecord]) -> dict[TopicPartition, Offset]:
        """Report the records, but no more than requested; return the offsets after them."""
        by_partition: dict[TopicPartition, list[ConsumerRecord]] = {}
        for record in records:
            partition = TopicPartition(record.topic, record.partition)
            by_partition.setdefault(partition, []).append(record)
        offsets: dict[TopicPartition, Offset] = {}
        summaries = []
        for partition, all_of in by_partition.items():
            of = all_of[: self._remaining]
            if not of:
                break
            first, last = of[0].offset, of[-1].offset
            offsets[partition] = last + 1
            summaries.append(
                _partition(partition) | {"count": len(of), "minOffset": first, "maxOffset": last}
            )
            if self._options.verbose:
                self._print_records(of)
            if self._remaining is not None:
                self._remaining -= len(of)
        _print_event("records_consumed", count=len(records), partitions=summaries)
        return offsets

    def _print_records(self, records: Iterable[ConsumerRecord]) -> None:
        for record in records:
            _print_event(
                "record_data",
                key=_text(record.key),
                value=_text(record.value),
                topic=record.topic,
                partition=record.partition,
                offset=record.offset,
            )

    async def _commit(self, consumer: Consumer, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Commit, even if the command is being cancelled: reported records are committed."""
        committing = asyncio.ensure_future(self._committed(consumer, offsets))
        try:
            await asyncio.shield(committing)
        except asyncio.CancelledError:
            await committing
            raise

    async def _committed(
        self, consumer: Consumer, offsets: Mapping[TopicPartition, Offset]
    ) -> None:
        entries = [_partition(p) | {"offset": offset} for p, offset in offsets.items()]
        try:
            await consumer.commit(offsets)
        except (KafkaError, ClientError) as error:
            if isinstance(error, KafkaError) and error.code is ErrorCode.fenced_instance_id:
                raise
            _print_event("offsets_committed", offsets=entries, error=reason(error), success=False)
        else:
            _print_event("offsets_committed", offsets=entries, success=True)


async def _seek_back(
    consumer: Consumer,
    records: Iterable[ConsumerRecord],
    offsets: Mapping[TopicPartition, Offset],
) -> None:
    """Seek to the first record of each partition at or after these offsets."""
    for record in sorted(records, key=lambda record: record.offset, reverse=True):
        partition = TopicPartition(record.topic, record.partition)
        if record.offset >= offsets.get(partition, 0):
            await consumer.seek(partition, record.offset)


def _partition(partition: TopicPartition) -> dict[str, Any]:
    return {"topic": partition.topic, "partition": partition.partition}


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="replace")


def _print_event(name: str, **values: Any) -> None:
    event = {"timestamp": time.time_ns() // 1_000_000, "name": name} | values
    print_output(json.dumps(event, separators=(",", ":"), ensure_ascii=False))
    sys.stdout.flush()
