"""What groups are asked, and what they answer: the shapes that every version of an API shares.

Pure: values only.

A refusal of the whole request is a KafkaError in the place of the answer; one that has fields of
its own, or concerns one item of many, is part of the answer.  Durations are milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from kserver.errors import ErrorCode
from kserver.model import LeaderEpoch, Offset, ProducerId

NO_GENERATION = -1
NO_MEMBER = ""
"""The id of a member that has none yet, or none at all."""
NO_TOPIC_ID = UUID(int=0)


class JoinGroup(NamedTuple):
    group_id: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_ms: int
    rebalance_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    """Names with the member's metadata, the one it likes best first."""
    must_know_id: bool = True
    """A member that joins without an id is given one and has to come again (KIP-394)."""
    may_skip_assignment: bool = True
    """The leader can be told that there is nothing to assign (KIP-814)."""


class JoinedMember(NamedTuple):
    id: str
    instance_id: str | None
    metadata: bytes


class Joined(NamedTuple):
    member_id: str
    error: ErrorCode = ErrorCode.none
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skips_assignment: bool = False
    members: Sequence[JoinedMember] = ()
    """For the leader alone."""


class SyncGroup(NamedTuple):
    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    protocol_type: str | None
    protocol: str | None
    assignments: Mapping[str, bytes]
    """By member id; of the leader alone."""


class Synced(NamedTuple):
    protocol_type: str | None
    protocol: str | None
    assignment: bytes


class Heartbeat(NamedTuple):
    """Answered with None."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None


class LeavingMember(NamedTuple):
    member_id: str
    instance_id: str | None = None


class LeaveGroup(NamedTuple):
    """Answered with an ErrorCode for each member, in their order."""

    group_id: str
    members: Sequence[LeavingMember]


class Commit(NamedTuple):
    """One partition of an OffsetCommit."""

    topic: str
    topic_id: UUID
    partition: int
    offset: Offset
    leader_epoch: LeaderEpoch
    metadata: str | None


class CommitOffsets(NamedTuple):
    """Answered with an ErrorCode for each commit, in their order."""

    group_id: str
    generation: int
    """Or the member's epoch (KIP-848)."""
    member_id: str
    instance_id: str | None
    commits: Sequence[Commit]
    retention_ms: int | None = None
    """From now on, instead of what the broker is set to."""
    knows_group_id_not_found: bool = True
    """Since v9; older clients are told ILLEGAL_GENERATION."""
    knows_stale_member_epoch: bool = True
    """Since v9: without it no member of a KIP-848 group can commit."""


class CommitTransactionalOffsets(NamedTuple):
    """Answered with an ErrorCode for each commit, in their order."""

    group_id: str
    transactional_id: str
    producer_id: ProducerId
    producer_epoch: int
    generation: int
    member_id: str
    instance_id: str | None
    commits: Sequence[Commit]


class FetchOffsets(NamedTuple):
    """Answered with FetchedOffset, topic by topic, in the order asked; those that were never
    committed too where partitions are named."""

    group_id: str
    topics: Sequence[tuple[str, Sequence[int]]] | None
    """None for all that was ever committed."""
    require_stable: bool = False
    """UNSTABLE_OFFSET_COMMIT for what an open transaction has written (KIP-447)."""
    member_id: str | None = None
    member_epoch: int = NO_GENERATION
    """Both of members of KIP-848 groups alone."""


class FetchedOffset(NamedTuple):
    partition: int
    offset: Offset = -1
    leader_epoch: LeaderEpoch = -1
    metadata: str = ""
    error: ErrorCode = ErrorCode.none


FetchedOffsets = Sequence[tuple[str, Sequence[FetchedOffset]]]


class DeleteOffsets(NamedTuple):
    """Answered with an ErrorCode for each partition, in their order."""

    group_id: str
    partitions: Sequence[tuple[str, int]]


class DeleteGroup(NamedTuple):
    """Answered with None."""

    group_id: str


class DescribeGroup(NamedTuple):
    """Answered with Described; GROUP_ID_NOT_FOUND for one that there is not, or that is no classic
    group."""

    group_id: str


class DescribedMember(NamedTuple):
    id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class DescribedGroup(NamedTuple):
    state: str
    protocol_type: str
    protocol: str
    members: Sequence[DescribedMember]


class ListGroups(NamedTuple):
    """Answered with a list of ListedGroup."""

    states: frozenset[str]
    """In small letters; empty for all."""
    types: frozenset[str]
    """The same."""


class ListedGroup(NamedTuple):
    id: str
    protocol_type: str
    state: str
    type: str
