"""Requests to the brokers that result from one event of the controller.

Pure: changes go in, requests come out.  Each broker receives, in this order, its leaders and
followers (LeaderAndIsr), metadata for its clients (UpdateMetadata), and replicas to stop
(StopReplica); one request of each, however many partitions have changed.  A request names each
topic once, and each partition once, in its final state, as Apache Kafka's broker rejects a
LeaderAndIsr that names a topic twice.  The full state starts with UpdateMetadata, as Apache
Kafka's broker does not follow a leader that it does not know. (Kafka:
ControllerBrokerRequestBatch.)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, TypeVar

from kserver.controller.context import ControllerContext, LiveBroker
from kserver.controller.replicas import Replica
from kserver.metadata import PartitionInfo, TopicInfo
from kserver.model import BrokerId
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

Changes: TypeAlias = Sequence[tuple[TopicInfo, Sequence[PartitionInfo]]]
"""Changed partitions in their new state, with their topic in its old state."""
TopicState = TypeVar(
    "TopicState", LeaderAndIsrTopicState, UpdateMetadataTopicState, StopReplicaTopicState
)
ControlRequest: TypeAlias = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest


def followed_by(broker: BrokerId, changed: Changes) -> Changes:
    """Return the partitions that the broker followed before the change."""
    followed = [
        (topic, [p for p in partitions if topic.partitions[p.partition].leader != broker])
        for topic, partitions in changed
    ]
    return [(topic, partitions) for topic, partitions in followed if partitions]


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

    def changes(self, changed: Changes) -> None:
        """Add the changes returned by `PartitionStates`."""
        for topic, partitions in changed:
            self.leads(topic, partitions)

    def leads(
        self,
        topic: TopicInfo,
        partitions: Sequence[PartitionInfo],
        *,
        is_new: bool = False,
        new_on: Collection[BrokerId] = (),
    ) -> None:
        """Add partitions with new leaders, replicas or in-sync replicas."""
        self._leads(topic, partitions, None, is_new=is_new, new_on=new_on)
        self.add_metadata(topic, partitions)

    def query_states(
        self, broker: BrokerId, topic: TopicInfo, partitions: Sequence[PartitionInfo]
    ) -> None:
        """Add unchanged partitions: the broker's response shows which of them it can serve."""
        self._leads(topic, partitions, broker, is_new=False)

    def _leads(
        self,
        topic: TopicInfo,
        partitions: Sequence[PartitionInfo],
        only: BrokerId | None,
        *,
        is_new: bool,
        new_on: Collection[BrokerId] = (),
    ) -> None:
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
                p.adding,
                p.removing,
                is_new=is_new,
                leader_recovery_state=int(p.is_recovering),
            )
            for broker in p.replicas if only is None else (only,):
                placed = replace(state, is_new=True) if broker in new_on else state
                states.setdefault(broker, []).append(placed)
                self._leaders.setdefault(broker, set()).add(p.leader)
        for broker, of_broker in states.items():
            self._leaderships.setdefault(broker, []).append(
                LeaderAndIsrTopicState(topic.name, topic.id, tuple(of_broker))
            )

    def add_metadata(self, topic: TopicInfo, partitions: Sequence[PartitionInfo]) -> None:
        """Add partitions of which only the metadata for clients has changed."""
        partition_states = tuple(
            UpdateMetadataPartitionState(
                p.partition,
                self._context.epoch,
                p.leader,
                p.leader_epoch,
                p.isr,
                p.partition_epoch,
                p.replicas,
                tuple(
                    b for b in p.replicas if not self._context.is_online(b, topic.name, p.partition)
                ),
            )
            for p in partitions
        )
        self._metadata.append(UpdateMetadataTopicState(topic.name, topic.id, partition_states))

    def stops(self, broker: BrokerId, changed: Changes, *, delete: bool = False) -> None:
        """Add partitions that the broker stops to follow.  It keeps their logs, unless `delete` is
        set."""
        for topic, partitions in changed:
            stopped = tuple(
                StopReplicaPartitionState(p.partition, p.leader_epoch, delete) for p in partitions
            )
            self._stopped.setdefault(broker, []).append(StopReplicaTopicState(topic.name, stopped))

    def deletes(self, topic: TopicInfo, replicas: Iterable[Replica]) -> None:
        """Mark the topic as deleted for clients, and delete these replicas."""
        stopped: dict[BrokerId, list[StopReplicaPartitionState]] = {}
        for partition, broker in replicas:
            state = StopReplicaPartitionState(partition, DELETED_EPOCH, True)
            stopped.setdefault(broker, []).append(state)
        for broker, of_broker in stopped.items():
            self._stopped.setdefault(broker, []).append(
                StopReplicaTopicState(topic.name, tuple(of_broker))
            )
        partition_states = tuple(
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
        self._metadata.append(UpdateMetadataTopicState(topic.name, topic.id, partition_states))

    def requests(
        self, broker: BrokerId, listener: str, *, full: bool = False
    ) -> list[ControlRequest]:
        """Return the requests for a live broker, in order.  `listener` is the one between brokers;
        `full` means that the batch has all topics, and all partitions that the broker hosts."""
        brokers, epoch = self._context.brokers, self._context.epoch
        broker_epoch = brokers[broker].epoch
        requests: list[ControlRequest] = [
            UpdateMetadataRequest(
                self._controller,
                epoch,
                _by_topic(self._metadata),
                tuple(map(_broker_state, brokers.values())),
                broker_epoch,
                FULL if full else 0,
            )
        ]
        leaderships = self._leaderships.get(broker, [])
        if leaderships or full:
            requests.insert(
                1 if full else 0,
                LeaderAndIsrRequest(
                    self._controller,
                    epoch,
                    _by_topic(leaderships),
                    _addresses(self._leaders.get(broker, ()), brokers, listener),
                    broker_epoch,
                    FULL if full else 0,
                ),
            )
        if broker in self._stopped:
            requests.append(
                StopReplicaRequest(
                    self._controller, epoch, _by_topic(self._stopped[broker]), broker_epoch
                )
            )
        return requests


def _by_topic(states: Iterable[TopicState]) -> tuple[TopicState, ...]:
    """Merge the states of each topic, at its first position."""
    topics: dict[str, TopicState] = {}
    for topic in states:
        before = topics.get(topic.topic_name)
        topics[topic.topic_name] = topic if before is None else _merged(before, topic)
    return tuple(topics.values())


def _merged(before: TopicState, after: TopicState) -> TopicState:
    """Merge two states of a topic.  The later state of a partition wins, but stays new if either
    is."""
    partitions: dict[int, Any] = {p.partition_index: p for p in before.partition_states}
    for p in after.partition_states:
        was = partitions.get(p.partition_index)
        if isinstance(p, LeaderAndIsrPartitionState) and was is not None:
            partitions[p.partition_index] = replace(p, is_new=p.is_new or was.is_new)
        else:
            partitions[p.partition_index] = p
    return replace(after, partition_states=tuple(partitions.values()))


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


def _broker_state(broker: LiveBroker) -> UpdateMetadataBroker:
    info = broker.info
    endpoints = tuple(
        UpdateMetadataEndpoint(e.port, e.host, e.listener, SECURITY_PROTOCOLS.index(e.protocol))
        for e in info.endpoints.values()
    )
    return UpdateMetadataBroker(info.id, endpoints, info.rack)
