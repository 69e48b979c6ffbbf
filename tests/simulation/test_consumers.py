"""Consumers of a group and their broker on one loop: they come, go, crash, sleep and are cut off,
and the broker restarts; then it is calm, and everything has been read."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from random import Random

import pytest

from kcli.client.admin import Admin, NewTopic
from kcli.client.config import AdminConfig, ConsumerConfig, ProducerConfig
from kcli.client.consumer import Consumer
from kcli.client.errors import ClientError
from kcli.client.listener import RebalanceListener
from kcli.client.producer import Producer
from kserver.errors import KafkaError
from kserver.model import TopicPartition
from tests.support.history import (
    Assigned,
    Committed,
    Disturbed,
    Event,
    Fetched,
    Gone,
    Joined,
    Result,
    Wanted,
    verify,
)
from tests.support.loop import SimLoop, simulate
from tests.support.network import host
from tests.support.seeds import seeds
from tests.support.simulated import SimulatedBroker

BOOTSTRAP = {"bootstrap.servers": "broker:9092"}
GROUP = "g"
PARTITIONS = 4
ASSIGNORS = ("uniform", "range")
STRATEGIES = ("range", "roundrobin", "sticky", "cooperative-sticky")
BROKER = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "4000",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "1",
}
MEMBER = {
    "group.id": GROUP,
    "auto.offset.reset": "earliest",
    "enable.auto.commit": "false",
    "max.poll.interval.ms": "6000",
    "request.timeout.ms": "3000",
    "default.api.timeout.ms": "5000",
    "metadata.max.age.ms": "3000",
}
CLASSIC = {"heartbeat.interval.ms": "500", "session.timeout.ms": "4000"}
AUTO_COMMIT = {"enable.auto.commit": "true", "auto.commit.interval.ms": "700"}
PROTOCOLS = [
    *(CLASSIC | {"partition.assignment.strategy": name} for name in STRATEGIES),
    *({"group.protocol": "consumer", "group.remote.assignor": name} for name in ASSIGNORS),
    CLASSIC | AUTO_COMMIT | {"partition.assignment.strategy": "cooperative-sticky"},
    AUTO_COMMIT | {"group.protocol": "consumer"},
]
SEEDS = seeds(len(PROTOCOLS))
TROUBLES = ["join", "join", "leave", "crash", "sleep", "cut", "restart", "clock"]
CALM_S = 31


class Run:
    """One group; `history` is what its members see."""

    def __init__(self, loop: SimLoop, settings: dict[str, str]) -> None:
        self.loop = loop
        self.settings = settings
        self.commits_itself = "enable.auto.commit" in settings
        """The client commits, unseen by the history: what counts is that all has been read."""
        self.history: list[Event] = []
        self.broker = SimulatedBroker(loop, BROKER)
        self.read: dict[TopicPartition, set[int]] = defaultdict(set)
        self.members: dict[str, asyncio.Task[None]] = {}
        self.stops: dict[str, asyncio.Event] = {}
        self.sleeps: dict[str, float] = {}
        self._names = iter(range(1, 1000))

    def random(self) -> Random:
        return Random(self.loop.random.random())

    def join(self) -> None:
        name = f"m{next(self._names)}"
        self.stops[name] = asyncio.Event()
        with host(name):
            self.members[name] = self.loop.create_task(self.be_member(name))

    async def be_member(self, name: str) -> None:
        config, stop = ConsumerConfig.of(BOOTSTRAP | MEMBER | self.settings), self.stops[name]
        async with Consumer(config, random=self.random()) as consumer:
            self.history.append(Joined(self.loop.time(), GROUP, name))
            consumer.subscribe(["t"], listener=Watch(self, name, consumer))
            while not stop.is_set():
                await asyncio.sleep(self.sleeps.pop(name, 0))
                try:
                    for record in await consumer.poll(self.loop.random.choice([0, 100, 1000])):
                        self.read[TopicPartition("t", record.partition)].add(record.offset)
                    if self.loop.random.random() < 0.3:
                        await self.commit(name, consumer)
                except (KafkaError, ClientError) as error:
                    self.loop.trace.add("member", name, str(error))
            self.history.append(Gone(self.loop.time(), GROUP, name))

    async def commit(self, name: str, consumer: Consumer) -> None:
        if self.commits_itself:
            return
        offsets = {p: await consumer.position(p) for p in consumer.assignment}
        who = consumer.group_metadata()
        since = len(self.history)
        result = Result.OK
        try:
            await consumer.commit(offsets)
        except (KafkaError, ClientError):
            result = Result.UNKNOWN
        for (topic, n), offset in offsets.items():
            self.history.append(
                Committed(
                    self.loop.time(),
                    since,
                    GROUP,
                    name,
                    who.generation_id,
                    (topic, n),
                    offset,
                    result,
                )
            )

    def gone(self, name: str) -> None:
        del self.stops[name]
        self.history.append(Gone(self.loop.time(), GROUP, name))

    def disturbed(self, what: str) -> None:
        self.history.append(Disturbed(self.loop.time(), what))

    async def trouble(self, steps: int) -> None:
        network, random = self.loop.network, self.loop.random
        for _ in range(steps):
            await asyncio.sleep(random.expovariate(0.5))
            name = random.choice([*self.stops])
            match random.choice(TROUBLES):
                case "join" if len(self.stops) < 5:
                    self.join()
                case "leave" if len(self.stops) > 1:
                    self.stops.pop(name).set()
                case "crash" if len(self.stops) > 1:
                    network.cut(name, "broker")
                    self.members.pop(name).cancel()
                    self.gone(name)
                case "sleep":
                    self.sleeps[name] = random.choice([1, 5, 10])
                    self.disturbed(f"{name} sleeps")
                case "cut":
                    network.cut(name, "broker")
                    await asyncio.sleep(random.expovariate(0.5))
                    network.heal(name, "broker")
                    self.disturbed(f"{name} was cut off")
                case "restart":
                    await (self.broker.kill() if random.random() < 0.5 else self.broker.stop())
                    await asyncio.sleep(random.expovariate(1))
                    await self.broker.start()
                    self.disturbed("restart")
                case "clock":
                    self.broker.clock.jump(random)

    async def produce(self, until: asyncio.Event) -> dict[TopicPartition, int]:
        sent: dict[TopicPartition, int] = defaultdict(int)
        config = ProducerConfig.of(BOOTSTRAP | {"request.timeout.ms": "2000"})
        async with Producer(
            config, now_ms=self.broker.clock.now_ms, random=self.random()
        ) as producer:
            while not until.is_set():
                await asyncio.sleep(self.loop.random.expovariate(10))
                partition = self.loop.random.randrange(PARTITIONS)
                await producer.send("t", b"v", partition=partition)
                sent[TopicPartition("t", partition)] += 1
            await producer.flush()
        return sent


class Watch(RebalanceListener):
    def __init__(self, run: Run, name: str, consumer: Consumer) -> None:
        self.run, self.name, self.consumer = run, name, consumer

    def enter(self, partitions: set[TopicPartition]) -> None:
        generation = self.consumer.group_metadata().generation_id
        if generation >= 0:
            owned = frozenset((topic, n) for topic, n in partitions)
            now = self.run.loop.time()
            self.run.history.append(Assigned(now, GROUP, self.name, generation, owned))

    def on_assigned(self, partitions):
        self.enter(set(self.consumer.assignment))

    async def on_revoked(self, partitions):
        assert set(partitions) <= set(self.consumer.assignment)
        await self.run.commit(self.name, self.consumer)
        self.enter(set(self.consumer.assignment) - set(partitions))

    def on_lost(self, partitions):
        self.run.loop.trace.add("lost", self.name)


async def committed(run: Run) -> None:
    """What the group has committed, asked by one that is no member."""
    if run.commits_itself:
        return
    async with Consumer(ConsumerConfig.of(BOOTSTRAP | MEMBER), random=run.random()) as consumer:
        since = len(run.history)
        found = await consumer.committed([TopicPartition("t", n) for n in range(PARTITIONS)])
        for (topic, n), offset in found.items():
            at = -1 if offset is None else offset.offset
            run.history.append(Fetched(run.loop.time(), since, GROUP, (topic, n), at))


async def group(loop: SimLoop, settings: dict[str, str]) -> str:
    run = Run(loop, settings)
    await run.broker.start()
    async with Admin(AdminConfig.of(BOOTSTRAP), random=run.random()) as admin:
        await admin.create_topics([NewTopic("t", PARTITIONS)])
    wanted = frozenset(("t", n) for n in range(PARTITIONS))
    run.history.append(Wanted(loop.time(), GROUP, wanted))
    calm = asyncio.Event()
    producing = loop.create_task(run.produce(calm))
    run.join()
    await run.trouble(12)
    calm.set()
    sent = await producing
    for _ in range(CALM_S):
        await asyncio.sleep(1)
    await committed(run)
    for stop in run.stops.values():
        stop.set()
    await asyncio.gather(*run.members.values())
    await committed(run)
    await run.broker.stop()
    verify(run.history)
    assert {p: set(range(count)) for p, count in sent.items()} == dict(run.read)
    assert not run.broker.bugs
    return loop.trace.digest


@pytest.mark.parametrize("seed", SEEDS)
def test_a_group_of_consumers_reads_everything_whatever_breaks(seed):
    simulate(lambda loop: group(loop, PROTOCOLS[seed % len(PROTOCOLS)]), seed)


def test_the_same_seed_gives_the_same_run_of_a_group():
    first, second = (simulate(lambda loop: group(loop, CLASSIC), 1) for _ in range(2))
    assert first == second
