"""Test that Apache Kafka 3.9's scripts print the same for a cluster of our brokers as for one of
Apache's.

Both clusters of three brokers go through the same steps; the output of the scripts is compared step
by step.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support import apache_kafka
from tests.support.apache_scripts import ApacheScripts
from tests.support.brokers import OURS
from tests.support.mixed_cluster import APACHE, PATIENCE_S, MixedCluster, until
from tests.support.tools import require

ASSIGNED = "1:2:3,2:3:1,3:1:2"
RECORDS = 100
TO_DELETE = {"partitions": [{"topic": "orders", "partition": 1, "offset": 10}], "version": 1}
ORDERS = "--entity-type topics --entity-name orders"
READERS = "--group readers"
WRITE, READ = "write", "read"
STEPS = {
    "make a topic": f"topics --create --topic orders --replica-assignment {ASSIGNED}"
    " --config retention.ms=9000000",
    "make it again": "topics --create --topic orders --partitions 1",
    "describe it": "topics --describe --topic orders",
    "list topics": "topics --list",
    "describe what is not there": "topics --describe --topic none",
    "grow it": "topics --alter --topic orders --partitions 4"
    f" --replica-assignment {ASSIGNED},1:2:3",
    "describe it grown": "topics --describe --topic orders",
    "what is under-replicated": "topics --describe --under-replicated-partitions",
    "what is unavailable": "topics --describe --unavailable-partitions",
    "settings of the topic": f"configs --describe {ORDERS}",
    "set some": f"configs --alter {ORDERS}"
    " --add-config segment.bytes=1048576,cleanup.policy=[compact,delete]",
    "settings as set": f"configs --describe {ORDERS}",
    "take one back": f"configs --alter {ORDERS} --delete-config segment.bytes,cleanup.policy",
    "set what is none": f"configs --alter {ORDERS} --add-config retention.ms=many",
    "set for all brokers": "configs --alter --entity-type brokers --entity-default"
    " --add-config log.cleaner.threads=2",
    "set for one broker": "configs --alter --entity-type brokers --entity-name 2"
    " --add-config message.max.bytes=2000000",
    "settings of all brokers": "configs --describe --entity-type brokers --entity-default",
    "settings of one broker": "configs --describe --entity-type brokers --entity-name 2",
    "set a quota": "configs --alter --entity-type clients --entity-name c"
    " --add-config producer_byte_rate=100000",
    "quotas": "configs --describe --entity-type clients",
    "records are written": WRITE,
    "offsets": "get-offsets --topic orders",
    "delete records": "delete-records --offset-json-file {to_delete}",
    "first offsets": "get-offsets --topic orders --time earliest",
    "log directories": "log-dirs --describe --topic-list orders",
    "records are read": READ,
    "groups": "consumer-groups --list",
    "a group": f"consumer-groups --describe {READERS}",
    "its state": f"consumer-groups --describe {READERS} --state",
    "its members": f"consumer-groups --describe {READERS} --members",
    "set it back": f"consumer-groups --reset-offsets {READERS} --topic orders --to-offset 12"
    " --execute",
    "a group set back": f"consumer-groups --describe {READERS}",
    "forget offsets": f"consumer-groups --delete-offsets {READERS} --topic orders:0",
    "remove the group": f"consumer-groups --delete {READERS}",
    "remove it again": f"consumer-groups --delete {READERS}",
    "transactions": "transactions list",
    "a transaction": "transactions describe --transactional-id orders-writer",
    "who wrote": "transactions describe-producers --topic orders --partition 3",
    "elect who leads": "leader-election --election-type preferred --topic orders --partition 0",
    "elect for what is not there": (
        "leader-election --election-type preferred --topic none --partition 0"
    ),
    "elect uncleanly without need": (
        "leader-election --election-type unclean --topic orders --partition 0"
    ),
    "quorum": "metadata-quorum describe --status",
    "remove the topic": "topics --delete --topic orders",
    "remove what is not there": "topics --delete --topic none",
}
TOO_WIDE = "--create --topic wide --replication-factor 4"
TELLS = {
    "settings of all brokers": "log.cleaner.threads=2",
    "settings of one broker": "message.max.bytes=2000000",
}
"""Steps whose effect is visible only a moment after the response, with the text to wait for."""
PASSING = [
    (re.compile(r"TopicId: [\w-]{22}"), "TopicId: ID"),
    (re.compile(r"\d{10,}"), "MOMENT"),
    (re.compile(r'"size":\d+'), '"size":"SIZE"'),
    (re.compile(r"127\.0\.0\.1:\d+ +\(\d\)"), "COORDINATOR"),
    (re.compile(r'"/[^"]*/broker-(\d)/data"'), r'"DIRECTORY OF \1"'),
    # For partition counts, which our broker reports like Kafka 4: there are none.
    (re.compile(r"(?<=lr: )N/A"), ""),
    (re.compile(r" +"), " "),
]
BY_CHANCE = ("transactions", "a transaction", "who wrote")
"""Steps whose output contains producer ids or the coordinator's id, which vary."""


class Story:
    """Output and status of each step's script."""

    def __init__(self, directory, scripts, kind):
        self.directory = directory
        self.scripts = scripts
        self.printed = {}
        with MixedCluster(directory, dict.fromkeys((1, 2, 3), kind)) as cluster:
            self.cluster = cluster
            until(lambda: cluster.live == {1, 2, 3})
            # Creates the internal topics, which need all three brokers.
            first = Producer(cluster.client | {"transactional.id": "orders-writer"})
            first.init_transactions(PATIENCE_S)
            for name, words in STEPS.items():
                self.printed[name] = self.step(name, words)
            self.too_wide = self.run("topics", *TOO_WIDE.split())
            self.versions = self.run("broker-api-versions")
            self.features = self.run("features", "describe")
            self.shell = zookeeper_shell(cluster.zookeeper.address, "ls /brokers/ids")

    def run(self, script, *words):
        return self.scripts.run(script, "--bootstrap-server", self.cluster.addresses, *words)

    def step(self, name, words):
        if words in (WRITE, READ):
            (write if words == WRITE else read)(self.cluster)
            return None
        to_delete = self.directory / "to-delete.json"
        to_delete.write_text(json.dumps(TO_DELETE))
        script, *rest = words.format(to_delete=to_delete).split()
        outcome = None

        def told():
            nonlocal outcome
            outcome = self.run(script, *rest)
            return TELLS.get(name, "") in outcome.out

        until(told)
        until(self.settled)
        return outcome.status, plain(name, outcome.out)

    def settled(self):
        """Return whether all brokers report the same for all topics, with all replicas in sync."""
        told = []
        for broker in self.cluster.brokers.values():
            admin = AdminClient({"bootstrap.servers": broker.address})
            topics = admin.list_topics(timeout=PATIENCE_S).topics.values()
            told.append(
                {
                    (t.topic, p.id, p.leader, tuple(sorted(p.isrs)))
                    for t in topics
                    for p in t.partitions.values()
                }
            )
        in_sync = all(len(isr) == 3 and leader != -1 for _, _, leader, isr in told[0])
        return told[0] == told[1] == told[2] and in_sync


def plain(name, printed):
    """Return the lines without the parts that differ between runs.

    The lines are sorted, because Java prints sets and maps in any order.
    """
    for pattern, word in PASSING:
        printed = pattern.sub(word, printed)
    if name in BY_CHANCE:
        printed = re.sub(r"\d+", "N", printed)
    lines = []
    for line in printed.splitlines():
        if line.startswith("{"):
            line = json.dumps(sorted_json(json.loads(line)))
        if not line.startswith("\tat "):
            lines.append(line.strip())
    return sorted(lines)


def sorted_json(value):
    if isinstance(value, dict):
        return {key: sorted_json(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return sorted((sorted_json(one) for one in value), key=json.dumps)
    return value


def write(cluster):
    """Write a transaction; return once its markers are written, which a commit does not wait
    for."""
    producer = Producer(cluster.client | {"transactional.id": "orders-writer"})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    for number in range(RECORDS):
        producer.produce("orders", str(number), partition=number % 4)
    producer.commit_transaction(PATIENCE_S)
    consumer = Consumer(cluster.client | {"group.id": "none"})

    def ends():
        partitions = [TopicPartition("orders", number) for number in range(4)]
        return {consumer.get_watermark_offsets(p, PATIENCE_S)[1] for p in partitions}

    until(lambda: ends() == {RECORDS // 4 + 1})
    consumer.close()


def read(cluster):
    consumer = Consumer(
        cluster.client
        | {"group.id": "readers", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )
    consumer.subscribe(["orders"])
    while not consumer.assignment():
        consumer.poll(1)
    offsets = [TopicPartition("orders", partition, 20) for partition in range(4)]
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()


def zookeeper_shell(address, command):
    script = [sys.executable, apache_kafka.__file__, "tool", APACHE, "zookeeper-shell.sh", address]
    done = subprocess.run(
        [*script, *command.split()], capture_output=True, text=True, timeout=PATIENCE_S
    )
    return done.returncode, done.stdout.splitlines()


@pytest.fixture(scope="module")
def stories(tmp_path_factory):
    require("java")
    require("mvn")
    with ApacheScripts(APACHE) as scripts:
        yield {
            kind: Story(tmp_path_factory.mktemp("cluster"), scripts, kind)
            for kind in (OURS, APACHE)
        }


@pytest.mark.parametrize(
    "step", [name for name, words in STEPS.items() if words not in (WRITE, READ)]
)
def test_a_script_says_the_same_of_both(stories, step):
    assert stories[OURS].printed[step] == stories[APACHE].printed[step]


def test_a_topic_too_wide_is_refused_in_the_words_of_each_release(stories):
    """Our message is that of Kafka 4."""
    words = {OURS: "only 3 broker(s) are registered", APACHE: "larger than available brokers: 3"}
    for kind, story in stories.items():
        assert story.too_wide.status == 1
        assert words[kind] in story.too_wide.out


def test_every_broker_tells_its_versions(stories):
    for story in stories.values():
        assert story.versions.status == 0
        assert len(re.findall(r"\(id: [123] rack: null\) -> \(", story.versions.out)) == 3


def test_features_are_told_where_there_are_some(stories):
    assert stories[APACHE].features.status == stories[OURS].features.status == 0
    assert "transaction.version" in stories[OURS].features.out


def test_zookeepers_shell_finds_the_brokers(stories):
    for story in stories.values():
        status, lines = story.shell
        assert (status, "[1, 2, 3]" in lines) == (0, True)
