"""Consume-transform-produce on simulated brokers: the clients, and the history that they record.

    Transformer   reads `in` as a member of a group and writes to `out`, in transactions
    Transferer    moves amounts between accounts: each transaction writes -n and +n
    Reader        reads committed records, again and again from the beginning

    transform     the records of `in` are there once in `out`, and their offsets committed
    transfer      no reader ever sees that money appeared or vanished

A value is "<text that must be there once>#<its transaction>", a transfer's "<id>:<amount>#...".
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from kcli.client.admin.admin import Admin
from kcli.client.config import AdminConfig, ConsumerConfig, ProducerConfig
from kcli.client.consumer.consumer import Consumer, ConsumerRecord
from kcli.client.consumer.listener import RebalanceListener
from kcli.client.errors import ClientError, TimedOut, TransactionFailed
from kcli.client.producer.producer import Producer
from kserver.errors import KafkaError
from kserver.model import TopicPartition
from tests.support.checks import verify
from tests.support.history import (
    Assigned,
    AtEnd,
    Committed,
    Ended,
    Fetched,
    Looked,
    Polled,
    Result,
    Seated,
    Sent,
    Started,
)
from tests.support.scene import Scene, insist, partitions_of

GROUP, INPUT, OUTPUT = "g", "in", "out"
CLASSIC = {"heartbeat.interval.ms": "500", "session.timeout.ms": "4000"}
PROTOCOLS = [
    CLASSIC,
    CLASSIC | {"partition.assignment.strategy": "cooperative-sticky"},
    {"group.protocol": "consumer"},
]
OPEN_S = 15
"""Seconds longer than the transaction timeout, and than the detection of expired transactions."""
INPUTS, RECORDS = 2, 30
LIMIT_S = 300


class Transaction:
    """One transaction of a producer, whose operations are recorded in the history."""

    def __init__(
        self, scene: Scene, producer: Producer, who: str, number: int, group: str = GROUP
    ) -> None:
        self.name = f"{who}/{number}"
        self._group = group
        self._scene = scene
        self._producer = producer
        self._who = who
        self._offsets: list[tuple[int, tuple[str, int], int, int]] = []

    async def send(self, target: TopicPartition, value: str) -> None:
        since, number = len(self._scene.history), self._scene.next_number()
        value = f"{value}#{self.name}"
        topic, partition = target
        outcome = await self._producer.send(topic, value.encode(), partition=partition)
        outcome.add_done_callback(partial(self._sent, since, target, value, number))

    def _sent(
        self, since: int, target: TopicPartition, value: str, number: int, outcome: Any
    ) -> None:
        failed = outcome.cancelled() or outcome.exception() is not None
        offset = -1 if failed else outcome.result().offset
        self._scene.note(
            Sent(
                self._scene.loop.time(),
                since,
                self._who,
                self.name,
                (target.topic, target.partition),
                value,
                offset,
                Result.UNKNOWN if offset < 0 else Result.OK,
                number,
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
                        self._group,
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


def producing(scene: Scene, transactional_id: str) -> Producer:
    config = ProducerConfig.of(
        scene.producer
        | {"transactional.id": transactional_id, "linger.ms": str(scene.random.choice([0, 5]))}
    )
    return Producer(config, now_ms=scene.now_ms, random=scene.new_chance())


async def begun(scene: Scene, producer: Producer, transactional_id: str, who: str) -> None:
    since = len(scene.history)
    await insist(producer.init_transactions)
    named = producer._transaction_manager()._identity()
    identity = (named["producer_id"], named["producer_epoch"])
    scene.note(Started(scene.loop.time(), since, transactional_id, who, identity))


class Watch(RebalanceListener):
    def __init__(self, scene: Scene, who: str, consumer: Consumer, group: str = GROUP) -> None:
        self._scene = scene
        self._group = group
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
            self._scene.note(Assigned(now_s, self._group, self._who, generation, owned))


class Transformer:
    def __init__(
        self,
        transactional_id: str,
        settings: Mapping[str, str],
        source: str,
        outputs: Sequence[TopicPartition],
        group: str = GROUP,
    ) -> None:
        self._transactional_id = transactional_id
        self._settings = settings
        self._source = source
        self._outputs = outputs
        self._group = group

    async def __call__(self, scene: Scene, name: str) -> None:
        """A client that starts again from scratch, as a restarted program does, whenever it cannot
        go on.
        """
        life = 0
        while name not in scene.replaced:
            life += 1
            with contextlib.suppress(ClientError, KafkaError):
                await self._live(scene, f"{name}.{life}")
            await asyncio.sleep(0.2)

    async def _live(self, scene: Scene, who: str) -> None:
        config = ConsumerConfig.of(
            scene.consumer | {"group.id": self._group} | dict(self._settings)
        )
        async with (
            Consumer(config, random=scene.new_chance()) as consumer,
            producing(scene, self._transactional_id) as producer,
        ):
            await begun(scene, producer, self._transactional_id, who)
            consumer.subscribe([self._source], listener=Watch(scene, who, consumer, self._group))
            number = 0
            while True:
                records = await consumer.poll(500, max_records=scene.random.randint(1, 8))
                if records:
                    number += 1
                    transaction = Transaction(scene, producer, who, number, self._group)
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
                target = scene.random.choice(self._outputs)
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
    """A client that moves money: each amount is taken from one account and given to another, or
    neither.
    """

    def __init__(
        self, transactional_id: str, transfers: int, accounts: Sequence[TopicPartition]
    ) -> None:
        self._transactional_id = transactional_id
        self._accounts = accounts
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
                await asyncio.sleep(scene.random.expovariate(2))

    async def _transfer(self, scene: Scene, producer: Producer, transaction: Transaction) -> None:
        random = scene.random
        await producer.begin_transaction()
        try:
            for number in range(random.randint(1, 3)):
                amount = random.randint(1, 99)
                taken, given = random.sample(self._accounts, 2)
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
    """A reader that is a new one each time that it starts again."""

    def __init__(self, partitions: Sequence[TopicPartition]) -> None:
        self._partitions = partitions

    async def __call__(self, scene: Scene, name: str) -> None:
        life = 0
        while True:
            life += 1
            with contextlib.suppress(ClientError, KafkaError):
                until_s = scene.now_s + scene.random.uniform(1, 9)
                await read(scene, f"{name}.{life}", self._partitions, until_s)
            await asyncio.sleep(0.2)


async def read(
    scene: Scene, who: str, partitions: Sequence[TopicPartition], until_s: float | None = None
) -> None:
    """Read from the beginning, until a time or to the end."""
    config = ConsumerConfig.of(scene.consumer)
    poll = 0
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
            poll += 1
            for record in await consumer.poll(200):
                where = (record.topic, record.partition)
                value = record.value.decode()
                scene.note(Polled(scene.now_s, who, where, record.offset, value, poll))
        for partition, end in ends.items():
            scene.note(AtEnd(scene.loop.time(), who, tuple(partition), end))


async def look(scene: Scene, partitions: Sequence[TopicPartition]) -> None:
    """Record the last stable offsets and the ends, to find open transactions."""
    async with (
        Consumer(ConsumerConfig.of(scene.consumer), random=scene.new_chance()) as stable,
        Consumer(ConsumerConfig.of(scene.bootstrap), random=scene.new_chance()) as whole,
    ):
        last_stable = await stable.end_offsets(partitions)
        ends = await whole.end_offsets(partitions)
    for one in partitions:
        scene.note(Looked(scene.loop.time(), tuple(one), last_stable[one], ends[one]))


Trouble: TypeAlias = Callable[[Scene, asyncio.Event], Coroutine[Any, Any, None]]
"""Faults of the brokers and their network, until the event is set."""


async def offsets(scene: Scene) -> dict[TopicPartition, int]:
    """Return the group's committed offset of each input partition."""
    since = len(scene.history)
    async with Admin(AdminConfig.of(scene.bootstrap), random=scene.new_chance()) as admin:
        found = await admin.groups.offsets([GROUP])
    committed = {}
    for one in partitions_of(INPUT, INPUTS):
        known = found[GROUP].get(one)
        committed[one] = -1 if known is None else known.offset
        scene.note(Fetched(scene.loop.time(), since, GROUP, tuple(one), committed[one]))
    return committed


async def transform(scene: Scene, trouble: Trouble) -> None:
    loop, random = scene.loop, scene.random
    config = ProducerConfig.of(scene.bootstrap)
    async with Producer(config, now_ms=scene.now_ms, random=scene.new_chance()) as producer:
        for partition, number in itertools.product(range(INPUTS), range(RECORDS)):
            value = f"{partition}:{number}".encode()
            await producer.send(INPUT, value, partition=partition)
        await producer.flush()
    settings = random.choice(PROTOCOLS)

    def work(transactional_id: str) -> str:
        return scene.run(Transformer(transactional_id, settings, INPUT, scene.outputs), "w")

    workers = {f"x{n}": work(f"x{n}") for n in range(2)}
    scene.run(Reader(scene.outputs), "r")
    calm = asyncio.Event()
    breaking = loop.create_task(trouble(scene, calm))
    for _ in range(random.randint(1, 4)):
        await asyncio.sleep(random.expovariate(0.2))
        name = random.choice(list(workers))
        before, silent = workers[name], random.random() < 0.5
        if silent:
            # Once reachable again, it goes on where it was, while another has its place.
            scene.replaced.add(before)
            scene.cut(before)
        else:
            scene.kill(before)
        await asyncio.sleep(random.expovariate(0.5))
        workers[name] = work(name)
        if silent:
            await asyncio.sleep(random.expovariate(0.2))
            scene.heal(before)
    calm.set()
    await breaking
    async with asyncio.timeout(LIMIT_S):
        while set((await offsets(scene)).values()) != {RECORDS}:
            await asyncio.sleep(1)
    await finish(scene)
    found = [e.value.partition("#")[0] for e in scene.history if isinstance(e, Polled)]
    assert set(found) == {f"{p}:{n}" for p in range(INPUTS) for n in range(RECORDS)}


async def transfer(scene: Scene, trouble: Trouble) -> None:
    tellers = [scene.run(Transferer(f"x{n}", 20, scene.outputs), "t") for n in range(2)]
    scene.run(Reader(scene.outputs), "r")
    calm = asyncio.Event()
    breaking = scene.loop.create_task(trouble(scene, calm))
    async with asyncio.timeout(LIMIT_S):
        await asyncio.wait([scene.clients[name] for name in tellers])
    calm.set()
    await breaking
    await finish(scene)
    by_transfer: dict[str, int] = {}
    for event in scene.history:
        if isinstance(event, Polled) and event.reader == "last":
            transfer_id, _, amount = event.value.partition("#")[0].partition(":")
            by_transfer[transfer_id] = by_transfer.get(transfer_id, 0) + int(amount)
    assert by_transfer
    assert not any(by_transfer.values()), by_transfer


async def finish(scene: Scene) -> None:
    """Wait until no transaction is open, and verify the history."""
    await scene.stop()
    await asyncio.sleep(OPEN_S)
    await read(scene, "last", scene.outputs)
    await look(scene, scene.outputs)
    verify(scene.history)
