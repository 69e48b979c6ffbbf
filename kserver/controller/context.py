"""What the controller knows of the cluster: live brokers, topics, who leads their partitions.

Pure: values, and what follows for a partition when brokers come and go.

    its leader        in sync             next
    lives             live                as it is
    lives             some are gone       the others, in a new leader epoch
    gone, returned    somebody else       the first of these leads (election.py)
    returned          nobody else         it leads again, in a new leader epoch
    gone              nobody              nobody leads; an unclean election where the topic allows

A broker has returned that has registered anew since the state was written, however quickly: what
its log had not on disk may be gone, so it leads, or is in sync, in a new epoch only.
(Kafka: ControllerContext, PartitionStateMachine, ReplicaStateMachine; KIP-380.)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kserver import znodes
from kserver.controller.election import elect_offline
from kserver.metadata import BrokerInfo, PartitionInfo, TopicInfo
from kserver.model import NO_BROKER, BrokerId, LeaderAndIsr


@dataclass(frozen=True, slots=True)
class LiveBroker:
    info: BrokerInfo
    epoch: int
    """Of its registration: the transaction that made its znode."""


@dataclass(slots=True)
class ControllerContext:
    epoch: int = 0
    brokers: dict[BrokerId, LiveBroker] = field(default_factory=dict)
    topics: dict[str, TopicInfo] = field(default_factory=dict)
    """Without their overrides, which every broker reads for itself."""

    @property
    def racks(self) -> dict[BrokerId, str | None]:
        return {id_: broker.info.rack for id_, broker in self.brokers.items()}

    def set_partitions(self, topic: str, changed: Iterable[PartitionInfo]) -> None:
        partitions = list(self.topics[topic].partitions)
        for partition in changed:
            partitions[partition.partition] = partition
        self.topics[topic] = replace(self.topics[topic], partitions=tuple(partitions))


def live_broker(registered: znodes.BrokerRegistration, epoch: int) -> LiveBroker:
    endpoints = {endpoint.listener: endpoint for endpoint in registered.endpoints}
    return LiveBroker(BrokerInfo(registered.id, endpoints, registered.rack), epoch)


def returned_since(brokers: Mapping[BrokerId, LiveBroker], zxid: int) -> set[BrokerId]:
    """Those that have registered after this transaction."""
    return {id_ for id_, broker in brokers.items() if broker.epoch > zxid}


def next_state(
    replicas: Sequence[BrokerId],
    last: LeaderAndIsr | None,
    live: Collection[BrokerId],
    returned: Collection[BrokerId],
    controller_epoch: int,
    *,
    unclean: bool,
) -> LeaderAndIsr | None:
    """What the table says; None where the state stays as it is."""
    if last is None:
        return elect_offline(replicas, None, live, controller_epoch)
    stayed = [broker for broker in live if broker not in returned]
    if last.leader in stayed:
        isr = tuple(broker for broker in last.isr if broker in stayed)
        if isr == last.isr:
            return None
        return replace(
            last,
            leader_epoch=last.leader_epoch + 1,
            isr=isr,
            controller_epoch=controller_epoch,
            partition_epoch=last.partition_epoch + 1,
        )
    elected = elect_offline(replicas, last, stayed, controller_epoch) or elect_offline(
        replicas, last, live, controller_epoch, unclean=unclean
    )
    if elected is None and last.leader != NO_BROKER:
        return replace(
            last,
            leader=NO_BROKER,
            leader_epoch=last.leader_epoch + 1,
            controller_epoch=controller_epoch,
            partition_epoch=last.partition_epoch + 1,
        )
    return elected
