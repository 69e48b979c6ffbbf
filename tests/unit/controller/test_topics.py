"""Rules and texts as an Apache Kafka 4.3.1 broker answered them."""

import re
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kserver import znodes
from kserver.config.broker import BrokerConfig
from kserver.controller import topics as rules
from kserver.controller.context import Returned, next_state
from kserver.controller.topics import CreatablePartitions, CreatableTopic
from kserver.errors import ErrorCode, KafkaError
from kserver.metadata import PartitionInfo, TopicInfo, check_topic_name
from kserver.model import LeaderAndIsr
from kserver.world.zookeeper import Create, SetData

CONFIG = BrokerConfig()
ONE_BROKER = {1: None}
THREE_BROKERS = {1: None, 2: None, 3: None}
TOPIC_ID = UUID(int=77)


def create(new, topics=(), racks=ONE_BROKER, config=CONFIG):
    return rules.create(new, topics, racks, config, topic_id=TOPIC_ID, start=0, shift=0)


def topic_of(partitions, replicas=(1,)):
    return TopicInfo(
        "foo",
        TOPIC_ID,
        tuple(PartitionInfo(p, replicas[0], 0, replicas, replicas) for p in range(partitions)),
    )


def refusal(call, *arguments, **keywords):
    with pytest.raises(KafkaError) as refused:
        call(*arguments, **keywords)
    return refused.value.code, refused.value.message


def test_a_topic_is_made_with_the_brokers_defaults():
    topic = create(CreatableTopic("foo"))
    assert topic == TopicInfo("foo", TOPIC_ID, (PartitionInfo(0, 1, 0, (1,), (1,)),), {})


def test_a_topic_has_as_many_partitions_and_replicas_as_asked():
    topic = create(CreatableTopic("foo", 4, 2), racks=THREE_BROKERS)
    assert [p.partition for p in topic.partitions] == [0, 1, 2, 3]
    assert all(len(p.replicas) == 2 and p.isr == p.replicas for p in topic.partitions)
    assert all(p.leader == p.replicas[0] for p in topic.partitions)


def test_given_assignments_may_come_in_any_order():
    topic = create(CreatableTopic("foo", assignments={1: [2, 1], 0: [1, 2]}), racks=THREE_BROKERS)
    assert [p.replicas for p in topic.partitions] == [(1, 2), (2, 1)]


def test_a_config_of_none_is_refused():
    config = {"retention.ms": "5", "segment.bytes": None, "flush.ms": None}
    with pytest.raises(KafkaError) as refused:
        create(CreatableTopic("foo", config=config))
    assert refused.value.code is ErrorCode.invalid_config
    assert str(refused.value.message).endswith("topic configs: segment.bytes,flush.ms")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "the empty string is not allowed"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("x" * 250, f"the length of '{'x' * 250}' is longer than the max allowed length 249"),
        (
            "a b",
            "'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' and "
            "'-'",
        ),
    ],
)
def test_names_that_make_no_directory_are_refused(name, reason):
    assert refusal(create, CreatableTopic(name)) == (
        ErrorCode.invalid_topic_exception,
        f"Topic name is invalid: {reason}",
    )


@given(st.text(max_size=260) | st.from_regex(r"[a-zA-Z0-9._-]{1,260}", fullmatch=True))
def test_legal_names_are_those_of_kafkas_pattern(name):
    legal = re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", name) and name not in (".", "..")
    try:
        check_topic_name(name)
    except KafkaError:
        assert not legal
    else:
        assert legal


def test_a_topic_that_exists_is_not_made_again():
    assert refusal(create, CreatableTopic("foo"), ["foo"]) == (
        ErrorCode.topic_already_exists,
        "Topic 'foo' already exists.",
    )


@pytest.mark.parametrize(("name", "other"), [("a.b", "a_b"), ("a_b", "a.b"), ("._", "__")])
def test_names_that_share_their_metrics_collide(name, other):
    assert refusal(create, CreatableTopic(name), ["x", other]) == (
        ErrorCode.invalid_topic_exception,
        f"Topic '{name}' collides with existing topic: {other}",
    )


def test_names_without_dots_do_not_collide():
    assert create(CreatableTopic("a-b"), ["ab", "a_b", "a.b"]).name == "a-b"


def test_krafts_own_topic_is_not_made():
    assert refusal(create, CreatableTopic("__cluster_metadata")) == (
        ErrorCode.invalid_request,
        "Creation of internal topic __cluster_metadata is prohibited.",
    )


@pytest.mark.parametrize("factor", [0, -2])
def test_no_replicas_are_refused(factor):
    # Also before the partitions are looked at.
    assert refusal(create, CreatableTopic("foo", 0, factor)) == (
        ErrorCode.invalid_replication_factor,
        "Replication factor must be larger than 0, or -1 to use the default value.",
    )


@pytest.mark.parametrize("partitions", [0, -2])
def test_no_partitions_are_refused(partitions):
    assert refusal(create, CreatableTopic("foo", partitions)) == (
        ErrorCode.invalid_partitions,
        "Number of partitions was set to an invalid non-positive value.",
    )


def test_more_replicas_than_brokers_are_refused():
    assert refusal(create, CreatableTopic("foo", 1, 3)) == (
        ErrorCode.invalid_replication_factor,
        "Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot "
        "be reached because only 1 broker(s) are registered.",
    )


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"foo": "1"}, "Unknown topic config name: foo"),
        (
            {"retention.ms": "x"},
            "Invalid value x for configuration retention.ms: Not a number of type LONG",
        ),
    ],
)
def test_wrong_configs_are_refused_before_the_counts(config, text):
    wrong = CreatableTopic("foo", 1, 9, config=config)
    assert refusal(create, wrong) == (ErrorCode.invalid_config, text)


@pytest.mark.parametrize(
    ("assignments", "text"),
    [
        ({0: []}, "The manual partition assignment includes an empty replica list."),
        (
            {0: [9]},
            "The manual partition assignment includes broker 9, but no such broker is registered.",
        ),
        (
            {0: [1], 1: [1, 1]},
            "The manual partition assignment includes the broker 1 more than once.",
        ),
        (
            {0: [1], 1: [1, 2]},
            "The manual partition assignment includes a partition with 2 replica(s), but this is "
            "not consistent with previous partitions, which have 1 replica(s).",
        ),
        ({0: [1], 2: [1]}, "partitions should be a consecutive 0-based integer sequence"),
    ],
)
def test_wrong_assignments_are_refused(assignments, text):
    wrong = CreatableTopic("foo", assignments=assignments)
    assert refusal(create, wrong, racks=THREE_BROKERS) == (
        ErrorCode.invalid_replica_assignment,
        text,
    )


@pytest.mark.parametrize(
    ("partitions", "factor", "text"),
    [
        (1, -1, "numPartitions was not set to -1."),
        (-1, 1, "replication factor was not set to -1."),
        (1, 1, "replication factor was not set to -1."),
    ],
)
def test_counts_beside_assignments_are_refused(partitions, factor, text):
    wrong = CreatableTopic("foo", partitions, factor, assignments={0: [1]})
    assert refusal(create, wrong) == (
        ErrorCode.invalid_request,
        f"A manual partition assignment was specified, but {text}",
    )


def test_a_name_that_comes_twice_is_refused_wherever_it_stands():
    refused = rules.refused(["a", "b", "a"])
    assert set(refused) == {"a"}
    assert refused["a"].code is ErrorCode.invalid_request
    assert refused["a"].message == "Duplicate topic name."


def test_too_many_partitions_refuse_the_whole_request():
    assert rules.refused(["a", "b"], 10_000) == {}
    refused = rules.refused(["a", "b"], 10_001)
    assert {e.code for e in refused.values()} == {ErrorCode.policy_violation}
    assert refused["b"].message == "Excessively large number of partitions per request."


def test_requested_partitions_count_defaults_and_assignments():
    three = BrokerConfig(num_partitions=3)
    asked = [
        CreatableTopic("a"),
        CreatableTopic("b", 5),
        CreatableTopic("c", -7),
        CreatableTopic("d", assignments={0: [1]}),
    ]
    assert [rules.requested_partitions(new, three) for new in asked] == [3, 5, 0, 1]


def test_a_topic_grows_by_new_partitions_only():
    topic = topic_of(2)
    grown = rules.grow(CreatablePartitions("foo", 3), topic, ONE_BROKER)
    assert grown.partitions == (*topic.partitions, PartitionInfo(2, 1, 0, (1,), (1,)))
    assert grown.id == TOPIC_ID


def test_new_partitions_have_as_many_replicas_as_the_old_ones():
    grown = rules.grow(CreatablePartitions("foo", 8), topic_of(2, (2, 3)), THREE_BROKERS)
    assert [len(p.replicas) for p in grown.partitions] == [2] * 8


@pytest.mark.parametrize(
    ("request_", "code", "text"),
    [
        (CreatablePartitions("foo", 2), "invalid_partitions", "Topic already has 2 partition(s)."),
        (
            CreatablePartitions("foo", 1),
            "invalid_partitions",
            "The topic foo currently has 2 partition(s); 1 would not be an increase.",
        ),
        (
            CreatablePartitions("foo", 4, [[1]]),
            "invalid_replica_assignment",
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        ),
        (
            CreatablePartitions("foo", 3, [[9]]),
            "invalid_replica_assignment",
            "The manual partition assignment includes broker 9, but no such broker is registered.",
        ),
        (
            CreatablePartitions("foo", 3, [[1, 2]]),
            "invalid_replica_assignment",
            "The manual partition assignment includes a partition with 2 replica(s), but this is "
            "not consistent with previous partitions, which have 1 replica(s).",
        ),
    ],
)
def test_no_increase_is_refused_and_so_are_wrong_assignments(request_, code, text):
    assert refusal(rules.grow, request_, topic_of(2), THREE_BROKERS) == (ErrorCode[code], text)


def test_unknown_topics_neither_grow_nor_go():
    unknown = (
        ErrorCode.unknown_topic_or_partition,
        "This server does not host this topic-partition.",
    )
    assert refusal(rules.grow, CreatablePartitions("foo", 3), None, ONE_BROKER) == unknown
    assert refusal(rules.delete, None, CONFIG) == unknown


def test_nothing_is_deleted_where_deletion_is_switched_off():
    assert refusal(rules.delete, topic_of(1), BrokerConfig(delete_topic_enable=False)) == (
        ErrorCode.topic_deletion_disabled,
        "Topic deletion is disabled.",
    )


def test_the_topics_own_znode_is_written_first():
    ops = rules.writes_to_create(create(CreatableTopic("foo", 2)), controller_epoch=3)
    assert [op.path for op in ops] == [
        "/brokers/topics/foo",
        "/config/topics/foo",
        "/brokers/topics/foo/partitions",
        "/brokers/topics/foo/partitions/0",
        "/brokers/topics/foo/partitions/0/state",
        "/brokers/topics/foo/partitions/1",
        "/brokers/topics/foo/partitions/1/state",
    ]
    assert ops[4].data == (
        b'{"controller_epoch":3,"leader":1,"version":1,"leader_epoch":0,"isr":[1]}'
    )


def test_growing_keeps_what_else_the_znode_says():
    old = znodes.TopicAssignment(TOPIC_ID, {0: (1,)}, adding={0: (1,)})
    ops = rules.writes_to_grow(topic_of(2), old, znode_version=4, controller_epoch=3)
    assert isinstance(ops[0], SetData)
    assert ops[0].version == 4
    written = znodes.decode_topic("foo", ops[0].data)
    assert written == znodes.TopicAssignment(TOPIC_ID, {0: (1,), 1: (1,)}, adding={0: (1,)})
    assert [op.path for op in ops[1:]] == [
        "/brokers/topics/foo/partitions/1",
        "/brokers/topics/foo/partitions/1/state",
    ]


def restore(replicas, states, *, live=(1,), returned=(1,)):
    def state(of_partition, partition):
        has_returned = Returned(frozenset(returned))
        return next_state(of_partition, states.get(partition), live, has_returned, 9, unclean=False)

    assignment = znodes.TopicAssignment(TOPIC_ID, replicas)
    return rules.restore("foo", assignment, states, state)


def test_a_partition_is_led_again_in_a_new_epoch():
    topic, ops = restore({0: (1,)}, {0: LeaderAndIsr(1, 4, (1,), 8, partition_epoch=6)})
    assert topic.partitions == (PartitionInfo(0, 1, 5, (1,), (1,), partition_epoch=7),)
    (write,) = ops
    assert isinstance(write, SetData)
    assert write.version == 6
    assert znodes.decode_state("foo", 0, write.data, 7) == LeaderAndIsr(1, 5, (1,), 9, 7)


def test_a_partition_that_was_never_led_gets_its_first_state():
    topic, ops = restore({0: (1,)}, {})
    assert topic.partitions == (PartitionInfo(0, 1, 0, (1,), (1,)),)
    assert isinstance(ops[0], Create)


def test_a_partition_whose_leader_lives_is_left_alone():
    states = {0: LeaderAndIsr(2, 4, (2, 1), 8, 6)}
    topic, ops = restore({0: (2, 1)}, states, live=(1, 2), returned=())
    assert ops == []
    assert [(p.leader, p.leader_epoch, p.isr) for p in topic.partitions] == [(2, 4, (2, 1))]


def test_nobody_leads_what_has_no_live_replica_in_sync():
    states = {0: LeaderAndIsr(2, 4, (2, 3), 8, 6), 1: LeaderAndIsr(-1, 5, (2,), 8, 6)}
    topic, ops = restore({0: (2, 3), 1: (1, 2), 2: (5,)}, states)
    assert [op.path for op in ops] == [znodes.state_path("foo", 0)]
    assert [(p.leader, p.leader_epoch, p.isr) for p in topic.partitions] == [
        (-1, 5, (2, 3)),
        (-1, 5, (2,)),
        (-1, 0, ()),
    ]
