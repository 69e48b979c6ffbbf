"""Test that `k doctor` finds problems provoked on real brokers, and finds none in a healthy
cluster."""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import time

import pytest

from kcli.client import Blocking, Consumer, Producer, TopicPartition
from tests.fault.test_directory_removed import remove
from tests.support.brokers import until
from tests.support.opened_cluster import opened_cluster
from tests.support.process import BrokerProcess
from tests.support.tools import K, free_port
from tests.support.transactions import hanging

PATIENCE_S = 60
SETTINGS = {
    "min.insync.replicas": 2,
    "default.replication.factor": 3,
    "zookeeper.session.timeout.ms": 2000,
    "transaction.partition.verification.enable": "false",
}
HOUR_S = 3600


def k(address, *words, status=0):
    words = [*K, *map(str, words), "--bootstrap-server", address]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == status, done.stdout + done.stderr
    return done


def diagnosed(address, status=3):
    """Return (check, severity, subject, found) of each finding."""
    told = k(address, "doctor", "-o", "json", "--watch", "2s", status=status)
    return [
        (one["check"], one["severity"], one["subject"], one["found"])
        for one in json.loads(told.stdout)["items"]
    ]


def names(findings):
    return [(check, severity, subject) for check, severity, subject, _ in findings]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with opened_cluster(tmp_path_factory.mktemp("cluster"), 3, SETTINGS) as cluster:
        k(cluster.bootstrap_servers, "topics", "--create", "--topic", "orders")
        with Blocking(Producer, {"bootstrap.servers": cluster.bootstrap_servers}) as producer:
            producer.send("orders", b"1").result()
        yield cluster


def test_a_healthy_cluster_has_no_finding(cluster):
    told = k(cluster.bootstrap_servers, "doctor")
    assert told.stdout == (
        "Findings: 0.  Looked at: brokers 3, topics 1, partitions 1, groups with members 0.\n"
    )
    assert diagnosed(cluster.bootstrap_servers, 0) == []


def test_a_group_whose_member_commits_nothing_does_not_move(cluster):
    config = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": "stuck",
        "enable.auto.commit": "false",
        "auto.offset.reset": "earliest",
    }
    with Blocking(Consumer, config) as consumer:
        consumer.subscribe(["orders"])
        until(lambda: consumer.poll(timeout_ms=500))
        consumer.commit({TopicPartition("orders", 0): 0})
        (found,) = diagnosed(cluster.bootstrap_servers)
        assert found[:3] == ("groups", "warning", "group stuck")
        assert "does not move in 1 partition of 1: orders-0 is 1 behind" in found[3]
        consumer.commit({TopicPartition("orders", 0): 1})
        assert diagnosed(cluster.bootstrap_servers, 0) == []
    k(cluster.bootstrap_servers, "consumer-groups", "--delete", "--group", "stuck")


def test_a_setting_that_one_broker_has_otherwise_is_told_with_each_value(cluster):
    alter = ("configs", "--alter", "--broker", 2)
    k(cluster.bootstrap_servers, *alter, "--add-config", "message.max.bytes=5000000")
    try:
        (found,) = diagnosed(cluster.bootstrap_servers)
        assert found[:3] == ("settings", "warning", "message.max.bytes")
        assert "1048588 at broker 1, 5000000 at broker 2, 1048588 at broker 3" in found[3]
    finally:
        k(cluster.bootstrap_servers, *alter, "--delete-config", "message.max.bytes")
    assert diagnosed(cluster.bootstrap_servers, 0) == []


def test_topics_with_too_few_replicas_are_told_of(cluster):
    create = ("topics", "--create", "--topic")
    k(cluster.bootstrap_servers, *create, "lone", "--replication-factor", 1)
    k(cluster.bootstrap_servers, *create, "tight", "--replication-factor", 2)
    try:
        assert names(diagnosed(cluster.bootstrap_servers)) == [
            ("settings", "error", "topic lone"),
            ("settings", "warning", "topic tight"),
            ("settings", "warning", "topic lone"),
        ]
    finally:
        k(cluster.bootstrap_servers, "topics", "--delete", "--topic", "lone|tight")


def test_a_record_from_the_future_is_told_of(cluster):
    k(cluster.bootstrap_servers, "topics", "--create", "--topic", "early")
    with Blocking(Producer, {"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        ahead_ms = int((time.time() + HOUR_S) * 1000)
        producer.send("early", b"1", timestamp=ahead_ms).result()
    (found,) = diagnosed(cluster.bootstrap_servers)
    assert found[:3] == ("clocks", "warning", "early-0")
    k(cluster.bootstrap_servers, "topics", "--delete", "--topic", "early")


def test_a_transaction_that_no_coordinator_knows_of_is_told_of(cluster):
    k(cluster.bootstrap_servers, "topics", "--create", "--topic", "hung")
    leader = cluster.leader_of("hung")
    named = (f"hangs-{number}" for number in itertools.count())
    name = next(name for name in named if cluster.transaction_coordinator_of(name) == leader)
    asyncio.run(hanging(cluster.brokers[leader].address, name, "hung", [b"1"]))
    (found,) = diagnosed(cluster.bootstrap_servers)
    assert found[:3] == ("transactions", "error", "hung-0")
    assert "keeps readers of read_committed back at 0 of 1" in found[3]
    k(cluster.bootstrap_servers, "topics", "--delete", "--topic", "hung")


def test_a_dead_broker_and_what_it_held_are_told_of(cluster):
    k(
        *(cluster.bootstrap_servers, "topics", "--create", "--topic", "lone"),
        *("--replica-assignment", "2", "--config", "min.insync.replicas=1"),
    )
    controller = cluster.controller
    k(cluster.bootstrap_servers, "topics", "--describe", "--topic", "lone")
    cluster.kill(2)
    try:
        if controller != 2:
            until(lambda: "Leader: none" in described(cluster))
        until(lambda: set(cluster.in_sync("orders")) == {1, 3})
        found = diagnosed(cluster.bootstrap_servers)
        assert found.pop(0)[:2] == ("addresses", "warning")  # clients get all three addresses
        assert names(found)[:2] == [
            ("brokers", "error", "broker 2"),
            ("partitions", "error", "partition lone-0"),
        ]
        # Includes partitions of the internal topics, which lack the same broker.
        assert found[2][:2] == ("partitions", "warning")
        assert found[2][2].startswith("partitions orders-0, ")
        assert "no leader; in sync: 2; broker 2 is down" in found[1][3]
        assert found[2][3] == "replicas out of sync; broker 2 is down"
        cluster.kill(3)
        until(lambda: cluster.in_sync("orders") == [1])
        until(lambda: cluster.controller == 1)
        refused = [
            subject
            for *_, subject, text in diagnosed(cluster.bootstrap_servers)
            if "fewer than min.insync.replicas=2: acks=all is refused" in text
        ]
        assert any("orders-0" in subject for subject in refused)
    finally:
        for id in {2, 3} - set(cluster.running):
            cluster.start(id)
    k(cluster.bootstrap_servers, "topics", "--delete", "--topic", "lone")
    until(lambda: diagnosed_or_not(cluster.bootstrap_servers) == [])


def described(cluster):
    return k(cluster.bootstrap_servers, "topics", "--describe", "--topic", "lone").stdout


def test_an_address_that_leads_nowhere_from_here_is_told_of_though_nothing_else_is(tmp_path):
    listener = f"127.0.0.1:{free_port()}"
    settings = {
        "listeners": f"PLAINTEXT://{listener}",
        "advertised.listeners": "PLAINTEXT://127.0.0.1:1",
    }
    with BrokerProcess(tmp_path, settings):
        told = k(listener, "doctor", status=3)
        assert told.stdout.startswith("error    broker 0: cannot be reached at the address")
        assert "127.0.0.1:1: Connection refused" in told.stdout
        assert "not available: transactions: " in told.stderr


def test_a_bootstrap_server_that_is_not_there_is_told_of(cluster):
    assert names(diagnosed("127.0.0.1:1")) == [("addresses", "error", "bootstrap 127.0.0.1:1")]
    some = f"127.0.0.1:1,{cluster.bootstrap_servers}"
    assert names(diagnosed(some)) == [("addresses", "warning", "bootstrap 127.0.0.1:1")]
    told = k("nowhere.invalid:1", "doctor", status=3).stdout
    assert "the name nowhere.invalid is not known here" in told


def test_a_disk_that_failed_is_told_of(tmp_path):
    kept, removed = tmp_path / "kept", tmp_path / "removed"
    with BrokerProcess(tmp_path, {"log.dirs": f"{kept},{removed}"}) as broker:
        k(broker.address, "topics", "--create", "--topic", "t", "--partitions", 4)
        assert diagnosed(broker.address, 0) == []
        remove(removed)
        until(lambda: "disks" in [name for name, *_ in names(diagnosed_or_not(broker.address))])


def diagnosed_or_not(address):
    words = [*K, "doctor", "-o", "json", "--bootstrap-server", address]
    told = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S)
    items = json.loads(told.stdout)["items"]
    return [(one["check"], one["severity"], one["subject"], one["found"]) for one in items]
