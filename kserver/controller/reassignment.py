"""A partition on its way from some replicas to others (KIP-455): the rules.

Pure: a partition and where it is to be go in, the partition as it is next comes out.

    state       replicas                 adding         removing         next
    at rest     where it is              none           none             begun
    begun       target, then the others  not there yet  not in target    done once all of the target
                                                                         are in sync; or begun anew,
                                                                         with another target
    done        target                   none           none             at rest

What is begun with the replicas of before as its target is given up: nothing has moved yet.
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
    """The replicas that it had before it was begun."""
    return tuple(b for b in partition.replicas if b not in partition.adding)


def target(partition: PartitionInfo) -> tuple[BrokerId, ...]:
    """The replicas that it is to have."""
    return tuple(b for b in partition.replicas if b not in partition.removing)


def checked(
    partition: PartitionInfo,
    wanted: Sequence[BrokerId] | None,
    live: Collection[BrokerId],
    *,
    allow_replication_factor_change: bool = True,
) -> tuple[BrokerId, ...]:
    """The replicas that are `wanted`, or with None those of before what is under way.

    NO_REASSIGNMENT_IN_PROGRESS, INVALID_REPLICA_ASSIGNMENT; INVALID_REPLICATION_FACTOR where it may
    not change, though a partition can always be given its replicas of before.
    """
    if wanted is None:
        if not is_moving(partition):
            raise KafkaError(ErrorCode.no_reassignment_in_progress)
        return origin(partition)
    new = [b for b in wanted if b not in origin(partition)]
    away = sorted(b for b in new if b not in live)
    text = None
    if not wanted:
        text = "The list of replicas is empty."
    elif len(set(wanted)) < len(wanted):
        text = f"The list of replicas {list(wanted)} names a broker more than once."
    elif any(broker < 0 for broker in wanted):
        text = f"The list of replicas {list(wanted)} contains a negative broker id."
    elif away:
        text = f"Broker {away[0]}, the target of a replica, is not online."
    if text is not None:
        raise KafkaError(ErrorCode.invalid_replica_assignment, text)
    factor = len(target(partition))
    if len(wanted) != factor and not allow_replication_factor_change:
        text = f"The replication factor would change from {factor} to {len(wanted)}."
        raise KafkaError(ErrorCode.invalid_replication_factor, text)
    return tuple(wanted)


def begun(
    partition: PartitionInfo,
    wanted: Sequence[BrokerId],
    online: Collection[BrokerId],
    controller_epoch: int,
) -> tuple[PartitionInfo, LeaderAndIsr]:
    """In a new leader epoch, in which the leader takes those into the ISR that are added.

    INVALID_REPLICA_ASSIGNMENT where this would drop all that are in sync.
    """
    before = origin(partition)
    replicas = tuple(dict.fromkeys((*wanted, *before)))
    last = state_of(partition, controller_epoch)
    # Whoever was on the way by an earlier plan, and is named no more, is dropped.
    kept = tuple(b for b in last.isr if b in replicas)
    if not kept:
        text = f"The new replicas include none of the in-sync replicas {list(last.isr)}."
        raise KafkaError(ErrorCode.invalid_replica_assignment, text)
    last = replace(last, isr=kept)
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
        removing=tuple(b for b in replicas if b not in wanted),
    )
    return with_state(placed, state), state


def done(
    partition: PartitionInfo, online: Collection[BrokerId], controller_epoch: int
) -> tuple[PartitionInfo, LeaderAndIsr] | None:
    """None as long as one of the target is not in sync, or none of them may lead."""
    wanted = target(partition)
    if not set(wanted) <= set(partition.isr):
        return None
    last = state_of(partition, controller_epoch)
    if partition.leader in wanted and partition.leader in online:
        state = replace(
            last, leader_epoch=last.leader_epoch + 1, partition_epoch=last.partition_epoch + 1
        )
    else:
        elected = elect_for_reassignment(wanted, last, online, controller_epoch)
        if elected is None:
            return None
        state = elected
    state = replace(state, isr=tuple(b for b in state.isr if b in wanted))
    placed = replace(partition, replicas=wanted, adding=(), removing=())
    return with_state(placed, state), state
