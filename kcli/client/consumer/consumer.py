"""Consumer: reads topics together with the other members of its group, or chosen partitions.

    config = {"bootstrap.servers": "localhost:9092", "group.id": "readers"}
    async with Consumer(config) as consumer:
        consumer.subscribe(["greetings"])
        while True:
            for record in await consumer.poll(1000):
                print(record.offset, record.value)

        consumer.assign([TopicPartition("greetings", 0)])   # without a group, instead of subscribe
        await consumer.seek_to_beginning()

A partition starts at the group's committed offset, which `commit` or enable.auto.commit sets, else
by auto.offset.reset. Partitions are assigned and revoked only within `poll` (`listener.py`), which
a member of a group has to call at least every max.poll.interval.ms.

`poll` returns single records, `poll_batches` the same by batch, which saves an object per record;
it does not apply deserializers and interceptors.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias

from kcli.client import arguments, offsets
from kcli.client.class_loader import instance_of
from kcli.client.cluster import Cluster, expect_topic_name
from kcli.client.config import ConsumerConfig
from kcli.client.consumer.completed_fetch import FetchedBatch
from kcli.client.consumer.fetcher import Fetcher
from kcli.client.consumer.listener import RebalanceListener
from kcli.client.consumer.subscription import SubscriptionState, TopicPartitionState
from kcli.client.errors import ClientError, TimedOut, Undeserializable
from kcli.client.group.group_descriptions import CommittedOffset
from kcli.client.group.group_metadata import GroupMetadata
from kcli.client.interceptors import ConsumerInterceptor, intercept_records
from kcli.client.offsets import ListedOffset
from kcli.client.serialization import DESERIALIZERS, Deserializer, pass_through
from kcli.client.topic_metadata import PartitionMetadata
from kserver.errors import ConfigError, ErrorCode, KafkaError, ProtocolError
from kserver.model import LeaderEpoch, Offset, TopicPartition
from kserver.wire.batch import Record, TimestampType
from kserver.wire.special_offsets import EARLIEST, LATEST

if TYPE_CHECKING:
    from kcli.client.consumer.consumer_metadata import SubscriptionPattern
    from kcli.client.group.assignors import Assignor, Counts, Members, Plan
    from kcli.client.group.group import ConsumerCoordinator

__all__ = ["Consumer", "ConsumerInterceptor", "ConsumerRecord", "FetchedBatch", "Record"]

EXCLUSIVE = "Subscription to topics, partitions and pattern are mutually exclusive"
NO_GROUP = (
    "To use the group management or offset commit APIs, you must provide a valid group.id in the "
    "consumer configuration."
)
Offsets: TypeAlias = Mapping[TopicPartition, CommittedOffset | Offset]


class ConsumerRecord(NamedTuple):
    """A record; key and value are deserialized, or bytes or None without deserializers."""

    topic: str
    partition: int
    offset: Offset
    timestamp: int
    timestamp_type: TimestampType
    key: Any
    value: Any
    headers: tuple[tuple[str, bytes | None], ...]
    leader_epoch: LeaderEpoch


class Consumer:
    """Usable between `start` and `close`, by one reader. `now_ms` is the clock for by_duration.

    Deserializers and assignors passed here take precedence over configured ones.
    """

    def __init__(
        self,
        config: ConsumerConfig | Mapping[str, object],
        *,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
        interceptors: Sequence[ConsumerInterceptor] = (),
        assignors: Sequence[Assignor | Callable[[Counts, Members], Plan]] = (),
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        random: Random | None = None,
    ) -> None:
        config = ConsumerConfig.resolve(config)
        self._random = random or Random()
        self.cluster = Cluster(config, random=self._random, max_response_bytes=_max_bytes(config))
        self._config = config

        def deserializer(key: str, name: str | None) -> Deserializer:
            return pass_through if name is None else instance_of(key, name, DESERIALIZERS)

        self._read_key = key_deserializer or deserializer(
            "key.deserializer", config.key_deserializer
        )
        self._read_value = value_deserializer or deserializer(
            "value.deserializer", config.value_deserializer
        )
        self._interceptors = [
            *(instance_of("interceptor.classes", name, {}) for name in config.interceptor_classes),
            *interceptors,
        ]
        self._assignors = self._strategies(assignors)
        self._now_ms = now_ms
        self._reset = _reset_of(config.auto_offset_reset)
        self._subscription = SubscriptionState()
        self._reading: TopicPartitionState | None = None
        self._fetcher: Fetcher | None = None
        self._group: ConsumerCoordinator | None = None
        self._task: asyncio.Task[None] | None = None

    def _strategies(
        self, assignors: Sequence[Assignor | Callable[[Counts, Members], Plan]]
    ) -> list[Assignor]:
        if self._config.group_id is None:
            return []
        # Imported here: 10 ms that a consumer without a group need not spend; the group likewise.
        from kcli.client.group.assignors import assignors_of

        return assignors_of(assignors or self._config.partition_assignment_strategy)

    async def start(self) -> None:
        """Begin to fetch the assigned partitions in the background."""
        if self._config.group_id is not None:
            from kcli.client.group.group import ConsumerCoordinator

            self._group = ConsumerCoordinator(
                self._config,
                self.cluster,
                self._subscription,
                self._assignors,
                on_reassignment=self._on_reassignment,
                wake=lambda: fetcher.arrival.set(),
                random=self._random,
            )
        recall = None if self._group is None else self._group.commits.look_up
        fetcher = self._fetcher = Fetcher(
            self._config,
            self.cluster,
            self._subscription,
            default_reset=self._default_reset,
            recall=recall,
        )
        self._task = asyncio.create_task(self._fetcher.run())
        self._fetcher.notify()

    async def close(self) -> None:
        """Leave the group, after a commit if enable.auto.commit is set, and close."""
        try:
            if self._group is not None:
                await self._group.close()
        finally:
            self._group = None
            await self._stop()

    async def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = self._fetcher = None
        await self.cluster.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close, even if cancelled meanwhile: else the member would stay in its group."""
        closing = asyncio.ensure_future(self.close())
        try:
            await asyncio.shield(closing)
        except asyncio.CancelledError:
            await asyncio.wait([closing])
            raise

    # Assignment and positions

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        return self._subscription.partitions()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these from now on; those assigned before keep their positions."""
        partitions = arguments.items("partitions", partitions)
        for partition in partitions:
            if not arguments.is_partition(partition):
                raise ClientError(
                    f"assign takes TopicPartition(topic, number), not {partition!r}; subscribe"
                    " takes topics"
                )
            expect_topic_name(partition[0])
        if self._group is not None and self._group.is_subscribed:
            raise ClientError(EXCLUSIVE)
        self._subscription.assign(partitions, recall=self._group is not None)
        self._on_reassignment()

    @property
    def subscription(self) -> tuple[str, ...]:
        """The subscribed topics; for a pattern, the topics that match now."""
        return () if self._group is None else self._group.topics()

    def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: str | re.Pattern[str] | SubscriptionPattern | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Replace the subscription by these topics, or all that fully match the pattern. `poll`
        joins the group.
        """
        group = self._group_or_raise()
        names = (topics,) if isinstance(topics, str | bytes) else arguments.items("topics", topics)
        for name in names:
            expect_topic_name(name)
        if listener is not None and not isinstance(listener, RebalanceListener):
            raise ClientError(
                f"{type(listener).__name__} is not a RebalanceListener: derive it from "
                "RebalanceListener, whose methods are on_assigned, on_revoked and on_lost"
            )
        if bool(names) == (pattern is not None):
            raise ClientError("Name topics or a pattern to subscribe to; to end it, unsubscribe")
        if not group.is_subscribed and len(self._subscription):
            raise ClientError(EXCLUSIVE)
        group.subscribe(names, arguments.pattern(pattern), listener)

    async def unsubscribe(self) -> None:
        """Leave the group, or drop the manual assignment; commits nothing."""
        if self._group is not None:
            await self._group.unsubscribe()
        self._subscription.assign(())
        self._on_reassignment()

    def group_metadata(self) -> GroupMetadata:
        """This member's identity, for a producer's `send_offsets_to_transaction`."""
        return self._group_or_raise().metadata()

    def enforce_rebalance(self, reason: str = "") -> None:
        """Let the next `poll` rejoin the group, after a change that only an assignor knows of. Does
        nothing by KIP-848, where the coordinator decides on rebalances.
        """
        self._group_or_raise().request_rejoin(reason or "rebalance enforced by user")

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no records of these until `resume`; their positions stay."""
        for partition in arguments.items("partitions", partitions):
            self._state_of(partition).paused = True

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in arguments.items("partitions", partitions):
            self._state_of(partition).paused = False
        self._notify_fetcher()

    async def seek(
        self, partition: TopicPartition, offset: Offset, leader_epoch: LeaderEpoch = -1
    ) -> None:
        """Continue at `offset`; with the epoch of the record before, truncation is detected."""
        arguments.expect_offset(offset)
        self._state_of(partition).seek(offset, leader_epoch)
        self._notify_fetcher()

    async def seek_to_beginning(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Seek in these partitions or all assigned ones; the offset is looked up when needed."""
        self._seek_by(partitions, EARLIEST)

    async def seek_to_end(self, partitions: Iterable[TopicPartition] = ()) -> None:
        self._seek_by(partitions, LATEST)

    def _seek_by(self, partitions: Iterable[TopicPartition], spec: int) -> None:
        for partition in arguments.items("partitions", partitions) or self.assignment:
            self._state_of(partition).seek_by(spec)
        self._notify_fetcher()

    async def position(self, partition: TopicPartition) -> Offset:
        """Return the next offset that `poll` returns, once it is known.

        Raises NoOffset if no rule gives a position, TimedOut after default.api.timeout.ms.
        """
        state = self._state_of(partition)
        fetcher = self._running()
        try:
            async with asyncio.timeout(self._config.default_api_timeout_ms / 1000):
                while state.position is None:
                    if state.error is not None:
                        raise state.error
                    await self._arrival(fetcher)
        except TimeoutError as error:
            raise TimedOut(f"the position of {partition} is not known in time") from error
        return state.position

    def lag(self, partition: TopicPartition) -> int | None:
        """Return the number of offsets left to read as of the last fetch; None if unknown."""
        state = self._state_of(partition)
        committed = self._config.isolation_level == "read_committed"
        end = state.last_stable_offset if committed else state.high_watermark
        return None if end < 0 or state.position is None else max(0, end - state.position)

    # Committed offsets

    async def commit(self, offsets: Offsets | None = None) -> None:
        """Commit the next offset to read of each partition, by default the positions after `poll`.

        Raises CommitFailed if the partitions belong to others now, RebalanceInProgress if they may
        soon (poll first), TimedOut after default.api.timeout.ms, or KafkaError.
        """
        await self._group_or_raise().commit(arguments.committable(offsets))

    def commit_async(self, offsets: Offsets | None = None) -> asyncio.Task[None]:
        """Commit in the background, once. The task may raise OSError or a retriable
        KafkaError too.
        """
        return self._group_or_raise().commit_async(arguments.committable(offsets))

    async def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, CommittedOffset | None]:
        """Return the group's committed offset of each partition, or None."""
        return await self._group_or_raise().commits.committed(arguments.partitions(partitions))

    # Reading

    async def poll(
        self, timeout_ms: float = 0, max_records: int | None = None
    ) -> list[ConsumerRecord]:
        """Return the next records, at most max.poll.records; wait up to `timeout_ms` for the first.

        Raises the error at a partition's position: NoOffset, LogTruncated, KafkaError
        (authorization, an offset out of range without a reset, a wrong checksum), ProtocolError,
        Undeserializable. It does so at each call until that partition is sought elsewhere or
        unassigned.
        """
        batches = await self.poll_batches(timeout_ms, max_records)
        if self._read_key is pass_through and self._read_value is pass_through:
            records = _records(batches)
        else:
            records = self._deserialize(_records(batches))
        return intercept_records(records, self._interceptors) if self._interceptors else records

    def _deserialize(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        """Return the records before the first that cannot be deserialized, where the next poll of
        its partition starts; raise Undeserializable if it is the first.
        """
        read_key, read_value = self._read_key, self._read_value
        deserialized: list[ConsumerRecord] = []
        for record in records:
            try:
                deserialized.append(
                    record._replace(
                        key=None if record.key is None else read_key(record.key),
                        value=None if record.value is None else read_value(record.value),
                    )
                )
            except Exception as error:
                self._seek_back(records[len(deserialized) :])
                if deserialized:
                    return deserialized
                partition = TopicPartition(record.topic, record.partition)
                raise Undeserializable(partition, record.offset, error) from error
        return deserialized

    def _seek_back(self, records: Iterable[ConsumerRecord]) -> None:
        """Seek back to the first of these records in each partition."""
        first: dict[TopicPartition, ConsumerRecord] = {}
        for record in records:
            first.setdefault(TopicPartition(record.topic, record.partition), record)
        for partition, record in first.items():
            self._state_of(partition).seek(record.offset)
        self._notify_fetcher()

    async def poll_batches(
        self, timeout_ms: float = 0, max_records: int | None = None
    ) -> list[FetchedBatch]:
        """Return the records of `poll`, grouped by batch."""
        arguments.expect_milliseconds("timeout_ms", timeout_ms)
        arguments.expect_whole_number("max_records", max_records)
        fetcher = self._running()
        most = max_records or self._config.max_poll_records
        # Yield: a reader that always finds records would starve the sockets.
        await asyncio.sleep(0)
        deadline = self.cluster.deadline(timeout_ms)
        group = self._group
        if group is None:
            return await self._next_batches(fetcher, None, most, deadline)
        group.set_polling(True)
        try:
            return await self._next_batches(fetcher, group, most, deadline)
        finally:
            group.set_polling(False)

    async def _next_batches(
        self, fetcher: Fetcher, group: ConsumerCoordinator | None, most: int, deadline: float
    ) -> list[FetchedBatch]:
        while True:
            fetcher.arrival.clear()
            if group is None or await group.poll():
                if batches := self._collect(fetcher, most):
                    return batches
                self._raise_error()
            try:
                async with asyncio.timeout_at(deadline):
                    await fetcher.arrival.wait()
            except TimeoutError:
                return []

    def _collect(self, fetcher: Fetcher, most: int) -> list[FetchedBatch]:
        """Drain one completed fetch after another, each to its end before the next partition's."""
        batches: list[FetchedBatch] = []
        while most > 0:
            state = self._reading
            if state is None or state.paused or not state.completed_fetches:
                state = self._reading = self._next_with_completed_fetches()
                if state is None:
                    break
            completed = state.completed_fetches[0]
            try:
                batch = completed.take(most)
            except (KafkaError, ProtocolError) as error:
                state.error = error
                state.completed_fetches.clear()
                break
            state.position = completed.position
            if batch is None:
                state.completed_fetches.popleft()
                self._reading = self._next_with_completed_fetches()
                fetcher.wake()
                continue
            state.epoch = batch.leader_epoch
            batches.append(batch)
            most -= len(batch.rows)
        return batches

    def _next_with_completed_fetches(self) -> TopicPartitionState | None:
        """Return the next partition with fetched data, in turn after the present one."""
        states = list(self._subscription)
        start = states.index(self._reading) + 1 if self._reading in states else 0
        ahead = (s for s in states[start:] + states[:start] if s.completed_fetches and not s.paused)
        return next(ahead, None)

    def _raise_error(self) -> None:
        for state in self._subscription:
            if state.error is not None and not state.completed_fetches:
                raise state.error
        if self._task is not None and self._task.done():
            self._task.result()

    # Looking up

    async def partitions_for(self, topic: str) -> tuple[PartitionMetadata, ...]:
        """Return a topic's partitions. Raises KafkaError if unknown or unauthorized."""
        expect_topic_name(topic)

        async def attempt() -> tuple[PartitionMetadata, ...]:
            create = self._config.allow_auto_create_topics
            refusals = await self.cluster.refresh([topic], create=create)
            if topic not in self.cluster.topics:
                raise refusals.get(topic) or KafkaError(ErrorCode.unknown_topic_or_partition)
            return self.cluster.topics[topic].partitions

        return await self.cluster.retry("partitionsFor", self._deadline(), attempt)

    async def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, ListedOffset | None]:
        """Return the first record not older than each time, or None."""
        listed_offsets = await self._list_offsets(arguments.times(times_ms))
        return {p: o if o.offset >= 0 else None for p, o in listed_offsets.items()}

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Offset]:
        specs = dict.fromkeys(arguments.partitions(partitions), EARLIEST)
        listed_offsets = await self._list_offsets(specs)
        return {p: o.offset for p, o in listed_offsets.items()}

    async def end_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Offset]:
        """Return the end offsets; with read_committed the last stable offsets."""
        listed_offsets = await self._list_offsets(
            dict.fromkeys(arguments.partitions(partitions), LATEST)
        )
        return {p: o.offset for p, o in listed_offsets.items()}

    async def _list_offsets(
        self, specs: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, ListedOffset]:
        results = await offsets.list_offsets(
            self.cluster,
            specs,
            self._deadline(),
            isolation=offsets.ISOLATIONS[self._config.isolation_level],
        )
        listed_offsets: dict[TopicPartition, ListedOffset] = {}
        for partition, offset in results.items():
            if isinstance(offset, KafkaError):
                raise KafkaError(offset.code, f"{partition}: {offset.message}")
            listed_offsets[partition] = offset
        return listed_offsets

    def _deadline(self) -> float:
        return self.cluster.deadline(self._config.default_api_timeout_ms)

    # Within

    def _default_reset(self) -> int | None:
        """auto.offset.reset as a ListOffsets spec; None for "none"."""
        if self._reset is None or self._reset < 0:
            return self._reset
        return max(0, self._now_ms() - self._reset)

    def _state_of(self, partition: TopicPartition) -> TopicPartitionState:
        state = self._subscription.get(partition)
        if state is None:
            raise ClientError(f"No current assignment for partition {partition}")
        return state

    def _group_or_raise(self) -> ConsumerCoordinator:
        self._running()
        if self._group is None:
            raise KafkaError(ErrorCode.invalid_group_id, NO_GROUP)
        return self._group

    def _on_reassignment(self) -> None:
        self._reading = None
        self._notify_fetcher()

    def _notify_fetcher(self) -> None:
        if self._fetcher is not None:
            self._fetcher.notify()

    async def _arrival(self, fetcher: Fetcher) -> None:
        fetcher.arrival.clear()
        await fetcher.arrival.wait()

    def _running(self) -> Fetcher:
        if self._fetcher is None:
            raise ClientError("the consumer is not started, or was closed")
        return self._fetcher


def _records(batches: Iterable[FetchedBatch]) -> list[ConsumerRecord]:
    # The named tuple's own constructor takes twice as long.
    new, cls = tuple.__new__, ConsumerRecord
    records: list[ConsumerRecord] = []
    for topic, partition, rows, kind, epoch, _ in batches:
        records += [
            new(cls, (topic, partition, offset, timestamp, kind, key, value, headers, epoch))
            for offset, timestamp, key, value, headers in rows
        ]
    return records


# A response holds at least one batch, however large: it may exceed fetch.max.bytes by this.
_LARGEST_BATCH_BYTES = 1 << 27


def _max_bytes(config: ConsumerConfig) -> int:
    return min(config.fetch_max_bytes + _LARGEST_BATCH_BYTES, 2**31 - 1)


_DURATION = re.compile(
    r"P(?:(?P<days>\d+)D)?"
    r"(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)
_MS = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1000}


def _reset_of(text: str) -> int | None:
    """Return auto.offset.reset as a ListOffsets spec below 0, or as ms back (KIP-1106)."""
    match text:
        case "latest":
            return LATEST
        case "earliest":
            return EARLIEST
        case "none":
            return None
    duration = _DURATION.fullmatch(text.removeprefix("by_duration:"))
    if duration is None or not any(duration.groups()):
        raise ConfigError(f"Invalid value {text} for configuration auto.offset.reset")
    units = {unit: float(number) for unit, number in duration.groupdict().items() if number}
    return round(sum(_MS[unit] * number for unit, number in units.items()))
