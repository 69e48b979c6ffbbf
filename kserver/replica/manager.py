"""The partitions that this broker hosts, in the roles that the controller assigns.

    become_leader_or_follower   LeaderAndIsr: roles are assigned, followers get a fetcher
    fetched_by                  a follower's Fetch: the high watermark may rise
    purgatory.check             after each such change: requests that wait may be answered

`run` is the group commit of partitions with `flush.before.ack`: while one round of fsyncs runs,
appends go on, and all that were appended meanwhile share the next round.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from uuid import UUID

from kserver.config.broker import BrokerConfig
from kserver.config.topic import TopicConfig
from kserver.errors import ErrorCode, KafkaError, NoRoom, StorageError
from kserver.log.manager import LogManager
from kserver.metadata import ClusterMetadata, MetadataCache, PartitionInfo
from kserver.metrics.meters import AllTopics, ReplicationMeters
from kserver.model import NO_BROKER, NO_EPOCH, BrokerId, Offset, TopicPartition
from kserver.peers.node_to_controller import NodeToControllerChannel
from kserver.replica.alter_partition import AlterPartitionManager
from kserver.replica.fetch_session import FetchPartition
from kserver.replica.fetcher import FetcherContext
from kserver.replica.fetcher_manager import ReplicaFetcherManager
from kserver.replica.isr import SessionClock
from kserver.replica.offline import OfflinePartitions
from kserver.replica.partition import Partition, PartitionContext
from kserver.replica.purgatory import Purgatory
from kserver.replica.selector import ReplicaView, nearest
from kserver.replica.throttle import ReplicationQuota, is_listed
from kserver.wire.control import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrTopicError,
    LeaderAndIsrTopicState,
    StopReplicaPartitionError,
    StopReplicaPartitionState,
    StopReplicaTopicState,
)
from kserver.world.clock import Clock

log = logging.getLogger(__name__)

MIN_WATCH_S = 0.1
"""Minimum time between two checks for lagging followers."""
_RETRY_S = 1.0
"""Pause after a full disk refused something."""


class ReplicaManager:
    def __init__(
        self,
        broker_id: BrokerId,
        config: Callable[[], BrokerConfig],
        logs: LogManager,
        metadata: MetadataCache,
        purgatory: Purgatory,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        to_controller: NodeToControllerChannel,
        broker_epoch: Callable[[], int],
    ) -> None:
        self._broker_id = broker_id
        self.meters = ReplicationMeters()
        now = config()
        windows = now.replication_quota_window_num, now.replication_quota_window_size_seconds * 1000
        self._leader_quota = ReplicationQuota(now.leader_replication_throttled_rate, *windows)
        self._follower_quota = ReplicationQuota(now.follower_replication_throttled_rate, *windows)
        self.fetchers = ReplicaFetcherManager(
            FetcherContext(
                broker_id,
                broker_epoch,
                config,
                metadata,
                clock,
                loop,
                self._follower_quota,
                self.meters,
                purgatory.check,
            )
        )
        self._alterations = AlterPartitionManager(
            broker_id, broker_epoch, to_controller, self._isr_decided, self.meters
        )
        self._context = PartitionContext(
            broker_id,
            now_ms=lambda: int(loop.time() * 1000),
            is_live=lambda broker: broker in metadata.current.brokers,
            lag_max_ms=config().replica_lag_time_max_ms,
            lag_max_messages=config().replica_lag_max_messages,
        )
        self._config = config
        self._logs = logs
        self._metadata = metadata
        self._purgatory = purgatory
        self.topics = AllTopics()
        """Meters of each hosted topic."""
        self._overrides: dict[str, Mapping[str, str]] = {}
        """Config overrides of each hosted topic's logs, as the metadata image has them."""
        logs.on_offline = self._went_offline
        self._offline = OfflinePartitions()
        self._wants_room = asyncio.Event()
        self._unflushed: dict[Partition, None] = {}
        self._has_unflushed = asyncio.Event()
        self._by_topic: dict[str, dict[int, Partition]] = {}
        self.partitions: dict[tuple[str | None, int], Partition] = {}
        """Hosted partitions by TopicPartition, which a plain tuple equals; (None, n), for a topic
        without a name here, is never found."""

    def get(self, topic: str, partition: int) -> Partition:
        """Return the hosted partition; raises KafkaError by where it exists, if anywhere."""
        hosted = self.partitions.get((topic, partition))
        if hosted is not None:
            return hosted
        topic_info = self._metadata.current.topics.get(topic)
        if topic_info is not None and 0 <= partition < len(topic_info.partitions):
            key = TopicPartition(topic, partition)
            if self._offline.has(key, topic_info.id):
                raise KafkaError(ErrorCode.kafka_storage_error, f"{topic}-{partition} is offline")
            raise KafkaError(ErrorCode.not_leader_or_follower)
        raise KafkaError(ErrorCode.unknown_topic_or_partition)

    @property
    def lost_leaders(self) -> frozenset[BrokerId]:
        """Leaders of followed partitions that seem to be down since a moment ago."""
        return self.fetchers.lost_leaders

    def is_offline(self, key: TopicPartition) -> bool:
        """Whether this broker cannot serve its replica: the disk failed or has no room."""
        hosted = self.partitions.get(key)
        return hosted is None or hosted.log.failure is not None

    def _went_offline(self, keys: Sequence[TopicPartition]) -> None:
        """Stop following these partitions, and fail the requests that wait on them."""
        loop = asyncio.get_running_loop()
        for key in keys:
            loop.call_soon(self._leave_failed, key)

    def _leave_failed(self, key: TopicPartition) -> None:
        hosted = self.partitions.get(key)
        # The future log of a move may have failed instead.
        if hosted is not None and hosted.log.failure is not None:
            self.fetchers.assign(hosted)
        self._purgatory.check(key)

    def truncating(self, keys: Collection[TopicPartition]) -> Collection[TopicPartition]:
        """Return those of these partitions whose log is being truncated."""
        return self.fetchers.truncating(keys).keys()

    async def truncations_ended(self, keys: Collection[TopicPartition]) -> None:
        """Wait until no log of these is being truncated; a new role or a deletion waits for it."""
        await self.fetchers.truncations_ended(keys)

    def drop_unnamed(self, topics: Sequence[LeaderAndIsrTopicState]) -> None:
        """Stop hosting all partitions except these, which are assigned here; keep the logs."""
        topic_ids = {
            (t.topic_name, p.partition_index): t.topic_id
            for t in topics
            for p in t.partition_states
        }
        for hosted in list(self.partitions.values()):
            if topic_ids.get(hosted.topic_partition) != hosted.topic_id:
                # Only StopReplica deletes: a partition that a controller omits is not lost.
                log.warning(
                    "%s: the controller's full LeaderAndIsr assigns no replica to this broker; its"
                    " log is kept but not served",
                    hosted.topic_partition,
                )
                self._drop(hosted, delete=False)

    def become_leader_or_follower(
        self,
        topics: Sequence[LeaderAndIsrTopicState],
        configs: Mapping[str, Mapping[str, str]],
    ) -> list[LeaderAndIsrTopicError]:
        """Host the partitions that the controller assigns, in their roles; `configs` are their
        overrides.

        Returns one error per partition (Kafka: ReplicaManager.becomeLeaderOrFollower):
        STALE_CONTROLLER_EPOCH for an older leader epoch, INCONSISTENT_TOPIC_ID,
        KAFKA_STORAGE_ERROR, UNKNOWN_TOPIC_OR_PARTITION if this broker is not a replica.
        """
        return [
            LeaderAndIsrTopicError(
                tuple(
                    LeaderAndIsrPartitionError(
                        state.partition_index, self._become(topic, state, configs)
                    )
                    for state in topic.partition_states
                ),
                topic.topic_name,
                topic.topic_id,
            )
            for topic in topics
        ]

    def _become(
        self,
        topic: LeaderAndIsrTopicState,
        state: LeaderAndIsrPartitionState,
        configs: Mapping[str, Mapping[str, str]],
    ) -> ErrorCode:
        key = TopicPartition(topic.topic_name, state.partition_index)
        if self._broker_id not in state.replicas:
            return ErrorCode.unknown_topic_or_partition
        hosted = self.partitions.get(key)
        if hosted is None:
            if self._offline.failed.get(key) == topic.topic_id:
                return ErrorCode.kafka_storage_error
            overrides = configs.get(topic.topic_name)
            if overrides is None:  # its znode is unreadable: retention is unknown
                return ErrorCode.kafka_storage_error
            others_lead = state.leader >= 0 and self._broker_id not in (state.leader, *state.isr)
            hosted = self._try_to_host(
                key,
                topic.topic_id,
                overrides,
                is_new=state.is_new,
                may_begin_empty=state.is_new or others_lead,
            )
            if hosted is None:
                return ErrorCode.kafka_storage_error
        elif hosted.topic_id != topic.topic_id:
            return ErrorCode.inconsistent_topic_id
        elif state.leader_epoch < hosted.epoch:
            return ErrorCode.stale_controller_epoch
        elif hosted.log.failure is not None:
            return ErrorCode.kafka_storage_error
        hosted.is_reassigning = bool(state.adding_replicas or state.removing_replicas)
        self._take_role(
            hosted,
            PartitionInfo(
                state.partition_index,
                state.leader,
                state.leader_epoch,
                state.replicas,
                state.isr,
                state.partition_epoch,
            ),
        )
        return ErrorCode.none

    def _take_role(self, hosted: Partition, info: PartitionInfo) -> None:
        hosted.take_role(info)
        self.fetchers.assign(hosted)
        # Requests that wait on a partition that is no longer led get an error.
        self._purgatory.check(hosted.topic_partition)

    def fetched_by(
        self,
        replica: BrokerId,
        broker_epoch: int,
        fetch_infos: Iterable[FetchPartition],
        session: SessionClock | None = None,
    ) -> None:
        """Record that a follower has everything before the offsets that it fetches.

        If that raises a high watermark, Produce responses that waited for it are sent.  `session`
        is the clock of its session, if any: partitions that it does not name count too.
        """
        for fetch_info in fetch_infos:
            partition = self.partitions.get((fetch_info.topic, fetch_info.partition))
            if partition is None or fetch_info.topic_id not in (None, partition.topic_id):
                continue
            before = partition.log.high_watermark, partition.begins_at(replica)
            # The read that follows refuses the same, and returns the error.
            with suppress(KafkaError):
                proposal = partition.fetched_by(
                    replica,
                    broker_epoch,
                    max(fetch_info.current_leader_epoch, NO_EPOCH),
                    fetch_info.offset,
                    fetch_info.last_fetched_epoch,
                    fetch_info.log_start_offset,
                    session,
                )
                if proposal is not None:
                    self._alterations.propose(partition, proposal)
            if (partition.log.high_watermark, partition.begins_at(replica)) != before:
                self._purgatory.check(partition.topic_partition)
        if session is not None:
            session.ms = self._context.now_ms()

    def left_sessions(self, replica: BrokerId, forgotten: Iterable[FetchPartition]) -> None:
        """Stop counting a follower's session for these partitions, which left the session."""
        for fetch_info in forgotten:
            partition = self.partitions.get((fetch_info.topic, fetch_info.partition))
            leader = None if partition is None else partition.leader
            if leader is not None and replica in leader.followers:
                leader.followers[replica].left_session()

    def holds_back(self, partition: Partition, replica: BrokerId) -> bool:
        """Whether a follower that is not in sync is throttled now."""
        leader = partition.leader
        return (
            self._is_throttled(partition)
            and (leader is None or replica not in leader.isr)
            and self._leader_quota.is_exceeded(self._context.now_ms())
        )

    def _is_throttled(self, partition: Partition) -> bool:
        return is_listed(
            partition.log.config.leader_replication_throttled_replicas,
            partition.topic_partition.partition,
            self._broker_id,
        )

    def sent(self, key: tuple[str | None, int], size: int) -> None:
        """Count `size` bytes of a partition that are sent to a follower."""
        self.meters.bytes_out += size
        partition = self.partitions.get(key)
        if partition is not None and self._is_throttled(partition):
            self._leader_quota.record(size, self._context.now_ms())

    @property
    def selects_replicas(self) -> bool:
        return self._config().replica_selector_class is not None

    def preferred(self, partition: Partition, offset: Offset, rack: str, listener: str) -> BrokerId:
        """Return the replica that a consumer in `rack` should read from; NO_BROKER: here."""
        leader, brokers = partition.leader, self._metadata.current.brokers
        if leader is None:
            return NO_BROKER
        candidates = [
            ReplicaView(id_, brokers[id_].rack, follower.end, follower.caught_up_ms)
            for id_, follower in leader.followers.items()
            if id_ in leader.isr
            and id_ in brokers
            and listener in brokers[id_].endpoints
            and follower.log_start_offset <= offset <= follower.end
        ]
        own = brokers.get(self._broker_id)
        replica = nearest(rack, self._broker_id, None if own is None else own.rack, candidates)
        return NO_BROKER if replica == self._broker_id else replica

    def _isr_decided(self, partition: Partition) -> None:
        partition.reconsider()
        self._purgatory.check(partition.topic_partition)

    async def _watch_followers(self) -> None:
        """Propose ISRs without followers that lag, and with those that have caught up (Kafka:
        ReplicaManager.maybeShrinkIsr)."""
        while True:
            await asyncio.sleep(max(self._config().replica_lag_time_max_ms / 2000, MIN_WATCH_S))
            self._check_followers()

    def _check_followers(self) -> None:
        for partition in list(self.partitions.values()):
            proposal = partition.isr_change()
            if proposal is not None:
                self._alterations.propose(partition, proposal)
            # A follower that was about to join may lag now, and no longer counts.
            before = partition.log.high_watermark
            partition.reconsider()
            if partition.log.high_watermark != before:
                self._purgatory.check(partition.topic_partition)

    def stop_replicas(
        self, topics: Sequence[StopReplicaTopicState]
    ) -> list[StopReplicaPartitionError]:
        """Stop hosting these partitions, and with `delete_partition` delete their logs.

        One error for each: FENCED_LEADER_EPOCH for an older leader epoch, KAFKA_STORAGE_ERROR for
        a log that cannot be deleted until its disk works (Kafka: ReplicaManager.stopReplicas).
        """
        return [
            StopReplicaPartitionError(
                topic.topic_name, state.partition_index, self._stop(topic.topic_name, state)
            )
            for topic in topics
            for state in topic.partition_states
        ]

    async def forget_deleted(self) -> None:
        """Remove deleted logs from the checkpoints; then logs of the same names can be created."""
        await self._logs.forget_deleted()

    def _stop(self, topic: str, state: StopReplicaPartitionState) -> ErrorCode:
        key = TopicPartition(topic, state.partition_index)
        hosted = self.partitions.get(key)
        if hosted is not None and 0 <= state.leader_epoch < hosted.epoch:
            return ErrorCode.fenced_leader_epoch
        stored = self._logs.get(key) if hosted is None else hosted.log
        is_offline = key in self._offline.failed or (
            stored is not None and stored.failure is not None
        )
        try:
            if hosted is not None:
                self._drop(hosted, delete=state.delete_partition)
            elif state.delete_partition:
                self._offline.note_deleted(key)
                # It may have been deleted while this broker was away.
                self._logs.delete(key)
        except StorageError:
            is_offline = True
        if not (is_offline and state.delete_partition):
            return ErrorCode.none
        if stored is not None and stored.topic_id is not None:
            self._offline.failed[key] = stored.topic_id
        return ErrorCode.kafka_storage_error

    def reconfigure(self, image: ClusterMetadata, changed: Collection[str]) -> None:
        """Apply the overrides in `image` to the logs of these topics, and the broker config to
        fetchers and quotas."""
        self.fetchers.resize()
        self._leader_quota.bound = self._config().leader_replication_throttled_rate
        self._follower_quota.bound = self._config().follower_replication_throttled_rate
        for name in changed:
            hosted, topic = self._by_topic.get(name), image.topics.get(name)
            if hosted and topic is not None and self._overrides.get(name) is not topic.config:
                # An unchanged topic keeps its mapping from one image to the next.
                self._overrides[name] = topic.config
                config = TopicConfig.stored(topic.config, self._config())
                for partition in hosted.values():
                    partition.log.reconfigure(config)

    def _try_to_host(
        self,
        key: TopicPartition,
        topic_id: UUID,
        overrides: Mapping[str, str],
        *,
        is_new: bool,
        may_begin_empty: bool = True,
    ) -> Partition | None:
        of_topic = self._by_topic.get(key.topic)
        if of_topic and self._overrides.get(key.topic) is overrides:
            config = next(iter(of_topic.values())).log.config
        else:
            config = TopicConfig.stored(overrides, self._config())
        try:
            hosted = self._host(
                key, topic_id, config, is_new=is_new, may_begin_empty=may_begin_empty
            )
        except StorageError as error:
            self._offline.add(key, topic_id, error)
            if isinstance(error, NoRoom):
                self._wants_room.set()
            return None
        self._overrides[key.topic] = overrides
        return hosted

    def _host(
        self,
        key: TopicPartition,
        topic_id: UUID,
        config: TopicConfig,
        *,
        is_new: bool,
        may_begin_empty: bool,
    ) -> Partition:
        partition_log = self._logs.get(key)
        if partition_log is not None and partition_log.topic_id not in (None, topic_id):
            # The topic was deleted while this broker was down, or the metadata store is older than
            # the logs.  Only StopReplica deletes a log, so keep it under another name.
            log.warning(
                "%s: its log has topic id %s, the cluster's topic id is %s; the log was renamed"
                " to %s",
                key,
                partition_log.topic_id,
                topic_id,
                self._logs.set_aside(key),
            )
            partition_log = None
        if partition_log is None:
            partition_log = self._logs.create(
                key, topic_id, config, is_new=is_new, may_begin_empty=may_begin_empty
            )
            self._offline.note_created(key)
        elif partition_log.topic_id is None:
            # A crash has torn partition.metadata.
            try:
                partition_log.write_topic_id(topic_id)
            except OSError as error:
                raise partition_log.failed(error) from error
        hosted = Partition(key, topic_id, partition_log, self._context, self.topics.of(key.topic))
        self.partitions[key] = hosted
        self._by_topic.setdefault(key.topic, {})[key.partition] = hosted
        return hosted

    def _drop(self, hosted: Partition, *, delete: bool) -> None:
        key = hosted.topic_partition
        del self.partitions[key]
        of_topic = self._by_topic[key.topic]
        del of_topic[key.partition]
        if not of_topic:
            del self._by_topic[key.topic]
            self._overrides.pop(key.topic, None)
            self.topics.forget(key.topic)
        hosted.leave()
        self.fetchers.assign(hosted)
        self._unflushed.pop(hosted, None)
        # Whoever waits on it finds it gone and is answered with an error.
        self._purgatory.check(key)
        if delete:
            self._logs.delete(key)

    @property
    def has_missing(self) -> bool:
        """Whether a partition is refused because its log is missing."""
        return bool(self._offline.missing)

    async def settle(self) -> None:
        """After a start, flush recovered records that may be in memory only, so that records which
        `flush.before.ack` had made visible are visible again.

        Logs that the cluster does not assign here are logged and kept: losing the metadata store
        must not lose the records.
        """
        strays = sorted(self._logs.logs.keys() - self.partitions.keys())
        for stray in strays:
            log.warning(
                "%s: no replica is assigned to this broker; its log %s is kept but not served",
                stray,
                self._logs.logs[stray].directory,
            )
        if strays and self._config().zookeeper_connect is None:
            log.warning(
                "the metadata store does not list %d log(s); if the store is older than the logs,"
                " stop the broker, move the store away and rebuild it with k storage rebuild",
                len(strays),
            )
        async with asyncio.TaskGroup() as group:
            for partition in self.partitions.values():
                if partition.committable < partition.log.log_end_offset:
                    group.create_task(self._flush(partition))
        self._logs.missing.keep(self._offline.missing)

    def flush_soon(self, partition: Partition) -> None:
        """Flush the partition's current records soon: a request waits for that."""
        self._unflushed[partition] = None
        self._has_unflushed.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._flush_all())
            tasks.create_task(self._host_when_space_frees())
            tasks.create_task(self.fetchers.run())
            tasks.create_task(self._alterations.run())
            tasks.create_task(self._watch_followers())

    async def _host_when_space_frees(self) -> None:
        while True:
            await self._wants_room.wait()
            self._wants_room.clear()
            await asyncio.sleep(_RETRY_S)
            self._host_waiting()

    def _host_waiting(self) -> None:
        topics = self._metadata.current.topics
        for key, topic_id in list(self._offline.waiting.items()):
            topic = topics.get(key.topic)
            if topic is None or topic.id != topic_id:
                del self._offline.waiting[key]
                continue
            hosted = self._try_to_host(key, topic_id, topic.config, is_new=True)
            if hosted is not None:
                self._take_role(hosted, topic.partitions[key.partition])

    async def _flush_all(self) -> None:
        while True:
            await self._has_unflushed.wait()
            self._has_unflushed.clear()
            await self._flush_round()  # a variable of this loop would keep a deleted log open

    async def _flush_round(self) -> None:
        round_, self._unflushed = self._unflushed, {}
        async with asyncio.TaskGroup() as group:
            for partition in round_:
                group.create_task(self._flush(partition))

    async def _flush(self, partition: Partition) -> None:
        flushed = partition.log
        try:
            await self._logs.flush(flushed)
        except NoRoom as error:
            self._logs.no_room(partition.log, error)
            asyncio.get_running_loop().call_later(_RETRY_S, self.flush_soon, partition)
            return
        except StorageError as error:
            if partition.log is not flushed:
                self.flush_soon(partition)  # it has moved to another directory
            else:
                log.error("%s: flush failed: %s", partition.topic_partition, error)
            return
        partition.reconsider()
        self._purgatory.check(partition.topic_partition)
