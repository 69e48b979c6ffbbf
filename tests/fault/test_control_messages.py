"""Test that a cluster of three refuses requests which only a broker may send, and that the requests
change nothing.

The unknown client connects from 127.0.0.2, where no broker is registered. A client on a broker's
own address cannot be distinguished by address, so it sends wrong epochs and ids.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Producer
from kazoo.client import KazooClient

from kserver.errors import ErrorCode
from kserver.wire.api_key import ApiKey
from kserver.wire.control import (
    FULL,
    ControlledShutdownRequest,
    ControlMessage,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
    UpdateMetadataRequest,
)
from kserver.znodes import CONTROLLER_EPOCH
from tests.support.process_cluster import PATIENCE_S, Cluster
from tests.support.wire_client import WireClient

STRANGER = "127.0.0.2"
FAR_AHEAD = 1_000_000
TOPIC = "kept"
ANY_EPOCH = -1

Send = Callable[[WireClient, int, int], Any]
"""Sends a request with this controller id and controller epoch; returns the response."""


def stop_replica(client: WireClient, controller: int, epoch: int) -> Any:
    stopped = StopReplicaPartitionState(0, FAR_AHEAD, delete_partition=True)
    topic = StopReplicaTopicState(TOPIC, (stopped,))
    return client.call_control(StopReplicaRequest(controller, epoch, (topic,), ANY_EPOCH), 4)


def leader_and_isr(client: WireClient, controller: int, epoch: int) -> Any:
    state = LeaderAndIsrPartitionState(0, epoch, 1, FAR_AHEAD, (1,), FAR_AHEAD, (1,))
    topic = LeaderAndIsrTopicState("made-up", UUID(int=7), (state,))
    request = LeaderAndIsrRequest(controller, epoch, (topic,), broker_epoch=ANY_EPOCH, type=FULL)
    return client.call_control(request, 7)


def update_metadata(client: WireClient, controller: int, epoch: int) -> Any:
    return client.call_control(UpdateMetadataRequest(controller, epoch, (), (), ANY_EPOCH), 8)


def controlled_shutdown(client: WireClient, _controller: int, _epoch: int) -> Any:
    return client.call_control(ControlledShutdownRequest(1, ANY_EPOCH), 3)


def alter_partition(client: WireClient, _controller: int, _epoch: int) -> Any:
    return client.call(ApiKey.ALTER_PARTITION, 3, broker_id=1, broker_epoch=ANY_EPOCH, topics=[])


def allocate_producer_ids(client: WireClient, _controller: int, _epoch: int) -> Any:
    return client.call(ApiKey.ALLOCATE_PRODUCER_IDS, 0, broker_id=1, broker_epoch=ANY_EPOCH)


FROM_A_CONTROLLER: list[Send] = [stop_replica, leader_and_isr, update_metadata]
FROM_A_BROKER: list[Send] = [controlled_shutdown, alter_partition, allocate_producer_ids]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        cluster.create(TOPIC)
        yield cluster


def check(cluster: Cluster) -> None:
    """Assert that the topic is unchanged on each broker and that all follow the controller."""
    cluster.until_in_sync(TOPIC)
    refused: list[Any] = []
    producer = Producer(cluster.client | {"acks": "all"})
    producer.produce(TOPIC, b"v", on_delivery=lambda error, _: refused.append(error))
    assert producer.flush(PATIENCE_S) == 0
    assert refused == [None]
    for broker in cluster.brokers.values():
        assert (broker.data / f"{TOPIC}-0").is_dir()
        assert not (broker.data / "made-up-0").exists()


@pytest.mark.parametrize("send", [*FROM_A_CONTROLLER, *FROM_A_BROKER], ids=lambda f: f.__name__)
def test_a_stranger_is_refused_with_one_warning(cluster: Cluster, send: Send) -> None:
    for broker in cluster.brokers.values():
        with WireClient(broker.address, source=STRANGER) as client:
            for epoch in (1, FAR_AHEAD):
                answer = send(client, cluster.controller(), epoch)
                assert answer.error_code is ErrorCode.cluster_authorization_failed
        warned = [line for line in broker.output if f"from {STRANGER} refused" in line]
        assert len(warned) == 1
    check(cluster)


@pytest.mark.parametrize("send", FROM_A_CONTROLLER, ids=lambda f: f.__name__)
def test_an_epoch_that_zookeeper_does_not_know_is_not_believed(
    cluster: Cluster, send: Send
) -> None:
    broker = cluster.brokers[1]
    with WireClient(broker.address) as client:
        assert send(client, cluster.controller(), FAR_AHEAD).error_code is (
            ErrorCode.invalid_request
        )
    check(cluster)
    cluster.create(f"made-after-{send.__name__.replace('_', '-')}")


@pytest.mark.parametrize("send", FROM_A_CONTROLLER, ids=lambda f: f.__name__)
def test_nobody_else_is_believed_in_the_controller_s_epoch(cluster: Cluster, send: Send) -> None:
    zookeeper = KazooClient(cluster.zookeeper.address)
    zookeeper.start()
    epoch = int(zookeeper.get(CONTROLLER_EPOCH)[0])
    zookeeper.stop()
    zookeeper.close()
    controller = cluster.controller()
    for broker in cluster.brokers.values():
        with WireClient(broker.address) as client:
            answer = send(client, controller % len(cluster.brokers) + 1, epoch)
            assert answer.error_code is ErrorCode.invalid_request
    check(cluster)


def test_a_controller_message_has_a_sender() -> None:
    """The requests above cover every subclass of `ControlMessage`."""
    named = {send.__name__.replace("_", "") for send in (*FROM_A_CONTROLLER, controlled_shutdown)}
    requests = {t.__name__ for t in ControlMessage.__subclasses__() if "Request" in t.__name__}
    assert {name.removesuffix("Request").lower() for name in requests} == named
