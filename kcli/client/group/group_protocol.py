"""Kafka's "consumer" protocol: the messages between members of a classic group, to bytes and back.

Pure: bytes and values only.

    Subscription   a member's topics and owned partitions; in JoinGroup, read by the group's leader
    Assignment     a member's partitions; in SyncGroup, written by the leader

Both begin with a version (2 bytes). A newer version than ours has additional fields at the end, and
is read as ours; user data is defined by the assignor (ConsumerProtocolSubscription.json v0-v3,
ConsumerProtocolAssignment.json v0-v3).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from kserver.errors import ProtocolError
from kserver.model import TopicPartition

PROTOCOL_TYPE = "consumer"
SUBSCRIPTION_VERSION = 3
ASSIGNMENT_VERSION = 3
NO_GENERATION = -1

_SHORT = struct.Struct(">h")
_INT = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class Subscription:
    """`generation` is the one in which the member was assigned its owned partitions; -1:
    unknown.
    """

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION
    rack: str | None = None
    user_data: bytes | None = None
    instance_id: str | None = None
    """Not part of the bytes: a separate field of JoinGroup."""


def write_subscription(subscription: Subscription) -> bytes:
    """Encode in the newest version; leaders of any version find the fields they know."""
    return b"".join(
        (
            _SHORT.pack(SUBSCRIPTION_VERSION),
            _INT.pack(len(subscription.topics)),
            *map(_string, subscription.topics),
            _bytes(subscription.user_data),
            write_partitions(subscription.owned),
            _INT.pack(subscription.generation),
            _string(subscription.rack),
        )
    )


def read_subscription(data: bytes, instance_id: str | None = None) -> Subscription:
    """Decode a subscription. Raises ProtocolError if the bytes are invalid."""
    reader = Reader(data)
    version = reader.short()
    topics = tuple(reader.text() for _ in range(reader.count(2)))
    user_data = reader.nullable_bytes()
    owned = reader.partitions() if version >= 1 else ()
    generation = reader.number() if version >= 2 else NO_GENERATION
    rack = reader.nullable_text() if version >= 3 else None
    return Subscription(topics, owned, generation, rack, user_data, instance_id)


def write_assignment(partitions: Iterable[TopicPartition], user_data: bytes | None = None) -> bytes:
    return _SHORT.pack(ASSIGNMENT_VERSION) + write_partitions(partitions) + _bytes(user_data)


def read_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """Decode an assignment. Raises ProtocolError if the bytes are invalid, such as those of a
    leader that left a member out.
    """
    reader = Reader(data)
    reader.short()
    return reader.partitions()


def write_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    """Encode an array of topics, each with an array of partition numbers."""
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    parts = [_INT.pack(len(topics))]
    for topic, numbers in topics.items():
        parts += (_string(topic), struct.pack(f">i{len(numbers)}i", len(numbers), *numbers))
    return b"".join(parts)


def _string(text: str | None) -> bytes:
    if text is None:
        return _SHORT.pack(-1)
    data = text.encode()
    return _SHORT.pack(len(data)) + data


def _bytes(data: bytes | None) -> bytes:
    return _INT.pack(-1) if data is None else _INT.pack(len(data)) + data


class Reader:
    """Reads one value after the other; raises ProtocolError if the bytes end too soon."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def _take(self, size: int) -> bytes:
        start, self._at = self._at, self._at + size
        if size < 0 or self._at > len(self._data):
            raise ProtocolError("a group member's bytes are cut short")
        return self._data[start : self._at]

    def short(self) -> int:
        return int.from_bytes(self._take(2), signed=True)

    def number(self) -> int:
        return int.from_bytes(self._take(4), signed=True)

    def count(self, least_bytes: int) -> int:
        """Return the length of an array whose entries take at least `least_bytes` each."""
        count = self.number()
        if not 0 <= count * least_bytes <= len(self._data) - self._at:
            raise ProtocolError("a group member's bytes announce more than they hold")
        return count

    def nullable_text(self) -> str | None:
        size = self.short()
        try:
            return None if size < 0 else self._take(size).decode()
        except UnicodeDecodeError as error:
            raise ProtocolError(f"a group member's bytes hold no text: {error}") from error

    def text(self) -> str:
        return self.nullable_text() or ""

    def nullable_bytes(self) -> bytes | None:
        size = self.number()
        return None if size < 0 else self._take(size)

    def partitions(self) -> tuple[TopicPartition, ...]:
        return tuple(
            TopicPartition(topic, self.number())
            for _ in range(self.count(6))
            for topic in [self.text()]
            for _ in range(self.count(4))
        )
