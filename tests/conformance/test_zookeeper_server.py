"""Test Apache's own programs on our ZooKeeper server: its shell, and a broker of Kafka 3.9."""

from __future__ import annotations

import asyncio
import re
import subprocess

import pytest

from kserver.world.kazoo import KazooZooKeeper
from tests.contract.test_znodes_apache import APACHE, VERSION, apache_broker, tool
from tests.support import tools
from tests.support.zookeeper_server import OwnZooKeeperServer, ZooKeeperServer

PATIENCE_S = 300
TYPED = """
ls /
create /a one
get -s /a
set -s /a two
set -v 7 /a three
create /a again
create /none/b x
create -s /a/n- x
create -s -e /a/e- x
create /null
get /null
ls -R /a
ls -s /a
stat /a
getEphemerals /a
getAllChildrenNumber /a
addauth digest kafka:secret
create /guarded x auth::cdrwa
getAcl -s /guarded
setAcl /guarded world:anyone:r
getAcl -s /guarded
set /guarded y
getAcl /a
ls -w /a
create /a/child x
stat -w /a
set /a four
addWatch -m PERSISTENT_RECURSIVE /a
set /a/child y
removewatches /a
delete -v 9 /a
delete /a
deleteall /a
get /a
sync /
config
whoami
version
quit
"""
VARYING = (
    (r"(c|m|p)Zxid = 0x\w+", r"\1Zxid = 0x"),
    (r"(c|m)time = .*", r"\1time = "),
    (r"ephemeralOwner = 0x\w{2,}", "ephemeralOwner = 0x."),
    (r"zxid: -?\d+", "zxid:"),
    (r"version=\w+", "version="),
)


@pytest.fixture(scope="module", autouse=True)
def java():
    tools.require("java")
    tools.require("mvn")


def typed(address: str) -> list[str]:
    """Return the output of zookeeper-shell without the parts that differ between runs."""
    command = [*APACHE, "tool", VERSION, "zookeeper-shell.sh", address]
    done = subprocess.run(command, input=TYPED, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    text = done.stdout + done.stderr
    for varying, same in VARYING:
        text = re.sub(varying, same, text)
    # The session's own events may arrive before the program ends, or not.
    passing = r"\[?\d{4}-|$|WATCHER::|WatchedEvent state:\w+ type:None"
    lines = [line for line in text.splitlines() if not re.match(passing, line)]
    return [line.replace(address, "ADDRESS") for line in lines]


def test_the_shell_prints_the_same_on_both(tmp_path):
    with ZooKeeperServer(tmp_path / "apache") as apache:
        expected = typed(apache.address)
    with OwnZooKeeperServer(tmp_path / "own") as own:
        # Events are printed by another thread, so their lines mix with the responses.
        assert sorted(typed(own.address)) == sorted(expected)


def test_a_broker_of_apaches_works_and_comes_back(tmp_path):
    async def broker_epoch(connect: str) -> int:
        zookeeper = KazooZooKeeper(connect)
        await zookeeper.start()
        try:
            return (await zookeeper.exists("/brokers/ids/1")).czxid
        finally:
            await zookeeper.close()

    with OwnZooKeeperServer(tmp_path / "zookeeper") as zookeeper:
        connect = f"{zookeeper.address}/kafka"
        directory = tmp_path / "broker"
        directory.mkdir()
        epochs = []
        for life in range(2):
            with apache_broker(directory, connect) as broker:
                if life == 0:
                    tool("kafka-topics.sh", broker, "--create", "--topic", "t", "--partitions", "3")
                tool("kafka-console-producer.sh", broker, "--topic", "t", stdin=f"{life}\n")
                epochs.append(asyncio.run(broker_epoch(connect)))
                if life == 0:
                    # The broker's session survives a kill and restart of its ZooKeeper.
                    zookeeper.kill()
                    zookeeper.start()
                    create = ["--create", "--topic", "u", "--partitions", "2"]
                    tool("kafka-topics.sh", broker, *create)
                    assert asyncio.run(broker_epoch(connect)) == epochs[0]
                read = ["--from-beginning", "--max-messages", str(life + 1)]
                found = tool("kafka-console-consumer.sh", broker, "--topic", "t", *read)
                assert sorted(found.split()) == [str(n) for n in range(life + 1)]
                topics = tool("kafka-topics.sh", broker, "--list").split()
                assert {"t", "u"} <= set(topics)
        assert epochs[0] < epochs[1]
