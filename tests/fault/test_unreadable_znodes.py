"""Test three brokers whose ZooKeeper has znodes with unreadable data and lacks others."""

from __future__ import annotations

from contextlib import contextmanager

from confluent_kafka import Consumer, Producer, TopicPartition
from kazoo.client import KazooClient

from tests.support.process_cluster import PATIENCE_S, Cluster, until

NONSENSE = {
    "/brokers/topics/bad-assignment": b"not JSON",
    "/brokers/topics/bad-state/partitions/0/state": b'{"leader":"?"}',
    "/config/topics/bad-config": b"[",
    "/brokers/ids/9": b"\x00",
    "/brokers/ids/nobody": b"{}",
    "/brokers/topics/made-by-hand": b"{}",
    "/config/brokers/<default>": b"nonsense",
    "/config/groups/g": b"7",
    "/config/users/u": b"null",
    "/config/changes/config_change_0000099999": b"?",
    "/config/changes/stray": b"",
    "/controller_epoch": b"many",
    "/finalized_features": b"{",
    "/latest_producer_id_block": b"nonsense",
    "/admin/reassign_partitions": b"nonsense",
    "/admin/preferred_replica_election": b"nonsense",
    "/isr_change_notification/isr_change_0000000000": b"nonsense",
    "/log_dir_event_notification/log_dir_event_0000000000": b"nonsense",
}
TAKEN_AWAY = (
    "/brokers/topics/no-state/partitions",
    "/config/topics/no-config",
    "/brokers/seqid",
    "/admin/delete_topics",
)
NAMED = (
    "/brokers/topics/bad-assignment",
    "/brokers/topics/bad-state/partitions/0/state",
    "/config/topics/bad-config",
    "/brokers/ids/9",
    "/brokers/ids/nobody",
    "/brokers/topics/made-by-hand",
    "/config/brokers/<default>",
    "/config/groups/g",
    "/config/users/u",
    "/controller_epoch",
    "/finalized_features",
)
BAD = ("bad-assignment", "bad-state", "bad-config")
TOPICS = ("good", "no-state", "no-config", *BAD)


@contextmanager
def zookeeper(cluster):
    client = KazooClient(cluster.zookeeper.address)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


def produce(cluster, topic, values):
    failed = []
    producer = Producer(cluster.client | {"acks": "all", "linger.ms": 0})
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(PATIENCE_S) == 0
    assert failed == [None] * len(values)


def consume(cluster, topic, count):
    consumer = Consumer(cluster.client | {"group.id": "none"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = consumer.consume(count, PATIENCE_S)
    consumer.close()
    return [message.value() for message in found]


def test_every_broker_lives_and_every_other_topic_is_served(tmp_path):
    with Cluster(tmp_path) as cluster:
        for topic in TOPICS:
            cluster.create(topic)
            produce(cluster, topic, [b"0"])
        cluster.until_in_sync(*TOPICS)
        kept = {}
        with zookeeper(cluster) as client:
            for path, data in NONSENSE.items():
                if client.exists(path):
                    kept[path] = client.get(path)[0]
                    client.set(path, data)
                else:
                    client.create(path, data, makepath=True)
            for path in TAKEN_AWAY:
                client.delete(path, recursive=True)

        # Each new controller reads all znodes again.
        values = [b"0"]
        for number in (b"1", b"2", b"3"):
            before = cluster.controller()
            cluster.brokers[before].kill()
            until(lambda before=before: cluster.controller() != before)
            cluster.brokers[before].start()
            cluster.until_in_sync("good", "no-config")
            produce(cluster, "good", [number])
            values.append(number)
            assert consume(cluster, "good", len(values)) == values
            assert consume(cluster, "no-config", 1) == [b"0"]
            for broker in cluster.brokers.values():
                assert broker.process.poll() is None, broker.output[-20:]
        cluster.create("new")
        produce(cluster, "new", [b"0"])
        # The unreadable znodes are logged, with a remedy.
        said = [line for broker in cluster.brokers.values() for line in broker.output]
        for path in NAMED:
            assert any(f"{path} holds b" in line for line in said), path
        assert any("zookeeper-shell" in line for line in said)
        assert not [line for line in said if "Traceback" in line]

        with zookeeper(cluster) as client:
            # Once a znode is repaired, its topic is served again, without a restart.
            for topic, path in zip(BAD, list(NONSENSE), strict=False):
                client.set(path, kept[path])
                until(lambda topic=topic: topic in cluster.admin.list_topics(timeout=5).topics)
        cluster.until_in_sync(*BAD, "good")
        for topic in BAD:
            produce(cluster, topic, [b"1"])
            assert consume(cluster, topic, 2) == [b"0", b"1"]
