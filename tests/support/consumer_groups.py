"""A group coordinator without a broker: its shard, its log, and members that act as clients do, one
step at a time.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from kserver.config.broker import BrokerConfig
from kserver.coordinator.shard import Now, Outcome
from kserver.errors import ErrorCode, KafkaError
from kserver.group.consumer_events import (
    JOINING_EPOCH,
    LEFT_EPOCH,
    STATIC_LEFT_EPOCH,
    TopicIdPartition,
    by_topic,
)
from kserver.group.consumer_group import ConsumerGroup
from kserver.group.consumer_requests import ConsumerHeartbeat, ConsumerHeartbeatResult
from kserver.group.records import CONSUMERS, MEMBER_PROTOCOL
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
from kserver.group.shard import GroupShard
from kserver.metadata import ClusterMetadata, PartitionInfo, TopicInfo

GROUP = "g"
REBALANCE_MS = 20_000
SESSION_MS = 10_000
SUBSCRIPTION = MEMBER_PROTOCOL["ConsumerProtocolSubscription"]
ASSIGNMENT = MEMBER_PROTOCOL["ConsumerProtocolAssignment"]
OUT = {
    ErrorCode.unknown_member_id,
    ErrorCode.fenced_member_epoch,
    ErrorCode.fenced_instance_id,
    ErrorCode.group_id_not_found,
}
"""Errors with which a member learns that it is not a member any more."""


class Coordinator:
    def __init__(self, **settings: Any) -> None:
        self.config = replace(BrokerConfig(), **settings)
        self.now_ms = 1_000_000
        self.log: list[tuple[bytes, bytes | None]] = []
        self.answers: dict[int, Any] = {}
        self._waiting: set[int] = set()
        """Tickets without a response."""
        self._tickets = 0
        self._ids = 0
        self._topics = 0
        self.image = ClusterMetadata("c")
        self.shard = self._new_shard()

    def _new_shard(self) -> GroupShard:
        return GroupShard(lambda: self.config, self._new_id)

    def _new_id(self) -> str:
        self._ids += 1
        return f"id-{self._ids}"

    @property
    def now(self) -> Now:
        return Now(self.now_ms, self.now_ms + 7)

    @property
    def group(self) -> ConsumerGroup:
        found = self.shard.groups[GROUP]
        assert isinstance(found, ConsumerGroup)
        return found

    def ask(self, request: Any) -> Any:
        """Return the response, if there is one at once. Raises its KafkaError."""
        ticket = self.send(request)
        answer = self.answers.pop(ticket, None)
        if isinstance(answer, KafkaError):
            raise answer
        return answer

    def send(self, request: Any) -> int:
        """Send a request, and return its ticket; `answers` has the response once there is one."""
        self._tickets = ticket = self._tickets + 1
        self._waiting.add(ticket)
        try:
            self._carry_out(self.shard.handle(request, ticket, self.now))
        except KafkaError as error:
            self._answer([(ticket, error)])
        return ticket

    def _answer(self, answers: Iterable[tuple[int, Any]]) -> None:
        for ticket, answer in answers:
            assert ticket in self._waiting, "answered twice"
            self._waiting.remove(ticket)
            self.answers[ticket] = answer

    def _carry_out(self, outcome: Outcome) -> None:
        for event in outcome.events:
            key, value = self.shard.encode(event)
            self.log.append((key, value))
            assert self.shard.decode(key, value) == event
            self.shard.replay(event)
        self.shard.check()
        self._answer(outcome.responses)

    def advance(self, ms: int) -> None:
        end_ms = self.now_ms + ms
        while (at_ms := self.shard.next_deadline_ms) is not None and at_ms <= end_ms:
            self.now_ms = max(self.now_ms, at_ms)
            self._carry_out(self.shard.expire(self.now))
        self.now_ms = end_ms

    def reload(self) -> None:
        """Reload the shard from its log alone."""
        lost = KafkaError(ErrorCode.not_coordinator)
        self._answer([(ticket, lost) for ticket in sorted(self._waiting)])
        before = {g.id: g.snapshot() for g in self._consumer_groups()}
        self.shard = self._new_shard()
        for key, value in self.log:
            self.shard.replay(self.shard.decode(key, value))
        assert {g.id: g.snapshot() for g in self._consumer_groups()} == before
        self._carry_out(self.shard.image_changed(self.image, self.now))
        self._carry_out(self.shard.loaded(self.now))

    def _consumer_groups(self) -> list[ConsumerGroup]:
        return [g for g in self.shard.groups.values() if isinstance(g, ConsumerGroup)]

    def set_topic(self, name: str, partitions: int) -> None:
        """Create or grow a topic; delete it if `partitions` is 0."""
        known = self.image.topics.get(name)
        if partitions == 0:
            self.image = self.image.with_topics({}, frozenset({name}))
        else:
            self._topics += known is None
            topic_id = uuid.UUID(int=self._topics) if known is None else known.id
            found = tuple(PartitionInfo(n, 0, 0, (0,), (0,)) for n in range(partitions))
            self.image = self.image.with_topics({name: TopicInfo(name, topic_id, found)})
        self._carry_out(self.shard.image_changed(self.image, self.now))

    def partitions(self, *names: str) -> set[TopicIdPartition]:
        """Return the partitions of those topics that exist."""
        topics = [self.image.topics[name] for name in names if name in self.image.topics]
        return {TopicIdPartition(t.id, p.partition) for t in topics for p in t.partitions}


class Consumer:
    """A member like the Java client. It revokes partitions at once or later, takes new ones only
    then, and sends its full state after a lost response.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        member_id: str,
        topics: tuple[str, ...] | None = ("t",),
        *,
        pattern: str | None = None,
        instance_id: str | None = None,
        assignor: str | None = None,
    ) -> None:
        self.coordinator = coordinator
        self.id = member_id
        self.topics = topics
        self.pattern = pattern
        self.instance_id = instance_id
        self.assignor = assignor
        self.epoch = JOINING_EPOCH
        self.owned: frozenset[TopicIdPartition] = frozenset()
        self.told: frozenset[TopicIdPartition] = frozenset()
        self.is_to_say_all = True

    def request(self) -> ConsumerHeartbeat:
        says_all = self.is_to_say_all or self.epoch == JOINING_EPOCH
        return ConsumerHeartbeat(
            GROUP,
            self.id,
            self.epoch,
            "client",
            "/127.0.0.1",
            instance_id=self.instance_id,
            rebalance_ms=REBALANCE_MS if says_all else -1,
            topics=self.topics if says_all else None,
            pattern=self.pattern if says_all else None,
            assignor=self.assignor if says_all else None,
            owned=self.owned,
        )

    def beat(self, *, is_lost: bool = False, lags: bool = False) -> ConsumerHeartbeatResult | None:
        """Send one heartbeat. Lose its response if `is_lost`; do not reconcile yet if it `lags`."""
        try:
            heard: ConsumerHeartbeatResult = self.coordinator.ask(self.request())
        except KafkaError as error:
            if error.code not in OUT or self.epoch == JOINING_EPOCH:
                raise
            self.start_anew()
            return None
        if is_lost:
            self.is_to_say_all = True
            return None
        self.is_to_say_all = False
        self.epoch = heard.epoch
        if heard.assigned is not None:
            self.told = heard.assigned
        if not lags:
            self.reconcile()
        return heard

    def reconcile(self) -> None:
        """Revoke the partitions that are not in the assignment; once reported, take the others."""
        kept = self.owned & self.told
        self.owned = self.told if kept == self.owned else kept

    def start_anew(self) -> None:
        self.epoch = JOINING_EPOCH
        self.owned = self.told = frozenset()

    def leave(self, epoch: int = LEFT_EPOCH) -> None:
        self.coordinator.ask(self.request()._replace(epoch=epoch, owned=None))
        self.start_anew()

    def leave_for_a_while(self) -> None:
        assert self.instance_id is not None
        self.leave(STATIC_LEFT_EPOCH)


class ClassicConsumer:
    """A member that uses JoinGroup and SyncGroup, one step at a time. As leader of a classic group,
    it computes the assignment.

    If `cooperative`, it keeps its partitions while it joins, and revokes those that are not
    assigned to it again.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        topics: tuple[str, ...] = ("t",),
        *,
        cooperative: bool = False,
        instance_id: str | None = None,
    ) -> None:
        self.coordinator = coordinator
        self.topics = topics
        self.cooperative = cooperative
        self.instance_id = instance_id
        self.start_anew()

    def start_anew(self) -> None:
        self.id = NO_MEMBER
        self.generation = -1
        self.owned: frozenset[TopicIdPartition] = frozenset()
        self.is_stable = False
        """Whether it has the assignment of its generation."""
        self._waits_for: int | None = None
        self._joined: JoinGroupResult | None = None

    def metadata(self) -> bytes:
        owned = [
            {"topic": self._name(topic_id), "partitions": numbers}
            for topic_id, numbers in by_topic(self.owned).items()
        ]
        fields = {"topics": self.topics, "ownedPartitions": owned}
        return (1).to_bytes(2) + SUBSCRIPTION.encode(1, fields)

    def _name(self, topic_id: uuid.UUID) -> str:
        return self.coordinator.image.topic_names.get(topic_id, "deleted")

    def step(self) -> None:
        """Send one request, or process its response."""
        if self._waits_for is not None:
            if self._waits_for in self.coordinator.answers:
                answer = self.coordinator.answers.pop(self._waits_for)
                self._waits_for = None
                self._hear(answer)
        elif self.is_stable:
            self._beat()
        elif self._joined is None:
            self._join()
        else:
            self._sync(self._joined)

    def _join(self) -> None:
        if not self.cooperative:
            self.owned = frozenset()
        self._waits_for = self.coordinator.send(
            JoinGroup(
                GROUP,
                self.id,
                self.instance_id,
                "classic",
                "/127.0.0.1",
                SESSION_MS,
                REBALANCE_MS,
                CONSUMERS,
                (("range", self.metadata()),),
            )
        )

    def _sync(self, joined: JoinGroupResult) -> None:
        assignments = {}
        if joined.leader == self.id and joined.members:
            members = [member.id for member in joined.members]
            for place, member_id in enumerate(members):
                shared = {
                    topic: range(
                        place, len(self.coordinator.image.topics[topic].partitions), len(members)
                    )
                    for topic in self.topics
                }
                topics = [{"topic": t, "partitions": list(n)} for t, n in shared.items()]
                fields = {"assignedPartitions": topics}
                assignments[member_id] = (0).to_bytes(2) + ASSIGNMENT.encode(0, fields)
        self._waits_for = self.coordinator.send(
            SyncGroup(
                GROUP,
                self.generation,
                self.id,
                self.instance_id,
                CONSUMERS,
                joined.protocol,
                assignments,
            )
        )

    def _beat(self) -> None:
        try:
            self.coordinator.ask(Heartbeat(GROUP, self.generation, self.id, self.instance_id))
        except KafkaError as error:
            self._refused(error.code)

    def _hear(self, answer: Any) -> None:
        if isinstance(answer, KafkaError):
            self._refused(answer.code)
        elif isinstance(answer, JoinGroupResult):
            if answer.error is ErrorCode.member_id_required:
                self.id = answer.member_id
            elif answer.error is not ErrorCode.none:
                self._refused(answer.error)
            else:
                self.id, self.generation = answer.member_id, answer.generation
                self._joined = answer
        else:
            assert isinstance(answer, SyncGroupResult)
            self._joined, self.is_stable = None, True
            self._take(self._decoded(answer.assignment))

    def _take(self, assigned: frozenset[TopicIdPartition]) -> None:
        if self.cooperative and not self.owned <= assigned:
            # It reports revoked partitions by joining again.
            self.is_stable = False
            self.owned &= assigned
        else:
            self.owned = assigned

    def _decoded(self, assignment: bytes) -> frozenset[TopicIdPartition]:
        if not assignment:
            return frozenset()
        topics = ASSIGNMENT.decode(0, assignment[2:])["assignedPartitions"]
        known = self.coordinator.image.topics
        return frozenset(
            TopicIdPartition(known[topic["topic"]].id, number)
            for topic in topics
            for number in topic["partitions"]
            if topic["topic"] in known
        )

    def _refused(self, code: ErrorCode) -> None:
        self.is_stable, self._joined = False, None
        if code is ErrorCode.illegal_generation:
            self.generation, self.owned = -1, frozenset()
        elif code in OUT:
            self.start_anew()

    def leave(self) -> None:
        self.coordinator.ask(LeaveGroup(GROUP, [LeavingMember(self.id, self.instance_id)]))
        self.start_anew()
