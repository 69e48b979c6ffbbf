"""Which partitions get their preferred leader back, and which keep the leader they have."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from kserver.controller.context import ControllerContext, LiveBroker
from kserver.controller.leader_elections import to_give_back
from kserver.metadata import BrokerInfo, PartitionInfo, TopicInfo
from kserver.model import TopicPartition

PERCENTAGE = 10
"""Of leader.imbalance.per.broker.percentage, as it is by default."""


def led(away, of, **changes):
    """A context of two brokers: the first is preferred for all partitions, the second leads some;
    the last of these is changed."""
    partitions = [
        PartitionInfo(number, 2 if number < away else 1, 3, (1, 2), (1, 2)) for number in range(of)
    ]
    partitions[away - 1] = replace(partitions[away - 1], **changes)
    topic = TopicInfo("t", UUID(int=1), tuple(partitions))
    brokers = {id_: LiveBroker(BrokerInfo(id_, {}), 10) for id_ in (1, 2)}
    return ControllerContext(9, brokers, {"t": topic}, {topic.id: "t"})


@pytest.mark.parametrize(
    ("away", "of", "given_back"), [(1, 10, 0), (2, 10, 2), (1, 9, 1), (10, 100, 0), (11, 100, 11)]
)
def test_only_more_than_the_percentage_is_given_back(away, of, given_back):
    expected = [TopicPartition("t", number) for number in range(given_back)]
    assert to_give_back(led(away, of), PERCENTAGE) == expected


@pytest.mark.parametrize(
    "changes",
    [
        {"adding": (3,), "replicas": (1, 2, 3)},
        {"removing": (2,)},
        {"isr": (2,)},
    ],
    ids=["a replica is added", "a replica is removed", "the preferred replica is out of sync"],
)
def test_a_partition_on_the_move_or_without_its_preferred_replica_in_sync_stays(changes):
    assert to_give_back(led(3, 10, **changes), PERCENTAGE) == [
        TopicPartition("t", 0),
        TopicPartition("t", 1),
    ]


def test_a_broker_whose_disk_failed_or_that_is_about_to_stop_is_given_nothing():
    context = led(3, 10)
    context.offline[1] = {TopicPartition("t", 2)}
    assert TopicPartition("t", 2) not in to_give_back(context, PERCENTAGE)
    context.shutting_down.add(1)
    assert to_give_back(context, PERCENTAGE) == []


def test_a_topic_that_is_being_deleted_is_left_alone():
    context = led(3, 10)
    context.deletions["t"] = None
    assert to_give_back(context, PERCENTAGE) == []
