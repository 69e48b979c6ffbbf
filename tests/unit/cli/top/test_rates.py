"""How fast everything goes, from one look at a cluster to the next."""

from __future__ import annotations

from uuid import UUID

import pytest

from kcli.client.cluster import Node
from kcli.client.topic_metadata import PartitionMetadata, TopicMetadata
from kcli.top.rates import GROUP, History, Row, growth, trend
from kcli.top.snapshot import BrokerResponses, DashboardSnapshot, GroupSnapshot, TimedResponse
from kserver.model import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
ID, OTHER_ID = UUID(int=1), UUID(int=2)
SECOND_MS = 1000
EVERY_S = 2
"""How far one look is from the next."""


def partition(number, leader, isr=(1, 2), replicas=(1, 2)):
    return PartitionMetadata(number, leader, 0, replicas, isr, ())


def topic(*partitions, id=ID, name="t"):
    return TopicMetadata(name, id, False, partitions)


WHOLE = topic(partition(0, 1), partition(1, 2))


def look(
    number,
    *,
    ends=None,
    sizes=None,
    groups=None,
    topics=(WHOLE,),
    brokers=(1, 2),
    silent=(),
    no_sizes=(),
):
    """Look `number`: broker 1 leads T0 and coordinates all groups, broker 2 leads T1.

    `ends` by partition, `sizes` by partition, the same at each broker; `groups` their committed
    offsets.
    """
    at_s = number * EVERY_S
    responses = {}
    for broker in brokers:
        if broker in silent:
            responses[broker] = BrokerResponses(is_silent=True)
            continue
        led = {
            TopicPartition(t.name, p.partition)
            for t in topics
            for p in t.partitions
            if p.leader == broker
        }
        own = {p: end for p, end in (ends or {}).items() if p in led}
        of_groups = {
            n: GroupSnapshot("Stable", c) for n, c in (groups or {}).items() if broker == 1
        }
        responses[broker] = BrokerResponses(
            TimedResponse(at_s, own),
            None if broker in no_sizes else TimedResponse(at_s, sizes or {}),
            TimedResponse(at_s, of_groups),
        )
    return DashboardSnapshot(
        number * EVERY_S * SECOND_MS,
        at_s,
        1,
        {id: Node(id, f"h{id}", 9092) for id in brokers},
        {t.name: t for t in topics},
        responses,
    )


def last(*looks):
    history = History()
    seen = None
    for one in looks:
        seen = (
            history.update(one) if isinstance(one, DashboardSnapshot) else history.note_failure(one)
        )
    return seen


def by_name(rows):
    return {row.name: row for row in rows}


def two(*, first, then):
    """The topic, after two looks."""
    return last(look(0, **first), look(1, **then)).topics[0]


ENDS = {T0: 100, T1: 50}
SIZES = {T0: 1000, T1: 500}
MORE_ENDS = {T0: 140, T1: 60}
MORE_SIZES = {T0: 5000, T1: 1500}


def test_growth_by_the_second_is_what_goes_in():
    seen = last(look(0, ends=ENDS, sizes=SIZES), look(1, ends=MORE_ENDS, sizes=MORE_SIZES))
    (of_topic,) = seen.topics
    assert of_topic.records_in_per_second == 25
    assert of_topic.bytes_in_per_second == 2500
    assert of_topic.size_bytes == 6500
    one, other = seen.brokers  # the busier one first
    assert (one.name, one.records_in_per_second, one.bytes_in_per_second) == ("1", 20, 2000)
    assert (other.name, other.records_in_per_second, other.bytes_in_per_second) == ("2", 5, 500)
    assert one.is_controller
    assert not other.is_controller


def test_one_look_tells_no_rates():
    (of_topic,) = last(look(0, ends=ENDS, sizes=SIZES, groups={"g": {T0: 1}})).topics
    assert of_topic.records_in_per_second is of_topic.bytes_in_per_second is None
    assert of_topic.records_out_per_second is of_topic.bytes_out_per_second is None
    assert of_topic.size_bytes == 1500


def test_the_look_before_counts_not_the_first():
    seen = last(look(0, ends=ENDS), look(1, ends=MORE_ENDS), look(2, ends=MORE_ENDS))
    assert seen.topics[0].records_in_per_second == 0


def test_bytes_are_not_known_of_a_log_that_retention_made_shorter_and_records_are():
    found = two(
        first={"ends": ENDS, "sizes": SIZES},
        then={"ends": MORE_ENDS, "sizes": {T0: 10, T1: 1500}},
    )
    assert found.bytes_in_per_second is None
    assert found.records_in_per_second == 25


def test_bytes_are_not_known_where_a_broker_tells_no_sizes():
    seen = last(
        look(0, ends=ENDS, sizes=SIZES),
        look(1, ends=MORE_ENDS, sizes=MORE_SIZES, no_sizes=(2,)),
    )
    brokers = by_name(seen.brokers)
    assert brokers["1"].bytes_in_per_second == 2000
    assert brokers["2"].bytes_in_per_second is brokers["2"].size_bytes is None
    assert seen.topics[0].bytes_in_per_second is seen.topics[0].size_bytes is None
    assert seen.topics[0].records_in_per_second == 25


def test_bytes_are_those_of_one_replica_though_it_did_not_lead_before():
    moved = topic(partition(0, 2), partition(1, 2))
    before = look(0, ends=ENDS, sizes=SIZES)
    before.responses[2] = BrokerResponses(
        before.responses[2].ends, TimedResponse(0, {T0: 3000, T1: 500}), before.responses[2].groups
    )
    now = look(1, ends=MORE_ENDS, sizes=MORE_SIZES, topics=(moved,))
    seen = last(before, now)
    assert seen.topics[0].bytes_in_per_second == (2000 + 1000) / EVERY_S
    assert seen.topics[0].leader_changes == 1
    assert by_name(seen.brokers)["2"].leader_changes == 1
    assert by_name(seen.brokers)["1"].leader_changes == 0


def test_a_topic_made_anew_has_no_rates_though_it_ends_further():
    anew = topic(partition(0, 1), partition(1, 2), id=OTHER_ID)
    found = two(
        first={"ends": ENDS, "sizes": SIZES, "groups": {"g": {T0: 5}}},
        then={
            "ends": MORE_ENDS,
            "sizes": MORE_SIZES,
            "topics": (anew,),
            "groups": {"g": {T0: 10}},
        },
    )
    assert found.records_in_per_second is found.bytes_in_per_second is None
    assert found.records_out_per_second is None


def test_a_topic_without_an_id_that_ends_sooner_has_no_rate():
    old = topic(partition(0, 1), partition(1, 2), id=None)
    found = two(first={"ends": ENDS, "topics": (old,)}, then={"ends": {}, "topics": (old,)})
    assert found.records_in_per_second is None
    shorter = {T0: 5, T1: 60}
    found = two(first={"ends": ENDS, "topics": (old,)}, then={"ends": shorter, "topics": (old,)})
    assert found.records_in_per_second is None


def test_a_partition_without_a_leader_takes_no_records_and_is_told_of():
    offline = topic(partition(0, 1), partition(1, None, isr=(2,)))
    found = two(first={"ends": ENDS}, then={"ends": {T0: 140}, "topics": (offline,)})
    assert found.state == "offline"
    assert (found.offline, found.under_replicated) == (1, 1)
    assert found.records_in_per_second == 20


def test_what_groups_commit_goes_out():
    first = {"ends": ENDS, "groups": {"g": {T0: 50, T1: 10}, "h": {T0: 0}}}
    then = {"ends": MORE_ENDS, "groups": {"g": {T0: 90, T1: 30}, "h": {T0: 10}}}
    seen = last(look(0, **first), look(1, **then))
    groups = by_name(seen.groups)
    assert groups["g"].records_out_per_second == 30
    assert groups["h"].records_out_per_second == 5
    assert seen.topics[0].records_out_per_second == 35
    brokers = by_name(seen.brokers)
    assert brokers["1"].records_out_per_second == 25
    assert brokers["2"].records_out_per_second == 10


def test_records_out_are_told_over_several_looks_for_commits_come_in_leaps():
    commits = [0, 0, 100, 100, 100, 200]
    looks = [look(n, ends=ENDS, groups={"g": {T0: c}}) for n, c in enumerate(commits)]
    seen = last(*looks)
    assert seen.groups[0].records_out_per_second == 200 / (5 * EVERY_S)
    long_ago = last(*looks, *(look(n, ends=ENDS, groups={"g": {T0: 200}}) for n in range(6, 17)))
    assert long_ago.groups[0].records_out_per_second == 0


def test_an_offset_that_is_set_back_is_not_read_backwards():
    groups = [{"g": {T0: c}} for c in (50, 90, 10, 30)]
    looks = [look(n, ends=ENDS, groups=of) for n, of in enumerate(groups)]
    assert last(*looks[:3]).groups[0].records_out_per_second is None
    assert last(*looks).groups[0].records_out_per_second == 20 / EVERY_S


def test_bytes_out_are_as_large_as_the_records_that_come_in():
    seen = last(
        look(0, ends=ENDS, sizes=SIZES, groups={"g": {T0: 0}}),
        look(1, ends=MORE_ENDS, sizes=MORE_SIZES, groups={"g": {T0: 10}}),
        # Nothing comes in any more, and the group reads on.
        look(2, ends=MORE_ENDS, sizes=MORE_SIZES, groups={"g": {T0: 20}}),
    )
    assert seen.groups[0].bytes_out_per_second == 5 * 100
    assert seen.topics[0].bytes_out_per_second == 5 * 100


def test_bytes_out_are_not_known_before_any_record_came_in():
    seen = last(
        look(0, ends=ENDS, sizes=SIZES, groups={"g": {T0: 0}, "idle": {T0: 1}}),
        look(1, ends=ENDS, sizes=SIZES, groups={"g": {T0: 10}, "idle": {T0: 1}}),
    )
    groups = by_name(seen.groups)
    assert groups["g"].bytes_out_per_second is None
    assert groups["g"].records_out_per_second == 5
    assert groups["idle"].bytes_out_per_second == 0


def test_lag_is_what_is_left_to_read_and_those_with_the_most_stand_first():
    groups = {"a": {T0: 90}, "b": {T0: 10, T1: 40}, "ahead": {T0: 101}}
    seen = last(look(0, ends=ENDS, groups=groups))
    assert [(row.name, row.lag) for row in seen.groups] == [("b", 100), ("a", 10), ("ahead", 0)]
    assert seen.groups[0].partitions == 2
    assert seen.groups[0].lag_trend is None


def test_lag_is_not_known_where_one_end_is_not():
    seen = last(look(0, ends={T0: 100}, groups={"g": {T0: 10, T1: 40}}))
    assert seen.groups[0].lag is None


def test_what_was_committed_for_a_topic_that_is_gone_is_nothing_to_read():
    gone = TopicPartition("gone", 0)
    seen = last(look(0, ends=ENDS, groups={"g": {T0: 10, gone: 40}}))
    assert (seen.groups[0].lag, seen.groups[0].partitions) == (90, 1)


@pytest.mark.parametrize(
    ("ends", "change", "told"),
    [
        ((100, 200, 300), 50, "growing"),
        ((300, 200, 100), -50, "shrinking"),
        ((100, 100, 100), 0, "steady"),
        ((100_000, 100_100, 100_200), 50, "steady"),
    ],
)
def test_the_trend_of_lag(ends, change, told):
    looks = [look(n, ends={T0: end}, groups={"g": {T0: 0}}) for n, end in enumerate(ends)]
    (group,) = last(*looks).groups
    assert (group.lag_per_second, group.lag_trend) == (change, told)


@pytest.mark.parametrize(("lag", "per_second"), [(None, None), (1, None), (None, 1.0)])
def test_there_is_no_trend_of_what_is_not_known(lag, per_second):
    assert trend(lag, per_second) is None


def test_a_group_that_vanished_is_not_shown():
    seen = last(look(0, ends=ENDS, groups={"g": {T0: 1}}), look(1, ends=ENDS))
    assert seen.groups == []


def test_a_group_whose_coordinator_does_not_answer_is_still_there_and_what_is_read_is_not_known():
    seen = last(
        look(0, ends=ENDS, groups={"g": {T0: 1}}),
        look(1, ends=MORE_ENDS, silent=(1,)),
        look(2, ends=MORE_ENDS, silent=(1,)),
    )
    assert seen.groups == [Row(GROUP, "g")]
    assert seen.topics[0].records_out_per_second is None


def test_a_group_that_came_back_has_no_rate_from_before():
    group = {"g": {T0: 10}}
    seen = last(
        look(0, ends=ENDS, groups=group),
        look(1, ends=ENDS),
        look(2, ends=MORE_ENDS, groups={"g": {T0: 90}}),
    )
    assert seen.groups[0].records_out_per_second is seen.groups[0].lag_per_second is None


def test_a_broker_that_does_not_answer_stands_first_with_when_it_did():
    seen = last(
        look(0, ends=ENDS, sizes=SIZES),
        look(1, ends=MORE_ENDS, sizes=MORE_SIZES),
        look(2, ends=MORE_ENDS, sizes=MORE_SIZES, silent=(2,)),
        look(3, ends=MORE_ENDS, sizes=MORE_SIZES, silent=(2,)),
    )
    away, up = seen.brokers
    assert (away.name, away.state, away.address) == ("2", "away", "h2:9092")
    assert away.away_since_ms == EVERY_S * SECOND_MS
    assert away.records_in_per_second is away.size_bytes is None
    assert (up.state, up.records_in_per_second) == ("up", 0)
    assert seen.away == 1
    assert seen.topics[0].records_in_per_second is None


def test_a_broker_that_left_the_cluster_is_away_and_one_that_was_never_there_too():
    replicated = topic(partition(0, 1, isr=(1,), replicas=(1, 2, 7)))
    seen = last(look(0, ends=ENDS), look(1, ends=ENDS, brokers=(1,), topics=(replicated,)))
    rows = by_name(seen.brokers)
    assert (rows["2"].state, rows["2"].away_since_ms, rows["2"].address) == ("away", 0, "h2:9092")
    assert (rows["7"].state, rows["7"].away_since_ms, rows["7"].address) == ("away", None, None)
    assert rows["7"].under_replicated == 1


def test_while_no_broker_answers_all_are_away_and_the_rest_is_as_it_was():
    first, then = look(0, ends=ENDS, groups={"g": {T0: 1}}), look(1, ends=MORE_ENDS)
    seen = last(first, then)
    missed = last(first, then, "Connection refused", "Connection refused")
    assert [(row.state, row.away_since_ms) for row in missed.brokers] == [("away", 2000)] * 2
    assert (missed.topics, missed.groups) == (seen.topics, seen.groups)
    assert missed.missing == "Connection refused"
    assert missed.controller is None
    half = look(1, ends=MORE_ENDS, silent=(2,))
    since = [row.away_since_ms for row in last(first, half, "Connection refused").brokers]
    assert since == [0, 2000]  # the one that had been away already stands first
    back = last(first, then, "Connection refused", look(4, ends={T0: 200, T1: 60}))
    assert back.missing == ""
    assert back.topics[0].records_in_per_second == 60 / (3 * EVERY_S)
    assert {row.state for row in back.brokers} == {"up"}


def test_changes_of_the_isr_are_counted_from_the_first_look_on():
    def seen_with(*isrs):
        looks = [
            look(n, ends=ENDS, topics=(topic(partition(0, 1, isr), partition(1, 2)),))
            for n, isr in enumerate(isrs)
        ]
        seen = last(*looks)
        (of_topic,) = seen.topics
        brokers = by_name(seen.brokers)
        return [(r.isr_left, r.isr_joined) for r in (of_topic, brokers["1"], brokers["2"])]

    assert seen_with((1, 2), (1, 2)) == [(0, 0), (0, 0), (0, 0)]
    assert seen_with((1, 2), (1,)) == [(1, 0), (0, 0), (1, 0)]
    assert seen_with((1, 2), (1,), (2, 1), (2,)) == [(2, 1), (1, 0), (1, 1)]


def test_a_topic_made_anew_changes_no_isr():
    anew = topic(partition(0, 1, isr=(1,)), partition(1, 1), id=OTHER_ID)
    found = two(first={"ends": ENDS}, then={"ends": ENDS, "topics": (anew,)})
    assert (found.isr_left, found.leader_changes) == (0, 0)


def test_a_leader_that_comes_back_is_one_change():
    gone = topic(partition(0, None), partition(1, 2))
    looks = [look(0, ends=ENDS), look(1, ends=ENDS, topics=(gone,)), look(2, ends=ENDS)]
    assert last(*looks[:2]).topics[0].leader_changes == 0
    assert last(*looks).topics[0].leader_changes == 1


def test_topics_that_are_not_well_stand_before_the_busiest():
    def one(name, **fields):
        return topic(partition(0, 1, **fields), name=name)

    topics = (
        one("idle"),
        one("busy"),
        one("lagging", isr=(1,)),
        topic(partition(0, None, isr=(2,)), name="offline"),
    )
    busy = TopicPartition("busy", 0)
    flat = {TopicPartition(t.name, 0): 0 for t in topics}
    seen = last(look(0, ends=flat, topics=topics), look(1, ends=flat | {busy: 9}, topics=topics))
    assert [row.name for row in seen.topics] == ["offline", "lagging", "busy", "idle"]
    assert [row.state for row in seen.topics] == ["offline", "under-replicated", "ok", "ok"]


@pytest.mark.parametrize(
    ("before", "now", "rate"),
    [
        (TimedResponse(0, 10), TimedResponse(4, 30), 5),
        (TimedResponse(0, 10), TimedResponse(4, 10), 0),
        (TimedResponse(0, 10), TimedResponse(4, 9), None),
        (TimedResponse(4, 10), TimedResponse(4, 30), None),
        (None, TimedResponse(4, 30), None),
        (TimedResponse(0, 10), None, None),
    ],
)
def test_growth_is_known_where_both_are_and_nothing_went_back(before, now, rate):
    assert growth(before, now) == rate
