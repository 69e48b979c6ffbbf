import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kserver.group.assignor import ASSIGNORS, Subscriber, range_, uniform
from kserver.group.consumer_events import TopicIdPartition

TOPICS = [uuid.UUID(int=n) for n in range(1, 6)]
every_assignor = pytest.mark.parametrize("assign", ASSIGNORS.values(), ids=ASSIGNORS)
names = st.sets(st.integers(0, 11).map("m{}".format), min_size=1, max_size=12)
counts = st.dictionaries(st.sampled_from(TOPICS[:4]), st.integers(0, 9))
some_topics = st.frozensets(st.sampled_from(TOPICS))
"""One of them never exists."""


def wanted(members, counts):
    """Every partition that somebody can be given."""
    topics = {t for m in members.values() for t in m.topics if t in counts}
    return {TopicIdPartition(t, n) for t in topics for n in range(counts[t])}


@st.composite
def alike(draw):
    """Members of one subscription, each with something of a target from before."""
    found, topics, ids = draw(counts), draw(some_topics), sorted(draw(names))
    pool = sorted({TopicIdPartition(t, n) for t in TOPICS for n in range(10)})
    owners = draw(st.dictionaries(st.sampled_from(pool), st.sampled_from(ids), max_size=30))
    members = {
        m: Subscriber(topics, frozenset(p for p, owner in owners.items() if owner == m))
        for m in ids
    }
    return members, found


@st.composite
def any_members(draw):
    members, found = draw(alike())
    return {m: s._replace(topics=draw(some_topics)) for m, s in members.items()}, found


@every_assignor
@given(any_members())
def test_each_partition_has_just_one_owner_that_subscribes_to_it(assign, given_):
    members, found = given_
    assigned = assign(members, found)
    assert assigned.keys() == members.keys()
    given_out = [p for owned in assigned.values() for p in owned]
    assert sorted(given_out) == sorted(wanted(members, found))
    for member_id, owned in assigned.items():
        assert {p.topic_id for p in owned} <= members[member_id].topics


@given(alike())
def test_uniform_gives_members_alike_the_same_within_one(given_):
    sizes = [len(owned) for owned in uniform(*given_).values()]
    assert max(sizes) - min(sizes) <= 1


@given(alike())
def test_uniform_moves_no_more_than_balance_takes(given_):
    members, found = given_
    there = wanted(members, found)
    had = {m: len(s.owned & there) for m, s in members.items()}
    least, more = divmod(len(there), len(members))
    # The most that can stay: who had more than the least keeps one more, as long as there is one.
    stay = sum(min(n, least) for n in had.values())
    stay += min(more, sum(n > least for n in had.values()))
    assigned = uniform(members, found)
    assert sum(len(owned & members[m].owned) for m, owned in assigned.items()) == stay


@given(any_members())
def test_uniform_leaves_no_partition_where_moving_it_alone_would_even_members_out(given_):
    members, found = given_
    assigned = uniform(members, found)
    for giver, owned in assigned.items():
        for taker, subscriber in members.items():
            if any(p.topic_id in subscriber.topics for p in owned):
                assert len(owned) - len(assigned[taker]) <= 1, (giver, taker)


@every_assignor
@given(any_members())
def test_what_is_assigned_again_stays(assign, given_):
    members, found = given_
    assigned = assign(members, found)
    again = {m: s._replace(owned=assigned[m]) for m, s in members.items()}
    assert assign(again, found) == assigned


@given(alike())
def test_a_new_member_takes_from_others_only_what_it_keeps(given_):
    members, found = given_
    assigned = uniform(members, found)
    grown = {m: s._replace(owned=assigned[m]) for m, s in members.items()}
    grown["new"] = Subscriber(next(iter(members.values())).topics)
    for member_id, owned in uniform(grown, found).items():
        if member_id != "new":
            assert owned <= assigned[member_id]


@given(alike())
def test_range_gives_each_member_one_run_of_each_topic(given_):
    members, found = given_
    for owned in range_(members, found).values():
        for topic in found:
            numbers = sorted(p.partition for p in owned if p.topic_id == topic)
            assert numbers == list(range(numbers[0], numbers[-1] + 1)) if numbers else True


@given(names, st.integers(0, 9))
def test_range_gives_topics_of_as_many_partitions_alike(ids, count):
    members = {m: Subscriber(frozenset(TOPICS[:2])) for m in ids}
    for owned in range_(members, dict.fromkeys(TOPICS[:2], count)).values():
        first, second = ({p.partition for p in owned if p.topic_id == t} for t in TOPICS[:2])
        assert first == second


def test_range_gives_a_static_member_the_same_under_another_id():
    topics = frozenset(TOPICS[:1])
    before = {"z": Subscriber(topics, instance_id="a"), "m": Subscriber(topics, instance_id="b")}
    after = {"b": Subscriber(topics, instance_id="a"), "m": Subscriber(topics, instance_id="b")}
    assert range_(before, {TOPICS[0]: 3})["z"] == range_(after, {TOPICS[0]: 3})["b"]


@every_assignor
def test_nobody_is_given_nothing(assign):
    assert assign({}, {TOPICS[0]: 3}) == {}
