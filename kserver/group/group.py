"""ClassicGroup: a group whose members decide on their assignment themselves.

    state                 its members                              previous states
    Empty                 none; offsets may exist                  PreparingRebalance
    PreparingRebalance    all have to rejoin                       Empty, Completing.., Stable
    CompletingRebalance   have joined; the leader has to send      PreparingRebalance
                          the assignments
    Stable                have their assignments                   CompletingRebalance
    Dead                  none: the group was deleted              all

    Empty > PreparingRebalance           a member joins
    PreparingRebalance > Completing..    all have joined, or the join timeout expired
    PreparingRebalance > Empty           no members are left
    CompletingRebalance > Stable         the leader's assignment is written
    Completing.., Stable > Preparing..   a member joins, leaves, or changes its subscription

The generation and its members are persisted when the group becomes Empty or Stable; in between,
its state is ahead of the persisted one.  `classic.py` handles the requests.

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
"""Group types, as ListGroups names them."""


CommitCheck: TypeAlias = Callable[[UUID, int], ErrorCode]
"""Check of one partition, by topic id: the error if the member may not commit it, else NONE."""


class Group(Protocol):
    """Interface of a group of any type, for offsets and lists of groups."""

    id: str
    type: str

    @property
    def state_name(self) -> str: ...

    @property
    def protocol_type(self) -> str | None: ...

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members and may be deleted."""

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
        """Return the check that each partition has still to pass, or None.  Raises KafkaError if
        this member may not commit."""

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Raises KafkaError if this member may not fetch committed offsets."""

    def check_offset_delete(self) -> None:
        """Raises KafkaError if offsets of the group may not be deleted."""

    def check_delete(self) -> None:
        """Raises KafkaError if the group may not be deleted."""

    def retention_began_ms(self, committed_ms: int) -> int | None:
        """Return when the retention of an offset committed at `committed_ms` started; None while
        the offset does not expire."""

    def deleted(self) -> Iterable[Any]:
        """Yield the events that delete the group."""


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
"""Valid previous states of each state, once the group is loaded."""


class ClassicGroup:
    type = CLASSIC

    def __init__(self, id: str, since_ms: int = NO_TIMESTAMP) -> None:
        self.id = id
        self.state = EMPTY
        self.since_ms = since_ms
        """Wall-clock time when it entered its state, in ms since 1970."""
        self.is_first_rebalance = False
        """Whether the group was empty before this rebalance, so more members are likely to join."""
        self.has_grown = False
        """Whether a member joined during the delay of the first rebalance."""
        self.delay_ms = 0
        """Current delay of the first rebalance, and the delay left after it, in ms."""
        self.more_delay_ms = 0
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, ClassicGroupMember] = {}
        self.static: dict[str, str] = {}
        """Member ids of static members, by instance id."""
        self.pending: dict[str, None] = {}
        """Generated member ids whose members have not joined with them yet."""
        self.unsynced: dict[str, None] = {}
        """Members that have not sent SyncGroup in this generation yet."""
        self.joining = 0
        """Number of members waiting for a JoinGroup response."""
        self.subscribed: frozenset[str] | None = None
        """Topics that the members of a consumer group subscribe to; None if unknown."""
        self._support: dict[str, int] = {}
        """Number of members that support a protocol, by its name."""

    # Queries

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
        """Rebalance timeout: the longest of the members', in ms."""
        return max((member.rebalance_ms for member in self.members.values()), default=0)

    def is_leader(self, member_id: str) -> bool:
        return self.leader == member_id

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether a member subscribes to the topic; True for any topic if unknown."""
        return self.has_consumers if self.subscribed is None else topic in self.subscribed

    def enter(self, state: ClassicGroupState, now_ms: int) -> None:
        """Enter a state; `now_ms` is the wall-clock time."""
        assert self.state in VALID_PREVIOUS_STATES[state], f"{self.id}: {self.state} > {state}"
        self.is_first_rebalance = self.state is EMPTY
        self.state = state
        self.since_ms = now_ms

    # Checks

    def check_member(self, member_id: str, instance_id: str | None) -> ClassicGroupMember:
        """Raises KafkaError with UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if a static member was
        replaced."""
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
            return  # a client that assigns its partitions itself
        if generation >= 0 or member_id != NO_MEMBER or instance_id is not None:
            self.check_member(member_id, instance_id)
            self.check_generation(generation)
        elif not transactional:
            # Old clients send no member id in transactional commits.
            raise KafkaError(ErrorCode.unknown_member_id)
        if not transactional and self.state is COMPLETING_REBALANCE:
            raise KafkaError(ErrorCode.rebalance_in_progress)

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        pass

    def check_offset_delete(self) -> None:
        """Raises NON_EMPTY_GROUP unless the subscriptions are known: for consumers, offsets of
        unsubscribed topics may be deleted while the group has members."""
        if self.state is not EMPTY and not self.has_consumers:
            raise KafkaError(ErrorCode.non_empty_group)

    def check_delete(self) -> None:
        if self.state is not EMPTY:
            raise KafkaError(ErrorCode.non_empty_group)

    def retention_began_ms(self, committed_ms: int) -> int | None:
        """Return when retention started (KIP-211): when the group became empty, or at the commit
        if the group never had members or is not subscribed to the topic.  None while it has
        members."""
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
        """Return whether a member with these protocols may join: one has to be shared by all
        members."""
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
        """Remove a member or a pending id, if it exists."""
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
        """Replace a static member, which rejoined under a new id."""
        old_id = self.static[instance_id]
        # The new member takes the same place, as assignors see the order of members.
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
        """Return the ticket of the waiting JoinGroup, which no longer waits; None if there is
        none."""
        ticket, member.join_ticket = member.join_ticket, None
        self.joining -= ticket is not None
        return ticket

    def _count(self, member: ClassicGroupMember, by: int) -> None:
        # A name that is listed twice counts once.
        for name in dict(member.protocols):
            count = self._support.get(name, 0) + by
            if count:
                self._support[name] = count
            else:
                del self._support[name]

    # Generations

    def elect_leader(self) -> bool:
        """Elect a leader among the members that have joined; return False if none has."""
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
        """Return the protocol with the most votes, of those that all members support."""
        candidates = {n for n, count in self._support.items() if count == len(self.members)}
        votes: dict[str, int] = {}
        for member in self.members.values():
            name = member.vote(candidates)
            votes[name] = votes.get(name, 0) + 1
        return max(votes, key=votes.__getitem__)

    def begin_generation(self, now_ms: int) -> None:
        """Start a generation with the members that have joined."""
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
            return None  # some clients send metadata that is not a subscription

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

    def metadata_event(
        self, now_ms: int | None = None, assignments: Mapping[str, bytes] | None = None
    ) -> ClassicGroupMetadata:
        """Return the event that persists the group: as Stable since `now_ms` with these
        assignments, or unchanged."""
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

    def replay(self, event: ClassicGroupMetadata) -> None:
        """Replace the persisted state; waiting requests and other state of members are kept."""
        self.protocol_type = event.protocol_type or None
        self.generation = event.generation
        self.protocol = event.protocol
        self.leader = event.leader
        self.since_ms = event.since_ms
        self.state = STABLE if event.members else EMPTY
        before, self.members = self.members, {}
        self.static, self._support, self.joining = {}, {}, 0
        for metadata in event.members:
            member = before.get(metadata.id)
            if member is None:
                member = ClassicGroupMember(
                    metadata.id,
                    metadata.instance_id,
                    metadata.client_id,
                    metadata.client_host,
                    metadata.rebalance_ms,
                    metadata.session_ms,
                    (),
                )
            if dict(member.protocols).get(event.protocol or "") != metadata.subscription:
                member.protocols = ((event.protocol or "", metadata.subscription),)
            member.rebalance_ms, member.session_ms = metadata.rebalance_ms, metadata.session_ms
            member.assignment = metadata.assignment
            self.members[metadata.id] = member
            self._count(member, 1)
            self.joining += member.join_ticket is not None
            if metadata.instance_id is not None:
                self.static[metadata.instance_id] = metadata.id
        self.subscribed = self._subscribed()

    def check(self) -> None:
        """Assert the invariants; for tests."""
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
    """Return the topics of a consumer's subscription, whose versions all start with the same
    fields."""
    if len(metadata) < 2:
        raise ProtocolError("a subscription is truncated")
    fields = SUBSCRIPTION.decode(0, memoryview(metadata)[2:])
    topics: list[str] = fields["topics"]
    return topics


def _partitions(topics: Iterable[Mapping[str, Any]]) -> set[tuple[str, int]]:
    return {(topic["topic"], number) for topic in topics for number in topic["partitions"]}
