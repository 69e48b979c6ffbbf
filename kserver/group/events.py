"""Events of classic groups and committed offsets; each is one record of __consumer_offsets.

    event                   record
    ClassicGroupMetadata    GroupMetadata, version 3, as Kafka 4 writes it
    GroupDeleted            its tombstone
    OffsetCommitted         OffsetCommit, version 4; version 1 if it has its own expiry time
    OffsetDeleted           its tombstone

Pure: values and bytes only.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from kserver.group.records import GROUP_METADATA, OFFSET_COMMIT, RECORDS
from kserver.group.requests import NO_TOPIC_ID
from kserver.model import NO_TIMESTAMP, LeaderEpoch, Offset
from kserver.wire import varint
from kserver.wire.schema import Values

Record: TypeAlias = tuple[bytes, bytes | None]
"""Key and value."""

GROUP_METADATA_VERSION = 3
OFFSET_COMMIT_VERSION = 4
OFFSET_COMMIT_WITH_EXPIRY_VERSION = 1

_SHORT = struct.Struct(">h")
_INT = struct.Struct(">i")
_TWO_SHORTS = struct.Struct(">hh")
_COMMIT_HEAD = struct.Struct(">hqi")
"""Version, offset and leader epoch."""
_TIMESTAMP = struct.Struct(">q")
_TOPIC_ID_FOLLOWS = bytes((1, 0, 16))
"""One tagged field, number 0, of 16 bytes."""
_NOTHING_FOLLOWS = bytes((0,))
_TAGGED_SIZE = 19
_LONGER = 127
"""Length from which a string's size takes more than one byte."""


@dataclass(frozen=True, slots=True)
class MemberMetadata:
    id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_ms: int
    session_ms: int
    subscription: bytes
    """Member metadata for the group's protocol."""
    assignment: bytes


@dataclass(frozen=True, slots=True)
class ClassicGroupMetadata:
    """State of a classic group, which is Empty or Stable when it is written and when it is
    loaded."""

    group_id: str
    protocol_type: str
    """Empty for a group that never had members."""
    generation: int
    protocol: str | None
    leader: str | None
    since_ms: int
    """Wall-clock time when it entered this state, in ms since 1970; -1 if unknown."""
    members: tuple[MemberMetadata, ...]

    def encode(self) -> Record:
        members = [
            {
                "memberId": member.id,
                "groupInstanceId": member.instance_id,
                "clientId": member.client_id,
                "clientHost": member.client_host,
                "rebalanceTimeout": member.rebalance_ms,
                "sessionTimeout": member.session_ms,
                "subscription": member.subscription,
                "assignment": member.assignment,
            }
            for member in self.members
        ]
        value = {
            "protocolType": self.protocol_type,
            "generation": self.generation,
            "protocol": self.protocol,
            "leader": self.leader,
            "currentStateTimestamp": self.since_ms,
            "members": members,
        }
        return _group_key(self.group_id), RECORDS.encode_value(
            GROUP_METADATA, GROUP_METADATA_VERSION, value
        )


@dataclass(frozen=True, slots=True)
class GroupDeleted:
    group_id: str

    def encode(self) -> Record:
        return _group_key(self.group_id), None


class OffsetCommitted(NamedTuple):
    """A named tuple, as one is created for each commit and a named tuple takes a third of the
    time."""

    group_id: str
    topic: str
    partition: int
    offset: Offset
    leader_epoch: LeaderEpoch
    metadata: str
    committed_ms: int
    expires_ms: int = NO_TIMESTAMP
    """Expiry time in ms since 1970, if the client set a retention; else NO_TIMESTAMP."""
    topic_id: UUID = NO_TOPIC_ID

    def encode(self) -> Record:
        """Encode by hand: encoding by schema takes longer than the rest of a commit."""
        key = _commit_key(self.group_id, self.topic, self.partition)
        if self.expires_ms != NO_TIMESTAMP:
            return key, RECORDS.encode_value(
                OFFSET_COMMIT,
                OFFSET_COMMIT_WITH_EXPIRY_VERSION,
                {
                    "offset": self.offset,
                    "metadata": self.metadata,
                    "commitTimestamp": self.committed_ms,
                    "expireTimestamp": self.expires_ms,
                },
            )
        metadata = self.metadata.encode()
        has_topic_id = self.topic_id is not NO_TOPIC_ID and self.topic_id != NO_TOPIC_ID
        return key, b"".join(
            (
                _COMMIT_HEAD.pack(OFFSET_COMMIT_VERSION, self.offset, self.leader_epoch),
                varint.encode_unsigned(len(metadata) + 1),
                metadata,
                _TIMESTAMP.pack(self.committed_ms),
                _TOPIC_ID_FOLLOWS + self.topic_id.bytes if has_topic_id else _NOTHING_FOLLOWS,
            )
        )


class OffsetDeleted(NamedTuple):
    group_id: str
    topic: str
    partition: int

    def encode(self) -> Record:
        return _commit_key(self.group_id, self.topic, self.partition), None


def read_commit(key: bytes, value: bytes | None) -> OffsetCommitted | OffsetDeleted | None:
    """Decode by hand, as a starting coordinator may have hundreds of thousands of records to load.

    Returns None for other records, for other versions, and for malformed ones.
    """
    try:
        kind, size = _TWO_SHORTS.unpack_from(key)
        if kind != OFFSET_COMMIT or size < 0:
            return None
        group_id = _text(key[4 : 4 + size])
        at = 4 + size
        (size,) = _SHORT.unpack_from(key, at)
        topic = _text(key[at + 2 : at + 2 + size])
        at += 2 + size
        (partition,) = _INT.unpack_from(key, at)
        if size < 0 or at + _INT.size != len(key):
            return None
        if value is None:
            return OffsetDeleted(group_id, topic, partition)
        version, offset, leader_epoch = _COMMIT_HEAD.unpack_from(value)
        at = _COMMIT_HEAD.size
        size = value[at] - 1
        metadata = _text(value[at + 1 : at + 1 + size])
        at += 1 + size
        (committed_ms,) = _TIMESTAMP.unpack_from(value, at)
        tagged = value[at + _TIMESTAMP.size :]
    except (struct.error, IndexError, UnicodeDecodeError):
        return None
    # Longer metadata has a size of several bytes; it is decoded by schema instead.
    if version != OFFSET_COMMIT_VERSION or not 0 <= size < _LONGER:
        return None
    if tagged == _NOTHING_FOLLOWS:
        topic_id = NO_TOPIC_ID
    elif tagged[:3] == _TOPIC_ID_FOLLOWS and len(tagged) == _TAGGED_SIZE:
        topic_id = _topic_id(tagged[3:])
    else:
        return None
    return OffsetCommitted(
        group_id,
        topic,
        partition,
        offset,
        leader_epoch,
        metadata,
        committed_ms,
        NO_TIMESTAMP,
        topic_id,
    )


# Cached, so that records share one string for a name and one object for a topic id.
@functools.lru_cache(maxsize=2000)
def _text(data: bytes) -> str:
    return data.decode()


@functools.lru_cache(maxsize=2000)
def _topic_id(data: bytes) -> UUID:
    return UUID(bytes=data)


def _group_key(group_id: str) -> bytes:
    return RECORDS.encode_key(GROUP_METADATA, {"group": group_id})


def _commit_key(group_id: str, topic: str, partition: int) -> bytes:
    group, name = group_id.encode(), topic.encode()
    return b"".join(
        (
            _TWO_SHORTS.pack(OFFSET_COMMIT, len(group)),
            group,
            _SHORT.pack(len(name)),
            name,
            _INT.pack(partition),
        )
    )


def _group_event(key: Values, value: Values | None) -> ClassicGroupMetadata | GroupDeleted:
    if value is None:
        return GroupDeleted(key["group"])
    members = tuple(
        MemberMetadata(
            member["memberId"],
            member["groupInstanceId"],
            member["clientId"],
            member["clientHost"],
            # Version 0 has one timeout for both.
            member["sessionTimeout"]
            if member["rebalanceTimeout"] == -1
            else member["rebalanceTimeout"],
            member["sessionTimeout"],
            member["subscription"],
            member["assignment"],
        )
        for member in value["members"]
    )
    return ClassicGroupMetadata(
        key["group"],
        value["protocolType"],
        value["generation"],
        value["protocol"],
        value["leader"],
        value["currentStateTimestamp"],
        members,
    )


def _offset_event(key: Values, value: Values | None) -> OffsetCommitted | OffsetDeleted:
    if value is None:
        return OffsetDeleted(key["group"], key["topic"], key["partition"])
    return OffsetCommitted(
        key["group"],
        key["topic"],
        key["partition"],
        value["offset"],
        value.get("leaderEpoch", -1),
        value["metadata"],
        value["commitTimestamp"],
        value.get("expireTimestamp", NO_TIMESTAMP),
        value.get("topicId", NO_TOPIC_ID),
    )


DECODERS: Mapping[int, Callable[[Values, Values | None], Any]] = {
    0: _offset_event,
    OFFSET_COMMIT: _offset_event,
    GROUP_METADATA: _group_event,
}
"""Decoders from the fields of key and value to the event, by kind of record."""
