"""Subscription: the assigned partitions and their positions.

Pure: no I/O, no clock, no await.

    position       the next offset that poll returns
    fetch_offset   the next offset to fetch: ahead of position by the completed fetches
    reset          a ListOffsets spec to get the position from (a seek to an end, or by
                   auto.offset.reset); until then there is none
    recall         whether to start from the group's committed offset, if there is one
    near           the replica that the leader named to fetch from (KIP-392), until `near_until`,
                   by the loop's time, or until it fails
    generation     incremented when the position is set from outside, so that responses to earlier
                   fetches are recognized and dropped
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from kcli.client.consumer.completed_fetch import CompletedFetch
from kserver.model import BrokerId, LeaderEpoch, Offset, TopicPartition


@dataclass(slots=True, eq=False)
class TopicPartitionState:
    """State of one assigned partition.

    `epoch` is the leader epoch of the record before the position, `checked_epoch` that of the
    leader at which the position was validated (KIP-320); -1: unknown. `out_of_range_since` is
    the last Metadata request before the leader first reported the position out of range.
    """

    partition: TopicPartition
    position: Offset | None = None
    epoch: LeaderEpoch = -1
    checked_epoch: LeaderEpoch = -1
    unchecked: bool = False
    fetch_offset: Offset = -1
    out_of_range_since: int | None = None
    reset: int | None = None
    recall: bool = False
    generation: int = 0
    paused: bool = False
    not_before: float = 0.0
    completed_fetches: deque[CompletedFetch] = field(default_factory=deque)
    error: Exception | None = None
    high_watermark: Offset = -1
    last_stable_offset: Offset = -1
    log_start_offset: Offset = -1
    near: BrokerId | None = None
    near_until: float = 0.0

    def source(self, leader: BrokerId, now: float) -> BrokerId:
        """Return the broker to fetch from."""
        if self.near is not None and self.near_until <= now:
            self.near = None
        return leader if self.near is None else self.near

    def seek(self, offset: Offset, epoch: LeaderEpoch = -1) -> None:
        self._drop()
        self.position = self.fetch_offset = offset
        self.epoch = epoch
        self.reset = None

    def seek_by(self, spec: int) -> None:
        """Look the position up by ListOffsets with `spec`."""
        self._drop()
        self.position = None
        self.epoch = -1
        self.reset = spec

    def _drop(self) -> None:
        self.completed_fetches.clear()
        self.generation += 1
        self.error = None
        self.not_before = 0.0
        self.out_of_range_since = None
        self.unchecked = False
        self.recall = False

    def add_fetch(self, completed: CompletedFetch) -> None:
        self.completed_fetches.append(completed)
        self.fetch_offset = completed.end

    def is_fetchable(self, now: float, max_completed_fetches: int) -> bool:
        return (
            self.position is not None
            and not self.paused
            and not self.unchecked
            and self.error is None
            and len(self.completed_fetches) < max_completed_fetches
            and self.not_before <= now
        )

    def on_leader_change(self, leader_epoch: LeaderEpoch) -> None:
        """Note the leader epoch. A new leader may have a shorter log, so the position has to be
        validated.
        """
        if leader_epoch <= self.checked_epoch:
            return
        self.near = None
        if self.epoch >= 0 and self.checked_epoch >= 0 and self.position is not None:
            self._drop()
            self.fetch_offset = self.position
            self.unchecked = True
        else:
            self.checked_epoch = leader_epoch


class SubscriptionState:
    """The assigned partitions, in order of assignment."""

    def __init__(self) -> None:
        self._assigned: dict[TopicPartition, TopicPartitionState] = {}
        self._last_generation = 0
        """Highest generation so far: a partition that is assigned again gets a higher one."""

    def __iter__(self) -> Iterator[TopicPartitionState]:
        return iter(self._assigned.values())

    def __len__(self) -> int:
        return len(self._assigned)

    def __getitem__(self, partition: TopicPartition) -> TopicPartitionState:
        return self._assigned[partition]

    def get(self, partition: TopicPartition) -> TopicPartitionState | None:
        return self._assigned.get(partition)

    def partitions(self) -> tuple[TopicPartition, ...]:
        return tuple(self._assigned)

    def topics(self) -> dict[str, None]:
        return dict.fromkeys(partition.topic for partition in self._assigned)

    def assign(self, partitions: Iterable[TopicPartition], *, recall: bool = False) -> None:
        """Replace the assignment. Partitions assigned before keep their positions; with `recall`
        the others start from the group's committed offset.
        """
        before = self._assigned
        for state in before.values():
            self._last_generation = max(self._last_generation, state.generation)
        generation = self._last_generation + 1
        self._assigned = {}
        for partition in partitions:
            present = before.get(partition)
            self._assigned[partition] = present or TopicPartitionState(
                partition, recall=recall, generation=generation
            )
