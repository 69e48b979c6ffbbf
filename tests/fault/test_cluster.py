"""Test three broker processes on one ZooKeeper with confluent-kafka clients: kill the leader, the
group coordinator and the controller, and compare the replicas' logs."""

from __future__ import annotations

import re
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support import tools
from tests.support.process import BrokerProcess
from tests.support.process_cluster import PATIENCE_S, Cluster, until


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


def produced(cluster, topic, count, meanwhile=None):
    """Produce the values 0 to `count` with acks=all; call `meanwhile` after a third of them.

    Return the acknowledged values, in the order of their acknowledgements.
    """
    acknowledged = []

    def told(error, message):
        assert error is None, error
        acknowledged.append(int(message.value()))

    settings = cluster.client | {
        "enable.idempotence": True,
        "linger.ms": 0,
        "batch.num.messages": 10,
        "retry.backoff.ms": 50,
    }
    producer = Producer(settings)
    for number in range(count):
        producer.produce(topic, str(number).encode(), partition=0, on_delivery=told)
    if meanwhile is not None:
        while len(acknowledged) < count // 3:
            producer.poll(0.1)
        meanwhile()
        assert len(acknowledged) < count
    assert producer.flush(PATIENCE_S) == 0
    return acknowledged


def consumed(cluster, topic, count):
    consumer = Consumer(cluster.client | {"group.id": "none", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None:
            assert message.error() is None, message.error()
            found.append(int(message.value()))
    consumer.close()
    return found


def test_nothing_acknowledged_is_lost_doubled_or_moved_when_a_leader_is_killed(cluster):
    cluster.create("kept")
    leader = cluster.brokers[cluster.partition("kept").leader]
    count = 20_000
    assert sorted(produced(cluster, "kept", count, leader.kill)) == list(range(count))
    assert consumed(cluster, "kept", count) == list(range(count))
    assert cluster.partition("kept").leader not in (-1, leader.settings["broker.id"])
    leader.start()
    cluster.until_in_sync("kept")
    more = produced(cluster, "kept", 10)
    assert more == list(range(10))
    until(lambda: len(consumed(cluster, "kept", count + 10)) == count + 10)


def test_a_group_reads_on_when_its_coordinator_is_killed(cluster):
    cluster.create("shared")
    produced(cluster, "shared", 100)
    consumer = Consumer(
        cluster.client
        | {
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 45_000,
        }
    )
    consumer.subscribe(["shared"])
    found = []

    def read(count):
        deadline = time.monotonic() + PATIENCE_S
        while len(found) < count:
            assert time.monotonic() < deadline
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                found.append(int(message.value()))

    read(100)
    consumer.commit(asynchronous=False)
    described = cluster.admin.describe_consumer_groups(["g"])["g"].result(PATIENCE_S)
    coordinator = cluster.brokers[described.coordinator.id]
    coordinator.kill()
    produced(cluster, "shared", 50)
    read(150)
    assert found == [*range(100), *range(50)]
    (committed,) = consumer.committed([TopicPartition("shared", 0)], timeout=PATIENCE_S)
    assert committed.offset == 100
    consumer.close()
    coordinator.start()
    cluster.until_in_sync("shared")


def test_commands_find_the_next_controller(cluster):
    cluster.create("found")
    controller = cluster.admin.describe_cluster().result(PATIENCE_S).controller.id
    killed = cluster.brokers[controller]
    killed.kill()
    (other, *_) = [broker for id_, broker in cluster.brokers.items() if id_ != controller]
    for words in (["--create", "--topic", "after", "--replication-factor", "2"], ["--describe"]):
        command = [*tools.K, "topics", "--bootstrap-server", other.address, *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
        assert (done.returncode, "after" in done.stdout) == (0, True), done.stderr
    assert str(controller) not in re.findall(r"Leader: (\S+)", done.stdout)
    killed.start()
    cluster.until_in_sync("found")


def test_replicas_are_byte_equal_at_rest(cluster):
    cluster.create("equal")
    produced(cluster, "equal", 500)
    cluster.until_in_sync("equal")
    for broker in cluster.brokers.values():
        broker.kill()
    first, *others = (cluster.log_of(broker, "equal") for broker in cluster.brokers.values())
    assert first
    assert others == [first, first]
    with ThreadPoolExecutor() as pool:
        list(pool.map(BrokerProcess.start, cluster.brokers.values()))
    until(lambda: cluster.partition("equal").leader != -1)
    assert consumed(cluster, "equal", 500) == list(range(500))
