"""The transactional producer and a broker on one loop, with connections and brokers that die: what
was committed is read, whole, once and in order, and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from kcli.client.admin.admin import Admin
from kcli.client.admin.features import FeatureUpdate, UpgradeType
from kcli.client.config import ConsumerConfig, ProducerConfig
from kcli.client.consumer.consumer import Consumer
from kcli.client.errors import TimedOut, TransactionFailed
from kcli.client.producer.producer import Producer
from kserver.model import TopicPartition
from tests.simulation.test_client import BOOTSTRAP, PARTITIONS, random, started, trouble
from tests.support.loop import SimLoop, simulate
from tests.support.meddler import ADDRESS, Proxy, Refuser
from tests.support.simulated import SimulatedBroker

SEEDS = range(5)
TRANSACTIONS = 12
LEVELS = (0, 1, 2)
SMALL = {"transaction.state.log.num.partitions": "2"}


async def set_level(loop: SimLoop, level: int) -> None:
    """Of transaction.version."""
    async with Admin(BOOTSTRAP, random=random(loop)) as admin:
        kind = UpgradeType.UPGRADE if level == 2 else UpgradeType.UNSAFE_DOWNGRADE
        update = {"transaction.version": FeatureUpdate(level, kind)}
        if (await admin.features.describe()).finalized.get("transaction.version", 0) != level:
            assert await admin.features.update(update) == {"transaction.version": None}


def producing(loop: SimLoop, broker: SimulatedBroker, **settings: str) -> Producer:
    given = BOOTSTRAP | {
        "transactional.id": "x",
        "batch.size": "200",
        "linger.ms": str(loop.random.choice([0, 5])),
        "request.timeout.ms": "2000",
        "max.block.ms": "5000",
    }
    config = ProducerConfig.of(given | settings)
    return Producer(config, now_ms=broker.clock.now_ms, random=random(loop))


async def insist(call) -> None:
    """A call that timed out goes on: the same once more waits for it."""
    while True:
        with contextlib.suppress(TimedOut):
            return await call()


async def transact(
    loop: SimLoop, producer: Producer, number: int
) -> list[tuple[int, bytes]] | None:
    """The records of one transaction, None when it was aborted."""
    records = [
        (loop.random.randrange(PARTITIONS), b"%d-%d" % (number, n))
        for n in range(loop.random.randrange(1, 12))
    ]
    await producer.begin_transaction()
    try:
        for partition, value in records:
            await producer.send("t", value, partition=partition)
            await asyncio.sleep(loop.random.expovariate(200))
        if loop.random.random() < 0.2:
            await insist(producer.abort_transaction)
            return None
        await insist(producer.commit_transaction)
    except (TransactionFailed, TimedOut) as error:
        if isinstance(error, TransactionFailed) and not error.abortable:
            raise
        await insist(producer.abort_transaction)
        return None
    return records


async def read_committed(loop: SimLoop) -> dict[int, list[bytes]]:
    given = {"auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    partitions = [TopicPartition("t", n) for n in range(PARTITIONS)]
    found: dict[int, list[bytes]] = {n: [] for n in range(PARTITIONS)}
    async with (
        Consumer(ConsumerConfig.of(BOOTSTRAP | given), random=random(loop)) as consumer,
        Consumer(ConsumerConfig.of(BOOTSTRAP), random=random(loop)) as all_of,
    ):
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        assert ends == await all_of.end_offsets(partitions), "something is left open"
        while [p for p, end in ends.items() if await consumer.position(p) < end]:
            for record in await consumer.poll(1000):
                found[record.partition].append(record.value)
    return found


async def whole(loop: SimLoop, level: int) -> str:
    broker = await started(loop, **SMALL)
    await set_level(loop, level)
    expected: dict[int, list[bytes]] = {n: [] for n in range(PARTITIONS)}
    aborted = 0
    calm = asyncio.Event()
    breaking = loop.create_task(trouble(loop, broker, calm))
    async with producing(loop, broker) as producer:
        await insist(producer.init_transactions)
        for number in range(TRANSACTIONS):
            records = await transact(loop, producer, number)
            aborted += records is None
            for partition, value in records or ():
                expected[partition].append(value)
        calm.set()
        await breaking
    assert aborted < TRANSACTIONS
    assert await read_committed(loop) == expected
    await broker.stop()
    assert not broker.bugs
    return loop.trace.digest


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_committed_is_read_and_nothing_else_whatever_breaks(seed, level):
    simulate(lambda loop: whole(loop, level), seed)


async def refused(loop: SimLoop, level: int) -> None:
    """Batches are refused, some although they were appended, and answers are lost."""
    refuser = Refuser(loop.random)
    await Proxy(loop, ("broker", 9092), refuser).start()
    broker = await started(loop, **SMALL, **{"advertised.listeners": f"PLAINTEXT://{ADDRESS}"})
    await set_level(loop, level)
    expected: dict[int, list[bytes]] = {n: [] for n in range(PARTITIONS)}
    async with producing(loop, broker, **{"bootstrap.servers": ADDRESS}) as producer:
        await producer.init_transactions()
        for number in range(4 * TRANSACTIONS):
            refuser.share = loop.random.choice([0.0, 0.05, 0.3])
            for partition, value in await transact(loop, producer, number) or ():
                expected[partition].append(value)
            if loop.random.random() < 0.05:
                loop.network.reset("client", "middle")
    assert refuser.refused > 5
    assert await read_committed(loop) == expected
    await broker.stop()
    assert not broker.bugs


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_committed_is_read_and_nothing_else_whatever_is_refused(seed, level):
    simulate(lambda loop: refused(loop, level), seed)


async def replaced(loop: SimLoop, level: int) -> None:
    """Producers under one id, of which some die: each begins where the last was cut off."""
    broker = await started(loop, **SMALL)
    await set_level(loop, level)
    expected: dict[int, list[bytes]] = {n: [] for n in range(PARTITIONS)}
    calm = asyncio.Event()
    breaking = loop.create_task(trouble(loop, broker, calm))
    zombies = []
    for life in range(5):
        producer = producing(loop, broker)
        await producer.start()
        await insist(producer.init_transactions)
        for number in range(loop.random.randrange(4)):
            for partition, value in await transact(loop, producer, 100 * life + number) or ():
                expected[partition].append(value)
        await producer.begin_transaction()
        await producer.send("t", b"of a zombie", partition=loop.random.randrange(PARTITIONS))
        if loop.random.random() < 0.5:
            await producer.flush()
        zombies.append(producer)
    calm.set()
    await breaking
    for zombie in zombies[:-1]:
        with pytest.raises(TransactionFailed):
            await insist(zombie.commit_transaction)
    await insist(zombies[-1].abort_transaction)
    for zombie in zombies:
        await zombie.close()
    assert await read_committed(loop) == expected
    await broker.stop()
    assert not broker.bugs


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("seed", SEEDS)
def test_who_was_replaced_commits_nothing_whatever_breaks(seed, level):
    simulate(lambda loop: replaced(loop, level), seed)


async def undecided(loop: SimLoop, commit: bool) -> None:
    broker = await started(loop, **SMALL)
    partition = TopicPartition("t", 0)
    grouped = ConsumerConfig.of(BOOTSTRAP | {"group.id": "g"})
    async with (
        producing(loop, broker) as producer,
        Consumer(grouped, random=random(loop)) as consumer,
    ):
        await producer.init_transactions()
        for offset in (5, 7):
            await producer.begin_transaction()
            await producer.send_offsets_to_transaction({partition: offset}, "g")
            looking = loop.create_task(consumer.committed([partition]))
            await asyncio.sleep(5)
            assert not looking.done()
            if commit or offset == 5:
                await producer.commit_transaction()
            else:
                await producer.abort_transaction()
            found = (await looking)[partition]
            assert found is not None
            assert found.offset == (offset if commit else 5)
    await broker.stop()


@pytest.mark.parametrize("commit", [True, False])
def test_an_offset_is_told_once_its_transaction_is_decided(commit):
    simulate(lambda loop: undecided(loop, commit), 1)


def test_one_seed_gives_one_trace():
    assert simulate(lambda loop: whole(loop, 2), 1) == simulate(lambda loop: whole(loop, 2), 1)
