"""Requests of the controller, applied to the parts of this broker.

    LeaderAndIsr     partitions get their roles; coordinators load the ones that are led now
    StopReplica      partitions are no longer hosted, and are deleted if the request says so
    UpdateMetadata   brokers, leaders and topics that clients see

A request is rejected if its controller epoch is older than the latest, if another controller has
the same epoch, or if it is for an earlier registration of this broker.  Leader epochs and topic
ids are checked for each partition. Requests are applied one at a time, in the order of arrival.

(Kafka: KafkaApis.handleLeaderAndIsrRequest and similar; BrokerMetadataPublisher.)
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
from kserver.peers.peers import MetadataSubscriber
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
    """Applies the controller's requests.

    `subscribers` are parts of this broker: they handle each new image, and each change
    of the partitions led here.  `broker_epoch` returns the epoch of the current registration.
    """

    def __init__(
        self,
        metadata: MetadataCache,
        configs: ConfigManager,
        replicas: ReplicaManager,
        subscribers: Collection[MetadataSubscriber],
        broker_id: BrokerId,
        broker_epoch: Callable[[], int],
    ) -> None:
        self._broker_id = broker_id
        self._metadata = metadata
        self._configs = configs
        self._replicas = replicas
        self._subscribers = subscribers
        self._broker_epoch = broker_epoch
        self._turn = asyncio.Lock()
        self.knows_cluster = asyncio.Event()
        """Set once the controller has sent the cluster's metadata."""
        self.has_metadata = asyncio.Event()
        """Set once it has sent this broker's roles too."""
        self.controller_epoch = 0
        """Highest controller epoch received."""
        self._sender = NO_BROKER
        """Controller of that epoch."""
        self._metadata_epoch = 0
        """Controller epoch of the last UpdateMetadata with topics."""
        self._roles_epoch = NO_BROKER_EPOCH
        """Broker epoch of the last LeaderAndIsr."""

    @property
    def knows_topics(self) -> bool:
        """Whether a topic that is missing in the metadata does not exist.  A new controller of
        Apache Kafka sends LeaderAndIsr before it sends the topics."""
        return self._metadata_epoch == self.controller_epoch

    @property
    def knows_roles(self) -> bool:
        """Whether the controller has sent roles since this broker registered.  Before that, other
        brokers may have become leaders of its partitions."""
        return self._roles_epoch == self._broker_epoch()

    def controller_is(self, broker: BrokerId) -> None:
        """Update the controller that clients see, read from ZooKeeper before its first request
        arrives.

        NO_BROKER means that this broker is no longer the controller: clients see none, so that an
        Admin which gets NOT_CONTROLLER asks this broker again.  The next controller is shown at
        once, as librdkafka asks twice, and then waits until its request times out.
        """
        image = self._metadata.current
        if broker == NO_BROKER:
            is_news = image.controller == self._broker_id
        else:
            is_news = image.controller == NO_BROKER and broker in image.brokers
        if is_news:
            self._metadata.update(replace(image, controller=broker))
            self._notify()

    async def publish(
        self, request: LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest
    ) -> ControlMessage:
        """Apply the request, and return the response once it has taken effect."""
        # Read from ZooKeeper before taking the turn, so that other requests need not wait for it.
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
        """Read the configs of new topics."""
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
        # Partitions whose logs are being truncated get their roles last, so that others need not
        # wait.
        later = set(self._replicas.truncating(_partitions(request)))
        errors = self._become(request, _partitions(request) - later)
        if later:
            self._notify()
            await self._replicas.truncations_ended(later)
            errors += self._become(request, later)
        self._roles_epoch = max(request.broker_epoch, self._broker_epoch())
        self._set_has_metadata()
        self._notify()
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
        await self._replicas.truncations_ended(_partitions(request))
        errors = self._replicas.stop_replicas(request.topic_states)
        if any(p.delete_partition for t in request.topic_states for p in t.partition_states):
            await self._replicas.forget_deleted()
        self._notify()
        return StopReplicaResponse(ErrorCode.none, tuple(errors))

    async def _update_metadata(
        self, request: UpdateMetadataRequest, error: ErrorCode
    ) -> UpdateMetadataResponse:
        if error is ErrorCode.none:
            await self._learn(request)
            states = request.topic_states
            deleted = {
                t.topic_name for t in states if t.partition_states[0].leader == DURING_DELETION
            }
            before = self._metadata.current
            self._metadata.update(self._with_own(before.updated(request, self._configs.topics)))
            if states or request.type == FULL:
                self._metadata_epoch = request.controller_epoch
            if request.type == FULL:
                deleted |= before.topics.keys() - self._metadata.current.topics.keys()
            self._configs.forget(deleted)
            self._notify()
            self.knows_cluster.set()
            self._set_has_metadata()
        return UpdateMetadataResponse(error)

    def _with_own(self, image: ClusterMetadata) -> ClusterMetadata:
        """Keep the current endpoints of this broker, as the controller's may be older."""
        own = self._metadata.current.brokers.get(self._broker_id)
        if own is None or self._broker_id not in image.brokers:
            return image
        return replace(image, brokers=MappingProxyType({**image.brokers, own.id: own}))

    def _set_has_metadata(self) -> None:
        """Set `has_metadata` once both requests have arrived.  A broker gets the metadata first,
        with the leaders that it follows; one that hosts no partitions may get no LeaderAndIsr."""
        if self.has_metadata.is_set() or not self.knows_cluster.is_set():
            return
        topics = self._metadata.current.topics.values()
        if self._roles_epoch != NO_BROKER_EPOCH or not any(
            self._broker_id in p.replicas for topic in topics for p in topic.partitions
        ):
            self.has_metadata.set()

    def _notify(self) -> None:
        for subscriber in self._subscribers:
            subscriber.apply(self._metadata.current)


def _merged(errors: Sequence[LeaderAndIsrTopicError]) -> tuple[LeaderAndIsrTopicError, ...]:
    """Merge the errors of each topic."""
    merged: dict[tuple[str, UUID], LeaderAndIsrTopicError] = {}
    for topic in errors:
        merged_topic = merged.get(key := (topic.topic_name, topic.topic_id))
        before = () if merged_topic is None else merged_topic.partition_errors
        merged[key] = replace(topic, partition_errors=before + topic.partition_errors)
    return tuple(merged.values())


def _partitions(request: LeaderAndIsrRequest | StopReplicaRequest) -> set[TopicPartition]:
    return {
        TopicPartition(topic.topic_name, state.partition_index)
        for topic in request.topic_states
        for state in topic.partition_states
    }
