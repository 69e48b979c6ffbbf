"""A workload of topics that are created, grown, reassigned, deleted and recreated while records
flow.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING
from uuid import UUID

from kcli.client.admin.admin import Admin, NewPartitions, NewTopic
from kcli.client.admin.descriptions import ConfigChange, ConfigOp, ResourceType, TopicDescription
from kcli.client.config import AdminConfig, ConsumerConfig, ProducerConfig
from kcli.client.consumer.consumer import Consumer
from kcli.client.producer.producer import Producer
from kserver.errors import ErrorCode, KafkaError
from kserver.model import ElectionType, TopicPartition
from tests.support.history import Done
from tests.support.scene import partitions_of
from tests.support.workloads import REFUSALS, Workload

if TYPE_CHECKING:
    from tests.support.swarm import Swarm

TOPICS = 3
CHURNED = "churned"
MAX_PARTITIONS = 5
TELLING_S = 5.0
"""Longer than the controller takes to propagate a decision to all brokers."""
RETENTION = "retention.ms"
SENT_ONCE_S = 1.0
"""Clients wait longer for a response before they ask another broker."""


@dataclass
class Known:
    """An existing topic, and the last responses about it; `partitions`, `retention` and `replicas`
    are None once a response was missing.
    """

    id: UUID
    partitions: int | None
    retention: str | None = "604800000"
    replicas: dict[int, Sequence[int] | None] = field(default_factory=dict)
    """Replicas of partitions that were reassigned."""
    written: dict[tuple[int, int], str] = field(default_factory=dict)
    """Acknowledged values, by partition and offset."""

    def inherit(self, former: Known) -> None:
        """Forget what a request about a former topic of this name may change: if it got no
        response, a broker that was cut off may carry it out when the cut heals.
        """
        self.partitions = None if former.partitions is None else self.partitions
        self.retention = None if former.retention is None else self.retention
        self.replicas |= {p: None for p, replicas in former.replicas.items() if replicas is None}


class Churns(Workload):
    """One client makes all changes, so it knows the expected state. A topic whose existence is
    unknown, because a response was missing, is not used any more, and another takes its place.
    """

    def __init__(self, random: Random) -> None:
        super().__init__(random, [])
        self._known: dict[str, Known | None] = dict.fromkeys(
            f"{CHURNED}-{n}" for n in range(TOPICS)
        )
        """The topics by name; None for one that does not exist."""
        self._named = TOPICS
        self._last: dict[str, Known] = {}
        """The last topic of each name that was deleted."""
        self._gone: set[UUID] = set()
        self._former: set[str] = set()
        """Values that were written to deleted topics."""

    def begin(self, swarm: Swarm) -> None:
        self._writing = [swarm.run(self.churn, "c")]
        swarm.run(self.list, "l")

    async def list(self, swarm: Swarm, _: str) -> None:
        """List the topics, by any broker."""
        config = AdminConfig.of(swarm.bootstrap | {"request.timeout.ms": "1000"})
        async with Admin(config, random=swarm.new_chance()) as admin:
            while True:
                with contextlib.suppress(*REFUSALS):
                    await admin.list_topics()
                    swarm.note(Done(swarm.now_s, "any"))
                await asyncio.sleep(swarm.random.expovariate(5))

    def has_done_since(self, swarm: Swarm, since: int) -> bool:
        return any(isinstance(e, Done) and e.topic == CHURNED for e in swarm.history[since:])

    async def churn(self, swarm: Swarm, name: str) -> None:
        config = AdminConfig.of(swarm.bootstrap | {"default.api.timeout.ms": "10000"})
        async with Admin(config, random=swarm.new_chance()) as admin:
            number = 0
            while not swarm.is_over.is_set():
                number += 1
                topic = swarm.random.choice(list(self._known))
                with contextlib.suppress(*REFUSALS):
                    await self._step(swarm, admin, topic, f"{name}:{number}")
                    swarm.note(Done(swarm.now_s, CHURNED))
                await asyncio.sleep(swarm.random.expovariate(3))

    async def _step(self, swarm: Swarm, admin: Admin, topic: str, value: str) -> None:
        known = self._known[topic]
        if known is None:
            await self._create(swarm, admin, topic)
            return
        steps: list[Callable[[Swarm, Admin, str, Known], Awaitable[None]]]
        steps = [self._grow, self._configure, self._elect, self._move, self._delete]
        if swarm.random.random() < 0.5:
            await self._write(swarm, topic, known, value)
        else:
            await swarm.random.choice(steps)(swarm, admin, topic, known)

    async def _create(self, swarm: Swarm, admin: Admin, topic: str) -> None:
        partitions = swarm.random.randint(1, 3)
        with self._left_alone_unless_answered(topic):
            made = (await admin.create_topics([NewTopic(topic, partitions, 3)]))[topic]
            if isinstance(made, KafkaError):
                raise made
        assert made.id is not None
        assert made.id not in self._gone, f"{topic} is back"
        self._known[topic] = known = Known(made.id, partitions)
        if topic in self._last:
            known.inherit(self._last[topic])

    async def _delete(self, swarm: Swarm, admin: Admin, topic: str, known: Known) -> None:
        with self._left_alone_unless_answered(topic):
            refused = (await admin.delete_topics([topic]))[topic]
            if refused is not None:
                raise refused
        self._gone.add(known.id)
        self._last[topic] = known
        self._former |= set(known.written.values())
        self._known[topic] = None

    @contextlib.contextmanager
    def _left_alone_unless_answered(self, topic: str) -> Iterator[None]:
        try:
            yield
        except REFUSALS:
            del self._known[topic]
            self._known[f"{CHURNED}-{self._named}"] = None
            self._named += 1
            raise

    async def _grow(self, swarm: Swarm, admin: Admin, topic: str, known: Known) -> None:
        if known.partitions is None or known.partitions == MAX_PARTITIONS:
            return
        count, known.partitions = known.partitions + 1, None
        refused = (await admin.create_partitions({topic: NewPartitions(count)}))[topic]
        if refused is None:
            known.partitions = count

    async def _configure(self, swarm: Swarm, admin: Admin, topic: str, known: Known) -> None:
        if known.retention is None:
            return
        value, known.retention = str(swarm.random.randint(1, 9) * 100_000_000), None
        resource = (ResourceType.TOPIC, topic)
        change = ConfigChange(RETENTION, ConfigOp.SET, value)
        began_s = swarm.now_s
        refused = (await admin.incremental_alter_configs({resource: [change]}))[resource]
        # A request that was sent again, to another broker, may be carried out by the first one too,
        # after later ones.
        if refused is None and swarm.now_s - began_s < SENT_ONCE_S:
            known.retention = value

    async def _elect(self, swarm: Swarm, admin: Admin, topic: str, known: Known) -> None:
        await admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(topic, 0)])

    async def _move(self, swarm: Swarm, admin: Admin, topic: str, known: Known) -> None:
        if known.replicas.get(0, ()) is None:
            return
        wanted = swarm.random.sample(sorted(swarm.cluster.brokers), 3)
        known.replicas[0] = None
        where = TopicPartition(topic, 0)
        if (await admin.alter_reassignments({where: wanted}))[where] is None:
            known.replicas[0] = wanted

    async def _write(self, swarm: Swarm, topic: str, known: Known, value: str) -> None:
        config = ProducerConfig.of(
            {**swarm.producer, "acks": "all", "delivery.timeout.ms": "5000", "linger.ms": "0"}
        )
        async with Producer(config, now_ms=swarm.now_ms, random=swarm.new_chance()) as producer:
            outcome = await producer.send(topic, value.encode(), partition=0)
            told = await outcome
            known.written[0, told.offset] = value

    async def read_all(self, swarm: Swarm) -> None:
        """Check that all successful changes are in effect, once every broker has been notified."""
        await asyncio.sleep(TELLING_S)
        config = AdminConfig.of(swarm.bootstrap)
        async with Admin(config, random=swarm.new_chance()) as admin:
            for topic, known in self._known.items():
                if known is None:
                    found = (await admin.describe_topics([topic]))[topic]
                    assert isinstance(found, KafkaError), f"{found} was deleted"
                    assert found.code is ErrorCode.unknown_topic_or_partition
                else:
                    await self._read(swarm, admin, topic, known)

    async def _read(self, swarm: Swarm, admin: Admin, topic: str, known: Known) -> None:
        while await admin.list_reassignments():
            await asyncio.sleep(0.5)
        found = (await admin.describe_topics([topic]))[topic]
        assert isinstance(found, TopicDescription), f"{topic}: {found}"
        assert found.id == known.id, f"{topic} is another: {found.id}, not {known.id}"
        if known.partitions is not None:
            assert len(found.partitions) == known.partitions, f"{topic}: {found}"
        for number, replicas in known.replicas.items():
            there = found.partitions[number].replicas
            assert replicas is None or list(there) == list(replicas), f"{topic}: {found}"
        resource = (ResourceType.TOPIC, topic)
        entries = (await admin.describe_configs([resource], [RETENTION]))[resource]
        assert not isinstance(entries, KafkaError)
        assert known.retention in (None, entries[0].value), f"{topic}: {entries}"
        records = await self._records(swarm, partitions_of(topic, len(found.partitions)))
        for where, value in known.written.items():
            assert records.get(where) == value, f"{topic} has {records.get(where)} for {value}"
        both = self._former.intersection(records.values())
        assert not both, f"{topic} has {both} of one that was deleted"

    async def _records(
        self, swarm: Swarm, partitions: Sequence[TopicPartition]
    ) -> dict[tuple[int, int], str]:
        records: dict[tuple[int, int], str] = {}
        config = ConsumerConfig.of(swarm.consumer)
        async with Consumer(config, random=swarm.new_chance()) as consumer:
            consumer.assign(partitions)
            ends = await consumer.end_offsets(partitions)
            while any([await consumer.position(p) < end for p, end in ends.items()]):
                for record in await consumer.poll(200):
                    records[record.partition, record.offset] = record.value.decode()
        return records
