"""Assignments as even as can be, and as much like those before as can be (KIP-54, KIP-429).

Pure: no I/O, no clock, no await.

Each member tells what it had, and of which generation.  What several claim is the one's with the
newest generation; claimed in the same one it is nobody's.  Then what nobody has goes to whoever has
least, and as long as partitions can go from hand to hand so that somebody who has two more than
another has one less, and that one more, they do: what nobody had first.

`Sticky` members give everything back before they rejoin and so tell it in user data
(StickyAssignor: v0 partitions, v1 with their generation).  `CooperativeSticky` members keep
reading: what moves between two of them is first taken from the one, and given to the other in the
rebalance after, when it has let go.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import TypeAlias

from kcli.client.group_protocol import NO_GENERATION, Reader, Subscription, write_partitions
from kserver.errors import ProtocolError
from kserver.model import TopicPartition

_GENERATION = struct.Struct(">i")


class Claim:
    """What a member had, and in which generation it was given that."""

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
        claims = {name: _told(member.user_data) for name, member in members.items()}
        return assignment(counts, _topics(members), claims)


def _told(user_data: bytes | None) -> Claim:
    """What StickyAssignor's user data says, in either version; nothing where it is none."""
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
        """The generation, for leaders that do not know version 2 of the subscription."""
        return _GENERATION.pack(self._generation)

    def assigned(self, partitions: Iterable[TopicPartition], generation: int) -> None:
        self._generation = generation

    def assign(
        self, counts: Mapping[str, int], members: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        claims = {name: Claim(m.owned, _generation_of(m)) for name, m in members.items()}
        return without_moving(assignment(counts, _topics(members), claims), claims)


def _generation_of(member: Subscription) -> int:
    data = member.user_data
    if member.generation != NO_GENERATION or data is None or len(data) < _GENERATION.size:
        return member.generation
    generation: int = _GENERATION.unpack_from(data)[0]
    return generation


def without_moving(
    plan: dict[str, list[TopicPartition]], claims: Mapping[str, Claim]
) -> dict[str, list[TopicPartition]]:
    """The plan but for what another member still has: that follows once it was let go."""
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
    """`counts` are partitions by topic, `topics` what each member reads, by its id."""
    readers = {
        topic: found
        for topic in counts
        if (found := [m for m, of in topics.items() if topic in of])
    }
    owners = _owners(counts, topics, claims)
    load = dict.fromkeys(topics, 0)
    for owner in owners.values():
        load[owner] += 1
    # Those that few can read first: the rest evens out what they leave uneven.
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
"""What goes, from whom, to whom."""


def _chain(
    plan: Mapping[str, list[TopicPartition]],
    readers: Mapping[str, list[str]],
    had: Set[TopicPartition],
    may_take: bool,
) -> list[_Move]:
    """What makes the plan more even: from who has most to who has two less at least, through
    others where none of its partitions can be read there; the fewest moves.  What somebody `had` is
    not given to another unless it `may_take`, and then last.

    Each makes the sum of the squared loads smaller, and where there is none it is as small as can
    be.  So what members of a cooperative group let go in one rebalance can be given out in the next
    without any of them having to let go more.
    """
    load = {member: len(partitions) for member, partitions in plan.items()}
    least = min(load.values(), default=0)
    for source in sorted(plan, key=lambda member: -load[member]):
        if load[source] - least < 2:
            break
        into: dict[str, _Move | None] = {source: None}
        level = [source]
        while level:
            reached = []
            for member in level:
                for partition in _one_of_each_topic(plan[member], had, may_take):
                    for target in readers[partition.topic]:
                        if target not in into:
                            into[target] = partition, member, target
                            reached.append(target)
            target = min(reached, key=load.__getitem__, default=source)
            if load[source] - load[target] >= 2:
                return list(_moves_to(target, into))
            level = reached
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
    """Whose each partition was, as far as that still can be."""
    newest: dict[TopicPartition, int] = {}
    claimants: dict[TopicPartition, list[str]] = {}
    for member, claim in claims.items():
        for partition in claim.partitions:
            there = 0 <= partition.partition < counts.get(partition.topic, 0)
            if not there or partition.topic not in topics[member]:
                continue
            known = newest.get(partition, claim.generation - 1)
            if claim.generation > known:
                newest[partition], claimants[partition] = claim.generation, [member]
            elif claim.generation == known and member not in claimants[partition]:
                claimants[partition].append(member)
    return {partition: of[0] for partition, of in claimants.items() if len(of) == 1}
