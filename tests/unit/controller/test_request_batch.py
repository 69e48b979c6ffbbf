"""What one event says to the brokers, and in which order."""

from uuid import UUID

from kserver.controller.context import ControllerContext, LiveBroker
from kserver.controller.request_batch import RequestBatch
from kserver.metadata import BrokerInfo, PartitionInfo, TopicInfo
from kserver.model import Endpoint
from kserver.wire.control import (
    FULL,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
)

LISTENER = "PLAINTEXT"
TOPIC = TopicInfo("t", UUID(int=1), (PartitionInfo(0, 1, 0, (1, 2), (1, 2)),))


def batch():
    endpoint = Endpoint(LISTENER, LISTENER, "localhost", 9092)
    brokers = {
        id_: LiveBroker(BrokerInfo(id_, {LISTENER: endpoint}), epoch=10 + id_) for id_ in (1, 2, 3)
    }
    return RequestBatch(ControllerContext(epoch=5, brokers=brokers), 1)


def test_a_change_reaches_those_who_host_it_before_clients_hear_of_it():
    said = batch()
    said.leads(TOPIC, TOPIC.partitions)
    first, second = said.requests(2, LISTENER)
    assert isinstance(first, LeaderAndIsrRequest)
    assert isinstance(second, UpdateMetadataRequest)
    (only,) = said.requests(3, LISTENER)
    assert isinstance(only, UpdateMetadataRequest)


def test_who_is_told_all_hears_of_the_brokers_before_it_is_to_follow_one():
    said = batch()
    said.leads(TOPIC, TOPIC.partitions)
    first, second = said.requests(2, LISTENER, full=True)
    assert isinstance(first, UpdateMetadataRequest)
    assert [broker.id for broker in first.live_brokers] == [1, 2, 3]
    assert isinstance(second, LeaderAndIsrRequest)
    assert second.type == FULL


def test_a_topic_is_named_once_and_its_partitions_as_they_are_in_the_end():
    said = batch()
    for partition, leader in ((0, 1), (1, 2), (0, 2)):
        changed = [PartitionInfo(partition, leader, leader, (1, 2), (1, 2))]
        said.leads(TOPIC, changed, new_on=[2] if leader == 1 else ())
        said.stops(2, [(TOPIC, changed)])
    led, told, stopped = said.requests(2, LISTENER)
    assert isinstance(led, LeaderAndIsrRequest)
    assert isinstance(told, UpdateMetadataRequest)
    assert isinstance(stopped, StopReplicaRequest)
    ((one,), (of_clients,), (left,)) = (led.topic_states, told.topic_states, stopped.topic_states)
    found = [(p.partition_index, p.leader, p.is_new) for p in one.partition_states]
    assert found == [(0, 2, True), (1, 2, False)]
    assert [(p.partition_index, p.leader) for p in of_clients.partition_states] == [(0, 2), (1, 2)]
    assert [(p.partition_index, p.leader_epoch) for p in left.partition_states] == [(0, 2), (1, 2)]
