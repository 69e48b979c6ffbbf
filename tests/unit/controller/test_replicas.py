"""A topic is deleted once every replica is: held to at random, and to what is told when."""

from __future__ import annotations

from random import Random
from uuid import UUID

import pytest

from kserver.controller.replicas import Replica, TopicDeletion
from kserver.metadata import PartitionInfo, TopicInfo

PLACED = ((1, 2, 3), (2, 3, 4))
TOPIC = TopicInfo(
    "t", UUID(int=1), tuple(PartitionInfo(n, r[0], 0, r, r) for n, r in enumerate(PLACED))
)
ALL = [Replica(n, broker) for n, replicas in enumerate(PLACED) for broker in replicas]


def test_a_topic_whose_brokers_all_live_is_gone_once_they_have_answered():
    deletion = TopicDeletion(TOPIC, {1, 2, 3, 4})
    assert deletion.start() == ALL
    assert deletion.start() == []
    for replica in ALL:
        assert not deletion.is_done
        deletion.on_response(replica, is_deleted=True)
    assert deletion.is_done
    deletion.removed()
    deletion.check({1, 2, 3, 4})


def test_a_broker_that_is_away_is_waited_for_and_told_when_it_returns():
    deletion = TopicDeletion(TOPIC, {1, 2, 4})
    assert {replica.broker for replica in deletion.start()} == {1, 2, 4}
    assert deletion.waiting_for == {3}
    assert (deletion.remaining, deletion.ineligible) == (6, 2)
    for replica in ALL:
        deletion.on_response(replica, is_deleted=True)
    assert not deletion.is_done
    assert (deletion.remaining, deletion.ineligible) == (2, 2)
    deletion.broker_came(3)
    assert deletion.start() == [Replica(0, 3), Replica(1, 3)]


def test_a_broker_that_dies_before_it_answers_is_told_again():
    deletion = TopicDeletion(TOPIC, {1, 2, 3, 4})
    deletion.start()
    deletion.broker_gone(2)
    # What it answered still may arrive, and proves nothing of the next process.
    deletion.on_response(Replica(0, 2), is_deleted=True)
    assert deletion.waiting_for == {2}
    deletion.broker_came(2)
    assert deletion.start() == [Replica(0, 2), Replica(1, 2)]


def test_a_broker_that_restarts_quickly_is_told_again():
    deletion = TopicDeletion(TOPIC, {1, 2, 3, 4})
    deletion.start()
    deletion.on_response(Replica(1, 4), is_deleted=True)
    deletion.broker_came(4)
    assert deletion.start() == []
    deletion.broker_came(1)
    assert deletion.start() == [Replica(0, 1)]


def test_a_disk_that_failed_holds_the_topic_until_its_broker_returns():
    deletion = TopicDeletion(TOPIC, {1, 2, 3, 4})
    deletion.start()
    for replica in ALL:
        deletion.on_response(replica, is_deleted=replica != Replica(0, 1))
    assert not deletion.is_done
    assert deletion.waiting_for == {1}
    assert deletion.start() == []
    deletion.broker_came(1)
    assert deletion.start() == [Replica(0, 1)]


@pytest.mark.parametrize("seed", range(100))
def test_no_replica_is_forgotten_whatever_happens(seed):
    """Brokers come and go, answer late or never: the topic is gone only without any log of it."""
    random = Random(seed)
    live = {broker for broker in (1, 2, 3, 4) if random.random() < 0.7}
    logs = set(ALL)
    deletion = TopicDeletion(TOPIC, live)
    asked: list[Replica] = []
    for _ in range(200):
        match random.randrange(4):
            case 0:
                asked += deletion.start()
            case 1 if asked:
                replica = asked.pop(random.randrange(len(asked)))
                works = random.random() < 0.8
                if works:
                    logs.discard(replica)
                deletion.on_response(replica, is_deleted=works)
            case 2:
                broker = random.randint(1, 4)
                # What it was asked has not reached it, or it does not answer any more.
                asked = [replica for replica in asked if replica.broker != broker]
                if broker in live and random.random() < 0.5:
                    live.remove(broker)
                    deletion.broker_gone(broker)
                else:
                    live.add(broker)
                    deletion.broker_came(broker)
        deletion.check(live)
        if deletion.is_done:
            assert not logs
    for broker in (1, 2, 3, 4):
        live.add(broker)
        deletion.broker_came(broker)
    for replica in asked + deletion.start():
        logs.discard(replica)
        deletion.on_response(replica, is_deleted=True)
    assert deletion.is_done
    assert not logs
