"""Subscription: which partitions are read, and how far each has come.

Pure: no I/O, no clock, no await.

    position       the next offset that poll gives
    fetch_offset   the next one to ask a broker for: ahead of it by what lies in completed fetches
    reset          a ListOffsets spec that shall give the position (a seek to an end, or by
                   auto.offset.reset); until then there is none
    recall         whether the position shall be what the group has committed, if it has
    near           the replica that the leader sent us to (KIP-392), until `near_until`, by the
                   loop's time, or until it does not serve us
    generation     rises when the position is set from outside, so that answers to fetches of
                   before are known and dropped
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from kcli.client.completed_fetch import CompletedFetch
from kserver.model import BrokerId, LeaderEpoch, Offset, TopicPartition


@dataclass(slots=True, eq=False)
class Assigned:
    """One partition that is read.

    `epoch` is the leader epoch of what was read before the position, `checked_epoch` that of the
    leader at which the position is known to exist (KIP-320); -1: not known.
    """

    partition: TopicPartition
    position: Offset | None = None
    epoch: LeaderEpoch = -1
    checked_epoch: LeaderEpoch = -1
    unchecked: bool = False
    fetch_offset: Offset = -1
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
        """Where it is fetched from."""
        if self.near is not None and self.near_until <= now:
            self.near = None
        return leader if self.near is None else self.near

    def seek(self, offset: Offset, epoch: LeaderEpoch = -1) -> None:
        self._drop()
        self.position = self.fetch_offset = offset
        self.epoch = epoch
        self.reset = None

    def seek_by(self, spec: int) -> None:
        """The position shall be what ListOffsets answers to `spec`."""
        self._drop()
        self.position = None
        self.epoch = -1
        self.reset = spec

    def _drop(self) -> None:
        self.completed_fetches.clear()
        self.generation += 1
        self.error = None
        self.not_before = 0.0
        self.unchecked = False
        self.recall = False

    def arrived(self, completed: CompletedFetch) -> None:
        self.completed_fetches.append(completed)
        self.fetch_offset = completed.end

    def is_fetchable(self, now: float, most_completed_fetches: int) -> bool:
        return (
            self.position is not None
            and not self.paused
            and not self.unchecked
            and self.error is None
            and len(self.completed_fetches) < most_completed_fetches
            and self.not_before <= now
        )

    def leader_changed(self, leader_epoch: LeaderEpoch) -> None:
        """A leader of another epoch may have a shorter log: the position is to be checked."""
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
    """The partitions in the order they were assigned."""

    def __init__(self) -> None:
        self._assigned: dict[TopicPartition, Assigned] = {}
        self._last_generation = 0
        """The highest of any so far: a partition that comes back is of yet another."""

    def __iter__(self) -> Iterator[Assigned]:
        return iter(self._assigned.values())

    def __len__(self) -> int:
        return len(self._assigned)

    def __getitem__(self, partition: TopicPartition) -> Assigned:
        return self._assigned[partition]

    def get(self, partition: TopicPartition) -> Assigned | None:
        return self._assigned.get(partition)

    def partitions(self) -> tuple[TopicPartition, ...]:
        return tuple(self._assigned)

    def topics(self) -> dict[str, None]:
        return dict.fromkeys(partition.topic for partition in self._assigned)

    def assign(self, partitions: Iterable[TopicPartition], *, recall: bool = False) -> None:
        """Exactly these from now on; those that stay keep their positions, and of the others it may
        be asked what their group has committed.
        """
        before = self._assigned
        for state in before.values():
            self._last_generation = max(self._last_generation, state.generation)
        generation = self._last_generation + 1
        self._assigned = {}
        for partition in partitions:
            kept = before.get(partition)
            self._assigned[partition] = kept or Assigned(
                partition, recall=recall, generation=generation
            )
