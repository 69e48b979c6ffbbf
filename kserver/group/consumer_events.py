"""What becomes of a consumer group (KIP-848), as events: each is one record of __consumer_offsets.

    kind  record and event                       what it says
    3     ConsumerGroupMetadata                  the group's epoch, and a hash of its topics
    4     ConsumerGroupPartitionMetadata         what brokers before 4.1 knew of topics; only read
    5     ConsumerGroupMemberMetadata            a member: who it is, what it subscribes to
    6     ConsumerGroupTargetAssignmentMetadata  the epoch of the targets, and when they came
    7     ConsumerGroupTargetAssignmentMember    what a member is to own
    8     ConsumerGroupCurrentMemberAssignment   what a member was told to own, or still has
    16    ConsumerGroupRegularExpression         the topics that a pattern matched

An event whose value is None says that what it names is gone.

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
"""Partitions, each with the epoch in which its member was given it (KIP-1251)."""
Partitions: TypeAlias = frozenset[TopicIdPartition]

NOTHING_OWNED: Epochs = MappingProxyType({})

JOINING_EPOCH = 0
LEFT_EPOCH = -1
"""A member that leaves says so; one that has left has it."""
STATIC_LEFT_EPOCH = -2
"""A static member that will come back, under another id."""


class MemberState(IntEnum):
    """How far a member is on the way to its target; the numbers are those of record 8."""

    STABLE = 1
    UNREVOKED_PARTITIONS = 2
    UNRELEASED_PARTITIONS = 3
    UNKNOWN = 127


@dataclass(frozen=True, slots=True)
class ClassicProtocol:
    """What a member that speaks JoinGroup and SyncGroup said there."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """Names and metadata, the preferred one first."""


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """What a member says of itself."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    """In order, each once."""
    pattern: str | None = None
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicProtocol | None = None
    """None: it speaks ConsumerGroupHeartbeat."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """Where a member is."""

    epoch: int = JOINING_EPOCH
    previous_epoch: int = LEFT_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: Epochs = field(default_factory=lambda: NOTHING_OWNED)
    revoking: Epochs = field(default_factory=lambda: NOTHING_OWNED)
    """What it was told to give back, and has not yet."""


GONE = Assignment(LEFT_EPOCH, LEFT_EPOCH)


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadata:
    group_id: str
    epoch: int | None
    metadata_hash: int = 0
    """A hash of the topics subscribed to; 0 for none."""

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
    """Since 1970; 0 where it is not known."""

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
    """Since 1970."""

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
    """In order."""
    found: dict[UUID, list[int]] = {}
    for topic, partition in sorted(partitions):
        found.setdefault(topic, []).append(partition)
    return found


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
        # Written also where it is null: its default, by Kafka's schema, is an empty one.
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
"""By the kind of a record: its key's and its value's fields to the event."""


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
            tuple((one["name"], one["metadata"]) for one in classic["supportedProtocols"]),
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
    """Where no epochs were written, as by older brokers, the member's own stands for each."""
    found: dict[TopicIdPartition, int] = {}
    for topic in topics:
        numbers, epochs = topic["partitions"], topic["assignmentEpochs"]
        if epochs is None or len(epochs) != len(numbers):
            epochs = [member_epoch] * len(numbers)
        for number, epoch in zip(numbers, epochs, strict=True):
            found[TopicIdPartition(topic["topicId"], number)] = epoch
    return MappingProxyType(found)
