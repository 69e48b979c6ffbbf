"""Test group members of the client library, with every group protocol."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from kcli.client.blocking import Blocking
from kcli.client.config import ConsumerConfig, ProducerConfig
from kcli.client.consumer.consumer import Consumer
from kcli.client.consumer.listener import RebalanceListener
from kcli.client.producer.producer import Producer
from kserver.errors import ErrorCode, KafkaError
from kserver.model import TopicPartition
from tests.support import brokers
from tests.support.real_clients import bootstrap

PROTOCOLS = {
    "eager": {"partition_assignment_strategy": "sticky", "heartbeat_interval_ms": 300},
    "cooperative": {
        "partition_assignment_strategy": "cooperative-sticky",
        "heartbeat_interval_ms": 300,
    },
    "consumer": {"group_protocol": "consumer"},
}


class Member:
    """A member that polls until it is stopped; `values` has the values that it has read."""

    def __init__(self, broker: brokers.Broker, topic: str, **settings: object) -> None:
        given = {"auto_offset_reset": "earliest"} | settings
        self.consumer = Consumer(ConsumerConfig.of(bootstrap(broker, **given)))
        self.topic = topic
        self.values: list[bytes] = []
        self._stop = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async with self.consumer:
            self.consumer.subscribe([self.topic])
            while not self._stop.is_set():
                self.values += [record.value for record in await self.consumer.poll(100)]

    @property
    def owned(self) -> int:
        return len(self.consumer.assignment)

    async def stop(self) -> None:
        self._stop.set()
        await self._task

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not holds():
                if self._task.done():
                    self._task.result()
                await asyncio.sleep(0.05)


def test_a_protocol_that_the_cluster_does_not_have_is_told_with_the_remedy(broker, topic):
    """3.9's brokers support KIP-848 only if it is enabled."""
    if broker.kind != "3.9.2":
        pytest.skip("this broker has it")

    async def scenario() -> None:
        member = Member(broker, topic, group_id=f"g-{topic}", group_protocol="consumer")
        with pytest.raises(KafkaError, match=r"Set group\.protocol=classic"):
            await member.until(lambda: False)

    asyncio.run(scenario())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_of_a_group_share_a_topic_and_hand_it_over(broker, topic, protocol):
    if protocol == "consumer" and broker.kind == "3.9.2":
        pytest.skip("this broker does not have it")

    async def scenario() -> None:
        settings = PROTOCOLS[protocol] | {"group_id": f"g-{topic}"}
        sent: list[bytes] = []
        async with Producer(ProducerConfig.of(bootstrap(broker))) as producer:

            async def send() -> None:
                for n in range(90):
                    sent.append(b"%d" % len(sent))
                    await producer.send(topic, sent[-1], partition=n % 3)
                await producer.flush()

            await send()
            a = Member(broker, topic, **settings)
            await a.until(lambda: len(a.values) == 90)
            b = Member(broker, topic, **settings)
            await b.until(lambda: {a.owned, b.owned} == {1, 2})
            await send()
            await b.until(lambda: len(a.values) + len(b.values) == 180)
            assert b.values
            await a.stop()
            await b.until(lambda: b.owned == 3)
            await send()
            await b.until(lambda: len(a.values) + len(b.values) == 270)
            await b.stop()
        assert sorted(a.values + b.values) == sorted(sent), "each once"
        async with Consumer(ConsumerConfig.of(bootstrap(broker, **settings))) as consumer:
            committed = await consumer.committed([TopicPartition(topic, n) for n in range(3)])
        assert [one.offset for one in committed.values()] == [90, 90, 90]

    asyncio.run(scenario())


def test_a_static_member_is_given_what_it_had_and_a_second_of_its_name_fences_it(broker, topic):
    settings = {"group_id": f"g-{topic}", "group_instance_id": "one"} | PROTOCOLS["eager"]

    async def scenario() -> None:
        a = Member(broker, topic, **settings)
        await a.until(lambda: a.owned == 3)
        generation = a.consumer.group_metadata().generation_id
        await a.stop()
        b = Member(broker, topic, **settings)
        await b.until(lambda: b.owned == 3)
        assert b.consumer.group_metadata().generation_id == generation, "nobody rebalanced"
        c = Member(broker, topic, **settings)
        await c.until(lambda: c.owned == 3)
        with pytest.raises(KafkaError) as caught:
            await b.until(lambda: False)
        assert caught.value.code is ErrorCode.fenced_instance_id
        await c.stop()

    asyncio.run(scenario())


def test_a_blocking_consumer_is_told_of_partitions_in_its_own_thread(broker, topic):
    class Here(RebalanceListener):
        def on_assigned(self, partitions):
            heard.append((threading.current_thread(), len(partitions)))
            consumer.seek(TopicPartition(topic, 1), 2)

    heard: list[tuple[threading.Thread, int]] = []
    with Blocking(Producer, bootstrap(broker)) as producer:
        for n in range(3):
            producer.send(topic, b"%d" % n, partition=1)
        producer.flush()
    given = bootstrap(broker, group_id=f"g-{topic}", auto_offset_reset="latest")
    with Blocking(Consumer, given) as consumer:
        consumer.subscribe([topic], listener=Here())
        found = []
        while not found:
            found = consumer.poll(1000)
        assert [record.value for record in found] == [b"2"]
        consumer.commit({TopicPartition(topic, 0): 7})
        assert consumer.committed([TopicPartition(topic, 0)])[TopicPartition(topic, 0)].offset == 7
    assert heard == [(threading.current_thread(), 3)]
