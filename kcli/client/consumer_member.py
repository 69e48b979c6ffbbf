"""One member of a group by KIP-848: where it stands, what its heartbeats say, what answers mean.

Pure: states, tables and decisions; `consumer_group.py` asks the coordinator.

    JOINING --> STABLE <--> RECONCILING --> ACKNOWLEDGING --> STABLE
                   any of them --> LOST --> JOINING

    JOINING        says all about itself, with epoch 0
    STABLE         has what the coordinator wants it to have
    RECONCILING    is to have other partitions: the reader's poll gives up and takes over
    ACKNOWLEDGING  has done so, and the next heartbeat tells
    LOST           no member any more; what it had is lost, and the reader's poll is to tell

The coordinator decides on the assignment, and hands each partition over when its last owner has
acknowledged that it has let go.  A heartbeat says only what has changed since the last one that was
answered.  Kafka: ConsumerMembershipManager, ConsumerHeartbeatRequestManager.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from kcli.client.member import MemberAction
from kserver.errors import ErrorCode, KafkaError

CONSUMER_GROUP_HEARTBEAT = 68

NOT_SUPPORTED = (
    "The cluster does not support the new CONSUMER group protocol. Set group.protocol=classic on "
    "the consumer configs to revert to the CLASSIC protocol until the cluster is upgraded."
)
JOIN = 0
LEAVE = -1
LEAVE_FOR_A_WHILE = -2
"""The epoch by which a static member leaves, whose partitions wait for it until its session
ends."""

MEANINGS: dict[ErrorCode, MemberAction] = {
    ErrorCode.none: MemberAction.DONE,
    ErrorCode.coordinator_load_in_progress: MemberAction.AGAIN,
    ErrorCode.coordinator_not_available: MemberAction.MOVED,
    ErrorCode.not_coordinator: MemberAction.MOVED,
    ErrorCode.unknown_member_id: MemberAction.UNKNOWN,
    ErrorCode.fenced_member_epoch: MemberAction.UNKNOWN,
}
"""Errors of heartbeats; what is not named is fatal: authorization, GROUP_MAX_SIZE_REACHED,
UNRELEASED_INSTANCE_ID, UNSUPPORTED_ASSIGNOR, INVALID_REGULAR_EXPRESSION, ..."""

COMMIT_MEANINGS: dict[ErrorCode, MemberAction] = {
    ErrorCode.none: MemberAction.DONE,
    ErrorCode.coordinator_load_in_progress: MemberAction.AGAIN,
    ErrorCode.unknown_topic_or_partition: MemberAction.AGAIN,
    ErrorCode.unstable_offset_commit: MemberAction.AGAIN,
    # The epoch has risen, and the next heartbeat's answer tells to what.
    ErrorCode.stale_member_epoch: MemberAction.AGAIN,
    ErrorCode.coordinator_not_available: MemberAction.MOVED,
    ErrorCode.not_coordinator: MemberAction.MOVED,
    ErrorCode.request_timed_out: MemberAction.MOVED,
    ErrorCode.unknown_member_id: MemberAction.UNKNOWN,
    ErrorCode.fenced_member_epoch: MemberAction.UNKNOWN,
    ErrorCode.illegal_generation: MemberAction.UNKNOWN,
}


class ConsumerMemberState(enum.Enum):
    JOINING = enum.auto()
    STABLE = enum.auto()
    RECONCILING = enum.auto()
    ACKNOWLEDGING = enum.auto()
    LOST = enum.auto()


VALID_PREVIOUS_STATES: dict[ConsumerMemberState, frozenset[ConsumerMemberState]] = {
    ConsumerMemberState.JOINING: frozenset({ConsumerMemberState.LOST}),
    ConsumerMemberState.STABLE: frozenset(set(ConsumerMemberState) - {ConsumerMemberState.LOST}),
    ConsumerMemberState.RECONCILING: frozenset(
        set(ConsumerMemberState) - {ConsumerMemberState.LOST}
    ),
    ConsumerMemberState.ACKNOWLEDGING: frozenset({ConsumerMemberState.RECONCILING}),
    ConsumerMemberState.LOST: frozenset(ConsumerMemberState),
}
"""The states from which each may follow."""

Owned = frozenset[tuple[UUID, int]]
NO_REGEX = ""


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """What a member says about itself; `topics` or `regex` is what it subscribes to."""

    topics: tuple[str, ...] = ()
    regex: str = NO_REGEX
    instance_id: str | None = None
    rack: str | None = None
    assignor: str | None = None
    rebalance_timeout_ms: int = -1


class ConsumerMember:
    def __init__(self, member_id: str, described: MemberDescription) -> None:
        self.state = ConsumerMemberState.JOINING
        self.member_id = member_id
        self.epoch = JOIN
        self.described = described
        self.owned: Owned = frozenset()
        """What it has let the reader have, and not taken back."""
        self.target: Owned = frozenset()
        """What the coordinator wants it to have."""
        self._told: dict[str, Any] = {}
        """What the coordinator knows of all that changes."""

    def check(self) -> None:
        """What always holds."""
        assert (self.epoch > 0) is (
            self.state not in (ConsumerMemberState.JOINING, ConsumerMemberState.LOST)
        )
        assert self.state is not ConsumerMemberState.STABLE or self.owned == self.target
        assert self.state is not ConsumerMemberState.JOINING or not self.owned

    @property
    def is_member(self) -> bool:
        return self.epoch > 0

    @property
    def has_news(self) -> bool:
        """Whether a heartbeat should not wait for its time."""
        return self.state in (ConsumerMemberState.JOINING, ConsumerMemberState.ACKNOWLEDGING) or (
            self.is_member and self._changes() != {}
        )

    # Out

    def heartbeat(self) -> dict[str, Any]:
        """The fields of the request; what it leaves out has not changed."""
        described = self.described
        fields: dict[str, Any] = {"member_id": self.member_id, "member_epoch": self.epoch}
        if not self._told:
            fields |= {
                "instance_id": described.instance_id,
                "rack_id": described.rack,
                "rebalance_timeout_ms": described.rebalance_timeout_ms,
                "server_assignor": described.assignor,
            }
        fields |= self._changes()
        return fields

    def _changes(self) -> dict[str, Any]:
        """What may change, where the coordinator does not know it so."""
        said = {
            "topics": self.described.topics,
            "regex": self.described.regex,
            "owned": self.owned,
        }
        known = {"regex": NO_REGEX} | self._told
        return {name: value for name, value in said.items() if known.get(name) != value}

    def leave(self) -> dict[str, Any]:
        """The last heartbeat."""
        static = self.described.instance_id is not None
        epoch = LEAVE_FOR_A_WHILE if static else LEAVE
        fields = {"member_id": self.member_id, "member_epoch": epoch}
        return fields | {"instance_id": self.described.instance_id}

    def sent(self, said: Mapping[str, Any]) -> None:
        """An acknowledgement counts when it is on its way: what is answered may bring more."""
        if self.state is ConsumerMemberState.ACKNOWLEDGING and said["member_epoch"] == self.epoch:
            self._turn(
                ConsumerMemberState.STABLE
                if self.owned == self.target
                else ConsumerMemberState.RECONCILING
            )

    def unheard(self) -> None:
        """No answer: what the coordinator knows is not known."""
        self._told = {}

    # In

    def answered(
        self, code: ErrorCode, said: Mapping[str, Any], message: str | None
    ) -> MemberAction:
        """KafkaError for what is fatal.  `said` is the request."""
        if said["member_epoch"] != self.epoch:
            return MemberAction.PAST
        means = MEANINGS.get(code, MemberAction.FATAL)
        match means:
            case MemberAction.FATAL if code is ErrorCode.unsupported_version:
                raise KafkaError(code, message or NOT_SUPPORTED)
            case MemberAction.FATAL:
                raise KafkaError(code, message or "")
            case MemberAction.UNKNOWN:
                self.lose()
            case MemberAction.AGAIN | MemberAction.MOVED:
                self.unheard()
        return means

    def heard(
        self, said: Mapping[str, Any], epoch: int, member_id: str, assignment: Owned | None
    ) -> None:
        """The coordinator is content.  No assignment: it wants what it wanted."""
        self._told |= {name: said[name] for name in ("topics", "regex", "owned") if name in said}
        self.epoch = epoch
        self.member_id = member_id
        if assignment is not None:
            self.target = assignment
        if self.state in (
            ConsumerMemberState.JOINING,
            ConsumerMemberState.STABLE,
            ConsumerMemberState.RECONCILING,
        ):
            self._turn(
                ConsumerMemberState.STABLE
                if self.owned == self.target
                else ConsumerMemberState.RECONCILING
            )

    # The reader's poll

    def subscribe(self, described: MemberDescription) -> None:
        self.described = described

    def reconciled(self, owned: Iterable[tuple[UUID, int]]) -> None:
        """The reader has these from now on, perhaps a part only of what it should have."""
        owned = frozenset(owned)
        if owned != self.owned:
            self.owned = owned
            self._turn(ConsumerMemberState.ACKNOWLEDGING)

    def lose(self) -> None:
        self.epoch = JOIN
        self.owned = self.target = frozenset()
        self.unheard()
        self._turn(ConsumerMemberState.LOST)

    def lost_is_told(self) -> None:
        self._turn(ConsumerMemberState.JOINING)

    def _turn(self, state: ConsumerMemberState) -> None:
        assert self.state in VALID_PREVIOUS_STATES[state], f"{self.state} to {state}"
        self.state = state
