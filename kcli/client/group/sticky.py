"""Sticky assignors: balanced, and as close to the last assignment as possible (KIP-54, KIP-429).

Pure: no I/O, no clock, no await.

Each member reports its last partitions and their generation. A partition that several members claim
stays with the one of the newest generation; if that is not unique, it has no owner. Then each
partition without an owner goes to the least loaded member. Last, partitions move along chains of
members as long as the ends differ by two or more: the first loses one, the last gains one.
Partitions that had no owner move first.

`Sticky` members revoke everything before they rejoin, and so report it in user data
(StickyAssignor: v0 partitions, v1 with their generation). `CooperativeSticky` members keep reading:
a partition that moves is first revoked from one, and assigned to the other in the next rebalance.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import TypeAlias

from kcli.client.group.group_protocol import NO_GENERATION, Reader, Subscription, write_partitions
from kserver.errors import ProtocolError
from kserver.model import TopicPartition

_GENERATION = struct.Struct(">i")


class Claim:
    """A member's last partitions, and the generation in which it was assigned them."""

    __slots__ = ("generation", "partitions")

    def __init__(self, partitions: Iterable[TopicPartition], generation: int) -> None:
        self.partitions = tuple(partitions)
        self.generation = generation


class Sticky:
    name = "sticky"
    cooperative = False

    def __init__(self) -> None:
        self._had: Claim | None = None

    def user_data(self) -> bytes | None:
        if self._had is None:
            return None
        return write_partitions(self._had.partitions) + _GENERATION.pack(self._had.generation)

    def assigned(self, partitions: Iterable[TopicPartition], generation: int) -> None:
        self._had = Claim(partitions, generation)

    def assign(
        self, counts: Mapping[str, int], members: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        claims = {name: _claim_of(member.user_data) for name, member in members.items()}
        return assignment(counts, _topics(members), claims)


def _claim_of(user_data: bytes | None) -> Claim:
    """Return the claim in StickyAssignor's user data, in either version; an empty one if it is
    invalid.
    """
    if user_data is None:
        return Claim((), NO_GENERATION)
    reader = Reader(user_data)
    try:
        partitions = reader.partitions()
    except ProtocolError:
        return Claim((), NO_GENERATION)
    try:
        return Claim(partitions, reader.number())
    except ProtocolError:
        return Claim(partitions, NO_GENERATION)


class CooperativeSticky:
    name = "cooperative-sticky"
    cooperative = True

    def __init__(self) -> None:
        self._generation = NO_GENERATION

    def user_data(self) -> bytes | None:
        """Return the generation, for leaders that do not know version 2 of the subscription."""
        return _GENERATION.pack(self._generation)

    def assigned(self, partitions: Iterable[TopicPartition], generation: int) -> None:
        self._generation = generation

    def assign(
        self, counts: Mapping[str, int], members: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        claims = {name: Claim(m.owned, _generation_of(m)) for name, m in members.items()}
        return without_owned_partitions(assignment(counts, _topics(members), claims), claims)


def _generation_of(member: Subscription) -> int:
    data = member.user_data
    if member.generation != NO_GENERATION or data is None or len(data) < _GENERATION.size:
        return member.generation
    generation: int = _GENERATION.unpack_from(data)[0]
    return generation


def without_owned_partitions(
    plan: dict[str, list[TopicPartition]], claims: Mapping[str, Claim]
) -> dict[str, list[TopicPartition]]:
    """Return the plan without partitions that another member still owns: those follow once
    revoked.
    """
    owners: dict[TopicPartition, set[str]] = defaultdict(set)
    for member, claim in claims.items():
        for partition in claim.partitions:
            owners[partition].add(member)
    return {
        member: [p for p in partitions if not owners.get(p, set()) - {member}]
        for member, partitions in plan.items()
    }


def _topics(members: Mapping[str, Subscription]) -> dict[str, frozenset[str]]:
    return {name: frozenset(member.topics) for name, member in sorted(members.items())}


def assignment(
    counts: Mapping[str, int],
    topics: Mapping[str, frozenset[str]],
    claims: Mapping[str, Claim],
) -> dict[str, list[TopicPartition]]:
    """Return the plan. `counts` are partitions by topic, `topics` each member's subscription."""
    readers = {
        topic: subscribers
        for topic in counts
        if (subscribers := [m for m, of in topics.items() if topic in of])
    }
    owners = _owners(counts, topics, claims)
    load = dict.fromkeys(topics, 0)
    for owner in owners.values():
        load[owner] += 1
    # Topics with few readers first: the others even out the differences.
    for topic in sorted(readers, key=lambda topic: (len(readers[topic]), topic)):
        for number in range(counts[topic]):
            partition = TopicPartition(topic, number)
            if partition not in owners:
                least = min(readers[topic], key=load.__getitem__)
                owners[partition] = least
                load[least] += 1
    plan: dict[str, list[TopicPartition]] = {member: [] for member in topics}
    for partition, owner in owners.items():
        plan[owner].append(partition)
    had = {partition for claim in claims.values() for partition in claim.partitions}
    for may_take in (False, True):
        while chain := _chain(plan, readers, had, may_take):
            for partition, source, target in chain:
                plan[source].remove(partition)
                plan[target].append(partition)
    return {member: sorted(partitions) for member, partitions in plan.items()}


_Move: TypeAlias = tuple[TopicPartition, str, str]
"""Partition, source and target."""


def _chain(
    plan: Mapping[str, list[TopicPartition]],
    readers: Mapping[str, list[str]],
    had: Set[TopicPartition],
    may_take: bool,
) -> list[_Move]:
    """Return the shortest chain of moves that makes the plan more balanced: from a most loaded
    member to one with at least two partitions less, through others if the target does not read the
    source's topics. Partitions that a member `had` are moved only if it `may_take`, and then last.

    Each chain reduces the sum of the squared loads; without one it is minimal. So the partitions
    that members of a cooperative group revoke in one rebalance can be assigned in the next without
    further revocations.
    """
    load = {member: len(partitions) for member, partitions in plan.items()}
    least = min(load.values(), default=0)
    for source in sorted(plan, key=lambda member: -load[member]):
        if load[source] - least < 2:
            break
        into: dict[str, _Move | None] = {source: None}
        level = [source]
        while level:
            next_level = []
            for member in level:
                for partition in _one_of_each_topic(plan[member], had, may_take):
                    for target in readers[partition.topic]:
                        if target not in into:
                            into[target] = partition, member, target
                            next_level.append(target)
            target = min(next_level, key=load.__getitem__, default=source)
            if load[source] - load[target] >= 2:
                return list(_moves_to(target, into))
            level = next_level
    return []


def _one_of_each_topic(
    partitions: Iterable[TopicPartition], had: Set[TopicPartition], may_take: bool
) -> list[TopicPartition]:
    first: dict[str, TopicPartition] = {}
    for partition in sorted(partitions, key=lambda partition: (partition in had, partition)):
        if may_take or partition not in had:
            first.setdefault(partition.topic, partition)
    return list(first.values())


def _moves_to(target: str, into: Mapping[str, _Move | None]) -> Iterator[_Move]:
    while (move := into[target]) is not None:
        yield move
        target = move[1]


def _owners(
    counts: Mapping[str, int], topics: Mapping[str, frozenset[str]], claims: Mapping[str, Claim]
) -> dict[TopicPartition, str]:
    """Return the last owner of each partition, if it still subscribes to the topic."""
    newest: dict[TopicPartition, int] = {}
    claimants: dict[TopicPartition, list[str]] = {}
    for member, claim in claims.items():
        for partition in claim.partitions:
            there = 0 <= partition.partition < counts.get(partition.topic, 0)
            if not there or partition.topic not in topics[member]:
                continue
            generation = newest.get(partition, claim.generation - 1)
            if claim.generation > generation:
                newest[partition], claimants[partition] = claim.generation, [member]
            elif claim.generation == generation and member not in claimants[partition]:
                claimants[partition].append(member)
    return {partition: of[0] for partition, of in claimants.items() if len(of) == 1}
