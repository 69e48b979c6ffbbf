"""The partitions that each member of a classic group reads: the strategies that its leader may
follow.

Pure: no I/O, no clock, no await.

    range               of each topic, neighbouring partitions to each; the first members get what
                        is over
    roundrobin          all partitions of all topics in turn
    sticky              sticky.py: as even as can be, and as before as can be
    cooperative-sticky  the same for members that keep reading while the group rebalances (KIP-429)

partition.assignment.strategy names them as here or as Kafka's Java classes; an own one is an object
with what `Assignor` asks for, or a function of what `assign` is given.  All members of a group need
one strategy in common.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import cycle
from typing import Any, Protocol, TypeAlias

from kcli.client.group_protocol import Subscription
from kcli.client.named import named
from kcli.client.sticky import CooperativeSticky, Sticky
from kserver.errors import ConfigError
from kserver.model import TopicPartition

Plan: TypeAlias = dict[str, list[TopicPartition]]
"""What each member shall read, by its id."""
Counts: TypeAlias = Mapping[str, int]
"""How many partitions each topic has; topics that do not exist are left out."""
Members: TypeAlias = Mapping[str, Subscription]


class Assignor(Protocol):
    """`name` is what the members agree on; `cooperative` whether they keep what they have while
    they do.
    """

    name: str
    cooperative: bool

    def user_data(self) -> bytes | None:
        """What goes with this member's subscription, for the leader's `assign`."""

    def assign(self, counts: Counts, members: Members) -> Plan:
        """Called at the leader; members without an entry get nothing."""

    def assigned(self, partitions: Iterable[TopicPartition], generation: int) -> None:
        """Called at each member with what it got."""


class _Simple:
    """One that goes by what members subscribe to, and by nothing else."""

    cooperative = False

    def user_data(self) -> bytes | None:
        return None

    def assigned(self, partitions: Iterable[TopicPartition], generation: int) -> None:
        pass


class Range(_Simple):
    name = "range"

    def assign(self, counts: Counts, members: Members) -> Plan:
        plan: Plan = {member: [] for member in members}
        for topic, count in sorted(counts.items()):
            readers = [m for m in in_order(members) if topic in members[m].topics]
            start = 0
            for at, reader in enumerate(readers):
                stop = start + count // len(readers) + (at < count % len(readers))
                plan[reader] += (TopicPartition(topic, n) for n in range(start, stop))
                start = stop
        return plan


class RoundRobin(_Simple):
    name = "roundrobin"

    def assign(self, counts: Counts, members: Members) -> Plan:
        plan: Plan = {member: [] for member in members}
        turns = cycle(in_order(members))
        wanted = {topic for member in members.values() for topic in member.topics}
        for topic in sorted(wanted & counts.keys()):
            for number in range(counts[topic]):
                reader = next(m for m in turns if topic in members[m].topics)
                plan[reader].append(TopicPartition(topic, number))
        return plan


class Own(_Simple):
    """A function as a strategy; its name is the function's."""

    def __init__(self, assign: Callable[[Counts, Members], Plan]) -> None:
        self.name: str = getattr(assign, "__name__", type(assign).__name__)
        self.assign = assign


def in_order(members: Members) -> list[str]:
    """Static members first, by their instance ids, which outlive their member ids: so that one that
    restarts gets what it had (MemberInfo.compareTo).
    """

    def place(member: str) -> tuple[bool, str]:
        instance_id = members[member].instance_id
        return instance_id is None, member if instance_id is None else instance_id

    return sorted(members, key=place)


_KAFKAS = "org.apache.kafka.clients.consumer."
ASSIGNORS: dict[str, type] = {
    "range": Range,
    "roundrobin": RoundRobin,
    "sticky": Sticky,
    "cooperative-sticky": CooperativeSticky,
    f"{_KAFKAS}RangeAssignor": Range,
    f"{_KAFKAS}RoundRobinAssignor": RoundRobin,
    f"{_KAFKAS}StickyAssignor": Sticky,
    f"{_KAFKAS}CooperativeStickyAssignor": CooperativeSticky,
}
STRATEGY = "partition.assignment.strategy"


def assignors_of(names: Iterable[str | Any]) -> list[Assignor]:
    """The assignors of names, functions and objects, the preferred one first.

    ConfigError for a name that stands for nothing, and for two strategies of the same name.
    """
    found: list[Assignor] = []
    for given in names:
        assignor = named(STRATEGY, given, ASSIGNORS) if isinstance(given, str) else given
        found.append(assignor if hasattr(assignor, "assign") else Own(assignor))
    taken = [assignor.name for assignor in found]
    for name in taken:
        if taken.count(name) > 1:
            raise ConfigError(f"Invalid value for configuration {STRATEGY}: {name} is named twice")
    if not found:
        raise ConfigError(
            "Choosing class-based partition assignor requires at least one of them in configuration"
            f" {STRATEGY}"
        )
    return found


def cooperates(assignors: Iterable[Assignor]) -> bool:
    """Whether members keep what they have while they rebalance: only where each of their strategies
    can (ConsumerCoordinator's constructor; KIP-429).
    """
    return all(assignor.cooperative for assignor in assignors)
