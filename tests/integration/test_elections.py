"""Test `k leader-election` and `k preferred-election` on three brokers: preferred elections after a
restart, and unclean elections without in-sync replicas."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.support.brokers import until
from tests.support.opened_cluster import opened_cluster
from tests.support.tools import K

PATIENCE_S = 100
SETTINGS = {
    "zookeeper.session.timeout.ms": 2000,
    "auto.leader.rebalance.enable": "false",
}
DEPRECATED = (
    "This tool is deprecated. Please use kafka-leader-election tool. Tracking issue: KAFKA-8405"
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with opened_cluster(tmp_path_factory.mktemp("cluster"), 3, SETTINGS) as cluster:
        yield cluster


@pytest.fixture
def k(cluster):
    """Function that runs a command; returns its status and output."""

    def run(command, *words, server=True, input=""):
        asked = ("--bootstrap-server", cluster.running_servers) if server else ()
        done = subprocess.run(
            [*K, command, *asked, *words],
            input=input,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.fixture
def create(k, request):
    """Function that creates a topic named after the test."""

    def create(assignment):
        name = request.node.name.replace("[", "-").replace("]", "")[-200:]
        made = k("topics", "--create", "--topic", name, "--replica-assignment", assignment)
        assert made[0] == 0, made
        return name

    return create


@pytest.fixture
def file(tmp_path):
    def write(*partitions):
        named = [{"topic": topic, "partition": number} for topic, number in partitions]
        (tmp_path / "partitions.json").write_text(json.dumps({"partitions": named}))
        return str(tmp_path / "partitions.json")

    return write


def described(k, topic):
    _, out, _ = k("topics", "--describe", "--topic", topic, "-o", "jsonl")
    return [json.loads(line) for line in out.splitlines()]


def give_away(cluster, topic, number=0):
    """Kill and restart the partition's first replica, so that another leads; return the replica's
    id."""
    first = cluster.leader_of(topic, number)
    cluster.kill(first)
    assert cluster.leader_of(topic, number) != first
    cluster.start(first)
    cluster.wait_in_sync(topic)
    assert cluster.leader_of(topic, number) != first
    return first


def test_a_leader_that_came_back_leads_again(cluster, k, create, file):
    topic = create("1:2:3,1:3:2,2:1:3")
    assert give_away(cluster, topic) == 1
    asked = ("--election-type", "preferred")
    one = ("--topic", topic, "--partition", "0")
    status, out, err = k("leader-election", *asked, *one, "--dry-run")
    led = described(k, topic)[0]["leader"]
    assert (status, out, err) == (
        0,
        f"Would make 1 the leader of {topic}-0 in place of {led}.\n",
        "",
    )
    named = file((topic, 2), (topic, 0))
    assert k("leader-election", *asked, "--path-to-json-file", named) == (
        0,
        f"Successfully completed leader election (PREFERRED) for partitions {topic}-0\n"
        f"Valid replica already elected for partitions {topic}-2\n",
        "",
    )
    assert cluster.leader_of(topic, 0) == 1
    assert cluster.leader_of(topic, 1) != 1
    status, out, err = k("leader-election", *asked, "--all-topic-partitions", "-o", "jsonl")
    rows = [json.loads(line) for line in out.splitlines()]
    assert (status, err) == (0, "")
    mine = [(row["partition"], row["outcome"]) for row in rows if row["topic"] == topic]
    assert mine == [(1, "elected")]
    assert cluster.leader_of(topic, 1) == 1
    assert k("leader-election", *asked, "--all-topic-partitions") == (0, "", "")


def test_the_older_tool_does_the_same(cluster, k, create, file):
    topic = create("2:1:3,3:1:2")
    assert give_away(cluster, topic) == 2
    named = file((topic, 0), (topic, 1), ("missing", 0))
    status, out, err = k("preferred-election", "--path-to-json-file", named)
    assert (status, err) == (
        1,
        "k preferred-election: 1 preferred replica(s) could not be elected\n",
    )
    assert out.splitlines() == [
        DEPRECATED,
        f"Successfully completed preferred leader election for partitions {topic}-0",
        f"Preferred replica already elected for partitions {topic}-1",
        "Error completing preferred leader election for partition: missing-0: org.apache.kafka."
        "common.errors.UnknownTopicOrPartitionException: The partition does not exist.",
    ]
    assert cluster.leader_of(topic, 0) == 2
    assert k("preferred-election")[0] == 0  # other tests' topics
    assert k("preferred-election") == (0, f"{DEPRECATED}\n", "")


def test_the_older_tool_asks_through_zookeeper(cluster, k, create, file):
    topic = create("3:1:2,1:2:3")
    assert give_away(cluster, topic) == 3
    zookeeper = ("--zookeeper", cluster.zookeeper_connect)
    named = ("--path-to-json-file", file((topic, 0), (topic, 7)))
    status, out, err = k("preferred-election", *zookeeper, *named, "--dry-run", server=False)
    would = f"Would create /admin/preferred_replica_election with {topic}-0."
    assert (status, out.splitlines()[3], err) == (0, would, "")
    status, out, err = k("preferred-election", *zookeeper, *named, server=False)
    assert (status, err) == (0, "")
    assert out.splitlines() == [
        DEPRECATED,
        "Warning: --zookeeper is deprecated and will be removed in a future version of Kafka.",
        "Use --bootstrap-server instead to specify a broker to connect to.",
        f"Created preferred replica election path with {topic}-0",
        f"Successfully started preferred replica election for partitions Set({topic}-0)",
        f"Skipping preferred replica leader election for partition {topic}-7 since it doesn't "
        "exist.",
    ]
    until(lambda: described(k, topic)[0]["leader"] == 3)
    status, out, err = k("preferred-election", "--zookeeper", "127.0.0.1:1", server=False)
    assert (status, err.count("\n"), "no ZooKeeper answers at 127.0.0.1:1" in err) == (1, 1, True)
    status, out, err = k("preferred-election", *zookeeper)
    assert (status, out) == (2, "")


def test_where_no_replica_in_sync_is_left_another_leads_if_it_is_asked_for(cluster, k, create):
    topic = create("1:2")
    cluster.kill(2)
    until(lambda: described(k, topic)[0]["isr"] == [1])
    words = ("--topic", topic, "--request-required-acks", "1")
    assert k("console-producer", *words, input="lost\n")[0] == 0
    cluster.kill(1)
    one = ("--topic", topic, "--partition", "0")
    unclean = ("leader-election", "--election-type", "unclean", *one)
    until(lambda: described(k, topic)[0]["leader"] is None)
    status, out, err = k(*unclean)
    assert (status, err) == (1, "k leader-election: 1 replica(s) could not be elected\n")
    assert out.startswith(
        f"Error completing leader election (UNCLEAN) for partition: {topic}-0: "
        "org.apache.kafka.common.errors.EligibleLeadersNotAvailableException: "
    )
    cluster.start(2)
    status, out, err = k("leader-election", "--election-type", "preferred", *one)
    assert (status, "PreferredLeaderNotAvailableException" in out) == (1, True)
    assert k(*unclean, "--dry-run") == (
        0,
        f"Would make 2 the leader of {topic}-0 and lose what only others have.\n",
        "",
    )
    done = f"Successfully completed leader election (UNCLEAN) for partitions {topic}-0\n"
    assert k(*unclean) == (0, done, "")
    assert cluster.leader_of(topic) == 2
    already = f"Valid replica already elected for partitions {topic}-0\n"
    assert k(*unclean) == (0, already, "")
    cluster.start(1)
    cluster.wait_in_sync(topic)
    read = ("--topic", topic, "--from-beginning", "--exit-at-end")
    assert k("console-consumer", *read)[1] == ""


def test_what_cannot_be_done_is_told_in_a_line(k, tmp_path):
    words = ("--election-type", "preferred", "--path-to-json-file", str(tmp_path / "nowhere"))
    status, out, err = k("leader-election", *words)
    assert (status, out) == (1, "")
    assert err == f"k leader-election: Unable to read file {words[3]}: No such file or directory\n"
    nobody = ("--bootstrap-server", "127.0.0.1:1", "--timeout", "500ms")
    everything = ("--election-type", "preferred", "--all-topic-partitions")
    status, out, err = k("leader-election", *everything, *nobody, server=False)
    assert (status, out, err.count("Traceback")) == (124, "", 0)
    (tmp_path / "impatient").write_text("default.api.timeout.ms=500\n")
    words = (*everything, *nobody[:2], "--command-config", str(tmp_path / "impatient"))
    status, out, err = k("leader-election", *words, server=False)
    assert (status, out) == (124, "Timeout waiting for election results\n")
