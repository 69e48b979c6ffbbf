"""Requests, deadlines and topic changes of consumer groups (KIP-848).

A heartbeat has four steps:

    1  the member's subscription is updated
    2  the group epoch is bumped if a subscription or a subscribed topic changed
    3  the targets are recomputed, at most once in `group.consumer.assignment.interval.ms`
    4  the member takes a step towards its target, and is sent the partitions that it owns now

A member is removed, and its partitions become free, if it leaves, if its session expires, or if it
does not revoke partitions within its rebalance timeout.

All decisions are made on a draft: each event is replayed on a copy of the group as soon as it is
created, so that later decisions see it.  The group itself replays the events once they are
written.

Pure: requests and times go in, steps come out.  (Kafka: GroupMetadataManager.)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, MutableMapping
from dataclasses import replace
from typing import NamedTuple
from uuid import UUID

from kserver.config.broker import BrokerConfig
from kserver.config.group import GroupConfig
from kserver.coordinator.deadlines import Deadlines
from kserver.coordinator.shard import Now, Step, Ticket
from kserver.errors import ErrorCode, KafkaError
from kserver.group.assignor import ASSIGNORS, Subscriber
from kserver.group.classic import JOIN, SESSION, SYNC, Deadline
from kserver.group.consumer_events import (
    JOINING_EPOCH,
    LEFT_EPOCH,
    NOTHING_OWNED,
    STATIC_LEFT_EPOCH,
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
)
from kserver.group.consumer_group import ConsumerGroup, ConsumerGroupMember, hash_of
from kserver.group.consumer_requests import (
    UNCHANGED_MS,
    ConsumerHeartbeat,
    ConsumerHeartbeatResult,
    DescribeConsumerGroup,
    DescribedConsumer,
    DescribedConsumers,
)
from kserver.group.group import Group
from kserver.group.reconciliation import Goal, next_assignment
from kserver.group.topic_patterns import check_pattern, matching
from kserver.metadata import ClusterMetadata, TopicInfo

REVOKE = "revoke"
"""Kind of deadline: the timeout of a member to revoke partitions."""
DEADLINES = (SESSION, REVOKE, JOIN, SYNC)
"""Kinds of a member's deadlines.  JOIN and SYNC are of members with the classic protocol."""

NO_IMAGE = ClusterMetadata("")


class Draft:
    """A group and its pending changes.

    Each step of a request depends on the decisions before it, but a group changes only once its
    events are written.  Events are therefore replayed on a copy, which is made for the first of
    them.
    """

    def __init__(self, group: ConsumerGroup, step: Step) -> None:
        self.group = group
        self.step = step
        self.is_over = False
        """Whether the group is being converted to a classic group."""
        self.is_changed = False

    def add(self, event: ConsumerEvent) -> None:
        if not self.is_changed:
            self.group = self.group.copy()
            self.is_changed = True
        self.group.replay(event)
        self.step.events.append(event)

    def add_all(self, events: Iterable[ConsumerEvent]) -> None:
        for event in events:
            self.add(event)


class CachedConfig(NamedTuple):
    """Cached configuration of a group, with the objects that it was computed from."""

    broker: BrokerConfig
    overrides: Mapping[str, str] | None
    config: GroupConfig


class ConsumerGroups:
    def __init__(
        self,
        groups: MutableMapping[str, Group],
        deadlines: Deadlines[Deadline],
        config: Callable[[], BrokerConfig],
        new_id: Callable[[], str],
    ) -> None:
        self._groups = groups
        self._deadlines = deadlines
        self._config = config
        self._new_id = new_id
        self._image = NO_IMAGE
        self._images = 0
        """Number of images received.  Groups refer to an image by this number, so that they do not
        keep old images alive."""
        self._seen_images: dict[str, int] = {}
        """By group id: the number of the image that its hash and patterns were computed from."""
        self._cached_configs: dict[str, CachedConfig] = {}
        self._step: Step | None = None
        self._drafts: dict[str, Draft] = {}
        """Drafts of this step by group id, so that one deadline sees the changes of earlier
        ones."""

    def get(self, group_id: str) -> ConsumerGroup | None:
        group = self._groups.get(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    def existing(self, group_id: str) -> ConsumerGroup:
        """Raises KafkaError with GROUP_ID_NOT_FOUND if there is no consumer group with this id."""
        group = self._groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.group_id_not_found, f"Group {group_id} not found.")
        if not isinstance(group, ConsumerGroup):
            text = f"Group {group_id} is not a consumer group."
            raise KafkaError(ErrorCode.group_id_not_found, text)
        return group

    def draft(self, group: ConsumerGroup, step: Step) -> Draft:
        if self._step is not step:
            self._step, self._drafts = step, {}
        if group.id not in self._drafts:
            self._drafts[group.id] = Draft(group, step)
        return self._drafts[group.id]

    def existing_draft(self, group_id: str, step: Step) -> Draft | None:
        return self._drafts.get(group_id) if self._step is step else None

    # Persisted state

    def replay(self, event: ConsumerEvent) -> None:
        group = self.get(event.group_id)
        is_end = isinstance(event, ConsumerGroupMetadata) and event.epoch is None
        if group is None:
            if is_tombstone(event):
                return
            group = self._groups[event.group_id] = ConsumerGroup(event.group_id)
        group.replay(event)
        if is_end:
            del self._groups[group.id]
            self._seen_images.pop(group.id, None)
            self._cached_configs.pop(group.id, None)

    def loaded(self, group: ConsumerGroup, step: Step) -> None:
        """Start the members' sessions again."""
        for member in group.members.values():
            self.await_session(group.id, member, step.now)
            if member.at.state is MemberState.UNREVOKED_PARTITIONS:
                self._await(REVOKE, member, group.id, step.now)

    def image_changed(self, image: ClusterMetadata) -> None:
        """Store the new image.  Each group compares its topics with it at the next heartbeat of a
        member."""
        self._image = image
        self._images += 1

    # Heartbeats

    def heartbeat(
        self,
        request: ConsumerHeartbeat,
        ticket: Ticket,
        step: Step,
        upgrade: Callable[[str, Step], ConsumerGroup] | None = None,
    ) -> None:
        """Handle a member's heartbeat.  `upgrade` converts a classic group that the member joins
        to a consumer group."""
        self._check(request)
        if request.epoch in (LEFT_EPOCH, STATIC_LEFT_EPOCH):
            self._leave(request, ticket, step)
            return
        is_joining = request.epoch == JOINING_EPOCH
        group = self._groups.get(request.group_id)
        if group is None and is_joining:
            draft = self.draft(ConsumerGroup(request.group_id), step)
        elif is_joining and upgrade is not None and not isinstance(group, ConsumerGroup):
            draft = self.draft(upgrade(request.group_id, step), step)
        else:
            draft = self.draft(self.existing(request.group_id), step)
        member_id = request.member_id or self._new_id()
        self.check_room(draft.group, member_id)
        before = self._admitted(draft, request, member_id)
        changed = self.subscribe(draft, before, _subscription_of(before.subscription, request))
        self.move(draft, member_id, changed, request.owned)
        after = draft.group.members[member_id]
        self._await_revocation(draft.group.id, before, after, step.now)
        self.await_session(draft.group.id, after, step.now)
        has_assignment = (
            request.is_full
            or after.at.assigned.keys() != before.at.assigned.keys()
            or request.epoch != before.at.epoch  # its last response was lost
        )
        assigned = frozenset(after.at.assigned) if has_assignment else None
        interval_ms = self._group_config(draft.group.id).consumer_heartbeat_interval_ms
        step.respond(
            ticket, ConsumerHeartbeatResult(member_id, after.at.epoch, interval_ms, assigned)
        )

    def _check(self, request: ConsumerHeartbeat) -> None:
        """Raises KafkaError with INVALID_REQUEST, UNSUPPORTED_ASSIGNOR or
        INVALID_REGULAR_EXPRESSION."""
        comes_with_id = request.makes_member_id or request.epoch != JOINING_EPOCH
        if comes_with_id and not request.member_id.strip():
            raise _invalid("MemberId can't be empty.")
        for name, value in (
            ("GroupId", request.group_id),
            ("InstanceId", request.instance_id),
            ("RackId", request.rack_id),
        ):
            if value is not None and not value.strip():
                raise _invalid(f"{name} can't be empty.")
        if request.epoch == JOINING_EPOCH:
            if request.rebalance_ms == UNCHANGED_MS:
                raise _invalid("RebalanceTimeoutMs must be provided in first request.")
            if request.owned is None or request.owned:
                raise _invalid("TopicPartitions must be empty when (re-)joining.")
            if request.topics is None and request.pattern is None:
                raise _invalid(
                    "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
                    "(re-)joining."
                )
        elif request.epoch == STATIC_LEFT_EPOCH:
            if request.instance_id is None:
                raise _invalid("InstanceId can't be null.")
        elif request.epoch < STATIC_LEFT_EPOCH:
            raise _invalid("MemberEpoch is invalid.")
        assignors = self._config().group_consumer_assignors
        if request.assignor is not None and request.assignor not in assignors:
            raise KafkaError(
                ErrorCode.unsupported_assignor,
                f"ServerAssignor {request.assignor} is not supported. Supported assignors: "
                f"{', '.join(assignors)}.",
            )
        if request.pattern:
            check_pattern(request.pattern)

    def check_room(self, group: ConsumerGroup, member_id: str) -> None:
        """Raises KafkaError with GROUP_MAX_SIZE_REACHED if there is no room for this member."""
        limit = self._config().group_consumer_max_size
        if member_id not in group.members and len(group.members) >= limit:
            raise KafkaError(
                ErrorCode.group_max_size_reached,
                f"The consumer group has reached its maximum capacity of {limit} members.",
            )

    def _admitted(
        self, draft: Draft, request: ConsumerHeartbeat, member_id: str
    ) -> ConsumerGroupMember:
        """Return the member before this request.  A new member is not added to the draft yet."""
        group, instance_id = draft.group, request.instance_id
        if request.epoch != JOINING_EPOCH:
            member = group.named_member(member_id, instance_id)
            _check_epoch(member, request)
            return member
        before = None if instance_id is None else group.static_member(instance_id)
        if before is None or before.id == member_id:
            return group.member_or_new(member_id)
        if not before.is_classic and before.at.epoch != STATIC_LEFT_EPOCH:
            raise KafkaError(
                ErrorCode.unreleased_instance_id,
                f"Static member {member_id} with instance id {instance_id} cannot join the group "
                f"because the instance id is owned by {before.id} member.",
            )
        return self.replace_static(draft, before, member_id)

    def replace_static(
        self, draft: Draft, before: ConsumerGroupMember, member_id: str
    ) -> ConsumerGroupMember:
        """Move the state of a static member, which rejoined under another id, to that id."""
        group_id, target = draft.group.id, draft.group.target(before.id)
        draft.add_all(_removal(group_id, before.id))
        at = replace(before.at, epoch=JOINING_EPOCH, previous_epoch=JOINING_EPOCH)
        draft.add(ConsumerGroupMemberMetadata(group_id, member_id, before.subscription))
        draft.add(ConsumerGroupTargetAssignmentMember(group_id, member_id, target))
        draft.add(ConsumerGroupCurrentMemberAssignment(group_id, member_id, at))
        self._forget_deadlines(group_id, before.id)
        return draft.group.members[member_id]

    # Steps of a heartbeat

    def subscribe(
        self, draft: Draft, before: ConsumerGroupMember, subscription: MemberSubscription
    ) -> bool:
        """Update the member's subscription (step 1); return whether the subscribed topics
        changed."""
        old, group_id = before.subscription, draft.group.id
        is_new = before.id not in draft.group.members
        if subscription != old or is_new:
            draft.add(ConsumerGroupMemberMetadata(group_id, before.id, subscription))
            self._drop_unused_patterns(draft)
        return is_new or (subscription.topics, subscription.pattern or "") != (
            old.topics,
            old.pattern or "",
        )

    def move(
        self, draft: Draft, member_id: str, is_changed: bool, owned: Partitions | None
    ) -> None:
        """Do steps 2 to 4.  `owned` are the partitions that the member reports; None if it did
        not."""
        group_id = draft.group.id
        if is_changed or self._seen_images.get(group_id) != self._images:
            self._look_at_topics(draft, is_changed)
        self._assign(draft)
        group = draft.group
        member = group.members[member_id]
        topics = None
        if group.epoch > group.target_epoch:
            topics = self._topic_ids(group.subscribed_topics(member.subscription))
        goal = Goal(group.target_epoch, group.target(member_id), topics)
        at = next_assignment(member.at, goal, owned, lambda p: group.is_free(p, member_id))
        if at != member.at:
            draft.add(ConsumerGroupCurrentMemberAssignment(group_id, member_id, at))
        self._seen_images[group_id] = self._images

    def _look_at_topics(self, draft: Draft, is_changed: bool) -> None:
        """Match patterns again, and bump the group epoch if topics changed (step 2)."""
        topics = self._image.topics
        for pattern in sorted(draft.group.subscribed_patterns()):
            matches = matching(pattern, topics)
            if matches != draft.group.patterns.get(pattern):
                at_ms = draft.step.now.wall_ms
                draft.add(ConsumerGroupRegularExpression(draft.group.id, pattern, matches, at_ms))
        group = draft.group
        metadata_hash = hash_of(group.all_subscribed_topics(), topics)
        if is_changed or metadata_hash != group.metadata_hash:
            self._grow_epoch(draft, metadata_hash)

    def _grow_epoch(self, draft: Draft, metadata_hash: int) -> None:
        group = draft.group
        if group.has_topics_record:
            draft.add(ConsumerGroupPartitionMetadata(group.id, False))
        draft.add(ConsumerGroupMetadata(group.id, group.epoch + 1, metadata_hash))

    def _assign(self, draft: Draft) -> None:
        """Recompute the target assignment if it is older than the group epoch (step 3)."""
        group, wall_ms = draft.group, draft.step.now.wall_ms
        if group.epoch <= group.target_epoch:
            return
        since_ms = wall_ms - group.target_at_ms
        if 0 <= since_ms < self._group_config(group.id).consumer_assignment_interval_ms:
            return  # a later heartbeat recomputes it
        topics = self._image.topics
        subscribers = {
            member.id: Subscriber(
                self._topic_ids(group.subscribed_topics(member.subscription)),
                group.target(member.id),
                member.subscription.instance_id,
            )
            for member in group.members.values()
        }
        subscribed = frozenset[UUID]().union(*(one.topics for one in subscribers.values()))
        counts = {
            info.id: len(info.partitions) for info in topics.values() if info.id in subscribed
        }
        name = group.assignor(self.default_assignor)
        for member_id, target in ASSIGNORS[name](subscribers, counts).items():
            if target != group.targets.get(member_id):
                draft.add(ConsumerGroupTargetAssignmentMember(group.id, member_id, target))
        draft.add(ConsumerGroupTargetAssignmentMetadata(group.id, group.epoch, wall_ms))

    @property
    def default_assignor(self) -> str:
        return self._config().group_consumer_assignors[0]

    def _topic_ids(self, names: Iterable[str]) -> frozenset[UUID]:
        """Return the ids of the topics that exist."""
        topics = self._image.topics
        return frozenset(topics[name].id for name in names if name in topics)

    def topic(self, name: str) -> TopicInfo | None:
        return self._image.topics.get(name)

    def topic_name(self, topic_id: UUID) -> str | None:
        return self._image.topic_names.get(topic_id)

    # Leaving

    def _leave(self, request: ConsumerHeartbeat, ticket: Ticket, step: Step) -> None:
        draft = self.draft(self.existing(request.group_id), step)
        member = draft.group.named_member(request.member_id, request.instance_id)
        if request.epoch == STATIC_LEFT_EPOCH:
            # It keeps its partitions until it rejoins or its session expires.
            at = replace(
                member.at,
                epoch=STATIC_LEFT_EPOCH,
                state=MemberState.STABLE,
                revoking=NOTHING_OWNED,
            )
            draft.add(ConsumerGroupCurrentMemberAssignment(draft.group.id, member.id, at))
            self._deadlines.drop((REVOKE, draft.group.id, member.id))
        else:
            self.remove(draft, [member.id])
        step.respond(ticket, ConsumerHeartbeatResult(request.member_id, request.epoch))

    def remove(self, draft: Draft, member_ids: Collection[str]) -> None:
        group_id = draft.group.id
        for member_id in member_ids:
            draft.add_all(_removal(group_id, member_id))
            self._forget_deadlines(group_id, member_id)
        self._drop_unused_patterns(draft)
        topics = draft.group.all_subscribed_topics()
        self._grow_epoch(draft, hash_of(topics, self._image.topics))

    def _drop_unused_patterns(self, draft: Draft) -> None:
        for pattern in sorted(draft.group.patterns.keys() - draft.group.subscribed_patterns()):
            draft.add(ConsumerGroupRegularExpression(draft.group.id, pattern, None))

    # Deadlines

    def expired(self, deadline: Deadline, step: Step) -> tuple[Draft, str] | None:
        """Return the draft and the id of the member to remove; None if the deadline is obsolete."""
        kind, group_id, member_id = deadline
        group = self.get(group_id)
        if group is None or kind not in DEADLINES:
            return None
        draft = self.draft(group, step)
        member = draft.group.members.get(member_id)
        if draft.is_over or member is None:
            return None
        if kind == REVOKE and member.at.state is not MemberState.UNREVOKED_PARTITIONS:
            return None
        return draft, member_id

    def await_session(self, group_id: str, member: ConsumerGroupMember, now: Now) -> None:
        classic = member.subscription.classic
        session_ms = (
            self._group_config(group_id).consumer_session_timeout_ms
            if classic is None
            else classic.session_timeout_ms
        )
        self._deadlines.set((SESSION, group_id, member.id), now.ms + session_ms)

    def _await_revocation(
        self, group_id: str, before: ConsumerGroupMember, after: ConsumerGroupMember, now: Now
    ) -> None:
        if after.at.state is not MemberState.UNREVOKED_PARTITIONS:
            self._deadlines.drop((REVOKE, group_id, after.id))
        elif after.at != before.at:
            self._await(REVOKE, after, group_id, now)

    def _await(self, kind: str, member: ConsumerGroupMember, group_id: str, now: Now) -> None:
        at_ms = now.ms + max(member.subscription.rebalance_timeout_ms, 0)
        self._deadlines.set((kind, group_id, member.id), at_ms)

    def _forget_deadlines(self, group_id: str, member_id: str) -> None:
        for kind in DEADLINES:
            self._deadlines.drop((kind, group_id, member_id))

    def _group_config(self, group_id: str) -> GroupConfig:
        config, overrides = self._config(), self._image.group_configs.get(group_id)
        cached = self._cached_configs.get(group_id)
        if cached is None or cached.broker is not config or cached.overrides is not overrides:
            merged = GroupConfig.stored(overrides or {}, config)
            cached = self._cached_configs[group_id] = CachedConfig(config, overrides, merged)
        return cached.config

    # Describing

    def describe(self, request: DescribeConsumerGroup, ticket: Ticket, step: Step) -> None:
        group = self.existing(request.group_id)
        members = [
            DescribedConsumer(
                member.id,
                member.subscription,
                member.at.epoch,
                frozenset(member.at.assigned),
                group.target(member.id),
            )
            for member in group.members.values()
        ]
        assignor = group.assignor(self.default_assignor)
        step.respond(
            ticket,
            DescribedConsumers(
                group.state.value, group.epoch, group.target_epoch, assignor, members
            ),
        )


def is_tombstone(event: ConsumerEvent) -> bool:
    match event:
        case (
            ConsumerGroupMetadata(epoch=value) | ConsumerGroupTargetAssignmentMetadata(epoch=value)
        ):
            return value is None
        case ConsumerGroupPartitionMetadata(is_there=is_there):
            return not is_there
        case (
            ConsumerGroupMemberMetadata(subscription=value)
            | ConsumerGroupTargetAssignmentMember(partitions=value)
        ):
            return value is None
        case (
            ConsumerGroupCurrentMemberAssignment(assignment=value)
            | ConsumerGroupRegularExpression(topics=value)
        ):
            return value is None


def _removal(group_id: str, member_id: str) -> Iterable[ConsumerEvent]:
    """Yield the tombstones of a member in Kafka's order.  The subscription, which makes it a
    member, comes last."""
    yield ConsumerGroupCurrentMemberAssignment(group_id, member_id, None)
    yield ConsumerGroupTargetAssignmentMember(group_id, member_id, None)
    yield ConsumerGroupMemberMetadata(group_id, member_id, None)


def _subscription_of(old: MemberSubscription, request: ConsumerHeartbeat) -> MemberSubscription:
    """Return the old subscription with the changes of the request."""
    topics, rebalance_ms = request.topics, request.rebalance_ms
    return replace(
        old,
        instance_id=old.instance_id if request.instance_id is None else request.instance_id,
        rack_id=old.rack_id if request.rack_id is None else request.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        topics=old.topics if topics is None else tuple(sorted(set(topics))),
        pattern=old.pattern if request.pattern is None else request.pattern,
        rebalance_timeout_ms=(
            old.rebalance_timeout_ms if rebalance_ms == UNCHANGED_MS else rebalance_ms
        ),
        assignor=old.assignor if request.assignor is None else request.assignor,
        classic=None,
    )


def _check_epoch(member: ConsumerGroupMember, request: ConsumerHeartbeat) -> None:
    """Raises KafkaError with FENCED_MEMBER_EPOCH.  The previous epoch is accepted, as the response
    with the new one may have been lost, if the member reports only partitions still assigned to
    it."""
    current_epoch = member.at.epoch
    if request.epoch == current_epoch:
        return
    is_behind = request.epoch == member.at.previous_epoch
    has_no_more = request.owned is not None and request.owned <= member.at.assigned.keys()
    if request.epoch > current_epoch or not (is_behind and has_no_more):
        compared = "greater" if request.epoch > current_epoch else "smaller"
        raise KafkaError(
            ErrorCode.fenced_member_epoch,
            f"The consumer group member has a {compared} member epoch ({request.epoch}) than the "
            f"one known by the group coordinator ({current_epoch}). The member must abandon all "
            "its partitions and rejoin.",
        )


def _invalid(text: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_request, text)
