"""Test a topic deletion while one broker is down and the controller is killed, and the reuse of the
topic's name afterwards."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from tests.support.process_cluster import IDS, PATIENCE_S, Cluster, until

PARTITIONS = 100
SETTINGS = {"file.delete.delay.ms": 500, "log.segment.delete.delay.ms": 500}
"""Delay before the files of a deleted log are removed."""


def produce(cluster: Cluster, tag: bytes) -> list[tuple[int, bytes]]:
    """Produce one record to each partition with acks=all; return (partition, value) of each."""
    acknowledged = []

    def delivered(error, message):
        assert error is None, error
        acknowledged.append((message.partition(), message.value()))

    producer = Producer(cluster.client | {"enable.idempotence": True})
    for number in range(PARTITIONS):
        producer.produce("t", tag + b"%d" % number, partition=number, on_delivery=delivered)
    assert producer.flush(PATIENCE_S) == 0
    return sorted(acknowledged)


def consume(cluster: Cluster, count: int) -> list[tuple[int, bytes]]:
    consumer = Consumer(cluster.client | {"group.id": "none", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition("t", number, 0) for number in range(PARTITIONS)])
    records = []
    deadline = time.monotonic() + PATIENCE_S
    while len(records) < count:
        assert time.monotonic() < deadline
        records += [(m.partition(), m.value()) for m in consumer.consume(count, 0.2)]
    records += [(m.partition(), m.value()) for m in consumer.consume(1, 1)]
    consumer.close()
    return sorted(records)


def logs(cluster: Cluster, id_: int) -> set[str]:
    """Return the names of the topic's log directories, including those that wait for removal."""
    return {path.name for path in cluster.brokers[id_].data.iterdir() if path.name[:2] == "t-"}


def recreate(cluster: Cluster) -> str:
    """Create the topic again; return "" on success, else the name of the error."""
    new = NewTopic("t", num_partitions=PARTITIONS, replication_factor=len(IDS))
    try:
        cluster.admin.create_topics([new])["t"].result(PATIENCE_S)
    except KafkaException as error:
        return error.args[0].name()
    return ""


@pytest.mark.parametrize("kills_controller", [True, False], ids=["controller killed", "calm"])
def test_a_deletion_ends_when_all_replicas_are_back_and_leaves_nothing(tmp_path, kills_controller):
    with Cluster(tmp_path, SETTINGS) as cluster:
        cluster.create("t", PARTITIONS)
        produce(cluster, b"old ")
        controller = cluster.controller()
        away, other = (id_ for id_ in IDS if id_ != controller)
        cluster.brokers[away].kill()
        until(lambda: len(cluster.admin.list_topics(timeout=PATIENCE_S).brokers) == 2)
        cluster.admin.delete_topics(["t"])["t"].result(PATIENCE_S)
        if kills_controller:
            cluster.brokers[controller].kill()
            # librdkafka learns of a new controller only from a metadata request.
            until(lambda: cluster.admin.list_topics(timeout=5).controller_id == other)
        # The broker that is down still has logs of the topic, so the name cannot be reused yet.
        assert recreate(cluster) == "TOPIC_ALREADY_EXISTS"
        assert len(logs(cluster, away)) == PARTITIONS
        if kills_controller:
            cluster.brokers[controller].start()
        cluster.brokers[away].start()
        until(lambda: recreate(cluster) == "")
        until(lambda: cluster.admin.list_topics("t", timeout=5).topics["t"].error is None)
        records = produce(cluster, b"new ")
        expected = {f"t-{number}" for number in range(PARTITIONS)}
        until(lambda: all(logs(cluster, id_) == expected for id_ in IDS))
        # After a restart no log of the former topic is found either.
        cluster.brokers[away].stop()
        cluster.brokers[away].start()
        cluster.until_in_sync("t")
        assert logs(cluster, away) == expected
        assert consume(cluster, len(records)) == records
