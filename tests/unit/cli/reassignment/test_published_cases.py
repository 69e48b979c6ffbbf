"""Our plans beside those that other planners' own tests expect of them, over the same placements.

topicctl: pkg/apply/rebalancers/frequency_test.go, twelve brokers.  kafka-kit's topicmappr:
mapper/partitions_test.go, four brokers in three racks; sizes are those of its stub.
"""

from __future__ import annotations

import pytest

from kcli.reassignment.placement import bytes_moved
from kcli.reassignment.planner import TOLERANCE, evacuate, rebalance
from tests.unit.cli.reassignment.test_planner import MB, placement

TWELVE = dict.fromkeys(range(1, 13))
SIMPLE = [(1, 2, 3), (1, 4, 5), (3, 2, 7)]
THREE_GROUPS = [(1, 2, 3), (4, 5, 6), (7, 8, 9)]

TOPICCTL = {
    "simple": (SIMPLE, (), [(6, 9, 3), (1, 4, 5), (8, 2, 7)]),
    "simple, by chance": (SIMPLE, (), [(1, 6, 3), (12, 4, 5), (8, 2, 7)]),
    "removals": (SIMPLE, (1, 7), [(6, 10, 3), (8, 4, 5), (9, 2, 11)]),
    "large removals": (
        THREE_GROUPS,
        range(1, 10),
        [(12, 10, 11), (11, 10, 12), (10, 11, 12)],
    ),
    "big": (
        THREE_GROUPS * 3,
        (),
        [
            *((12, 4, 8), (11, 1, 2), (10, 7, 1), (5, 11, 4), (3, 10, 7), (2, 12, 5)),
            *THREE_GROUPS,
        ],
    ),
    "big, by chance": (
        THREE_GROUPS * 3,
        (),
        [
            *((1, 2, 3), (4, 5, 2), (11, 8, 5), (12, 10, 7), (9, 7, 6), (7, 11, 8)),
            *((8, 4, 12), (10, 1, 4), (6, 12, 9)),
        ],
    ),
    "big, removals": (
        THREE_GROUPS * 3,
        (1,),
        [
            *((10, 6, 4), (3, 7, 2), (2, 4, 5), (11, 10, 8), (8, 12, 7), (5, 11, 10)),
            *((12, 2, 3), (4, 5, 6), (7, 8, 9)),
        ],
    ),
}


def unevenness(placement):
    """How far apart brokers are in replicas, and in leaders."""
    counts = [placement.counts[broker] for broker in placement.racks]
    leaders = [placement.leaders[broker] for broker in placement.racks]
    return max(counts) - min(counts), max(leaders) - min(leaders)


@pytest.mark.parametrize(("before", "gone", "theirs"), TOPICCTL.values(), ids=TOPICCTL)
def test_no_more_moves_than_by_topicctl_and_brokers_are_as_even(before, gone, theirs):
    there = placement(before, racks=TWELVE)
    ours = rebalance(evacuate(there, gone))
    left = ours.racks
    their_plan = placement(theirs, racks=left)
    assert bytes_moved(there, ours) <= bytes_moved(there, their_plan)
    assert unevenness(ours) <= unevenness(their_plan)
    assert not {broker for replicas in ours.replicas.values() for broker in replicas} & set(gone)


FOUR = dict.fromkeys(range(1, 5))
BY_STORAGE = [(4, 3), (3, 4), (1, 2), (3, 2), (1, 3), (2, 1)]
SIZES = [1000, 1500, 2000, 2500, 2200, 4000]
TOPICMAPPR = {
    "distribution": [(3, 1), (4, 2), (4, 3), (2, 3), (3, 4), (1, 2)],
    "storage": [(2, 1), (3, 4), (2, 1), (4, 3), (3, 4), (1, 2)],
}


@pytest.mark.parametrize("theirs", TOPICMAPPR.values(), ids=TOPICMAPPR)
def test_fewer_bytes_move_than_by_topicmappr(theirs):
    there = placement(BY_STORAGE, racks=FOUR, sizes=SIZES)
    ours, their_plan = rebalance(there), placement(theirs, racks=FOUR, sizes=SIZES)
    assert bytes_moved(there, ours) < bytes_moved(there, their_plan)
    assert max(ours.bytes.values()) <= there.total_bytes / len(FOUR) * (1 + TOLERANCE)
    assert spread_of_bytes(ours) <= spread_of_bytes(their_plan)


def spread_of_bytes(placement):
    return max(placement.bytes.values()) - min(placement.bytes.values())


def test_a_broker_is_replaced_over_as_few_bytes_as_by_topicmappr():
    there = placement([(1, 2), (2, 1), (3, 4, 1), (4, 3, 2)], racks=FOUR)
    ours = evacuate(there, {4})
    theirs = placement([(1, 2), (2, 1), (3, 2, 1), (1, 3, 2)], racks=ours.racks)
    assert bytes_moved(there, ours) == bytes_moved(there, theirs) == 2 * MB
    assert unevenness(ours) <= unevenness(theirs)
