"""What every assignment must be, whoever makes it; and what each strategy promises beyond."""

from __future__ import annotations

import pytest
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyAssignorUserDataV1
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kcli.client.config import ConsumerConfig
from kcli.client.group.assignors import (
    CooperativeSticky,
    FunctionAssignor,
    Range,
    RoundRobin,
    Sticky,
    assignors_of,
    cooperates,
)
from kcli.client.group.group_protocol import Subscription
from kserver.errors import ConfigError
from kserver.model import TopicPartition

TOPICS = ("a", "b", "c")
COUNTS = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 7))
MEMBERS = st.dictionaries(
    st.sampled_from([f"m{n}" for n in range(6)]),
    st.sets(st.sampled_from(TOPICS), min_size=1).map(lambda of: Subscription(tuple(sorted(of)))),
    min_size=1,
)
ALIKE = st.integers(1, 6).map(lambda n: {f"m{m}": Subscription(TOPICS) for m in range(n)})


def loads(plan) -> list[int]:
    return [len(partitions) for partitions in plan.values()]


def moved(before, after) -> int:
    owner = {p: m for m, of in before.items() for p in of}
    return sum(owner.get(p, m) != m for m, of in after.items() for p in of)


def check(plan, counts, members) -> None:
    """Each partition that somebody wants has one owner, who wants it."""
    owned = [p for of in plan.values() for p in of]
    wanted = {t for m in members.values() for t in m.topics} & counts.keys()
    assert sorted(owned) == [TopicPartition(t, n) for t in sorted(wanted) for n in range(counts[t])]
    for member, of in plan.items():
        assert {p.topic for p in of} <= set(members[member].topics)


@pytest.mark.parametrize("strategy", [Range, RoundRobin, Sticky, CooperativeSticky])
@settings(max_examples=40)
@given(counts=COUNTS, members=MEMBERS)
def test_each_partition_has_one_owner(strategy, counts, members):
    check(strategy().assign(counts, members), counts, members)


@pytest.mark.parametrize("strategy", [RoundRobin, Sticky, CooperativeSticky])
@settings(max_examples=40)
@given(counts=COUNTS, members=ALIKE)
def test_members_that_read_the_same_differ_by_one_at_most(strategy, counts, members):
    found = loads(strategy().assign(counts, members))
    assert max(found) - min(found) <= 1


def test_range_gives_neighbours_and_what_is_over_to_the_first():
    members = {name: Subscription(("a", "b")) for name in ("y", "x", "z")}
    plan = Range().assign({"a": 7, "b": 2}, members)
    of_a = {m: [p.partition for p in of if p.topic == "a"] for m, of in plan.items()}
    of_b = {m: [p.partition for p in of if p.topic == "b"] for m, of in plan.items()}
    assert of_a == {"x": [0, 1, 2], "y": [3, 4], "z": [5, 6]}
    assert of_b == {"x": [0], "y": [1], "z": []}


def test_roundrobin_goes_on_from_topic_to_topic():
    members = {name: Subscription(("a", "b")) for name in ("x", "y")}
    plan = RoundRobin().assign({"a": 3, "b": 3}, members)
    assert plan["x"] == [("a", 0), ("a", 2), ("b", 1)]
    assert plan["y"] == [("a", 1), ("b", 0), ("b", 2)]


@pytest.mark.parametrize("strategy", [Range, RoundRobin])
def test_static_members_keep_their_place_whatever_their_member_ids(strategy):
    def plan(first: str, second: str):
        members = {
            first: Subscription(("a",), instance_id="1"),
            second: Subscription(("a",), instance_id="2"),
            "0": Subscription(("a",)),
        }
        return strategy().assign({"a": 6}, members)

    one, other = plan("p", "q"), plan("z", "a")
    assert (one["p"], one["q"], one["0"]) == (other["z"], other["a"], other["0"])
    assert TopicPartition("a", 0) in one["p"]


# Sticky


def rounds(strategy, steps):
    """Rebalances one after the other; yields the plan of each with the one before."""
    assignors: dict = {}
    before: dict = {}
    for generation, (counts, members) in enumerate(steps, 1):
        told = {}
        for name, member in members.items():
            mine = assignors.setdefault(name, strategy())
            owned = tuple(before.get(name, ())) if strategy.cooperative else ()
            told[name] = Subscription(
                member.topics, owned, generation - 1 if owned else -1, None, mine.user_data()
            )
        plan = strategy().assign(counts, told)
        yield counts, members, before, plan
        for name, of in plan.items():
            assignors[name].assigned(of, generation)
        assignors = {name: a for name, a in assignors.items() if name in members}
        before = plan


STEPS = st.lists(st.tuples(COUNTS, MEMBERS), min_size=2, max_size=5)


@settings(max_examples=40)
@given(STEPS)
def test_sticky_stays_whole_and_as_even_as_it_can_be(steps):
    for counts, members, _, plan in rounds(Sticky, steps):
        check(plan, counts, members)
        for member, of in plan.items():
            for partition in of:
                for other, theirs in plan.items():
                    if partition.topic in members[other].topics:
                        assert len(theirs) >= len(of) - 1, (member, other, plan)


@settings(max_examples=40)
@given(COUNTS, MEMBERS)
def test_sticky_moves_nothing_when_nothing_has_changed(counts, members):
    *_, (_, _, before, plan) = rounds(Sticky, [(counts, members)] * 3)
    assert moved(before, plan) == 0


@settings(max_examples=40)
@given(COUNTS, ALIKE)
def test_sticky_moves_no_more_than_a_new_member_gets(counts, members):
    more = members | {"n": Subscription(TOPICS)}
    *_, (_, _, before, plan) = rounds(Sticky, [(counts, members), (counts, more)])
    assert moved(before, plan) == len(plan["n"])


@settings(max_examples=40)
@given(COUNTS, ALIKE.filter(lambda members: len(members) > 1))
def test_sticky_moves_only_what_a_member_leaves_behind(counts, members):
    fewer = dict(list(members.items())[1:])
    *_, (_, _, before, plan) = rounds(Sticky, [(counts, members), (counts, fewer)])
    gone = next(iter(members))
    assert moved(before, plan) == len(before[gone])


@settings(max_examples=40)
@given(STEPS)
def test_cooperative_sticky_never_hands_over_what_another_still_has(steps):
    for _, members, before, plan in rounds(CooperativeSticky, steps):
        for member, of in plan.items():
            for other in members.keys() - {member}:
                assert not set(of) & set(before.get(other, ()))


A, ALL, NOT_C = Subscription(("a",)), Subscription(TOPICS), Subscription(("a", "b"))


@settings(max_examples=100)
@given(COUNTS, MEMBERS, COUNTS, MEMBERS)
# Who has least of all readers of a partition is not who needs it most: m4 reads c alone.
@example(
    {"a": 1, "c": 2},
    {"m0": ALL},
    {"a": 2, "b": 1, "c": 2},
    {"m0": ALL, "m1": A, "m2": NOT_C, "m4": Subscription(("c",)), "m3": ALL},
)
def test_cooperative_sticky_is_whole_after_one_more_rebalance(counts, members, then, others):
    *_, (_, _, _, plan) = rounds(
        CooperativeSticky, [(counts, members), (then, others), (then, others)]
    )
    check(plan, then, others)


@pytest.mark.parametrize("strategy", [Sticky, CooperativeSticky])
def test_of_two_claims_the_newer_generation_holds_and_equal_ones_cancel_out(strategy):
    """So that a member that slept through a rebalance does not take back what it lost."""
    a0, a1 = TopicPartition("a", 0), TopicPartition("a", 1)

    def told(generation: int, *owned: TopicPartition) -> Subscription:
        mine = strategy()
        mine.assigned(owned, generation)
        claim = owned if strategy.cooperative else ()
        return Subscription(("a",), claim, generation, None, mine.user_data())

    def of_y(generation: int):
        # z's claim is without doubt; so it shows what y's is worth
        members = {"x": told(3, a0, a1), "y": told(generation, a0, a1)}
        return strategy().assign({"a": 2}, members)

    if strategy.cooperative:
        # All is claimed by both: nothing goes to anybody before one has let go.
        assert of_y(2) == {"x": [], "y": []}
    else:
        newer, older = of_y(4), of_y(2)
        assert (newer["y"], older["x"]) == ([a1], [a1])
        assert loads(of_y(3)) == [1, 1]


def test_stickys_user_data_is_what_other_libraries_write_and_read():
    a = [TopicPartition("a", n) for n in range(4)]
    mine = Sticky()
    mine.assigned(a[1:3], 5)
    data = mine.user_data()
    theirs = StickyAssignorUserDataV1.decode(data)
    assert theirs.generation == 5
    assert theirs.previous_assignment == [("a", [1, 2])]
    assert theirs.encode() == data
    for told in (data, data[:-4]):  # v0 has no generation
        members = {"x": Subscription(("a",)), "y": Subscription(("a",), user_data=told)}
        assert Sticky().assign({"a": 4}, members) == {"x": [a[0], a[3]], "y": a[1:3]}


def test_user_data_that_is_none_claims_nothing():
    members = {"x": Subscription(("a",), user_data=b"\0\0\xff"), "y": Subscription(("a",))}
    assert loads(Sticky().assign({"a": 4}, members)) == [2, 2]


def test_cooperative_stickys_generation_is_found_in_old_subscriptions_user_data():
    a0 = TopicPartition("a", 0)
    old, new = CooperativeSticky(), CooperativeSticky()
    old.assigned([a0], 1)
    new.assigned([a0], 2)
    members = {
        "x": Subscription(("a",), (a0,), -1, None, old.user_data()),
        "y": Subscription(("a",), (), 2, None, new.user_data()),
    }
    assert CooperativeSticky().assign({"a": 1}, members)["x"] == [a0]


# Names


@pytest.mark.parametrize(
    ("name", "strategy"),
    [
        ("range", Range),
        ("org.apache.kafka.clients.consumer.RoundRobinAssignor", RoundRobin),
        ("StickyAssignor", Sticky),
        ("cooperative-sticky", CooperativeSticky),
        ("tests.unit.client.group.test_assignors.to_the_first", FunctionAssignor),
    ],
)
def test_a_strategy_has_kafkas_names_or_that_of_python_code(name, strategy):
    (found,) = assignors_of([name])
    assert type(found) is strategy


def to_the_first(counts, members):
    everything = [TopicPartition(t, n) for t, count in counts.items() for n in range(count)]
    return {min(members): everything}


def test_a_function_is_a_strategy_of_its_name():
    (own,) = assignors_of([to_the_first])
    assert own.name == "to_the_first"
    assert own.assign({"a": 1}, {"m": Subscription(("a",))}) == {"m": [TopicPartition("a", 0)]}


def test_strategies_that_cannot_be_are_refused():
    with pytest.raises(ConfigError, match="nothing\\.there could not be found"):
        assignors_of(["nothing.there"])
    with pytest.raises(ConfigError, match="range is named twice"):
        assignors_of(["range", Range()])
    with pytest.raises(ConfigError, match="at least one"):
        assignors_of([])


def test_members_keep_reading_only_if_all_their_strategies_let_them():
    default = assignors_of(ConsumerConfig().partition_assignment_strategy)
    assert [a.name for a in default] == ["range", "cooperative-sticky"]
    assert not cooperates(default)
    assert cooperates(assignors_of(["cooperative-sticky"]))
