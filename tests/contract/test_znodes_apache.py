"""Test that Apache Kafka 3.9 and our broker read each other's znodes, on Apache's ZooKeeper and on
ours."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from kserver import znodes
from kserver.cluster_config.configs import Change, Op, OpType
from kserver.config.broker import BrokerConfig
from kserver.controller.topics import CreatablePartitions, CreatableTopic
from kserver.model import NO_BROKER, TopicPartition
from kserver.wire.api_key import ApiKey
from kserver.world import World
from kserver.world.clock import WallClock
from kserver.world.disk import OsDisk
from kserver.world.kazoo import KazooZooKeeper
from tests.support import tools
from tests.support.controlled_broker import ControlledBroker
from tests.support.wire_client import WireClient
from tests.support.zookeeper_server import OwnZooKeeperServer, ZooKeeperServer

APACHE = [sys.executable, str(Path(__file__).parents[1] / "support" / "apache_kafka.py")]
VERSION = "3.9.2"
START_TIMEOUT_S = 120

TOPIC, BROKER = 2, 4
BROKER_KEYS = ((BROKER, "1", "max.connections"), (BROKER, "1", "message.max.bytes"))
CHANGES = [
    Change(TOPIC, "ours", [Op("segment.ms", OpType.SET, "777777")]),
    Change(BROKER, "", [Op("max.connections", OpType.SET, "500")]),
    Change(BROKER, "1", [Op("message.max.bytes", OpType.SET, "2000000")]),
]


def our_broker(zookeeper):
    world = World(WallClock(), OsDisk(), zookeeper, random.Random(7), "boot")
    return ControlledBroker(world, BrokerConfig(zookeeper_connect="set"))


@contextmanager
def apache_broker(directory, connect):
    port = tools.free_port()
    command = [*APACHE, "server", VERSION, "--data", str(directory), "--port", str(port)]
    command += ["--zookeeper", connect, "--broker-id", "1"]
    output = directory / "output.txt"
    with open(output, "wb") as file:
        environment = os.environ | {"KAFKA_HEAP_OPTS": "-Xmx256M"}
        process = subprocess.Popen(command, stdout=file, stderr=file, env=environment)
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while b"started (kafka.server.KafkaServer)" not in output.read_bytes():
            assert process.poll() is None, output.read_text()
            assert time.monotonic() < deadline, output.read_text()
            time.sleep(0.2)  # the broker cannot notify this process
        yield f"127.0.0.1:{port}"
        process.send_signal(signal.SIGTERM)
        process.wait(START_TIMEOUT_S)
    finally:
        process.kill()
        process.wait()


def tool(script, address, *arguments, stdin=""):
    command = [*APACHE, "tool", VERSION, script, "--bootstrap-server", address, *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


async def read_tree(connect):
    zookeeper = KazooZooKeeper(connect)
    await zookeeper.start()
    nodes = {}
    paths = ["/"]
    while paths:
        path = paths.pop()
        nodes[path] = (await zookeeper.get(path))[0]
        paths += [f"{path.rstrip('/')}/{name}" for name in await zookeeper.children(path)]
    await zookeeper.close()
    return nodes


class History:
    """The history of one cluster, in three lives of broker 1: ours, Apache's, and ours again."""

    def __init__(self, directory, address):
        self.connect = f"{address}/kafka"
        asyncio.run(self.ours())
        with apache_broker(directory, self.connect) as apache:
            self.theirs(apache)
        asyncio.run(self.ours_again())

    async def ours(self):
        async with our_broker(KazooZooKeeper(self.connect)) as broker:
            made = await broker.controller.create_topics(
                [
                    CreatableTopic(
                        "ours", 12, config={"retention.ms": "1000", "segment.bytes": "2000"}
                    ),
                    CreatableTopic("gone", 2),
                ],
                validate_only=False,
            )
            self.made = made[0]
            grown = [CreatablePartitions("gone", 3)]
            assert await broker.controller.create_partitions(grown, validate_only=False) == [None]
            assert await broker.controller.delete_topics(["gone"]) == [None]
            altered = await broker.configs.alter_configs(CHANGES, validate_only=False)
            assert altered == [None] * len(CHANGES)
            self.our_tree = await read_tree(self.connect)

    def theirs(self, apache):
        create = ["--create", "--topic", "theirs", "--partitions", "12"]
        create += ["--config", "retention.ms=1000", "--config", "cleanup.policy=compact,delete"]
        tool("kafka-topics.sh", apache, *create)
        alter = ["--alter", "--entity-type", "brokers", "--entity-default"]
        tool("kafka-configs.sh", apache, *alter, "--add-config", "log.cleaner.threads=2")
        tool("kafka-console-producer.sh", apache, "--topic", "ours", stdin="one\ntwo\n")
        self.described = tool("kafka-topics.sh", apache, "--describe", "--topic", "ours")
        self.their_tree = asyncio.run(read_tree(self.connect))
        self.in_force = {}
        with WireClient(apache) as client:
            for kind, name, key in ((TOPIC, "ours", "segment.ms"), *BROKER_KEYS):
                asked = {"resource_type": kind, "resource_name": name, "configuration_keys": [key]}
                (result,) = client.call(ApiKey.DESCRIBE_CONFIGS, 4, resources=[asked]).results
                (told,) = result.configs
                self.in_force[key] = (told.value, told.config_source)

    async def ours_again(self):
        async with our_broker(KazooZooKeeper(self.connect)) as broker:
            self.image = broker.metadata.current


@pytest.fixture(scope="module", params=[ZooKeeperServer, OwnZooKeeperServer])
def history(request, tmp_path_factory):
    tools.require("java")
    tools.require("mvn")
    with request.param(tmp_path_factory.mktemp("zookeeper")) as server:
        yield History(tmp_path_factory.mktemp("apache"), server.address)


def assert_same_json(ours, theirs):
    """Assert equal JSON with equal order of the outermost keys.

    The order inside is not compared, because Scala's is that of hash maps.
    """
    assert json.loads(ours) == json.loads(theirs)
    if isinstance(json.loads(theirs), dict):
        assert list(json.loads(ours)) == list(json.loads(theirs))


def test_apache_finds_our_topic_as_we_made_it(history):
    heading, *partitions = history.described.splitlines()
    assert f"TopicId: {znodes.uuid_to_text(history.made.id)}" in heading
    assert "PartitionCount: 12\tReplicationFactor: 1" in heading
    assert "retention.ms=1000" in heading
    assert "segment.bytes=2000" in heading
    assert [line.split("\t")[2:6] for line in partitions] == [
        [f"Partition: {p}", "Leader: 1", "Replicas: 1", "Isr: 1"] for p in range(12)
    ]


def test_apache_has_what_we_set_in_force(history):
    own_topic, own_broker, all_brokers = 1, 2, 3
    assert history.in_force == {
        "segment.ms": ("777777", own_topic),
        "max.connections": ("500", all_brokers),
        "message.max.bytes": ("2000000", own_broker),
    }


def test_we_find_what_apache_set_beside_what_we_did(history):
    assert history.image.broker_configs == {
        NO_BROKER: {"max.connections": "500", "log.cleaner.threads": "2"},
        1: {"message.max.bytes": "2000000"},
    }
    assert history.image.topics["ours"].config["segment.ms"] == "777777"


def test_we_find_apaches_topics_as_it_made_them(history):
    theirs = history.image.topics["theirs"]
    given = znodes.decode_topic("theirs", history.their_tree["/brokers/topics/theirs"])
    assert theirs.id == given.topic_id
    assert theirs.config == {"retention.ms": "1000", "cleanup.policy": "compact,delete"}
    assert [(p.leader, p.leader_epoch, p.isr) for p in theirs.partitions] == [(1, 1, (1,))] * 12
    assert history.image.topics["ours"].id == history.made.id
    assert history.image.cluster_id == znodes.decode_cluster_id(history.their_tree["/cluster/id"])


def test_every_broker_makes_the_same_lasting_znodes(history):
    def lasting(tree):
        passing = ("/brokers/topics/", "/config/", "/brokers/ids/")
        return {path for path in tree if not path.startswith(passing)}

    # Kafka also keeps /feature, for finalized features (KIP-584), of which we have none. The block
    # of producer ids is created with the first producer id.
    more = lasting(history.their_tree) - lasting(history.our_tree)
    assert more == {"/feature", znodes.PRODUCER_ID_BLOCK}
    assert lasting(history.our_tree) <= lasting(history.their_tree)


def test_a_topic_has_the_same_znodes_whoever_makes_it(history):
    def below(tree, name):
        return {p.replace(f"/{name}", "/T", 1) for p in tree if f"/topics/{name}" in p}

    assert below(history.our_tree, "ours") == below(history.their_tree, "theirs")


def test_brokers_write_what_we_write(history):
    theirs = history.their_tree["/brokers/ids/1"]
    assert_same_json(znodes.encode_broker(znodes.decode_broker(1, theirs)), theirs)
    # Fields that Kafka does not know come last.
    known = list(json.loads(theirs))
    assert list(json.loads(history.our_tree["/brokers/ids/1"]))[: len(known)] == known


def test_topics_write_what_we_write(history):
    theirs = history.their_tree["/brokers/topics/theirs"]
    assert_same_json(znodes.encode_topic(znodes.decode_topic("theirs", theirs)), theirs)
    ours = json.loads(history.our_tree["/brokers/topics/ours"])
    assert ours | {"topic_id": 0} == json.loads(theirs) | {"topic_id": 0}


@pytest.mark.parametrize("partition", [TopicPartition("theirs", 0), TopicPartition("theirs", 11)])
def test_partitions_write_what_we_write(history, partition):
    theirs = history.their_tree[znodes.state_path(*partition)]
    assert znodes.encode_state(znodes.decode_state(*partition, theirs, 0)) == theirs


def test_configs_write_what_we_write(history):
    for entity in (("topics", "theirs"), ("brokers", znodes.DEFAULT_ENTITY)):
        theirs = history.their_tree[znodes.config_path(*entity)]
        assert_same_json(znodes.encode_config(znodes.decode_config(*entity, theirs)), theirs)
    theirs = history.their_tree[znodes.CONFIG_CHANGE_PREFIX + "0000000000"]
    assert znodes.encode_config_change(*znodes.decode_config_change(theirs)) == theirs


def test_the_controller_writes_what_we_write(history):
    theirs = history.their_tree["/controller"]
    when = int(json.loads(theirs)["timestamp"])
    assert znodes.encode_controller(znodes.decode_controller(theirs), when) == theirs
    epochs = [tree["/controller_epoch"] for tree in (history.our_tree, history.their_tree)]
    assert epochs == [b"1", b"2"]


def test_the_cluster_id_stays_ours(history):
    assert history.their_tree["/cluster/id"] == history.our_tree["/cluster/id"]


def test_producer_ids_are_noted_as_we_note_them(history):
    theirs = history.their_tree["/latest_producer_id_block"]
    assert znodes.encode_producer_id_block(znodes.decode_producer_id_block(theirs)) == theirs
