"""Metadata of topics, and which of what brokers report is used.

A broker that is partitioned from the others reports former leaders, with lower leader epochs. It
must not lead a client back to them, however long that lasts.

    a broker reports, of a partition             used
    the epoch that is known, or a higher one     what it reports
    a lower epoch                                what is known
    a lower epoch than a committed offset has    the leader is unknown until a broker reports that
                                                 epoch or a higher one
    all brokers lower ones, for MAX_LAG_S        what they report: the higher epoch was wrong
    another topic id, or no such topic           what it reports: the name was created again

Pure: no I/O, no clock, no await.

(Kafka: Metadata.updateLatestMetadata, updateLastSeenEpochIfNewer.)
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from kserver.errors import ProtocolError
from kserver.model import BrokerId, LeaderEpoch, TopicPartition

Address: TypeAlias = tuple[str, int]

# Seconds for which all brokers may report a lower leader epoch than one of them did.
MAX_LAG_S = 10.0


class PartitionMetadata(NamedTuple):
    """`leader` is None while there is none; the preferred replica is the first of `replicas`."""

    partition: int
    leader: BrokerId | None
    leader_epoch: LeaderEpoch
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    offline: tuple[BrokerId, ...]


class TopicMetadata(NamedTuple):
    """`id` is None on brokers older than 2.8; `partitions[p]` is partition p."""

    name: str
    id: UUID | None
    is_internal: bool
    partitions: tuple[PartitionMetadata, ...]


def topic_metadata(topic: Any) -> TopicMetadata:
    """Return one topic of a Metadata or DescribeTopicPartitions response. Raises ProtocolError if
    partitions are missing.
    """
    partitions = tuple(
        PartitionMetadata(
            p.partition_index,
            p.leader_id if p.leader_id >= 0 else None,
            getattr(p, "leader_epoch", -1),
            p.replica_nodes,
            p.isr_nodes,
            getattr(p, "offline_replicas", ()),
        )
        for p in sorted(topic.partitions, key=lambda p: p.partition_index)
    )
    if [p.partition for p in partitions] != list(range(len(partitions))):
        raise ProtocolError(f"metadata of {topic.name} leaves out partitions")
    id = getattr(topic, "topic_id", None)
    return TopicMetadata(topic.name, id, getattr(topic, "is_internal", False), partitions)


class _Lag:
    """The brokers with older metadata of a topic than another broker had, and since when."""

    __slots__ = ("brokers", "since_s")

    def __init__(self, since_s: float) -> None:
        self.since_s = since_s
        self.brokers: set[Address] = set()


class LeaderEpochs:
    """Chooses between what is known and what a broker reports (table above)."""

    def __init__(self) -> None:
        self._lagging: dict[str, _Lag] = {}
        """By topic."""
        self._min_epochs: dict[TopicPartition, LeaderEpoch] = {}
        """By partition, the highest leader epoch of a committed offset."""

    @property
    def lagging(self) -> set[Address]:
        """The brokers that reported older metadata than others."""
        return {address for lag in self._lagging.values() for address in lag.brokers}

    def expect(self, partition: TopicPartition, epoch: LeaderEpoch) -> None:
        """Note that there has been a leader of this epoch."""
        self._min_epochs[partition] = max(epoch, self._min_epochs.get(partition, -1))

    def forget(self, topic: str) -> None:
        """Note that the topic was deleted: one of the same name has epochs of its own."""
        for partition in [p for p in self._min_epochs if p.topic == topic]:
            del self._min_epochs[partition]

    def choose(
        self,
        reported: TopicMetadata,
        known: TopicMetadata | None,
        broker: Address,
        brokers: Collection[Address],
        now_s: float,
    ) -> TopicMetadata:
        """Return the metadata to use after `broker` has reported its own; `brokers` are all."""
        name = reported.name
        if known is not None and known.id != reported.id:
            known = None
            self.forget(name)
        before = {} if known is None else {p.partition: p for p in known.partitions}
        newest = self.without_former_leaders(
            reported._replace(
                partitions=tuple(
                    old
                    if (old := before.get(p.partition)) and old.leader_epoch > p.leader_epoch >= 0
                    else p
                    for p in reported.partitions
                ),
            )
        )
        if newest == reported:
            self._lagging.pop(name, None)
            return reported
        lag = self._lagging.setdefault(name, _Lag(now_s))
        lag.brokers.add(broker)
        if now_s - lag.since_s < MAX_LAG_S or not lag.brokers.issuperset(brokers):
            return newest
        del self._lagging[name]
        self.forget(name)
        return reported

    def without_former_leaders(self, topic: TopicMetadata) -> TopicMetadata:
        """Return the metadata without leaders of a lower epoch than is known to exist."""
        if not self._min_epochs:
            return topic
        return topic._replace(
            partitions=tuple(
                p._replace(leader=None, leader_epoch=epoch)
                if 0 <= p.leader_epoch < (epoch := self._min_epochs.get(key, -1))
                else p
                for p in topic.partitions
                for key in (TopicPartition(topic.name, p.partition),)
            )
        )
