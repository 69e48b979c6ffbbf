"""Client-side assignors: how the leader of a classic group assigns partitions to its members.

Pure: no I/O, no clock, no await.

    range               of each topic, neighbouring partitions to each member; the first members
                        get the remainder
    roundrobin          all partitions of all topics in turn
    sticky              sticky.py: as balanced, and as close to the last assignment, as possible
    cooperative-sticky  the same for members that keep reading while the group rebalances (KIP-429)

partition.assignment.strategy names them by these names or by Kafka's Java classes. A custom one is
an object with the methods of `Assignor`, or a function with the parameters of `assign`. All members
of a group need one strategy in common.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import cycle
from typing import Any, Protocol, TypeAlias

from kcli.client.class_loader import instance_of
from kcli.client.group.group_protocol import Subscription
from kcli.client.group.sticky import CooperativeSticky, Sticky
from kserver.errors import ConfigError
from kserver.model import TopicPartition

Plan: TypeAlias = dict[str, list[TopicPartition]]
"""The partitions of each member, by member id."""
Counts: TypeAlias = Mapping[str, int]
"""Number of partitions of each topic; topics that do not exist are left out."""
Members: TypeAlias = Mapping[str, Subscription]


class Assignor(Protocol):
    """`name` is the strategy's name in JoinGroup. `cooperative` is whether members keep their
    partitions during a rebalance.
    """

    name: str
    cooperative: bool

    def user_data(self) -> bytes | None:
        """Return the user data of this member's subscription, for `assign` at the leader."""

    def assign(self, counts: Counts, members: Members) -> Plan:
        """Assign partitions, at the leader; members without an entry get none."""

    def assigned(self, partitions: Iterable[TopicPartition], generation: int) -> None:
        """Note the partitions that this member was assigned; called at each member."""


class _Simple:
    """An assignor that needs nothing besides the members' subscriptions."""

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
        topics = {topic for member in members.values() for topic in member.topics}
        for topic in sorted(topics & counts.keys()):
            for number in range(counts[topic]):
                reader = next(m for m in turns if topic in members[m].topics)
                plan[reader].append(TopicPartition(topic, number))
        return plan


class FunctionAssignor(_Simple):
    """A function as a strategy, under the function's name."""

    def __init__(self, assign: Callable[[Counts, Members], Plan]) -> None:
        self.name: str = getattr(assign, "__name__", type(assign).__name__)
        self.assign = assign


def in_order(members: Members) -> list[str]:
    """Return the member ids, static members first and by instance id. Instance ids outlive member
    ids, so a member that restarts gets the partitions it had (MemberInfo.compareTo).
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
    """Return the assignors of names, functions and objects, the preferred one first.

    Raises ConfigError if a name is unknown, two strategies have the same name, or there is none.
    """
    assignors: list[Assignor] = []
    for strategy in names:
        assignor = (
            instance_of(STRATEGY, strategy, ASSIGNORS) if isinstance(strategy, str) else strategy
        )
        assignors.append(assignor if hasattr(assignor, "assign") else FunctionAssignor(assignor))
    names_of_all = [assignor.name for assignor in assignors]
    for name in names_of_all:
        if names_of_all.count(name) > 1:
            raise ConfigError(f"Invalid value for configuration {STRATEGY}: {name} is named twice")
    if not assignors:
        raise ConfigError(
            "Choosing class-based partition assignor requires at least one of them in configuration"
            f" {STRATEGY}"
        )
    return assignors


def cooperates(assignors: Iterable[Assignor]) -> bool:
    """Return whether members keep their partitions during a rebalance: only if each of their
    strategies is cooperative (ConsumerCoordinator's constructor; KIP-429).
    """
    return all(assignor.cooperative for assignor in assignors)
