"""ClassicGroup: a group whose members agree among themselves who reads what.

    state                 its members                              after
    Empty                 none; offsets may be there               PreparingRebalance
    PreparingRebalance    are waited for: all are to join again    Empty, Completing.., Stable
    CompletingRebalance   have joined; the leader is to say who    PreparingRebalance
                          reads what
    Stable                have their parts                         CompletingRebalance
    Dead                  none: the group was deleted              all

    Empty > PreparingRebalance           a member joins
    PreparingRebalance > Completing..    all have joined, or the time to do so is over
    PreparingRebalance > Empty           nobody is left
    CompletingRebalance > Stable         the leader's assignment is written
    Completing.., Stable > Preparing..   a member comes, goes, or changes what it says of itself

What is kept is its generation with its members, written when it becomes Empty or Stable; between
these its state runs ahead of what is kept.  How requests move it is in `classic.py`.

Pure: values only.  (Kafka: ClassicGroup, ClassicGroupState.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any, Protocol, TypeAlias
from uuid import UUID

from kserver.coordinator.shard import Ticket
from kserver.errors import ErrorCode, KafkaError, ProtocolError
from kserver.group.events import ClassicGroupMetadata, GroupDeleted, MemberMetadata
from kserver.group.member import ClassicGroupMember, Protocols
from kserver.group.records import ASSIGNMENT, CONSUMERS, SUBSCRIPTION, decoded
from kserver.group.requests import NO_MEMBER, JoinedMember
from kserver.model import NO_TIMESTAMP

CLASSIC, CONSUMER = "classic", "consumer"
"""Types of groups, as ListGroups names them."""


CommitCheck: TypeAlias = Callable[[UUID, int], ErrorCode]
"""Asked about a partition, by its topic's id: why the member may not commit it, else NONE."""


class Group(Protocol):
    """What offsets and lists have to know of a group of any type."""

    id: str
    type: str

    @property
    def state_name(self) -> str: ...

    @property
    def protocol_type(self) -> str | None: ...

    @property
    def is_empty(self) -> bool:
        """It has no members: it may be deleted."""

    def is_subscribed_to(self, topic: str) -> bool: ...

    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        *,
        transactional: bool,
        knows_stale_member_epoch: bool = True,
    ) -> CommitCheck | None:
        """What each partition is still to pass, if anything.  Raises KafkaError when that member
        may not commit."""

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Raises KafkaError when that member may not read what was committed."""

    def check_offset_delete(self) -> None:
        """Raises KafkaError."""

    def check_delete(self) -> None:
        """Raises KafkaError."""

    def retention_began_ms(self, committed_ms: int) -> int | None:
        """From when on an offset committed at that time is kept for its retention only; None as
        long as it is kept."""

    def deleted(self) -> Iterable[Any]:
        """The events that delete it."""


class ClassicGroupState(Enum):
    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


EMPTY, PREPARING_REBALANCE, COMPLETING_REBALANCE, STABLE, DEAD = ClassicGroupState

VALID_PREVIOUS_STATES: Mapping[ClassicGroupState, frozenset[ClassicGroupState]] = {
    EMPTY: frozenset({PREPARING_REBALANCE}),
    PREPARING_REBALANCE: frozenset({EMPTY, COMPLETING_REBALANCE, STABLE}),
    COMPLETING_REBALANCE: frozenset({PREPARING_REBALANCE}),
    STABLE: frozenset({COMPLETING_REBALANCE}),
    DEAD: frozenset(ClassicGroupState),
}
"""Each state with those from which it is reached, once the group is loaded."""


class ClassicGroup:
    type = CLASSIC

    def __init__(self, id: str, since_ms: int = NO_TIMESTAMP) -> None:
        self.id = id
        self.state = EMPTY
        self.since_ms = since_ms
        """Since when it is in its state, by the wall clock."""
        self.is_first_rebalance = False
        """It was empty before: more members are likely to come."""
        self.has_grown = False
        """A member came while the first rebalance waited."""
        self.delay_ms = 0
        """How long it waits now, and how much longer it may."""
        self.more_delay_ms = 0
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, ClassicGroupMember] = {}
        self.static: dict[str, str] = {}
        """Member ids of static members, by instance id."""
        self.pending: dict[str, None] = {}
        """Ids that were given out, and whose members have yet to come with them."""
        self.unsynced: dict[str, None] = {}
        """Members that did not ask for their part of this generation yet."""
        self.joining = 0
        """Members that wait for the others."""
        self.subscribed: frozenset[str] | None = None
        """Topics of all members of a group of consumers; None where that is not known."""
        self._support: dict[str, int] = {}
        """How many members have each protocol."""

    # What it is

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def is_empty(self) -> bool:
        return self.state is EMPTY

    @property
    def has_consumers(self) -> bool:
        return self.protocol_type == CONSUMERS

    @property
    def all_joined(self) -> bool:
        return self.joining == len(self.members) and not self.pending

    @property
    def rebalance_ms(self) -> int:
        """How long members are waited for."""
        return max((member.rebalance_ms for member in self.members.values()), default=0)

    def is_leader(self, member_id: str) -> bool:
        return self.leader == member_id

    def is_subscribed_to(self, topic: str) -> bool:
        """Where the topics are not known, any may be one of them."""
        return self.has_consumers if self.subscribed is None else topic in self.subscribed

    def enter(self, state: ClassicGroupState, now_ms: int) -> None:
        """`now_ms` by the wall clock."""
        assert self.state in VALID_PREVIOUS_STATES[state], f"{self.id}: {self.state} > {state}"
        self.is_first_rebalance = self.state is EMPTY
        self.state = state
        self.since_ms = now_ms

    # Who may

    def check_member(self, member_id: str, instance_id: str | None) -> ClassicGroupMember:
        """Raises UNKNOWN_MEMBER_ID, and FENCED_INSTANCE_ID for a static one that was replaced."""
        if instance_id is not None:
            current = self.static.get(instance_id)
            if current is not None and current != member_id:
                raise KafkaError(ErrorCode.fenced_instance_id)
            if current is None:
                raise KafkaError(ErrorCode.unknown_member_id)
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.unknown_member_id)
        return member

    def check_generation(self, generation: int) -> None:
        if generation != self.generation:
            raise KafkaError(ErrorCode.illegal_generation)

    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        *,
        transactional: bool,
        knows_stale_member_epoch: bool = True,
    ) -> None:
        if generation < 0 and self.state is EMPTY:
            return  # who commits takes no part in groups
        if generation >= 0 or member_id != NO_MEMBER or instance_id is not None:
            self.check_member(member_id, instance_id)
            self.check_generation(generation)
        elif not transactional:
            # Transactional commits of old clients do not say who commits.
            raise KafkaError(ErrorCode.unknown_member_id)
        if not transactional and self.state is COMPLETING_REBALANCE:
            raise KafkaError(ErrorCode.rebalance_in_progress)

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        pass

    def check_offset_delete(self) -> None:
        """What consumers read is known, so the rest may go while they are there."""
        if self.state is not EMPTY and not self.has_consumers:
            raise KafkaError(ErrorCode.non_empty_group)

    def check_delete(self) -> None:
        if self.state is not EMPTY:
            raise KafkaError(ErrorCode.non_empty_group)

    def retention_began_ms(self, committed_ms: int) -> int | None:
        """KIP-211: an offset is kept while its group has members; then from the group's end on, or
        where it never had members or does not read that topic any more, from the commit on."""
        if self.protocol_type is None:
            return committed_ms
        if self.state is EMPTY:
            return committed_ms if self.since_ms == NO_TIMESTAMP else self.since_ms
        if self.has_consumers and self.subscribed is not None and self.state is STABLE:
            return committed_ms
        return None

    def deleted(self) -> Iterable[Any]:
        yield GroupDeleted(self.id)

    # Members

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member with these can take part: all members share one of them."""
        if self.state is EMPTY:
            return bool(protocol_type and protocols)
        return protocol_type == self.protocol_type and any(
            self._support.get(name, 0) == len(self.members) for name, _ in protocols
        )

    def add(self, member: ClassicGroupMember, protocol_type: str) -> None:
        if member.instance_id is not None:
            assert member.instance_id not in self.static
            self.static[member.instance_id] = member.id
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader is None:
            self.leader = member.id
        self.members[member.id] = member
        self._count(member, 1)
        self.pending.pop(member.id, None)

    def remove(self, member_id: str) -> None:
        """A member, or an id that was given out; none of both is fine as well."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count(member, -1)
            self.joining -= member.join_ticket is not None
            if member.instance_id is not None:
                del self.static[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending.pop(member_id, None)
        self.unsynced.pop(member_id, None)

    def replace(self, instance_id: str, new_id: str) -> ClassicGroupMember:
        """A static member is there again, under a new id: the old one's place is its own now."""
        old_id = self.static[instance_id]
        # In the same place: the order of members is what assignors see.
        members = [(new_id if id == old_id else id, m) for id, m in self.members.items()]
        self.members = dict(members)
        member = self.members[new_id]
        member.id = new_id
        assert member.join_ticket is None
        assert member.sync_ticket is None
        self.static[instance_id] = new_id
        if self.leader == old_id:
            self.leader = new_id
        if old_id in self.unsynced:
            del self.unsynced[old_id]
            self.unsynced[new_id] = None
        return member

    def update(
        self, member: ClassicGroupMember, protocols: Protocols, rebalance_ms: int, session_ms: int
    ) -> None:
        self._count(member, -1)
        member.protocols = protocols
        self._count(member, 1)
        member.rebalance_ms = rebalance_ms
        member.session_ms = session_ms

    def await_join(self, member: ClassicGroupMember, ticket: Ticket) -> None:
        self.joining += member.join_ticket is None
        member.join_ticket = ticket

    def take_join_ticket(self, member: ClassicGroupMember) -> Ticket | None:
        """None when it does not wait."""
        ticket, member.join_ticket = member.join_ticket, None
        self.joining -= ticket is not None
        return ticket

    def _count(self, member: ClassicGroupMember, by: int) -> None:
        # A name that is given twice counts once.
        for name in dict(member.protocols):
            count = self._support.get(name, 0) + by
            if count:
                self._support[name] = count
            else:
                del self._support[name]

    # Generations

    def elect_leader(self) -> bool:
        """A leader that has joined; False when nobody has."""
        if self.leader is None:
            return False
        if self.members[self.leader].join_ticket is None:
            joined = (m.id for m in self.members.values() if m.join_ticket is not None)
            elected = next(joined, None)
            if elected is None:
                return False
            self.leader = elected
        return True

    def select_protocol(self) -> str:
        """The protocol that most members like best, of those that all of them have."""
        candidates = {n for n, count in self._support.items() if count == len(self.members)}
        votes: dict[str, int] = {}
        for member in self.members.values():
            name = member.vote(candidates)
            votes[name] = votes.get(name, 0) + 1
        return max(votes, key=votes.__getitem__)

    def begin_generation(self, now_ms: int) -> None:
        """With whoever has joined."""
        self.generation += 1
        self.unsynced = {}
        self.has_grown = False
        if self.members:
            self.protocol = self.select_protocol()
            self.enter(COMPLETING_REBALANCE, now_ms)
        else:
            self.protocol = None
            self.enter(EMPTY, now_ms)
        self.subscribed = self._subscribed()

    def joined_members(self) -> tuple[JoinedMember, ...]:
        assert self.protocol is not None
        return tuple(
            JoinedMember(member.id, member.instance_id, member.metadata(self.protocol))
            for member in self.members.values()
        )

    def _subscribed(self) -> frozenset[str] | None:
        if not self.has_consumers:
            return None
        if self.members and self.protocol is None:
            return None
        try:
            return frozenset(
                topic
                for member in self.members.values()
                for topic in _topics(member.metadata(self.protocol or ""))
            )
        except ProtocolError:
            return None  # some clients write what they like

    def owes_join(self, member: ClassicGroupMember) -> bool:
        """Whether the member has to join again: it owned partitions that this generation does not
        assign to it, and another member gets them once it has revoked them (KIP-429)."""
        if not self.has_consumers or self.protocol is None:
            return False
        try:
            subscribed = decoded(SUBSCRIPTION, member.metadata(self.protocol))
            owned = _partitions(subscribed.get("ownedPartitions") or ())
            if not owned or not member.assignment:
                return bool(owned)
            assigned = decoded(ASSIGNMENT, member.assignment)
            return not owned <= _partitions(assigned["assignedPartitions"])
        except ProtocolError:
            return False  # some clients write what they like

    # What is kept

    def kept(
        self, now_ms: int | None = None, assignments: Mapping[str, bytes] | None = None
    ) -> ClassicGroupMetadata:
        """The event that keeps it as it is now: Stable with these assignments since `now_ms`, or
        as it is."""
        members = tuple(
            MemberMetadata(
                member.id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_ms,
                member.session_ms,
                member.metadata(self.protocol or ""),
                member.assignment if assignments is None else assignments.get(member.id, b""),
            )
            for member in self.members.values()
        )
        return ClassicGroupMetadata(
            self.id,
            self.protocol_type or "",
            self.generation,
            self.protocol,
            self.leader,
            self.since_ms if now_ms is None else now_ms,
            members,
        )

    def keep(self, event: ClassicGroupMetadata) -> None:
        """Become what was written; who waits and all that a member has beside goes on."""
        self.protocol_type = event.protocol_type or None
        self.generation = event.generation
        self.protocol = event.protocol
        self.leader = event.leader
        self.since_ms = event.since_ms
        self.state = STABLE if event.members else EMPTY
        before, self.members = self.members, {}
        self.static, self._support, self.joining = {}, {}, 0
        for kept in event.members:
            member = before.get(kept.id)
            if member is None:
                member = ClassicGroupMember(
                    kept.id,
                    kept.instance_id,
                    kept.client_id,
                    kept.client_host,
                    kept.rebalance_ms,
                    kept.session_ms,
                    (),
                )
            if dict(member.protocols).get(event.protocol or "") != kept.subscription:
                member.protocols = ((event.protocol or "", kept.subscription),)
            member.rebalance_ms, member.session_ms = kept.rebalance_ms, kept.session_ms
            member.assignment = kept.assignment
            self.members[kept.id] = member
            self._count(member, 1)
            self.joining += member.join_ticket is not None
            if kept.instance_id is not None:
                self.static[kept.instance_id] = kept.id
        self.subscribed = self._subscribed()

    def check(self) -> None:
        """The invariants; for tests."""
        members = self.members
        assert all(id == member.id for id, member in members.items())
        assert self.joining == sum(m.join_ticket is not None for m in members.values())
        support: dict[str, int] = {}
        for member in members.values():
            for name in dict(member.protocols):
                support[name] = support.get(name, 0) + 1
        assert self._support == support
        assert self.static == {
            m.instance_id: m.id for m in members.values() if m.instance_id is not None
        }
        assert not self.pending.keys() & members.keys()
        assert self.unsynced.keys() <= members.keys()
        assert (self.leader in members) if members else self.leader is None
        if members:
            assert self.protocol_type
            assert len(members) in support.values()
        waits_to_sync = [m for m in members.values() if m.sync_ticket is not None]
        if self.state is EMPTY or self.state is DEAD:
            assert not members
        if self.state is not COMPLETING_REBALANCE:
            assert not waits_to_sync
        if self.state is not PREPARING_REBALANCE:
            assert self.joining == 0
        if self.state in (COMPLETING_REBALANCE, STABLE):
            assert members
            assert self.protocol is not None
            assert support[self.protocol] == len(members)
        if self.state in (EMPTY, PREPARING_REBALANCE):
            assert not self.unsynced


def _topics(metadata: bytes) -> list[str]:
    """The topics of a consumer's subscription; each of its versions begins as the first one
    does."""
    if len(metadata) < 2:
        raise ProtocolError("a subscription is truncated")
    fields = SUBSCRIPTION.decode(0, memoryview(metadata)[2:])
    topics: list[str] = fields["topics"]
    return topics


def _partitions(topics: Iterable[Mapping[str, Any]]) -> set[tuple[str, int]]:
    return {(one["topic"], number) for one in topics for number in one["partitions"]}
