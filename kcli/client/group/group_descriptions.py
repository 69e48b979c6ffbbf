"""Types of results about groups: listings, members, committed offsets.

Pure: values.
"""

from __future__ import annotations

from typing import NamedTuple

from kcli.client.cluster import Node
from kserver.model import LeaderEpoch, Offset, TopicPartition

CLASSIC = "Classic"
CONSUMER = "Consumer"
"""The types of consumer groups: CLASSIC has client-side, CONSUMER server-side assignment (KIP-848).
"""


class GroupListing(NamedTuple):
    """`type` (Classic, Consumer, Share, Streams) and `state` are None if the broker does not report
    them. `protocol_type` is the kind of the members: "consumer", "connect", or "" for a group that
    has only committed offsets.
    """

    group: str
    protocol_type: str
    state: str | None
    type: str | None


class GroupMember(NamedTuple):
    """`host` is as the broker reports it, such as `/127.0.0.1`.

    Only in a group by KIP-848: the member's epoch, its target assignment, and whether it uses the
    new protocol (KIP-1099).
    """

    id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]
    epoch: int | None = None
    target: tuple[TopicPartition, ...] | None = None
    is_upgraded: bool | None = None


class GroupDescription(NamedTuple):
    """`assignor` is "" while there is none; only a group by KIP-848 has epochs."""

    group: str
    type: str
    protocol_type: str
    state: str
    assignor: str
    coordinator: Node
    members: tuple[GroupMember, ...]
    epoch: int | None = None
    target_epoch: int | None = None


class CommittedOffset(NamedTuple):
    """`leader_epoch` is that of the record before the offset, None if it was not committed."""

    offset: Offset
    leader_epoch: LeaderEpoch | None = None
    metadata: str = ""


class MemberToRemove(NamedTuple):
    """A static member by `instance_id`, any other by its id."""

    id: str = ""
    instance_id: str | None = None
