"""A group of our consumers on simulated brokers: they join, leave, crash, sleep, are cut off, and
commit, and a history records their observations.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from random import Random
from typing import TypeAlias

from kcli.client.admin.admin import Admin, NewTopic
from kcli.client.config import AdminConfig, ConsumerConfig, ProducerConfig
from kcli.client.consumer.consumer import Consumer
from kcli.client.consumer.listener import RebalanceListener
from kcli.client.errors import ClientError
from kcli.client.producer.producer import Producer
from kserver.errors import KafkaError
from kserver.model import TopicPartition
from tests.support.checks import verify
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
)
from tests.support.loop import SimLoop, host
from tests.support.simulated import PORT, SimulatedBroker

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
TROUBLES = ["join", "join", "leave", "crash", "sleep", "cut"]
CALM_S = 31


class GroupRun:
    """One group that reads `t`; `history` is what its members observe."""

    def __init__(
        self,
        loop: SimLoop,
        brokers: Sequence[SimulatedBroker],
        settings: Mapping[str, str],
        partitions: int = PARTITIONS,
    ) -> None:
        self.loop = loop
        self.brokers = brokers
        self.bootstrap = {"bootstrap.servers": ",".join(f"{b.name}:{PORT}" for b in brokers)}
        self.settings = settings
        """Settings of the members that join from now on."""
        self.partitions = tuple(TopicPartition("t", n) for n in range(partitions))
        self.commits_itself = "enable.auto.commit" in settings
        """Whether the client commits, unseen by the history: then the check is that all has been
        read.
        """
        self.history: list[Event] = []
        self.read: dict[TopicPartition, set[int]] = defaultdict(set)
        self.members: dict[str, asyncio.Task[None]] = {}
        self.consumers: dict[str, Consumer] = {}
        """The members' consumers, by name, those of former members too."""
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
        config, stop = (
            ConsumerConfig.of(self.bootstrap | MEMBER | dict(self.settings)),
            self.stops[name],
        )
        async with Consumer(config, random=self.random()) as consumer:
            self.history.append(Joined(self.loop.time(), GROUP, name))
            consumer.subscribe(["t"], listener=Watch(self, name, consumer))
            self.consumers[name] = consumer
            while not stop.is_set():
                await asyncio.sleep(self.sleeps.pop(name, 0))
                try:
                    for record in await consumer.poll(self.loop.random.choice([0, 100, 1000])):
                        self.read[TopicPartition("t", record.partition)].add(record.offset)
                    if self.loop.random.random() < 0.3:
                        await self.commit(name, consumer)
                except (KafkaError, ClientError) as error:
                    self.loop.trace.add("member", name, str(error))
                    # An error that every poll raises at once must not stop the simulated clock.
                    await asyncio.sleep(0.1)
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

    def cut(self, name: str) -> None:
        """Cut the member from all brokers."""
        for broker in self.brokers:
            self.loop.network.cut(name, broker.name)

    def heal(self, name: str) -> None:
        for broker in self.brokers:
            self.loop.network.heal(name, broker.name)

    async def trouble(self, steps: int, of_brokers: Troubles) -> None:
        """Inject faults into members and brokers."""
        random = self.loop.random
        for _ in range(steps):
            await asyncio.sleep(random.expovariate(0.5))
            name = random.choice([*self.stops])
            match random.choice([*TROUBLES, *of_brokers]):
                case "join" if len(self.stops) < 5:
                    self.join()
                case "leave" if len(self.stops) > 1:
                    self.stops.pop(name).set()
                case "crash" if len(self.stops) > 1:
                    self.cut(name)
                    self.members.pop(name).cancel()
                    self.gone(name)
                case "sleep":
                    self.sleeps[name] = random.choice([1, 5, 10])
                    self.disturbed(f"{name} sleeps")
                case "cut":
                    self.cut(name)
                    await asyncio.sleep(random.expovariate(0.5))
                    self.heal(name)
                    self.disturbed(f"{name} was cut off")
                case what if what in of_brokers:
                    await of_brokers[what](self)

    async def produce(self, until: asyncio.Event) -> dict[TopicPartition, int]:
        sent: dict[TopicPartition, int] = defaultdict(int)
        config = ProducerConfig.of(self.bootstrap | {"request.timeout.ms": "2000"})
        async with Producer(
            config, now_ms=self.brokers[0].clock.now_ms, random=self.random()
        ) as producer:
            while not until.is_set():
                await asyncio.sleep(self.loop.random.expovariate(10))
                partition = self.loop.random.randrange(len(self.partitions))
                await producer.send("t", b"v", partition=partition)
                sent[self.partitions[partition]] += 1
            await producer.flush()
        return sent


Troubles: TypeAlias = Mapping[str, Callable[[GroupRun], Awaitable[object]]]
"""Faults of the brokers, by name; each records in the history that the group may need time."""


class Watch(RebalanceListener):
    def __init__(self, run: GroupRun, name: str, consumer: Consumer) -> None:
        self.run, self.name, self.consumer = run, name, consumer

    def enter(self, partitions: set[TopicPartition]) -> None:
        generation = self.consumer.group_metadata().generation_id
        if generation >= 0:
            owned = frozenset((topic, n) for topic, n in partitions)
            now = self.run.loop.time()
            self.run.history.append(Assigned(now, GROUP, self.name, generation, owned))

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self.enter(set(self.consumer.assignment))

    async def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        assert set(partitions) <= set(self.consumer.assignment)
        await self.run.commit(self.name, self.consumer)
        self.enter(set(self.consumer.assignment) - set(partitions))

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.run.loop.trace.add("lost", self.name)


async def committed(run: GroupRun) -> None:
    """Record the group's committed offsets, fetched by a client that is not a member."""
    if run.commits_itself:
        return
    async with Consumer(ConsumerConfig.of(run.bootstrap | MEMBER), random=run.random()) as consumer:
        since = len(run.history)
        found = await consumer.committed(run.partitions)
        for (topic, n), offset in found.items():
            at = -1 if offset is None else offset.offset
            run.history.append(Fetched(run.loop.time(), since, GROUP, (topic, n), at))


async def read_by_a_group(run: GroupRun, replicas: int, of_brokers: Troubles) -> None:
    """Run a group that reads all records, and verify the history. The brokers run before
    and after.
    """
    loop = run.loop
    async with Admin(AdminConfig.of(run.bootstrap), random=run.random()) as admin:
        await admin.create_topics([NewTopic("t", len(run.partitions), replicas)])
    run.history.append(Wanted(loop.time(), GROUP, frozenset(run.partitions)))
    calm = asyncio.Event()
    producing = loop.create_task(run.produce(calm))
    run.join()
    await run.trouble(12, of_brokers)
    calm.set()
    sent = await producing
    for _ in range(CALM_S):
        await asyncio.sleep(1)
    await committed(run)
    for stop in run.stops.values():
        stop.set()
    await asyncio.gather(*run.members.values())
    await committed(run)
    verify(run.history)
    assert {p: set(range(count)) for p, count in sent.items()} == dict(run.read)
