"""The controller's knowledge of the cluster: live brokers, topics, and leaders of partitions.

Pure: values, and the next state of a partition after brokers registered or disappeared.

    its leader        in sync             next
    live              all live            unchanged
    live              some are gone       the others, in a new leader epoch
    gone, returned    another broker      the first of these leads (election.py)
    returned          none but itself     it leads again, in a new leader epoch
    gone              none                no leader; an unclean election if the topic allows it

A broker has returned if it registered again after the state was written, however quickly, so it
leads, or is in sync, only in a new leader epoch.  A returned broker that

    has all its records    stays in sync: only its process stopped
    may lack records       leaves the ISR before anything else, as its machine failed.  It leaves
                           also if no other in-sync replica is live: those may have the records
                           that it lacks, and are awaited unless the topic allows an unclean
                           election.  If all of the ISR may lack records, the first leads, alone
                           in sync
    does not report it,    leaves the ISR if another broker stayed in it
    as Apache Kafka's

A leader may appear live because its registration remains although its process is gone.  It must
not be left alone in sync while other live replicas have all records. (Kafka: ControllerContext,
PartitionStateMachine, ReplicaStateMachine; KIP-380, KIP-966.)
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
    """Epoch of its registration: the id of the transaction that created its znode."""
    may_lack_records: bool | None = None
    """As it reported when it registered; None if it does not report it."""
    features: Mapping[str, int] = field(default_factory=dict)
    """Highest level that it supports, by feature."""


@dataclass(slots=True)
class ControllerContext:
    epoch: int = 0
    brokers: dict[BrokerId, LiveBroker] = field(default_factory=dict)
    topics: dict[str, TopicInfo] = field(default_factory=dict)
    """Topics by name, without config overrides, which each broker reads itself."""
    topic_names: dict[UUID, str] = field(default_factory=dict)
    deletions: dict[str, TopicDeletion] = field(default_factory=dict)
    """Topics being deleted, by name; they stay in `topics` until they are removed."""
    offline: dict[BrokerId, set[TopicPartition]] = field(default_factory=dict)
    """Replicas of live brokers that they cannot serve because of a failed disk."""
    moving: set[TopicPartition] = field(default_factory=set)
    """Partitions being reassigned (KIP-455)."""
    shutting_down: set[BrokerId] = field(default_factory=set)
    """Live brokers in a controlled shutdown, which join no ISR any more."""
    is_active: bool = False
    """Whether this broker is the controller, as far as it knows."""

    def topic_by_id(self, topic_id: UUID) -> TopicInfo | None:
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics[name]

    def set_topics(self, topics: Iterable[TopicInfo]) -> None:
        """Replace all topics."""
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
        """Return whether the broker's replica may lead or be in sync."""
        return broker in self.brokers and (topic, partition) not in self.offline.get(broker, ())

    def online(self, topic: str, partition: PartitionInfo) -> list[BrokerId]:
        """Return its replicas that may lead or be in sync."""
        return [b for b in partition.replicas if self.is_online(b, topic, partition.partition)]

    def partitions(self) -> Iterator[PartitionInfo]:
        """Yield the partitions of topics that are not being deleted."""
        for topic in self.topics.values():
            if topic.name not in self.deletions:
                yield from topic.partitions

    def check(self) -> None:
        """Assert the invariants that hold between operations."""
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
    is_kserver = registered.incarnation_id != ""
    lacks = registered.may_lack_records if is_kserver else None
    return LiveBroker(info, epoch, lacks, registered.features)


class Returned(NamedTuple):
    """Brokers that have returned, classified by whether they lack records."""

    all: frozenset[BrokerId] = frozenset()
    whole: frozenset[BrokerId] = frozenset()
    lacking: frozenset[BrokerId] = frozenset()

    @classmethod
    def of(cls, brokers: Mapping[BrokerId, LiveBroker], returned: Iterable[BrokerId]) -> Returned:
        flags = {broker: brokers[broker].may_lack_records for broker in returned}
        return cls(
            frozenset(flags),
            frozenset(broker for broker, lacks in flags.items() if lacks is False),
            frozenset(broker for broker, lacks in flags.items() if lacks),
        )


def returned_since(brokers: Mapping[BrokerId, LiveBroker], zxid: int) -> Returned:
    """Return the brokers that registered after this transaction."""
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
    """Return the next state by the tables above; None if it is unchanged."""
    if last is None:
        return elect_offline(replicas, None, live, controller_epoch)
    # Brokers that did not restart, and those of all live ones that can stay in sync.
    stayed = [broker for broker in live if broker not in returned.all]
    staying = [broker for broker in live if broker not in returned.all or broker in returned.whole]
    # The leader did not restart, so only the ISR can change.
    if last.leader in stayed:
        isr = tuple(broker for broker in last.isr if broker in staying)
        if isr == last.isr and returned.all.isdisjoint(isr):
            return None
        return replace(
            last,
            leader_epoch=last.leader_epoch + 1,
            isr=isr,
            controller_epoch=controller_epoch,
            partition_epoch=last.partition_epoch + 1,
        )
    # Records may be missing on brokers whose machine failed: these are the last choice.
    isr = tuple(b for b in last.isr if b not in returned.lacking) or last.isr
    whole = replace(last, isr=isr)
    elected = elect_offline(replicas, whole, stayed, controller_epoch)
    if elected is not None:
        elected = replace(elected, isr=tuple(b for b in isr if b in staying))
    else:
        elected = elect_offline(replicas, whole, live, controller_epoch)
    if elected is None and unclean:
        # An in-sync replica lacks the fewest records.
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
