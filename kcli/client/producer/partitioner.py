"""Partitioner: chooses the partition of a record.

Pure: keys and counts in, numbers out.

A record with a key goes to the same partition as with Java's clients: murmur2 of the key, its sign
bit cleared, modulo the number of partitions (Kafka: BuiltInPartitioner, Utils.murmur2). Records
without a key stay with one partition for a batch's worth of bytes and then switch (KIP-794); that
choice is the accumulator's, which has the batches.

partitioner.class replaces both rules: by one of Kafka's by its Java name, or by a function:

    def by_customer(topic, key, partitions, available):
        return int(key.split(b"-")[0]) % partitions
"""

from __future__ import annotations

import functools
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Protocol

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_MASK = 0xFFFFFFFF

# Keys repeat; a known key costs a look-up, a new one a microsecond for every 8 bytes.
_REMEMBERED_KEYS = 1 << 15


def murmur2(data: bytes) -> int:
    """Return the 32-bit hash, unsigned."""
    size = len(data)
    words = size // 4
    hash = _SEED ^ size
    for k in struct.unpack_from(f"<{words}I", data):
        k = k * _MULTIPLIER & _MASK
        k = (k ^ k >> 24) * _MULTIPLIER & _MASK
        hash = (hash * _MULTIPLIER & _MASK) ^ k
    if size % 4:
        hash = (hash ^ int.from_bytes(data[4 * words :], "little")) * _MULTIPLIER & _MASK
    hash = (hash ^ hash >> 13) * _MULTIPLIER & _MASK
    return hash ^ hash >> 15


@functools.lru_cache(_REMEMBERED_KEYS)
def partition_for_key(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partitions


class Partitioner(Protocol):
    """`partitions` is the topic's partition count, `available` holds those with a leader, or all
    while none has one. None leaves the record to the present partition of records without keys.
    """

    def __call__(
        self, topic: str, key: bytes | None, partitions: int, available: Sequence[int], /
    ) -> int | None: ...


class RoundRobinPartitioner:
    """Chooses one partition after the other, whatever the key."""

    def __init__(self) -> None:
        self._sent: Counter[str] = Counter()

    def __call__(
        self, topic: str, key: bytes | None, partitions: int, available: Sequence[int], /
    ) -> int:
        self._sent[topic] += 1
        return available[(self._sent[topic] - 1) % len(available)]


def sticky(topic: str, key: bytes | None, partitions: int, available: Sequence[int], /) -> None:
    """Leave every record to the sticky partition, whatever the key."""


PACKAGE = "org.apache.kafka.clients.producer."
DEFAULT = frozenset(
    {
        "DefaultPartitioner",
        f"{PACKAGE}internals.DefaultPartitioner",
        "kafka.producer.DefaultPartitioner",
    }
)
"""Names in older configurations that stand for the default."""
PARTITIONERS: Mapping[str, Partitioner | type[Partitioner]] = {
    f"{PACKAGE}RoundRobinPartitioner": RoundRobinPartitioner,
    f"{PACKAGE}UniformStickyPartitioner": sticky,
}
