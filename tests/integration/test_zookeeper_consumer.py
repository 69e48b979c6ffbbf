"""Test groups that rebalance themselves through a real ZooKeeper, while members join, are killed
and come back."""

from __future__ import annotations

import asyncio
import collections
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kcli.client.admin.admin import Admin, NewTopic
from kcli.client.config import AdminConfig, ProducerConfig
from kcli.client.producer.producer import Producer
from kserver import znodes
from kserver.model import TopicPartition
from kserver.world.kazoo import KazooZooKeeper
from kserver.world.zookeeper import ConnectionLost, NoNode
from tests.support import apache_kafka, tools
from tests.support.process import BrokerProcess
from tests.support.tools import K
from tests.support.zookeeper_server import ZooKeeperServer

PARTITIONS = 12
PATIENCE_S = 90
LOOK_AGAIN_S = 0.05
SETTINGS = {
    "zookeeper.session.timeout.ms": 2000,
    "rebalance.backoff.ms": 500,
    "rebalance.max.retries": 20,
    "auto.commit.interval.ms": 300,
}


class Member:
    """A console consumer; the output of all its processes is appended to one file."""

    def __init__(self, directory: Path, number: int, connect: str) -> None:
        self.path = directory / f"member-{number}.txt"
        self.name = f"member{number}"
        self.connect = connect
        self.lives = 0
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> Member:
        self.lives += 1
        settings = SETTINGS | {"consumer.id": f"{self.name}.{self.lives}"}
        words = [w for k, v in settings.items() for w in ("--command-property", f"{k}={v}")]
        with open(self.path, "ab") as file:
            self.process = subprocess.Popen(
                [
                    *(*K, "console-consumer", "--zookeeper", self.connect, "--group", "g"),
                    *("--topic", "t", "--from-beginning", "--format", r"%p %o\n", *words),
                ],
                stdout=file,
                stderr=subprocess.DEVNULL,
            )
        return self

    @property
    def thread(self) -> str:
        return f"g_{self.name}.{self.lives}-0"

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        assert self.process is not None
        self.process.terminate()
        self.process.wait(PATIENCE_S)

    def printed(self) -> list[tuple[int, int]]:
        lines = self.path.read_text().split("\n")[:-1]
        # A killed process may leave an incomplete line, which the next process continues.
        pairs = (line.split() for line in lines)
        return [(int(p[0]), int(p[1])) for p in pairs if len(p) == 2]


class Group:
    def __init__(self, zookeeper: KazooZooKeeper, broker: BrokerProcess) -> None:
        self.zookeeper = zookeeper
        self.broker = broker
        self.members: list[Member] = []
        self.sent: collections.Counter[int] = collections.Counter()

    async def send(self, count: int) -> None:
        config = ProducerConfig.of({"bootstrap.servers": self.broker.address})
        async with Producer(config) as producer:
            for number in range(count):
                await producer.send("t", b"", partition=number % PARTITIONS)
                self.sent[number % PARTITIONS] += 1

    async def owners(self) -> list[str]:
        found = []
        for partition in range(PARTITIONS):
            try:
                data, _ = await self.zookeeper.get(znodes.owner_path("g", "t", partition))
            except NoNode:
                continue
            found.append(data.decode())
        return found

    async def balanced(self, *members: Member) -> None:
        """Wait until these members own all partitions, evenly distributed."""
        threads = sorted(member.thread for member in members)
        each, more = divmod(PARTITIONS, len(threads))
        wanted = [t for n, t in enumerate(threads) for _ in range(each + (n < more))]
        deadline = time.monotonic() + PATIENCE_S
        while (owners := await self.owners()) != wanted:
            assert time.monotonic() < deadline, owners
            await asyncio.sleep(LOOK_AGAIN_S)

    async def all_printed(self) -> None:
        wanted = {(p, offset) for p, count in self.sent.items() for offset in range(count)}
        deadline = time.monotonic() + PATIENCE_S
        while missing := wanted - {pair for m in self.members for pair in m.printed()}:
            assert time.monotonic() < deadline, sorted(missing)
            await asyncio.sleep(LOOK_AGAIN_S)

    async def all_written(self) -> None:
        """Wait until all offsets are written.

        Records that a member had read when its session expired are read again by the next owner.
        """
        deadline = time.monotonic() + PATIENCE_S
        while (offsets := await self.offsets()) != self.sent:
            assert time.monotonic() < deadline, offsets
            await asyncio.sleep(LOOK_AGAIN_S)

    async def offsets(self) -> dict[int, int]:
        found = {}
        for partition in range(PARTITIONS):
            data, _ = await self.zookeeper.get(znodes.offset_path("g", "t", partition))
            found[partition] = znodes.decode_offset("g", TopicPartition("t", partition), data)
        return found


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A ZooKeeper, a broker, and the connect string."""
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")) as server:
        connect = f"{server.address}/k"
        settings = {"zookeeper.connect": connect, "broker.id": 1}
        with BrokerProcess(tmp_path_factory.mktemp("broker"), settings) as broker:
            yield server, broker, connect


async def zookeeper_is_back(zookeeper: KazooZooKeeper) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                await zookeeper.exists("/")
                return
            except ConnectionLost:
                await asyncio.sleep(LOOK_AGAIN_S)


def test_members_are_killed_and_come_back_and_each_record_is_read(cluster, tmp_path: Path):
    server, broker, connect = cluster
    members = [Member(tmp_path, number, connect) for number in range(5)]
    one, two, *others = members

    async def scenario() -> None:
        zookeeper = KazooZooKeeper(connect)
        await zookeeper.start()
        group = Group(zookeeper, broker)
        group.members = members[:2]
        async with Admin(AdminConfig.of({"bootstrap.servers": broker.address})) as admin:
            await admin.create_topics([NewTopic("t", PARTITIONS, 1)])
        # Two members share the partitions.
        one.start()
        two.start()
        await group.balanced(one, two)
        await group.send(1200)
        await group.all_printed()

        # More members join.
        group.members = members
        for member in others:
            member.start()
        await group.balanced(*members)
        await group.send(1200)
        await group.all_printed()

        # Killed members lose their partitions once their sessions expire.
        two.kill()
        others[0].kill()
        await group.send(1200)
        await group.balanced(one, *others[1:])
        await group.all_printed()

        # They come back with new consumer ids.
        two.start()
        others[0].start()
        await group.send(1200)
        await group.balanced(*members)
        await group.all_printed()

        # Records are sent while ZooKeeper is down; afterwards the members balance again.
        server.kill()
        await group.send(1200)
        server.start()
        await zookeeper_is_back(zookeeper)
        await group.balanced(*members)
        await group.all_printed()
        await group.all_written()

        # A clean stop writes all offsets and removes all ephemeral znodes.
        for member in members:
            member.stop()
        assert await group.offsets() == group.sent
        assert await zookeeper.children(znodes.members_path("g")) == []
        assert await group.owners() == []
        await zookeeper.close()

    try:
        asyncio.run(scenario())
    finally:
        for member in members:
            if member.process is not None:
                member.kill()


def test_the_old_tools_read_how_far_a_group_came(cluster):
    tools.require("java")
    tools.require("mvn")
    _, broker, connect = cluster

    async def send() -> None:
        config = {"bootstrap.servers": broker.address}
        async with Admin(AdminConfig.of(config)) as admin:
            await admin.create_topics([NewTopic("shown", 1, 1)])
        async with Producer(ProducerConfig.of(config)) as producer:
            for number in range(50):
                await producer.send("shown", b"%d" % number)

    asyncio.run(send())
    words = ["--zookeeper", connect, "--topic", "shown", "--group", "shown", "--from-beginning"]
    for part in (range(42), range(42, 50)):
        read = [*K, "console-consumer", *words, "--max-messages", str(len(part))]
        done = subprocess.run(read, capture_output=True, check=True, text=True)
        assert done.stdout.split() == [str(number) for number in part]
        if part.start == 0:
            assert shell(connect, "get", "/consumers/shown/offsets/shown/0") == "42"
    assert shell(connect, "ls", "/consumers/shown") == "[ids, offsets, owners]"


def shell(connect: str, *words: str) -> str:
    """Return the last line that Kafka's zookeeper-shell prints in response.

    Another of its threads prints the connection events, sometimes only at that point.
    """
    script = [sys.executable, apache_kafka.__file__, "tool", "3.9.2", "zookeeper-shell.sh"]
    shown = subprocess.run(
        [*script, connect, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"KAFKA_HEAP_OPTS": "-Xmx128M -XX:TieredStopAtLevel=1"},
        check=True,
        text=True,
    )
    lines = shown.stdout.splitlines()
    return [line for line in lines if line and not line.startswith(("WATCHER", "WatchedEvent"))][-1]


def test_a_group_that_is_made_up_leaves_nothing(cluster):
    *_, connect = cluster

    async def groups() -> list[str]:
        zookeeper = KazooZooKeeper(connect)
        await zookeeper.start()
        try:
            return await zookeeper.children(znodes.CONSUMERS)
        finally:
            await zookeeper.close()

    before = asyncio.run(groups())
    words = ["console-consumer", "--zookeeper", connect, "--topic", "none", "--timeout-ms", "500"]
    done = subprocess.run([*K, *words], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "Processed a total of 0 messages\n"
    assert asyncio.run(groups()) == before
