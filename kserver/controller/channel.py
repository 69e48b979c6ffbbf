"""What one event of the controller says to the brokers, and how it reaches them.

Each broker is told, in this order, what it leads and follows (LeaderAndIsr), what to tell its
clients (UpdateMetadata), what it no longer hosts (StopReplica); one message of each, however many
partitions the event was about.  (Kafka: ControllerBrokerRequestBatch.)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Sequence
from typing import TypeAlias

from kserver.controller.context import ControllerContext, LiveBroker
from kserver.errors import KafkaError, ProtocolError
from kserver.metadata import PartitionInfo, TopicInfo
from kserver.model import BrokerId
from kserver.peer import Peer, PeerOptions
from kserver.wire import codec
from kserver.wire.control import (
    DELETED_EPOCH,
    DURING_DELETION,
    FULL,
    SECURITY_PROTOCOLS,
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

log = logging.getLogger(__name__)

RETRY_BACKOFF_S = 0.1

ControlRequest: TypeAlias = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest


class RequestBatch:
    def __init__(self, context: ControllerContext, controller: BrokerId) -> None:
        self._context = context
        self._controller = controller
        self._leaderships: dict[BrokerId, list[LeaderAndIsrTopicState]] = {}
        self._leaders: dict[BrokerId, set[BrokerId]] = {}
        self._metadata: list[UpdateMetadataTopicState] = []
        self._stopped: dict[BrokerId, list[StopReplicaTopicState]] = {}

    @property
    def has_topics(self) -> bool:
        return bool(self._metadata)

    def leads(
        self, topic: TopicInfo, partitions: Sequence[PartitionInfo], *, is_new: bool = False
    ) -> None:
        """These of the topic's partitions have new leaders, replicas or members in sync."""
        states: dict[BrokerId, list[LeaderAndIsrPartitionState]] = {}
        for p in partitions:
            state = LeaderAndIsrPartitionState(
                p.partition,
                self._context.epoch,
                p.leader,
                p.leader_epoch,
                p.isr,
                p.partition_epoch,
                p.replicas,
                is_new=is_new,
            )
            for broker in p.replicas:
                states.setdefault(broker, []).append(state)
                self._leaders.setdefault(broker, set()).add(p.leader)
        for broker, of_broker in states.items():
            self._leaderships.setdefault(broker, []).append(
                LeaderAndIsrTopicState(topic.name, topic.id, tuple(of_broker))
            )
        self.tells(topic, partitions)

    def tells(self, topic: TopicInfo, partitions: Sequence[PartitionInfo]) -> None:
        """Only what is told to clients has changed."""
        told = tuple(
            UpdateMetadataPartitionState(
                p.partition,
                self._context.epoch,
                p.leader,
                p.leader_epoch,
                p.isr,
                p.partition_epoch,
                p.replicas,
                tuple(r for r in p.replicas if r not in self._context.brokers),
            )
            for p in partitions
        )
        self._metadata.append(UpdateMetadataTopicState(topic.name, topic.id, told))

    def deletes(self, topic: TopicInfo) -> None:
        stopped: dict[BrokerId, list[StopReplicaPartitionState]] = {}
        for p in topic.partitions:
            state = StopReplicaPartitionState(p.partition, DELETED_EPOCH, True)
            for broker in p.replicas:
                stopped.setdefault(broker, []).append(state)
        for broker, of_broker in stopped.items():
            self._stopped.setdefault(broker, []).append(
                StopReplicaTopicState(topic.name, tuple(of_broker))
            )
        told = tuple(
            UpdateMetadataPartitionState(
                p.partition,
                self._context.epoch,
                DURING_DELETION,
                p.leader_epoch,
                p.isr,
                p.partition_epoch,
                p.replicas,
            )
            for p in topic.partitions
        )
        self._metadata.append(UpdateMetadataTopicState(topic.name, topic.id, told))

    def requests(
        self, broker: BrokerId, listener: str, *, full: bool = False
    ) -> list[ControlRequest]:
        """For one that is live, in order; `listener` is where brokers reach each other.  `full`:
        all that it hosts was named."""
        brokers, epoch = self._context.brokers, self._context.epoch
        broker_epoch = brokers[broker].epoch
        requests: list[ControlRequest] = []
        led = self._leaderships.get(broker, [])
        if led or full:
            requests.append(
                LeaderAndIsrRequest(
                    self._controller,
                    epoch,
                    tuple(led),
                    _addresses(self._leaders.get(broker, ()), brokers, listener),
                    broker_epoch,
                    FULL if full else 0,
                )
            )
        requests.append(
            UpdateMetadataRequest(
                self._controller,
                epoch,
                tuple(self._metadata),
                tuple(map(_told, brokers.values())),
                broker_epoch,
            )
        )
        if broker in self._stopped:
            requests.append(
                StopReplicaRequest(
                    self._controller, epoch, tuple(self._stopped[broker]), broker_epoch
                )
            )
        return requests


def _addresses(
    leaders: Collection[BrokerId], brokers: dict[BrokerId, LiveBroker], listener: str
) -> tuple[LeaderAndIsrLiveLeader, ...]:
    endpoints = {
        leader: brokers[leader].info.endpoints.get(listener)
        for leader in sorted(leaders)
        if leader in brokers
    }
    return tuple(
        LeaderAndIsrLiveLeader(leader, endpoint.host, endpoint.port)
        for leader, endpoint in endpoints.items()
        if endpoint is not None
    )


def _told(broker: LiveBroker) -> UpdateMetadataBroker:
    info = broker.info
    endpoints = tuple(
        UpdateMetadataEndpoint(e.port, e.host, e.listener, SECURITY_PROTOCOLS.index(e.protocol))
        for e in info.endpoints.values()
    )
    return UpdateMetadataBroker(info.id, endpoints, info.rack)


class BrokerChannel:
    """What one registration of a broker is told, in order and one at a time, each until it has
    answered.  (Kafka: ControllerChannelManager, RequestSendThread.)"""

    def __init__(self, broker: LiveBroker, listener: str, options: PeerOptions) -> None:
        self.broker = broker
        self._listener = listener
        self._options = options
        self._queue: asyncio.Queue[ControlRequest] = asyncio.Queue()

    def send(self, request: ControlRequest) -> None:
        self._queue.put_nowait(request)

    async def run(self) -> None:
        """Until it is cancelled."""
        peer: Peer | None = None
        try:
            while True:
                request = await self._queue.get()
                is_sent = False
                while not is_sent:
                    try:
                        if peer is None or not peer.is_open:
                            peer = await self._connect()
                        version = peer.version(request.api_key)
                        body = request.encode(version)
                        await peer.send(request.api_key, version, (body,))
                        is_sent = True
                    except (OSError, KafkaError, ProtocolError) as error:
                        log.warning(
                            "broker %d was not told of %s: %s",
                            self.broker.info.id,
                            codec.api_name(request.api_key),
                            error,
                        )
                        await asyncio.sleep(RETRY_BACKOFF_S)
        finally:
            if peer is not None:
                peer.close()

    async def _connect(self) -> Peer:
        endpoint = self.broker.info.endpoints.get(self._listener)
        if endpoint is None:
            raise ProtocolError(f"it has no listener {self._listener} (inter.broker.listener.name)")
        return await Peer.connect(endpoint.host, endpoint.port, self._options)
