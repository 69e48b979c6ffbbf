"""Producer, consumer and broker on one loop, with connections and brokers that die."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from kcli.client.admin.admin import Admin, NewTopic
from kcli.client.config import AdminConfig, ConsumerConfig, ProducerConfig
from kcli.client.consumer.consumer import Consumer
from kcli.client.producer.producer import Producer
from kserver.model import TopicPartition
from tests.support.loop import SimLoop, simulate
from tests.support.meddler import ADDRESS, Proxy, Refuser
from tests.support.seeds import seeds
from tests.support.simulated import SimulatedBroker

BOOTSTRAP = {"bootstrap.servers": "broker:9092"}
PARTITIONS = 3
SEEDS = seeds(10)


async def started(loop: SimLoop, **settings: str) -> SimulatedBroker:
    broker = SimulatedBroker(loop, settings)
    await broker.start()
    async with Admin(AdminConfig.of(BOOTSTRAP), random=random(loop)) as admin:
        await admin.create_topics([NewTopic("t", PARTITIONS)])
    return broker


def random(loop: SimLoop) -> Random:
    return Random(loop.random.random())


def producing(loop: SimLoop, broker: SimulatedBroker, settings: dict[str, str]) -> Producer:
    config = ProducerConfig.of(settings)
    return Producer(config, now_ms=broker.clock.now_ms, random=random(loop))


async def read_all(loop: SimLoop, **settings: str) -> dict[int, list[bytes]]:
    """The values of each partition, from its beginning to its end."""
    config = ConsumerConfig.of(BOOTSTRAP | {"auto.offset.reset": "earliest"} | settings)
    partitions = [TopicPartition("t", n) for n in range(PARTITIONS)]
    found: dict[int, list[bytes]] = {n: [] for n in range(PARTITIONS)}
    async with Consumer(config, random=random(loop)) as consumer:
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        while [p for p, end in ends.items() if await consumer.position(p) < end]:
            for record in await consumer.poll(1000):
                found[record.partition].append(record.value)
                assert record.offset == len(found[record.partition]) - 1
    return found


async def trouble(loop: SimLoop, broker: SimulatedBroker, until: asyncio.Event) -> None:
    """Resets, cuts, restarts after a kill or a stop, and jumps of the clock, until told."""
    network = loop.network
    while not until.is_set():
        await asyncio.sleep(loop.random.expovariate(4))
        match loop.random.randrange(5):
            case 0 | 1:
                network.reset("client", "broker")
            case 2:
                network.cut("client", "broker")
                await asyncio.sleep(loop.random.expovariate(2))
                network.heal("client", "broker")
            case 3:
                await (broker.kill() if loop.random.random() < 0.5 else broker.stop())
                await asyncio.sleep(loop.random.expovariate(2))
                await broker.start()
            case 4:
                broker.clock.jump(loop.random)


async def idempotent(loop: SimLoop) -> str:
    broker = await started(loop)
    settings = BOOTSTRAP | {
        "batch.size": "200",
        "linger.ms": str(loop.random.choice([0, 5, 50])),
        "request.timeout.ms": "2000",
    }
    sent: dict[int, list[bytes]] = {n: [] for n in range(PARTITIONS)}
    acked: dict[int, dict[int, bytes]] = {n: {} for n in range(PARTITIONS)}
    calm = asyncio.Event()
    breaking = loop.create_task(trouble(loop, broker, calm))
    async with producing(loop, broker, settings) as producer:
        outcomes = []
        for n in range(400):
            value = b"%d" % n
            partition = loop.random.randrange(PARTITIONS)
            sent[partition].append(value)
            outcomes.append((value, await producer.send("t", value, partition=partition)))
            await asyncio.sleep(loop.random.expovariate(100))
        calm.set()
        await breaking
        for value, outcome in outcomes:
            metadata = await outcome
            if metadata.offset >= 0:
                acked[metadata.partition][metadata.offset] = value
    found = await read_all(loop)
    assert found == sent
    for partition, by_offset in acked.items():
        for offset, value in by_offset.items():
            assert found[partition][offset] == value
    await broker.stop()
    assert not broker.bugs
    return loop.trace.digest


@pytest.mark.parametrize("seed", SEEDS)
def test_each_record_is_delivered_once_and_in_order_whatever_breaks(seed):
    simulate(idempotent, seed)


async def refused(loop: SimLoop) -> None:
    """Batches are refused, some of them although they were appended, and answers are lost."""
    refuser = Refuser(loop.random)
    await Proxy(loop, ("broker", 9092), refuser).start()
    broker = await started(loop, **{"advertised.listeners": f"PLAINTEXT://{ADDRESS}"})
    refuser.share = loop.random.choice([0.05, 0.2, 0.5])
    settings = {
        "bootstrap.servers": ADDRESS,
        "batch.size": "200",
        "linger.ms": str(loop.random.choice([0, 5])),
        "retry.backoff.ms": str(loop.random.choice([0, 10, 100])),
        "request.timeout.ms": "2000",
    }
    sent: dict[int, list[bytes]] = {n: [] for n in range(PARTITIONS)}
    async with producing(loop, broker, settings) as producer:
        outcomes = []
        for n in range(400):
            partition = loop.random.randrange(PARTITIONS)
            sent[partition].append(b"%d" % n)
            outcomes.append(await producer.send("t", b"%d" % n, partition=partition))
            await asyncio.sleep(loop.random.expovariate(200))
            if loop.random.random() < 0.01:
                loop.network.reset("client", "middle")
        refuser.share = 0.0
        told = await asyncio.gather(*outcomes)
    assert refuser.refused > 5
    found = await read_all(loop)
    assert found == sent
    for value, outcome in enumerate(told):
        if outcome.offset >= 0:
            assert found[outcome.partition][outcome.offset] == b"%d" % value
    await broker.stop()


@pytest.mark.parametrize("seed", SEEDS)
def test_each_record_is_delivered_once_and_in_order_whatever_is_refused(seed):
    simulate(refused, seed)


async def reading(loop: SimLoop) -> None:
    """The consumer reads while the producer sends and all breaks."""
    broker = await started(loop)
    calm = asyncio.Event()
    total = 300
    found: dict[int, list[bytes]] = {n: [] for n in range(PARTITIONS)}
    sent: dict[int, list[bytes]] = {n: [] for n in range(PARTITIONS)}

    async def read() -> None:
        settings = BOOTSTRAP | {
            "auto.offset.reset": "earliest",
            "request.timeout.ms": "2000",
            "max.partition.fetch.bytes": "300",
        }
        async with Consumer(ConsumerConfig.of(settings), random=random(loop)) as consumer:
            consumer.assign([TopicPartition("t", n) for n in range(PARTITIONS)])
            while sum(map(len, found.values())) < total:
                for record in await consumer.poll(500, max_records=loop.random.randrange(1, 50)):
                    found[record.partition].append(record.value)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(read())
        breaking = tasks.create_task(trouble(loop, broker, calm))
        settings = BOOTSTRAP | {"batch.size": "200", "request.timeout.ms": "2000"}
        async with producing(loop, broker, settings) as producer:
            for n in range(total):
                partition = loop.random.randrange(PARTITIONS)
                sent[partition].append(b"%d" % n)
                await producer.send("t", b"%d" % n, partition=partition)
                await asyncio.sleep(loop.random.expovariate(50))
            calm.set()
            await breaking
    assert found == sent
    await broker.stop()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_reader_sees_each_record_once_and_in_order_whatever_breaks(seed):
    simulate(reading, seed)


def test_one_seed_gives_one_trace():
    assert simulate(idempotent, 1) == simulate(idempotent, 1)
