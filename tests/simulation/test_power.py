"""Machines lose their power, one at a time: what was acknowledged is on the others."""

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
from tests.support.simulated_cluster import SETTINGS, SimulatedCluster

SESSION_S = int(SETTINGS["zookeeper.session.timeout.ms"]) / 1000
RECORDS = 120
PARTITION = TopicPartition("t", 0)
FOUND = {
    1005: "a leader whose process was gone seemed to live, and was left in sync alone",
}


async def power_lost(loop: SimLoop) -> str:
    cluster = SimulatedCluster(loop, 3, {"min.insync.replicas": 2})
    await cluster.start()
    async with Admin(AdminConfig.of(cluster.bootstrap), random=loop.random) as admin:
        await admin.create_topics([NewTopic("t", 1, 3)])
    await cluster.until_in_sync("t", 1)
    calm = asyncio.Event()

    async def trouble() -> None:
        while not calm.is_set():
            await asyncio.sleep(loop.random.expovariate(1))
            leader = cluster.leader("t", 0)
            ids = sorted(cluster.up)
            gone = leader.leader_id if leader and loop.random.random() < 0.6 else ids[0]
            await cluster.cut_power(gone, loop.random.choice([0.0, None]))
            started = {gone}
            if loop.random.random() < 0.3:
                # The processes of the others die as well, and their machines stay up; maybe for so
                # long that no session is left, and the one that lacks records is the first back.
                started |= cluster.up
                for other in sorted(cluster.up):
                    await cluster.kill(other)
                if loop.random.random() < 0.5:
                    await asyncio.sleep(2 * SESSION_S)
                    await cluster.start(gone)
                    await asyncio.sleep(loop.random.expovariate(1))
                    started -= {gone}
            if loop.random.random() < 0.5:
                # It is back before its session has ended, and before anybody else is elected.
                await asyncio.sleep(loop.random.expovariate(100))
            else:
                await asyncio.sleep(loop.random.expovariate(0.5))
            await cluster.start(*sorted(started))
            await cluster.until_in_sync("t", 1)

    breaking = loop.create_task(trouble())
    settings = cluster.bootstrap | {
        "acks": "all",
        "linger.ms": "0",
        "request.timeout.ms": "2000",
        "delivery.timeout.ms": "600000",
    }
    config, clock = ProducerConfig.of(settings), cluster.brokers[1].clock
    sent = []
    async with Producer(config, now_ms=clock.now_ms, random=loop.random) as producer:
        outcomes = []
        for n in range(RECORDS):
            sent.append(b"%d" % n)
            outcomes.append(await producer.send("t", sent[-1], partition=0))
            await asyncio.sleep(loop.random.expovariate(20))
        calm.set()
        await breaking
        for outcome in outcomes:
            await outcome
    found: list[bytes] = []
    config_in = ConsumerConfig.of(cluster.bootstrap | {"auto.offset.reset": "earliest"})
    async with Consumer(config_in, random=loop.random) as consumer:
        consumer.assign([PARTITION])
        end = (await consumer.end_offsets([PARTITION]))[PARTITION]
        while await consumer.position(PARTITION) < end:
            found += [record.value for record in await consumer.poll(1000)]
    assert found == sent
    cluster.check()
    return loop.trace.digest


@pytest.mark.parametrize("seed", [*seeds(12), *FOUND])
def test_one_machine_s_power_takes_nothing_that_was_acknowledged(seed: int) -> None:
    simulate(power_lost, seed)
