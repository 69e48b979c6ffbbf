"""Throttles of moves: the throttled replicas, and the rate of each broker (KIP-73).

Pure: moves in, configurations out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kcli.client.admin.descriptions import (
    ConfigChange,
    ConfigOp,
    ConfigResource,
    Reassignment,
    ResourceType,
)
from kcli.reassignment.plans import Assignment
from kserver.model import BrokerId, TopicPartition

LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
LOG_DIRS_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"

Changes = dict[ConfigResource, list[ConfigChange]]


class PartitionMove(NamedTuple):
    """The brokers that have the partition, and those that are to fetch it from them."""

    sources: frozenset[BrokerId]
    destinations: frozenset[BrokerId]


def moves(
    reassignments: Mapping[TopicPartition, Reassignment], targets: Assignment, current: Assignment
) -> dict[TopicPartition, PartitionMove]:
    """Return the moves of all partitions that are being reassigned, or will be; `current` has the
    replicas of `targets`.

    The sources of a partition that is being reassigned already are its replicas without the added
    ones.
    """
    result = {
        partition: PartitionMove(_origin(reassignment), frozenset(reassignment.adding))
        for partition, reassignment in reassignments.items()
    }
    for partition, replicas in targets.items():
        moving = result.get(partition)
        sources = moving.sources if moving is not None else frozenset(current[partition])
        result[partition] = PartitionMove(sources, frozenset(replicas) - sources)
    return result


def topic_throttles(moving: Mapping[TopicPartition, PartitionMove]) -> Changes:
    """Throttle the sources of each partition as leaders, the destinations as followers."""
    return {
        (ResourceType.TOPIC, topic): [
            ConfigChange(key, ConfigOp.SET, ",".join(sorted(replicas)))
            for key, replicas in (
                (LEADER_REPLICAS, _replicas(moving, topic, "sources")),
                (FOLLOWER_REPLICAS, _replicas(moving, topic, "destinations")),
            )
        ]
        for topic in sorted({partition.topic for partition in moving})
    }


def broker_throttles(moving: Mapping[TopicPartition, PartitionMove], rate: int) -> Changes:
    """Set the rate, in bytes per second, on every broker that takes part."""
    brokers = {broker for move in moving.values() for side in move for broker in side}
    return _of_brokers(brokers, {LEADER_RATE: rate, FOLLOWER_RATE: rate})


def log_dirs_throttle(brokers: Iterable[BrokerId], rate: int) -> Changes:
    """Set the rate of moves between directories, in bytes per second."""
    return _of_brokers(brokers, {LOG_DIRS_RATE: rate})


def without_broker_throttles(brokers: Iterable[BrokerId]) -> Changes:
    return _of_brokers(brokers, dict.fromkeys((LEADER_RATE, FOLLOWER_RATE, LOG_DIRS_RATE)))


def without_topic_throttles(topics: Iterable[str]) -> Changes:
    return {
        (ResourceType.TOPIC, topic): [
            ConfigChange(key, ConfigOp.DELETE) for key in (LEADER_REPLICAS, FOLLOWER_REPLICAS)
        ]
        for topic in topics
    }


def _origin(reassignment: Reassignment) -> frozenset[BrokerId]:
    return frozenset(reassignment.replicas) - frozenset(reassignment.adding)


def _replicas(
    moving: Mapping[TopicPartition, PartitionMove], topic: str, side: str
) -> Iterable[str]:
    return (
        f"{partition.partition}:{broker}"
        for partition, move in moving.items()
        if partition.topic == topic
        for broker in getattr(move, side)
    )


def _of_brokers(brokers: Iterable[BrokerId], rates: Mapping[str, int | None]) -> Changes:
    """Return changes of brokers' configs; None deletes a rate."""
    return {
        (ResourceType.BROKER, str(broker)): [
            ConfigChange(key, ConfigOp.DELETE)
            if rate is None
            else ConfigChange(key, ConfigOp.SET, str(rate))
            for key, rate in rates.items()
        ]
        for broker in sorted(brokers)
    }
