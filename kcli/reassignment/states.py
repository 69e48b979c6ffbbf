"""The progress of a plan's moves, and the lines of Kafka's tool about each.

Pure: descriptions in, states and lines out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kcli.client.admin.descriptions import LogDirDescription, Reassignment
from kcli.reassignment.plans import TopicPartitionReplica
from kserver.model import BrokerId, TopicPartition


class ReassignmentState(NamedTuple):
    """State of one partition; `replicas` is empty if it does not exist."""

    replicas: tuple[BrokerId, ...]
    target: tuple[BrokerId, ...]
    is_active: bool

    @property
    def is_completed(self) -> bool:
        return not self.is_active and self.replicas == self.target

    def line(self, partition: TopicPartition) -> str:
        if self.is_active:
            return f"Reassignment of partition {partition} is still in progress."
        if self.is_completed:
            return f"Reassignment of partition {partition} is completed."
        return (
            f"There is no active reassignment of partition {partition}, but replica set is "
            f"{joined(self.replicas)} rather than {joined(self.target)}."
        )


class LogDirMove(NamedTuple):
    """State of one replica: its directory (`current`) and the one that it is moving to (`future`,
    None if it is not moving), which may differ from the `target`.
    """

    target: str
    broker_is_there: bool
    current: str | None = None
    future: str | None = None

    @property
    def is_active(self) -> bool:
        return self.current is not None and self.future is not None

    @property
    def is_done(self) -> bool:
        """Whether nothing is under way; it may be in another directory than the target."""
        return self.current is not None and self.future is None

    def line(self, replica: TopicPartitionReplica) -> str:
        where = f"Partition {replica.partition} on broker {replica.broker} is"
        place = "found in any live log"
        if not self.broker_is_there:
            return (
                f"Partition {replica.partition} cannot be {place} directory on broker "
                f"{replica.broker}."
            )
        if self.current is None:
            return (
                f"Partition {replica.partition} is not {place} dir on broker {replica.broker}. "
                "There is likely an offline log directory on the broker."
            )
        if self.future == self.target:
            return f"Reassignment of replica {replica} is still in progress."
        if self.future is not None:
            return f"{where} being moved to log dir {self.future} instead of {self.target}."
        if self.current == self.target:
            return f"Reassignment of replica {replica} completed successfully."
        return f"{where} not being moved from log dir {self.current} to {self.target}."


def partition_states(
    targets: Mapping[TopicPartition, tuple[BrokerId, ...]],
    reassignments: Mapping[TopicPartition, Reassignment],
    current: Mapping[TopicPartition, tuple[BrokerId, ...]],
) -> dict[TopicPartition, ReassignmentState]:
    """Return states by topic and partition; `current` has the replicas of existing ones."""
    states = {}
    for partition, target in sorted(targets.items()):
        moving = reassignments.get(partition)
        replicas = current.get(partition, ()) if moving is None else tuple(moving.replicas)
        states[partition] = ReassignmentState(replicas, target, moving is not None)
    return states


def log_dir_moves(
    targets: Mapping[TopicPartitionReplica, str],
    described: Mapping[BrokerId, Sequence[LogDirDescription]],
) -> dict[TopicPartitionReplica, LogDirMove]:
    """Return states by broker and partition; `described` has the existing brokers."""
    current, future = places(described, is_future=False), places(described, is_future=True)
    return {
        replica: LogDirMove(
            target, replica.broker in described, current.get(replica), future.get(replica)
        )
        for replica, target in sorted(targets.items())
    }


def places(
    described: Mapping[BrokerId, Sequence[LogDirDescription]], *, is_future: bool
) -> dict[TopicPartitionReplica, str]:
    """Return the directory that each replica is in, or is moving to."""
    return {
        TopicPartitionReplica(broker, replica.partition): directory.path
        for broker, directories in described.items()
        for directory in directories
        for replica in directory.replicas
        if directory.error is None and replica.is_future == is_future
    }


def reassignment_line(partition: TopicPartition, reassignment: Reassignment) -> str:
    adding = f" adding: {joined(reassignment.adding)}." if reassignment.adding else ""
    removing = f" removing: {joined(reassignment.removing)}." if reassignment.removing else ""
    return f"{partition}: replicas: {joined(reassignment.replicas)}.{adding}{removing}"


def joined(items: Iterable[object]) -> str:
    return ",".join(map(str, items))
