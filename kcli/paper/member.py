"""One member's part in a group that balances itself, and how far it has read.

Pure: no I/O, no clock, no await.

    state        what the member does                                        then
    OUTSIDE      has no session, or is not registered in it: owns nothing    RELEASING
    RELEASING    reads no more; writes its offsets, deletes its owner nodes  CLAIMING
    CLAIMING     reads who is there, claims its range: all of it or nothing  OWNING, WAITING
    WAITING      another has not let go of what this one claimed             RELEASING
    OWNING       reads its range, until members or partitions change         RELEASING

A session that expires leads from each of them to OUTSIDE.  An answer that is lost while claiming
leads back to RELEASING, where the member deletes what it may or may not have got.

Every member decides alone, on what it sees.  What keeps two from owning one partition is that the
owner's znode can be made only once, not that they see the same: a member that saw too little is in
another's way, or finds another in its own, and begins again.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kcli.client.errors import ClientError
from kcli.java_patterns import compiled
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
    """What ZooKeeper says, as far as a rebalance depends on it."""

    threads: Mapping[str, tuple[str, ...]]
    """The group's threads that read each topic, sorted."""
    partitions: Mapping[str, tuple[int, ...]]
    """The partitions of each topic, sorted; none where it does not exist."""
    has_brokers: bool = True


def share(partitions: Sequence[int], threads: Sequence[str], thread: str) -> Sequence[int]:
    """The range of one thread: as many as any other, the first ones one more where it does not
    come out even (Kafka: ZookeeperConsumerConnector, RangeAssignor)."""
    each, more = divmod(len(partitions), len(threads))
    at = threads.index(thread)
    start = at * each + min(at, more)
    return partitions[start : start + each + (at < more)]


def threads(member: str, told: MemberRegistration, topic: str) -> list[str]:
    """Those that read the topic."""
    count = sum(n for name, n in told.subscription.items() if _reads(told.pattern, name, topic))
    return [f"{member}-{n}" for n in range(count)]


def _reads(pattern: str, name: str, topic: str) -> bool:
    """Kafka's old console consumer names even a single topic by a white list."""
    if pattern == STATIC:
        return name == topic
    matches = compiled(name.replace(",", "|")).fullmatch(topic) is not None
    return matches if pattern == "white_list" else not matches


@dataclass(slots=True)
class PaperMember:
    thread: str
    """Its one thread: the member's id with `-0`, as it stands in the owner nodes."""
    max_retries: int
    state: PaperState = PaperState.OUTSIDE
    session: int = 0
    """Rises when a session expires: what was begun before is then void."""
    held: tuple[TopicPartition, ...] = ()
    """Whose owner nodes may be this member's, because it once asked for them."""
    view: GroupView | None = None
    """On which the last claim was decided."""
    waits: int = 0
    """How many times in a row it waited in vain."""

    @property
    def owned(self) -> tuple[TopicPartition, ...]:
        """What it reads."""
        return self.held if self.state is PaperState.OWNING else ()

    def registered(self) -> None:
        self._go(PaperState.RELEASING)

    def released(self) -> None:
        """None of the owner nodes is this member's."""
        self.held = ()
        self._go(PaperState.CLAIMING)

    def claim(self, view: GroupView) -> tuple[TopicPartition, ...] | None:
        """What to claim; None when it is to register first."""
        assert self.state is PaperState.CLAIMING
        if any(self.thread not in threads for threads in view.threads.values()):
            self._go(PaperState.OUTSIDE)
            return None
        self.view = view
        self.held = tuple(
            TopicPartition(topic, partition)
            for topic, threads in sorted(view.threads.items())
            for partition in share(view.partitions[topic], threads, self.thread)
            if view.has_brokers
        )
        return self.held

    def claimed(self) -> None:
        """All of it, and it is read now."""
        self.waits = 0
        self._go(PaperState.OWNING)

    def refused(self) -> None:
        """None of it: one has another owner still, or the nodes around it are gone."""
        self.held = ()
        self._go(PaperState.WAITING)

    def again(self, *, in_vain: bool) -> None:
        """The wait is over; `in_vain` when nothing happened meanwhile.  RebalanceFailed."""
        self.waits = self.waits + 1 if in_vain else 0
        if self.waits > self.max_retries:
            raise RebalanceFailed(
                f"{self.thread} can't rebalance after {self.max_retries} retries: another "
                "consumer of the group still owns the partitions"
            )
        self._go(PaperState.RELEASING)

    def looked(self, view: GroupView) -> None:
        """Nothing is given up where it would only be claimed again."""
        if view != self.view:
            self._go(PaperState.RELEASING)

    def give_up(self) -> None:
        """It ends, or one of its nodes is gone by another's hand."""
        if self.state is PaperState.OWNING:
            self._go(PaperState.RELEASING)

    def answer_lost(self) -> None:
        """The connection broke within a step; what was asked may have been done."""
        if self.state is PaperState.CLAIMING:
            self._go(PaperState.RELEASING)

    def expired(self) -> None:
        self.session += 1
        self.held = ()
        self.waits = 0
        self._go(PaperState.OUTSIDE)

    def check(self) -> None:
        assert self.held == () or self.state not in (PaperState.OUTSIDE, PaperState.WAITING)
        assert self.state is not PaperState.OWNING or self.view is not None
        assert self.waits <= self.max_retries or self.state is PaperState.WAITING
        assert len(set(self.held)) == len(self.held)

    def _go(self, state: PaperState) -> None:
        assert self.state in VALID_PREVIOUS_STATES[state], f"from {self.state} to {state}"
        self.state = state


@dataclass(slots=True)
class PaperProgress:
    """How far each partition that is owned was read.

    A record is handed out, then done, which shows when its reader asks for more, and only then may
    the offset after it be written: so each is read at least once, whenever a reader dies.
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
        """All that was handed out is done."""
        self._done.update(self._handed)
        self._handed.clear()

    def unwritten(self) -> dict[TopicPartition, Offset]:
        done = sorted(self._done.items())
        return {p: offset for p, offset in done if self._written.get(p) != offset}

    def wrote(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        self._written.update((p, offset) for p, offset in offsets.items() if p in self._done)

    def is_written(self, partition: TopicPartition) -> bool:
        """Whether it ever was, and so has a node."""
        return partition in self._written

    def forget_written(self, partitions: Iterable[TopicPartition]) -> None:
        """Their nodes are gone."""
        for partition in partitions:
            self._written.pop(partition, None)

    def clear(self) -> None:
        """Nothing is owned any more."""
        self._handed.clear()
        self._done.clear()
        self._written.clear()

    def check(self) -> None:
        assert self._written.keys() <= self._done.keys()
