"""Test that a consumer fetches from the follower in its rack (KIP-392), with our broker and
Apache's as leader and as follower."""

from __future__ import annotations

import json
import time

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from tests.support.brokers import OURS
from tests.support.mixed_cluster import APACHE, PATIENCE_S, MixedCluster, until

pytestmark = pytest.mark.story

KINDS = {1: OURS, 2: APACHE}
RACKS = {1: "east", 2: "west"}
SETTINGS = {
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "offsets.topic.replication.factor": 2,
    "transaction.state.log.replication.factor": 2,
}
STATISTICS_MS = 100
RECORDS = 50


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    directory = tmp_path_factory.mktemp("mixed")
    with MixedCluster(directory, KINDS, SETTINGS, racks=RACKS) as cluster:
        until(lambda: cluster.live == set(KINDS))
        yield cluster


def create(cluster, topic, leader):
    replicas = [leader, *(id_ for id_ in KINDS if id_ != leader)]
    new = NewTopic(topic, 1, replica_assignment=[replicas])
    cluster.ask(lambda: cluster.admin.create_topics([new]))
    until(lambda: len(cluster.state(topic)["isr"]) == len(KINDS))
    cluster.until_known(topic, 1)


class Reader:
    """A consumer of partition 0; librdkafka's statistics report the broker that it fetches from."""

    def __init__(self, cluster, topic, rack, isolation):
        self.values = []
        self.broker = -1
        self.fetches = {}
        self._topic = topic
        self._consumer = Consumer(
            cluster.client
            | {
                "group.id": "none",
                "client.rack": rack,
                "isolation.level": isolation,
                "statistics.interval.ms": STATISTICS_MS,
                "stats_cb": self._take,
            }
        )
        self._consumer.assign([TopicPartition(topic, 0, 0)])

    def _take(self, told):
        told = json.loads(told)
        partition = told["topics"].get(self._topic, {"partitions": {}})["partitions"].get("0")
        if partition is not None:
            self.broker = partition["broker"]
        self.fetches = {b["nodeid"]: b["req"].get("Fetch", 0) for b in told["brokers"].values()}

    def read(self, holds):
        """Poll until `holds` returns true."""
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            assert time.monotonic() < deadline, (self.broker, len(self.values))
            message = self._consumer.poll(STATISTICS_MS / 1000)
            if message is not None:
                assert message.error() is None, message.error()
                self.values.append(message.value().decode())

    def close(self):
        self._consumer.close()


class Writer:
    """A transactional producer; every second transaction is aborted."""

    def __init__(self, cluster, topic):
        self.kept, self.dropped = [], []
        self._topic = topic
        self._producer = Producer(cluster.client | {"transactional.id": topic})
        self._producer.init_transactions(PATIENCE_S)

    def write(self):
        for values, word, end in (
            (self.kept, "kept", self._producer.commit_transaction),
            (self.dropped, "dropped", self._producer.abort_transaction),
        ):
            self._producer.begin_transaction()
            for _ in range(RECORDS):
                values.append(f"{word} {len(values)}")
                self._producer.produce(self._topic, values[-1], partition=0)
            self._producer.flush(PATIENCE_S)
            end(PATIENCE_S)


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize("leader", KINDS, ids=["of-our-leader", "of-an-apache-leader"])
def test_a_consumer_reads_from_the_follower_in_its_rack(cluster, leader, isolation):
    (follower,) = set(KINDS) - {leader}
    topic = f"{isolation}-{leader}"
    create(cluster, topic, leader)
    writer = Writer(cluster, topic)
    reader = Reader(cluster, topic, RACKS[follower], isolation)
    reads_all = isolation == "read_uncommitted"

    def has_all():
        wanted = len(writer.kept) + (len(writer.dropped) if reads_all else 0)
        return len(reader.values) >= wanted

    try:
        writer.write()
        reader.read(lambda: has_all() and reader.broker == follower)
        asked = dict(reader.fetches)
        writer.write()
        reader.read(lambda: has_all() and reader.fetches[follower] > asked[follower])
        assert reader.broker == follower
        assert reader.fetches[leader] == asked[leader]
    finally:
        reader.close()
    assert [v for v in reader.values if v.startswith("kept")] == writer.kept
    dropped = [v for v in reader.values if v.startswith("dropped")]
    assert dropped == (writer.dropped if reads_all else [])


@pytest.mark.parametrize("is_known", [True, False], ids=["its-rack", "no-rack-of-a-replica"])
@pytest.mark.parametrize("leader", KINDS, ids=["of-our-leader", "of-an-apache-leader"])
def test_a_consumer_for_whom_no_follower_is_nearer_stays_with_the_leader(cluster, leader, is_known):
    (follower,) = set(KINDS) - {leader}
    rack = RACKS[leader] if is_known else "north"
    topic = f"{rack}-{leader}"
    create(cluster, topic, leader)
    writer = Writer(cluster, topic)
    reader = Reader(cluster, topic, rack, "read_committed")
    try:
        for _ in range(2):
            writer.write()
            reader.read(lambda: len(reader.values) >= len(writer.kept))
        reader.read(lambda: reader.fetches.get(leader, 0) > 0)
        assert reader.broker == leader
        assert reader.fetches[follower] == 0
    finally:
        reader.close()
    assert reader.values == writer.kept
