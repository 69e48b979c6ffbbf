"""Test `k reassign-partitions` on three of our brokers with two log directories each.

Partitions must end up where they were assigned, with all their records, and no throttle may remain.
"""

from __future__ import annotations

import json

import jsonschema
import pytest

from kcli.client import Blocking, Producer
from kcli.commands.reassign_partitions import LIST, VERIFY
from kcli.rows.shapes import schema
from kserver.errors import ErrorCode
from kserver.wire.api_key import ApiKey
from tests.support.brokers import until
from tests.support.process_cluster import IDS, Cluster
from tests.support.side_by_side import k
from tests.support.wire_client import WireClient

PATIENCE_S = 90
PARTITIONS = 3
RECORDS = 120
VALUE = bytes(50_000)
DISKS = "ab"
RACKS = {1: "x", 2: "y", 3: "y"}
THROTTLED = ("throttled.rate", "throttled.replicas", "alter.log.dirs.io")


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def cluster(directory):
    cluster = Cluster(directory)
    for id, broker in cluster.brokers.items():
        broker.settings["log.dirs"] = ",".join(disk(directory, id, name) for name in DISKS)
        broker.settings["broker.rack"] = RACKS[id]
        # One record per fetch, so that a move at one byte per second outlasts a test on any
        # machine.
        broker.settings["replica.fetch.max.bytes"] = len(VALUE)
    with cluster:
        yield cluster


def disk(directory, id, name):
    return str(directory / f"{id}-{name}")


class Topic:
    """A topic with records on brokers 1 and 2, and a file for plans."""

    def __init__(self, cluster, name, file):
        self.name = name
        self.file = file
        self.server = ("--bootstrap-server", cluster.addresses)
        assignment = ",".join(["1:2"] * PARTITIONS)
        self.k("topics", "--create", "--topic", name, "--replica-assignment", assignment)
        with Blocking(Producer, cluster.client) as producer:
            for number in range(RECORDS):
                producer.send(name, VALUE, key=b"%d" % number, partition=number % PARTITIONS)

    def k(self, command, *words, status=0):
        done = k(command, *words, *self.server)
        assert done.status == status, done
        return done.out.decode()

    def rows(self, command, *words):
        return [json.loads(line) for line in self.k(command, *words, "-o", "jsonl").splitlines()]

    def plan(self, replicas, **fields):
        planned = [
            {"topic": self.name, "partition": number, "replicas": replicas} | fields
            for number in range(PARTITIONS)
        ]
        self.file.write_text(json.dumps({"partitions": planned}))
        return ("--reassignment-json-file", str(self.file))

    def move(self, action, *words, status=0):
        return self.k("reassign-partitions", f"--{action}", *words, status=status)

    def replicas(self):
        rows = self.rows("topics", "--describe", "--topic", self.name)
        return [row["replicas"] for row in rows]

    def keys(self):
        words = ("--topic", self.name, "--from-beginning", "--exit-at-end")
        shown = ("--property", "print.key=true", "--property", "print.value=false")
        return sorted(map(int, self.k("console-consumer", *words, *shown).split()))

    def throttles(self):
        """Return the names of the throttle configs of the topic and of all brokers."""
        entities = [("--topic", self.name), *(("--broker", str(id)) for id in IDS)]
        return [
            row["name"]
            for of in entities
            for row in self.rows("configs", "--describe", *of)
            if any(word in row["name"] for word in THROTTLED)
        ]

    def until_done(self, plan):
        verify = ("reassign-partitions", "--verify", *plan)
        until(lambda: {row["state"] for row in self.rows(*verify)} == {"completed"}, PATIENCE_S)


@pytest.fixture
def topic(request, cluster, tmp_path):
    return Topic(cluster, request.node.name.replace("[", "-").strip("]")[:60], tmp_path / "plan")


def test_partitions_move_with_all_their_records(topic, directory):
    plan = topic.plan([3, 1], log_dirs=[disk(directory, 3, "b"), "any"])
    begun = topic.move("execute", *plan, "--throttle", "50000000")
    assert begun.count("Successfully started moving log directory to ") == PARTITIONS
    assert topic.throttles()
    topic.until_done(plan)
    assert topic.throttles() == []
    assert topic.replicas() == [[3, 1]] * PARTITIONS
    assert topic.keys() == list(range(RECORDS))
    found = topic.rows("log-dirs", "--describe", "--topic-list", topic.name)
    there = {(row["broker"], row["log_dir"]) for row in found if row["topic"]}
    assert {broker for broker, _ in there} == {1, 3}
    assert {path for broker, path in there if broker == 3} == {disk(directory, 3, "b")}
    assert topic.move("list") == "No partition reassignments found.\n"


def test_the_plan_that_execute_prints_leads_back(topic):
    before = topic.replicas()
    printed = topic.move("execute", *topic.plan([2, 3])).splitlines()
    topic.until_done(topic.plan([2, 3]))
    assert topic.replicas() != before
    back = topic.file.with_suffix(".back")
    back.write_text(printed[2])
    plan = ("--reassignment-json-file", str(back))
    topic.move("execute", *plan)
    topic.until_done(plan)
    assert topic.replicas() == before
    assert topic.keys() == list(range(RECORDS))


def test_replicas_move_from_one_directory_to_the_other_and_come_to_rest(topic, directory):
    for name in DISKS:
        plan = topic.plan([1, 2], log_dirs=["any", disk(directory, 2, name)])
        topic.move("execute", *plan, "--replica-alter-log-dirs-throttle", "100000000")
        topic.until_done(plan)
        found = topic.rows("log-dirs", "--describe", "--topic-list", topic.name)
        there = {row["log_dir"] for row in found if row["topic"] and row["broker"] == 2}
        assert there == {disk(directory, 2, name)}
    assert topic.throttles() == []
    assert topic.keys() == list(range(RECORDS))


def test_what_is_on_its_way_is_told_in_rows_and_can_be_given_up(topic):
    plan = topic.plan([3, 2])
    topic.move("execute", *plan, "--throttle", "1")
    document = json.loads(topic.move("list", "-o", "json"))
    jsonschema.validate(document, schema(LIST))
    assert document["items"] == [
        {
            "topic": topic.name,
            "partition": number,
            "replicas": [3, 2, 1],
            "adding": [3],
            "removing": [1],
        }
        for number in range(PARTITIONS)
    ]
    document = json.loads(topic.move("verify", *plan, "-o", "json"))
    jsonschema.validate(document, schema(VERIFY))
    assert [row["state"] for row in document["items"]] == ["active"] * PARTITIONS
    assert topic.throttles()
    told = topic.move("cancel", *plan, "--dry-run").splitlines()
    assert told == [
        f"Would cancel the reassignment of {topic.name}-{n}." for n in range(PARTITIONS)
    ]
    assert len(json.loads(topic.move("list", "-o", "json"))["items"]) == PARTITIONS
    topic.move("cancel", *plan)
    assert topic.move("list") == "No partition reassignments found.\n"
    assert [sorted(replicas) for replicas in topic.replicas()] == [[1, 2]] * PARTITIONS
    assert topic.throttles() == []
    assert topic.keys() == list(range(RECORDS))


def test_a_dry_run_says_what_would_move_and_moves_nothing(topic, directory):
    path = disk(directory, 3, "a")
    told = topic.move("execute", *topic.plan([3, 1], log_dirs=[path, "any"]), "--dry-run")
    assert told.splitlines() == [
        *(f"Would move {topic.name}-{n} from brokers 1,2 to 3,1." for n in range(PARTITIONS)),
        *(f"Would move {topic.name}-{n}-3 to {path}." for n in range(PARTITIONS)),
    ]
    assert topic.replicas() == [[1, 2]] * PARTITIONS


BAD = {
    "unknown-broker": ({"replicas": [3, 99]}, "Unknown broker id 99"),
    "unknown-partition": ({"partition": PARTITIONS}, "Unable to find partition: "),
    "unknown-topic": ({"topic": "nobody-made-this"}, "nobody-made-this"),
    "partition-twice": ({"partition": 0}, "contains duplicate topic partitions"),
    "replica-twice": ({"replicas": [3, 3]}, "may not contain duplicate entries"),
    "no-replicas": ({"replicas": []}, "Partition replica list cannot be empty"),
    "no-integer": ({"partition": "1"}, f'Entry {PARTITIONS} of "partitions" is invalid'),
}


@pytest.mark.parametrize("bad", BAD)
def test_a_plan_with_one_bad_entry_starts_nothing(topic, bad):
    fields, why = BAD[bad]
    words = topic.plan([2, 3])
    plan = json.loads(topic.file.read_text())
    entry = {"topic": topic.name, "partition": 0, "replicas": [2, 3]} | fields
    if fields.keys() == {"replicas"}:
        plan["partitions"][0] = entry
    else:
        plan["partitions"].append(entry)
    topic.file.write_text(json.dumps(plan))
    said = topic.move("execute", *words, "--throttle", "1000", status=1)
    assert "Successfully" not in said
    assert why in said
    assert topic.replicas() == [[1, 2]] * PARTITIONS
    assert topic.throttles() == []
    assert topic.move("list") == "No partition reassignments found.\n"


@pytest.mark.parametrize("racks", ["with", "without"])
def test_a_plan_that_is_generated_can_be_carried_out(topic, racks):
    topic.file.write_text(json.dumps({"topics": [{"topic": topic.name}]}))
    words = ("--topics-to-move-json-file", str(topic.file), "--broker-list", "1,2,3")
    if racks == "without":
        words += ("--disable-rack-aware",)
    printed = topic.move("generate", *words).splitlines()
    assert printed[0] == "Current partition replica assignment"
    assert printed[2:4] == ["", "Proposed partition reassignment configuration"]
    current, plan = json.loads(printed[1]), json.loads(printed[4])
    assert [one["replicas"] for one in current["partitions"]] == topic.replicas()
    assert all(path.startswith("/") for one in current["partitions"] for path in one["log_dirs"])
    assert [one["log_dirs"] for one in plan["partitions"]] == [["any", "any"]] * PARTITIONS
    if racks == "with":
        # Broker 1 is the only one of its rack, so it has a replica of each partition.
        assert all(1 in one["replicas"] for one in plan["partitions"])
    topic.file.write_text(printed[4])
    words = ("--reassignment-json-file", str(topic.file))
    topic.move("execute", *words)
    topic.until_done(words)
    assert topic.replicas() == [one["replicas"] for one in plan["partitions"]]
    assert topic.keys() == list(range(RECORDS))


def test_a_broker_says_that_a_replica_is_not_there_yet(cluster, topic, directory):
    """Kafka's tool retries only after this error."""
    with WireClient(cluster.brokers[3].address) as client:
        asked = {
            "path": disk(directory, 3, "a"),
            "topics": [{"name": topic.name, "partitions": (0,)}],
        }
        (found,) = client.call(ApiKey.ALTER_REPLICA_LOG_DIRS, 2, dirs=[asked]).results
    assert found.partitions[0].error_code is ErrorCode.replica_not_available
