"""Clients of a broker whose answers are spoilt: errors of their own kinds, and then they go on."""

from __future__ import annotations

import asyncio
import contextlib
from random import Random
from uuid import UUID

import pytest

from kcli.client.admin.admin import Admin, NewPartitions, NewTopic, ResourceType
from kcli.client.config import AdminConfig, ConsumerConfig, ProducerConfig
from kcli.client.consumer.consumer import Consumer
from kcli.client.errors import ClientError
from kcli.client.producer.producer import Producer
from kcli.client.topic_metadata import MAX_LAG_S
from kserver.errors import ConfigError, KafkaError, ProtocolError
from kserver.model import TopicPartition
from tests.support.hostile import Known
from tests.support.loop import SimLoop, simulate
from tests.support.meddler import ADDRESS, Proxy, Spoiler
from tests.support.simulated import SimulatedBroker

SEEDS = range(4)
BOOTSTRAP = {
    "bootstrap.servers": ADDRESS,
    "request.timeout.ms": "500",
    "metadata.max.age.ms": "1000",
    "socket.connection.setup.timeout.ms": "500",
}
T0 = TopicPartition("t", 0)
EXPECTED = (ClientError, KafkaError, ProtocolError, OSError, ConfigError)


def told() -> contextlib.suppress:
    """Anything else that is raised is a bug."""
    return contextlib.suppress(*EXPECTED)


async def produce(producer: Producer, calm: asyncio.Event) -> None:
    n = 0
    while not calm.is_set():
        n += 1
        with told():
            await (await producer.send("t", b"%d" % n))
        await asyncio.sleep(0.01)


async def consume(consumer: Consumer, calm: asyncio.Event) -> None:
    while not calm.is_set():
        try:
            await consumer.poll(200)
            await consumer.end_offsets([T0])
            await consumer.position(T0)
        except EXPECTED:
            await consumer.seek_to_beginning()
            await asyncio.sleep(0.01)


async def administer(admin: Admin, calm: asyncio.Event) -> None:
    while not calm.is_set():
        for call in (
            admin.list_topics(),
            admin.describe_topics(["t", "u"]),
            admin.describe_topics_by_id([UUID(int=1)]),
            admin.create_topics([NewTopic("u", 2)]),
            admin.create_partitions({"u": NewPartitions(3)}),
            admin.delete_topics(["u"]),
            admin.describe_configs([(ResourceType.TOPIC, "t"), (ResourceType.BROKER, "0")]),
            admin.list_offsets({T0: -1}),
            admin.describe_cluster(),
            admin.nodes(),
            admin.list_reassignments(),
        ):
            with told():
                await call
            await asyncio.sleep(0.02)


async def delivered(producer: Producer, broker: SimulatedBroker, value: bytes) -> int:
    """Its offset; a producer that was refused an identity for good stays refused, others go on."""
    with contextlib.suppress(KafkaError):
        return (await (await producer.send("t", value))).offset
    config = ProducerConfig.of({"bootstrap.servers": ADDRESS})
    now_ms = broker.clock.now_ms
    async with Producer(config, now_ms=now_ms, random=Random(1)) as another:
        return (await (await another.send("t", value))).offset


async def meddled(loop: SimLoop) -> None:
    broker = SimulatedBroker(loop, {"advertised.listeners": f"PLAINTEXT://{ADDRESS}"})
    await broker.start()
    meddler = Spoiler(loop.random, Known(["t", "u"], [UUID(int=1)]))
    await Proxy(loop, ("broker", 9092), meddler).start()

    def random() -> Random:
        return Random(loop.random.random())

    async with (
        Admin(AdminConfig.of(BOOTSTRAP | {"default.api.timeout.ms": "1000"}), random=random()) as a,
        Producer(
            ProducerConfig.of(BOOTSTRAP | {"delivery.timeout.ms": "1000", "max.block.ms": "1000"}),
            now_ms=broker.clock.now_ms,
            random=random(),
        ) as producer,
        Consumer(
            ConsumerConfig.of(
                BOOTSTRAP | {"auto.offset.reset": "earliest", "default.api.timeout.ms": "1000"}
            ),
            random=random(),
        ) as consumer,
    ):
        await a.create_topics([NewTopic("t", 1)])
        consumer.assign([T0])
        meddler.share = loop.random.choice([0.05, 0.3, 0.8])
        calm = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(produce(producer, calm))
            tasks.create_task(consume(consumer, calm))
            tasks.create_task(administer(a, calm))
            for _ in range(20):
                await asyncio.sleep(0.3)
                # Versions are believed as long as a connection lasts.
                loop.network.reset("client", "middle")
            calm.set()
        assert meddler.spoilt > 20
        meddler.share = 0.0
        loop.network.reset("client", "middle")
        # And a leader epoch for a while longer, against all that say less.
        await asyncio.sleep(MAX_LAG_S + 5)
        offset = await delivered(producer, broker, b"calm")
        await consumer.seek(T0, offset)
        assert [r.value for r in await consumer.poll(5000)] == [b"calm"]
        assert "t" in {topic.name for topic in await a.list_topics()}
    await broker.stop()


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_a_broker_says_costs_an_error_at_most(seed):
    simulate(meddled, seed)
