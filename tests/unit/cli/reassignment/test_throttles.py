"""`k reassign-partitions`: whom a throttle holds back, and how it is taken away again."""

from __future__ import annotations

from kcli.client.admin.descriptions import ConfigOp, Reassignment, ResourceType
from kcli.reassignment import throttles
from kserver.model import TopicPartition

FOO_0, FOO_2, FOO_10, BAR_0 = (
    TopicPartition(*of) for of in (("foo", 0), ("foo", 2), ("foo", 10), ("bar", 0))
)


def values(changes):
    return {
        (name, change.key): change.value
        for (_, name), of in changes.items()
        for change in of
        if change.type is ConfigOp.SET
    }


def test_sources_are_throttled_as_leaders_and_destinations_as_followers():
    moving = throttles.moves(
        {}, {FOO_2: (2, 3), FOO_10: (4,), BAR_0: (1,)}, {FOO_2: (1, 2), FOO_10: (3,), BAR_0: (1,)}
    )
    assert values(throttles.topic_throttles(moving)) == {
        ("bar", throttles.LEADER_REPLICAS): "0:1",
        ("bar", throttles.FOLLOWER_REPLICAS): "",
        # Kafka sorts them as texts.
        ("foo", throttles.LEADER_REPLICAS): "10:3,2:1,2:2",
        ("foo", throttles.FOLLOWER_REPLICAS): "10:4,2:3",
    }
    rates = throttles.broker_throttles(moving, 7)
    assert list(rates) == [(ResourceType.BROKER, str(id)) for id in (1, 2, 3, 4)]
    assert set(values(rates).values()) == {"7"}
    assert {key for _, key in values(rates)} == {throttles.LEADER_RATE, throttles.FOLLOWER_RATE}


def test_what_moves_already_stays_throttled_and_has_the_sources_of_before():
    moves = {
        FOO_0: Reassignment((3, 1, 2), (3,), (1,)),
        BAR_0: Reassignment((5, 4), (5,), (4,)),
    }
    moving = throttles.moves(moves, {FOO_0: (4, 1)}, {FOO_0: (3, 1, 2)})
    assert moving[FOO_0] == ({1, 2}, {4})
    assert moving[BAR_0] == ({4}, {5})


def test_directories_are_throttled_by_broker():
    rates = throttles.log_dirs_throttle([2, 1], 9)
    assert values(rates) == {(id, throttles.LOG_DIRS_RATE): "9" for id in ("1", "2")}


def test_every_throttle_is_taken_away():
    brokers = throttles.without_broker_throttles({1})
    topics = throttles.without_topic_throttles(["foo"])
    gone = {change.key for of in (*brokers.values(), *topics.values()) for change in of}
    assert gone == {
        throttles.LEADER_RATE,
        throttles.FOLLOWER_RATE,
        throttles.LOG_DIRS_RATE,
        throttles.LEADER_REPLICAS,
        throttles.FOLLOWER_REPLICAS,
    }
    every = [change for of in (*brokers.values(), *topics.values()) for change in of]
    assert {(change.type, change.value) for change in every} == {(ConfigOp.DELETE, None)}
