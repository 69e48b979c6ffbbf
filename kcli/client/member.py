"""One member of a classic group: where it stands, and what each answer means to it.

Pure: states, tables and decisions; `membership.py` asks the coordinator.

    UNJOINED -> PREPARING -> COMPLETING -> STABLE
        ^           |  ^         |           |
        |           |  +---------+-----------+   the group rebalances, or what is wanted has changed
        +-----------+------------+-----------+   left, or no member any more

    PREPARING   asked to join; the coordinator waits for the others
    COMPLETING  joined; the leader shares the partitions out
    STABLE      they are known, and read

A member is told from others, and from itself in other generations, by its `Identity`: what an
answer says of another one than is held now is of the past, and dropped.  Kafka:
AbstractCoordinator's MemberState.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from kcli.client.group_protocol import NO_GENERATION
from kserver.errors import ErrorCode, KafkaError

OFFSET_COMMIT = 8
HEARTBEAT = 12
JOIN_GROUP = 11
SYNC_GROUP = 14
LEAVE_GROUP = 13


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
"""The states from which each may follow."""


class MemberAction(enum.Enum):
    """What is to be done about an answer."""

    DONE = enum.auto()
    PAST = enum.auto()
    """Nothing: the answer is of a generation that is over."""
    AGAIN = enum.auto()
    """The same question after a pause."""
    MOVED = enum.auto()
    """The same, at another coordinator."""
    REJOIN = enum.auto()
    """The group rebalances: take part."""
    NEW_ID = enum.auto()
    """Join at once with the id that was given (KIP-394)."""
    STALE = enum.auto()
    """Not in this generation any more: what is owned is lost; join under the same id."""
    UNKNOWN = enum.auto()
    """No member any more: what is owned is lost; join as a new one."""
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
    JOIN_GROUP: _COORDINATOR | {ErrorCode.member_id_required: MemberAction.NEW_ID},
    SYNC_GROUP: _COORDINATOR,
    HEARTBEAT: _COORDINATOR,
    OFFSET_COMMIT: _COORDINATOR
    | {
        ErrorCode.request_timed_out: MemberAction.MOVED,
        ErrorCode.unknown_topic_or_partition: MemberAction.AGAIN,
        ErrorCode.unstable_offset_commit: MemberAction.AGAIN,
    },
}
"""What is not named is fatal: authorization, FENCED_INSTANCE_ID, GROUP_MAX_SIZE_REACHED,
INCONSISTENT_GROUP_PROTOCOL, INVALID_SESSION_TIMEOUT, ..."""

# Said of one member: of the past where another one is held by now.
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
    """`rejoin` is why the group is to be joined (again), None where it need not be; `is_lost` that
    what is owned is so no more, until `lost_is_told`.
    """

    def __init__(self, instance_id: str | None = None) -> None:
        self.state = ClassicMemberState.UNJOINED
        self.identity = Generation()
        self.instance_id = instance_id
        self.rejoin: str | None = ""
        self.is_lost = False

    def check(self) -> None:
        """What always holds."""
        has_generation = self.identity.generation != NO_GENERATION
        assert has_generation or self.state in (
            ClassicMemberState.UNJOINED,
            ClassicMemberState.PREPARING,
        )
        assert not has_generation or self.identity.member_id
        assert self.state is not ClassicMemberState.UNJOINED or not has_generation
        assert self.state is not ClassicMemberState.UNJOINED or self.rejoin is not None

    @property
    def beats(self) -> bool:
        """Whether the coordinator is told that it is there."""
        return self.state in (ClassicMemberState.COMPLETING, ClassicMemberState.STABLE)

    def request_rejoin(self, reason: str) -> None:
        """`reason` is what the coordinator is told (KIP-800)."""
        if self.rejoin is None:
            self.rejoin = reason

    def prepare(self) -> None:
        """It asks to join."""
        self._turn(ClassicMemberState.PREPARING)

    def answered(self, api_key: int, code: ErrorCode, asked: Generation) -> MemberAction:
        """What an answer to what was asked as `asked` calls for; KafkaError for what is fatal."""
        if code in _OF_IDENTITY and asked != self.identity:
            return MemberAction.PAST
        means = MEANINGS[api_key].get(code, MemberAction.FATAL)
        match means:
            case MemberAction.FATAL:
                raise KafkaError(code)
            case MemberAction.UNKNOWN:
                self.reset(f"encountered {code.name.upper()}", keep_id=False)
            case MemberAction.STALE:
                self.reset(f"encountered {code.name.upper()}", keep_id=True)
            case MemberAction.REJOIN if (
                api_key != HEARTBEAT or self.state is ClassicMemberState.STABLE
            ):
                self.request_rejoin("group is already rebalancing")
        return means

    def given_id(self, member_id: str) -> None:
        self.identity = Generation(NO_GENERATION, member_id)
        self.rejoin = f"need to re-join with the given member-id: {member_id}"

    def joined(self, generation: int, member_id: str) -> None:
        self.identity = Generation(generation, member_id)
        self.rejoin = None
        self._turn(ClassicMemberState.COMPLETING)

    def synced(self) -> None:
        self._turn(ClassicMemberState.STABLE)

    def reset(self, reason: str, *, keep_id: bool = False) -> None:
        """No member of this generation any more."""
        if self.identity.generation != NO_GENERATION:
            self.is_lost = True
        self.identity = Generation(NO_GENERATION, self.identity.member_id if keep_id else "")
        self.rejoin = reason
        self._turn(ClassicMemberState.UNJOINED)

    def lost_is_told(self) -> None:
        self.is_lost = False

    def _turn(self, state: ClassicMemberState) -> None:
        assert self.state in VALID_PREVIOUS_STATES[state], f"{self.state} to {state}"
        self.state = state
