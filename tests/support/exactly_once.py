"""Consume, transform, produce on a simulated broker: the clients of it, and what they saw.

    Transformer   reads `in` as a member of a group and writes to `out`, in transactions
    Transferer    moves amounts between accounts: each transaction writes -n and +n
    Reader        reads committed records, again and again from the beginning

A value is "<what must be there once>#<its transaction>", a transfer's "<id>:<amount>#...".
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from functools import partial
from random import Random
from typing import Any

from kcli.client.config import ConsumerConfig, ProducerConfig
from kcli.client.consumer import Consumer, ConsumerRecord
from kcli.client.errors import ClientError, TimedOut, TransactionFailed
from kcli.client.listener import RebalanceListener
from kcli.client.producer import Producer
from kserver.errors import KafkaError
from kserver.model import TopicPartition
from tests.support.history import (
    Assigned,
    AtEnd,
    Committed,
    Ended,
    Event,
    Looked,
    Polled,
    Result,
    Seated,
    Sent,
    Started,
)
from tests.support.loop import SimLoop, host
from tests.support.simulated import SimulatedBroker

BOOTSTRAP = {"bootstrap.servers": "broker:9092"}
GROUP, INPUT, OUTPUT = "g", "in", "out"
CONSUMER = BOOTSTRAP | {
    "auto.offset.reset": "earliest",
    "isolation.level": "read_committed",
    "enable.auto.commit": "false",
    "request.timeout.ms": "3000",
    "default.api.timeout.ms": "5000",
}
PRODUCER = BOOTSTRAP | {
    "batch.size": "200",
    "request.timeout.ms": "2000",
    "max.block.ms": "5000",
    "delivery.timeout.ms": "60000",
    "transaction.timeout.ms": "8000",
}


class Scene:
    """The broker, and the history of all that its clients saw."""

    def __init__(self, loop: SimLoop, broker: SimulatedBroker, outputs: int) -> None:
        self.loop = loop
        self.broker = broker
        self.outputs = outputs
        self.history: list[Event] = []
        self.clients: dict[str, asyncio.Task[None]] = {}
        self.killed: dict[str, asyncio.Task[None]] = {}
        self.replaced: set[str] = set()
        """Names of those that are to end once they learn that another took over."""
        self._names = 0

    @property
    def random(self) -> Random:
        return self.loop.random

    def new_chance(self) -> Random:
        return Random(self.random.random())

    def note(self, event: Event) -> None:
        self.history.append(event)
        self.loop.trace.add(event)

    def run(self, client: Any, name: str) -> str:
        """On a machine of its own; its name."""
        self._names += 1
        name = f"{name}{self._names}"
        with host(name):
            self.clients[name] = self.loop.create_task(client(self, name))
        return name

    def kill(self, name: str) -> None:
        """Nobody hears of it any more, whatever it still does."""
        self.loop.network.cut(name, "broker")
        self.killed[name] = self.clients.pop(name)
        self.killed[name].cancel()

    async def stop(self) -> None:
        for name in self.killed:
            self.loop.network.heal(name, "broker")
        for task in self.clients.values():
            task.cancel()
        await asyncio.wait([*self.clients.values(), *self.killed.values()])


class Transaction:
    """One transaction of a producer, entered into the history as it goes."""

    def __init__(self, scene: Scene, producer: Producer, who: str, number: int) -> None:
        self.name = f"{who}/{number}"
        self._scene = scene
        self._producer = producer
        self._who = who
        self._offsets: list[tuple[int, tuple[str, int], int, int]] = []

    async def send(self, partition: int, value: str) -> None:
        since = len(self._scene.history)
        value = f"{value}#{self.name}"
        outcome = await self._producer.send(OUTPUT, value.encode(), partition=partition)
        outcome.add_done_callback(partial(self._sent, since, partition, value))

    def _sent(self, since: int, partition: int, value: str, outcome: Any) -> None:
        failed = outcome.cancelled() or outcome.exception() is not None
        offset = -1 if failed else outcome.result().offset
        self._scene.note(
            Sent(
                self._scene.loop.time(),
                since,
                self._who,
                self.name,
                (OUTPUT, partition),
                value,
                offset,
                Result.UNKNOWN if offset < 0 else Result.OK,
            )
        )

    async def send_offsets(self, offsets: Mapping[TopicPartition, int], group: Any) -> None:
        since, result = len(self._scene.history), Result.UNKNOWN
        try:
            await self._producer.send_offsets_to_transaction(offsets, group)
            result = Result.OK
        finally:
            for (topic, index), offset in offsets.items():
                self._scene.note(
                    Committed(
                        self._scene.loop.time(),
                        since,
                        GROUP,
                        self._who,
                        group.generation_id,
                        (topic, index),
                        offset,
                        result,
                        self.name,
                    )
                )

    async def commit(self) -> None:
        await self._end(self._producer.commit_transaction, commit=True)

    async def abort(self) -> None:
        await self._end(self._producer.abort_transaction, commit=False)

    async def _end(self, call: Any, *, commit: bool) -> None:
        since, result = len(self._scene.history), Result.UNKNOWN
        try:
            await insist(call)
            result = Result.OK
        finally:
            now_s = self._scene.loop.time()
            self._scene.note(Ended(now_s, since, self._who, self.name, commit, result))


async def insist(call: Any) -> None:
    """A call that timed out goes on: the same once more waits for it."""
    while True:
        with contextlib.suppress(TimedOut):
            return await call()


def producing(scene: Scene, transactional_id: str) -> Producer:
    config = ProducerConfig.of(
        PRODUCER
        | {"transactional.id": transactional_id, "linger.ms": str(scene.random.choice([0, 5]))}
    )
    return Producer(config, now_ms=scene.broker.clock.now_ms, random=scene.new_chance())


async def begun(scene: Scene, producer: Producer, transactional_id: str, who: str) -> None:
    since = len(scene.history)
    await insist(producer.init_transactions)
    named = producer._transaction_manager()._identity()
    identity = (named["producer_id"], named["producer_epoch"])
    scene.note(Started(scene.loop.time(), since, transactional_id, who, identity))


class Watch(RebalanceListener):
    def __init__(self, scene: Scene, who: str, consumer: Consumer) -> None:
        self._scene = scene
        self._who = who
        self._consumer = consumer

    def on_assigned(self, _: Sequence[TopicPartition]) -> None:
        self._note()

    def on_revoked(self, _: Sequence[TopicPartition]) -> None:
        self._note()

    def _note(self) -> None:
        generation = self._consumer.group_metadata().generation_id
        owned = frozenset((topic, index) for topic, index in self._consumer.assignment)
        if generation >= 0:
            now_s = self._scene.loop.time()
            self._scene.note(Assigned(now_s, GROUP, self._who, generation, owned))


class Transformer:
    def __init__(self, transactional_id: str, settings: Mapping[str, str]) -> None:
        self._transactional_id = transactional_id
        self._settings = settings

    async def __call__(self, scene: Scene, name: str) -> None:
        """Begins anew, as a program that is started again, whenever it cannot go on."""
        life = 0
        while name not in scene.replaced:
            life += 1
            with contextlib.suppress(ClientError, KafkaError):
                await self._live(scene, f"{name}.{life}")
            await asyncio.sleep(0.2)

    async def _live(self, scene: Scene, who: str) -> None:
        config = ConsumerConfig.of(CONSUMER | {"group.id": GROUP} | self._settings)
        async with (
            Consumer(config, random=scene.new_chance()) as consumer,
            producing(scene, self._transactional_id) as producer,
        ):
            await begun(scene, producer, self._transactional_id, who)
            consumer.subscribe([INPUT], listener=Watch(scene, who, consumer))
            number = 0
            while True:
                records = await consumer.poll(500, max_records=scene.random.randint(1, 8))
                if records:
                    number += 1
                    transaction = Transaction(scene, producer, who, number)
                    await self._transform(scene, transaction, producer, consumer, records)

    async def _transform(
        self,
        scene: Scene,
        transaction: Transaction,
        producer: Producer,
        consumer: Consumer,
        records: Sequence[ConsumerRecord],
    ) -> None:
        first: dict[TopicPartition, int] = {}
        offsets: dict[TopicPartition, int] = {}
        for record in records:
            partition = TopicPartition(record.topic, record.partition)
            first.setdefault(partition, record.offset)
            offsets[partition] = record.offset + 1
        try:
            await producer.begin_transaction()
            for record in records:
                target = scene.random.randrange(scene.outputs)
                await transaction.send(target, record.value.decode())
                await asyncio.sleep(scene.random.expovariate(500))
            await transaction.send_offsets(offsets, consumer.group_metadata())
            if scene.random.random() < 0.8:
                await transaction.commit()
                return
        except (TransactionFailed, TimedOut) as error:
            if isinstance(error, TransactionFailed) and not error.abortable:
                raise
        await transaction.abort()
        for partition, offset in first.items():
            if partition in consumer.assignment:
                await consumer.seek(partition, offset)


class Transferer:
    """Moves money: what is taken from one account is given to another, or neither."""

    def __init__(self, transactional_id: str, transfers: int) -> None:
        self._transactional_id = transactional_id
        self._left = transfers

    async def __call__(self, scene: Scene, name: str) -> None:
        life = 0
        while self._left:
            life += 1
            with contextlib.suppress(ClientError, KafkaError):
                await self._live(scene, f"{name}.{life}")
            await asyncio.sleep(0.2)

    async def _live(self, scene: Scene, who: str) -> None:
        async with producing(scene, self._transactional_id) as producer:
            await begun(scene, producer, self._transactional_id, who)
            for number in range(1, self._left + 1):
                await self._transfer(scene, producer, Transaction(scene, producer, who, number))
                self._left -= 1
                await asyncio.sleep(scene.random.expovariate(6))

    async def _transfer(self, scene: Scene, producer: Producer, transaction: Transaction) -> None:
        random = scene.random
        await producer.begin_transaction()
        try:
            for number in range(random.randint(1, 3)):
                amount, (taken, given) = (
                    random.randint(1, 99),
                    random.sample(range(scene.outputs), 2),
                )
                what = f"{transaction.name}.{number}"
                await transaction.send(taken, f"{what}:-{amount}")
                await asyncio.sleep(random.expovariate(500))
                await transaction.send(given, f"{what}:{amount}")
            if random.random() < 0.8:
                await transaction.commit()
                return
        except (TransactionFailed, TimedOut) as error:
            if isinstance(error, TransactionFailed) and not error.abortable:
                raise
        await transaction.abort()


class Reader:
    """Of all outputs; each time that it begins anew it is another reader."""

    async def __call__(self, scene: Scene, name: str) -> None:
        life = 0
        while True:
            life += 1
            with contextlib.suppress(ClientError, KafkaError):
                await read(scene, f"{name}.{life}", scene.loop.time() + scene.random.uniform(1, 9))
            await asyncio.sleep(0.2)


async def read(scene: Scene, who: str, until_s: float | None = None) -> None:
    """From the beginning, to a time or to the end."""
    partitions = [TopicPartition(OUTPUT, n) for n in range(scene.outputs)]
    config = ConsumerConfig.of(CONSUMER)
    async with Consumer(config, random=scene.new_chance()) as consumer:
        consumer.assign(partitions)
        for partition in partitions:
            scene.note(Seated(scene.loop.time(), who, tuple(partition), 0))
        ends = await consumer.end_offsets(partitions) if until_s is None else {}
        while (
            scene.loop.time() < until_s
            if until_s is not None
            else [p for p, end in ends.items() if await consumer.position(p) < end]
        ):
            for record in await consumer.poll(200):
                where = (record.topic, record.partition)
                value = record.value.decode()
                scene.note(Polled(scene.loop.time(), who, where, record.offset, value))
        for partition, end in ends.items():
            scene.note(AtEnd(scene.loop.time(), who, tuple(partition), end))


async def look(scene: Scene) -> None:
    """Whether anything is left open."""
    partitions = [TopicPartition(OUTPUT, n) for n in range(scene.outputs)]
    async with (
        Consumer(ConsumerConfig.of(CONSUMER), random=scene.new_chance()) as stable,
        Consumer(ConsumerConfig.of(BOOTSTRAP), random=scene.new_chance()) as whole,
    ):
        last_stable = await stable.end_offsets(partitions)
        ends = await whole.end_offsets(partitions)
    for one in partitions:
        scene.note(Looked(scene.loop.time(), tuple(one), last_stable[one], ends[one]))
