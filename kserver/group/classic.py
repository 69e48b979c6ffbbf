"""Requests and deadlines of classic groups.

    join        a member joins or rejoins: a rebalance starts or proceeds
    sync        the leader sends the assignments; each member receives its own
    heartbeat   renews a member's session
    leave       removes members
    expire      a session expired, or the timeout to join or to sync

The first rebalance of an empty group waits `group.initial.rebalance.delay.ms` for more members,
and again as long whenever some joined, up to the members' rebalance timeout.  With a delay of 0 it
waits only for members that start at the same time: for GATHER_MS, and again as long whenever some
joined or have been given an id but not joined yet, up to MAX_GATHER_MS.

Pure: requests and times go in, steps come out.  (Kafka: GroupMetadataManager's classicGroup...)
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any

from kserver.config.broker import BrokerConfig
from kserver.coordinator.deadlines import Deadlines
from kserver.coordinator.shard import Step, Ticket
from kserver.errors import ErrorCode, KafkaError
from kserver.group.events import ClassicGroupMetadata, GroupDeleted
from kserver.group.group import (
    COMPLETING_REBALANCE,
    DEAD,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    VALID_PREVIOUS_STATES,
    ClassicGroup,
    Group,
)
from kserver.group.member import ClassicGroupMember
from kserver.group.requests import (
    NO_MEMBER,
    DescribedGroup,
    DescribedMember,
    DescribeGroup,
    Heartbeat,
    JoinGroup,
    JoinGroupResult,
    LeaveGroup,
    LeavingMember,
    SyncGroup,
    SyncGroupResult,
)
from kserver.metrics.meters import GroupMeters
from kserver.model import NO_TIMESTAMP

SESSION, JOIN, SYNC = "session", "join", "sync"
"""Kinds of deadlines: a member's session, and the timeouts of a group's members to join and to
sync."""
Deadline = tuple[str, str, str]
"""Kind, group id, and member id ("" for a deadline of the whole group)."""

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60_000
"""Time limit for a new member's first JoinGroup response, in ms.  Until then it cannot send
heartbeats, so it may disappear unnoticed."""

GATHER_MS, MAX_GATHER_MS = 40, 250
"""Members that start together reach the coordinator within milliseconds of each other.  If the
first one were answered alone, it would find out about the others only with its next heartbeat,
seconds later."""


class ClassicGroups:
    def __init__(
        self,
        groups: MutableMapping[str, Group],
        deadlines: Deadlines[Deadline],
        config: Callable[[], BrokerConfig],
        new_id: Callable[[], str],
        meters: GroupMeters,
    ) -> None:
        self._groups = groups
        self._deadlines = deadlines
        self._config = config
        self._new_id = new_id
        self._meters = meters

    def get(self, group_id: str) -> ClassicGroup | None:
        group = self._groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    # Joining

    def join(self, request: JoinGroup, ticket: Ticket, step: Step) -> None:
        config = self._config()
        low, high = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
        group = self.get(request.group_id)
        if not request.group_id:
            error = ErrorCode.invalid_group_id
        elif not low <= request.session_ms <= high:
            error = ErrorCode.invalid_session_timeout
        elif group is None and request.member_id != NO_MEMBER:
            error = ErrorCode.unknown_member_id
        else:
            group = group or ClassicGroup(request.group_id, step.now.wall_ms)
            error = self._admit(group, request, ticket, step)
            if group.members or group.pending:
                self._groups[group.id] = group
        if error is not ErrorCode.none:
            step.respond(ticket, JoinGroupResult(request.member_id, error))

    def _admit(
        self, group: ClassicGroup, request: JoinGroup, ticket: Ticket, step: Step
    ) -> ErrorCode:
        """Add the member to the join if it may join.  Return the error to respond with; NONE if
        the request is already answered or waits."""
        if not self._has_room(group, request.member_id):
            group.remove(request.member_id)
            self._deadlines.drop((SESSION, group.id, request.member_id))
            self._complete_if_joined(group, step)
            step.respond(ticket, JoinGroupResult(NO_MEMBER, ErrorCode.group_max_size_reached))
            return ErrorCode.none
        if not group.supports(request.protocol_type, request.protocols):
            return ErrorCode.inconsistent_group_protocol
        if request.member_id == NO_MEMBER:
            self._join_new(group, request, ticket, step)
            return ErrorCode.none
        if request.member_id in group.pending and request.instance_id is None:
            self._add(group, request.member_id, request, ticket, step)
            return ErrorCode.none
        try:
            member = group.check_member(request.member_id, request.instance_id)
        except KafkaError as error:
            return error.code
        self._join_again(group, member, request, ticket, step)
        return ErrorCode.none

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        """Return whether the group has room for this member.  During a rebalance only members that
        have joined count, so the last ones to join are rejected."""
        limit = self._config().group_max_size
        member = group.members.get(member_id)
        if group.state is PREPARING_REBALANCE:
            waits = member is not None and member.join_ticket is not None
            return waits or group.joining < limit
        return group.state is EMPTY or member is not None or len(group.members) < limit

    def _join_new(
        self, group: ClassicGroup, request: JoinGroup, ticket: Ticket, step: Step
    ) -> None:
        instance_id = request.instance_id
        new_id = f"{request.client_id if instance_id is None else instance_id}-{self._new_id()}"
        if instance_id is not None and instance_id in group.static:
            self._replace(group, instance_id, new_id, request, ticket, step)
        elif instance_id is None and request.must_know_id:
            group.pending[new_id] = None
            self._await_session(group, new_id, request.session_ms, step)
            step.respond(ticket, JoinGroupResult(new_id, ErrorCode.member_id_required))
        else:
            self._add(group, new_id, request, ticket, step)

    def _join_again(
        self,
        group: ClassicGroup,
        member: ClassicGroupMember,
        request: JoinGroup,
        ticket: Ticket,
        step: Step,
    ) -> None:
        is_leader = group.is_leader(member.id)
        is_same = member.protocols == request.protocols
        if (group.state is STABLE and not is_leader and is_same) or (
            group.state is COMPLETING_REBALANCE and is_same
        ):
            # Its response was lost, or it checks for a new generation.
            shows_members = is_leader and group.state is COMPLETING_REBALANCE
            step.respond(ticket, _joined(group, member.id, shows_members=shows_members))
            return
        # The leader of a stable group rejoins to have its topics reassigned.
        group.update(member, request.protocols, request.rebalance_ms, request.session_ms)
        self._await_others(group, member, ticket, step)

    def _add(
        self, group: ClassicGroup, member_id: str, request: JoinGroup, ticket: Ticket, step: Step
    ) -> None:
        member = ClassicGroupMember(
            member_id,
            request.instance_id,
            request.client_id,
            request.client_host,
            request.rebalance_ms,
            request.session_ms,
            request.protocols,
        )
        member.is_new = member.has_new_id = True
        if group.state is PREPARING_REBALANCE and group.is_first_rebalance:
            group.has_grown = True
        group.add(member, request.protocol_type)
        self._await_session(group, member_id, NEW_MEMBER_JOIN_TIMEOUT_MS, step)
        self._await_others(group, member, ticket, step)

    def _await_others(
        self, group: ClassicGroup, member: ClassicGroupMember, ticket: Ticket, step: Step
    ) -> None:
        step.respond(group.take_join_ticket(member), _superseded_join(member))
        group.await_join(member, ticket)
        self.rebalance(group, step)

    def _replace(
        self,
        group: ClassicGroup,
        instance_id: str,
        new_id: str,
        request: JoinGroup,
        ticket: Ticket,
        step: Step,
    ) -> None:
        """Put a static member that was restarted in the place of the former one.

        There is no rebalance, except where the group's protocol changes, and where the former one
        had still to revoke partitions and join again: the new one does not own them, so it would
        not, and no member would be assigned them.  (Kafka's coordinator leaves them so.)
        """
        leader_before = group.leader
        old = group.members[group.static[instance_id]]
        step.respond(
            group.take_join_ticket(old), JoinGroupResult(old.id, ErrorCode.fenced_instance_id)
        )
        _respond_to_sync(old, KafkaError(ErrorCode.fenced_instance_id), step)
        self._deadlines.drop((SESSION, group.id, old.id))
        owes_join = group.owes_join(old)
        member = group.replace(instance_id, new_id)
        group.update(member, request.protocols, request.rebalance_ms, request.session_ms)
        self._await_session(group, new_id, member.session_ms, step)
        if group.state is not STABLE or owes_join or group.select_protocol() != group.protocol:
            member.has_new_id = True
            self._await_others(group, member, ticket, step)
            return
        step.events.append(group.metadata_event())
        if request.may_skip_assignment:
            is_leader = group.is_leader(new_id)
            joined = _joined(group, new_id, shows_members=is_leader)
            step.respond(ticket, joined._replace(skips_assignment=is_leader))
        else:
            # Respond with the previous leader: a client that sees itself as the leader would assign
            # partitions, although no rebalance is in progress.
            step.respond(ticket, _joined(group, new_id)._replace(leader=leader_before or ""))

    # Rebalance

    def rebalance(self, group: ClassicGroup, step: Step) -> None:
        if group.state in VALID_PREVIOUS_STATES[PREPARING_REBALANCE]:
            self._prepare(group, step)
        else:
            self._complete_if_joined(group, step)

    def _prepare(self, group: ClassicGroup, step: Step) -> None:
        if group.state is COMPLETING_REBALANCE:
            for member in group.members.values():
                member.assignment = b""
                if _respond_to_sync(member, KafkaError(ErrorCode.rebalance_in_progress), step):
                    self._await_session(group, member.id, member.session_ms, step)
        group.unsynced = {}
        self._deadlines.drop((SYNC, group.id, ""))
        group.enter(PREPARING_REBALANCE, step.now.wall_ms)
        if group.is_first_rebalance:
            delay_ms, most_ms = self._initial_delay(group)
            group.delay_ms = delay_ms
            group.more_delay_ms = max(most_ms - delay_ms, 0)
            self._deadlines.set((JOIN, group.id, ""), step.now.ms + delay_ms)
        elif group.all_joined:
            self._complete(group, step)
        else:
            self._deadlines.set((JOIN, group.id, ""), step.now.ms + group.rebalance_ms)

    def _initial_delay(self, group: ClassicGroup) -> tuple[int, int]:
        """Return the delay between checks for more members, and the total delay, in ms."""
        delay_ms = self._config().group_initial_rebalance_delay_ms
        if delay_ms == 0:
            return GATHER_MS, min(MAX_GATHER_MS, group.rebalance_ms)
        return delay_ms, group.rebalance_ms

    def _complete_if_joined(self, group: ClassicGroup, step: Step) -> None:
        if group.state is PREPARING_REBALANCE and not group.is_first_rebalance and group.all_joined:
            self._complete(group, step)

    def _complete(self, group: ClassicGroup, step: Step) -> None:
        """Complete the join phase with the members that have joined."""
        self._deadlines.drop((JOIN, group.id, ""))
        for member in list(group.members.values()):
            if member.join_ticket is None and member.instance_id is None:
                group.remove(member.id)
                self._deadlines.drop((SESSION, group.id, member.id))
        if not group.elect_leader() and group.members:
            # Only static members that did not rejoin: they may stay until their sessions expire.
            self._deadlines.set((JOIN, group.id, ""), step.now.ms + group.rebalance_ms)
            return
        group.begin_generation(step.now.wall_ms)
        if group.state is EMPTY:
            step.events.append(group.metadata_event())
            return
        for member in group.members.values():
            joined = _joined(group, member.id, shows_members=group.is_leader(member.id))
            binds = member.has_new_id and member.instance_id is not None
            step.respond(group.take_join_ticket(member), joined._replace(binds=binds))
            member.is_new = member.has_new_id = False
            group.unsynced[member.id] = None
            self._await_session(group, member.id, member.session_ms, step)
        self._deadlines.set((SYNC, group.id, ""), step.now.ms + group.rebalance_ms)

    # Syncing

    def sync(self, request: SyncGroup, ticket: Ticket, step: Step) -> None:
        group, member = self._member(request.group_id, request.member_id, request.instance_id)
        group.check_generation(request.generation)
        if _differs(request.protocol_type, group.protocol_type) or _differs(
            request.protocol, group.protocol
        ):
            raise KafkaError(ErrorCode.inconsistent_group_protocol)
        if group.state is PREPARING_REBALANCE:
            raise KafkaError(ErrorCode.rebalance_in_progress)
        group.unsynced.pop(member.id, None)
        if not group.unsynced:
            self._deadlines.drop((SYNC, group.id, ""))
        if group.state is STABLE:
            step.respond(ticket, _synced(group, member.assignment))
            return
        # it sent a second request
        _respond_to_sync(member, KafkaError(ErrorCode.rebalance_in_progress), step)
        member.sync_ticket = ticket
        if group.is_leader(member.id):
            self._meters.rebalances += 1
            step.events.append(group.metadata_event(step.now.wall_ms, request.assignments))
            for recipient in group.members.values():
                assignment = request.assignments.get(recipient.id, b"")
                if _respond_to_sync(recipient, _synced(group, assignment), step):
                    self._await_session(group, recipient.id, recipient.session_ms, step)

    # Sessions

    def heartbeat(self, request: Heartbeat, ticket: Ticket, step: Step) -> None:
        group, member = self._member(request.group_id, request.member_id, request.instance_id)
        group.check_generation(request.generation)
        self._await_session(group, member.id, member.session_ms, step)
        is_asked_to_join = group.state is PREPARING_REBALANCE
        step.respond(
            ticket, KafkaError(ErrorCode.rebalance_in_progress) if is_asked_to_join else None
        )

    def committed(self, group: ClassicGroup, member_id: str, step: Step) -> None:
        """Renew the session of a member that committed offsets."""
        member = group.members.get(member_id)
        if member is not None and group.state in (STABLE, PREPARING_REBALANCE):
            self._await_session(group, member_id, member.session_ms, step)

    def leave(self, request: LeaveGroup, ticket: Ticket, step: Step) -> None:
        if not request.group_id:
            raise KafkaError(ErrorCode.invalid_group_id)
        group = self.get(request.group_id)
        if group is None:
            step.respond(ticket, [ErrorCode.unknown_member_id for _ in request.members])
            return
        size = len(group.members)
        step.respond(ticket, [self._let_go(group, leaving, step) for leaving in request.members])
        if len(group.members) < size:
            self.rebalance(group, step)
        else:
            self._complete_if_joined(group, step)

    def _let_go(self, group: ClassicGroup, leaving: LeavingMember, step: Step) -> ErrorCode:
        """Remove a member that leaves.  An administrator may name a static member by its instance
        id alone."""
        member_id, instance_id = leaving
        if member_id == NO_MEMBER and instance_id is not None:
            member_id = group.static.get(instance_id, NO_MEMBER)
        if member_id not in group.pending:
            try:
                group.check_member(member_id, instance_id)
            except KafkaError as error:
                return error.code
        self._remove(group, member_id, step)
        return ErrorCode.none

    def _remove(self, group: ClassicGroup, member_id: str, step: Step) -> None:
        """Remove a member.  Its waiting requests fail with UNKNOWN_MEMBER_ID, so that it rejoins
        if it is still alive."""
        self._deadlines.drop((SESSION, group.id, member_id))
        member = group.members.get(member_id)
        if member is not None:
            gone = JoinGroupResult(NO_MEMBER, ErrorCode.unknown_member_id)
            step.respond(group.take_join_ticket(member), gone)
            _respond_to_sync(member, KafkaError(ErrorCode.unknown_member_id), step)
        group.remove(member_id)

    def _member(
        self, group_id: str, member_id: str, instance_id: str | None
    ) -> tuple[ClassicGroup, ClassicGroupMember]:
        if not group_id:
            raise KafkaError(ErrorCode.invalid_group_id)
        group = self.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.unknown_member_id)
        return group, group.check_member(member_id, instance_id)

    def _await_session(
        self, group: ClassicGroup, member_id: str, session_ms: int, step: Step
    ) -> None:
        self._deadlines.set((SESSION, group.id, member_id), step.now.ms + session_ms)

    # Deadlines

    def expire(self, deadline: Deadline, step: Step) -> None:
        kind, group_id, member_id = deadline
        group = self.get(group_id)
        if group is None:
            return
        if kind == SESSION:
            self._session_expired(group, member_id, step)
        elif kind == SYNC:
            self._sync_expired(group, step)
        elif group.state is not PREPARING_REBALANCE:
            pass  # an earlier deadline of the same step completed it
        elif self._waits_for_more(group):
            group.has_grown = False
            delay_ms = min(self._initial_delay(group)[0], group.more_delay_ms)
            group.more_delay_ms = max(group.more_delay_ms - group.delay_ms, 0)
            group.delay_ms = delay_ms
            self._deadlines.set(deadline, step.now.ms + delay_ms)
        else:
            self._complete(group, step)

    def _waits_for_more(self, group: ClassicGroup) -> bool:
        if not group.is_first_rebalance or not group.more_delay_ms:
            return False
        gathers = self._config().group_initial_rebalance_delay_ms == 0
        return group.has_grown or (gathers and bool(group.pending))

    def _session_expired(self, group: ClassicGroup, member_id: str, step: Step) -> None:
        member = group.members.get(member_id)
        if member is not None and member.is_waiting:
            return  # its session restarts with the response
        was_known = member is not None or member_id in group.pending
        self._remove(group, member_id, step)
        if member is not None and group.state in (STABLE, COMPLETING_REBALANCE):
            self._prepare(group, step)
        elif was_known and group.state is PREPARING_REBALANCE and group.all_joined:
            self._complete(group, step)

    def _sync_expired(self, group: ClassicGroup, step: Step) -> None:
        if not group.unsynced:
            return  # an earlier deadline of the same step started another rebalance
        for member_id in list(group.unsynced):
            self._remove(group, member_id, step)
        self._prepare(group, step)

    # Loading and describing

    def loaded(self, group: ClassicGroup, step: Step) -> None:
        """Start the sessions of a loaded group.  Rebalance it if it exceeds `group.max.size`,
        which may have been lowered."""
        for member in group.members.values():
            self._await_session(group, member.id, member.session_ms, step)
        if len(group.members) > self._config().group_max_size:
            self._prepare(group, step)

    def describe(self, request: DescribeGroup) -> DescribedGroup:
        """Raises KafkaError if the group does not exist or is not a classic group."""
        group = self.get(request.group_id)
        if group is None:
            is_other = request.group_id in self._groups
            reason = "is not a classic group" if is_other else "not found"
            raise KafkaError(ErrorCode.group_id_not_found, f"Group {request.group_id} {reason}.")
        protocol = (group.protocol or "") if group.state is STABLE else ""
        members = [
            DescribedMember(
                member.id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.metadata(protocol) if protocol else b"",
                member.assignment,
            )
            for member in group.members.values()
        ]
        return DescribedGroup(group.state_name, group.protocol_type or "", protocol, members)

    # Persisted state

    def replay(self, event: ClassicGroupMetadata) -> None:
        group = self.get(event.group_id)
        if group is None:
            # It may replace a group of another type, whose state has been deleted by then.
            group = self._groups[event.group_id] = ClassicGroup(event.group_id)
        group.replay(event)

    def delete(self, event: GroupDeleted) -> None:
        group = self.get(event.group_id)
        if group is not None:
            del self._groups[group.id]
            group.enter(DEAD, NO_TIMESTAMP)


def _joined(group: ClassicGroup, member_id: str, *, shows_members: bool = False) -> JoinGroupResult:
    return JoinGroupResult(
        member_id,
        ErrorCode.none,
        group.generation,
        group.protocol_type,
        group.protocol,
        group.leader or "",
        False,
        group.joined_members() if shows_members else (),
    )


def _superseded_join(member: ClassicGroupMember) -> JoinGroupResult:
    """Return the response to an older request of the same member, which no longer waits for it."""
    return JoinGroupResult(member.id, ErrorCode.rebalance_in_progress)


def _synced(group: ClassicGroup, assignment: bytes) -> SyncGroupResult:
    return SyncGroupResult(group.protocol_type, group.protocol, assignment)


def _respond_to_sync(member: ClassicGroupMember, response: Any, step: Step) -> bool:
    """Answer the member's waiting SyncGroup; return whether there was one."""
    ticket, member.sync_ticket = member.sync_ticket, None
    step.respond(ticket, response)
    return ticket is not None


def _differs(requested: str | None, current: str | None) -> bool:
    return requested is not None and current is not None and requested != current
