"""Brokers that replicate, on one loop: what is acknowledged stays, whoever dies when."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from kcli.client.admin.admin import Admin, NewTopic
from kcli.client.config import AdminConfig, ConsumerConfig, ProducerConfig
from kcli.client.consumer.consumer import Consumer
from kcli.client.producer.producer import Producer
from kserver.model import TopicPartition
from kserver.replica.partition import Partition
from tests.support.loop import SimLoop, simulate
from tests.support.seeds import seeds
from tests.support.simulated_cluster import PATIENCE_S, SimulatedCluster

PARTITIONS = 2
SEEDS = seeds(6)
FOUND = {
    122: "a consumer took an answer of the leader before for what it had asked the next one",
    5434: "a new leader told the end of what it knew to be committed, and that was behind",
    557571231: "a produce was answered twice: its answer let in the next, of the same key",
}


def random(loop: SimLoop) -> Random:
    return Random(loop.random.random())


async def started(loop: SimLoop, **settings: object) -> SimulatedCluster:
    cluster = SimulatedCluster(loop, 3, settings)
    await cluster.start()
    async with Admin(AdminConfig.of(cluster.bootstrap), random=random(loop)) as admin:
        await admin.create_topics([NewTopic("t", PARTITIONS, 3)])
    await cluster.until_in_sync("t", PARTITIONS)
    return cluster


async def read_all(loop: SimLoop, cluster: SimulatedCluster) -> dict[int, list[bytes]]:
    config = ConsumerConfig.of(cluster.bootstrap | {"auto.offset.reset": "earliest"})
    partitions = [TopicPartition("t", n) for n in range(PARTITIONS)]
    found: dict[int, list[bytes]] = {n: [] for n in range(PARTITIONS)}
    async with Consumer(config, random=random(loop)) as consumer:
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        async with asyncio.timeout(PATIENCE_S):
            while [p for p, end in ends.items() if await consumer.position(p) < end]:
                for record in await consumer.poll(1000):
                    found[record.partition].append(record.value)
    return found


async def trouble(loop: SimLoop, cluster: SimulatedCluster, until: asyncio.Event) -> None:
    """Brokers are killed, stopped and brought back, cut off each other, lose their sessions."""
    network = loop.network
    while not until.is_set():
        await asyncio.sleep(loop.random.expovariate(1))
        cluster.check()
        one, other = loop.random.sample(sorted(cluster.brokers), 2)
        match loop.random.randrange(5):
            case 0 | 1:
                await (cluster.kill(one) if loop.random.random() < 0.7 else cluster.stop(one))
                await asyncio.sleep(loop.random.expovariate(0.3))
                await cluster.start(one)
            case 2:
                network.cut(f"b{one}", f"b{other}")
                await asyncio.sleep(loop.random.expovariate(0.3))
                network.heal(f"b{one}", f"b{other}")
            case 3:
                cluster.expire(one)
            case 4:
                network.reset("client", f"b{one}")


async def kept(loop: SimLoop) -> str:
    cluster = await started(loop, **{"min.insync.replicas": loop.random.choice([1, 2])})
    settings = cluster.bootstrap | {
        "acks": "all",
        "linger.ms": str(loop.random.choice([0, 5])),
        "request.timeout.ms": "2000",
        "delivery.timeout.ms": "600000",
    }
    sent: dict[int, list[bytes]] = {n: [] for n in range(PARTITIONS)}
    calm = asyncio.Event()
    breaking = loop.create_task(trouble(loop, cluster, calm))
    clock = cluster.brokers[1].clock
    config = ProducerConfig.of(settings)
    async with Producer(config, now_ms=clock.now_ms, random=random(loop)) as producer:
        outcomes = []
        for n in range(300):
            value = b"%d" % n
            partition = loop.random.randrange(PARTITIONS)
            sent[partition].append(value)
            outcomes.append(await producer.send("t", value, partition=partition))
            await asyncio.sleep(loop.random.expovariate(20))
        calm.set()
        async with asyncio.timeout(PATIENCE_S):
            await breaking
            for outcome in outcomes:
                await outcome
    await cluster.until_in_sync("t", PARTITIONS)
    assert await read_all(loop, cluster) == sent
    cluster.check()
    for number in range(PARTITIONS):
        replicas = cluster.replicas("t", number).values()
        for replica in replicas:
            replica.log.check()
        found = {whole(replica) for replica in replicas}
        assert len(found) == 1, f"replicas of t-{number} differ"
    for id_ in sorted(cluster.up):
        await cluster.stop(id_)
    assert not [bug for broker in cluster.brokers.values() for bug in broker.bugs]
    return loop.trace.digest


def whole(replica: Partition) -> bytes:
    """The bytes of its log."""
    return b"".join(s.file.read_at(0, s.size) for s in replica.log.segments)


async def led_again(loop: SimLoop) -> str:
    cluster = await started(loop)
    before = cluster.leader("t", 0)
    assert before is not None
    killed = before.leader_id
    await cluster.kill(killed)
    while (leader := cluster.leader("t", 0)) is None:
        await asyncio.sleep(0.1)
        assert loop.time() < 60
    assert leader.epoch == before.epoch + 1
    assert leader.leader is not None
    assert leader.leader.isr == set(cluster.brokers) - {killed}
    return loop.trace.digest


def test_one_seed_is_one_trace() -> None:
    assert simulate(led_again, 7) == simulate(led_again, 7) != simulate(led_again, 8)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_killed_leader_s_partition_is_led_again(seed: int) -> None:
    simulate(led_again, seed)


@pytest.mark.parametrize("seed", [*SEEDS, *FOUND])
def test_nothing_acknowledged_is_lost_doubled_or_moved(seed: int) -> None:
    simulate(kept, seed)
