"""A member of a group by KIP-848: its states, its heartbeats' contents, and the meaning of errors.

Pure: states, tables and decisions; `consumer_group.py` sends the requests.

    JOINING --> STABLE <--> RECONCILING --> ACKNOWLEDGING --> STABLE
                     any of them --> LOST --> JOINING

    JOINING        sends its full description, with epoch 0
    STABLE         owns its target assignment
    RECONCILING    target differs from owned: the reader's poll revokes and assigns
    ACKNOWLEDGING  has done so; the next heartbeat reports it
    LOST           not a member any more; the reader's poll has yet to lose its partitions

The coordinator decides on the assignment, and assigns a partition once its last owner has
acknowledged its revocation. A heartbeat carries only changes since the last one that was answered.
Kafka: ConsumerMembershipManager, ConsumerHeartbeatRequestManager.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from kcli.client.group.member import MemberAction
from kserver.errors import ErrorCode, KafkaError

NOT_SUPPORTED = (
    "The cluster does not support the new CONSUMER group protocol. Set group.protocol=classic on "
    "the consumer configs to revert to the CLASSIC protocol until the cluster is upgraded."
)
JOIN = 0
LEAVE = -1
LEAVE_FOR_A_WHILE = -2
"""The epoch with which a static member leaves; its partitions are kept for it until its session
expires.
"""

MEANINGS: dict[ErrorCode, MemberAction] = {
    ErrorCode.none: MemberAction.DONE,
    ErrorCode.coordinator_load_in_progress: MemberAction.AGAIN,
    ErrorCode.coordinator_not_available: MemberAction.MOVED,
    ErrorCode.not_coordinator: MemberAction.MOVED,
    ErrorCode.unknown_member_id: MemberAction.UNKNOWN,
    ErrorCode.fenced_member_epoch: MemberAction.UNKNOWN,
}
"""Errors of heartbeats. All others are fatal: authorization, GROUP_MAX_SIZE_REACHED,
UNRELEASED_INSTANCE_ID, UNSUPPORTED_ASSIGNOR, INVALID_REGULAR_EXPRESSION, ...
"""

COMMIT_MEANINGS: dict[ErrorCode, MemberAction] = {
    ErrorCode.none: MemberAction.DONE,
    ErrorCode.coordinator_load_in_progress: MemberAction.AGAIN,
    ErrorCode.unknown_topic_or_partition: MemberAction.AGAIN,
    ErrorCode.unstable_offset_commit: MemberAction.AGAIN,
    # The epoch was bumped; the next heartbeat's response has the new one.
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
"""The states that may precede each state."""

Owned = frozenset[tuple[UUID, int]]
NO_REGEX = ""


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member's description of itself; it subscribes to `topics` or `regex`."""

    topics: tuple[str, ...] = ()
    regex: str = NO_REGEX
    instance_id: str | None = None
    rack: str | None = None
    assignor: str | None = None
    rebalance_timeout_ms: int = -1


class ConsumerMember:
    def __init__(self, member_id: str, description: MemberDescription) -> None:
        self.state = ConsumerMemberState.JOINING
        self.member_id = member_id
        self.epoch = JOIN
        self.description = description
        self.owned: Owned = frozenset()
        """The partitions that the reader has, as (topic id, partition)."""
        self.target: Owned = frozenset()
        """The coordinator's target assignment."""
        self._sent_fields: dict[str, Any] = {}
        """Changeable fields as the coordinator knows them."""

    def check(self) -> None:
        """Assert the invariants."""
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
        """Whether a heartbeat is due at once."""
        return self.state in (ConsumerMemberState.JOINING, ConsumerMemberState.ACKNOWLEDGING) or (
            self.is_member and self._changes() != {}
        )

    # Out

    def heartbeat(self) -> dict[str, Any]:
        """Return the request's fields; unchanged ones are left out."""
        description = self.description
        fields: dict[str, Any] = {"member_id": self.member_id, "member_epoch": self.epoch}
        if not self._sent_fields:
            fields |= {
                "instance_id": description.instance_id,
                "rack_id": description.rack,
                "rebalance_timeout_ms": description.rebalance_timeout_ms,
                "server_assignor": description.assignor,
            }
        fields |= self._changes()
        return fields

    def _changes(self) -> dict[str, Any]:
        """Return the changeable fields that the coordinator does not know yet."""
        fields = {
            "topics": self.description.topics,
            "regex": self.description.regex,
            "owned": self.owned,
        }
        sent_fields = {"regex": NO_REGEX} | self._sent_fields
        return {name: value for name, value in fields.items() if sent_fields.get(name) != value}

    def leave(self) -> dict[str, Any]:
        """Return the fields of the last heartbeat."""
        static = self.description.instance_id is not None
        epoch = LEAVE_FOR_A_WHILE if static else LEAVE
        fields = {"member_id": self.member_id, "member_epoch": epoch}
        return fields | {"instance_id": self.description.instance_id}

    def on_heartbeat_sent(self, fields: Mapping[str, Any]) -> None:
        """Note that a heartbeat was sent. An acknowledgement takes effect then: its response may
        already bring another target.
        """
        if self.state is ConsumerMemberState.ACKNOWLEDGING and fields["member_epoch"] == self.epoch:
            self._turn(
                ConsumerMemberState.STABLE
                if self.owned == self.target
                else ConsumerMemberState.RECONCILING
            )

    def reset_sent_fields(self) -> None:
        """Forget the coordinator's knowledge, after a request without a response."""
        self._sent_fields = {}

    # In

    def handle_response(
        self, code: ErrorCode, fields: Mapping[str, Any], message: str | None
    ) -> MemberAction:
        """Return the action after a response to the request `fields`; raises KafkaError if it is
        fatal.
        """
        if fields["member_epoch"] != self.epoch:
            return MemberAction.PAST
        action = MEANINGS.get(code, MemberAction.FATAL)
        match action:
            case MemberAction.FATAL if code is ErrorCode.unsupported_version:
                raise KafkaError(code, message or NOT_SUPPORTED)
            case MemberAction.FATAL:
                raise KafkaError(code, message or "")
            case MemberAction.UNKNOWN:
                self.lose()
            case MemberAction.AGAIN | MemberAction.MOVED:
                self.reset_sent_fields()
        return action

    def apply_response(
        self, fields: Mapping[str, Any], epoch: int, member_id: str, assignment: Owned | None
    ) -> None:
        """Update after a successful response. Without an assignment the target stays."""
        self._sent_fields |= {
            name: fields[name] for name in ("topics", "regex", "owned") if name in fields
        }
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

    def subscribe(self, description: MemberDescription) -> None:
        self.description = description

    def update_owned(self, owned: Iterable[tuple[UUID, int]]) -> None:
        """Note that the reader owns these partitions now, perhaps only a part of the target."""
        owned = frozenset(owned)
        if owned != self.owned:
            self.owned = owned
            self._turn(ConsumerMemberState.ACKNOWLEDGING)

    def lose(self) -> None:
        self.epoch = JOIN
        self.owned = self.target = frozenset()
        self.reset_sent_fields()
        self._turn(ConsumerMemberState.LOST)

    def acknowledge_loss(self) -> None:
        self._turn(ConsumerMemberState.JOINING)

    def _turn(self, state: ConsumerMemberState) -> None:
        assert self.state in VALID_PREVIOUS_STATES[state], f"{self.state} to {state}"
        self.state = state
