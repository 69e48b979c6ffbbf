"""Workloads of transactions: consume-transform-produce, money transfers, and readers that write."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from kcli.client.admin.admin import NewTopic
from kcli.client.config import ConsumerConfig
from kcli.client.consumer.consumer import Consumer
from kcli.client.errors import TimedOut, TransactionFailed
from kcli.client.producer.producer import Producer
from kserver.model import TopicPartition
from tests.support.exactly_once import (
    OPEN_S,
    PROTOCOLS,
    Transaction,
    Transferer,
    Transformer,
    begun,
    producing,
)
from tests.support.history import Ended, Event, Polled, Result, Seated
from tests.support.scene import partitions_of
from tests.support.workloads import (
    REFUSALS,
    Workload,
    append,
    appending,
    ask_for_ends,
    keep_reading,
)

if TYPE_CHECKING:
    from tests.support.swarm import Swarm

NEVER_DONE = 1_000_000


class _Transactions(Workload):
    """At the end, its clients are killed, and their open transactions are ended."""

    def has_done_since(self, swarm: Swarm, since: int) -> bool:
        return any(self._is_done(swarm, event) for event in swarm.history[since:])

    def _is_done(self, swarm: Swarm, event: Event) -> bool:
        return (
            isinstance(event, Ended)
            and event.result is Result.OK
            and event.producer.partition(".")[0] in self._writing
        )

    async def finish(self, swarm: Swarm) -> None:
        for name in self._writing:
            swarm.kill(name)

    async def read_all(self, swarm: Swarm) -> None:
        await asyncio.sleep(OPEN_S)
        await super().read_all(swarm)


class Transforms(_Transactions):
    """Members of a group read `read`, and write to `written` in transactions that contain the
    offsets, under transactional ids that outlive them.
    """

    def __init__(self, random: Random) -> None:
        super().__init__(random, [NewTopic("written", 2), NewTopic("read", 2)])
        self._settings = random.choice(PROTOCOLS)

    def begin(self, swarm: Swarm) -> None:
        self._source = swarm.run(self.write, "p")
        self._writing = [self._work(swarm, number) for number in range(2)]
        swarm.run(self.replace, "c")
        swarm.run(partial(keep_reading, partitions_of("written", 2)), "r")

    def _work(self, swarm: Swarm, number: int) -> str:
        outputs = partitions_of("written", 2)
        worker = Transformer(f"x{number}", self._settings, "read", outputs, "transforms")
        return swarm.run(worker, "w")

    async def replace(self, swarm: Swarm, _: str) -> None:
        """Replace a client. One that was cut off goes on after the cut, while another has its
        place.
        """
        random = swarm.random
        while not swarm.is_calm.is_set():
            await asyncio.sleep(random.expovariate(0.2))
            number = random.randrange(2)
            before = self._writing[number]
            swarm.replaced.add(before)
            swarm.cut(before)
            await asyncio.sleep(random.expovariate(1))
            self._writing[number] = self._work(swarm, number)
            await asyncio.sleep(random.expovariate(0.5))
            swarm.heal(before)

    async def write(self, swarm: Swarm, name: str) -> None:
        number = 0
        async with appending(swarm, {}) as producer:
            while not swarm.is_over.is_set():
                number += 1
                target = swarm.random.choice(partitions_of("read", 2))
                await append(swarm, producer, name, target, f"{name}:{number}")
                await asyncio.sleep(swarm.random.expovariate(3))
            await producer.flush()

    async def finish(self, swarm: Swarm) -> None:
        await swarm.clients[self._source]
        await super().finish(swarm)


class Money(_Transactions):
    """Clients take an amount from one account and give it to another, or neither: the sum is 0."""

    def __init__(self, random: Random) -> None:
        super().__init__(random, [NewTopic("money", 3)])

    def begin(self, swarm: Swarm) -> None:
        for number in range(2):
            teller = Transferer(f"teller{number}", NEVER_DONE, self.partitions)
            self._writing.append(swarm.run(teller, "t"))
        swarm.run(partial(keep_reading, self.partitions), "r")
        swarm.run(partial(ask_for_ends, self.partitions), "e")

    def judge(self, swarm: Swarm) -> None:
        sums: dict[str, int] = {}
        for event in swarm.history:
            if isinstance(event, Polled) and event.reader == "last of money":
                transfer, _, amount = event.value.partition("#")[0].partition(":")
                sums[transfer] = sums.get(transfer, 0) + int(amount)
        assert not any(sums.values()), sums


class Mixed(_Transactions):
    """Each transaction reads records that others wrote to the topic to which it writes."""

    def __init__(self, random: Random) -> None:
        super().__init__(random, [NewTopic("mixed", 2)])

    def begin(self, swarm: Swarm) -> None:
        for number in range(2):
            self._writing.append(swarm.run(partial(self.work, f"m{number}"), "m"))

    async def work(self, transactional_id: str, swarm: Swarm, name: str) -> None:
        life = 0
        while True:
            life += 1
            with contextlib.suppress(*REFUSALS):
                await self._live(swarm, transactional_id, f"{name}.{life}")
            await asyncio.sleep(0.2)

    async def _live(self, swarm: Swarm, transactional_id: str, who: str) -> None:
        config = ConsumerConfig.of(swarm.consumer)
        async with (
            Consumer(config, random=swarm.new_chance()) as consumer,
            producing(swarm, transactional_id) as producer,
        ):
            await begun(swarm, producer, transactional_id, who)
            consumer.assign(self.partitions)
            for partition in self.partitions:
                swarm.note(Seated(swarm.now_s, who, tuple(partition), 0))
            number = 0
            while True:
                number += 1
                transaction = Transaction(swarm, producer, who, number)
                await self._one(swarm, transaction, producer, consumer, who, number)
                await asyncio.sleep(swarm.random.expovariate(4))

    async def _one(
        self,
        swarm: Swarm,
        transaction: Transaction,
        producer: Producer,
        consumer: Consumer,
        who: str,
        number: int,
    ) -> None:
        await producer.begin_transaction()
        try:
            for part in range(2):
                target: TopicPartition = swarm.random.choice(self.partitions)
                await transaction.send(target, f"{transaction.name}.{part}")
                await self._read(swarm, consumer, who, 2 * number + part, transaction.name)
            if swarm.random.random() < 0.8:
                await transaction.commit()
                return
        except (TransactionFailed, TimedOut) as error:
            if isinstance(error, TransactionFailed) and not error.abortable:
                raise
        await transaction.abort()

    async def _read(
        self, swarm: Swarm, consumer: Consumer, who: str, poll: int, transaction: str
    ) -> None:
        for record in await consumer.poll(100):
            where = (record.topic, record.partition)
            value = record.value.decode()
            swarm.note(Polled(swarm.now_s, who, where, record.offset, value, poll, transaction))
