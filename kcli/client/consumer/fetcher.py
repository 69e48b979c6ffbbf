"""Fetcher: fetches from the leaders ahead of the reader.

There is one task for each broker that leads an assigned partition. It has one fetch in flight at a
time, in a fetch session. A response's completed fetches are queued undecoded, and the next fetch is
sent at once for partitions with fewer than `FETCHES_AHEAD` of them. One more task maintains
metadata and positions: it resets missing positions, and checks those that a new leader may have
truncated (KIP-320).

A leader may name a replica in our rack to fetch from (client.rack, KIP-392). It is used until
metadata.max.age.ms has passed or it fails; then the leader is asked again.

Errors of one partition: if the leader moved or is not ready, the fetch is retried after a metadata
refresh; an offset out of range is reset by auto.offset.reset; any other error waits in
`TopicPartitionState.error` until the reader reaches it.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, TypeAlias
from uuid import UUID

from kcli.client.cluster import Cluster
from kcli.client.config import ConsumerConfig
from kcli.client.consumer.completed_fetch import AbortedProducer, CompletedFetch
from kcli.client.consumer.fetch_session import FetchPosition, FetchSessionHandler, SessionRequest
from kcli.client.consumer.subscription import SubscriptionState, TopicPartitionState
from kcli.client.errors import ClientError, LogTruncated, NoOffset
from kcli.client.group.group_descriptions import CommittedOffset
from kcli.client.offsets import ISOLATIONS, READ_COMMITTED, ListedOffset, list_offsets
from kserver.errors import ErrorCode, KafkaError, ProtocolError
from kserver.model import BrokerId, OffsetAndEpoch, TopicPartition
from kserver.wire import versions
from kserver.wire.api_key import ApiKey
from kserver.wire.special_offsets import LATEST

# First version of Fetch with topic ids instead of names (KIP-516).
FETCH_BY_TOPIC_ID = 13
# Undecoded fetches of a partition that may wait for the reader: one to read, one to come.
FETCHES_AHEAD = 2

_SESSION_LOST = frozenset(
    {
        ErrorCode.fetch_session_id_not_found,
        ErrorCode.invalid_fetch_session_epoch,
        ErrorCode.fetch_session_topic_id_error,
    }
)
_ASK_AGAIN = frozenset(
    {
        ErrorCode.not_leader_or_follower,
        ErrorCode.replica_not_available,
        ErrorCode.leader_not_available,
        ErrorCode.kafka_storage_error,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.offset_not_available,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.inconsistent_topic_id,
        # As in Java's client: a bug of the broker, which may be transient.
        ErrorCode.unknown_server_error,
    }
)

Recall: TypeAlias = Callable[
    [Collection[TopicPartition]], Awaitable[Mapping[TopicPartition, CommittedOffset | None]]
]
"""Returns the group's committed offsets, without retries; raises OSError or a retriable KafkaError
on failure.
"""

_logger = logging.getLogger(__name__)


class _Source:
    """A broker to fetch from."""

    __slots__ = ("node", "session", "task", "wake")

    def __init__(self, node: BrokerId) -> None:
        self.node = node
        self.session = FetchSessionHandler()
        self.wake = asyncio.Event()
        self.task: asyncio.Task[None] | None = None


class Fetcher:
    """`arrival` is set when there may be something new for the reader: records, an error, a
    position.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        cluster: Cluster,
        subscription: SubscriptionState,
        *,
        default_reset: Callable[[], int | None],
        recall: Recall | None = None,
    ) -> None:
        self.arrival = asyncio.Event()
        self._config = config
        self._cluster = cluster
        self._subscription = subscription
        self._default_reset = default_reset
        self._recall_committed = recall
        self._loop = asyncio.get_running_loop()
        self._sources: dict[BrokerId, _Source] = {}
        self._work = asyncio.Event()
        self._has_changed = asyncio.Event()
        self._stale = True
        self._asked = self._answered = 0
        """Numbers of the last Metadata request that was sent and of the last that was answered."""
        self._tasks: asyncio.TaskGroup | None = None
        self._isolation = ISOLATIONS[config.isolation_level]

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            tasks.create_task(self._keep_positions())

    def notify(self) -> None:
        """Note that the reader assigned, sought or resumed partitions."""
        self._work.set()
        self._has_changed.set()
        self.wake()

    def wake(self) -> None:
        """Wake the sources: the reader consumed completed fetches, so there is room for more."""
        for source in self._sources.values():
            source.wake.set()

    # Metadata and positions

    async def _keep_positions(self) -> None:
        tries = 0
        while True:
            if tries:
                await self._pause(tries)
            else:
                await self._until_work()
            self._work.clear()
            self._has_changed.clear()
            tries += 1
            try:
                await self._recall()
                # Run all steps, so that a partition without a leader does not delay the others.
                steps = [await self._refresh(), await self._reset(), await self._check()]
                if all(steps):
                    tries = 0
            except (OSError, KafkaError, ProtocolError, ClientError) as error:
                _logger.debug("no metadata or positions: %s", error)
                self._stale = True
            self._start_sources()

    async def _pause(self, tries: int) -> None:
        """Wait before a retry, unless the reader changes something: its request must not wait for a
        topic that was deleted, for example.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._cluster.backoff(tries)):
                await self._has_changed.wait()

    async def _until_work(self) -> None:
        max_age = self._config.metadata_max_age_ms / 1000
        try:
            async with asyncio.timeout(max_age):
                await self._work.wait()
        except TimeoutError:
            self._stale = True

    async def _refresh(self) -> bool:
        """Refresh missing or stale metadata; return whether every partition has a leader."""
        names = self._subscription.topics()
        if self._stale or any(name not in self._cluster.topics for name in names):
            if not names:
                return True
            self._stale = False
            create = self._config.allow_auto_create_topics
            self._asked = number = self._asked + 1
            errors = await self._cluster.refresh(names, create=create)
            self._answered = number
            for state in self._subscription:
                error = errors.get(state.partition.topic)
                if error is not None and not error.code.retriable:
                    self._fail(state, error)
        complete = True
        for state in self._subscription:
            metadata = self._cluster.partition(state.partition)
            if metadata is None or metadata.leader is None:
                complete = complete and state.error is not None
                self._stale = True
            else:
                state.on_leader_change(metadata.leader_epoch)
        return complete

    async def _recall(self) -> None:
        """Seek to the group's committed offsets in partitions where they are to be used."""
        states = {state.partition: state for state in self._subscription if state.recall}
        if not states or self._recall_committed is None:
            return
        generations = {partition: state.generation for partition, state in states.items()}
        try:
            offsets = await self._recall_committed(list(states))
        except KafkaError as error:
            if error.code.retriable:
                raise
            for state in states.values():
                self._fail(state, error)
            return
        for partition, state in states.items():
            if state.generation != generations[partition]:
                continue
            state.recall = False
            if (committed := offsets[partition]) is not None:
                epoch = -1 if committed.leader_epoch is None else committed.leader_epoch
                self._cluster.expect_epoch(partition, epoch)
                state.seek(committed.offset, epoch)
        self.arrival.set()

    async def _reset(self) -> bool:
        """Reset partitions without a position whose leader is known; return whether all have one
        now.
        """
        missing: dict[TopicPartition, int] = {}
        undefined = []
        for state in self._subscription:
            if state.position is not None or state.error is not None or state.recall:
                continue
            metadata = self._cluster.partition(state.partition)
            if metadata is None or metadata.leader is None:
                continue
            spec = self._default_reset() if state.reset is None else state.reset
            if spec is None:
                undefined.append(state)
            else:
                missing[state.partition] = spec
        for state in undefined:
            self._fail(state, NoOffset([state.partition]))
        if not missing:
            return True
        generations = {p: self._subscription[p].generation for p in missing}
        listed_offsets = await self._list_offsets(missing)
        complete = True
        for partition, offset in listed_offsets.items():
            state_now = self._subscription.get(partition)
            if state_now is None or state_now.generation != generations[partition]:
                continue
            if isinstance(offset, ListedOffset):
                # A search by time that finds no record continues at the end.
                if offset.offset < 0 and missing[partition] >= 0:
                    state_now.reset = LATEST
                    complete = False
                else:
                    state_now.seek(max(offset.offset, 0))
            elif offset.code.retriable:
                complete = False
                self._stale = True
            else:
                self._fail(state_now, offset)
        self.arrival.set()
        return complete

    async def _list_offsets(
        self, specs: dict[TopicPartition, int]
    ) -> dict[TopicPartition, ListedOffset | KafkaError]:
        deadline = self._cluster.deadline(self._config.request_timeout_ms)
        return await list_offsets(self._cluster, specs, deadline, isolation=self._isolation)

    async def _check(self) -> bool:
        """Check positions at new leaders for truncation; return whether all are checked."""
        by_leader: dict[BrokerId, list[TopicPartitionState]] = defaultdict(list)
        for state in self._subscription:
            metadata = self._cluster.partition(state.partition)
            if state.unchecked and metadata is not None and metadata.leader is not None:
                by_leader[metadata.leader].append(state)
        complete = True
        for leader, states in by_leader.items():
            complete = await self._check_at(leader, states) and complete
        return complete

    async def _check_at(self, leader: BrokerId, states: list[TopicPartitionState]) -> bool:
        peer = await self._cluster.peer(leader)
        # A seek meanwhile leaves nothing to check: without an epoch, the leader's response would
        # look like a truncation.
        states = [state for state in states if state.unchecked]
        if not states:
            return True
        new = versions.request(
            ApiKey.OFFSET_FOR_LEADER_EPOCH, peer.version(ApiKey.OFFSET_FOR_LEADER_EPOCH)
        )
        topics: dict[str, list[Any]] = defaultdict(list)
        requests: dict[TopicPartition, tuple[TopicPartitionState, int, int]] = {}
        for state in states:
            metadata = self._cluster.partition(state.partition)
            leader_epoch = -1 if metadata is None else metadata.leader_epoch
            requests[state.partition] = state, state.generation, leader_epoch
            topics[state.partition.topic].append(
                new.topics.partitions(
                    partition=state.partition.partition,
                    current_leader_epoch=leader_epoch,
                    leader_epoch=state.epoch,
                )
            )
        response = await peer.call(
            new(
                replica_id=-1,
                topics=[new.topics(topic=name, partitions=of) for name, of in topics.items()],
            )
        )
        results = {
            TopicPartition(t.topic, p.partition): p for t in response.topics for p in t.partitions
        }
        complete = True
        for partition, (state, generation, leader_epoch) in requests.items():
            p = results.get(partition)
            if state.generation != generation:
                continue
            if p is None or p.error_code.retriable or p.error_code in _ASK_AGAIN:
                complete, self._stale = False, True
            elif p.error_code != ErrorCode.none:
                self._fail(state, KafkaError(p.error_code))
            else:
                state.checked_epoch = leader_epoch
                state.unchecked = False
                self._compare(state, OffsetAndEpoch(p.end_offset, p.leader_epoch))
        return complete

    def _compare(self, state: TopicPartitionState, end: OffsetAndEpoch) -> None:
        """Handle truncation: `end` is where the leader's log of our epoch ends, -1 if it has none
        that old.
        """
        assert state.position is not None
        has_end = end.offset >= 0 and end.epoch >= 0
        if has_end and end.offset >= state.position:
            return
        reset = self._default_reset()
        if reset is None:
            diverged = end if has_end else None
            self._fail(state, LogTruncated(state.partition, state.position, diverged))
        elif has_end:
            _logger.warning("%s was truncated to offset %d", state.partition, end.offset)
            state.seek(end.offset, end.epoch)
        else:
            _logger.warning("%s lost offset %d", state.partition, state.position)
            state.seek_by(reset)
            self._work.set()

    def _fail(self, state: TopicPartitionState, error: Exception) -> None:
        state.error = error
        self.arrival.set()

    # Fetching

    def _start_sources(self) -> None:
        for state in self._subscription:
            metadata = self._cluster.partition(state.partition)
            if metadata is not None and metadata.leader is not None:
                self._start_source(state.source(metadata.leader, self._loop.time()))
        self.wake()

    def _start_source(self, node: BrokerId) -> None:
        if node not in self._sources:
            source = self._sources[node] = _Source(node)
            assert self._tasks is not None
            source.task = self._tasks.create_task(self._keep_fetching(source))

    async def _keep_fetching(self, source: _Source) -> None:
        tries = 0
        while True:
            source.wake.clear()
            positions = self._positions_to_fetch(source.node)
            if not positions:
                await source.wake.wait()
                continue
            try:
                await self._fetch(source, positions)
                tries = 0
            except (OSError, KafkaError, ProtocolError) as error:
                _logger.debug("fetch from broker %d: %s", source.node, error)
                source.session.handle_error()
                for partition in positions:
                    if (state := self._subscription.get(partition)) is not None:
                        self._leave_near(state, source.node)
                if _is_final(error):
                    for partition in positions:
                        if (state := self._subscription.get(partition)) is not None:
                            self._fail(state, error)
                tries += 1
                self._ask_for_metadata()
                await self._cluster.pause(tries)

    def _positions_to_fetch(self, node: BrokerId) -> dict[TopicPartition, FetchPosition]:
        now = self._loop.time()
        positions = {}
        for state in self._subscription:
            if not state.is_fetchable(now, FETCHES_AHEAD):
                continue
            metadata = self._cluster.partition(state.partition)
            if (
                metadata is not None
                and metadata.leader is not None
                and state.source(metadata.leader, now) == node
            ):
                positions[state.partition] = FetchPosition(
                    self._cluster.topics[state.partition.topic].id,
                    state.fetch_offset,
                    metadata.leader_epoch,
                    self._config.max_partition_fetch_bytes,
                )
        return positions

    async def _fetch(self, source: _Source, positions: dict[TopicPartition, FetchPosition]) -> None:
        """Fetch once and handle the response; then wait for the throttle time."""
        # Taken together with `positions`: positions may change while a connection is made.
        generations = {p: self._subscription[p].generation for p in positions}
        peer = await self._cluster.peer(source.node)
        by_name = any(w.topic_id is None for w in positions.values())
        at_most = FETCH_BY_TOPIC_ID - 1 if by_name else 1 << 15
        version = peer.version(ApiKey.FETCH, at_most)
        request = source.session.build(positions)
        new = versions.request(ApiKey.FETCH, version)
        response = await peer.call(self._request(new, request))
        code = getattr(response, "error_code", ErrorCode.none)
        if code in _SESSION_LOST:
            source.session.handle_error(forget=code == ErrorCode.fetch_session_id_not_found)
            return
        if code != ErrorCode.none:
            raise KafkaError(code)
        source.session.handle_response(getattr(response, "session_id", 0))
        names = {w.topic_id: p.topic for p, w in positions.items()}
        for topic in response.responses:
            name = names.get(topic.topic_id) if version >= FETCH_BY_TOPIC_ID else topic.topic
            for p in topic.partitions:
                partition = TopicPartition(name or "", p.partition_index)
                state = self._subscription.get(partition)
                if state is None or generations.get(partition) != state.generation:
                    continue
                # A former leader may have returned the same records while this fetch was in flight.
                if positions[partition].offset == state.fetch_offset:
                    self._take(state, p, source.node)
        throttle: datetime.timedelta = response.throttle_time
        if throttle:
            # The throttle ends with the connection: a broker that restarted no longer throttles.
            await asyncio.wait([peer.closed], timeout=throttle.total_seconds())

    def _request(self, new: Any, request: SessionRequest) -> Any:
        config = self._config
        topics: dict[tuple[str, UUID | None], list[Any]] = defaultdict(list)
        for partition, positions in request.partitions.items():
            topics[partition.topic, positions.topic_id].append(
                new.topics.partitions(
                    partition=partition.partition,
                    current_leader_epoch=positions.current_leader_epoch,
                    fetch_offset=positions.offset,
                    partition_max_bytes=positions.max_bytes,
                )
            )
        forgotten: dict[tuple[str, UUID | None], list[int]] = defaultdict(list)
        for partition, id in request.forgotten.items():
            forgotten[partition.topic, id].append(partition.partition)
        return new(
            replica_id=-1,
            max_wait=datetime.timedelta(milliseconds=config.fetch_max_wait_ms),
            min_bytes=config.fetch_min_bytes,
            max_bytes=config.fetch_max_bytes,
            isolation_level=self._isolation,
            session_id=request.session_id,
            session_epoch=request.epoch,
            topics=[
                new.topics(topic=name, topic_id=id, partitions=of)
                for (name, id), of in topics.items()
            ],
            forgotten_topics_data=[
                new.forgotten_topics_data(topic=name, topic_id=id, partitions=of)
                for (name, id), of in forgotten.items()
            ],
            rack_id=config.client_rack,
        )

    def _take(self, state: TopicPartitionState, p: Any, node: BrokerId) -> None:
        """Handle the response of one partition."""
        code = p.error_code
        if code == ErrorCode.none:
            near = getattr(p, "preferred_read_replica", -1)
            if near >= 0:
                self._go_near(state, near)
                return
            state.out_of_range_since = None
            state.high_watermark = p.high_watermark
            state.last_stable_offset = getattr(p, "last_stable_offset", -1)
            state.log_start_offset = getattr(p, "log_start_offset", -1)
            if not p.records:
                return
            aborted = [
                AbortedProducer(a.first_offset, a.producer_id)
                for a in p.aborted_transactions or ()
                if self._isolation == READ_COMMITTED
            ]
            try:
                completed = CompletedFetch(
                    state.partition,
                    state.fetch_offset,
                    p.records,
                    aborted=aborted,
                    check_crcs=self._config.check_crcs,
                )
            except ProtocolError as error:
                self._fail(state, error)
                return
            state.add_fetch(completed)
            self.arrival.set()
        elif code in _ASK_AGAIN:
            _logger.debug("fetching %s: %s", state.partition, code.name)
            if not self._leave_near(state, node) and code == ErrorCode.not_leader_or_follower:
                self._cluster.doubt(node)  # it may still name itself
            self._hold_back(state)
            self._ask_for_metadata()
        elif code == ErrorCode.offset_out_of_range:
            # A replica may not have it yet, or no longer; only the leader's range is authoritative.
            if not self._leave_near(state, node):
                self._out_of_range(state, node)
        else:
            self._fail(state, KafkaError(code, f"fetching {state.partition}"))

    def _go_near(self, state: TopicPartitionState, node: BrokerId) -> None:
        _logger.debug("%s is fetched from broker %d, which is near", state.partition, node)
        state.near = node
        state.near_until = self._loop.time() + self._config.metadata_max_age_ms / 1000
        self._start_source(node)
        self.wake()
        # Sources sleep while there is nothing to fetch from them.
        self._loop.call_at(state.near_until + 0.001, self.wake)

    def _leave_near(self, state: TopicPartitionState, node: BrokerId) -> bool:
        """Return to the leader if the partition is fetched from replica `node`; return whether it
        was.
        """
        if state.near != node:
            return False
        state.near = None
        self.wake()
        return True

    def _out_of_range(self, state: TopicPartitionState, leader: BrokerId) -> None:
        if state.completed_fetches:
            # Earlier fetches are read first; then the fetch is retried.
            self._hold_back(state)
            return
        if state.out_of_range_since is None:
            state.out_of_range_since = self._asked
        if state.out_of_range_since >= self._answered:
            # Others are asked first for the leader: if this one is partitioned from the cluster, a
            # later leader may have the offset. A reset would read everything again.
            self._cluster.doubt(leader)
            self._hold_back(state)
            self._ask_for_metadata()
            return
        reset = self._default_reset()
        if reset is None:
            self._fail(
                state,
                KafkaError(
                    ErrorCode.offset_out_of_range,
                    f"Fetch position {state.fetch_offset} is out of range for partition"
                    f" {state.partition}",
                ),
            )
            return
        _logger.info("offset %d of %s is out of range", state.fetch_offset, state.partition)
        state.seek_by(reset)
        self._work.set()

    def _hold_back(self, state: TopicPartitionState) -> None:
        pause = self._cluster.backoff(1)
        state.not_before = self._loop.time() + pause
        self._loop.call_later(pause + 0.001, self.wake)

    def _ask_for_metadata(self) -> None:
        self._stale = True
        self._work.set()


def _is_final(error: Exception) -> bool:
    """Whether the same fetch would fail again, so that the reader has to see the error."""
    if isinstance(error, KafkaError):
        return not error.code.retriable and error.code != ErrorCode.broker_not_available
    return isinstance(error, ProtocolError)
