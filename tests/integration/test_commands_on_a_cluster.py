"""Test every command on a cluster of three brokers of which one is dead.

The dead broker was the controller, the coordinator of the group and of the transactional id, and
the leader of some partitions of every topic. Its address comes first in the bootstrap servers.
"""

from __future__ import annotations

import itertools
import json
import re
import subprocess

import pytest

from kcli.client import Blocking, Producer
from kcli.testing.broker_nursery import Nursery
from kcli.testing.kafka_cluster import KafkaCluster
from tests.support.tools import K

PATIENCE_S = 100
PARTITIONS = 3
SETTINGS = {
    "num.partitions": PARTITIONS,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
    "zookeeper.session.timeout.ms": 2000,
}
TOPICS = ("orders", "old", "measured", "copied", "sent", "perf", "e2e", "verified")
VALUES = [f"{number}" for number in range(30)]


class Crippled:
    """A cluster with a dead broker, and the ids that the dead broker coordinated."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self.cluster = cluster
        self.id = cluster.controller
        self.group = self._coordinated(cluster.coordinator_of, "group")
        self.transactional_id = self._coordinated(cluster.transaction_coordinator_of, "copier")
        addresses = [broker.address for broker in cluster.brokers.values()]
        dead = cluster.brokers[self.id].address
        self.bootstrap = ",".join(sorted(addresses, key=lambda address: address != dead))

    def _coordinated(self, coordinator_of, name) -> str:
        names = (f"{name}-{number}" for number in itertools.count())
        return next(name for name in names if coordinator_of(name) == self.id)

    def run(self, command, *words, input="", status=0):
        words = [*K, command, "--bootstrap-server", self.bootstrap, *map(str, words)]
        done = subprocess.run(
            words, input=input, capture_output=True, text=True, timeout=PATIENCE_S
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done

    def k(self, command, *words, input="") -> str:
        return self.run(command, *words, input=input).stdout

    def read(self, topic, *words) -> list[str]:
        words = ("--topic", topic, "--from-beginning", "--exit-at-end", *words)
        return sorted(self.k("console-consumer", *words).split(), key=int)


@pytest.fixture(scope="module")
def crippled(tmp_path_factory):
    with Nursery() as nursery:
        cluster = KafkaCluster(nursery, tmp_path_factory.mktemp("cluster"), 3, SETTINGS)
        cluster.open()
        try:
            made = Crippled(cluster)
            for topic in TOPICS:
                made.k("topics", "--create", "--topic", topic)
            for topic in ("orders", "old", "measured"):
                made.k("console-producer", "--topic", topic, input="\n".join(VALUES))
            words = ("--group", made.group, "--max-messages", len(VALUES))
            made.k("console-consumer", "--topic", "orders", "--from-beginning", *words)
            with Blocking(
                Producer,
                {
                    "bootstrap.servers": made.bootstrap,
                    "transactional.id": made.transactional_id,
                },
            ) as producer:
                producer.init_transactions()
                with producer.transaction():
                    for partition in range(PARTITIONS):
                        producer.send("copied", b"1", partition=partition).result()
            leaders = {cluster.leader_of("orders", number) for number in range(PARTITIONS)}
            assert made.id in leaders
            cluster.kill(made.id)
            yield made
        finally:
            for name, log in cluster.logs.items():
                print(f"--- {name}\n{log}")  # pytest shows it with a failure
            cluster.close()


def test_topics(crippled):
    crippled.k("topics", "--create", "--topic", "made", "--replication-factor", 2)
    crippled.k("topics", "--alter", "--topic", "made", "--partitions", 5)
    lines = crippled.k("topics", "--describe", "--topic", "made").splitlines()
    assert len(lines) == 6
    leaders = set(re.findall(r"Leader: (\S+)", "\n".join(lines)))
    assert leaders == {*map(str, crippled.cluster.running)}
    crippled.cluster.leader_of("orders")
    under = crippled.k("topics", "--describe", "--under-replicated-partitions")
    assert len(re.findall("Topic: orders\t", under)) == PARTITIONS
    assert "Topic: made\t" not in under
    assert "made" in crippled.k("topics", "--list").split()
    crippled.k("topics", "--delete", "--topic", "made")
    refused = crippled.run("topics", "--create", "--topic", "three", status=1)
    assert "cannot be reached because only 2 broker(s) are registered" in refused.stdout


def test_records_are_sent_and_read(crippled):
    crippled.k("console-producer", "--topic", "sent", input="\n".join(VALUES))
    assert crippled.read("sent") == VALUES
    assert crippled.read("orders") == VALUES


def test_a_group_reads_on_with_its_next_coordinator(crippled):
    group = ("--group", crippled.group)
    described = crippled.k("consumer-groups", "--describe", *group, "-o", "jsonl")
    rows = [json.loads(line) for line in described.splitlines()]
    assert sum(row["lag"] for row in rows) == 0
    assert len(rows) == PARTITIONS
    crippled.k("console-producer", "--topic", "orders", input="100\n101\n")
    reads = crippled.k("console-consumer", "--topic", "orders", *group, "--max-messages", 2)
    assert sorted(reads.split()) == ["100", "101"]
    assert crippled.group in crippled.k("consumer-groups", "--list").split()
    assert crippled.group in crippled.k("groups", "--list")
    reset = ("--reset-offsets", "--topic", "orders", "--to-earliest", "--execute")
    crippled.k("consumer-groups", *group, *reset)
    described = crippled.k("consumer-groups", "--describe", *group, "-o", "jsonl")
    assert {json.loads(line)["current_offset"] for line in described.splitlines()} == {0}
    crippled.k("consumer-groups", "--delete", *group)


def test_offsets(crippled):
    lines = crippled.k("get-offsets", "--topic", "measured").splitlines()
    assert sum(int(line.rpartition(":")[2]) for line in lines) == len(VALUES)
    assert len(lines) == PARTITIONS


def test_log_dirs_of_those_that_are_there(crippled):
    alive = ",".join(map(str, crippled.cluster.running))
    asked = crippled.k("log-dirs", "--describe", "--broker-list", alive, "-o", "jsonl")
    assert {json.loads(line)["broker"] for line in asked.splitlines()} == {
        *crippled.cluster.running
    }
    every = crippled.k("log-dirs", "--describe", "-o", "jsonl")
    assert {json.loads(line)["broker"] for line in every.splitlines()} == {
        *crippled.cluster.running
    }


def test_records_are_deleted_at_each_leader(crippled, tmp_path):
    file = tmp_path / "offsets.json"
    each = [{"topic": "old", "partition": number, "offset": -1} for number in range(PARTITIONS)]
    file.write_text(json.dumps({"partitions": each, "version": 1}))
    crippled.k("delete-records", "--offset-json-file", file)
    early = crippled.k("get-offsets", "--topic", "old", "--time", "earliest")
    assert early == crippled.k("get-offsets", "--topic", "old", "--time", "latest")
    assert crippled.read("old") == []


def test_configs(crippled):
    crippled.k("configs", "--alter", "--topic", "measured", "--add-config", "retention.ms=60000")
    described = crippled.k("configs", "--describe", "--topic", "measured")
    assert "retention.ms=60000" in described
    for id in crippled.cluster.running:
        (name, value) = ("log.cleaner.threads", "2")
        crippled.k("configs", "--alter", "--broker", id, "--add-config", f"{name}={value}")
        assert f"{name}={value}" in crippled.k("configs", "--describe", "--broker", id)
    crippled.k("configs", "--alter", "--client", "c", "--add-config", "producer_byte_rate=1000000")
    assert "producer_byte_rate=1000000.0" in crippled.k("configs", "--describe", "--client", "c")
    dead = crippled.run("configs", "--describe", "--broker", crippled.id, status=1)
    assert "Traceback" not in dead.stderr


def test_transactions(crippled):
    listed = crippled.k("transactions", "list")
    assert crippled.transactional_id in listed
    id = ("--transactional-id", crippled.transactional_id)
    assert "CompleteCommit" in crippled.k("transactions", "describe", *id)
    for partition in range(PARTITIONS):
        words = ("--topic", "copied", "--partition", partition)
        crippled.k("transactions", "describe-producers", *words)
    assert crippled.k("transactions", "find-hanging", "--topic", "copied").count("\n") <= 1
    with Blocking(
        Producer,
        {"bootstrap.servers": crippled.bootstrap, "transactional.id": crippled.transactional_id},
    ) as producer:
        producer.init_transactions()
        with producer.transaction():
            for partition in range(PARTITIONS):
                producer.send("copied", b"2", partition=partition).result()
    committed = ("--isolation-level", "read_committed")
    assert crippled.read("copied", *committed) == ["1"] * PARTITIONS + ["2"] * PARTITIONS


def test_performance(crippled):
    payload = ("--num-records", 500, "--record-size", 100, "--throughput", -1)
    sent = crippled.k("producer-perf-test", "--topic", "perf", *payload)
    assert "500 records sent" in sent
    read = crippled.k("consumer-perf-test", "--topic", "perf", "--num-records", 500)
    assert ", 500, " in read
    words = ("--topic", "e2e", "--num-records", 20, "--producer-acks", "all", "--record-size", 10)
    assert "Avg latency" in crippled.k("e2e-latency", *words)


def test_verifiable(crippled):
    told = crippled.k("verifiable-producer", "--topic", "verified", "--max-messages", 50)
    last = json.loads(told.splitlines()[-1])
    assert (last["acked"], last["sent"]) == (50, 50)
    words = ("--topic", "verified", "--group-id", "verifier", "--max-messages", 50)
    told = crippled.k("verifiable-consumer", *words)
    consumed = [json.loads(line) for line in told.splitlines()]
    assert sum(one["count"] for one in consumed if one["name"] == "records_consumed") == 50


def test_the_cluster(crippled):
    running = crippled.cluster.running
    endpoints = crippled.k("cluster", "list-endpoints", "-o", "jsonl").splitlines()
    assert [json.loads(line)["id"] for line in endpoints] == running
    assert crippled.k("cluster", "cluster-id").startswith("Cluster ID: ")
    versions = crippled.k("broker-api-versions")
    assert len(re.findall(r" \(id: \d+ ", versions)) == len(running)
    assert "group.version" in crippled.k("features", "describe")


def test_the_dead_one_comes_back_and_is_missed_no_more(crippled):
    crippled.cluster.start(crippled.id)
    for topic in TOPICS:
        crippled.cluster.wait_in_sync(topic)
    assert crippled.k("topics", "--describe", "--under-replicated-partitions") == ""
    assert crippled.read("orders")[: len(VALUES)] == VALUES
