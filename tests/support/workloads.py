"""Workloads of clients on a simulated cluster: each has topics of its own, and records what it saw.

begin        its clients run, each on a machine of its own, until `swarm.is_over`
finish       waits until none of its operations is under way
read_all     a last reader reads to the end
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from kcli.client.admin.admin import NewTopic
from kcli.client.config import ConsumerConfig, ProducerConfig
from kcli.client.consumer.consumer import Consumer
from kcli.client.errors import ClientError
from kcli.client.producer.producer import Producer
from kserver.errors import KafkaError
from kserver.model import TopicPartition
from tests.support.exactly_once import look, read
from tests.support.history import Event, Polled, Result, Seated, Sent, Told
from tests.support.scene import partitions_of

if TYPE_CHECKING:
    from tests.support.swarm import Swarm

REFUSALS = (ClientError, KafkaError)


class Workload:
    """A workload; `random` draws its variant."""

    def __init__(self, random: Random, topics: Sequence[NewTopic]) -> None:
        self.topics = topics
        self._writing: list[str] = []
        """The clients that end by themselves once the run is over."""

    @property
    def partitions(self) -> list[TopicPartition]:
        return [p for topic in self.topics for p in partitions_of(topic.name, topic.partitions)]

    def begin(self, swarm: Swarm) -> None:
        raise NotImplementedError

    def has_done_since(self, swarm: Swarm, since: int) -> bool:
        """Return whether it made progress after that many events."""
        names = {topic.name for topic in self.topics}
        return any(_is_done(event, names) for event in swarm.history[since:])

    async def finish(self, swarm: Swarm) -> None:
        for name in self._writing:
            await swarm.clients[name]

    async def read_all(self, swarm: Swarm) -> None:
        await read(swarm, f"last of {self.topics[0].name}", self.partitions)
        await look(swarm, self.partitions)

    def judge(self, swarm: Swarm) -> None:
        """Check guarantees besides those of every history; raises AssertionError."""


def _is_done(event: Event, topics: set[str]) -> bool:
    return isinstance(event, Sent) and event.result is Result.OK and event.partition[0] in topics


class Appends(Workload):
    """A producer with acks=all or acks=1, readers that start again now and then, and a client that
    requests end offsets.
    """

    def __init__(self, random: Random, *, idempotent: bool, by_leader_alone: bool = False) -> None:
        name = "led" if by_leader_alone else "appended" if idempotent else "repeated"
        super().__init__(random, [NewTopic(name, 2)])
        self._name = name
        self._idempotent = idempotent
        self._by_leader_alone = by_leader_alone
        self._settings = {
            "linger.ms": str(random.choice([0, 5])),
            "acks": "1" if by_leader_alone else "all",
        }
        if not idempotent:
            # A retry comes after records that were sent later, unless one waits for the other.
            self._settings |= {
                "enable.idempotence": "false",
                "max.in.flight.requests.per.connection": "1",
            }

    def begin(self, swarm: Swarm) -> None:
        self._writing = [swarm.run(self.write, "p")]
        swarm.run(partial(keep_reading, self.partitions), "r")
        swarm.run(partial(ask_for_ends, self.partitions), "e")

    async def write(self, swarm: Swarm, name: str) -> None:
        number = 0
        async with appending(swarm, self._settings) as producer:
            while not swarm.is_over.is_set():
                number += 1
                target = swarm.random.choice(self.partitions)
                value = f"{name}:{number}"
                await append(
                    swarm,
                    producer,
                    name,
                    target,
                    value,
                    may_repeat=not self._idempotent,
                    by_leader_alone=self._by_leader_alone,
                )
                await asyncio.sleep(swarm.random.expovariate(5))
            await producer.flush()

    async def read_all(self, swarm: Swarm) -> None:
        if self._by_leader_alone:
            # Records that only the leader has are not to be read yet.
            await swarm.cluster.until_in_sync(self._name, 2)
        await super().read_all(swarm)


def appending(swarm: Swarm, settings: Mapping[str, str]) -> Producer:
    """Return a producer that never gives up."""
    config = ProducerConfig.of(
        {
            **swarm.producer,
            "acks": "all",
            "delivery.timeout.ms": "600000",
            "max.block.ms": "600000",
            **settings,
        }
    )
    return Producer(config, now_ms=swarm.now_ms, random=swarm.new_chance())


async def append(
    swarm: Swarm,
    producer: Producer,
    who: str,
    target: TopicPartition,
    value: str,
    *,
    key: str | None = None,
    timestamp: int | None = None,
    may_repeat: bool = False,
    by_leader_alone: bool = False,
) -> None:
    """Send a record, and record the outcome in the history when it is known."""
    since, number = len(swarm.history), swarm.next_number()

    def done(outcome: asyncio.Future[Any]) -> None:
        failed = outcome.cancelled() or outcome.exception() is not None
        swarm.note(
            Sent(
                swarm.now_s,
                since,
                who,
                None,
                (target.topic, target.partition),
                value,
                -1 if failed else outcome.result().offset,
                Result.UNKNOWN if failed else Result.OK,
                number,
                may_repeat,
                by_leader_alone,
            )
        )

    outcome = await producer.send(
        target.topic,
        value.encode(),
        None if key is None else key.encode(),
        partition=target.partition,
        timestamp=timestamp,
    )
    outcome.add_done_callback(done)


async def keep_reading(
    partitions: Sequence[TopicPartition], swarm: Swarm, name: str, isolation: str = "read_committed"
) -> None:
    """Read, and start again now and then, from the beginning or from the last position."""
    last: dict[TopicPartition, int] = {}
    life = 0
    while True:
        life += 1
        whole = swarm.random.random() < 0.2
        seats = {p: 0 if whole else max(0, last.get(p, 0) - 10) for p in partitions}
        until_s = swarm.now_s + swarm.random.uniform(2, 12)
        # A former leader that does not know the new one has no offset of the new one's.
        given = {"isolation.level": isolation, "auto.offset.reset": "none"}
        config = ConsumerConfig.of(swarm.consumer | given)
        with contextlib.suppress(*REFUSALS):
            async with Consumer(config, random=swarm.new_chance()) as consumer:
                await _read_from(seats, last, until_s, swarm, f"{name}.{life}", consumer)
        await asyncio.sleep(0.2)


async def _read_from(
    seats: Mapping[TopicPartition, int],
    last: dict[TopicPartition, int],
    until_s: float,
    swarm: Swarm,
    who: str,
    consumer: Consumer,
) -> None:
    consumer.assign(seats)
    for partition, offset in seats.items():
        swarm.note(Seated(swarm.now_s, who, tuple(partition), offset))
        await consumer.seek(partition, offset)
    poll = 0
    while swarm.now_s < until_s:
        poll += 1
        for record in await consumer.poll(300):
            where = TopicPartition(record.topic, record.partition)
            last[where] = record.offset + 1
            value = record.value.decode()
            swarm.note(Polled(swarm.now_s, who, tuple(where), record.offset, value, poll))


async def ask_for_ends(partitions: Sequence[TopicPartition], swarm: Swarm, name: str) -> None:
    """Request the end offsets of committed records again and again."""
    config = ConsumerConfig.of({**swarm.consumer, "isolation.level": "read_uncommitted"})
    async with Consumer(config, random=swarm.new_chance()) as consumer:
        while True:
            since = len(swarm.history)
            with contextlib.suppress(*REFUSALS):
                ends = await consumer.end_offsets(partitions)
                for (topic, number), end in ends.items():
                    swarm.note(Told(swarm.now_s, since, name, (topic, number), end))
            await asyncio.sleep(swarm.random.expovariate(2))
