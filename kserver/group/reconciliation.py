"""Reconciliation of one member: its steps from its current to its target assignment (KIP-848).

    state                   waits for                         then
    STABLE                  a newer target                    revokes partitions, if any
    UNREVOKED_PARTITIONS    the member to revoke partitions   gets the free partitions of its target
    UNRELEASED_PARTITIONS   other members to release theirs   gets them as they become free

A member keeps its epoch until it has revoked its partitions; then it advances to the target's
epoch, whether or not all of the target's partitions are free yet.  So each partition has one owner
at any time: it is free only if no member has it, assigned or being revoked.

(Kafka: CurrentAssignmentBuilder.)

Pure: values only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

from kserver.errors import ErrorCode, KafkaError
from kserver.group.consumer_events import (
    NOTHING_OWNED,
    Assignment,
    Epochs,
    MemberState,
    Partitions,
    TopicIdPartition,
)


class Goal(NamedTuple):
    epoch: int
    """Epoch of the target assignment."""
    target: Partitions
    topics: frozenset[UUID] | None = None
    """Topics of the member's subscription if it is newer than the target assignment, else None."""


def next_assignment(
    now: Assignment,
    goal: Goal,
    owned: Partitions | None,
    is_free: Callable[[TopicIdPartition], bool],
) -> Assignment:
    """Return the assignment after the next step, or the same one.  `owned` are the partitions that
    the member reports, or None; `is_free` is whether no other member owns a partition.  Raises
    KafkaError with FENCED_MEMBER_EPOCH."""
    match now.state:
        case MemberState.STABLE:
            if now.epoch != goal.epoch:
                return _toward(now, goal, owned, is_free)
            return _without_unsubscribed(now, goal, owned)
        case MemberState.UNREVOKED_PARTITIONS:
            if _has_any(owned, now.revoking):
                return _without_unsubscribed(now, goal, owned)
            return _toward(now, goal, owned, is_free)
        case MemberState.UNRELEASED_PARTITIONS:
            return _toward(now, goal, owned, is_free)
        case MemberState.UNKNOWN:
            # A newer broker wrote an unknown state.
            if owned is None or owned:
                raise KafkaError(
                    ErrorCode.fenced_member_epoch,
                    "The consumer group member is in a unknown state. "
                    "The member must abandon all its partitions and rejoin.",
                )
            return _toward(now, goal, owned, is_free)


def _toward(
    now: Assignment,
    goal: Goal,
    owned: Partitions | None,
    is_free: Callable[[TopicIdPartition], bool],
) -> Assignment:
    target = goal.target
    if goal.topics is not None:
        target = frozenset(partition for partition in target if partition.topic_id in goal.topics)
    still_assigned = {
        partition: epoch for partition, epoch in now.assigned.items() if partition in target
    }
    lost = {
        partition: epoch for partition, epoch in now.assigned.items() if partition not in target
    }
    if lost and _has_any(owned, lost):
        return _moved(now, now.epoch, MemberState.UNREVOKED_PARTITIONS, still_assigned, lost)
    missing = target - still_assigned.keys()
    free = sorted(partition for partition in missing if is_free(partition))
    state = MemberState.STABLE if len(free) == len(missing) else MemberState.UNRELEASED_PARTITIONS
    return _moved(
        now, goal.epoch, state, still_assigned | dict.fromkeys(free, goal.epoch), NOTHING_OWNED
    )


def _without_unsubscribed(now: Assignment, goal: Goal, owned: Partitions | None) -> Assignment:
    """Remove partitions of topics that the member no longer subscribes to, without waiting for a
    new target."""
    if goal.topics is None:
        return now
    lost = {
        partition: epoch
        for partition, epoch in now.assigned.items()
        if partition.topic_id not in goal.topics
    }
    if not lost:
        return now
    still_assigned = {
        partition: epoch for partition, epoch in now.assigned.items() if partition not in lost
    }
    revoking = {**now.revoking, **lost}
    if _has_any(owned, revoking):
        return _moved(now, now.epoch, MemberState.UNREVOKED_PARTITIONS, still_assigned, revoking)
    return _moved(now, now.epoch, now.state, still_assigned, now.revoking)


def _has_any(owned: Partitions | None, partitions: Epochs) -> bool:
    """Return whether the member may still own any of these."""
    return owned is None or not owned.isdisjoint(partitions)


def _moved(
    now: Assignment, epoch: int, state: MemberState, assigned: Epochs, revoking: Epochs
) -> Assignment:
    previous = now.previous_epoch if epoch == now.epoch else now.epoch
    return replace(
        now,
        epoch=epoch,
        previous_epoch=previous,
        state=state,
        assigned=MappingProxyType(dict(assigned)),
        revoking=MappingProxyType(dict(revoking)),
    )
