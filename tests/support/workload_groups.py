"""A workload of a group whose members join, leave, crash and come back, by either protocol."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from kcli.client.admin.admin import NewTopic
from kcli.client.config import ConsumerConfig
from kcli.client.consumer.consumer import Consumer
from kcli.client.consumer.listener import RebalanceListener
from kcli.client.errors import TimedOut
from kserver.model import TopicPartition
from tests.support.checks.groups import LIVENESS_S
from tests.support.group_run import ASSIGNORS, STRATEGIES
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
from tests.support.workloads import REFUSALS, Workload, append, appending

if TYPE_CHECKING:
    from tests.support.swarm import Swarm

MEMBER = {"max.poll.interval.ms": "10000", "metadata.max.age.ms": "3000"}
CLASSIC = {"heartbeat.interval.ms": "1000", "session.timeout.ms": "6000"}
MAX_MEMBERS = 3


class Group(Workload):
    """A group whose members read `shared`, and commit the offsets of the records that they have
    read.
    """

    def __init__(self, random: Random, *, classic: bool, static: bool = False) -> None:
        topic = f"shared by {'static' if static else 'classic' if classic else 'consumers'}"
        super().__init__(random, [NewTopic(topic.replace(" ", "-"), 3)])
        self.group = self.topics[0].name
        self._settings = (
            CLASSIC | {"partition.assignment.strategy": random.choice(STRATEGIES)}
            if classic
            else {"group.protocol": "consumer", "group.remote.assignor": random.choice(ASSIGNORS)}
        )
        self._static = static
        self._members: list[str] = []
        self._stops: dict[str, asyncio.Event] = {}
        self._instances: dict[str, str] = {}
        """Each client's name in the history: its instance id if it is static."""
        self._named = 0

    def begin(self, swarm: Swarm) -> None:
        wanted = frozenset(tuple(partition) for partition in self.partitions)
        swarm.note(Wanted(swarm.now_s, self.group, wanted))
        self._writing = [swarm.run(self.write, "p")]
        swarm.run(self.ask, "a")
        swarm.run(self.churn, "c")

    async def write(self, swarm: Swarm, name: str) -> None:
        number = 0
        async with appending(swarm, {}) as producer:
            while not swarm.is_over.is_set():
                number += 1
                target = swarm.random.choice(self.partitions)
                await append(swarm, producer, name, target, f"{name}:{number}")
                await asyncio.sleep(swarm.random.expovariate(2))
            await producer.flush()

    async def churn(self, swarm: Swarm, _: str) -> None:
        """Let members join and leave until it is calm."""
        random = swarm.random
        for _number in range(2):
            self._join(swarm, None)
        while not swarm.is_calm.is_set():
            await asyncio.sleep(random.expovariate(0.2))
            if swarm.is_calm.is_set():
                return
            name = random.choice(self._members)
            match random.randrange(3):
                case 0 if len(self._members) < MAX_MEMBERS:
                    self._join(swarm, None)
                case 1 if len(self._members) > 1:
                    self._members.remove(name)
                    self._stops[name].set()
                case 2:
                    self._members.remove(name)
                    swarm.kill(name)
                    swarm.note(Gone(swarm.now_s, self.group, self._known_as(name)))
                    self._join(swarm, name if self._static else None)

    def _known_as(self, client: str) -> str:
        return self._instances.get(client, client)

    def _join(self, swarm: Swarm, before: str | None) -> None:
        """Start a member; a static one replaces the client `before`."""
        self._named += 1
        if not self._static:
            instance = ""
        elif before is None:
            instance = f"{self.group}-s{self._named}"
        else:
            instance = self._known_as(before).partition("#")[0]
        client = swarm.run(partial(self.be_member, instance), "m")
        self._instances[client] = f"{instance}#{self._named}" if instance else client
        self._members.append(client)
        self._stops[client] = asyncio.Event()

    async def be_member(self, instance: str, swarm: Swarm, client: str) -> None:
        settings = swarm.consumer | MEMBER | self._settings | {"group.id": self.group}
        if instance:
            settings |= {"group.instance.id": instance}
        name, stop = self._known_as(client), self._stops[client]
        async with Consumer(ConsumerConfig.of(settings), random=swarm.new_chance()) as consumer:
            swarm.note(Joined(swarm.now_s, self.group, name))
            consumer.subscribe([self.group], listener=_Watch(self, swarm, name, consumer))
            while not stop.is_set():
                try:
                    await consumer.poll(swarm.random.choice([100, 1000]))
                    if swarm.random.random() < 0.3:
                        await self.commit(swarm, name, consumer)
                except REFUSALS:
                    # A fenced member is refused at once for ever: without a pause no time passes.
                    await asyncio.sleep(0.1)
            swarm.note(Gone(swarm.now_s, self.group, name))

    async def commit(self, swarm: Swarm, name: str, consumer: Consumer) -> None:
        try:
            offsets = {p: await consumer.position(p) for p in consumer.assignment}
        except TimedOut:
            return  # no response has the first offset of a partition
        who, since, result = consumer.group_metadata(), len(swarm.history), Result.UNKNOWN
        try:
            with contextlib.suppress(*REFUSALS):
                await consumer.commit(offsets)
                result = Result.OK
        finally:
            for partition, offset in offsets.items():
                swarm.note(
                    Committed(
                        swarm.now_s,
                        since,
                        self.group,
                        name,
                        who.generation_id,
                        tuple(partition),
                        offset,
                        result,
                    )
                )

    async def ask(self, swarm: Swarm, _: str) -> None:
        """Fetch the committed offsets, as a client that is not a member."""
        settings = swarm.consumer | {"group.id": self.group}
        async with Consumer(ConsumerConfig.of(settings), random=swarm.new_chance()) as consumer:
            while True:
                with contextlib.suppress(*REFUSALS):
                    await self._ask(swarm, consumer)
                await asyncio.sleep(swarm.random.expovariate(1))

    async def _ask(self, swarm: Swarm, consumer: Consumer) -> None:
        since = len(swarm.history)
        found = await consumer.committed(self.partitions)
        for partition, offset in found.items():
            at = -1 if offset is None else offset.offset
            swarm.note(Fetched(swarm.now_s, since, self.group, tuple(partition), at))

    def has_done_since(self, swarm: Swarm, since: int) -> bool:
        return any(self._is_done(event) for event in swarm.history[since:])

    def _is_done(self, event: Event) -> bool:
        return (
            isinstance(event, Committed) and event.result is Result.OK and event.group == self.group
        )

    async def finish(self, swarm: Swarm) -> None:
        """Wait until the group has been undisturbed for long, so that liveness is checked."""
        await asyncio.sleep(LIVENESS_S + 1)
        swarm.note(Disturbed(swarm.now_s, "the end"))
        await super().finish(swarm)


class _Watch(RebalanceListener):
    def __init__(self, group: Group, swarm: Swarm, name: str, consumer: Consumer) -> None:
        self._group, self._swarm, self._name, self._consumer = group, swarm, name, consumer

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self._note(set(self._consumer.assignment))

    async def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        await self._group.commit(self._swarm, self._name, self._consumer)
        self._note(set(self._consumer.assignment) - set(partitions))

    def _note(self, partitions: set[TopicPartition]) -> None:
        generation = self._consumer.group_metadata().generation_id
        if generation >= 0:
            owned = frozenset((topic, number) for topic, number in partitions)
            group = self._group.group
            self._swarm.note(Assigned(self._swarm.now_s, group, self._name, generation, owned))
