"""A member of a classic group: its states, and the meaning of each error.

Pure: states, tables and decisions; `membership.py` sends the requests.

    UNJOINED -> PREPARING -> COMPLETING -> STABLE
      ^           |  ^         |           |
      |           |  +---------+-----------+   rebalance, or the subscription has changed
      +-----------+------------+-----------+   left, or not a member any more

    PREPARING   JoinGroup was sent; the coordinator waits for the other members
    COMPLETING  joined; the leader assigns the partitions
    STABLE      has its assignment, and reads

A `Generation` is a member id and a generation. An error in response to a request of another
Generation than the present one is outdated, and ignored. Kafka: AbstractCoordinator's MemberState.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from kcli.client.group.group_protocol import NO_GENERATION
from kserver.errors import ErrorCode, KafkaError
from kserver.wire.api_key import ApiKey


class ClassicMemberState(enum.Enum):
    UNJOINED = enum.auto()
    PREPARING = enum.auto()
    COMPLETING = enum.auto()
    STABLE = enum.auto()


VALID_PREVIOUS_STATES: dict[ClassicMemberState, frozenset[ClassicMemberState]] = {
    ClassicMemberState.UNJOINED: frozenset(ClassicMemberState),
    ClassicMemberState.PREPARING: frozenset(ClassicMemberState),
    ClassicMemberState.COMPLETING: frozenset({ClassicMemberState.PREPARING}),
    ClassicMemberState.STABLE: frozenset({ClassicMemberState.COMPLETING}),
}
"""The states that may precede each state."""


class MemberAction(enum.Enum):
    """Action after a response."""

    DONE = enum.auto()
    PAST = enum.auto()
    """None: the response is of a former generation."""
    AGAIN = enum.auto()
    """Retry after a pause."""
    MOVED = enum.auto()
    """Retry at another coordinator."""
    REJOIN = enum.auto()
    """Rejoin: the group rebalances."""
    NEW_ID = enum.auto()
    """Join at once with the member id of the response (KIP-394)."""
    STALE = enum.auto()
    """Not in this generation any more: owned partitions are lost; join under the same id."""
    UNKNOWN = enum.auto()
    """Not a member any more: owned partitions are lost; join as a new member."""
    FATAL = enum.auto()


_COORDINATOR = {
    ErrorCode.none: MemberAction.DONE,
    ErrorCode.coordinator_load_in_progress: MemberAction.AGAIN,
    ErrorCode.coordinator_not_available: MemberAction.MOVED,
    ErrorCode.not_coordinator: MemberAction.MOVED,
    ErrorCode.unknown_member_id: MemberAction.UNKNOWN,
    ErrorCode.illegal_generation: MemberAction.STALE,
    ErrorCode.rebalance_in_progress: MemberAction.REJOIN,
}
MEANINGS: dict[int, dict[ErrorCode, MemberAction]] = {
    ApiKey.JOIN_GROUP: _COORDINATOR | {ErrorCode.member_id_required: MemberAction.NEW_ID},
    ApiKey.SYNC_GROUP: _COORDINATOR,
    ApiKey.HEARTBEAT: _COORDINATOR,
    ApiKey.OFFSET_COMMIT: _COORDINATOR
    | {
        ErrorCode.request_timed_out: MemberAction.MOVED,
        ErrorCode.unknown_topic_or_partition: MemberAction.AGAIN,
        ErrorCode.unstable_offset_commit: MemberAction.AGAIN,
    },
}
"""All other errors are fatal: authorization, FENCED_INSTANCE_ID, GROUP_MAX_SIZE_REACHED,
INCONSISTENT_GROUP_PROTOCOL, INVALID_SESSION_TIMEOUT, ...
"""

# Errors about a member's identity: outdated if the identity has changed since the request.
_OF_IDENTITY = frozenset(
    {
        ErrorCode.unknown_member_id,
        ErrorCode.illegal_generation,
        ErrorCode.fenced_instance_id,
        ErrorCode.rebalance_in_progress,
    }
)


class Generation(NamedTuple):
    generation: int = NO_GENERATION
    member_id: str = ""


class ClassicMemberCore:
    """`rejoin` is the reason to (re)join the group, or None. `is_lost` means that owned partitions
    were lost and the reader has yet to lose them, until `acknowledge_loss`.
    """

    def __init__(self, instance_id: str | None = None) -> None:
        self.state = ClassicMemberState.UNJOINED
        self.identity = Generation()
        self.instance_id = instance_id
        self.rejoin: str | None = ""
        self.is_lost = False

    def check(self) -> None:
        """Assert the invariants."""
        has_generation = self.identity.generation != NO_GENERATION
        assert has_generation or self.state in (
            ClassicMemberState.UNJOINED,
            ClassicMemberState.PREPARING,
        )
        assert not has_generation or self.identity.member_id
        assert self.state is not ClassicMemberState.UNJOINED or not has_generation
        assert self.state is not ClassicMemberState.UNJOINED or self.rejoin is not None

    @property
    def sends_heartbeats(self) -> bool:
        """Whether heartbeats are to be sent."""
        return self.state in (ClassicMemberState.COMPLETING, ClassicMemberState.STABLE)

    def request_rejoin(self, reason: str) -> None:
        """Request a rejoin; `reason` is sent to the coordinator (KIP-800)."""
        if self.rejoin is None:
            self.rejoin = reason

    def prepare(self) -> None:
        """Note that JoinGroup is sent."""
        self._turn(ClassicMemberState.PREPARING)

    def handle_response(self, api_key: int, code: ErrorCode, identity: Generation) -> MemberAction:
        """Return the action after a response to a request sent as `identity`; raises KafkaError if
        it is fatal.
        """
        if code in _OF_IDENTITY and identity != self.identity:
            return MemberAction.PAST
        action = MEANINGS[api_key].get(code, MemberAction.FATAL)
        match action:
            case MemberAction.FATAL:
                raise KafkaError(code)
            case MemberAction.UNKNOWN:
                self.reset(f"encountered {code.name.upper()}", keep_id=False)
            case MemberAction.STALE:
                self.reset(f"encountered {code.name.upper()}", keep_id=True)
            case MemberAction.REJOIN if (
                api_key != ApiKey.HEARTBEAT or self.state is ClassicMemberState.STABLE
            ):
                self.request_rejoin("group is already rebalancing")
        return action

    def set_member_id(self, member_id: str) -> None:
        self.identity = Generation(NO_GENERATION, member_id)
        self.rejoin = f"need to re-join with the given member-id: {member_id}"

    def on_join(self, generation: int, member_id: str) -> None:
        self.identity = Generation(generation, member_id)
        self.rejoin = None
        self._turn(ClassicMemberState.COMPLETING)

    def on_sync(self) -> None:
        self._turn(ClassicMemberState.STABLE)

    def reset(self, reason: str, *, keep_id: bool = False) -> None:
        """Leave this generation; owned partitions are lost."""
        if self.identity.generation != NO_GENERATION:
            self.is_lost = True
        self.identity = Generation(NO_GENERATION, self.identity.member_id if keep_id else "")
        self.rejoin = reason
        self._turn(ClassicMemberState.UNJOINED)

    def acknowledge_loss(self) -> None:
        self.is_lost = False

    def _turn(self, state: ClassicMemberState) -> None:
        assert self.state in VALID_PREVIOUS_STATES[state], f"{self.state} to {state}"
        self.state = state
