"""What the controller says, brought to the parts of this broker.

    LeaderAndIsr     partitions are hosted, led or followed; coordinators load what is led now
    StopReplica      partitions are hosted no longer, and deleted where it says so
    UpdateMetadata   clients are told of these brokers, leaders and topics

A message of an older controller epoch than was seen is refused, one of another controller in the
same epoch, and one that was meant for an earlier registration of this broker; leader epochs and
topic ids are judged for each partition.
Messages are taken one by one, in the order in which they come.

(Kafka: KafkaApis.handleLeaderAndIsrRequest and its kin; BrokerMetadataPublisher.)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from types import MappingProxyType
from uuid import UUID

from kserver.cluster_config.config_manager import ConfigManager
from kserver.errors import ErrorCode
from kserver.metadata import ClusterMetadata, MetadataCache
from kserver.model import NO_BROKER, BrokerId, TopicPartition
from kserver.peers import FollowsMetadata
from kserver.replica.manager import ReplicaManager
from kserver.wire.control import (
    DURING_DELETION,
    FULL,
    NO_BROKER_EPOCH,
    ControlMessage,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    LeaderAndIsrTopicState,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)

log = logging.getLogger(__name__)


class MetadataPublisher:
    """`followers` act on each new image, and on each change of what is led here; `broker_epoch`
    gives that of the present registration."""

    def __init__(
        self,
        metadata: MetadataCache,
        configs: ConfigManager,
        replicas: ReplicaManager,
        followers: Collection[FollowsMetadata],
        broker_id: BrokerId,
        broker_epoch: Callable[[], int],
    ) -> None:
        self._broker_id = broker_id
        self._metadata = metadata
        self._configs = configs
        self._replicas = replicas
        self._followers = followers
        self._broker_epoch = broker_epoch
        self._turn = asyncio.Lock()
        self.has_metadata = asyncio.Event()
        """Set once the controller has told of the cluster, and of this broker's part in it."""
        self._knows_cluster = False
        self.controller_epoch = 0
        """The highest that was seen."""
        self._sender = NO_BROKER
        """The controller of that epoch."""
        self._metadata_epoch = 0
        """That of the controller who last told of topics."""
        self._roles_epoch = NO_BROKER_EPOCH
        """The registration for which the controller last told of roles."""

    @property
    def knows_topics(self) -> bool:
        """Whether a topic that is not in the metadata is none: Apache's controller, when it is new,
        says what is led here before it says what topics there are."""
        return self._metadata_epoch == self.controller_epoch

    @property
    def knows_roles(self) -> bool:
        """Whether the controller has told of them since this broker was registered.  Before, it may
        have given to another what was led here."""
        return self._roles_epoch == self._broker_epoch()

    def controller_is(self, broker: BrokerId) -> None:
        """What ZooKeeper says before the controller does.  NO_BROKER: this broker is it no longer,
        and clients are told that there is none, for an Admin that is sent to one that refuses asks
        it again.  They are told of the next one at once, for librdkafka asks twice, and then waits
        until its request times out."""
        image = self._metadata.current
        if broker == NO_BROKER:
            is_news = image.controller == self._broker_id
        else:
            is_news = image.controller == NO_BROKER and broker in image.brokers
        if is_news:
            self._metadata.update(replace(image, controller=broker))
            self._tell()

    async def publish(
        self, request: LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest
    ) -> ControlMessage:
        """Returns the answer; what it says is in force then."""
        # What ZooKeeper has to be asked for is asked before the turn, which nobody is to wait for.
        await self._learn(request)
        async with self._turn:
            error = self._refusal(request)
            if isinstance(request, LeaderAndIsrRequest):
                return await self._leader_and_isr(request, error)
            if isinstance(request, StopReplicaRequest):
                return await self._stop_replica(request, error)
            return await self._update_metadata(request, error)

    async def _learn(
        self, request: LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest
    ) -> None:
        """The settings of topics that are new here."""
        if isinstance(request, LeaderAndIsrRequest):
            await self._configs.learn({t.topic_name: t.topic_id for t in request.topic_states})
        elif isinstance(request, UpdateMetadataRequest):
            there = {
                topic.topic_name: topic.topic_id
                for topic in request.topic_states
                if topic.partition_states[0].leader != DURING_DELETION
            }
            await self._configs.learn(there)

    def _refusal(
        self, request: LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest
    ) -> ErrorCode:
        if request.broker_epoch != NO_BROKER_EPOCH and request.broker_epoch < self._broker_epoch():
            return ErrorCode.stale_broker_epoch
        if request.controller_epoch < self.controller_epoch:
            log.warning(
                "%s from controller %d refused: its epoch %d is older than %d",
                type(request).__name__,
                request.controller_id,
                request.controller_epoch,
                self.controller_epoch,
            )
            return ErrorCode.stale_controller_epoch
        if request.controller_epoch > self.controller_epoch:
            self.controller_epoch = request.controller_epoch
            self._sender = request.controller_id
        elif self._sender not in (NO_BROKER, request.controller_id):
            log.warning(
                "%s from controller %d refused: controller %d has epoch %d",
                type(request).__name__,
                request.controller_id,
                self._sender,
                self.controller_epoch,
            )
            return ErrorCode.invalid_request
        return ErrorCode.none

    async def _leader_and_isr(
        self, request: LeaderAndIsrRequest, error: ErrorCode
    ) -> LeaderAndIsrResponse:
        if error is not ErrorCode.none:
            return LeaderAndIsrResponse(error)
        await self._learn(request)
        if request.type == FULL:
            self._replicas.drop_unnamed(request.topic_states)
        # A log that is being cut gets its role afterwards, and nobody else waits for that.
        later = set(self._replicas.being_cut(_partitions(request)))
        errors = self._become(request, _partitions(request) - later)
        if later:
            self._tell()
            await self._replicas.cuts_ended(later)
            errors += self._become(request, later)
        self._roles_epoch = max(request.broker_epoch, self._broker_epoch())
        self._note_told()
        self._tell()
        return LeaderAndIsrResponse(ErrorCode.none, _merged(errors))

    def _become(
        self, request: LeaderAndIsrRequest, partitions: Collection[TopicPartition]
    ) -> list[LeaderAndIsrTopicError]:
        states: list[LeaderAndIsrTopicState] = []
        for topic in request.topic_states:
            own = tuple(
                state
                for state in topic.partition_states
                if (topic.topic_name, state.partition_index) in partitions
            )
            if own:
                states.append(replace(topic, partition_states=own))
        return self._replicas.become_leader_or_follower(states, self._configs.topics)

    async def _stop_replica(
        self, request: StopReplicaRequest, error: ErrorCode
    ) -> StopReplicaResponse:
        if error is not ErrorCode.none:
            return StopReplicaResponse(error)
        await self._replicas.cuts_ended(_partitions(request))
        errors = self._replicas.stop_replicas(request.topic_states)
        if any(p.delete_partition for t in request.topic_states for p in t.partition_states):
            await self._replicas.forget_deleted()
        self._tell()
        return StopReplicaResponse(ErrorCode.none, tuple(errors))

    async def _update_metadata(
        self, request: UpdateMetadataRequest, error: ErrorCode
    ) -> UpdateMetadataResponse:
        if error is ErrorCode.none:
            await self._learn(request)
            told = request.topic_states
            gone = {t.topic_name for t in told if t.partition_states[0].leader == DURING_DELETION}
            before = self._metadata.current
            self._metadata.update(self._with_own(before.updated(request, self._configs.topics)))
            if told or request.type == FULL:
                self._metadata_epoch = request.controller_epoch
            if request.type == FULL:
                gone |= before.topics.keys() - self._metadata.current.topics.keys()
            self._configs.forget(gone)
            self._tell()
            self._knows_cluster = True
            self._note_told()
        return UpdateMetadataResponse(error)

    def _with_own(self, image: ClusterMetadata) -> ClusterMetadata:
        """Where this broker itself is reached it knows best: what the controller tells may be older
        than its last change."""
        own = self._metadata.current.brokers.get(self._broker_id)
        if own is None or self._broker_id not in image.brokers:
            return image
        return replace(image, brokers=MappingProxyType({**image.brokers, own.id: own}))

    def _note_told(self) -> None:
        """Of the cluster a broker is told first, so that it finds the leaders that it follows; one
        that hosts nothing may be told of no roles."""
        if self.has_metadata.is_set() or not self._knows_cluster:
            return
        topics = self._metadata.current.topics.values()
        if self._roles_epoch != NO_BROKER_EPOCH or not any(
            self._broker_id in p.replicas for topic in topics for p in topic.partitions
        ):
            self.has_metadata.set()

    def _tell(self) -> None:
        for follower in self._followers:
            follower.apply(self._metadata.current)


def _merged(errors: Sequence[LeaderAndIsrTopicError]) -> tuple[LeaderAndIsrTopicError, ...]:
    """Each topic once."""
    merged: dict[tuple[str, UUID], LeaderAndIsrTopicError] = {}
    for topic in errors:
        known = merged.get(key := (topic.topic_name, topic.topic_id))
        before = () if known is None else known.partition_errors
        merged[key] = replace(topic, partition_errors=before + topic.partition_errors)
    return tuple(merged.values())


def _partitions(request: LeaderAndIsrRequest | StopReplicaRequest) -> set[TopicPartition]:
    return {
        TopicPartition(topic.topic_name, state.partition_index)
        for topic in request.topic_states
        for state in topic.partition_states
    }
