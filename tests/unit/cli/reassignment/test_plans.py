"""`k reassign-partitions`: what its files hold, what it prints, where it places replicas."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcli.command.options import Refused
from kcli.reassignment.plans import (
    TopicPartitionReplica,
    brokers_of,
    executable,
    plan_of,
    plan_text,
    proposed,
    topics_of,
)
from kserver.model import TopicPartition

FILE = "plan.json"
FOO_0, FOO_1 = TopicPartition("foo", 0), TopicPartition("foo", 1)


def entry(**fields):
    return {"topic": "foo", "partition": 0, "replicas": [1, 2]} | fields


def document(*entries, **fields):
    return {"partitions": list(entries)} | fields


def test_a_plan_names_replicas_and_the_directories_of_some():
    plan = plan_of(
        document(entry(log_dirs=["any", "/d"]), entry(partition=1, replicas=[3]), version=1), FILE
    )
    assert plan.targets == ((FOO_0, (1, 2)), (FOO_1, (3,)))
    assert plan.log_dirs == {TopicPartitionReplica(2, FOO_0): "/d"}
    assert executable(plan) is plan
    assert plan_of({}, FILE).targets == ()


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        ([], "plan.json: The JSON must be an object, but is []"),
        (document(version=2), "Not supported version field value 2"),
        (document(version="1"), 'plan.json: "version" must be the integer 1, but is "1"'),
        (document(version=True), 'plan.json: "version" must be the integer 1, but is true'),
        ({"partitions": {}}, 'plan.json: "partitions" must be a list, but is {}'),
        (document(entry(), 7), 'plan.json: Entry 1 of "partitions" is invalid: 7'),
        (document({"topic": "foo", "partition": 0}), 'plan.json: Entry 0 of "partitions"'),
        (document(entry(topic=1)), 'plan.json: Entry 0 of "partitions"'),
        (document(entry(partition="0")), 'plan.json: Entry 0 of "partitions"'),
        (document(entry(partition=True)), 'plan.json: Entry 0 of "partitions"'),
        (document(entry(partition=-1)), 'plan.json: Entry 0 of "partitions"'),
        (document(entry(replicas=["1"])), 'plan.json: Entry 0 of "partitions"'),
        (document(entry(replicas=[1 << 31])), 'plan.json: Entry 0 of "partitions"'),
        (document(entry(log_dirs=[1, 2])), 'plan.json: Entry 0 of "partitions"'),
        (
            document(entry(log_dirs=["any"])),
            "Size of replicas list [1, 2] is different from size of log dirs list [any] for "
            "partition foo-0",
        ),
    ],
)
def test_what_is_no_plan_is_refused_with_what_is_wrong(plan, why):
    with pytest.raises(Refused) as caught:
        plan_of(plan, FILE)
    assert str(caught.value).startswith(why)


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        ([], "Partition reassignment list cannot be empty"),
        ([entry(replicas=[])], "Partition replica list cannot be empty"),
        (
            [entry(), entry(replicas=[3]), entry(partition=1)],
            "Partition reassignment contains duplicate topic partitions: foo-0",
        ),
        (
            [entry(replicas=[1, 2, 1]), entry(partition=1, replicas=[3, 3])],
            "Partition replica lists may not contain duplicate entries: foo-0 contains multiple "
            "entries for 1. foo-1 contains multiple entries for 3",
        ),
    ],
)
def test_a_plan_that_no_cluster_could_carry_out_is_refused(entries, why):
    plan = plan_of(document(*entries), FILE)
    with pytest.raises(Refused) as caught:
        executable(plan)
    assert str(caught.value) == why


def test_topics_and_brokers_to_plan_for():
    assert topics_of({"topics": [{"topic": "b"}, {"topic": "a"}], "version": 1}, FILE) == ["b", "a"]
    assert brokers_of("2,0,1,") == [2, 0, 1]
    with pytest.raises(Refused, match=r"contains duplicate entries: \[a\]"):
        topics_of({"topics": [{"topic": "a"}, {"topic": "a"}]}, FILE)
    with pytest.raises(Refused, match=r'plan\.json: Entry 0 of "topics"'):
        topics_of({"topics": ["a"]}, FILE)
    with pytest.raises(Refused, match=r"Broker list contains duplicate entries: \[1\]"):
        brokers_of("1,2,1")
    for text in ("", "1,x", "1, 2"):
        with pytest.raises(Refused, match="For input string"):
            brokers_of(text)


def test_a_plan_is_printed_in_one_line_by_topic_and_partition():
    log_dirs = {TopicPartitionReplica(2, FOO_0): "/d"}
    assert plan_text({FOO_1: (1,), FOO_0: (1, 2)}, log_dirs) == (
        '{"version":1,"partitions":['
        '{"topic":"foo","partition":0,"replicas":[1,2],"log_dirs":["any","/d"]},'
        '{"topic":"foo","partition":1,"replicas":[1],"log_dirs":["any"]}]}'
    )


names = st.sampled_from(["a", "b", "ä"])
partitions = st.builds(TopicPartition, names, st.integers(0, 20))
brokers = st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True)
plans = st.dictionaries(partitions, brokers, min_size=1)


@given(plans)
def test_what_is_printed_is_read_as_it_was(plan):
    read = executable(plan_of(json.loads(plan_text(plan)), FILE))
    assert {p: list(of) for p, of in read.targets} == plan
    assert read.log_dirs == {}


def test_topics_are_placed_as_kafka_places_them():
    """The examples of KIP-36 and of Kafka's AdminUtils, from the start 0."""
    current = {TopicPartition("t", n): [9, 8, 7] for n in range(10)}
    rackless = dict.fromkeys(range(5))
    found = proposed(current, rackless, {"t": (0, 0)})
    firsts = [replicas[0] for _, replicas in sorted(found.items())]
    assert firsts == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]
    assert found[TopicPartition("t", 0)] == (0, 1, 2)
    assert found[TopicPartition("t", 5)] == (0, 2, 3)
    racks = {0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"}
    found = proposed(current, racks, {"t": (0, 0)})
    assert [found[TopicPartition("t", n)] for n in range(7)] == [
        (0, 3, 1),
        (3, 1, 5),
        (1, 5, 4),
        (5, 4, 2),
        (4, 2, 0),
        (2, 0, 3),
        (0, 4, 2),
    ]


@given(
    counts=st.dictionaries(names, st.tuples(st.integers(1, 12), st.integers(1, 3)), min_size=1),
    racks=st.dictionaries(st.integers(0, 99), st.sampled_from("xyz"), min_size=3, max_size=9),
    has_racks=st.booleans(),
    start=st.tuples(st.integers(0, 8), st.integers(0, 8)),
)
def test_a_proposal_spreads_each_topic_over_the_brokers_and_their_racks(
    counts, racks, has_racks, start
):
    current = {
        TopicPartition(topic, n): list(range(200, 200 + replicas))
        for topic, (count, replicas) in counts.items()
        for n in range(count)
    }
    known = racks if has_racks else dict.fromkeys(racks)
    found = proposed(current, known, dict.fromkeys(counts, start))
    assert found.keys() == current.keys()
    for partition, replicas in found.items():
        assert len(replicas) == len(set(replicas)) == len(current[partition])
        assert set(replicas) <= set(racks)
        if has_racks:
            spread = len({racks[broker] for broker in replicas})
            assert spread == min(len(replicas), len(set(racks.values())))
    for topic, (count, _) in counts.items():
        led = [found[TopicPartition(topic, n)][0] for n in range(count)]
        times = [led.count(broker) for broker in racks]
        assert max(times) - min(times) <= 1


def test_too_few_brokers_are_told():
    with pytest.raises(Refused, match="factor of 3 cannot be reached because only 2 broker"):
        proposed({FOO_0: [1, 2, 3]}, {1: None, 2: None}, {"foo": (0, 0)})
