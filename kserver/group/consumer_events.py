"""Events of consumer groups (KIP-848); each is one record of __consumer_offsets.

    kind  record and event                       content
    3     ConsumerGroupMetadata                  group epoch, and a hash of the topics
    4     ConsumerGroupPartitionMetadata         topic metadata of brokers before 4.1; only read
    5     ConsumerGroupMemberMetadata            a member's subscription and client
    6     ConsumerGroupTargetAssignmentMetadata  epoch and time of the target assignment
    7     ConsumerGroupTargetAssignmentMember    target assignment of a member
    8     ConsumerGroupCurrentMemberAssignment   current assignment of a member
    16    ConsumerGroupRegularExpression         topics that a pattern matched

An event whose value is None is a tombstone: it deletes the member, target or pattern it names.

Pure: values and bytes only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple, TypeAlias
from uuid import UUID

from kserver.group.events import Record
from kserver.group.records import RECORDS
from kserver.wire.schema import Values


class TopicIdPartition(NamedTuple):
    topic_id: UUID
    partition: int


Epochs: TypeAlias = Mapping[TopicIdPartition, int]
"""Epoch by partition, in which the partition was assigned to its member (KIP-1251)."""
Partitions: TypeAlias = frozenset[TopicIdPartition]

NOTHING_OWNED: Epochs = MappingProxyType({})

JOINING_EPOCH = 0
LEFT_EPOCH = -1
"""Member epoch in the heartbeat of a member that leaves, and of members that have left."""
STATIC_LEFT_EPOCH = -2
"""Member epoch of a static member that left but will rejoin, under another id."""


class MemberState(IntEnum):
    """Progress of a member towards its target; the numbers are those of record 8."""

    STABLE = 1
    UNREVOKED_PARTITIONS = 2
    UNRELEASED_PARTITIONS = 3
    UNKNOWN = 127


@dataclass(frozen=True, slots=True)
class ClassicProtocol:
    """Protocols and session timeout from the JoinGroup request of a classic member."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """Names and metadata, in order of preference."""


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """Subscription and client of a member, as it reported them."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    """Sorted, without duplicates."""
    pattern: str | None = None
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicProtocol | None = None
    """None for a member that uses ConsumerGroupHeartbeat."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """Current assignment and epochs of a member."""

    epoch: int = JOINING_EPOCH
    previous_epoch: int = LEFT_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: Epochs = field(default_factory=lambda: NOTHING_OWNED)
    revoking: Epochs = field(default_factory=lambda: NOTHING_OWNED)
    """Partitions that it was asked to revoke, and that it may still own."""


GONE = Assignment(LEFT_EPOCH, LEFT_EPOCH)


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadata:
    group_id: str
    epoch: int | None
    metadata_hash: int = 0
    """Hash of the subscribed topics; 0 for none."""

    def encode(self) -> Record:
        value = None
        if self.epoch is not None:
            value = {"epoch": self.epoch, "metadataHash": self.metadata_hash}
        return _record(3, {"groupId": self.group_id}, value)


@dataclass(frozen=True, slots=True)
class ConsumerGroupPartitionMetadata:
    group_id: str
    is_there: bool

    def encode(self) -> Record:
        assert not self.is_there, "only read"
        return _record(4, {"groupId": self.group_id}, None)


@dataclass(frozen=True, slots=True)
class ConsumerGroupMemberMetadata:
    group_id: str
    member_id: str
    subscription: MemberSubscription | None

    def encode(self) -> Record:
        value = None if self.subscription is None else _subscription_value(self.subscription)
        return _record(5, _member_key(self), value)


@dataclass(frozen=True, slots=True)
class ConsumerGroupTargetAssignmentMetadata:
    group_id: str
    epoch: int | None
    at_ms: int = 0
    """Milliseconds since 1970; 0 if unknown."""

    def encode(self) -> Record:
        value = None
        if self.epoch is not None:
            value = {"assignmentEpoch": self.epoch, "assignmentTimestamp": self.at_ms}
        return _record(6, {"groupId": self.group_id}, value)


@dataclass(frozen=True, slots=True)
class ConsumerGroupTargetAssignmentMember:
    group_id: str
    member_id: str
    partitions: Partitions | None

    def encode(self) -> Record:
        value = None
        if self.partitions is not None:
            topics = by_topic(self.partitions).items()
            value = {
                "topicPartitions": [
                    {"topicId": topic, "partitions": numbers} for topic, numbers in topics
                ]
            }
        return _record(7, _member_key(self), value)


@dataclass(frozen=True, slots=True)
class ConsumerGroupCurrentMemberAssignment:
    group_id: str
    member_id: str
    assignment: Assignment | None

    def encode(self) -> Record:
        value, now = None, self.assignment
        if now is not None:
            value = {
                "memberEpoch": now.epoch,
                "previousMemberEpoch": now.previous_epoch,
                "state": now.state,
                "assignedPartitions": _epochs_value(now.assigned),
                "partitionsPendingRevocation": _epochs_value(now.revoking),
            }
        return _record(8, _member_key(self), value)


@dataclass(frozen=True, slots=True)
class ConsumerGroupRegularExpression:
    group_id: str
    pattern: str
    topics: frozenset[str] | None
    at_ms: int = 0
    """Milliseconds since 1970."""

    def encode(self) -> Record:
        value = None
        if self.topics is not None:
            value = {"topics": sorted(self.topics), "version": 0, "timestamp": self.at_ms}
        return _record(16, {"groupId": self.group_id, "regularExpression": self.pattern}, value)


ConsumerEvent: TypeAlias = (
    ConsumerGroupMetadata
    | ConsumerGroupPartitionMetadata
    | ConsumerGroupMemberMetadata
    | ConsumerGroupTargetAssignmentMetadata
    | ConsumerGroupTargetAssignmentMember
    | ConsumerGroupCurrentMemberAssignment
    | ConsumerGroupRegularExpression
)
EVENTS = (
    ConsumerGroupMetadata,
    ConsumerGroupPartitionMetadata,
    ConsumerGroupMemberMetadata,
    ConsumerGroupTargetAssignmentMetadata,
    ConsumerGroupTargetAssignmentMember,
    ConsumerGroupCurrentMemberAssignment,
    ConsumerGroupRegularExpression,
)


def by_topic(partitions: Iterable[TopicIdPartition]) -> dict[UUID, list[int]]:
    """Return the partition numbers by topic id, sorted."""
    numbers_by_topic: dict[UUID, list[int]] = {}
    for topic, partition in sorted(partitions):
        numbers_by_topic.setdefault(topic, []).append(partition)
    return numbers_by_topic


def _record(kind: int, key: Values, value: Values | None) -> Record:
    encoded = None if value is None else RECORDS.encode_value(kind, 0, value)
    return RECORDS.encode_key(kind, key), encoded


def _member_key(
    event: ConsumerGroupMemberMetadata
    | ConsumerGroupTargetAssignmentMember
    | ConsumerGroupCurrentMemberAssignment,
) -> Values:
    return {"groupId": event.group_id, "memberId": event.member_id}


def _subscription_value(subscription: MemberSubscription) -> Values:
    classic = subscription.classic
    return {
        "instanceId": subscription.instance_id,
        "rackId": subscription.rack_id,
        "clientId": subscription.client_id,
        "clientHost": subscription.client_host,
        "subscribedTopicNames": subscription.topics,
        "subscribedTopicRegex": subscription.pattern,
        "rebalanceTimeoutMs": subscription.rebalance_timeout_ms,
        "serverAssignor": subscription.assignor,
        # Written even if null: the default of Kafka's schema is not null but an empty structure.
        "classicMemberMetadata": None
        if classic is None
        else {
            "sessionTimeoutMs": classic.session_timeout_ms,
            "supportedProtocols": [
                {"name": name, "metadata": metadata} for name, metadata in classic.protocols
            ],
        },
    }


def _epochs_value(epochs: Epochs) -> list[Values]:
    return [
        {
            "topicId": topic,
            "partitions": numbers,
            "assignmentEpochs": [epochs[TopicIdPartition(topic, number)] for number in numbers],
        }
        for topic, numbers in by_topic(epochs).items()
    ]


def _group_metadata(key: Values, value: Values | None) -> ConsumerGroupMetadata:
    if value is None:
        return ConsumerGroupMetadata(key["groupId"], None)
    return ConsumerGroupMetadata(key["groupId"], value["epoch"], value["metadataHash"])


def _partition_metadata(key: Values, value: Values | None) -> ConsumerGroupPartitionMetadata:
    return ConsumerGroupPartitionMetadata(key["groupId"], value is not None)


def _member_metadata(key: Values, value: Values | None) -> ConsumerGroupMemberMetadata:
    subscription = None if value is None else _subscription(value)
    return ConsumerGroupMemberMetadata(key["groupId"], key["memberId"], subscription)


def _target_assignment_metadata(
    key: Values, value: Values | None
) -> ConsumerGroupTargetAssignmentMetadata:
    if value is None:
        return ConsumerGroupTargetAssignmentMetadata(key["groupId"], None)
    return ConsumerGroupTargetAssignmentMetadata(
        key["groupId"], value["assignmentEpoch"], value["assignmentTimestamp"]
    )


def _target_assignment_member(
    key: Values, value: Values | None
) -> ConsumerGroupTargetAssignmentMember:
    partitions = None if value is None else _partitions(value["topicPartitions"])
    return ConsumerGroupTargetAssignmentMember(key["groupId"], key["memberId"], partitions)


def _current_member_assignment(
    key: Values, value: Values | None
) -> ConsumerGroupCurrentMemberAssignment:
    assignment = None if value is None else _assignment(value)
    return ConsumerGroupCurrentMemberAssignment(key["groupId"], key["memberId"], assignment)


def _regular_expression(key: Values, value: Values | None) -> ConsumerGroupRegularExpression:
    if value is None:
        return ConsumerGroupRegularExpression(key["groupId"], key["regularExpression"], None)
    topics = frozenset(value["topics"])
    return ConsumerGroupRegularExpression(
        key["groupId"], key["regularExpression"], topics, value["timestamp"]
    )


DECODERS: Mapping[int, Callable[[Values, Values | None], ConsumerEvent]] = {
    3: _group_metadata,
    4: _partition_metadata,
    5: _member_metadata,
    6: _target_assignment_metadata,
    7: _target_assignment_member,
    8: _current_member_assignment,
    16: _regular_expression,
}
"""Decoders from the fields of key and value to the event, by kind of record."""


def _subscription(values: Values) -> MemberSubscription:
    classic = values["classicMemberMetadata"]
    return MemberSubscription(
        instance_id=values["instanceId"],
        rack_id=values["rackId"],
        client_id=values["clientId"],
        client_host=values["clientHost"],
        topics=tuple(values["subscribedTopicNames"]),
        pattern=values["subscribedTopicRegex"],
        rebalance_timeout_ms=values["rebalanceTimeoutMs"],
        assignor=values["serverAssignor"],
        classic=None
        if classic is None or not classic["supportedProtocols"]
        else ClassicProtocol(
            classic["sessionTimeoutMs"],
            tuple(
                (protocol["name"], protocol["metadata"])
                for protocol in classic["supportedProtocols"]
            ),
        ),
    )


def _partitions(topics: Iterable[Values]) -> Partitions:
    return frozenset(
        TopicIdPartition(topic["topicId"], number)
        for topic in topics
        for number in topic["partitions"]
    )


def _assignment(values: Values) -> Assignment:
    epoch, state = values["memberEpoch"], values["state"]
    return Assignment(
        epoch,
        values["previousMemberEpoch"],
        MemberState(state) if state in set(MemberState) else MemberState.UNKNOWN,
        _epochs(values["assignedPartitions"], epoch),
        _epochs(values["partitionsPendingRevocation"], epoch),
    )


def _epochs(topics: Iterable[Values], member_epoch: int) -> Epochs:
    """Return epochs by partition.  Older brokers wrote none; the member's epoch stands in for
    each."""
    epoch_by_partition: dict[TopicIdPartition, int] = {}
    for topic in topics:
        numbers, epochs = topic["partitions"], topic["assignmentEpochs"]
        if epochs is None or len(epochs) != len(numbers):
            epochs = [member_epoch] * len(numbers)
        for number, epoch in zip(numbers, epochs, strict=True):
            epoch_by_partition[TopicIdPartition(topic["topicId"], number)] = epoch
    return MappingProxyType(epoch_by_partition)
