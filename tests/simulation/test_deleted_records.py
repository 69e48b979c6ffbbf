"""DeleteRecords may leave a log that starts within a batch: replicas follow such a leader too."""

from __future__ import annotations

import asyncio

import pytest

from kcli.client.admin.admin import Admin, NewTopic
from kcli.client.config import AdminConfig, ConsumerConfig, ProducerConfig
from kcli.client.consumer.consumer import Consumer
from kcli.client.producer.producer import Producer
from kserver.model import TopicPartition
from tests.support.loop import SimLoop, simulate
from tests.support.seeds import seeds
from tests.support.simulated_cluster import SimulatedCluster

T0 = TopicPartition("t", 0)
START = 3
"""Log start offset; one batch has the records up to 4."""
PATIENCE_S = 60.0


def admin(loop: SimLoop, cluster: SimulatedCluster) -> Admin:
    return Admin(AdminConfig.of(cluster.bootstrap), random=loop.random)


async def started(loop: SimLoop, *replicas: int) -> SimulatedCluster:
    cluster = SimulatedCluster(loop, 3)
    await cluster.start()
    async with admin(loop, cluster) as client:
        await client.create_topics([NewTopic("t", assignments={0: replicas})])
    await cluster.until_in_sync("t", 1)
    return cluster


async def write_and_delete(loop: SimLoop, cluster: SimulatedCluster) -> None:
    """Write one batch of five records, and delete the first three."""
    settings = cluster.bootstrap | {"linger.ms": "100"}
    now_ms = cluster.brokers[1].clock.now_ms
    async with Producer(ProducerConfig.of(settings), now_ms=now_ms, random=loop.random) as producer:
        sent = [await producer.send("t", b"%d" % number, partition=0) for number in range(5)]
        assert [(await outcome).offset for outcome in sent] == [0, 1, 2, 3, 4]
    async with admin(loop, cluster) as client:
        assert await client.delete_records({T0: START}) == {T0: START}


async def has_the_rest(loop: SimLoop, cluster: SimulatedCluster, id_: int) -> None:
    """The replica has the records that are left, and no others once it leads."""
    async with asyncio.timeout(PATIENCE_S):
        await cluster.until_all_in_sync()
    cluster.check()
    log = cluster.replicas("t", 0)[id_].log
    assert (log.log_start_offset, log.log_end_offset) == (START, 5)
    await cluster.kill(1)
    config = ConsumerConfig.of(cluster.bootstrap | {"auto.offset.reset": "earliest"})
    async with asyncio.timeout(PATIENCE_S), Consumer(config, random=loop.random) as consumer:
        consumer.assign([T0])
        offsets: list[int] = []
        while len(offsets) < 2:
            offsets += [record.offset for record in await consumer.poll(1000)]
    assert offsets == [3, 4]
    assert cluster.replicas("t", 0)[id_].is_leader


async def a_new_replica(loop: SimLoop) -> None:
    cluster = await started(loop, 1)
    await write_and_delete(loop, cluster)
    async with admin(loop, cluster) as client, asyncio.timeout(PATIENCE_S):
        await client.alter_reassignments({T0: [1, 3]})
        while await client.list_reassignments():
            await asyncio.sleep(0.1)
    await has_the_rest(loop, cluster, 3)


async def a_follower_that_was_away(loop: SimLoop) -> None:
    cluster = await started(loop, 1, 2)
    await cluster.kill(2)
    await write_and_delete(loop, cluster)
    await cluster.start(2)
    await has_the_rest(loop, cluster, 2)


async def a_replica_without_power(loop: SimLoop) -> None:
    """Its power is cut several times while it begins."""
    cluster = await started(loop, 1, 2)
    await cluster.kill(2)
    await write_and_delete(loop, cluster)
    for _ in range(5):
        await cluster.start(2)
        await asyncio.sleep(loop.random.expovariate(10))
        await cluster.cut_power(2)
    await cluster.start(2)
    await has_the_rest(loop, cluster, 2)


@pytest.mark.parametrize("seed", seeds(3))
@pytest.mark.parametrize(
    "scenario", [a_new_replica, a_follower_that_was_away, a_replica_without_power]
)
def test_a_replica_begins_within_a_batch(scenario, seed: int) -> None:
    simulate(scenario, seed)
