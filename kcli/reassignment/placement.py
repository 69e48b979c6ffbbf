"""Where replicas are, and what each broker carries of them.

Pure: nothing is asked of a cluster, and nothing left to chance.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kserver.model import BrokerId, TopicPartition

Replicas = tuple[BrokerId, ...]
"""Of one partition; the first is the preferred leader."""


class Load(NamedTuple):
    """What one broker carries."""

    leaders: int
    """Partitions whose preferred leader it is."""
    replicas: int
    bytes: int


@dataclass
class Placement:
    """The replicas of each partition.

    `racks` has every broker that may be given replicas; where only some tell their rack, racks do
    not count (KIP-36).  `sizes` are those of one replica, in bytes.
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
        """Its own where racks do not count, and where nobody tells it: of a broker that is gone."""
        return (self.racks.get(broker) or broker) if self._has_racks else broker

    def loads(self) -> dict[BrokerId, Load]:
        """By broker, in order of their ids; of one that is gone too, while it holds anything."""
        return {
            broker: Load(self.leaders[broker], self.counts[broker], self.bytes[broker])
            for broker in sorted(self.counts)
            if broker in self.racks or self.counts[broker]
        }

    def share(self, broker: BrokerId) -> float:
        """Of all bytes and of all replicas."""
        return self.bytes[broker] / (self.total_bytes or 1) + self.counts[broker] / (
            self.total_replicas or 1
        )

    def assign(self, partition: TopicPartition, replicas: Sequence[BrokerId]) -> None:
        self._carry(partition, self.replicas[partition], -1)
        self.replicas[partition] = tuple(replicas)
        self._carry(partition, self.replicas[partition], 1)

    def move(self, partition: TopicPartition, source: BrokerId, target: BrokerId) -> None:
        """The target takes the source's place in order."""
        moved = (target if b == source else b for b in self.replicas[partition])
        self.assign(partition, tuple(moved))

    def lead(self, partition: TopicPartition, broker: BrokerId) -> None:
        """It is the preferred leader from now on, which moves no bytes."""
        others = (b for b in self.replicas[partition] if b != broker)
        self.assign(partition, (broker, *others))

    def racks_of(self, brokers: Collection[BrokerId]) -> set[object]:
        return {self.rack(broker) for broker in brokers}

    def is_spread(self, partition: TopicPartition) -> bool:
        """Whether its replicas are on as many racks as they can be."""
        replicas = self.replicas[partition]
        return len(self.racks_of(replicas)) >= min(len(replicas), self.rack_count)

    def keeps_racks(self, partition: TopicPartition, source: BrokerId, target: BrokerId) -> bool:
        """Whether the replicas are on no fewer racks if the target takes the source's place."""
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
    """What new replicas have to fetch."""
    return sum(
        after.size(partition) * len(set(replicas) - set(before.replicas[partition]))
        for partition, replicas in after.replicas.items()
    )


def changes(before: Placement, after: Placement) -> dict[TopicPartition, Replicas]:
    """The partitions whose replicas, or whose order, are others; in order of their names."""
    return {
        partition: after.replicas[partition]
        for partition in sorted(after.replicas)
        if after.replicas[partition] != before.replicas[partition]
    }
