"""Online migration of groups between the classic and the consumer protocol (KIP-848).

    upgrade     a member that uses ConsumerGroupHeartbeat joins a classic group of consumers
    mixed       classic members of a consumer group keep using JoinGroup, SyncGroup and Heartbeat:
                their generation is the member epoch, and they are asked to rejoin for each step
    downgrade   the last member that uses ConsumerGroupHeartbeat left, and classic ones remain

`group.consumer.migration.policy` controls which direction is allowed.  A group without members
takes the type that its first member needs, at any time.

    a classic member's    means
    JoinGroup             a full heartbeat: it takes a step towards its target
    SyncGroup             a request for the partitions that it owns now
    Heartbeat             REBALANCE_IN_PROGRESS if there is a step to take

Pure: requests and times go in, steps come out.  (Kafka: GroupMetadataManager's
classicGroup...ToConsumerGroup, convertToConsumerGroup and convertToClassicGroup.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from kserver.config.broker import BrokerConfig
from kserver.coordinator.deadlines import Deadlines
from kserver.coordinator.shard import Step, Ticket
from kserver.errors import ErrorCode, KafkaError, ProtocolError
from kserver.group.classic import JOIN, SYNC, ClassicGroups, Deadline
from kserver.group.consumer import ConsumerGroups, Draft
from kserver.group.consumer_events import (
    Assignment,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignment,
    ConsumerGroupMemberMetadata,
    ConsumerGroupMetadata,
    ConsumerGroupTargetAssignmentMember,
    ConsumerGroupTargetAssignmentMetadata,
    MemberState,
    MemberSubscription,
    Partitions,
    TopicIdPartition,
    by_topic,
)
from kserver.group.consumer_group import ConsumerGroup, ConsumerGroupMember
from kserver.group.consumer_requests import ConsumerHeartbeat
from kserver.group.events import ClassicGroupMetadata, MemberMetadata
from kserver.group.group import ClassicGroup
from kserver.group.member import ClassicGroupMember
from kserver.group.records import ASSIGNMENT, CONSUMERS, SUBSCRIPTION, decoded, version_of
from kserver.group.requests import (
    NO_MEMBER,
    Heartbeat,
    JoinGroup,
    JoinGroupResult,
    LeaveGroup,
    LeavingMember,
    SyncGroup,
    SyncGroupResult,
)
from kserver.wire.schema import Values

DOWN = "down"
"""Kind of deadline: once a consumer group has become a classic group, it has to rebalance."""


class Migration:
    def __init__(
        self,
        consumers: ConsumerGroups,
        classic: ClassicGroups,
        deadlines: Deadlines[Deadline],
        config: Callable[[], BrokerConfig],
        new_id: Callable[[], str],
    ) -> None:
        self._consumers = consumers
        self._classic = classic
        self._deadlines = deadlines
        self._config = config
        self._new_id = new_id

    def _allows(self, way: str) -> bool:
        return self._config().group_consumer_migration_policy in (way, "bidirectional")

    # Upgrade

    def heartbeat(self, request: ConsumerHeartbeat, ticket: Ticket, step: Step) -> None:
        classic = self._classic.get(request.group_id)
        self._consumers.heartbeat(request, ticket, step, self._upgraded)
        if classic is not None:
            self._end_waits(classic, step)
        self._go_down(request.group_id, step)

    def _upgraded(self, group_id: str, step: Step) -> ConsumerGroup:
        """Convert a classic group to a consumer group.  Raises KafkaError with GROUP_ID_NOT_FOUND
        if it cannot be converted."""
        classic = self._classic.get(group_id)
        assert classic is not None
        group = ConsumerGroup(group_id)
        if classic.is_empty:
            step.add_events(classic.deleted())
            return group
        self._check_upgrade(classic)
        try:
            members = [
                self._upgraded_member(member, classic) for member in classic.members.values()
            ]
        except ProtocolError as error:
            text = f"the embedded consumer protocol is malformed: {error}."
            raise _cannot_upgrade(classic, text) from error
        step.add_events(classic.deleted())
        events: list[Any] = [
            ConsumerGroupMemberMetadata(group_id, m.id, m.subscription) for m in members
        ]
        events.append(ConsumerGroupMetadata(group_id, classic.generation))
        events += [
            ConsumerGroupTargetAssignmentMember(group_id, m.id, frozenset(m.at.assigned))
            for m in members
        ]
        events.append(ConsumerGroupTargetAssignmentMetadata(group_id, classic.generation))
        events += [ConsumerGroupCurrentMemberAssignment(group_id, m.id, m.at) for m in members]
        for event in events:
            group.replay(event)
        step.add_events(events)
        for member in members:
            self._consumers.await_session(group_id, member, step.now)
        return group

    def _check_upgrade(self, classic: ClassicGroup) -> None:
        if not self._allows("upgrade"):
            raise _cannot_upgrade(classic, "online upgrade is disabled.")
        if not classic.has_consumers:
            text = "the group does not use the consumer embedded protocol."
            raise _cannot_upgrade(classic, text)
        if len(classic.members) > self._config().group_consumer_max_size:
            text = "the group size exceeds the consumer group maximum size."
            raise _cannot_upgrade(classic, text)

    def _upgraded_member(
        self, member: ClassicGroupMember, classic: ClassicGroup
    ) -> ConsumerGroupMember:
        """Convert a member, with its assignment from the group's last generation.  Raises
        ProtocolError."""
        name = classic.protocol or member.protocols[0][0]
        subscription = decoded(SUBSCRIPTION, member.metadata(name))
        assigned: Partitions = frozenset()
        if member.assignment:
            assignment = decoded(ASSIGNMENT, member.assignment)
            if assignment["userData"]:
                text = (
                    "an unsupported custom assignor is in use. Please refer to the documentation "
                    "or switch to a default assignor before re-attempting the upgrade."
                )
                raise _cannot_upgrade(classic, text)
            assigned = self._ids(assignment["assignedPartitions"])
        epoch = classic.generation
        return ConsumerGroupMember(
            member.id,
            MemberSubscription(
                instance_id=member.instance_id,
                rack_id=subscription["rackId"],
                client_id=member.client_id,
                client_host=member.client_host,
                topics=tuple(sorted(set(subscription["topics"]))),
                rebalance_timeout_ms=member.rebalance_ms,
                classic=ClassicProtocol(member.session_ms, member.protocols),
            ),
            Assignment(
                epoch,
                epoch,
                MemberState.STABLE,
                MappingProxyType(dict.fromkeys(sorted(assigned), epoch)),
            ),
        )

    def _end_waits(self, classic: ClassicGroup, step: Step) -> None:
        """Fail the waiting requests, so that the members rejoin what is now a consumer group."""
        error = KafkaError(ErrorCode.rebalance_in_progress)
        for member in classic.members.values():
            joined = JoinGroupResult(member.id, ErrorCode.rebalance_in_progress)
            step.respond(classic.take_join_ticket(member), joined)
            step.respond(member.sync_ticket, error)
            member.sync_ticket = None
        for kind in (JOIN, SYNC):
            self._deadlines.drop((kind, classic.id, ""))

    # Classic members of a consumer group

    def join(self, request: JoinGroup, ticket: Ticket, step: Step) -> None:
        group = self._consumers.get(request.group_id)
        if group is None or group.is_empty:
            self._classic.join(request, ticket, step)
            if group is not None and self._classic.get(group.id) is not None:
                # The member joined, which makes this a classic group.
                step.events[:0] = group.deleted()
            return
        try:
            self._join(group, request, ticket, step)
            self._go_down(group.id, step)
        except KafkaError as error:
            step.events.clear()
            step.respond(ticket, JoinGroupResult(request.member_id, error.code))

    def _join(self, group: ConsumerGroup, request: JoinGroup, ticket: Ticket, step: Step) -> None:
        low = self._config().group_min_session_timeout_ms
        high = self._config().group_max_session_timeout_ms
        if not low <= request.session_ms <= high:
            raise KafkaError(ErrorCode.invalid_session_timeout)
        if self._config().group_consumer_migration_policy == "disabled":
            raise KafkaError(ErrorCode.inconsistent_group_protocol)
        is_unknown = request.member_id == NO_MEMBER
        member_id = self._new_id() if is_unknown else request.member_id
        self._consumers.check_room(group, member_id)
        names = [name for name, _ in request.protocols]
        if request.protocol_type != CONSUMERS or not group.supports_protocols(names):
            raise KafkaError(ErrorCode.inconsistent_group_protocol)
        try:
            subscribed_protocol = decoded(SUBSCRIPTION, request.protocols[0][1])
        except ProtocolError as error:
            raise KafkaError(ErrorCode.inconsistent_group_protocol, str(error)) from error
        # KIP-394: a new dynamic member has to rejoin with the id that it is given here.
        if is_unknown and request.instance_id is None and request.must_know_id:
            step.respond(ticket, JoinGroupResult(member_id, ErrorCode.member_id_required))
            return
        draft = self._consumers.draft(group, step)
        before = self._admitted(draft, member_id, is_unknown, request.instance_id)
        if before is None:
            step.respond(ticket, JoinGroupResult(NO_MEMBER, ErrorCode.rebalance_in_progress))
            return
        subscription = replace(
            before.subscription,
            instance_id=request.instance_id or before.subscription.instance_id,
            rack_id=subscribed_protocol["rackId"] or before.subscription.rack_id,
            client_id=request.client_id,
            client_host=request.client_host,
            topics=tuple(sorted(set(subscribed_protocol["topics"]))),
            pattern=None,
            rebalance_timeout_ms=request.rebalance_ms,
            assignor=None,
            classic=ClassicProtocol(request.session_ms, request.protocols),
        )
        changed = self._consumers.subscribe(draft, before, subscription)
        owned = self._ids(subscribed_protocol["ownedPartitions"])
        self._consumers.move(draft, member_id, changed, owned)
        member = draft.group.members[member_id]
        # The member has rejoined; next it has to fetch its assignment with SyncGroup.
        self._deadlines.drop((JOIN, group.id, member_id))
        self._consumers.await_session(group.id, member, step.now)
        self._deadlines.set((SYNC, group.id, member_id), step.now.ms + request.rebalance_ms)
        step.respond(
            ticket,
            JoinGroupResult(
                member_id,
                generation=member.at.epoch,
                protocol_type=CONSUMERS,
                protocol=request.protocols[0][0],
            ),
        )

    def _admitted(
        self, draft: Draft, member_id: str, is_unknown: bool, instance_id: str | None
    ) -> ConsumerGroupMember | None:
        """Return the member before this request; None if the request downgrades the group.  Raises
        KafkaError."""
        if instance_id is None:
            return draft.group.member_or_new(member_id)
        if not is_unknown:
            return draft.group.named_member(member_id, instance_id)
        before = draft.group.static_member(instance_id)
        if before is None:
            return draft.group.member_or_new(member_id)
        others = [member for member in draft.group.members.values() if member is not before]
        if not before.is_classic and all(member.is_classic for member in others):
            # The last member with the consumer protocol is replaced: the group is downgraded
            # first, and the member joins it when it retries.
            self._consumers.remove(draft, [before.id])
            return None
        return self._consumers.replace_static(draft, before, member_id)

    def sync(self, request: SyncGroup, ticket: Ticket, step: Step) -> None:
        group = self._consumers.get(request.group_id)
        if group is None:
            self._classic.sync(request, ticket, step)
            return
        member = _classic_member(group, request.member_id, request.instance_id)
        _check_generation(member, request.generation)
        classic = member.subscription.classic
        assert classic is not None
        protocol, metadata = classic.protocols[0]
        if request.protocol_type not in (None, CONSUMERS) or request.protocol not in (
            None,
            protocol,
        ):
            raise KafkaError(ErrorCode.inconsistent_group_protocol)
        is_revoking = member.at.state is MemberState.UNREVOKED_PARTITIONS
        if group.target_epoch > member.at.epoch and not is_revoking:
            self._await_join(group, member, step)
            raise KafkaError(ErrorCode.rebalance_in_progress)
        self._deadlines.drop((SYNC, group.id, member.id))
        self._consumers.await_session(group.id, member, step.now)
        assignment = self._assignment(member.at.assigned, metadata)
        step.respond(ticket, SyncGroupResult(request.protocol_type, request.protocol, assignment))

    def heartbeat_of_classic(self, request: Heartbeat, ticket: Ticket, step: Step) -> None:
        group = self._consumers.get(request.group_id)
        if group is None:
            self._classic.heartbeat(request, ticket, step)
            return
        member = _classic_member(group, request.member_id, request.instance_id)
        _check_generation(member, request.generation)
        self._consumers.await_session(group.id, member, step.now)
        waits = member.at.state is MemberState.UNRELEASED_PARTITIONS and not all(
            group.is_free(partition, member.id)
            for partition in group.target(member.id) - member.at.assigned.keys()
        )
        if member.at.epoch < group.epoch or not (waits or member.at.state is MemberState.STABLE):
            self._await_join(group, member, step)
            step.respond(ticket, KafkaError(ErrorCode.rebalance_in_progress))
        else:
            step.respond(ticket, None)

    def _await_join(self, group: ConsumerGroup, member: ConsumerGroupMember, step: Step) -> None:
        deadline = (JOIN, group.id, member.id)
        if deadline not in self._deadlines:
            at_ms = step.now.ms + max(member.subscription.rebalance_timeout_ms, 0)
            self._deadlines.set(deadline, at_ms)

    def leave(self, request: LeaveGroup, ticket: Ticket, step: Step) -> None:
        group = self._consumers.get(request.group_id)
        if group is None:
            self._classic.leave(request, ticket, step)
            return
        draft = self._consumers.draft(group, step)
        codes: list[ErrorCode] = []
        leaving: dict[str, None] = {}
        for member in request.members:
            try:
                leaving[_leaving(group, member).id] = None
                codes.append(ErrorCode.none)
            except KafkaError as error:
                codes.append(error.code)
        if leaving:
            self._consumers.remove(draft, leaving)
            self._go_down(group.id, step)
        step.respond(ticket, codes)

    def _ids(self, topics: Sequence[Values]) -> Partitions:
        """Return the partitions, with topic ids, of the topics that exist."""
        pairs = [(self._consumers.topic(topic["topic"]), topic["partitions"]) for topic in topics]
        return frozenset(
            TopicIdPartition(topic.id, number)
            for topic, numbers in pairs
            if topic is not None
            for number in numbers
        )

    def _assignment(self, assigned: Any, metadata: bytes) -> bytes:
        """In the version in which the member has subscribed."""
        version = min(version_of(metadata), ASSIGNMENT.last)
        names = {
            topic_id: name
            for topic_id in {partition.topic_id for partition in assigned}
            if (name := self._consumers.topic_name(topic_id)) is not None
        }
        topics = [
            {"topic": names[topic_id], "partitions": numbers}
            for topic_id, numbers in by_topic(assigned).items()
            if topic_id in names
        ]
        return version.to_bytes(2) + ASSIGNMENT.encode(version, {"assignedPartitions": topics})

    # Downgrade

    def expire(self, deadline: Deadline, step: Step) -> None:
        kind, group_id, _ = deadline
        if kind == DOWN:
            classic = self._classic.get(group_id)
            if classic is not None:
                self._classic.loaded(classic, step)
                self._classic.rebalance(classic, step)
            return
        if self._consumers.get(group_id) is None:
            self._classic.expire(deadline, step)
            return
        expired = self._consumers.expired(deadline, step)
        if expired is not None:
            draft, member_id = expired
            self._consumers.remove(draft, [member_id])
            self._go_down(group_id, step)

    def _go_down(self, group_id: str, step: Step) -> None:
        """Convert the group to a classic group if all members use the classic protocol and the
        policy allows it."""
        draft = self._consumers.existing_draft(group_id, step)
        if draft is None or not draft.is_changed or draft.is_over:
            return
        group = draft.group
        are_classic = group.members and all(member.is_classic for member in group.members.values())
        has_room = len(group.members) <= self._config().group_max_size
        if not (are_classic and has_room and self._allows("downgrade")):
            return
        draft.is_over = True
        metadata = self._classic_metadata(group, step.now.wall_ms)
        step.add_events(group.deleted())
        step.events.append(metadata)
        for member_id in group.members:
            for kind in (JOIN, SYNC):
                self._deadlines.drop((kind, group_id, member_id))
        self._deadlines.set((DOWN, group_id, ""), step.now.ms)

    def _classic_metadata(self, group: ConsumerGroup, now_ms: int) -> ClassicGroupMetadata:
        """Return the classic group, with the current assignments of its members."""
        protocols = {
            member.id: member.subscription.classic.protocols
            for member in group.members.values()
            if member.subscription.classic is not None
        }
        first = next(iter(protocols.values()))
        protocol = next(
            name for name, _ in first if all(name in dict(those) for those in protocols.values())
        )
        members = tuple(
            self._member_metadata(member, dict(protocols[member.id])[protocol])
            for member in group.members.values()
        )
        return ClassicGroupMetadata(
            group.id, CONSUMERS, group.epoch, protocol, members[0].id, now_ms, members
        )

    def _member_metadata(self, member: ConsumerGroupMember, metadata: bytes) -> MemberMetadata:
        subscription = member.subscription
        assert subscription.classic is not None
        return MemberMetadata(
            member.id,
            subscription.instance_id,
            subscription.client_id,
            subscription.client_host,
            subscription.rebalance_timeout_ms,
            subscription.classic.session_timeout_ms,
            metadata,
            self._assignment(member.at.assigned, metadata),
        )


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None
) -> ConsumerGroupMember:
    """Raises KafkaError with UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID."""
    member = group.named_member(member_id, instance_id)
    if not member.is_classic:
        text = f"Member {member_id} does not use the classic protocol."
        raise KafkaError(ErrorCode.unknown_member_id, text)
    return member


def _leaving(group: ConsumerGroup, member: LeavingMember) -> ConsumerGroupMember:
    """Return a member that leaves.  An administrator may name it by its instance id alone.  Raises
    KafkaError."""
    member_id = member.member_id
    if member_id == NO_MEMBER and member.instance_id is not None:
        member_id = group.instances.get(member.instance_id, NO_MEMBER)
    return _classic_member(group, member_id, member.instance_id)


def _check_generation(member: ConsumerGroupMember, generation: int) -> None:
    if generation != member.at.epoch:
        raise KafkaError(
            ErrorCode.illegal_generation,
            f"The request generation id {generation} is not equal to the member epoch "
            f"{member.at.epoch} of member {member.id}.",
        )


def _cannot_upgrade(classic: ClassicGroup, reason: str) -> KafkaError:
    text = f"Cannot upgrade classic group {classic.id} to consumer group because {reason}"
    return KafkaError(ErrorCode.group_id_not_found, text)
