"""The coordinator's own assignors: who is to own which partitions.

    uniform   as many partitions to each member as to any other, and each keeps what it had as far
              as that allows; where members subscribe to different topics, as even as moving one
              partition at a time makes it
    range     of each topic, in the order of the members, one run of partitions to each: topics of
              as many partitions are owned alike, so they can be joined

Balance comes before stickiness.  (Kafka: UniformAssignor and RangeAssignor.  Theirs gives the
partition over to the first members; here a member that has it keeps it.)

Pure: values only.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeAlias
from uuid import UUID

from kserver.group.consumer_events import Partitions, TopicIdPartition

MAX_PASSES = 16
"""Over all topics, to even out members of different subscriptions: each pass about halves what is
uneven (Kafka: MAX_ITERATION_COUNT)."""


class Subscriber(NamedTuple):
    topics: frozenset[UUID]
    owned: Partitions = frozenset()
    """Its target until now."""
    instance_id: str | None = None


Members: TypeAlias = Mapping[str, Subscriber]
"""By member id."""
Counts: TypeAlias = Mapping[UUID, int]
"""Partitions by topic; a topic that is not in it does not exist."""
Assignor: TypeAlias = Callable[[Members, Counts], dict[str, Partitions]]


def uniform(members: Members, counts: Counts) -> dict[str, Partitions]:
    if not members:
        return {}
    subscriptions = {subscriber.topics for subscriber in members.values()}
    if len(subscriptions) == 1:
        return _alike(members, counts, subscriptions.pop())
    return _Uneven(members, counts).assigned()


def range_(members: Members, counts: Counts) -> dict[str, Partitions]:
    assigned: dict[str, set[TopicIdPartition]] = {member_id: set() for member_id in members}
    # By its instance a static member gets the same after it came back under another id.
    ordered = sorted(
        members, key=lambda m: (members[m].instance_id is None, members[m].instance_id or m)
    )
    for topic in _topics(members.values(), counts):
        subscribers = [m for m in ordered if topic in members[m].topics]
        each, more = divmod(counts[topic], len(subscribers))
        start = 0
        for place, member_id in enumerate(subscribers):
            end = start + each + (place < more)
            assigned[member_id].update(TopicIdPartition(topic, n) for n in range(start, end))
            start = end
    return {member_id: frozenset(owned) for member_id, owned in assigned.items()}


ASSIGNORS: Mapping[str, Assignor] = {"uniform": uniform, "range": range_}
"""By the names that members and `group.consumer.assignors` give them."""


def _topics(members: Iterable[Subscriber], counts: Counts) -> list[UUID]:
    """Those that exist and somebody subscribes to, in order."""
    wanted = frozenset[UUID]().union(*(member.topics for member in members))
    return sorted(topic for topic in wanted if topic in counts)


def _partitions(topics: Iterable[UUID], counts: Counts) -> list[TopicIdPartition]:
    return [TopicIdPartition(topic, n) for topic in topics for n in range(counts[topic])]


def _kept(subscriber: Subscriber, counts: Counts) -> list[TopicIdPartition]:
    """What it had, as far as it still subscribes to it and it is there; in order."""
    return sorted(
        one
        for one in subscriber.owned
        if one.topic_id in subscriber.topics and one.partition < counts.get(one.topic_id, 0)
    )


def _alike(members: Members, counts: Counts, topics: frozenset[UUID]) -> dict[str, Partitions]:
    """All subscribe to the same topics."""
    wanted = _partitions(sorted(topic for topic in topics if topic in counts), counts)
    kept = {member_id: _kept(members[member_id], counts) for member_id in members}
    least, more = divmod(len(wanted), len(members))
    # Who has most is first to have one more than the others: it gives away the least.
    ordered = sorted(members, key=lambda m: (-len(kept[m]), m))
    quotas = {m: least + (place < more) for place, m in enumerate(ordered)}
    assigned = {m: kept[m][: quotas[m]] for m in ordered}
    taken = {one for owned in assigned.values() for one in owned}
    free = (one for one in wanted if one not in taken)
    for member_id, owned in assigned.items():
        while len(owned) < quotas[member_id]:
            owned.append(next(free))
    return {member_id: frozenset(owned) for member_id, owned in assigned.items()}


class _Uneven:
    """Members that subscribe to different topics."""

    def __init__(self, members: Members, counts: Counts) -> None:
        self._owned: dict[str, dict[UUID, list[TopicIdPartition]]] = {m: {} for m in members}
        self._loads = dict.fromkeys(members, 0)
        self._subscribers = {
            topic: sorted(m for m in members if topic in members[m].topics)
            for topic in _topics(members.values(), counts)
        }
        for member_id, subscriber in members.items():
            for one in _kept(subscriber, counts):
                self._give(one, member_id)
        taken = {one for topics in self._owned.values() for own in topics.values() for one in own}
        # Those that few can take come first: the others fill what is left.
        topics = sorted(self._subscribers, key=lambda t: (len(self._subscribers[t]), t))
        for topic in topics:
            free = [one for one in _partitions([topic], counts) if one not in taken]
            self._spread(free, self._subscribers[topic])
        for _ in range(MAX_PASSES):
            moved = [topic for topic in topics if self._evened(topic)]
            if not moved:
                break

    def assigned(self) -> dict[str, Partitions]:
        return {
            member_id: frozenset(one for own in topics.values() for one in own)
            for member_id, topics in self._owned.items()
        }

    def _spread(self, free: Iterable[TopicIdPartition], members: Iterable[str]) -> None:
        """Each to whoever has least by then."""
        least = [(self._loads[member_id], member_id) for member_id in members]
        heapq.heapify(least)
        for one in free:
            load, member_id = least[0]
            self._give(one, member_id)
            heapq.heapreplace(least, (load + 1, member_id))

    def _give(self, one: TopicIdPartition, member_id: str) -> None:
        self._owned[member_id].setdefault(one.topic_id, []).append(one)
        self._loads[member_id] += 1

    def _evened(self, topic: UUID) -> bool:
        """Move partitions of this topic from who has most to who has least, and whether any was.
        Each move makes the sum of the squared loads smaller, so it ends."""
        loads = self._loads
        least = [(loads[m], m) for m in self._subscribers[topic]]
        most = [(-loads[m], m) for m in self._subscribers[topic] if self._owned[m].get(topic)]
        heapq.heapify(least)
        heapq.heapify(most)
        has_moved = False
        while most:
            giver, taker = most[0][1], least[0][1]
            if loads[giver] - loads[taker] < 2:
                break
            has_moved = True
            self._give(self._owned[giver][topic].pop(), taker)
            loads[giver] -= 1
            # Whoever took one is no giver, and who gave no taker: they are within one by then.
            heapq.heapreplace(least, (loads[taker], taker))
            if self._owned[giver][topic]:
                heapq.heapreplace(most, (-loads[giver], giver))
            else:
                heapq.heappop(most)
        return has_moved
