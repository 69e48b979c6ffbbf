"""Plans move what they must and nothing else, and leave brokers even."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcli.reassignment.placement import Placement, bytes_moved, changes
from kcli.reassignment.planner import (
    TOLERANCE,
    Unplaceable,
    evacuate,
    rebalance,
    set_rf,
    spread,
)
from kserver.controller.placement import place
from kserver.model import TopicPartition

MB = 1 << 20


def placement(replicas, *, brokers=3, racks=None, sizes=None):
    """Of partitions t-0, t-1, ...; all of 1 MB unless told otherwise."""
    partitions = [TopicPartition("t", number) for number in range(len(replicas))]
    return Placement(
        racks or dict.fromkeys(range(1, brokers + 1)),
        dict(zip(partitions, replicas, strict=True)),
        dict(zip(partitions, sizes or [MB] * len(replicas), strict=True)),
    )


def replicas(placement):
    return list(placement.replicas.values())


def check(placement):
    """What the placement has counted is what there is."""
    fresh = placement.copy()
    assert placement.loads() == fresh.loads()
    assert placement.total_bytes == fresh.total_bytes
    assert placement.total_replicas == fresh.total_replicas
    for replicas in placement.replicas.values():
        assert len(set(replicas)) == len(replicas)


def spans(values):
    return max(values) - min(values)


RACKS = {1: "a", 2: "a", 3: "b", 4: "b"}


@pytest.mark.parametrize(
    ("plan", "before", "after"),
    [
        # Who leaves is replaced in its place, by who carries least.
        (lambda p: evacuate(p, {2}), [(1, 2), (2, 1)], [(1, 3), (3, 1)]),
        # Nothing is on it: nothing moves.
        (lambda p: evacuate(p, {2}), [(1, 3)], [(1, 3)]),
        # Who carries least; of those that carry the same, who leads least.
        (lambda p: set_rf(p, 2, p.replicas), [(1,), (2,)], [(1, 3), (2, 3)]),
        # The leader stays; the more loaded of the others goes.
        (lambda p: set_rf(p, 2, p.replicas), [(1, 2, 3), (2,)], [(1, 3), (2, 3)]),
        (lambda p: set_rf(p, 1, p.replicas), [(3, 1, 2)], [(3,)]),
        # Even already, though each in its own order.
        (rebalance, [(1, 2), (2, 3), (3, 1)], [(1, 2), (2, 3), (3, 1)]),
        # The order of replicas is enough for leaders.
        (rebalance, [(1, 2), (1, 3), (2, 3)], None),
        (rebalance, [(1, 2, 3), (1, 2, 3), (1, 2, 3)], None),
    ],
)
def test_plans(plan, before, after):
    found = plan(placement(before))
    check(found)
    if after is None:
        assert bytes_moved(placement(before), found) == 0
        assert spans(found.leaders.values()) <= 1
    else:
        assert replicas(found) == after


def test_a_broker_that_is_gone_is_replaced_before_any_other():
    found = set_rf(placement([(9, 1, 2)]), 2, [TopicPartition("t", 0)])
    assert replicas(found) == [(1, 2)]
    assert replicas(evacuate(placement([(9, 1), (1, 9)], brokers=2), {9})) == [(2, 1), (1, 2)]


def test_too_few_brokers_are_told_of():
    with pytest.raises(Unplaceable, match="t-0 would have 3 replicas, and there are 2 brokers"):
        evacuate(placement([(1, 2, 3)]), {3})
    with pytest.raises(Unplaceable, match="4 replicas"):
        set_rf(placement([(1, 2, 3)]), 4, [TopicPartition("t", 0)])


def test_spreading_over_racks_moves_one_replica_of_each_that_is_not():
    before = placement([(1, 2), (3, 4), (1, 3)], racks=RACKS)
    after = spread(before)
    assert all(map(after.is_spread, after.replicas))
    assert bytes_moved(before, after) == 2 * MB
    assert after.replicas[TopicPartition("t", 2)] == (1, 3)
    # The preferred leader is not who moves.
    assert [r[0] for r in replicas(after)] == [1, 3, 1]


def test_racks_do_not_count_where_only_some_are_told():
    before = placement([(1, 2), (3, 4)], racks=RACKS | {4: None})
    assert replicas(spread(before)) == replicas(before)


def test_a_new_broker_gets_its_share_and_nothing_else_moves():
    before = placement([tuple(p) for p in combinations((1, 2, 3), 2)] * 40, brokers=4)
    after = rebalance(before)
    check(after)
    assert spans(after.counts.values()) == 0
    assert spans(after.leaders.values()) <= 1
    # 240 replicas of 1 MB: 60 of them are the fourth's.
    assert bytes_moved(before, after) == 60 * MB


def test_the_one_large_replica_moves_and_not_many_small_ones():
    sizes = [100 * MB, 100 * MB, *[MB] * 20]
    before = placement([(1,), (1,), *[(1,)] * 10, *[(2,)] * 10], brokers=2, sizes=sizes)
    after = rebalance(before)
    assert after.bytes[1] <= before.total_bytes / 2 * (1 + TOLERANCE)
    assert bytes_moved(before, after) <= 101 * MB


def test_what_cannot_be_divided_is_left_where_it_is():
    before = placement([(1,), (2,)], brokers=2, sizes=[100 * MB, MB])
    assert replicas(rebalance(before)) == replicas(before)


@st.composite
def placements(draw):
    random = Random(draw(st.integers(0, 2**32)))
    brokers = range(1, draw(st.integers(1, 8)) + 1)
    rack_count = draw(st.integers(1, 3))
    racks = {b: f"r{b % rack_count}" for b in brokers}
    partitions = draw(st.integers(0, 40))
    held = [
        tuple(random.sample(brokers, random.randint(1, min(3, len(brokers)))))
        for _ in range(partitions)
    ]
    sizes = [random.choice([0, 1, 10, 1000, random.randrange(10**6)]) for _ in held]
    return placement(held, racks=racks, sizes=sizes)


@given(placements())
def test_a_rebalance_makes_nothing_worse_and_stays_where_it_is(before):
    after = rebalance(before)
    check(after)
    assert {p: len(r) for p, r in before.replicas.items()} == {
        p: len(r) for p, r in after.replicas.items()
    }
    assert all(map(after.is_spread, after.replicas))
    spread_first = spread(before)
    assert max(after.bytes.values()) <= max(
        *spread_first.bytes.values(), before.total_bytes / len(before.racks) * (1 + TOLERANCE), 0
    )
    assert bytes_moved(after, rebalance(after)) == 0
    # No two brokers, one leading two more than the other, share a partition that could be handed.
    for high, low in product(after.racks, repeat=2):
        if after.leaders[high] > after.leaders[low] + 1:
            assert not any(r[0] == high and low in r for r in replicas(after))


@given(placements(), st.data())
def test_an_evacuation_moves_what_is_there_and_nothing_else(before, data):
    gone = data.draw(st.sets(st.sampled_from(sorted(before.racks)), max_size=2))
    try:
        after = evacuate(before, gone)
    except Unplaceable:
        assert max(len(r) for r in replicas(before)) > len(before.racks.keys() - gone)
        return
    check(after)
    assert not any(set(r) & gone for r in replicas(after))
    assert bytes_moved(before, after) == sum(
        before.size(p) * len(gone & set(r)) for p, r in before.replicas.items()
    )
    assert changes(before, after).keys() == {p for p, r in before.replicas.items() if set(r) & gone}


@given(placements(), st.integers(1, 3))
def test_another_replication_factor_keeps_what_is_there(before, factor):
    if factor > len(before.racks):
        return
    after = set_rf(before, factor, before.replicas)
    check(after)
    for partition, was in before.replicas.items():
        now = after.replicas[partition]
        assert len(now) == factor
        assert set(now) <= set(was) or set(was) <= set(now)
        assert now[0] == was[0]


def test_fewer_bytes_move_than_by_a_placement_anew():
    """Which is what `--generate` proposes, whatever there is."""
    random = Random(7)
    brokers = dict.fromkeys(range(1, 13))
    held = place(dict.fromkeys(range(1, 11)), 600, 3, start=0, shift=0)
    sizes = [random.randrange(1 << 30) for _ in held]
    before = placement(held, racks=brokers, sizes=sizes)
    ours = rebalance(before)
    theirs = placement(place(brokers, 600, 3, start=0, shift=0), racks=brokers, sizes=sizes)
    # Two new ones of twelve: a sixth of all bytes, and no more, has to move.
    share = before.total_bytes / 6
    assert bytes_moved(before, ours) <= 1.1 * share
    assert bytes_moved(before, theirs) > 3 * share
    mean = before.total_bytes / 12
    assert max(ours.bytes.values()) <= mean * (1 + TOLERANCE)
    assert spans(ours.leaders.values()) <= 1
    assert Counter(map(len, replicas(ours))) == {3: 600}


def test_a_large_cluster_grows_by_a_tenth():
    """Ten thousand partitions, few of them large, on a hundred brokers in five racks."""
    random = Random(1)
    racks = {broker: f"r{broker % 5}" for broker in range(1, 101)}
    there = dict(list(racks.items())[:90])
    held = place(there, 10_000, 3, start=0, shift=0)
    sizes = [int(random.paretovariate(2) * 1e6) for _ in held]
    before = placement(held, racks=racks, sizes=sizes)
    after = rebalance(before)
    check(after)
    assert all(map(after.is_spread, after.replicas))
    share = before.total_bytes / 10
    assert 0.8 * share < bytes_moved(before, after) < 1.3 * share
    mean = before.total_bytes / 100
    assert max(after.bytes.values()) <= mean * (1 + TOLERANCE)
    assert spans(after.counts.values()) <= 1
    assert spans(after.leaders.values()) <= 1
