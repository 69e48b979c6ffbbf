"""Test that `k` and Apache's scripts of Kafka 4.3.1 print the same for three brokers of which one
is dead: Apache 3.9.2's brokers, and ours."""

from __future__ import annotations

import asyncio
import json
import re
import time

import pytest

from kcli.client import Producer
from tests.support.brokers import OURS
from tests.support.mixed_cluster import APACHE, MixedCluster
from tests.support.side_by_side import apache, k
from tests.support.tools import require

PATIENCE_S = 100
DEAD = 3
REPORTS = (
    "--under-replicated-partitions",
    "--under-min-isr-partitions",
    "--at-min-isr-partitions",
    "--unavailable-partitions",
)
TOPICS = {
    "whole": ["1:2:3,2:3:1,3:1:2"],
    "alone": ["3,1,2"],
    "strict": ["1:2:3,3:2:1", "--config", "min.insync.replicas=3"],
    "careful": ["3:1:2", "--config", "min.insync.replicas=2", "--config", "retention.ms=1000000"],
    "elsewhere": ["1:3,2:3"],
}
"""Replica assignment of each topic's partitions, and the topic's configs."""
MOVES = ((0, [1, 2]), (1, [2, 1]))
"""Target replicas of the partitions of "elsewhere"."""
SIDES = ("leader", "follower")
CONFIGS = re.compile(r"(?<=\tConfigs: ).*")


@pytest.fixture(scope="module", params=[APACHE, OURS])
def cluster(request, tmp_path_factory):
    require("java")
    directory = tmp_path_factory.mktemp("cluster")
    with MixedCluster(directory, dict.fromkeys((1, 2, 3), request.param)) as cluster:
        server = ("--bootstrap-server", cluster.addresses)
        for topic, (assignment, *config) in TOPICS.items():
            words = ("--create", "--topic", topic, "--replica-assignment", assignment, *config)
            assert k("topics", *server, *words).status == 0
        # Creates an internal topic of Kafka.
        assert k("console-producer", *server, "--topic", "whole", input=b"x\n").status == 0
        group = ("--group", "g", "--from-beginning", "--max-messages", "1")
        assert k("console-consumer", *server, "--topic", "whole", *group).status == 0
        cluster.brokers[DEAD].kill()
        alive = [cluster.brokers[id].address for id in (1, 2)]
        cluster.words = ("--bootstrap-server", ",".join(alive))
        _await_settled(cluster)
        yield cluster


def _await_settled(cluster):
    """Wait until both live brokers report all topics without the dead broker."""
    deadline = time.monotonic() + PATIENCE_S
    for id in (1, 2):
        words = ("--bootstrap-server", cluster.brokers[id].address, "--describe", "-o", "jsonl")
        while True:
            assert time.monotonic() < deadline
            rows = map(json.loads, k("topics", *words).out.splitlines())
            states = [(row["leader"], row["isr"]) for row in rows]
            if all(lead != DEAD and (DEAD not in isr or isr == [DEAD]) for lead, isr in states):
                break
            time.sleep(0.2)  # the state can only be polled


def both(cluster, command, *words):
    """Return the output of `k` and of the script, both sorted by topic: the script's order is that
    of a hash table."""
    ours = k(command, *words, *cluster.words)
    theirs = apache(command, *words, *cluster.words)
    assert ours.status == theirs.status, (ours, theirs)
    return by_topic(ours.lines), by_topic(theirs.lines)


def by_topic(lines):
    """Sort the lines by topic, keeping the order within a topic, and sort the configs by name.

    The script prints both in the order of a hash table.
    """
    named = (CONFIGS.sub(lambda told: ",".join(sorted(told[0].split(","))), one) for one in lines)
    return sorted(named, key=lambda line: line.strip().split("\t")[0])


@pytest.mark.parametrize(
    "words",
    [
        *([report] for report in REPORTS),
        *([report, "--exclude-internal"] for report in REPORTS),
        [REPORTS[0], REPORTS[3]],
        [REPORTS[2], "--topic", "strict|careful"],
        ["--exclude-internal"],
        ["--topics-with-overrides"],
        ["--topics-with-overrides", "--exclude-internal"],
        [],
    ],
    ids=" ".join,
)
def test_topics_are_described_to_the_letter(cluster, words):
    ours, theirs = both(cluster, "topics", "--describe", *words)
    assert ours == theirs
    assert ours


def test_what_is_told_is_so(cluster):
    """Compare with a known state, in case both tools report nothing."""

    def found(report):
        lines = k("topics", "--describe", report, "--exclude-internal", *cluster.words).lines
        fields = [
            dict(f.split(": ") for f in line.strip().split("\t") if ": " in f) for line in lines
        ]
        return {f"{f['Topic']}-{f['Partition']}" for f in fields}

    under, under_min, at_min, unavailable = map(found, REPORTS)
    assert {"whole-0", "whole-1", "whole-2", "strict-0", "strict-1", "careful-0"} <= under
    assert {"strict-0", "strict-1", "alone-0"} == under_min - {"elsewhere-0", "elsewhere-1"}
    assert {"careful-0", "alone-1", "alone-2"} <= at_min
    assert unavailable == {"alone-0"}


def test_replicas_that_come_and_go_are_told_to_the_letter(cluster, tmp_path):
    file = tmp_path / "moves.json"
    moves = [
        {"topic": "elsewhere", "partition": number, "replicas": replicas}
        for number, replicas in MOVES
    ]
    file.write_text(json.dumps({"version": 1, "partitions": moves}))
    # Slow enough to continue during the test; --throttle would also send requests to the dead
    # broker.
    replicas = ",".join(f"{side}.replication.throttled.replicas=*" for side in SIDES)
    rates = ",".join(f"{side}.replication.throttled.rate=1" for side in SIDES)
    for kind, name, keys in (
        ("--topic", "elsewhere", replicas),
        ("--broker", "1", rates),
        ("--broker", "2", rates),
    ):
        words = ("--alter", kind, name, "--add-config", keys, *cluster.words)
        assert k("configs", *words).status == 0
    for number, _ in MOVES:
        asyncio.run(_fill(cluster, number))
    words = ("--execute", "--reassignment-json-file", str(file))
    begun = apache("reassign-partitions", *words, *cluster.words)
    assert b"Successfully started" in begun.out, begun
    for words in ([], *([report] for report in REPORTS)):
        ours, theirs = both(cluster, "topics", "--describe", "--topic", "elsewhere", *words)
        assert ours == theirs
    told = "\n".join(k("topics", "--describe", "--topic", "elsewhere", *cluster.words).lines)
    assert "Replicas: 1,2,3\tIsr: 1\tAdding Replicas: 2\tRemoving Replicas: 3\t" in told
    assert "Replicas: 2,1,3\tIsr: 2\tAdding Replicas: 1\tRemoving Replicas: 3\t" in told
    assert "ReplicationFactor: 2" in told


async def _fill(cluster, partition):
    async with Producer(cluster.client) as producer:
        for _ in range(60):  # more than one fetch returns
            await (await producer.send("elsewhere", bytes(50_000), partition=partition))


@pytest.mark.parametrize(
    "words",
    [["cluster-id"], ["list-endpoints"], ["list-endpoints", "--include-fenced-brokers"]],
    ids=" ".join,
)
def test_the_cluster_is_told_to_the_letter(cluster, words):
    ours = k("cluster", *words, *cluster.words)
    theirs = apache("cluster", *words, *cluster.words)
    if b"includeFencedBrokers" in theirs.out:
        # These brokers do not know fenced brokers, and the script succeeds nevertheless.
        assert (ours.status, ours.out) == (1, b"")
        assert b"leave out --include-fenced-brokers" in ours.err
        return
    assert ours.status == theirs.status, (ours, theirs)
    # The script lists brokers in any order.
    assert sorted(ours.lines) == sorted(theirs.lines)


def test_a_broker_is_not_unregistered_where_zookeeper_registers_it(cluster):
    words = ("unregister", "--id", str(DEAD), *cluster.words)
    ours, theirs = k("cluster", *words), apache("cluster", *words)
    assert theirs.out.strip() == ours.err.strip().removeprefix(b"k cluster: ")
    assert (ours.status, ours.out) == (1, b"")


@pytest.mark.parametrize(
    "words",
    [
        "preferred --topic whole --partition 0",
        "unclean --topic whole --partition 0",
        "PREFERRED --topic whole --partition 2",
        "preferred --topic whole --partition 9",
        "preferred --topic missing --partition 0",
        "unclean --topic missing --partition 0",
        "unclean --topic alone --partition 0",
        "preferred --topic alone --partition 0",
        "preferred --all-topic-partitions",
        "unclean --all-topic-partitions",
        "preferred --path-to-json-file {file}",
    ],
)
def test_elections_are_told_to_the_letter(cluster, words, tmp_path):
    file = tmp_path / "partitions.json"
    named = [("whole", 0), ("strict", 1), ("missing", 0)]
    partitions = [{"topic": topic, "partition": number} for topic, number in named]
    file.write_text(json.dumps({"partitions": partitions}))
    words = ["--election-type", *words.format(file=file).split()]
    ours, theirs = both(cluster, "leader-election", *words)
    assert ours == theirs


def test_what_elections_failed_is_counted(cluster):
    words = ("--election-type", "unclean", "--topic", "alone", "--partition", "0", *cluster.words)
    ours, theirs = k("leader-election", *words), apache("leader-election", *words)
    why = b"1 replica(s) could not be elected\n"
    assert (ours.status, theirs.status) == (1, 1)
    assert ours.err == b"k leader-election: " + why
    assert theirs.err.startswith(why)


@pytest.mark.parametrize(
    "words",
    [
        "",
        "--election-type preferred",
        "--election-type preferred --topic t",
        "--election-type preferred --all-topic-partitions --partition 1",
        "--election-type preferred --all-topic-partitions --topic t --partition 1",
        "--all-topic-partitions",
        "--election-type worst --all-topic-partitions",
    ],
)
def test_an_election_that_makes_no_sense_is_refused_in_the_same_words(cluster, words):
    words = [*cluster.words, *words.split()]
    ours, theirs = k("leader-election", *words), apache("leader-election", *words)
    assert (ours.status, theirs.status) == (2, 1)
    assert (ours.out, theirs.out) == (b"", b"")
    told = ours.err.decode().splitlines()[0].removeprefix("k leader-election: ")
    assert told.startswith(theirs.err.decode().splitlines()[0])
