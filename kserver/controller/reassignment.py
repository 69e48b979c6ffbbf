"""Reassignment of a partition from its replicas to others (KIP-455): the rules.

Pure: a partition and its target replicas go in, the next state of the partition comes out.

    state       replicas                 adding         removing         next
    at rest     its replicas             none           none             begun
    begun       target, then the others  not there yet  not in target    done once all of the target
                                                                         are in sync, or begun again
                                                                         with another target
    done        target                   none           none             at rest

A reassignment is cancelled by beginning one to the original replicas: nothing has moved yet.
(Kafka: ReplicaAssignment, KafkaController.onPartitionReassignment.)
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from kserver.controller.election import elect_for_reassignment
from kserver.controller.partitions import state_of, with_state
from kserver.errors import ErrorCode, KafkaError
from kserver.metadata import PartitionInfo
from kserver.model import NO_BROKER, BrokerId, LeaderAndIsr


def is_moving(partition: PartitionInfo) -> bool:
    return bool(partition.adding or partition.removing)


def origin(partition: PartitionInfo) -> tuple[BrokerId, ...]:
    """Return the replicas before the reassignment."""
    return tuple(b for b in partition.replicas if b not in partition.adding)


def target(partition: PartitionInfo) -> tuple[BrokerId, ...]:
    """Return the replicas after the reassignment."""
    return tuple(b for b in partition.replicas if b not in partition.removing)


def checked(
    partition: PartitionInfo,
    target_replicas: Sequence[BrokerId] | None,
    live: Collection[BrokerId],
    *,
    allow_replication_factor_change: bool = True,
) -> tuple[BrokerId, ...]:
    """Validate `target_replicas`; if None, return those before the present reassignment.

    Raises NO_REASSIGNMENT_IN_PROGRESS or INVALID_REPLICA_ASSIGNMENT, or INVALID_REPLICATION_FACTOR
    if the factor may not change.
    """
    if target_replicas is None:
        if not is_moving(partition):
            raise KafkaError(ErrorCode.no_reassignment_in_progress)
        return origin(partition)
    new = [b for b in target_replicas if b not in origin(partition)]
    away = sorted(b for b in new if b not in live)
    text = None
    if not target_replicas:
        text = "The list of replicas is empty."
    elif len(set(target_replicas)) < len(target_replicas):
        text = f"The list of replicas {list(target_replicas)} names a broker more than once."
    elif any(broker < 0 for broker in target_replicas):
        text = f"The list of replicas {list(target_replicas)} contains a negative broker id."
    elif away:
        text = f"Broker {away[0]}, the target of a replica, is not online."
    if text is not None:
        raise KafkaError(ErrorCode.invalid_replica_assignment, text)
    factor = len(target(partition))
    if len(target_replicas) != factor and not allow_replication_factor_change:
        text = f"The replication factor would change from {factor} to {len(target_replicas)}."
        raise KafkaError(ErrorCode.invalid_replication_factor, text)
    return tuple(target_replicas)


def begun(
    partition: PartitionInfo,
    target_replicas: Sequence[BrokerId],
    online: Collection[BrokerId],
    controller_epoch: int,
) -> tuple[PartitionInfo, LeaderAndIsr]:
    """Begin a reassignment, in a new leader epoch; in it the leader adds the new replicas to the
    ISR once they are in sync.

    Raises INVALID_REPLICA_ASSIGNMENT if this would drop all in-sync replicas.
    """
    before = origin(partition)
    replicas = tuple(dict.fromkeys((*target_replicas, *before)))
    last = state_of(partition, controller_epoch)
    # Replicas that an earlier plan was adding, and that are not in this one, are dropped.
    isr = tuple(b for b in last.isr if b in replicas)
    if not isr:
        text = f"The new replicas include none of the in-sync replicas {list(last.isr)}."
        raise KafkaError(ErrorCode.invalid_replica_assignment, text)
    last = replace(last, isr=isr)
    elected = None
    if last.leader not in replicas:
        elected = elect_for_reassignment(replicas, last, online, controller_epoch)
        last = replace(last, leader=NO_BROKER)
    state = elected or replace(
        last, leader_epoch=last.leader_epoch + 1, partition_epoch=last.partition_epoch + 1
    )
    placed = replace(
        partition,
        replicas=replicas,
        adding=tuple(b for b in replicas if b not in before),
        removing=tuple(b for b in replicas if b not in target_replicas),
    )
    return with_state(placed, state), state


def done(
    partition: PartitionInfo, online: Collection[BrokerId], controller_epoch: int
) -> tuple[PartitionInfo, LeaderAndIsr] | None:
    """End a reassignment; None while a target replica is out of sync, or none of them may lead."""
    target_replicas = target(partition)
    if not set(target_replicas) <= set(partition.isr):
        return None
    last = state_of(partition, controller_epoch)
    if partition.leader in target_replicas and partition.leader in online:
        state = replace(
            last, leader_epoch=last.leader_epoch + 1, partition_epoch=last.partition_epoch + 1
        )
    else:
        elected = elect_for_reassignment(target_replicas, last, online, controller_epoch)
        if elected is None:
            return None
        state = elected
    state = replace(state, isr=tuple(b for b in state.isr if b in target_replicas))
    placed = replace(partition, replicas=target_replicas, adding=(), removing=())
    return with_state(placed, state), state
