"""What the controller knows of the cluster: live brokers, topics, who leads their partitions.

Pure: values, and what follows for a partition when brokers come and go.

    its leader        in sync             next
    lives             live                as it is
    lives             some are gone       the others, in a new leader epoch
    gone, returned    somebody else       the first of these leads (election.py)
    returned          nobody else         it leads again, in a new leader epoch
    gone              nobody              nobody leads; an unclean election where the topic allows

A broker has returned that has registered anew since the state was written, however quickly, so it
leads, or is in sync, in a new epoch only.  One that

    has all its records    stays in sync: only its process was gone
    may lack records       leaves the ISR before anything else, for its machine went down with them,
                           also where nobody else in sync lives: those may have what it lacks, and
                           are waited for unless the topic allows an unclean election; where all of
                           the ISR may lack some, the first leads, and is in sync alone
    does not tell, as      leaves the ISR where somebody has stayed in it
    Apache's do not

That a leader lives may be known from a registration whose process is gone: it must not be left in
sync alone while others that have all are there.
(Kafka: ControllerContext, PartitionStateMachine, ReplicaStateMachine; KIP-380, KIP-966.)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple
from uuid import UUID

from kserver import znodes
from kserver.controller.election import elect_offline
from kserver.controller.replicas import TopicDeletion
from kserver.metadata import BrokerInfo, PartitionInfo, TopicInfo
from kserver.model import NO_BROKER, BrokerId, LeaderAndIsr, TopicPartition


@dataclass(frozen=True, slots=True)
class LiveBroker:
    info: BrokerInfo
    epoch: int
    """Of its registration: the transaction that made its znode."""
    may_lack_records: bool | None = None
    """As it told when it registered; None of a broker that does not tell."""
    features: Mapping[str, int] = field(default_factory=dict)
    """The highest level that it knows of each."""


@dataclass(slots=True)
class ControllerContext:
    epoch: int = 0
    brokers: dict[BrokerId, LiveBroker] = field(default_factory=dict)
    topics: dict[str, TopicInfo] = field(default_factory=dict)
    """Without their overrides, which every broker reads for itself."""
    topic_names: dict[UUID, str] = field(default_factory=dict)
    deletions: dict[str, TopicDeletion] = field(default_factory=dict)
    """The topics that are being deleted, which are in `topics` until they are gone."""
    offline: dict[BrokerId, set[TopicPartition]] = field(default_factory=dict)
    """Replicas of live brokers that these cannot serve, for their disk failed."""
    moving: set[TopicPartition] = field(default_factory=set)
    """Partitions on their way from some replicas to others (KIP-455)."""
    shutting_down: set[BrokerId] = field(default_factory=set)
    """Live brokers that are about to stop: they join no ISR any more."""
    is_active: bool = False
    """Whether this broker is the controller, as far as it knows."""

    def topic_by_id(self, topic_id: UUID) -> TopicInfo | None:
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics[name]

    def set_topics(self, topics: Iterable[TopicInfo]) -> None:
        """These are all there are."""
        self.topics, self.topic_names, self.moving = {}, {}, set()
        for topic in topics:
            self.set_topic(topic)

    def set_topic(self, topic: TopicInfo) -> None:
        self.topics[topic.name] = topic
        self.topic_names[topic.id] = topic.name
        self._note_moving(topic.name, topic.partitions)

    def remove_topic(self, topic: TopicInfo) -> None:
        del self.topics[topic.name], self.topic_names[topic.id]
        self.moving -= {TopicPartition(topic.name, p.partition) for p in topic.partitions}

    def _note_moving(self, topic: str, partitions: Iterable[PartitionInfo]) -> None:
        for partition in partitions:
            key = TopicPartition(topic, partition.partition)
            if partition.adding or partition.removing:
                self.moving.add(key)
            else:
                self.moving.discard(key)

    def is_online(self, broker: BrokerId, topic: str, partition: int) -> bool:
        """Whether its replica may lead, or be in sync."""
        return broker in self.brokers and (topic, partition) not in self.offline.get(broker, ())

    def online(self, topic: str, partition: PartitionInfo) -> list[BrokerId]:
        """Its replicas that may lead, or be in sync."""
        return [b for b in partition.replicas if self.is_online(b, topic, partition.partition)]

    def partitions(self) -> Iterator[PartitionInfo]:
        """Those of topics that are not being deleted."""
        for topic in self.topics.values():
            if topic.name not in self.deletions:
                yield from topic.partitions

    def check(self) -> None:
        """What holds between any two operations."""
        assert self.topic_names == {topic.id: name for name, topic in self.topics.items()}
        assert self.moving == {
            TopicPartition(topic.name, p.partition)
            for topic in self.topics.values()
            for p in topic.partitions
            if p.adding or p.removing
        }
        assert self.offline.keys() <= self.brokers.keys()
        assert self.shutting_down <= self.brokers.keys()
        for name, deletion in self.deletions.items():
            assert self.topics[name].id == deletion.topic.id
            deletion.check(self.brokers)

    @property
    def racks(self) -> dict[BrokerId, str | None]:
        return {id_: broker.info.rack for id_, broker in self.brokers.items()}

    def set_partitions(self, topic: str, changed: Sequence[PartitionInfo]) -> None:
        partitions = list(self.topics[topic].partitions)
        for partition in changed:
            partitions[partition.partition] = partition
        self.topics[topic] = replace(self.topics[topic], partitions=tuple(partitions))
        self._note_moving(topic, changed)


def live_broker(registered: znodes.BrokerRegistration, epoch: int) -> LiveBroker:
    endpoints = {endpoint.listener: endpoint for endpoint in registered.endpoints}
    info = BrokerInfo(registered.id, endpoints, registered.rack)
    tells = registered.incarnation_id != ""
    lacks = registered.may_lack_records if tells else None
    return LiveBroker(info, epoch, lacks, registered.features)


class Returned(NamedTuple):
    """Those that have returned, by what they tell of their records."""

    all: frozenset[BrokerId] = frozenset()
    whole: frozenset[BrokerId] = frozenset()
    lacking: frozenset[BrokerId] = frozenset()

    @classmethod
    def of(cls, brokers: Mapping[BrokerId, LiveBroker], returned: Iterable[BrokerId]) -> Returned:
        told = {broker: brokers[broker].may_lack_records for broker in returned}
        return cls(
            frozenset(told),
            frozenset(broker for broker, lacks in told.items() if lacks is False),
            frozenset(broker for broker, lacks in told.items() if lacks),
        )


def returned_since(brokers: Mapping[BrokerId, LiveBroker], zxid: int) -> Returned:
    """Those that have registered after this transaction."""
    return Returned.of(brokers, [id_ for id_, broker in brokers.items() if broker.epoch > zxid])


def next_state(
    replicas: Sequence[BrokerId],
    last: LeaderAndIsr | None,
    live: Collection[BrokerId],
    returned: Returned,
    controller_epoch: int,
    *,
    unclean: bool,
) -> LeaderAndIsr | None:
    """What the tables say; None where the state stays as it is."""
    if last is None:
        return elect_offline(replicas, None, live, controller_epoch)
    stayed = [broker for broker in live if broker not in returned.all]
    kept = [broker for broker in live if broker not in returned.all or broker in returned.whole]
    if last.leader in stayed:
        isr = tuple(broker for broker in last.isr if broker in kept)
        if isr == last.isr and returned.all.isdisjoint(isr):
            return None
        return replace(
            last,
            leader_epoch=last.leader_epoch + 1,
            isr=isr,
            controller_epoch=controller_epoch,
            partition_epoch=last.partition_epoch + 1,
        )
    isr = tuple(b for b in last.isr if b not in returned.lacking) or last.isr
    whole = replace(last, isr=isr)
    elected = elect_offline(replicas, whole, stayed, controller_epoch)
    if elected is not None:
        elected = replace(elected, isr=tuple(b for b in isr if b in kept))
    else:
        elected = elect_offline(replicas, whole, live, controller_epoch)
    if elected is None and unclean:
        # Who was in sync lacks the least.
        elected = elect_offline(replicas, last, live, controller_epoch, unclean=True)
    if elected is not None and elected.leader in returned.lacking:
        return replace(elected, isr=(elected.leader,))
    if elected is None and (last.leader != NO_BROKER or whole.isr != last.isr):
        return replace(
            whole,
            leader=NO_BROKER,
            leader_epoch=last.leader_epoch + 1,
            controller_epoch=controller_epoch,
            partition_epoch=last.partition_epoch + 1,
        )
    return elected
