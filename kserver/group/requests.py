"""Requests and responses of groups, in a form shared by all versions of an API.

Pure: values only.

An error of the whole request is a KafkaError in place of the response.  An error with fields of
its own, or of one item of many, is part of the response.  Durations are in milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from kserver.errors import ErrorCode
from kserver.model import LeaderEpoch, Offset, ProducerId

NO_GENERATION = -1
NO_MEMBER = ""
"""Id of a member that has none yet, or of a client that is not a member."""
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
    """Names and the member's metadata, in order of preference."""
    must_know_id: bool = True
    """Whether a member that joins without an id receives one and has to rejoin with it
    (KIP-394)."""
    may_skip_assignment: bool = True
    """Whether the leader supports SkipAssignment in the response (KIP-814)."""


class JoinedMember(NamedTuple):
    id: str
    instance_id: str | None
    metadata: bytes


class JoinGroupResult(NamedTuple):
    member_id: str
    error: ErrorCode = ErrorCode.none
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skips_assignment: bool = False
    members: Sequence[JoinedMember] = ()
    """Members of the group; only sent to the leader."""
    binds: bool = False
    """Whether it gives a static member an id that is not in the log yet.  If this broker is not the
    coordinator any more, the present one will fence that id."""


class SyncGroup(NamedTuple):
    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    protocol_type: str | None
    protocol: str | None
    assignments: Mapping[str, bytes]
    """Assignments by member id; only sent by the leader."""


class SyncGroupResult(NamedTuple):
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
    """Generation, or the member epoch (KIP-848)."""
    member_id: str
    instance_id: str | None
    commits: Sequence[Commit]
    retention_ms: int | None = None
    """Retention from now on, instead of the broker's config."""
    knows_group_id_not_found: bool = True
    """Since v9; older clients receive ILLEGAL_GENERATION."""
    knows_stale_member_epoch: bool = True
    """Since v9; older clients cannot commit as members of a KIP-848 group."""


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
    """Answered with FetchedOffsets, in the order of the request.  Partitions that are named but
    were never committed are included."""

    group_id: str
    topics: Sequence[tuple[str, Sequence[int]]] | None
    """Partitions by topic; None for all committed offsets."""
    require_stable: bool = False
    """Respond with UNSTABLE_OFFSET_COMMIT for offsets pending in an open transaction (KIP-447)."""
    member_id: str | None = None
    member_epoch: int = NO_GENERATION
    """Both only of members of KIP-848 groups."""


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
    """Answered with DescribedGroup, or GROUP_ID_NOT_FOUND if there is no classic group of this
    id."""

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
    """In lower case; empty for all."""
    types: frozenset[str]
    """In lower case; empty for all."""


class ListedGroup(NamedTuple):
    id: str
    protocol_type: str
    state: str
    type: str
