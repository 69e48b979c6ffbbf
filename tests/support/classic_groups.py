"""A group coordinator without a broker: its shard, its log, and a time that tests advance. Each
event is replayed from its record, and each step is checked.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kserver.config.broker import BrokerConfig
from kserver.coordinator.shard import Now, Outcome
from kserver.errors import KafkaError
from kserver.group.group import EMPTY, STABLE, ClassicGroup
from kserver.group.requests import (
    NO_TOPIC_ID,
    Commit,
    CommitOffsets,
    CommitTransactionalOffsets,
    FetchedOffset,
    FetchOffsets,
    Heartbeat,
    JoinGroup,
    JoinGroupResult,
    LeaveGroup,
    LeavingMember,
    SyncGroup,
)
from kserver.group.shard import GroupShard
from kserver.metadata import ClusterMetadata, PartitionInfo, TopicInfo
from kserver.model import NO_PRODUCER_ID

GROUP = "g"
SESSION_MS = 10_000
REBALANCE_MS = 60_000
DELAY_MS = 3000
WALL_MS = 1_700_000_000_000
"""The wall clock's time when the loop's time is 0."""


def subscription(*topics: str) -> bytes:
    """Return a consumer's subscription, in version 0."""
    named = b"".join(len(t).to_bytes(2) + t.encode() for t in topics)
    return b"\0\0" + len(topics).to_bytes(4) + named + b"\xff\xff\xff\xff"


class Groups:
    """A group coordinator; `settings` are by attribute name."""

    def __init__(self, **settings: Any) -> None:
        self.config = replace(BrokerConfig(), **settings)
        self.now_ms = 0
        self.log: list[tuple[bytes, bytes | None, int] | tuple[int, bool]] = []
        """Records with their producer, and the ends of transactions."""
        self.answers: dict[int, Any] = {}
        """Responses by ticket."""
        self.image = ClusterMetadata("c")
        self.set_topics("t", "u")
        self._tickets = 0
        self._ids = 0
        self.shard = self._new_shard()
        self._carry_out(self.shard.image_changed(self.image, self.now))
        self._carry_out(self.shard.loaded(self.now))

    @property
    def now(self) -> Now:
        return Now(self.now_ms, WALL_MS + self.now_ms)

    @property
    def group(self) -> ClassicGroup:
        found = self.shard.groups[GROUP]
        assert isinstance(found, ClassicGroup)
        return found

    def values(self) -> list[tuple[type, Any]]:
        """Return the events that were written."""
        return [self.shard.decode(*one[:2]) for one in self.log if len(one) == 3]

    def _new_shard(self) -> GroupShard:
        return GroupShard(lambda: self.config, self._new_id)

    def _new_id(self) -> str:
        self._ids += 1
        return str(self._ids)

    # Requests

    def ask(self, request: Any) -> Any:
        """Return the response, None if there is none yet. Raises its KafkaError."""
        answer = self.answers.get(self.send(request))
        if isinstance(answer, KafkaError):
            raise answer
        return answer

    def send(self, request: Any) -> int:
        """Send a request, and return its ticket."""
        self._tickets += 1
        try:
            self._carry_out(self.shard.handle(request, self._tickets, self.now))
        except KafkaError as error:
            self.answers[self._tickets] = error
            self.shard.check()
        return self._tickets

    def _carry_out(self, outcome: Outcome) -> None:
        producer = outcome.transactional.producer_id if outcome.transactional else NO_PRODUCER_ID
        for event in outcome.events:
            key, value = self.shard.encode(event)
            self.log.append((key, value, producer))
            assert self.shard.decode(key, value) == event
            self.shard.replay(event, producer)
        self.shard.check()
        for ticket, answer in outcome.responses:
            assert ticket not in self.answers, "answered twice"
            self.answers[ticket] = answer

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        self.log.append((producer_id, committed))
        self.shard.replay_end(producer_id, committed)
        self.shard.check()

    # The broker around it

    def advance(self, ms: int) -> None:
        end_ms = self.now_ms + ms
        while (at_ms := self.shard.next_deadline_ms) is not None and at_ms <= end_ms:
            self.now_ms = max(self.now_ms, at_ms)
            self._carry_out(self.shard.expire(self.now))
        self.now_ms = end_ms

    def reload(self) -> None:
        """Reload as after a crash: replay the log; waiting requests have no response."""
        before, self.shard = self.shard, self._new_shard()
        for entry in self.log:
            if len(entry) == 2:
                self.shard.replay_end(*entry)
            else:
                event = self.shard.decode(*entry[:2])
                assert event is not None
                self.shard.replay(event, entry[2])
        assert offsets_of(self.shard) == offsets_of(before)
        assert {**settled(before), **settled(self.shard)} == settled(self.shard)
        self._carry_out(self.shard.image_changed(self.image, self.now))
        self._carry_out(self.shard.loaded(self.now))

    def set_topics(self, *names: str, id_of: Mapping[str, int] | None = None) -> None:
        """Set the topics that exist; delete all others."""
        topics = {}
        for name in names:
            topic_id = uuid.UUID(int=(id_of or {}).get(name, 0) or sum(name.encode()))
            partitions = tuple(PartitionInfo(n, 0, 0, (0,), (0,)) for n in range(4))
            topics[name] = TopicInfo(name, topic_id, partitions)
        self.set_image(self.image.with_topics(topics, self.image.topics.keys() - topics))

    def set_image(self, image: ClusterMetadata) -> None:
        self.image = image
        if hasattr(self, "shard"):
            self._carry_out(self.shard.image_changed(self.image, self.now))


def settled(shard: GroupShard) -> dict[str, Any]:
    """Return the persisted state of the groups that have no other state, except new groups."""
    return {
        group.id: group.metadata_event()
        for group in shard.groups.values()
        if isinstance(group, ClassicGroup) and group.state in (EMPTY, STABLE) and group.generation
    }


def offsets_of(shard: GroupShard) -> dict[tuple[str, bool], Any]:
    """Return every committed offset, and whether a transaction has a pending one."""
    found = {
        (group, stable): {
            (topic, one)
            for topic, partitions in fetch(shard, group, require_stable=stable)
            for one in partitions
        }
        for group in shard.groups
        for stable in (False, True)
    }
    return {group: offsets for group, offsets in found.items() if offsets}


def fetch(shard: GroupShard, group: str, **fields: Any) -> Any:
    return shard.offsets.fetch(FetchOffsets(group, None, **fields))


# Requests, of which tests name the fields that matter to them


def join(member_id: str = "", **fields: Any) -> JoinGroup:
    default = JoinGroup(
        group_id=GROUP,
        member_id=member_id,
        instance_id=None,
        client_id="c",
        client_host="/h",
        session_ms=SESSION_MS,
        rebalance_ms=REBALANCE_MS,
        protocol_type="consumer",
        protocols=(("range", subscription("t")),),
        must_know_id=False,
    )
    return default._replace(**fields)


def sync(
    joined: JoinGroupResult, assignments: Mapping[str, bytes] | None = None, **fields: Any
) -> SyncGroup:
    given = {} if assignments is None else assignments
    default = SyncGroup(GROUP, joined.generation, joined.member_id, None, None, None, given)
    return default._replace(**fields)


def heartbeat(joined: JoinGroupResult, **fields: Any) -> Heartbeat:
    return Heartbeat(GROUP, joined.generation, joined.member_id, None)._replace(**fields)


def leave(*members: str | tuple[str, str | None]) -> LeaveGroup:
    named = [(one, None) if isinstance(one, str) else one for one in members]
    return LeaveGroup(GROUP, [LeavingMember(*one) for one in named])


def commit(
    *offsets: tuple[str, int, int], joined: JoinGroupResult | None = None, **fields: Any
) -> CommitOffsets:
    """Return topics with partitions."""
    generation, member_id = (-1, "") if joined is None else (joined.generation, joined.member_id)
    request = CommitOffsets(GROUP, generation, member_id, None, _commits(offsets))
    return request._replace(**fields)


def commit_in_transaction(
    producer_id: int, *offsets: tuple[str, int, int], **fields: Any
) -> CommitTransactionalOffsets:
    request = CommitTransactionalOffsets(
        GROUP, "x", producer_id, 0, -1, "", None, _commits(offsets)
    )
    return request._replace(**fields)


def _commits(offsets: Sequence[tuple[str, int, int]]) -> list[Commit]:
    return [Commit(topic, NO_TOPIC_ID, p, offset, -1, "") for topic, p, offset in offsets]


def fetched(groups: Groups, topic: str = "t", partition: int = 0, **fields: Any) -> FetchedOffset:
    request = FetchOffsets(GROUP, [(topic, [partition])], **fields)
    ((_, (one,)),) = groups.ask(request)
    found: FetchedOffset = one
    return found


def stable(groups: Groups, *requests: JoinGroup) -> list[JoinGroupResult]:
    """Create a stable group of the members that join with these requests; the first one leads."""
    tickets = [groups.send(request) for request in requests]
    while tickets[-1] not in groups.answers:
        groups.advance(DELAY_MS)
    members: list[JoinGroupResult] = [groups.answers[ticket] for ticket in tickets]
    assignments = {one.member_id: f"of {one.member_id}".encode() for one in members}
    for one in members:
        is_leader = one.member_id == one.leader
        groups.send(sync(one, assignments if is_leader else None))
    assert groups.group.state is STABLE
    return members
