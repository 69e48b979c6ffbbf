"""A workload that changes the topics of the others, as an administrator does."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import TYPE_CHECKING

from kcli.client.admin.admin import Admin, NewPartitions, NewTopic
from kcli.client.admin.descriptions import ConfigChange, ConfigOp, ResourceType
from kcli.client.config import AdminConfig
from kserver.model import ElectionType, TopicPartition
from tests.support.history import Disturbed, Done, Targeted
from tests.support.workloads import REFUSALS, Workload

if TYPE_CHECKING:
    from tests.support.swarm import Swarm

MEDDLED = "meddled"
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LISTS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
MAX_MORE_PARTITIONS = 2
"""Limit of the partitions that are added to a topic."""


class Meddles(Workload):
    """Reassigns partitions, moves logs, elects leaders, changes configs and adds partitions."""

    def __init__(self, random: Random) -> None:
        super().__init__(random, [])
        self._is_throttled = False
        """Whether a throttle may be in force."""
        self._more: dict[str, int] = {}
        """The greatest number of partitions that may have been added, by topic."""

    def begin(self, swarm: Swarm) -> None:
        self._writing = [swarm.run(self.meddle, "m")]

    def has_done_since(self, swarm: Swarm, since: int) -> bool:
        return any(isinstance(e, Done) and e.topic == MEDDLED for e in swarm.history[since:])

    async def read_all(self, swarm: Swarm) -> None:
        """Do nothing: the workloads read their own topics."""

    async def meddle(self, swarm: Swarm, _: str) -> None:
        topics = [topic for topic in swarm.topics if not topic.config.get("cleanup.policy")]
        steps: Sequence[Callable[[Swarm, Admin, NewTopic], Awaitable[None]]]
        steps = [
            self._move,
            self._move,
            self._cancel,
            self._throttle,
            self._move_log,
            self._elect,
            self._configure,
            self._grow,
        ]
        config = AdminConfig.of(swarm.bootstrap | {"default.api.timeout.ms": "10000"})
        async with Admin(config, random=swarm.new_chance()) as admin:
            while not swarm.is_over.is_set():
                if swarm.is_calm.is_set() and self._is_throttled:
                    await self._limit(swarm, admin, None)
                with contextlib.suppress(*REFUSALS):
                    if topics:
                        step, topic = swarm.random.choice(steps), swarm.random.choice(topics)
                        await step(swarm, admin, topic)
                    else:
                        await admin.list_topics()
                    swarm.note(Done(swarm.now_s, MEDDLED))
                await asyncio.sleep(swarm.random.expovariate(0.5))

    async def _move(self, swarm: Swarm, admin: Admin, topic: NewTopic) -> None:
        partition = TopicPartition(topic.name, swarm.random.randrange(topic.partitions))
        target = swarm.random.sample(sorted(swarm.cluster.brokers), 3)
        swarm.note(Targeted(swarm.now_s, tuple(partition), tuple(target)))
        await admin.alter_reassignments({partition: target})

    async def _cancel(self, swarm: Swarm, admin: Admin, topic: NewTopic) -> None:
        """Cancel one reassignment in progress, except of topics that a workload moves itself."""
        names = {one.name for one in swarm.topics}
        if moving := sorted(p for p in await admin.list_reassignments() if p.topic in names):
            await admin.alter_reassignments({swarm.random.choice(moving): None})

    async def _throttle(self, swarm: Swarm, admin: Admin, topic: NewTopic) -> None:
        """Set a throttle for added replicas; in-sync replicas are never throttled."""
        if not swarm.is_calm.is_set():
            await self._limit(swarm, admin, swarm.random.choice([None, "100", "2000"]))

    async def _limit(self, swarm: Swarm, admin: Admin, rate: str | None) -> None:
        changes: dict[tuple[ResourceType, str], list[ConfigChange]] = {
            (ResourceType.BROKER, ""): [_change(name, rate) for name in RATES],
            **{
                (ResourceType.TOPIC, topic.name): [_change(name, rate and "*") for name in LISTS]
                for topic in swarm.topics
            },
        }
        self._is_throttled = True
        with contextlib.suppress(*REFUSALS):
            results = await admin.incremental_alter_configs(changes)
            self._is_throttled = rate is not None or any(results.values())

    async def _move_log(self, swarm: Swarm, admin: Admin, topic: NewTopic) -> None:
        """Move a replica to another log directory of a broker."""
        partition = TopicPartition(topic.name, swarm.random.randrange(topic.partitions))
        broker = swarm.random.choice(sorted(swarm.cluster.brokers))
        path = swarm.random.choice(swarm.log_dirs)
        await admin.alter_replica_log_dirs(broker, {partition: path})

    async def _elect(self, swarm: Swarm, admin: Admin, topic: NewTopic) -> None:
        partition = TopicPartition(topic.name, swarm.random.randrange(topic.partitions))
        await admin.elect_leaders(ElectionType.PREFERRED, [partition])

    async def _configure(self, swarm: Swarm, admin: Admin, topic: NewTopic) -> None:
        name, values = swarm.random.choice(
            [
                ("min.insync.replicas", ["1", "2"]),
                ("compression.type", ["lz4", "gzip", "producer"]),
                ("max.message.bytes", ["100000", "1000000"]),
            ]
        )
        change = ConfigChange(name, ConfigOp.SET, swarm.random.choice(values))
        await admin.incremental_alter_configs({(ResourceType.TOPIC, topic.name): [change]})

    async def _grow(self, swarm: Swarm, admin: Admin, topic: NewTopic) -> None:
        """Add partitions; groups that read the topic are assigned them."""
        more = self._more.get(topic.name, 0) + 1
        if more > MAX_MORE_PARTITIONS:
            return
        self._more[topic.name] = more
        swarm.note(Disturbed(swarm.now_s, f"{topic.name} grows"))
        count = topic.partitions + more
        await admin.create_partitions({topic.name: NewPartitions(count)})


def _change(name: str, value: str | None) -> ConfigChange:
    return ConfigChange(name, ConfigOp.DELETE if value is None else ConfigOp.SET, value)
