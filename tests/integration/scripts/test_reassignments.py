"""Test that `k` and Apache's script of Kafka 4.3.1 reassign partitions with the same output and
configs at each step.

Each tool moves its own topic, on three of Apache 3.9.2's brokers and on three of ours.
"""

from __future__ import annotations

import asyncio
import functools
import json
import re

import pytest

from kcli.client import Producer
from kserver.controller.placement import place
from tests.support.brokers import OURS, until
from tests.support.mixed_cluster import APACHE, MixedCluster
from tests.support.side_by_side import OLD, apache, k
from tests.support.tools import require

PATIENCE_S = 100
IDS = (1, 2, 3)
PARTITIONS = 2
RECORDS = 200
"""Enough for a throttled move to take a minute: a broker fetches 1 MB, then waits until the rate
over the last eleven seconds is below its limit."""
VALUE = bytes(50_000)
BEFORE, AFTER = {0: [1, 2], 1: [2, 1]}, {0: [2, 3], 1: [3, 2]}
SLOW = ("--throttle", "1000")
LOG_DIRS = re.compile(r'"log_dirs":\[[^]]*\]')
TRACE = re.compile(r"\n(java|org)\.[^\n]*Exception.*", re.DOTALL)
"""The stack trace that Apache's script prints after "Error: "."""
THROTTLES = (
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
)


@pytest.fixture(scope="module", params=[OURS, APACHE])
def cluster(request, tmp_path_factory):
    require("java")
    directory = tmp_path_factory.mktemp("cluster")
    cluster = MixedCluster(directory, dict.fromkeys(IDS, request.param))
    for id, broker in cluster.brokers.items():
        broker.settings["log.dirs"] = ",".join(log_dirs(cluster, id))
    with cluster:
        yield cluster


def log_dirs(cluster, id):
    return [str(cluster.directory / f"disk-{id}-{name}") for name in "ab"]


class Mover:
    """One of the two tools, with its own topic, and its output by step."""

    def __init__(self, tool, topic, cluster, directory):
        self.tool = tool
        self.topic = topic
        self.cluster = cluster
        self.file = directory / f"{topic}.json"
        self.words = ("--bootstrap-server", cluster.addresses)
        assignment = ",".join(":".join(map(str, BEFORE[n])) for n in range(PARTITIONS))
        words = ("--create", "--topic", topic, "--replica-assignment", assignment)
        assert k("topics", *words, *self.words).status == 0
        self.printed = {}

    def plan(self, replicas, directories=None):
        entries = [
            {"topic": self.topic, "partition": number, "replicas": of}
            | ({"log_dirs": directories[number]} if number in (directories or {}) else {})
            for number, of in replicas.items()
        ]
        return self.write({"version": 1, "partitions": entries})

    def write(self, document):
        self.file.write_text(document if isinstance(document, str) else json.dumps(document))
        return ("--reassignment-json-file", str(self.file))

    def run(self, step, *words, status=0):
        done = self.tool("reassign-partitions", *words, *self.words)
        assert done.status == status, (step, done)
        text = TRACE.sub("\n", done.out.decode())
        text = LOG_DIRS.sub('"log_dirs":[]', text.replace(self.topic, "TOPIC"))
        self.printed[step] = (done.status, text.rstrip("\n"), self.throttles())
        return done.out.decode()

    def throttles(self):
        """Return the throttle configs of the topic and of the brokers, from ZooKeeper.

        Apache's brokers describe a change only a moment after their response to it.
        """
        topic = ("TOPIC", f"/config/topics/{self.topic}")
        brokers = [(str(id), f"/config/brokers/{id}") for id in IDS]
        return {
            (name, key): value
            for name, path in (topic, *brokers)
            for key, value in (self.cluster.znode(path) or {"config": {}})["config"].items()
            if key in THROTTLES
        }

    def slow_down(self, id):
        """Throttle moves between the broker's directories before a move begins.

        Apache's broker accepts the throttle at once, but applies it a moment later.
        """
        setting = f"{THROTTLES[-1]}=1"
        words = ("--broker", str(id), *self.words)
        assert k("configs", "--alter", "--add-config", setting, *words).status == 0
        told = ("configs", "--describe", *words)
        until(lambda: f"{setting} ".encode() in k(*told).out, PATIENCE_S)

    def replicas(self):
        words = ("--describe", "--topic", self.topic, "-o", "jsonl", *self.words)
        rows = map(json.loads, k("topics", *words).out.splitlines())
        return {row["partition"]: row["replicas"] for row in rows}

    def places(self):
        """Return each replica's directory by partition, broker, and whether it is a future
        replica."""
        words = ("--describe", "--topic-list", self.topic, "-o", "jsonl", *self.words)
        rows = list(map(json.loads, k("log-dirs", *words).out.splitlines()))
        return {
            (row["partition"], row["broker"], row["is_future"]): row["log_dir"]
            for row in rows
            if row["topic"] == self.topic
        }

    def until_at_rest(self):
        listed = ("reassign-partitions", "--list", *self.words)
        until(lambda: b"No partition" in k(*listed).out, PATIENCE_S)
        until(lambda: not any(is_future for _, _, is_future in self.places()), PATIENCE_S)


async def fill(mover):
    async with Producer(mover.cluster.client) as producer:
        for number in range(RECORDS):
            await producer.send(mover.topic, VALUE, partition=number % PARTITIONS)


def both(cluster, tmp_path, scenario, name):
    """Run the scenario with each tool; return what each printed."""
    movers = [
        Mover(tool, f"{name}-{of}", cluster, tmp_path)
        for of, tool in (("ours", k), ("they", apache))
    ]
    for mover in movers:
        scenario(mover)
    ours, theirs = movers
    return ours.printed, theirs.printed


def test_a_move_is_begun_slowed_told_cancelled_and_done_to_the_letter(cluster, tmp_path):
    def scenario(mover):
        asyncio.run(fill(mover))
        mover.run("nothing moves", "--list")
        told = mover.run("begin", "--execute", *mover.plan(AFTER), *SLOW)
        assert '"log_dirs":["/' in told
        mover.run("it moves", "--list")
        mover.run("once more", "--execute", *mover.plan(AFTER), status=1)
        again = ("--additional", "--throttle", "2000")
        mover.run("another rate", "--execute", *mover.plan(AFTER), *again)
        assert "in progress" in mover.run("how far", "--verify", *mover.plan(AFTER))
        mover.run("give up", "--cancel", *mover.plan(AFTER), "--preserve-throttles")
        # The original order is lost: it becomes that of the target, in Kafka too.
        assert {n: sorted(of) for n, of in mover.replicas().items()} == {0: [1, 2], 1: [1, 2]}
        assert "rather than" in mover.run("gave up", "--verify", *mover.plan(AFTER))
        assert mover.throttles() == {}
        mover.run("in earnest", "--execute", *mover.plan(AFTER), "--throttle", "100000000")
        mover.until_at_rest()
        kept = ("--verify", "--preserve-throttles")
        assert "is completed" in mover.run("done", *kept, *mover.plan(AFTER))
        assert mover.throttles()
        mover.run("nothing to cancel", "--cancel", *mover.plan(AFTER))
        assert mover.throttles() == {}
        assert mover.replicas() == AFTER

    ours, theirs = both(cluster, tmp_path, scenario, "between")
    assert ours == theirs


def test_replicas_are_moved_between_directories_to_the_letter(cluster, tmp_path):
    def scenario(mover):
        asyncio.run(fill(mover))
        for step, name in (("there", "a"), ("and back", "b")):
            target = log_dirs(cluster, 2)["ab".index(name)]
            plan = mover.plan({0: [1, 2]}, {0: ["any", target]})
            words = ("--replica-alter-log-dirs-throttle", "100000000")
            mover.run(step, "--execute", *plan, *words)
            mover.until_at_rest()
            mover.run(f"{step}, done", "--verify", *plan)
            assert mover.places()[0, 2, False] == target
        plan = mover.plan({0: [1, 2]}, {0: ["any", log_dirs(cluster, 2)[0]]})
        mover.run("elsewhere", "--verify", *plan)
        # Slow enough to continue during the test.
        mover.slow_down(2)
        mover.run("slowly", "--execute", *plan, "--replica-alter-log-dirs-throttle", "1")
        mover.run("on its way", "--verify", *plan)
        mover.run("given up", "--cancel", *plan)
        mover.until_at_rest()
        assert mover.places()[0, 2, False] == log_dirs(cluster, 2)[1]
        both_at_once = mover.plan({1: [3, 1]}, {1: [log_dirs(cluster, 3)[1], "any"]})
        mover.run("to a broker and its directory", "--execute", *both_at_once)
        mover.until_at_rest()
        mover.run("both done", "--verify", *both_at_once)
        assert mover.places()[1, 3, False] == log_dirs(cluster, 3)[1]

    ours, theirs = both(cluster, tmp_path, scenario, "disks")
    assert ours == theirs


def test_what_cannot_be_is_refused_to_the_letter(cluster, tmp_path):
    def scenario(mover):
        def plan(*entries, **fields):
            named = [{"topic": mover.topic, "partition": 0, "replicas": [1]} | e for e in entries]
            return mover.write({"partitions": named} | fields)

        def refused(step, action, *words):
            mover.run(step, action, *words, status=1)

        for step, file in (
            ("no such broker", lambda: plan({"replicas": [1, 9]})),
            ("no such topic", lambda: plan({"topic": "missing"})),
            ("no such partition", lambda: plan({"partition": 7})),
            ("nothing", plan),
            ("no replicas", lambda: plan({"replicas": []})),
            ("a partition twice", lambda: plan({}, {"replicas": [2]})),
            ("a broker twice", lambda: plan({"replicas": [1, 1]})),
            ("too few directories", lambda: plan({"replicas": [1, 2], "log_dirs": ["any"]})),
            ("another version", lambda: plan({}, version=2)),
        ):
            refused(step, "--execute", *file())
        refused("verify what is not there", "--verify", *plan({"topic": "missing"}))
        missing = plan({"topic": "missing"}, {"partition": 7})
        mover.run("verify, and clear nothing", "--verify", *missing, "--preserve-throttles")
        refused("cancel what is not there", "--cancel", *plan({"topic": "missing"}))
        mover.run("cancel, and clear nothing", "--cancel", *missing, "--preserve-throttles")
        mover.run("cancel what is not on the move", "--cancel", *plan({"partition": 1}))

        def topics(*names):
            mover.write({"topics": [{"topic": name} for name in names]})
            return ("--topics-to-move-json-file", str(mover.file), "--broker-list")

        refused("brokers twice", "--generate", *topics(mover.topic), "1,2,1")
        refused("topics twice", "--generate", *topics(mover.topic, mover.topic), "1,2")
        refused("no such topic to plan for", "--generate", *topics("missing"), "1,2")
        refused("too few brokers", "--generate", *topics(mover.topic), "3")
        refused("what is no broker", "--generate", *topics(mover.topic), "1,x")

    ours, theirs = both(cluster, tmp_path, scenario, "refused")
    assert ours == theirs


def test_a_plan_is_one_that_kafka_could_have_made(cluster, tmp_path):
    """Both tools draw the start at random, so compare with the plans of every start and shift."""
    mover = Mover(k, "planned", cluster, tmp_path)
    mover.write({"topics": [{"topic": mover.topic}]})
    words = ("--topics-to-move-json-file", str(mover.file), "--broker-list", "1,2,3")
    racks = dict.fromkeys(IDS)
    possible = {
        tuple(place(racks, PARTITIONS, 2, start=start, shift=shift))
        for start in range(len(IDS))
        for shift in range(len(IDS))
    }
    for tool in (k, functools.partial(apache, version=OLD)):
        done = tool("reassign-partitions", "--generate", *words, *mover.words)
        lines = done.out.decode().splitlines()
        assert lines[0] == "Current partition replica assignment"
        assert lines[2:4] == ["", "Proposed partition reassignment configuration"]
        planned = json.loads(lines[4])["partitions"]
        assert [list(one) for one in planned] == [
            ["topic", "partition", "replicas", "log_dirs"]
        ] * PARTITIONS
        assert tuple(tuple(one["replicas"]) for one in planned) in possible
