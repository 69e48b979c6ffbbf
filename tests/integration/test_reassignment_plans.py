"""Test `k reassign-partitions --plan` on four brokers: executed under load, interrupted, and
undone."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess

import pytest

from kcli.client import Blocking, Producer
from kcli.testing.kafka_cluster import KafkaCluster
from tests.support.brokers import until
from tests.support.moves import Moves
from tests.support.opened_cluster import opened_cluster
from tests.support.steady_load import SteadyLoad
from tests.support.tools import K

pytestmark = pytest.mark.story

PATIENCE_S = 120
PARTITIONS = 8
FILL, BYTES = 40, 50_000
"""Number of records in each partition, and their size."""
SLOW = 100_000
"""Bytes per second; a partition of 2 MB takes 20 seconds."""
SETTINGS = {"zookeeper.session.timeout.ms": 4000, "offsets.topic.num.partitions": 2}


class Planned(Moves):
    def __init__(self, cluster: KafkaCluster, directory) -> None:
        super().__init__(cluster, "t", PATIENCE_S)
        self.address = cluster.bootstrap_servers
        self.journal = directory / "journal.json"

    def words(self, *words):
        given = [*map(str, words), "--bootstrap-server", self.address]
        return [*K, "reassign-partitions", *given, "--journal", str(self.journal)]

    def k(self, *words, status=0):
        done = subprocess.run(
            self.words(*words), capture_output=True, text=True, timeout=PATIENCE_S
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout + done.stderr

    def start(self, *words):
        """Start the command; return its process once a batch with records is moving."""
        process = subprocess.Popen(self.words(*words), stdout=subprocess.DEVNULL)
        until(lambda: "t" in {one["topic"] for one in self.moving()})
        return process


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    directory = tmp_path_factory.mktemp("cluster")
    with opened_cluster(directory, 4, SETTINGS) as cluster:
        made = Planned(cluster, directory)
        placed = ",".join(f"{1 + n % 3}:{1 + (n + 1) % 3}" for n in range(PARTITIONS))
        made.ask("topics", "--create", "--topic", "t", "--replica-assignment", placed)
        with Blocking(Producer, {"bootstrap.servers": made.address}) as producer:
            for partition in range(PARTITIONS):
                for _ in range(FILL):
                    producer.send("t", os.urandom(BYTES), partition=partition)
            producer.flush()
        yield made


def carried(plan):
    """Return the number of replicas on each broker."""
    counts = dict.fromkeys((1, 2, 3, 4), 0)
    for replicas in plan.values():
        for broker in replicas:
            counts[broker] += 1
    return counts


def test_a_plan_is_shown_and_nothing_moves(planned):
    before = planned.replicas()
    told = planned.k("--plan", "rebalance", "--throttle", 1_000_000)
    lines = [line.split() for line in told.splitlines()]
    assert lines[0] == ["BROKER", "RACK", "LEADERS", "REPLICAS", "BYTES"]
    assert [line[0] for line in lines[1:5]] == ["1", "2", "3", "4"]
    assert lines[4][2:8] == ["0", "->", "2", "0", "->", "4"]
    # 16 replicas of 2 MB, of which the fourth broker gets four.
    assert re.search(
        r"Partitions that change: \d+; 8\.\d MB to copy, 0:00:08 at the throttle\.", told
    )
    rows = json.loads(planned.k("--plan", "rebalance", "-o", "json"))["items"]
    assert [(r["broker"], r["replicas_after"]) for r in rows] == [(b, 4) for b in (1, 2, 3, 4)]
    assert planned.replicas() == before
    assert not planned.journal.exists()


def test_a_plan_is_carried_out_under_load(planned):
    planned.ask("topics", "--create", "--topic", "load", "--partitions", 2)
    with SteadyLoad({"bootstrap.servers": planned.address}, "load", 2) as load:
        load.advance()
        told = planned.k("--plan", "rebalance", "--throttle", 20_000_000, "--batch", 2, "--execute")
        load.advance()
    load.check()
    assert told.count("Moved: ") > 1
    assert set(carried(planned.replicas()).values()) == {4}
    assert planned.moving() == planned.throttles() == []
    assert not planned.journal.exists()
    assert "Nothing has to change." in planned.k("--plan", "rebalance", "--execute")


def test_what_ctrl_c_ends_is_not_throttled_and_can_be_resumed(planned):
    started = planned.start(
        *("--plan", "evacuate", "--broker-list", 4, "--throttle", SLOW, "--batch", 2, "--execute")
    )
    assert planned.throttles()
    started.send_signal(signal.SIGINT)
    assert started.wait(PATIENCE_S) == 130
    assert planned.moving() == planned.throttles() == []
    assert carried(planned.replicas())[4] > 0
    again = planned.k("--plan", "evacuate", "--broker-list", 4, "--execute", status=1)
    assert f"{planned.journal}: the journal of an interrupted reassignment exists" in again
    journal = json.loads(planned.journal.read_text())
    assert journal["throttle"] == SLOW
    planned.journal.write_text(json.dumps(journal | {"throttle": 20_000_000}))
    planned.k("--resume")
    assert carried(planned.replicas())[4] == 0
    assert planned.moving() == planned.throttles() == []
    assert not planned.journal.exists()


def test_what_kill_9_leaves_behind_is_taken_back(planned):
    before = planned.replicas()
    started = planned.start(
        *("--plan", "rebalance", "--throttle", SLOW, "--batch", 2, "--execute"),
    )
    started.kill()
    started.wait()
    assert planned.throttles()
    assert planned.moving()
    planned.k("--undo")
    assert planned.replicas() == before
    assert planned.moving() == planned.throttles() == []
    assert not planned.journal.exists()
    assert "the journal does not exist" in planned.k("--undo", status=1)


@pytest.mark.parametrize(
    ("words", "status", "why"),
    [
        (["--plan", "evacuate"], 2, "broker-list"),
        (["--plan", "set-rf"], 2, "replication-factor"),
        (
            ["--plan", "rebalance", "--broker-list", "1"],
            2,
            "--broker-list is not allowed with --plan",
        ),
        (["--plan", "rebalance", "--verify"], 2, "--verify is not allowed with --plan"),
        (["--plan", "rebalance", "--throttle", "0"], 2, "--throttle must be a positive number"),
        (["--resume", "--undo"], 2, "--resume and --undo cannot be used together"),
        (["--plan", "evacuate", "--broker-list", "9"], 1, "broker 9 does not exist"),
        (["--plan", "set-rf", "--replication-factor", "5"], 1, "there are 4 brokers to hold them"),
        (
            ["--plan", "set-rf", "--replication-factor", "3", "--topic", "x.*"],
            1,
            "no topic is named x.*",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(planned, words, status, why):
    assert why in planned.k(*words, status=status)


def test_topics_get_another_number_of_replicas(planned):
    planned.k("--plan", "set-rf", "--replication-factor", 3, "--topic", "t", "--execute")
    assert {len(replicas) for replicas in planned.replicas().values()} == {3}
    planned.k("--plan", "set-rf", "--replication-factor", 1, "--topic", "t", "--execute")
    assert {len(replicas) for replicas in planned.replicas().values()} == {1}
