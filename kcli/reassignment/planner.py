"""Plans of reassignments, with as few bytes to move as possible.

    evacuate     no replica stays on these brokers
    set_rf       every partition has this many replicas
    spread       the replicas of each partition are on as many racks as possible
    rebalance    brokers carry the same, in bytes (within a tenth of the mean), in replicas and in
                 leaders (within one)

Each returns another placement. The first three make only the necessary moves. A new replica goes to
the least loaded broker, of a rack that has none of the partition if possible. The largest
partitions are placed first, since small ones fill the gaps.

A rebalance first spreads over racks. Then it moves bytes from the brokers above the bound, each
time the replica that is just large enough; then it evens out the numbers of replicas, with the
smallest ones; last it evens out leaders, by the order of replicas alone, which costs nothing. No
step makes the result of another worse: neither racks, nor the bytes above the bound.
"""

from __future__ import annotations

import bisect
import math
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from itertools import pairwise

from kcli.reassignment.placement import BrokerLoad, Placement, Replicas
from kserver.model import BrokerId, TopicPartition

TOLERANCE = 0.1
"""Share of the mean by which a broker's bytes may exceed it."""


NOTHING = BrokerLoad(0, 0, 0)


class Unplaceable(Exception):
    """There are fewer brokers than a partition has replicas; the text has both numbers."""


def evacuate(placement: Placement, brokers: Collection[BrokerId]) -> Placement:
    """Move all replicas from these brokers. Raises Unplaceable."""
    racks = {b: rack for b, rack in placement.racks.items() if b not in brokers}
    after = Placement(racks, dict(placement.replicas), placement.sizes)
    for partition in _largest_first(after, after.replicas):
        for broker in [b for b in after.replicas[partition] if b in brokers]:
            others = [b for b in after.replicas[partition] if b != broker]
            after.move(partition, broker, _target(after, partition, others))
    return after


def set_rf(
    placement: Placement, replication_factor: int, partitions: Collection[TopicPartition]
) -> Placement:
    """Give these partitions this many replicas. Raises Unplaceable."""
    after = placement.copy()
    for partition in _largest_first(after, partitions):
        while len(replicas := after.replicas[partition]) > replication_factor:
            gone = _superfluous(after, replicas)
            after.assign(partition, [b for b in replicas if b != gone])
        while len(replicas := after.replicas[partition]) < replication_factor:
            after.assign(partition, [*replicas, _target(after, partition, replicas)])
    return after


def spread(placement: Placement) -> Placement:
    after = placement.copy()
    for partition in _largest_first(after, after.replicas):
        while not after.is_spread(partition):
            replicas = after.replicas[partition]
            source = _superfluous(after, replicas)
            others = [b for b in replicas if b != source]
            after.move(partition, source, _target(after, partition, others))
    return after


def rebalance(placement: Placement) -> Placement:
    after = spread(placement)
    while _even_out_bytes(after) | _even_out_replicas(after):
        pass  # the bytes above the bound shrink with each move of bytes, and never grow
    _even_out_leaders(after)
    return after


def _largest_first(
    placement: Placement, partitions: Iterable[TopicPartition]
) -> list[TopicPartition]:
    return sorted(partitions, key=lambda partition: (-placement.size(partition), partition))


def _target(
    placement: Placement, partition: TopicPartition, others: Collection[BrokerId]
) -> BrokerId:
    """Return the broker to carry another replica, besides `others`."""
    used = placement.racks_of(others)
    free = [broker for broker in placement.racks if broker not in others]
    if not free:
        raise Unplaceable(
            f"{partition} would have {len(others) + 1} replicas, and there are "
            f"{len(placement.racks)} brokers to hold them"
        )
    return min(
        free, key=lambda b: (placement.rack(b) in used, placement.share(b), placement.leaders[b], b)
    )


def _superfluous(placement: Placement, replicas: Replicas) -> BrokerId:
    """Return the broker to lose its replica: removed, or of a rack with another replica, not the
    leader, the most loaded.
    """
    racks = [placement.rack(broker) for broker in replicas]

    def order(broker: BrokerId) -> tuple[bool, bool, bool, float, BrokerId]:
        return (
            broker not in placement.racks,
            racks.count(placement.rack(broker)) > 1,
            broker != replicas[0],
            placement.share(broker),
            broker,
        )

    return max(replicas, key=order)


class _BySize:
    """The partitions of each broker, smallest first."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._by_size: dict[BrokerId, list[tuple[int, TopicPartition]]] = {
            broker: [] for broker in placement.counts
        }
        for partition, replicas in placement.replicas.items():
            for broker in replicas:
                self._by_size[broker].append((placement.size(partition), partition))
        for entries in self._by_size.values():
            entries.sort()

    def move(self, partition: TopicPartition, source: BrokerId, target: BrokerId) -> None:
        key = (self._placement.size(partition), partition)
        replicas = self._by_size[source]
        del replicas[bisect.bisect_left(replicas, key)]
        bisect.insort(self._by_size[target], key)
        self._placement.move(partition, source, target)

    def movable(
        self, source: BrokerId, target: BrokerId, *, least: int, most: float
    ) -> Iterator[TopicPartition]:
        """Yield movable partitions of sizes from `least` to `most`, smallest first; then smaller
        ones, the largest first.
        """
        replicas = self._by_size[source]
        start = bisect.bisect_left(replicas, (least,))
        enough = (replicas[at] for at in range(start, len(replicas)))
        for size, partition in enough:
            if size > most:
                break
            if self._may_move(partition, source, target):
                yield partition
        for at in range(min(start, bisect.bisect_right(replicas, (most, _LAST))) - 1, -1, -1):
            partition = replicas[at][1]
            if self._may_move(partition, source, target):
                yield partition

    def _may_move(self, partition: TopicPartition, source: BrokerId, target: BrokerId) -> bool:
        placement = self._placement
        return target not in placement.replicas[partition] and placement.keeps_racks(
            partition, source, target
        )


_LAST = TopicPartition("\U0010ffff", 0)
"""Sorts after every partition of the same size."""


def _even_out_bytes(placement: Placement) -> bool:
    """Move bytes from brokers above the bound; return whether anything moved."""
    bound = _bound(placement)
    by_size, stuck, moved = _BySize(placement), set[BrokerId](), False
    while over := {b for b in placement.racks if placement.bytes[b] > bound} - stuck:
        source = max(over, key=lambda b: (placement.bytes[b], b))
        if _relieve(placement, by_size, source, bound):
            moved = True
        else:
            stuck.add(source)
    return moved


def _bound(placement: Placement) -> float:
    """Return the bytes that a broker should not exceed, if they can be divided so."""
    return placement.total_bytes / len(placement.racks) * (1 + TOLERANCE)


def _relieve(placement: Placement, by_size: _BySize, source: BrokerId, bound: float) -> bool:
    """Move one replica to a broker that stays below the bound, or else to one that has less than
    the source had; return whether one was moved.
    """
    others = sorted(placement.racks, key=lambda b: (placement.bytes[b], placement.counts[b], b))
    need = math.ceil(placement.bytes[source] - bound)
    for may_pass in (False, True):
        for target in others:
            if target == source:
                continue
            room = (placement.bytes[source] - 1 if may_pass else bound) - placement.bytes[target]
            for partition in by_size.movable(source, target, least=need, most=room):
                if placement.size(partition) == 0:
                    break
                by_size.move(partition, source, target)
                return True
    return False


def _even_out_replicas(placement: Placement) -> bool:
    """Even out the numbers of replicas; return whether anything moved."""
    bound = _bound(placement)
    by_size, stuck, moved = _BySize(placement), set[BrokerId](), False
    counts = placement.counts
    while sources := placement.racks.keys() - stuck:
        source = max(sources, key=lambda b: (counts[b], placement.bytes[b], b))
        targets = sorted(
            (b for b in placement.racks if counts[b] < counts[source] - 1),
            key=lambda b: (counts[b], placement.bytes[b], b),
        )
        for target in targets:
            room = max(bound - placement.bytes[target], 0)
            partition = next(by_size.movable(source, target, least=0, most=room), None)
            if partition is not None:
                by_size.move(partition, source, target)
                moved = True
                break
        else:
            stuck.add(source)
    return moved


def _even_out_leaders(placement: Placement) -> None:
    """Even out leaders along chains of brokers: each passes the leadership of one partition to the
    next, which has a replica of it.
    """
    led: dict[BrokerId, dict[BrokerId, set[TopicPartition]]] = {
        broker: {} for broker in placement.counts
    }
    """Partitions by leader and possible other leader."""

    def note(partition: TopicPartition) -> None:
        leader, *others = placement.replicas[partition]
        for other in others:
            led[leader].setdefault(other, set()).add(partition)

    def hand_over(partition: TopicPartition, target: BrokerId) -> None:
        leader, *others = placement.replicas[partition]
        for other in others:
            led[leader][other].discard(partition)
        placement.lead(partition, target)
        note(partition)

    for partition, replicas in placement.replicas.items():
        if replicas:
            note(partition)
    while True:
        for chain in _chains(placement, led):
            for source, target in pairwise(chain):
                hand_over(min(led[source][target]), target)
            break
        else:
            return


def _chains(
    placement: Placement, led: dict[BrokerId, dict[BrokerId, set[TopicPartition]]]
) -> Iterator[list[BrokerId]]:
    """Yield the shortest chain from the broker that leads most to one that leads at least two
    fewer.
    """
    for first in sorted(placement.racks, key=lambda b: (-placement.leaders[b], b)):
        came_from: dict[BrokerId, BrokerId | None] = {first: None}
        waiting = deque([first])
        while waiting:
            broker = waiting.popleft()
            if placement.leaders[broker] <= placement.leaders[first] - 2:
                chain = [broker]
                while (previous := came_from[chain[-1]]) is not None:
                    chain.append(previous)
                yield chain[::-1]
                return
            for other in sorted(led[broker]):
                if other in placement.racks and led[broker][other] and other not in came_from:
                    came_from[other] = broker
                    waiting.append(other)
