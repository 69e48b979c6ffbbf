"""Elections that are requested, or due, although the present leaders may be healthy.

    trigger                                           which partitions              type
    ElectLeaders (KIP-460)                            those named, or all           either type
    /admin/preferred_replica_election, by old tools   those named, or all           preferred
    auto.leader.rebalance.enable, periodically        of a broker that leads too    preferred
                                                      few of its preferred ones
    unclean.leader.election.enable is set             without a leader, if it is    unclean
                                                      now enabled for them

PREFERRED returns leadership to the first replica if it is in sync; otherwise the present leader
stays.  UNCLEAN elects a leader for a partition without one, out of sync if necessary. (Kafka:
KafkaController.processReplicaLeaderElection, checkAndTriggerAutoLeaderRebalance.)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial

from kserver import znodes
from kserver.cluster_config.znode_store import not_controller
from kserver.config.broker import BrokerConfig
from kserver.controller.channel import ChannelManager
from kserver.controller.claimed_store import ClaimedStore
from kserver.controller.context import ControllerContext
from kserver.controller.election import elect_offline, elect_preferred
from kserver.controller.event_queue import ControllerState, Put
from kserver.controller.partition_states import PartitionStates
from kserver.controller.partitions import state_of
from kserver.errors import ErrorCode, KafkaError, StorageError
from kserver.metadata import PartitionInfo, TopicInfo
from kserver.model import NO_BROKER, BrokerId, ElectionType, LeaderAndIsr, TopicPartition
from kserver.world.zookeeper import Delete

log = logging.getLogger(__name__)

FIRST_LOOK_S = 5.0
"""Delay after a start before the first check of the leader balance."""


class LeaderElections:
    def __init__(
        self,
        context: ControllerContext,
        store: ClaimedStore,
        partitions: PartitionStates,
        channels: ChannelManager,
        config: Callable[[], BrokerConfig],
        put: Put,
    ) -> None:
        self._context = context
        self._store = store
        self._partitions = partitions
        self._channels = channels
        self._config = config
        self._put = put

    async def run(self) -> None:
        """Elect preferred leaders periodically, until cancelled."""
        await asyncio.sleep(FIRST_LOOK_S)
        while True:
            if self._config().auto_leader_rebalance_enable and self._context.is_active:
                self._put(ControllerState.AUTO_LEADER_BALANCE, self._rebalance)
            await asyncio.sleep(self._config().leader_imbalance_check_interval_seconds)

    async def elect(
        self, election: ElectionType, partitions: Collection[TopicPartition] | None
    ) -> dict[TopicPartition, KafkaError | None]:
        """Elect leaders of these, or of all, partitions.  Return None or an error for each.

        Errors are ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE,
        ELIGIBLE_LEADERS_NOT_AVAILABLE, UNKNOWN_TOPIC_OR_PARTITION, and INVALID_TOPIC_EXCEPTION for
        a topic that is being deleted. Raises NOT_CONTROLLER.
        """
        if not self._context.is_active:
            raise not_controller()
        keys = self._all() if partitions is None else list(partitions)
        results: dict[TopicPartition, KafkaError | None] = {}
        new_states: list[tuple[TopicInfo, PartitionInfo, LeaderAndIsr]] = []
        for key in keys:
            try:
                new_states.append(self._choose(election, key))
                results[key] = None
            except KafkaError as error:
                results[key] = error
        changed = await self._partitions.write(new_states)
        batch = self._channels.new_batch()
        batch.changes(changed)
        await self._channels.send_topics(batch)
        return results

    def _choose(
        self, election: ElectionType, key: TopicPartition
    ) -> tuple[TopicInfo, PartitionInfo, LeaderAndIsr]:
        context = self._context
        topic = context.topics.get(key.topic)
        if topic is None or not 0 <= key.partition < len(topic.partitions):
            text = "The partition does not exist."
            raise KafkaError(ErrorCode.unknown_topic_or_partition, text)
        if key.topic in context.deletions:
            raise KafkaError(ErrorCode.invalid_topic_exception, "The topic is being deleted")
        info = topic.partitions[key.partition]
        online, last = may_lead(context, key.topic, info), state_of(info, context.epoch)
        if election is ElectionType.PREFERRED:
            is_needed = info.leader != info.replicas[0]
            state = elect_preferred(info.replicas, last, online, context.epoch)
            code = ErrorCode.preferred_leader_not_available
        else:
            is_needed = info.leader not in context.online(key.topic, info)
            state = elect_offline(info.replicas, last, online, context.epoch, unclean=True)
            code = ErrorCode.eligible_leaders_not_available
        if not is_needed:
            text = "Leader election not needed for topic partition."
            raise KafkaError(ErrorCode.election_not_needed, text)
        if state is None:
            text = f"Failed to elect leader for partition {key}: no eligible replica is online"
            raise KafkaError(code, text)
        return topic, info, state

    def _all(self) -> list[TopicPartition]:
        return [
            TopicPartition(topic.name, info.partition)
            for topic in self._context.topics.values()
            for info in topic.partitions
        ]

    # Requests of old tools

    async def preferred_election_noted(self, data: bytes) -> None:
        """Elect the leaders that /admin/preferred_replica_election requests, and delete it."""
        try:
            partitions = znodes.decode_preferred_election(data)
        except StorageError as error:
            log.error("%s; removing the znode", error)
        else:
            log_failures(await self.elect(ElectionType.PREFERRED, partitions))
        await self._store.write([Delete(znodes.PREFERRED_ELECTION)])

    # Automatic rebalance

    async def _rebalance(self) -> None:
        partitions = to_give_back(
            self._context, self._config().leader_imbalance_per_broker_percentage
        )
        if partitions:
            log.info("electing the preferred leaders of %d partition(s)", len(partitions))
            log_failures(await self.elect(ElectionType.PREFERRED, partitions))

    # unclean.leader.election.enable

    def settings_changed(self, topics: Collection[str]) -> None:
        """React to changed configs of these topics, or of the brokers if `topics` is empty.

        The event is queued even if this broker is not the controller: it may be becoming it, and
        have read the old configs.  The event has its turn after that.
        """
        state = (
            ControllerState.TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE
            if topics
            else ControllerState.UNCLEAN_LEADER_ELECTION_ENABLE
        )
        self._put(state, partial(self._lead_what_nobody_leads, topics))

    async def _lead_what_nobody_leads(self, topics: Collection[str]) -> None:
        known = self._context.topics
        found: Iterable[TopicInfo] = (
            [known[name] for name in topics if name in known] if topics else known.values()
        )
        unled = [
            TopicPartition(topic.name, info.partition)
            for topic in found
            for info in topic.partitions
            if info.leader == NO_BROKER
        ]
        if unled:
            batch = self._channels.new_batch()
            batch.changes(await self._partitions.reconsider_some(unled))
            await self._channels.send_topics(batch)


def to_give_back(context: ControllerContext, percentage: int) -> list[TopicPartition]:
    """Return the partitions whose preferred leader is to be elected.

    A broker gets its partitions back if others lead more than `percentage` of those that it is
    preferred for.  Partitions being reassigned are left out: the end of the reassignment elects.
    """
    found: dict[BrokerId, list[tuple[TopicPartition, PartitionInfo]]] = {}
    for topic in context.topics.values():
        if topic.name not in context.deletions:
            for info in topic.partitions:
                key = TopicPartition(topic.name, info.partition)
                found.setdefault(info.replicas[0], []).append((key, info))
    to_elect: list[TopicPartition] = []
    for preferred, placed in found.items():
        away = [(key, info) for key, info in placed if info.leader != preferred]
        if 100 * len(away) > percentage * len(placed):
            to_elect += [
                key
                for key, info in away
                if not info.adding
                and not info.removing
                and preferred in info.isr
                and preferred in may_lead(context, key.topic, info)
            ]
    return to_elect


def may_lead(context: ControllerContext, topic: str, info: PartitionInfo) -> list[BrokerId]:
    """Return its replicas that may be elected.  Brokers in a controlled shutdown are excluded."""
    online = context.online(topic, info)
    return [broker for broker in online if broker not in context.shutting_down]


def log_failures(results: Mapping[TopicPartition, KafkaError | None]) -> None:
    for key, error in results.items():
        if error is not None and error.code is not ErrorCode.election_not_needed:
            log.warning("%s: leader not changed: %s", key, error)
