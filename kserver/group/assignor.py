"""Server-side assignors, which compute the target assignment of a consumer group.

    uniform   the same number of partitions for each member, give or take one; each member keeps
              its partitions as far as that allows.  If members subscribe to different topics, as
              even as moving one partition at a time makes it
    range     of each topic, one contiguous run of partitions for each member, in member order:
              topics with the same number of partitions are assigned alike, so they can be joined

Balance takes precedence over stickiness.  (Kafka: UniformAssignor and RangeAssignor.  Kafka's
uniform assignor gives the extra partitions to the first members; this one leaves them with the
members that already own them.)

Pure: values only.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeAlias
from uuid import UUID

from kserver.group.consumer_events import Partitions, TopicIdPartition

MAX_PASSES = 16
"""Maximum number of rounds through all topics to balance members with different subscriptions.
Each round about halves the imbalance (Kafka: MAX_ITERATION_COUNT)."""


class Subscriber(NamedTuple):
    topics: frozenset[UUID]
    owned: Partitions = frozenset()
    """Partitions of its current target assignment."""
    instance_id: str | None = None


Members: TypeAlias = Mapping[str, Subscriber]
"""Subscribers by member id."""
Counts: TypeAlias = Mapping[UUID, int]
"""Number of partitions by topic id; topics that do not exist are absent."""
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
    # Sorted by instance id, a static member gets the same partitions when it rejoins under another
    # member id.
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
"""Assignors by their name in requests and in `group.consumer.assignors`."""


def _topics(members: Iterable[Subscriber], counts: Counts) -> list[UUID]:
    """Return the existing topics that any member subscribes to, sorted."""
    topic_ids = frozenset[UUID]().union(*(member.topics for member in members))
    return sorted(topic for topic in topic_ids if topic in counts)


def _partitions(topics: Iterable[UUID], counts: Counts) -> list[TopicIdPartition]:
    return [TopicIdPartition(topic, n) for topic in topics for n in range(counts[topic])]


def _still_owned(subscriber: Subscriber, counts: Counts) -> list[TopicIdPartition]:
    """Return the owned partitions that exist and whose topics are still subscribed to, sorted."""
    return sorted(
        partition
        for partition in subscriber.owned
        if partition.topic_id in subscriber.topics
        and partition.partition < counts.get(partition.topic_id, 0)
    )


def _alike(members: Members, counts: Counts, topics: frozenset[UUID]) -> dict[str, Partitions]:
    """Assign to members that all subscribe to the same topics."""
    partitions = _partitions(sorted(topic for topic in topics if topic in counts), counts)
    owned_by = {member_id: _still_owned(members[member_id], counts) for member_id in members}
    least, more = divmod(len(partitions), len(members))
    # The members that own most get the extra partitions, so that the fewest partitions move.
    ordered = sorted(members, key=lambda m: (-len(owned_by[m]), m))
    quotas = {m: least + (place < more) for place, m in enumerate(ordered)}
    assigned = {m: owned_by[m][: quotas[m]] for m in ordered}
    assigned_partitions = {partition for owned in assigned.values() for partition in owned}
    free = (partition for partition in partitions if partition not in assigned_partitions)
    for member_id, owned in assigned.items():
        while len(owned) < quotas[member_id]:
            owned.append(next(free))
    return {member_id: frozenset(owned) for member_id, owned in assigned.items()}


class _Uneven:
    """Uniform assignment to members that subscribe to different topics."""

    def __init__(self, members: Members, counts: Counts) -> None:
        self._owned: dict[str, dict[UUID, list[TopicIdPartition]]] = {m: {} for m in members}
        self._loads = dict.fromkeys(members, 0)
        self._subscribers = {
            topic: sorted(m for m in members if topic in members[m].topics)
            for topic in _topics(members.values(), counts)
        }
        for member_id, subscriber in members.items():
            for partition in _still_owned(subscriber, counts):
                self._give(partition, member_id)
        assigned_partitions = {
            partition
            for topics in self._owned.values()
            for own in topics.values()
            for partition in own
        }
        # Topics with few subscribers come first; the other topics fill up what is left.
        topics = sorted(self._subscribers, key=lambda t: (len(self._subscribers[t]), t))
        for topic in topics:
            free = [
                partition
                for partition in _partitions([topic], counts)
                if partition not in assigned_partitions
            ]
            self._spread(free, self._subscribers[topic])
        for _ in range(MAX_PASSES):
            moved = [topic for topic in topics if self._evened(topic)]
            if not moved:
                break

    def assigned(self) -> dict[str, Partitions]:
        return {
            member_id: frozenset(partition for own in topics.values() for partition in own)
            for member_id, topics in self._owned.items()
        }

    def _spread(self, free: Iterable[TopicIdPartition], members: Iterable[str]) -> None:
        """Assign each partition to the member with the fewest partitions at that point."""
        least = [(self._loads[member_id], member_id) for member_id in members]
        heapq.heapify(least)
        for partition in free:
            load, member_id = least[0]
            self._give(partition, member_id)
            heapq.heapreplace(least, (load + 1, member_id))

    def _give(self, partition: TopicIdPartition, member_id: str) -> None:
        self._owned[member_id].setdefault(partition.topic_id, []).append(partition)
        self._loads[member_id] += 1

    def _evened(self, topic: UUID) -> bool:
        """Move partitions of this topic from the most to the least loaded members; return whether
        any moved.  Terminates, as each move reduces the sum of the squared loads."""
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
            # A member that received a partition never gives one, nor the reverse: by then their
            # loads differ by at most one.
            heapq.heapreplace(least, (loads[taker], taker))
            if self._owned[giver][topic]:
                heapq.heapreplace(most, (-loads[giver], giver))
            else:
                heapq.heappop(most)
        return has_moved
