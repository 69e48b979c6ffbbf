"""Test a broker of Apache Kafka 3.9 and one of ours that authenticate to ZooKeeper as the same user
and share znodes that no other user may change."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic
from kazoo.exceptions import NoAuthError

from tests.support.brokers import OURS
from tests.support.mixed_cluster import APACHE, PATIENCE_S, MixedCluster, until
from tests.support.zookeeper_server import SaslZooKeeperServer

LOGIN = (
    'org.apache.zookeeper.server.auth.DigestLoginModule required username="k" password="secret";'
)
SETTINGS = {
    "offsets.topic.replication.factor": 2,
    "transaction.state.log.replication.factor": 2,
    "zookeeper.set.acl": "true",
    "zookeeper.sasl.jaas.config": LOGIN,  # Kafka logs a warning, and reads a JAAS file
}
KINDS = {1: OURS, 2: APACHE}
FOR_READERS = {("sasl", "k", 31), ("world", "anyone", 1)}
FOR_BROKERS = {("sasl", "k", 31)}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    directory = tmp_path_factory.mktemp("login")
    (directory / "client.conf").write_text(f"Client {{\n  {LOGIN}\n}};\n")
    zookeeper = SaslZooKeeperServer(directory / "zookeeper")
    with pytest.MonkeyPatch.context() as patch:
        option = f"-Djava.security.auth.login.config={directory / 'client.conf'}"
        patch.setenv("KAFKA_OPTS", option)
        with MixedCluster(directory, KINDS, SETTINGS, zookeeper) as cluster:
            until(lambda: cluster.live == set(KINDS))
            yield cluster


def create(cluster, topic, replicas):
    cluster.ask(lambda: cluster.admin.create_topics([NewTopic(topic, 2, replicas)]))
    until(lambda: all(len(cluster.state(topic, p)["isr"]) == replicas for p in range(2)))


def written(cluster, topic):
    """Produce a record to each partition; return the delivery errors, None for success."""
    producer = Producer(cluster.client)
    told = []
    for partition in range(2):
        producer.produce(topic, b"1", partition=partition, on_delivery=lambda e, _: told.append(e))
    assert producer.flush(PATIENCE_S) == 0
    return told


def rights(cluster, path):
    acls, _ = cluster.session.get_acls(path)
    return {(acl.id.scheme, acl.id.id, acl.perms) for acl in acls}


def test_each_is_controller_of_what_the_other_made(cluster):
    for turn in range(2):
        controller = cluster.controller
        create(cluster, f"both-{turn}", 2)
        assert written(cluster, f"both-{turn}") == [None, None]
        cluster.kill([controller])
        until(lambda gone=controller: cluster.controller not in (-1, gone))
        until(lambda gone=controller: cluster.led_by(gone, "both-0", 2) == 0)
        create(cluster, f"one-{turn}", 1)
        cluster.start([controller])
        until(lambda: cluster.live == set(KINDS))
        until(lambda: all(len(cluster.state("both-0", p)["isr"]) == 2 for p in range(2)))


def test_znodes_have_the_same_rights_whoever_made_them(cluster):
    for path in (
        "/brokers/ids/1",
        "/brokers/ids/2",
        "/brokers/topics/one-0",
        "/brokers/topics/one-1",
    ):
        assert rights(cluster, path) == FOR_READERS
        with pytest.raises(NoAuthError):
            cluster.session.set(path, b"")
    for path in ("/config/users", "/config/brokers"):
        with pytest.raises(NoAuthError):
            cluster.session.get(path)
