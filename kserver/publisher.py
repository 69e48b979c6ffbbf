"""What the controller says, brought to the parts of this broker.

    LeaderAndIsr     partitions are hosted, led or followed; coordinators load what is led now
    StopReplica      partitions are hosted no longer, and deleted where it says so
    UpdateMetadata   clients are told of these brokers, leaders and topics

A message of an older controller epoch than was seen is refused, and so is one that was meant for an
earlier registration of this broker; leader epochs and topic ids are judged for each partition.
Messages are taken one by one, in the order in which they come.

(Kafka: KafkaApis.handleLeaderAndIsrRequest and its kin; BrokerMetadataPublisher.)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Any

from kserver.controller.config_manager import ConfigManager
from kserver.coordinator.runtime import CoordinatorRuntime
from kserver.errors import ErrorCode
from kserver.metadata import MetadataCache
from kserver.replica.manager import ReplicaManager
from kserver.wire.control import (
    DURING_DELETION,
    FULL,
    NO_BROKER_EPOCH,
    ControlMessage,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)

log = logging.getLogger(__name__)


class MetadataPublisher:
    """`broker_epoch` gives that of the present registration."""

    def __init__(
        self,
        metadata: MetadataCache,
        configs: ConfigManager,
        replicas: ReplicaManager,
        coordinators: Collection[CoordinatorRuntime[Any]],
        broker_epoch: Callable[[], int],
    ) -> None:
        self._metadata = metadata
        self._configs = configs
        self._replicas = replicas
        self._coordinators = coordinators
        self._broker_epoch = broker_epoch
        self._turn = asyncio.Lock()
        self.has_metadata = asyncio.Event()
        """Set once the controller has told of the cluster."""
        self.controller_epoch = 0
        """The highest that was seen."""

    async def publish(
        self, request: LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest
    ) -> ControlMessage:
        """Returns the answer; what it says is in force then."""
        async with self._turn:
            error = self._refusal(request)
            if isinstance(request, LeaderAndIsrRequest):
                return await self._leader_and_isr(request, error)
            if isinstance(request, StopReplicaRequest):
                return self._stop_replica(request, error)
            return await self._update_metadata(request, error)

    def _refusal(
        self, request: LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest
    ) -> ErrorCode:
        if request.broker_epoch != NO_BROKER_EPOCH and request.broker_epoch < self._broker_epoch():
            return ErrorCode.stale_broker_epoch
        if request.controller_epoch < self.controller_epoch:
            log.warning(
                "%s of controller %d was refused: its epoch %d is older than %d",
                type(request).__name__,
                request.controller_id,
                request.controller_epoch,
                self.controller_epoch,
            )
            return ErrorCode.stale_controller_epoch
        self.controller_epoch = request.controller_epoch
        return ErrorCode.none

    async def _leader_and_isr(
        self, request: LeaderAndIsrRequest, error: ErrorCode
    ) -> LeaderAndIsrResponse:
        if error is not ErrorCode.none:
            return LeaderAndIsrResponse(error)
        await self._configs.learn([topic.topic_name for topic in request.topic_states])
        errors = self._replicas.become_leader_or_follower(
            request.topic_states, self._configs.topics, is_full=request.type == FULL
        )
        self._coordinate()
        return LeaderAndIsrResponse(ErrorCode.none, tuple(errors))

    def _stop_replica(self, request: StopReplicaRequest, error: ErrorCode) -> StopReplicaResponse:
        if error is not ErrorCode.none:
            return StopReplicaResponse(error)
        errors = self._replicas.stop_replicas(request.topic_states)
        self._coordinate()
        return StopReplicaResponse(ErrorCode.none, tuple(errors))

    async def _update_metadata(
        self, request: UpdateMetadataRequest, error: ErrorCode
    ) -> UpdateMetadataResponse:
        if error is ErrorCode.none:
            told = request.topic_states
            gone = {t.topic_name for t in told if t.partition_states[0].leader == DURING_DELETION}
            await self._configs.learn([t.topic_name for t in told if t.topic_name not in gone])
            self._metadata.update(self._metadata.current.updated(request, self._configs.topics))
            self._configs.forget(gone)
            self._coordinate()
            self.has_metadata.set()
        return UpdateMetadataResponse(error)

    def _coordinate(self) -> None:
        for coordinator in self._coordinators:
            coordinator.apply(self._metadata.current)
