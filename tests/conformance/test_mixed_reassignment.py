"""Test kafka-reassign-partitions.sh and `k reassign-partitions` between brokers of Apache Kafka 3.9
and ours, under load, with a throttle, and while the controller changes."""

from __future__ import annotations

import json
import time

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from kserver.wire.batch import batches
from tests.support import side_by_side
from tests.support.apache_scripts import ApacheScripts, Outcome
from tests.support.brokers import OURS
from tests.support.mixed_cluster import APACHE, PATIENCE_S, MixedCluster, until
from tests.support.steady_load import SteadyLoad
from tests.support.tools import require

pytestmark = pytest.mark.story

SCRIPTS = "4.3.1"
KINDS = {1: OURS, 2: OURS, 3: APACHE, 4: APACHE}
LOAD = "load"
MOVES = {
    "to-ours": [[1, 2], [2, 1], [1, 2], [2, 1]],
    "back-to-theirs": [[3, 4], [4, 3], [3, 4], [4, 3]],
    "factor-grown": [[3, 1, 4, 2], [4, 2, 3, 1], [3, 4, 1], [4, 1, 3]],
    "factor-shrunk": [[1, 3], [4, 2], [3, 1], [1]],
}
CONTROLLERS = {"theirs": 3, "ours": 1}
TOOLS = ("script", "k")
QUICK, RATE, SECONDS = 50_000_000, 800_000, 10
"""Rates in bytes per second, and the seconds over which the rate is measured."""
STALLED, COPIED = 1, 2_000_000
"""Rates in bytes per second: one that lets no replica get in sync, as the leader's traffic to those
in sync counts too; and one at which the topics of BULK take 20 seconds."""
RATES = "leader.replication.throttled.rate,follower.replication.throttled.rate"
VALUE, RECORDS = bytes(4_000), 5_000
BULK = {
    "theirs": {"bulk-1": [1, 4], "bulk-3": [3, 2]},
    "ours": {"bulk-2": [2, 3], "bulk-4": [4, 1]},
}
"""For each controller, topics with their leader and the follower to add.

No broker has the same role twice, because a quota's rate includes the seconds before.
"""
SETTINGS = {
    # The size of one fetch is small compared to the bytes allowed during the measurement, and large
    # compared to the incomplete batch at its end, which counts too.
    "replica.fetch.max.bytes": 100_000,
    # Delay before a throttled fetcher tries again.
    "replica.fetch.backoff.ms": 100,
    "replica.fetch.wait.max.ms": 100,
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with MixedCluster(tmp_path_factory.mktemp("mixed"), KINDS, SETTINGS) as cluster:
        until(lambda: cluster.live == set(KINDS))
        create(cluster, LOAD, MOVES["back-to-theirs"])
        for topics in BULK.values():
            for topic, (leader, _) in topics.items():
                create(cluster, topic, [[leader]])
                fill(cluster, topic)
        yield cluster


@pytest.fixture(scope="module")
def load(cluster):
    with SteadyLoad(cluster.client, LOAD, len(MOVES["to-ours"])) as load:
        load.advance()
        yield load


@pytest.fixture(scope="module")
def scripts():
    require("java")
    require("mvn")
    with ApacheScripts(SCRIPTS) as scripts:
        yield scripts


def k(command, *words):
    done = side_by_side.k(command, *words)
    return Outcome(done.status, done.out.decode(), done.err.decode())


@pytest.fixture(scope="module")
def tools(scripts):
    """The functions that run a command, by the name of its tool."""
    return dict(zip(TOOLS, (scripts.run, k), strict=True))


def create(cluster, topic, assignment):
    new = NewTopic(topic, len(assignment), replica_assignment=assignment)
    cluster.ask(lambda: cluster.admin.create_topics([new]))
    until(lambda: is_placed(cluster, topic, assignment))
    cluster.until_known(topic, len(assignment))


def is_placed(cluster, topic, assignment):
    """Return whether the replicas are exactly as assigned, all in sync, and one of them is
    leader."""
    told = cluster.znode(f"/brokers/topics/{topic}")
    states = [cluster.state(topic, partition) for partition in range(len(assignment))]
    return (
        [told["partitions"][str(partition)] for partition in range(len(assignment))] == assignment
        and not told.get("adding_replicas")
        and not told.get("removing_replicas")
        and all(
            set(state["isr"]) == set(replicas) and state["leader"] in replicas
            for state, replicas in zip(states, assignment, strict=True)
        )
        and not any(
            (broker.data / f"{topic}-{partition}").exists()
            for partition, replicas in enumerate(assignment)
            for id_, broker in cluster.brokers.items()
            if id_ not in replicas
        )
    )


def fill(cluster, topic):
    refused = []
    producer = Producer(cluster.client | {"batch.num.messages": 1})
    for _ in range(RECORDS):
        producer.produce(topic, VALUE, on_delivery=lambda error, _: error and refused.append(error))
        producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0
    assert not refused


class Reassignment:
    """A reassignment to `wanted`, the replicas by topic and partition, by one of the tools."""

    def __init__(self, tool, cluster, file, wanted):
        self.topics = list(wanted)
        moves = [
            {"topic": topic, "partition": partition, "replicas": replicas}
            for topic, assignment in wanted.items()
            for partition, replicas in enumerate(assignment)
        ]
        file.write_text(json.dumps({"version": 1, "partitions": moves}))
        self._count = len(moves)
        self._cluster = cluster
        self._tool = tool
        self._words = ("--reassignment-json-file", str(file))

    def run(self, *words):
        server = ("--bootstrap-server", self._cluster.addresses)
        return self._tool("reassign-partitions", *server, *self._words, *words)

    def execute(self, rate, *words):
        done = self.run("--execute", "--throttle", str(rate), *words)
        assert done.status == 0, done
        assert "Successfully started partition reassignment" in done.out
        assert f"throttle limit was set to {rate} B/s" in done.out
        return done

    def all_are(self, state):
        """Run --verify; return whether it reports this state of all moves."""
        done = self.run("--verify")
        assert done.status == 0, done
        return done.out.count(f" is {state}.") == self._count

    def verify(self):
        """Run --verify until all moves are completed, which also removes the throttles."""
        until(lambda: self.all_are("completed"))
        assert not any(throttles(self._cluster, self.topics).values())


def throttles(cluster, topics):
    """Return the throttle configs that are set, by znode path."""
    paths = [f"/config/brokers/{id_}" for id_ in KINDS]
    paths += [f"/config/topics/{topic}" for topic in topics]
    told = {path: (cluster.znode(path) or {}).get("config", {}) for path in paths}
    return {
        path: sorted(key for key in config if "replication.throttled" in key)
        for path, config in told.items()
    }


@pytest.mark.parametrize(
    ("controller", "holds_back"),
    [("theirs", "whoever-leads-and-follows"), ("ours", "only-ours")],
)
def test_followers_of_the_other_kind_keep_to_the_throttle(
    cluster, scripts, tmp_path, controller, holds_back
):
    cluster.make_controller(CONTROLLERS[controller])
    bulk = BULK[controller]
    wanted = {topic: [replicas] for topic, replicas in bulk.items()}
    reassignment = Reassignment(scripts.run, cluster, tmp_path / "moves.json", wanted)
    reassignment.execute(RATE)
    set_ = throttles(cluster, bulk)
    assert all(len(keys) == 2 for keys in set_.values()), set_

    if holds_back == "only-ours":
        for id_ in (id_ for id_, kind in KINDS.items() if kind == APACHE):
            broker = ("--entity-type", "brokers", "--entity-name", str(id_))
            server = ("--bootstrap-server", cluster.addresses)
            done = scripts.run("configs", *server, "--alter", *broker, "--delete-config", RATES)
            assert done.status == 0, done

    def sizes():
        return {topic: size(cluster, follower, topic) for topic, (_, follower) in bulk.items()}

    # The first second's quota may be used at once.
    until(lambda: min(sizes().values()) > 2 * RATE)
    before, began_s = sizes(), time.monotonic()
    time.sleep(SECONDS)  # a rate is measured
    after, seconds = sizes(), time.monotonic() - began_s
    rates = {topic: (after[topic] - before[topic]) / seconds for topic in bulk}
    print(f"{rates} bytes a second of {RATE}")
    reassignment.execute(QUICK, "--additional")
    reassignment.verify()
    for topic, assignment in wanted.items():
        until(lambda topic=topic, assignment=assignment: is_placed(cluster, topic, assignment))
    assert rates == pytest.approx(dict.fromkeys(bulk, RATE), rel=0.1)
    assert max(after.values()) < len(VALUE) * RECORDS


def size(cluster, id_, topic):
    """Return the size of the broker's log of partition 0 in bytes."""
    files = (cluster.brokers[id_].data / f"{topic}-0").glob("*.log")
    return sum(file.stat().st_size for file in files)


CHANGES = {
    "k": (["theirs", "ours", "theirs"], "to-ours", [[4, 1]]),
    "script": (["ours", "theirs", "ours"], "back-to-theirs", [[2, 3]]),
}
"""For each tool, the controllers in turn, the move of LOAD and that of BULK_MOVED."""
BULK_MOVED = "bulk-2"


@pytest.mark.parametrize("tool", CHANGES)
def test_the_controller_changes_from_one_kind_to_the_other_meanwhile(
    cluster, load, tools, tmp_path, tool
):
    controllers, move, bulk = CHANGES[tool]
    wanted = {LOAD: MOVES[move], BULK_MOVED: bulk}
    before = {topic: assignment_of(cluster, topic) for topic in wanted}
    moves = {
        name: Reassignment(tools[name], cluster, tmp_path / f"{name}.json", wanted)
        for name in TOOLS
    }
    cluster.make_controller(CONTROLLERS[controllers[0]])
    exceed_quota(cluster, load)
    moves[tool].execute(STALLED)
    check_in_progress(cluster, before, wanted)
    load.advance()

    # Here, all replicas of both topics are being added.
    cluster.make_controller(CONTROLLERS[controllers[1]])
    until(lambda: all(is_resumed(cluster, topic, to) for topic, to in wanted.items()))
    check_in_progress(cluster, before, wanted)
    assert all(reassignment.all_are("still in progress") for reassignment in moves.values())
    load.advance()

    # And here, records are being copied. Apache's controller must not lose its office while it ends
    # the move of LOAD: it would keep requests that it had not sent, and once it is elected again it
    # fails to send any (ReplicaStateMachine.handleStateChanges, which does not clear its batch).
    moves[tool].execute(COPIED, "--additional")
    until(lambda: is_placed(cluster, LOAD, wanted[LOAD]))
    until(lambda: all(size(cluster, id_, BULK_MOVED) for id_ in bulk[0]))
    cluster.make_controller(CONTROLLERS[controllers[2]])
    until(lambda: is_resumed(cluster, BULK_MOVED, bulk))
    check_in_progress(cluster, before, {BULK_MOVED: bulk})
    load.advance()
    moves[tool].execute(QUICK, "--additional")
    moves[tool].verify()
    assert all(reassignment.all_are("completed") for reassignment in moves.values())
    for topic, assignment in wanted.items():
        until(lambda topic=topic, assignment=assignment: is_placed(cluster, topic, assignment))
    load.advance()


def exceed_quota(cluster, load):
    """Set the throttle before the reassignment does, and let the load exceed it.

    A first fetch within the quota may have all of a small log, and the new replica is in sync.
    """
    server = ("--bootstrap-server", cluster.addresses)
    rates = ",".join(f"{rate}={STALLED}" for rate in RATES.split(","))
    for id_ in KINDS:
        broker = ("--entity-type", "brokers", "--entity-name", str(id_))
        assert k("configs", *server, "--alter", *broker, "--add-config", rates).status == 0
    replicas = "leader.replication.throttled.replicas=*"
    topic = ("--entity-type", "topics", "--entity-name", LOAD)
    assert k("configs", *server, "--alter", *topic, "--add-config", replicas).status == 0
    load.advance()


def assignment_of(cluster, topic):
    """Return the replicas of each partition, including those that are being added."""
    replicas = cluster.znode(f"/brokers/topics/{topic}")["partitions"]
    return [replicas[str(partition)] for partition in range(len(replicas))]


def is_resumed(cluster, topic, assignment):
    """Return whether the present controller has begun a leader epoch of each partition, as it does
    for reassignments that it takes over."""
    epoch = cluster.znode("/controller_epoch")
    states = [cluster.state(topic, partition) for partition in range(len(assignment))]
    return all(state.get("controller_epoch") == epoch for state in states)


def check_in_progress(cluster, before, wanted):
    """Check that all replicas of `wanted` are being added, and all those of before removed."""
    for topic, assignment in wanted.items():
        topic_znode = cluster.znode(f"/brokers/topics/{topic}")
        for partition, (old, new) in enumerate(zip(before[topic], assignment, strict=True)):
            key = str(partition)
            assert not set(old) & set(new)
            assert topic_znode["partitions"][key] == new + old
            assert topic_znode["adding_replicas"][key] == new
            assert topic_znode["removing_replicas"][key] == old
            assert not set(cluster.state(topic, partition)["isr"]) & set(new)


@pytest.mark.parametrize(
    ("controller", "move", "tool"),
    [
        (controller, move, TOOLS[(first + second) % 2])
        for first, controller in enumerate(CONTROLLERS)
        for second, move in enumerate(MOVES)
    ],
)
def test_partitions_move_under_load(cluster, load, tools, tmp_path, controller, move, tool):
    cluster.make_controller(CONTROLLERS[controller])
    wanted = {LOAD: MOVES[move]}
    reassignment = Reassignment(tools[tool], cluster, tmp_path / "moves.json", wanted)
    reassignment.execute(QUICK)
    reassignment.verify()
    until(lambda: is_placed(cluster, LOAD, MOVES[move]))
    load.advance()


def test_the_replication_factor_stays_where_the_script_is_told_so(cluster, scripts, tmp_path):
    cluster.make_controller(CONTROLLERS["ours"])
    wider = {LOAD: [[1, 3, 2], *MOVES["factor-shrunk"][1:]]}
    refused = Reassignment(scripts.run, cluster, tmp_path / "wider.json", wider)
    done = refused.run("--execute", "--disallow-replication-factor-change")
    assert done.status == 1
    assert "The replication factor would change from 2 to 3." in done.out + done.err
    assert is_placed(cluster, LOAD, MOVES["factor-shrunk"])


def test_in_the_end_every_record_is_there_once_and_replicas_are_byte_equal(cluster, load):
    load.__exit__()
    load.check()
    bulk = [topic for topics in BULK.values() for topic in topics]
    topics = {LOAD: len(MOVES["to-ours"])} | dict.fromkeys(bulk, 1)
    until(lambda: is_placed(cluster, LOAD, MOVES["factor-shrunk"]))
    cluster.kill(KINDS)
    for topic, partitions in topics.items():
        for partition in range(partitions):
            replicas = cluster.znode(f"/brokers/topics/{topic}")["partitions"][str(partition)]
            logs = {cluster.log_of(id_, topic, partition) for id_ in replicas}
            assert len(logs) == 1, f"{topic}-{partition} on {replicas}"
            if topic in bulk:
                (log,) = logs
                assert sum(batch.count for batch in batches(log)) == RECORDS
