"""Groups that balance themselves through ZooKeeper, while members, sessions and connections end.

    one_owner               what a member with a live session reads, its owner nodes say
    written_after_printing  no offset is written before the records below it were printed
    commit_regression       no offset that is written goes back
    liveness                when it is calm again, all is owned, printed and written within 30 s

The first three are checked after every change in ZooKeeper and every poll.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Sequence
from random import Random

import pytest

from kcli.client.admin.admin import Admin, NewTopic
from kcli.client.config import AdminConfig, ProducerConfig
from kcli.client.producer.producer import Producer
from kcli.zookeeper_consumer.consumer import ZookeeperConsumer
from kserver import znodes
from kserver.model import Endpoint, TopicPartition
from kserver.world.zookeeper import NO_SESSION, Create, Delete, NodeExists, Op, OpResult
from tests.support.loop import SimLoop, host, simulate
from tests.support.simulated import SimulatedBroker
from tests.support.zookeeper import SimEnsemble, SimZooKeeper

BOOTSTRAP = {"bootstrap.servers": "broker:9092"}
PARTITIONS = 5
MAX_MEMBERS = 4
SESSION_TIMEOUT_MS = 6000
TROUBLE_S = 30
CALM_S = 30
SEEDS = range(10)


class Ensemble(SimEnsemble):
    """Tells of each change."""

    changed: Callable[[], None] = staticmethod(lambda: None)

    def apply(self, *arguments, **options) -> list[OpResult]:
        results = super().apply(*arguments, **options)
        self.changed()
        return results


class Reader:
    """One member: it prints what it polls, some of it slowly."""

    def __init__(self, group: Group, number: int, zookeeper: SimZooKeeper) -> None:
        self.group = group
        self.zookeeper = zookeeper
        self.host = f"client-{number}"
        with host(self.host):
            self.consumer = ZookeeperConsumer(
                {
                    "group.id": "g",
                    "auto.offset.reset": group.reset,
                    "auto.commit.interval.ms": "1000",
                    "request.timeout.ms": "2000",
                },
                ["t"],
                zookeeper,
                name=f"reader-{number}",
                now_ms=group.broker.clock.now_ms,
                random=Random(group.loop.random.random()),
            )
            self.stopping = False
            self.task = group.loop.create_task(self.read())
            self.task.add_done_callback(lambda task: task.cancelled() or task.result())

    @property
    def is_alive(self) -> bool:
        return self.group.ensemble.has_session(self.zookeeper.session_id)

    async def read(self) -> None:
        async with self.consumer as consumer:
            while not self.stopping:
                batches = await consumer.poll_batches(300, max_records=20)
                self.group.loop.call_soon(self.group.ensemble.changed)
                if self.group.loop.random.random() < 0.1:
                    await asyncio.sleep(self.group.loop.random.expovariate(2))
                self.print(batches)

    def print(self, batches) -> None:
        for batch in batches:
            for row in batch.rows:
                self.group.printed[batch.partition].add(row[0])

    async def leave(self) -> None:
        self.stopping = True
        await self.task

    async def die(self) -> None:
        """Nothing of it goes out any more."""
        self.zookeeper.kill()
        self.task.cancel()
        await asyncio.wait([self.task])


class Hasty(Reader):
    """Polls again before it has printed."""

    async def read(self) -> None:
        async with self.consumer as consumer:
            before = []
            while not self.stopping:
                batches = await consumer.poll_batches(300, max_records=20)
                self.print(before)
                before = batches


class Pushy(SimZooKeeper):
    """Does not wait until an owner has let go."""

    async def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        while True:
            try:
                return await super().multi(ops)
            except NodeExists as error:
                if "/owners/" not in error.path:
                    raise
                await super().multi([Delete(error.path)])


class Group:
    def __init__(self, loop: SimLoop, kind=Reader, client=SimZooKeeper) -> None:
        self.loop = loop
        self.kind, self.client = kind, client
        self.broker = SimulatedBroker(loop)
        self.ensemble = Ensemble(loop, self.broker.clock)
        self.readers: list[Reader] = []
        self.joined = 0
        self.has_failed = False
        self.reset = loop.random.choice(["earliest", "latest"])
        self.sent = [0] * PARTITIONS
        self.printed: list[set[int]] = [set() for _ in range(PARTITIONS)]
        self.committed = [0] * PARTITIONS

    async def start(self) -> None:
        await self.broker.start()
        async with Admin(AdminConfig.of(BOOTSTRAP)) as admin:
            await admin.create_topics([NewTopic("t", PARTITIONS)])
        broker = znodes.BrokerRegistration(0, (Endpoint("A", "PLAINTEXT", "broker", 9092),), 0)
        topic = znodes.TopicAssignment(None, dict.fromkeys(range(PARTITIONS), (0,)))
        for path, data in (
            (znodes.broker_path(0), znodes.encode_broker(broker)),
            (znodes.topic_path("t"), znodes.encode_topic(topic)),
        ):
            self.ensemble.apply([Create(path, data)], NO_SESSION, make_parents=True)
        self.ensemble.changed = self.check

    def join(self) -> None:
        self.joined += 1
        zookeeper = self.client(self.ensemble, SESSION_TIMEOUT_MS)
        self.readers.append(self.kind(self, self.joined, zookeeper))

    async def trouble(self) -> None:
        loop = self.loop
        end = loop.time() + TROUBLE_S
        while loop.time() < end:
            await asyncio.sleep(loop.random.expovariate(0.5))
            if len(self.readers) < MAX_MEMBERS and loop.random.random() < 0.5:
                self.join()
            if not self.readers:
                continue
            reader = loop.random.choice(self.readers)
            match loop.random.randrange(6):
                case 0:
                    self.readers.remove(reader)
                    await reader.leave()
                case 1:
                    self.readers.remove(reader)
                    await reader.die()
                case 2:
                    reader.zookeeper.expire()
                case 3:
                    reader.zookeeper.cut()
                    wait_s = loop.random.choice([0.01, 1, 2 * SESSION_TIMEOUT_MS / 1000])
                    await asyncio.sleep(wait_s)
                    reader.zookeeper.heal()
                case 4:
                    loop.network.reset(reader.host, "broker")
                case 5:
                    await self.broker.kill()
                    await asyncio.sleep(loop.random.expovariate(2))
                    await self.broker.start()

    async def produce(self, for_s: float = TROUBLE_S) -> None:
        config = ProducerConfig.of(BOOTSTRAP | {"request.timeout.ms": "2000"})
        random = Random(self.loop.random.random())
        async with Producer(config, now_ms=self.broker.clock.now_ms, random=random) as producer:
            end = self.loop.time() + for_s
            while self.loop.time() < end:
                partition = self.loop.random.randrange(PARTITIONS)
                await (await producer.send("t", b"", partition=partition))
                self.sent[partition] += 1
                await asyncio.sleep(self.loop.random.expovariate(10))

    def check(self) -> None:
        if self.has_failed:
            return  # Once is enough, and lets the rest end in order.
        self.has_failed = True
        one_owner(self)
        written_after_printing(self)
        commit_regression(self)
        self.has_failed = False

    def stored(self, partition: int) -> int | None:
        node = self.ensemble.tree.nodes.get(znodes.offset_path("g", "t", partition))
        if node is None:
            return None
        return znodes.decode_offset("g", TopicPartition("t", partition), node.data)

    def owner(self, partition: int) -> str | None:
        node = self.ensemble.tree.nodes.get(znodes.owner_path("g", "t", partition))
        return None if node is None else node.data.decode()


def one_owner(group: Group) -> None:
    for reader in group.readers:
        if reader.is_alive:
            for partition in reader.consumer.assignment:
                owner = group.owner(partition.partition)
                assert owner == f"{reader.consumer.id}-0", f"{owner} owns {partition}, too"


def written_after_printing(group: Group) -> None:
    for partition, printed in enumerate(group.printed):
        unprinted = set(range(group.stored(partition) or 0)) - printed
        assert not unprinted, f"of {partition} these are not printed: {sorted(unprinted)}"


def commit_regression(group: Group) -> None:
    for partition, before in enumerate(group.committed):
        now = group.stored(partition) or 0
        assert now >= before, f"partition {partition} went back from {before} to {now}"
        group.committed[partition] = now


async def liveness(group: Group) -> None:
    members = {f"{reader.consumer.id}-0" for reader in group.readers}
    shares = [PARTITIONS // len(members), -(-PARTITIONS // len(members))]
    async with asyncio.timeout(CALM_S):
        while True:
            owners = [group.owner(n) for n in range(PARTITIONS)]
            is_even = {owners.count(member) for member in members} <= set(shares)
            printed = [len(offsets) for offsets in group.printed]
            stored = [group.stored(n) for n in range(PARTITIONS)]
            if set(owners) <= members and is_even and printed == stored == group.sent:
                return
            await asyncio.sleep(0.1)


async def troubled(loop: SimLoop, **planted) -> str:
    group = Group(loop, **planted)
    await group.start()
    group.join()
    while None in (group.stored(n) for n in range(PARTITIONS)):
        await asyncio.sleep(0.1)  # From here on "latest" leaves nothing out.
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(group.produce())
        tasks.create_task(group.trouble())
    group.join()
    await liveness(group)
    async with asyncio.timeout(CALM_S):
        for reader in group.readers:
            await reader.leave()
    await group.broker.stop()
    assert not group.broker.bugs
    return loop.trace.digest


@pytest.mark.parametrize("seed", SEEDS)
def test_each_partition_has_one_owner_and_each_record_is_read(seed):
    simulate(troubled, seed)


@pytest.mark.parametrize(
    "path",
    [
        znodes.member_path("g", "g_reader-1"),
        znodes.owner_path("g", "t", 2),
        znodes.offset_path("g", "t", 2),
    ],
)
def test_a_node_that_another_hand_deletes_is_made_again(path):
    async def deleted(loop: SimLoop) -> None:
        group = Group(loop)
        group.reset = "earliest"
        await group.start()
        group.join()
        await group.produce(for_s=3)
        group.ensemble.changed = lambda: None  # For a moment it owns what no node says.
        group.ensemble.apply([Delete(path)], NO_SESSION)
        await group.produce(for_s=3)
        await liveness(group)
        await group.readers[0].leave()
        await group.broker.stop()

    simulate(deleted, 1)


def caught_by(planted) -> str:
    """Which of the checks sees it first."""
    for seed in SEEDS:
        try:
            simulate(lambda loop: troubled(loop, **planted), seed)
        except AssertionError as found:
            return traceback.extract_tb(found.__traceback__)[-1].name
    return "none"


def test_one_who_does_not_wait_for_an_owner_to_let_go_is_caught():
    assert caught_by({"client": Pushy}) == "one_owner"


def test_one_who_says_that_records_are_done_before_they_are_is_caught():
    assert caught_by({"kind": Hasty}) == "written_after_printing"


def test_one_seed_gives_one_trace():
    assert simulate(troubled, 1) == simulate(troubled, 1)
