"""ConsumerGroup: the persisted state of one consumer group (KIP-848).

    state          condition
    EMPTY          the group has no members
    ASSIGNING      the group epoch is newer than the target assignment
    RECONCILING    some member has not reached its target
    STABLE         all members have reached their targets
    DEAD           the group does not exist

The group epoch is bumped with each change of members, subscriptions or topics.  The targets are
those of `target_epoch`, and each member moves towards its own (reconciliation.py).

Pure: events go in (`replay`); the other methods answer queries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from hashlib import blake2b
from uuid import UUID

from kserver.errors import ErrorCode, KafkaError
from kserver.group.consumer_events import (
    GONE,
    Assignment,
    ConsumerEvent,
    ConsumerGroupCurrentMemberAssignment,
    ConsumerGroupMemberMetadata,
    ConsumerGroupMetadata,
    ConsumerGroupPartitionMetadata,
    ConsumerGroupRegularExpression,
    ConsumerGroupTargetAssignmentMember,
    ConsumerGroupTargetAssignmentMetadata,
    MemberState,
    MemberSubscription,
    Partitions,
    TopicIdPartition,
)
from kserver.group.group import CONSUMER, CommitCheck
from kserver.group.records import CONSUMERS
from kserver.metadata import TopicInfo

NO_TARGET: Partitions = frozenset()
FIRST_EPOCH = 1
"""Epoch of a group before it has members, and of its targets.  Not 0, which as a member epoch
means to join."""


class GroupState(Enum):
    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class ConsumerGroupMember:
    id: str
    subscription: MemberSubscription = field(default_factory=MemberSubscription)
    at: Assignment = field(default_factory=Assignment)

    @property
    def is_classic(self) -> bool:
        return self.subscription.classic is not None

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.at.state is MemberState.STABLE and self.at.epoch == epoch


class ConsumerGroup:
    type = CONSUMER
    protocol_type = CONSUMERS

    def __init__(self, group_id: str) -> None:
        self.id = group_id
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        """Hash of the subscribed topics at this epoch; a different hash bumps the epoch."""
        self.target_epoch = FIRST_EPOCH
        self.target_at_ms = 0
        """Milliseconds since 1970; 0 if there was no target assignment yet."""
        self.members: dict[str, ConsumerGroupMember] = {}
        self.targets: dict[str, Partitions] = {}
        self.owners: dict[TopicIdPartition, str] = {}
        """Owners by partition: the member that it is assigned to, or that has not revoked it
        yet."""
        self.instances: dict[str, str] = {}
        """Member ids of static members, by instance id."""
        self.patterns: dict[str, frozenset[str]] = {}
        """Matched topics, by pattern."""
        self.has_topics_record = False

    def copy(self) -> ConsumerGroup:
        """Return a copy, to replay events on before they are written."""
        draft = ConsumerGroup(self.id)
        draft.epoch, draft.metadata_hash = self.epoch, self.metadata_hash
        draft.target_epoch, draft.target_at_ms = self.target_epoch, self.target_at_ms
        draft.members = self.members.copy()
        draft.targets = self.targets.copy()
        draft.owners = self.owners.copy()
        draft.instances = self.instances.copy()
        draft.patterns = self.patterns.copy()
        draft.has_topics_record = self.has_topics_record
        return draft

    def snapshot(self) -> tuple[object, ...]:
        """Return all state that events created, for comparison."""
        return (
            self.epoch,
            self.metadata_hash,
            self.target_epoch,
            self.target_at_ms,
            self.members,
            self.targets,
            self.owners,
            self.instances,
            self.patterns,
            self.has_topics_record,
        )

    # Changes

    def replay(self, event: ConsumerEvent) -> None:
        match event:
            case ConsumerGroupMetadata(epoch=epoch, metadata_hash=metadata_hash):
                self.epoch = FIRST_EPOCH if epoch is None else epoch
                self.metadata_hash = metadata_hash
            case ConsumerGroupPartitionMetadata(is_there=is_there):
                self.has_topics_record = is_there
            case ConsumerGroupMemberMetadata(member_id=member_id, subscription=None):
                self._remove(member_id)
            case ConsumerGroupMemberMetadata(
                member_id=member_id, subscription=MemberSubscription() as subscription
            ):
                self._set(replace(self.member_or_new(member_id), subscription=subscription))
            case ConsumerGroupTargetAssignmentMetadata(epoch=epoch, at_ms=at_ms):
                self.target_epoch = FIRST_EPOCH if epoch is None else epoch
                self.target_at_ms = at_ms
            case ConsumerGroupTargetAssignmentMember(member_id=member_id, partitions=None):
                self.targets.pop(member_id, None)
            case ConsumerGroupTargetAssignmentMember(
                member_id=member_id, partitions=frozenset() as partitions
            ):
                self.targets[member_id] = partitions
            case ConsumerGroupCurrentMemberAssignment(member_id=member_id, assignment=assignment):
                # When a member is removed, the tombstone of its subscription comes last.
                if assignment is not None or member_id in self.members:
                    self._set(replace(self.member_or_new(member_id), at=assignment or GONE))
            case ConsumerGroupRegularExpression(pattern=pattern, topics=None):
                self.patterns.pop(pattern, None)
            case ConsumerGroupRegularExpression(pattern=pattern, topics=frozenset() as topics):
                self.patterns[pattern] = topics

    def _set(self, member: ConsumerGroupMember) -> None:
        self._release(member.id)
        self.members[member.id] = member
        for partition in (*member.at.assigned, *member.at.revoking):
            self.owners[partition] = member.id
        if member.subscription.instance_id is not None:
            self.instances[member.subscription.instance_id] = member.id

    def _remove(self, member_id: str) -> None:
        self._release(member_id)
        self.members.pop(member_id, None)

    def _release(self, member_id: str) -> None:
        """Release the member's partitions and instance id, unless another member has them
        already."""
        member = self.members.get(member_id)
        if member is None:
            return
        for partition in (*member.at.assigned, *member.at.revoking):
            if self.owners.get(partition) == member_id:
                del self.owners[partition]
        instance_id = member.subscription.instance_id
        if instance_id is not None and self.instances.get(instance_id) == member_id:
            del self.instances[instance_id]

    def deleted(self) -> Iterable[ConsumerEvent]:
        """Yield the events that delete the group, in Kafka's order."""
        for member_id in self.members:
            yield ConsumerGroupCurrentMemberAssignment(self.id, member_id, None)
        for member_id in self.members:
            yield ConsumerGroupTargetAssignmentMember(self.id, member_id, None)
        yield ConsumerGroupTargetAssignmentMetadata(self.id, None)
        for member_id in self.members:
            yield ConsumerGroupMemberMetadata(self.id, member_id, None)
        for pattern in self.patterns:
            yield ConsumerGroupRegularExpression(self.id, pattern, None)
        if self.has_topics_record:
            yield ConsumerGroupPartitionMetadata(self.id, False)
        yield ConsumerGroupMetadata(self.id, None)

    # Queries

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def is_empty(self) -> bool:
        return not self.members

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.all_subscribed_topics()

    @property
    def state(self) -> GroupState:
        if not self.members:
            return GroupState.EMPTY
        if self.epoch > self.target_epoch:
            return GroupState.ASSIGNING
        if all(m.is_reconciled_to(self.target_epoch) for m in self.members.values()):
            return GroupState.STABLE
        return GroupState.RECONCILING

    def member(self, member_id: str) -> ConsumerGroupMember:
        """Raises KafkaError with UNKNOWN_MEMBER_ID."""
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(
                ErrorCode.unknown_member_id,
                f"Member {member_id} is not a member of group {self.id}.",
            )
        return member

    def member_or_new(self, member_id: str) -> ConsumerGroupMember:
        return self.members.get(member_id) or ConsumerGroupMember(member_id)

    def static_member(self, instance_id: str) -> ConsumerGroupMember | None:
        member_id = self.instances.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def named_member(self, member_id: str, instance_id: str | None) -> ConsumerGroupMember:
        """Return the member that sent a request.  Raises KafkaError with UNKNOWN_MEMBER_ID or
        FENCED_INSTANCE_ID."""
        if instance_id is None:
            return self.member(member_id)
        member = self.static_member(instance_id)
        if member is None:
            raise KafkaError(ErrorCode.unknown_member_id, f"Instance id {instance_id} is unknown.")
        if member.id != member_id:
            raise KafkaError(
                ErrorCode.fenced_instance_id,
                f"Static member {member_id} with instance id {instance_id} was fenced by member "
                f"{member.id}.",
            )
        return member

    def target(self, member_id: str) -> Partitions:
        return self.targets.get(member_id, NO_TARGET)

    def is_free(self, partition: TopicIdPartition, member_id: str) -> bool:
        """Return whether no other member owns the partition."""
        return self.owners.get(partition, member_id) == member_id

    def subscribed_topics(self, subscription: MemberSubscription) -> frozenset[str]:
        """Return the topics subscribed to by name and by pattern; they need not exist."""
        matched = self.patterns.get(subscription.pattern or "", frozenset())
        return matched.union(subscription.topics)

    def all_subscribed_topics(self) -> frozenset[str]:
        return frozenset[str]().union(
            *(self.subscribed_topics(member.subscription) for member in self.members.values())
        )

    def subscribed_patterns(self) -> set[str]:
        return {m.subscription.pattern for m in self.members.values() if m.subscription.pattern}

    def assignor(self, default: str) -> str:
        """Return the assignor that most members ask for."""
        counts = Counter(
            member.subscription.assignor
            for member in self.members.values()
            if member.subscription.assignor is not None
        )
        return max(counts, key=lambda name: (counts[name], name)) if counts else default

    # Classic members

    def supports_protocols(self, names: Iterable[str]) -> bool:
        """Return whether all classic members support one of these protocols."""
        supported = [
            {name for name, _ in member.subscription.classic.protocols}
            for member in self.members.values()
            if member.subscription.classic is not None
        ]
        return any(all(name in protocols for protocols in supported) for name in names)

    # Offsets

    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        *,
        transactional: bool,
        knows_stale_member_epoch: bool = True,
    ) -> CommitCheck | None:
        """Check a commit; `generation` is the member epoch.  Raises KafkaError with
        UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, ILLEGAL_GENERATION or UNSUPPORTED_VERSION."""
        if generation < 0 and not self.members:
            return None  # a client that assigns its partitions itself
        has_no_member = generation < 0 and not member_id and instance_id is None
        if transactional and has_no_member:
            return None  # old clients send no member id in transactional commits
        member = self.member(member_id)
        if not (transactional or member.is_classic or knows_stale_member_epoch):
            raise KafkaError(
                ErrorCode.unsupported_version,
                "OffsetCommit version 9 or above must be used by members using the consumer group "
                "protocol",
            )
        if generation == member.at.epoch:
            return None
        if generation > member.at.epoch:
            text = f"Received epoch {generation} is newer than the member's {member.at.epoch}."
            raise KafkaError(_stale(member), text)
        return partial(_check_older, member, generation)

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Raises KafkaError with UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH or ILLEGAL_GENERATION."""
        if member_id is None and member_epoch < 0:
            return
        member = self.member(member_id or "")
        if member_epoch != member.at.epoch:
            text = f"Received epoch {member_epoch} is not the member's {member.at.epoch}."
            raise KafkaError(_stale(member), text)

    def check_offset_delete(self) -> None:
        """Do nothing: offsets of topics without subscribers may be deleted at any time."""

    def check_delete(self) -> None:
        if self.members:
            raise KafkaError(ErrorCode.non_empty_group)

    def retention_began_ms(self, committed_ms: int) -> int | None:
        """Return the commit's time: retention starts at once for topics without subscribers."""
        return committed_ms

    def check(self) -> None:
        """Assert the invariants that hold between requests."""
        owned: Counter[TopicIdPartition] = Counter()
        for member in self.members.values():
            at = member.at
            assert not at.assigned.keys() & at.revoking.keys(), member
            assert at.epoch <= self.target_epoch, member
            assert (at.state is MemberState.UNREVOKED_PARTITIONS) == bool(at.revoking) or (
                at.epoch < 0
            ), member
            owned.update((*at.assigned, *at.revoking))
            for partition in (*at.assigned, *at.revoking):
                assert self.owners[partition] == member.id, partition
        assert owned.keys() == self.owners.keys()
        assert all(times == 1 for times in owned.values()), "two owners of one partition"
        targets = Counter(p for target in self.targets.values() for p in target)
        assert all(times == 1 for times in targets.values()), "two targets of one partition"
        assert self.targets.keys() <= self.members.keys()
        assert self.target_epoch <= self.epoch
        instances = {
            m.subscription.instance_id: m.id
            for m in self.members.values()
            if m.subscription.instance_id is not None
        }
        assert instances == self.instances
        assert self.subscribed_patterns() >= self.patterns.keys()


def hash_of(topics: Iterable[str], infos: Mapping[str, TopicInfo]) -> int:
    """Return a hash of everything that an assignment depends on: which of these topics exist, and
    their partitions; 0 for none.  It is the same on each of these brokers, but differs from Apache
    Kafka's."""
    existing_topics = sorted(topic for topic in topics if topic in infos)
    if not existing_topics:
        return 0
    digest = blake2b(digest_size=8)
    for topic in existing_topics:
        info = infos[topic]
        digest.update(b"%b%d %b\0" % (info.id.bytes, len(info.partitions), topic.encode()))
    return int.from_bytes(digest.digest(), signed=True)


def _stale(member: ConsumerGroupMember) -> ErrorCode:
    return ErrorCode.illegal_generation if member.is_classic else ErrorCode.stale_member_epoch


def _check_older(
    member: ConsumerGroupMember, epoch: int, topic_id: UUID, partition: int
) -> ErrorCode:
    """Check a partition for a commit with an older epoch.  A member that has not received its new
    epoch yet may commit partitions assigned to it since the epoch that it sent (KIP-1251): no
    other member can have owned them in between."""
    key = TopicIdPartition(topic_id, partition)
    assignment_epoch = member.at.assigned.get(key, member.at.revoking.get(key))
    return (
        _stale(member) if assignment_epoch is None or epoch < assignment_epoch else ErrorCode.none
    )
