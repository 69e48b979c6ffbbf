"""Placement of replicas: spread evenly over racks first, and over brokers.

Pure: random numbers come in as `start` and `shift`.

First replicas are assigned round robin to the brokers, from `start`.  The others follow at a
distance that starts at `shift` and grows by one with each round, so that the partitions led by one
broker have their other replicas on different brokers:

    broker 0   p0  p5  p4  p8  p3  p7       partitions 0..9, 3 replicas, start = shift = 0;
    broker 1   p1  p6  p0  p9  p4  p8       two columns each: first, second, third replicas
    broker 2   p2  p7  p1  p5  p0  p9
    broker 3   p3  p8  p2  p6  p1  p5
    broker 4   p4  p9  p3  p7  p2  p6

With racks, the circle alternates between racks, and no rack gets a second replica of a partition
before every rack has one.  If any broker has no rack, racks are ignored. (Kafka:
org.apache.kafka.admin.AdminUtils; KIP-36.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, zip_longest

from kserver.errors import ErrorCode, KafkaError
from kserver.model import BrokerId


def place(
    racks: Mapping[BrokerId, str | None],
    partitions: int,
    replication_factor: int,
    *,
    start: int,
    shift: int,
    first_partition: int = 0,
) -> list[tuple[BrokerId, ...]]:
    """Return the replicas of `partitions` partitions, numbered from `first_partition`.

    `racks` has every live broker.  Raises INVALID_REPLICATION_FACTOR if there are too few.
    """
    assert partitions > 0
    if replication_factor <= 0:
        raise KafkaError(
            ErrorCode.invalid_replication_factor,
            f"Invalid replication factor {replication_factor}: the replication factor must be "
            "positive.",
        )
    if replication_factor > len(racks):
        raise KafkaError(
            ErrorCode.invalid_replication_factor,
            f"The target replication factor of {replication_factor} cannot be reached because "
            f"only {len(racks)} broker(s) are registered.",
        )
    circle, rack_of = alternate_racks(racks)
    placed = []
    for partition in range(first_partition, first_partition + partitions):
        if partition > 0 and partition % len(circle) == 0:
            shift += 1
        placed.append(
            _replicas(circle, rack_of, replication_factor, (partition + start) % len(circle), shift)
        )
    return placed


def alternate_racks(
    racks: Mapping[BrokerId, str | None],
) -> tuple[list[BrokerId], Mapping[BrokerId, object]]:
    """Return the brokers, alternating between racks, and the rack of each; if racks are ignored,
    each broker is its own rack."""
    if None in racks.values():
        return sorted(racks), {broker: broker for broker in racks}
    brokers_of: dict[str | None, list[BrokerId]] = {}
    for broker, rack in sorted(racks.items(), key=lambda item: (item[1] or "", item[0])):
        brokers_of.setdefault(rack, []).append(broker)
    rounds = chain.from_iterable(zip_longest(*brokers_of.values()))
    return [broker for broker in rounds if broker is not None], racks


def _replicas(
    circle: Sequence[BrokerId],
    rack_of: Mapping[BrokerId, object],
    replication_factor: int,
    first: int,
    shift: int,
) -> tuple[BrokerId, ...]:
    """Return the replicas of one partition, the first one at index `first` of the circle."""
    replicas = [circle[first]]
    used = {rack_of[circle[first]]}
    rack_count = len(set(rack_of.values()))
    step = shift * rack_count
    while len(replicas) < replication_factor:
        broker = circle[(first + 1 + step % (len(circle) - 1)) % len(circle)]
        step += 1
        rack_is_free = rack_of[broker] not in used or len(used) == rack_count
        if rack_is_free and broker not in replicas:
            replicas.append(broker)
            used.add(rack_of[broker])
    return tuple(replicas)
