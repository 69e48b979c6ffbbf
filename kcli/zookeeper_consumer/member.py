"""A member of a group that balances itself through ZooKeeper: its states, and its progress.

Pure: no I/O, no clock, no await.

    state        action                                                      next state
    OUTSIDE      not registered in a session: owns nothing                   RELEASING
    RELEASING    stops reading, writes offsets, deletes its owner nodes      CLAIMING
    CLAIMING     reads the group, claims its range: all of it or nothing     OWNING, WAITING
    WAITING      another member has not released a claimed partition         RELEASING
    OWNING       reads its range, until members or partitions change         RELEASING

An expired session leads from each of them to OUTSIDE. A lost response while claiming leads back to
RELEASING, where the member deletes the owner nodes that it may have created.

Every member decides alone, on its own view. Two members cannot own one partition, not because their
views are equal, but because an owner's znode can be created only once: a member with an outdated
view conflicts with another, and starts over.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kcli.client.errors import ClientError
from kcli.patterns.java_patterns import compiled
from kserver.model import Offset, TopicPartition
from kserver.znodes import STATIC, MemberRegistration


class PaperState(enum.Enum):
    OUTSIDE = enum.auto()
    RELEASING = enum.auto()
    CLAIMING = enum.auto()
    WAITING = enum.auto()
    OWNING = enum.auto()


VALID_PREVIOUS_STATES = {
    PaperState.OUTSIDE: set(PaperState),
    PaperState.RELEASING: {
        PaperState.OUTSIDE,
        PaperState.CLAIMING,
        PaperState.WAITING,
        PaperState.OWNING,
    },
    PaperState.CLAIMING: {PaperState.RELEASING},
    PaperState.WAITING: {PaperState.CLAIMING},
    PaperState.OWNING: {PaperState.CLAIMING},
}


class RebalanceFailed(ClientError):
    """Another member kept a partition for longer than all retries took."""


@dataclass(frozen=True, slots=True)
class GroupView:
    """The state in ZooKeeper that a rebalance depends on."""

    threads: Mapping[str, tuple[str, ...]]
    """The group's threads that read each topic, sorted."""
    partitions: Mapping[str, tuple[int, ...]]
    """The partitions of each topic, sorted; empty if it does not exist."""
    has_brokers: bool = True


def share(partitions: Sequence[int], threads: Sequence[str], thread: str) -> Sequence[int]:
    """Return the range of one thread: as many partitions as any other, and one more for the first
    threads if they do not divide evenly (Kafka: ZookeeperConsumerConnector, RangeAssignor).
    """
    each, more = divmod(len(partitions), len(threads))
    at = threads.index(thread)
    start = at * each + min(at, more)
    return partitions[start : start + each + (at < more)]


def threads(member: str, registration: MemberRegistration, topic: str) -> list[str]:
    """Return the member's threads that read the topic."""
    count = sum(
        n
        for name, n in registration.subscription.items()
        if _reads(registration.pattern, name, topic)
    )
    return [f"{member}-{n}" for n in range(count)]


def _reads(pattern: str, name: str, topic: str) -> bool:
    """Whether a subscription includes the topic. Kafka's old console consumer names even a single
    topic by a white list.
    """
    if pattern == STATIC:
        return name == topic
    matches = compiled(name.replace(",", "|")).fullmatch(topic) is not None
    return matches if pattern == "white_list" else not matches


@dataclass(slots=True)
class PaperMember:
    thread: str
    """Its one thread: the member's id with `-0`, as in the owner nodes."""
    max_retries: int
    state: PaperState = PaperState.OUTSIDE
    session: int = 0
    """Incremented when a session expires: earlier work is then void."""
    claims: tuple[TopicPartition, ...] = ()
    """Partitions whose owner nodes may be this member's, because it has tried to create them."""
    view: GroupView | None = None
    """The view that the last claim was based on."""
    waits: int = 0
    """Number of consecutive waits that timed out."""

    @property
    def owned(self) -> tuple[TopicPartition, ...]:
        """The partitions that it reads."""
        return self.claims if self.state is PaperState.OWNING else ()

    def registered(self) -> None:
        self._go(PaperState.RELEASING)

    def released(self) -> None:
        """Note that this member has no owner nodes."""
        self.claims = ()
        self._go(PaperState.CLAIMING)

    def claim(self, view: GroupView) -> tuple[TopicPartition, ...] | None:
        """Return the partitions to claim; None if it has to register first."""
        assert self.state is PaperState.CLAIMING
        if any(self.thread not in threads for threads in view.threads.values()):
            self._go(PaperState.OUTSIDE)
            return None
        self.view = view
        self.claims = tuple(
            TopicPartition(topic, partition)
            for topic, threads in sorted(view.threads.items())
            for partition in share(view.partitions[topic], threads, self.thread)
            if view.has_brokers
        )
        return self.claims

    def claimed(self) -> None:
        """Note that all partitions were claimed and are read now."""
        self.waits = 0
        self._go(PaperState.OWNING)

    def refused(self) -> None:
        """Note that the claim failed: another member owns a partition, or parent nodes are
        missing.
        """
        self.claims = ()
        self._go(PaperState.WAITING)

    def again(self, *, in_vain: bool) -> None:
        """End a wait; `in_vain` if it timed out. Raises RebalanceFailed."""
        self.waits = self.waits + 1 if in_vain else 0
        if self.waits > self.max_retries:
            raise RebalanceFailed(
                f"{self.thread} can't rebalance after {self.max_retries} retries: another "
                "consumer of the group still owns the partitions"
            )
        self._go(PaperState.RELEASING)

    def looked(self, view: GroupView) -> None:
        """Compare a new view with that of the claim; release only if it differs."""
        if view != self.view:
            self._go(PaperState.RELEASING)

    def give_up(self) -> None:
        """Release partitions: the member ends, or one of its nodes was deleted by another
        client.
        """
        if self.state is PaperState.OWNING:
            self._go(PaperState.RELEASING)

    def on_connection_loss(self) -> None:
        """Handle a connection lost within a step; its request may have been executed."""
        if self.state is PaperState.CLAIMING:
            self._go(PaperState.RELEASING)

    def on_session_expiry(self) -> None:
        self.session += 1
        self.claims = ()
        self.waits = 0
        self._go(PaperState.OUTSIDE)

    def check(self) -> None:
        assert self.claims == () or self.state not in (PaperState.OUTSIDE, PaperState.WAITING)
        assert self.state is not PaperState.OWNING or self.view is not None
        assert self.waits <= self.max_retries or self.state is PaperState.WAITING
        assert len(set(self.claims)) == len(self.claims)

    def _go(self, state: PaperState) -> None:
        assert self.state in VALID_PREVIOUS_STATES[state], f"from {self.state} to {state}"
        self.state = state


@dataclass(slots=True)
class PaperProgress:
    """Progress in each owned partition.

    A record is returned, then processed, which shows when its reader asks for more. Only then may
    the offset after it be written, so each is read at least once, whenever a reader dies.
    """

    _handed: dict[TopicPartition, Offset] = field(default_factory=dict)
    _done: dict[TopicPartition, Offset] = field(default_factory=dict)
    _written: dict[TopicPartition, Offset] = field(default_factory=dict)

    def start(self, partition: TopicPartition, offset: Offset, *, is_written: bool) -> None:
        self._done[partition] = offset
        if is_written:
            self._written[partition] = offset

    def hand_out(self, partition: TopicPartition, next_offset: Offset) -> None:
        self._handed[partition] = next_offset

    def settle(self) -> None:
        """Mark all returned records as processed."""
        self._done.update(self._handed)
        self._handed.clear()

    def unwritten(self) -> dict[TopicPartition, Offset]:
        done = sorted(self._done.items())
        return {p: offset for p, offset in done if self._written.get(p) != offset}

    def wrote(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        self._written.update((p, offset) for p, offset in offsets.items() if p in self._done)

    def is_written(self, partition: TopicPartition) -> bool:
        """Whether an offset was ever written, so that a node exists."""
        return partition in self._written

    def forget_written(self, partitions: Iterable[TopicPartition]) -> None:
        """Note that the offset nodes were deleted."""
        for partition in partitions:
            self._written.pop(partition, None)

    def clear(self) -> None:
        """Forget all, since no partition is owned any more."""
        self._handed.clear()
        self._done.clear()
        self._written.clear()

    def check(self) -> None:
        assert self._written.keys() <= self._done.keys()
