"""What a change of overrides amounts to."""

from __future__ import annotations

from types import MappingProxyType
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kserver.cluster_config import configs
from kserver.cluster_config.configs import Change, Op, OpType, ResourceType
from kserver.config.broker import BrokerConfig
from kserver.config.setting import settings_of
from kserver.config.topic import TopicConfig
from kserver.errors import ErrorCode, KafkaError
from kserver.metadata import ClusterMetadata, TopicInfo
from kserver.model import NO_BROKER

SET, DELETE, APPEND, SUBTRACT = OpType
TOPIC, BROKER = ResourceType.TOPIC, ResourceType.BROKER
CONFIG = BrokerConfig()
TABLE = settings_of(TopicConfig)
ID = 3


def image(topic_config=MappingProxyType({}), **broker_configs):
    names = {"default": NO_BROKER, "own": ID}
    return ClusterMetadata(
        "cluster",
        topics={"t": TopicInfo("t", uuid4(), (), topic_config)},
        broker_configs={names[name]: of for name, of in broker_configs.items()},
    )


def change(kind, name, *ops, replaces=False):
    return Change(kind, name, [Op(*op) for op in ops], replaces)


def plan(wanted, of=None):
    return configs.plan(wanted, of or image(), ID, CONFIG, CONFIG)


@pytest.mark.parametrize(
    ("before", "op", "after"),
    [
        ({}, ("retention.ms", SET, "5"), {"retention.ms": "5"}),
        ({"retention.ms": "4"}, ("retention.ms", SET, "5"), {"retention.ms": "5"}),
        ({"retention.ms": "4"}, ("retention.ms", DELETE, None), {}),
        ({}, ("retention.ms", DELETE, None), {}),
        ({}, ("cleanup.policy", APPEND, "compact"), {"cleanup.policy": "delete,compact"}),
        (
            {"cleanup.policy": "compact"},
            ("cleanup.policy", APPEND, "compact, delete"),
            {"cleanup.policy": "compact,delete"},
        ),
        (
            {"cleanup.policy": "compact,delete"},
            ("cleanup.policy", SUBTRACT, "delete"),
            {"cleanup.policy": "compact"},
        ),
        ({}, ("cleanup.policy", SUBTRACT, "delete"), {"cleanup.policy": ""}),
        (
            {"cleanup.policy": "compact"},
            ("cleanup.policy", SUBTRACT, "delete"),
            {"cleanup.policy": "compact"},
        ),
    ],
)
def test_operations_do_what_their_names_say(before, op, after) -> None:
    kept = {"segment.bytes": "99"}
    assert configs.altered(before | kept, change(TOPIC, "t", op), TABLE) == after | kept


def test_replacing_leaves_nothing_of_before() -> None:
    wanted = change(TOPIC, "t", ("retention.ms", SET, "5"), replaces=True)
    assert configs.altered({"segment.bytes": "99"}, wanted, TABLE) == {"retention.ms": "5"}


ENTRIES = st.lists(st.sampled_from("abcdef"), max_size=4)


@given(ENTRIES, ENTRIES)
def test_a_list_has_what_was_appended_until_that_is_subtracted(before, given_) -> None:
    key, text = "leader.replication.throttled.replicas", ",".join(given_)

    def altered(overrides, op):
        return configs.altered(overrides, change(TOPIC, "t", (key, op, text)), TABLE)

    longer = altered({key: ",".join(before)}, APPEND)
    assert set(longer[key].split(",")) - {""} == {*before, *given_}
    assert altered(longer, APPEND) == longer
    shorter = altered(longer, SUBTRACT)
    assert set(shorter[key].split(",")) - {""} == {*before} - {*given_}
    assert altered(shorter, SUBTRACT) == shorter


@pytest.mark.parametrize("op", [APPEND, SUBTRACT])
@pytest.mark.parametrize("key", ["retention.ms", "no.such.key"])
def test_what_is_no_list_neither_grows_nor_shrinks(op, key) -> None:
    with pytest.raises(KafkaError, match="because its type is not LIST") as refused:
        configs.altered({}, change(TOPIC, "t", (key, op, "1")), TABLE)
    assert refused.value.code is ErrorCode.invalid_config


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (change(TOPIC, "t", ("a", SET, "1"), ("a", DELETE, None)), "duplicate config keys"),
        (change(TOPIC, "t", ("a", SET, None), ("b", APPEND, None)), "not supported for : a, b"),
        (change(99, "t"), "Unknown resource type 99"),
        (change(ResourceType.BROKER_LOGGER, "1", replaces=True), "Unknown resource type 8"),
        (change(ResourceType.CLIENT_METRICS, "m"), "takes no metrics from clients"),
        (change(TOPIC, "t", ("a", 7, "1")), "Unknown operations type 7"),
        (change(BROKER, "", ("a\x1b[2J", SET, "1")), "A config key is"),
        (change(BROKER, "", ("", SET, "1")), "A config key is"),
        (change(BROKER, "", ("k" * 256, SET, "1")), "A config key is"),
    ],
)
def test_what_is_asked_wrongly_is_refused_alone(wanted, said) -> None:
    fine = change(TOPIC, "u", ("a", SET, "1"))
    first, second = configs.refused([wanted, fine])
    assert first is not None
    assert first.code is ErrorCode.invalid_request
    assert said in first.message
    assert second is None


def test_a_resource_named_twice_is_refused_each_time() -> None:
    twice, once = change(TOPIC, "t"), change(BROKER, "t")
    results = configs.refused([twice, once, twice])
    assert [r is None for r in results] == [False, True, False]


def test_a_topic_s_overrides_are_planned_upon_those_it_has() -> None:
    planned = plan(change(TOPIC, "t", ("retention.ms", SET, "5")), image({"segment.bytes": "99"}))
    assert planned.overrides == {"segment.bytes": "99", "retention.ms": "5"}
    assert planned.entity == ("topics", "t")


@pytest.mark.parametrize(
    ("wanted", "code", "said"),
    [
        (change(TOPIC, ""), "invalid_request", "Default topic resources are not allowed."),
        (change(TOPIC, "a/b"), "invalid_topic_exception", "Topic name is invalid"),
        (change(TOPIC, "u"), "unknown_topic_or_partition", "The topic 'u' does not exist."),
        # As Kafka: what is wrong with the settings is said first.
        (change(TOPIC, "u", ("x", SET, "1")), "invalid_config", "Unknown topic config name: x"),
        (
            change(TOPIC, "t", ("retention.ms", SET, "x")),
            "invalid_config",
            "Invalid value x for configuration retention.ms: Not a number of type LONG",
        ),
        (
            change(TOPIC, "t", ("validate.records", SET, "v" * 600_000)),
            "invalid_config",
            "Invalid value",
        ),
        (
            change(BROKER, "4"),
            "invalid_request",
            "Unexpected broker id, expected 3, but received 4",
        ),
        (change(BROKER, "03"), "invalid_request", "Unexpected broker id"),
        (change(BROKER, "x"), "invalid_request", "Node id must be an integer, but it is: x"),
        (
            change(BROKER, "3", ("num.io.threads", SET, "99")),
            "invalid_request",
            "Dynamic thread count update validation failed for num.io.threads=99, value should "
            "not be greater than double the current value 8",
        ),
        (
            change(BROKER, "", *((f"unknown.{n}", SET, "x" * 300_000) for n in range(2))),
            "invalid_config",
            "The overrides of one resource take at most 500000 bytes.",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_kafka_s_words(wanted, code, said) -> None:
    with pytest.raises(KafkaError) as refused:
        plan(wanted)
    assert refused.value.code is ErrorCode[code]
    assert refused.value.message.startswith(said)


def test_a_broker_s_own_overrides_are_judged_upon_those_of_all() -> None:
    wanted = change(BROKER, "3", ("log.cleaner.max.compaction.lag.ms", SET, "5"))
    assert plan(wanted).overrides == {"log.cleaner.max.compaction.lag.ms": "5"}
    of_all = image(default={"log.cleaner.min.compaction.lag.ms": "9"})
    with pytest.raises(KafkaError, match=r"min\.compaction\.lag\.ms \(9\) > "):
        plan(wanted, of_all)


def test_what_another_tool_stored_and_makes_no_sense_goes_with_the_first_change() -> None:
    stored = image(own={"num.partitions": "7", "log.retention.ms": "5"})
    planned = plan(change(BROKER, "3", ("max.connections", SET, "9")), stored)
    assert planned.overrides == {"log.retention.ms": "5", "max.connections": "9"}
    assert planned.entity == ("brokers", "3")


def test_the_default_of_all_brokers_lies_where_kafka_has_it() -> None:
    assert plan(change(BROKER, "", ("max.connections", SET, "9"))).entity == (
        "brokers",
        "<default>",
    )
