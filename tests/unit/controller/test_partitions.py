"""Who is in sync, as a leader proposes it: what the controller says to each."""

from __future__ import annotations

from uuid import UUID

import pytest

from kserver.controller.context import ControllerContext, LiveBroker
from kserver.controller.partitions import IsrChange, validate_change
from kserver.errors import KafkaError
from kserver.metadata import BrokerInfo, PartitionInfo, TopicInfo
from kserver.model import LeaderAndIsr

ID = UUID(int=1)
NOW = PartitionInfo(0, 1, 5, (1, 2, 3), (1, 2), 7)
TOPIC = TopicInfo("t", ID, (NOW,))
CONTEXT = ControllerContext(9, {b: LiveBroker(BrokerInfo(b, {}), 10 * b) for b in (1, 2, 3)})


def change(*isr: int, partition: int = 0, leader_epoch: int = 5, epoch: int = 7, told: int = -1):
    members = tuple((broker, told if broker == 3 else -1) for broker in isr)
    return IsrChange(ID, partition, leader_epoch, members, epoch)


@pytest.mark.parametrize(
    ("asked", "isr", "partition_epoch"),
    [
        (change(1), (1,), 8),
        (change(1, 2, 3), (1, 2, 3), 8),
        (change(1, 2, 3, told=30), (1, 2, 3), 8),
        # what is so already is answered as it is, asked again as well
        (change(2, 1), (1, 2), 7),
        (change(1, 2, epoch=6), (1, 2), 7),
    ],
)
def test_what_the_leader_proposes_is_so(asked, isr, partition_epoch):
    decided = validate_change(asked, 1, TOPIC, CONTEXT)
    assert decided == LeaderAndIsr(1, 5, isr, 9, partition_epoch)


@pytest.mark.parametrize(
    ("asked", "leader", "topic", "code"),
    [
        (change(1), 1, None, "unknown_topic_id"),
        (change(1, partition=1), 1, TOPIC, "unknown_topic_or_partition"),
        (change(1, leader_epoch=4), 1, TOPIC, "fenced_leader_epoch"),
        (change(1, leader_epoch=6), 1, TOPIC, "not_controller"),
        (change(2), 2, TOPIC, "invalid_request"),
        (change(2), 1, TOPIC, "invalid_request"),
        (change(1, epoch=6), 1, TOPIC, "invalid_update_version"),
        (change(1, epoch=8), 1, TOPIC, "invalid_update_version"),
        (change(1, 4), 1, TOPIC, "invalid_request"),
        # of an earlier registration: its disk may be another one
        (change(1, 2, 3, told=29), 1, TOPIC, "ineligible_replica"),
    ],
)
def test_what_cannot_be_so_is_refused_by_name(asked, leader, topic, code):
    with pytest.raises(KafkaError) as refused:
        validate_change(asked, leader, topic, CONTEXT)
    assert refused.value.code.name == code


def test_who_is_gone_is_not_in_sync():
    context = ControllerContext(9, {b: CONTEXT.brokers[b] for b in (1, 2)})
    with pytest.raises(KafkaError) as refused:
        validate_change(change(1, 2, 3), 1, TOPIC, context)
    assert refused.value.code.name == "ineligible_replica"


RECOVERING = PartitionInfo(0, 1, 5, (1, 2, 3), (1,), 7, is_recovering=True)
RECOVERING_TOPIC = TopicInfo("t", ID, (RECOVERING,))


def test_an_unclean_leader_recovers_alone_and_says_when_it_has():
    still = IsrChange(ID, 0, 5, ((1, -1),), 7, is_recovering=True)
    assert validate_change(still, 1, RECOVERING_TOPIC, CONTEXT).partition_epoch == 7
    recovered = validate_change(change(1), 1, RECOVERING_TOPIC, CONTEXT)
    assert (recovered.is_recovering, recovered.partition_epoch) == (False, 8)
    grown = IsrChange(ID, 0, 5, ((1, -1), (2, -1)), 7, is_recovering=True)
    with pytest.raises(KafkaError, match="can be recovering"):
        validate_change(grown, 1, RECOVERING_TOPIC, CONTEXT)
    with pytest.raises(KafkaError, match="can be recovering"):
        validate_change(IsrChange(ID, 0, 5, ((1, -1),), 7, is_recovering=True), 1, TOPIC, CONTEXT)
