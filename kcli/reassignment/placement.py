"""The placement of replicas, and the load of each broker.

Pure: no requests, no randomness.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kserver.model import BrokerId, TopicPartition

Replicas = tuple[BrokerId, ...]
"""Replicas of one partition; the first is the preferred leader."""


class BrokerLoad(NamedTuple):
    """The load of one broker."""

    leaders: int
    """Partitions whose preferred leader it is."""
    replicas: int
    bytes: int


@dataclass
class Placement:
    """The replicas of each partition.

    `racks` has every broker that may get replicas; if only some brokers have a rack, racks do not
    count (KIP-36). `sizes` are bytes of one replica.
    """

    racks: Mapping[BrokerId, str | None]
    replicas: dict[TopicPartition, Replicas]
    sizes: Mapping[TopicPartition, int]

    def __post_init__(self) -> None:
        self._has_racks = None not in self.racks.values()
        self.rack_count = len({self.rack(broker) for broker in self.racks})
        self.leaders = dict.fromkeys(self.racks, 0)
        self.counts = dict.fromkeys(self.racks, 0)
        self.bytes = dict.fromkeys(self.racks, 0)
        self.total_replicas = self.total_bytes = 0
        for partition, replicas in self.replicas.items():
            self._carry(partition, replicas, 1)

    def copy(self) -> Placement:
        return Placement(self.racks, dict(self.replicas), self.sizes)

    def size(self, partition: TopicPartition) -> int:
        return self.sizes.get(partition, 0)

    def rack(self, broker: BrokerId) -> object:
        """Return the broker's rack. The broker counts as its own rack if racks do not count, or if
        its rack is unknown because it no longer exists.
        """
        return (self.racks.get(broker) or broker) if self._has_racks else broker

    def loads(self) -> dict[BrokerId, BrokerLoad]:
        """Return loads by broker id, including removed brokers that still have replicas."""
        return {
            broker: BrokerLoad(self.leaders[broker], self.counts[broker], self.bytes[broker])
            for broker in sorted(self.counts)
            if broker in self.racks or self.counts[broker]
        }

    def share(self, broker: BrokerId) -> float:
        """Return the broker's share of all bytes plus its share of all replicas."""
        return self.bytes[broker] / (self.total_bytes or 1) + self.counts[broker] / (
            self.total_replicas or 1
        )

    def assign(self, partition: TopicPartition, replicas: Sequence[BrokerId]) -> None:
        self._carry(partition, self.replicas[partition], -1)
        self.replicas[partition] = tuple(replicas)
        self._carry(partition, self.replicas[partition], 1)

    def move(self, partition: TopicPartition, source: BrokerId, target: BrokerId) -> None:
        """Replace the source by the target, at the same position."""
        moved = (target if b == source else b for b in self.replicas[partition])
        self.assign(partition, tuple(moved))

    def lead(self, partition: TopicPartition, broker: BrokerId) -> None:
        """Make the broker the preferred leader, which moves no bytes."""
        others = (b for b in self.replicas[partition] if b != broker)
        self.assign(partition, (broker, *others))

    def racks_of(self, brokers: Collection[BrokerId]) -> set[object]:
        return {self.rack(broker) for broker in brokers}

    def is_spread(self, partition: TopicPartition) -> bool:
        """Whether its replicas are on as many racks as possible."""
        replicas = self.replicas[partition]
        return len(self.racks_of(replicas)) >= min(len(replicas), self.rack_count)

    def keeps_racks(self, partition: TopicPartition, source: BrokerId, target: BrokerId) -> bool:
        """Whether the replicas are on no fewer racks if the target replaces the source."""
        replicas = self.replicas[partition]
        others = self.racks_of([b for b in replicas if b != source])
        return self.rack(target) not in others or self.rack(source) in others

    def _carry(self, partition: TopicPartition, replicas: Replicas, sign: int) -> None:
        size = self.size(partition)
        for broker in replicas:
            self.counts[broker] = self.counts.get(broker, 0) + sign
            self.bytes[broker] = self.bytes.get(broker, 0) + sign * size
            self.leaders.setdefault(broker, 0)
        if replicas:
            self.leaders[replicas[0]] += sign
        self.total_replicas += sign * len(replicas)
        self.total_bytes += sign * size * len(replicas)


def bytes_moved(before: Placement, after: Placement) -> int:
    """Return the bytes that new replicas have to fetch."""
    return sum(
        after.size(partition) * len(set(replicas) - set(before.replicas[partition]))
        for partition, replicas in after.replicas.items()
    )


def changes(before: Placement, after: Placement) -> dict[TopicPartition, Replicas]:
    """Return the partitions whose replicas, or their order, have changed; sorted by name."""
    return {
        partition: after.replicas[partition]
        for partition in sorted(after.replicas)
        if after.replicas[partition] != before.replicas[partition]
    }
