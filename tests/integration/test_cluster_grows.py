"""Test a cluster under load that gets a fourth broker and loses its first, without errors for
clients."""

from __future__ import annotations

import json
import subprocess

from tests.support.brokers import until
from tests.support.opened_cluster import opened_cluster
from tests.support.steady_load import SteadyLoad
from tests.support.tools import K

PATIENCE_S = 120
PARTITIONS = 6
SETTINGS = {
    "zookeeper.session.timeout.ms": 4000,
    "offsets.topic.num.partitions": 4,
    "auto.leader.rebalance.enable": False,
}


def k(cluster, command, *words, status=0):
    given = [*map(str, words), "--bootstrap-server", cluster.running_servers]
    done = subprocess.run([*K, command, *given], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


def partitions(cluster):
    """Return the rows of all topics' partitions, including internal topics."""
    return json.loads(k(cluster, "topics", "--describe", "-o", "json"))["items"]


def hosting(cluster):
    return {id for one in partitions(cluster) for id in one["replicas"]}


def leading(cluster):
    return {one["leader"] for one in partitions(cluster)}


def test_it_grows_and_shrinks_under_load(tmp_path):
    with opened_cluster(tmp_path, 3, SETTINGS) as cluster:
        k(cluster, "topics", "--create", "--topic", "t", "--partitions", PARTITIONS)
        journal = ("--journal", tmp_path / "journal.json")
        client = {"bootstrap.servers": cluster.bootstrap_servers}
        with SteadyLoad(client, "t", PARTITIONS) as load:
            load.advance()
            new = cluster.add()
            assert hosting(cluster) == {1, 2, 3}
            k(cluster, "reassign-partitions", "--plan", "rebalance", "--execute", *journal)
            k(cluster, "leader-election", "--election-type", "preferred", "--all-topic-partitions")
            until(lambda: leading(cluster) == {1, 2, 3, new})
            load.advance()

            leaves = cluster.controller
            evacuate = ("--plan", "evacuate", "--broker-list", leaves, "--execute")
            k(cluster, "reassign-partitions", *evacuate, *journal)
            assert hosting(cluster) == {1, 2, 3, new} - {leaves}
            load.advance()
            cluster.stop(leaves)
            assert cluster.controller != leaves
            load.advance()
        load.check()
        assert k(cluster, "topics", "--describe", "--unavailable-partitions") == ""
        assert k(cluster, "topics", "--describe", "--under-replicated-partitions") == ""
        k(cluster, "doctor")
