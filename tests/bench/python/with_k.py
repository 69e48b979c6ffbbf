"""This project's client: produces single records without callbacks, consumes batches of records."""

from __future__ import annotations

import asyncio
import time

from kcli.client.config import ConsumerConfig, ProducerConfig
from kcli.client.consumer.consumer import Consumer
from kcli.client.producer.producer import Producer
from kserver.model import TopicPartition
from tests.bench.shapes import COUNT, LINGER_MS, Shape

NO_MESSAGE_MS = 10_000
AT_ONCE = 500
"""Messages per call of poll; its default."""


def produce(address: str, topic: str, shape: Shape, seconds: float) -> tuple[int, float]:
    config = ProducerConfig.of(
        {
            "bootstrap.servers": address,
            "acks": shape.acks,
            "batch.size": str(shape.batch_bytes),
            "compression.type": shape.compression,
            "linger.ms": str(LINGER_MS),
        }
    )
    return asyncio.run(_produce(config, topic, shape, seconds))


async def _produce(
    config: ProducerConfig, topic: str, shape: Shape, seconds: float
) -> tuple[int, float]:
    messages = [(m.value, m.key, tuple(m.headers)) for m in shape.messages()]
    sent = 0
    async with Producer(config) as producer:
        send = producer.try_send
        began = time.perf_counter()
        while time.perf_counter() < began + seconds:
            for value, key, headers in messages:
                while not send(topic, value, key, headers=headers):
                    await producer.ready(topic)
            sent += COUNT
        await producer.flush()
        return sent, time.perf_counter() - began


def consume(address: str, topic: str, messages: int) -> tuple[int, float]:
    return asyncio.run(_consume(address, topic, messages))


async def _consume(address: str, topic: str, messages: int) -> tuple[int, float]:
    config = ConsumerConfig.of(
        {"bootstrap.servers": address, "auto.offset.reset": "earliest"},
    )
    async with Consumer(config) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        first = sum(len(b.rows) for b in await consumer.poll_batches(NO_MESSAGE_MS, 1))
        began = time.perf_counter()
        read = 0
        while first + read < messages:
            batches = await consumer.poll_batches(
                NO_MESSAGE_MS, min(AT_ONCE, messages - first - read)
            )
            if not batches:
                raise SystemExit(f"stopped after {first + read} messages")
            for batch in batches:
                topic, _partition, _type = batch.topic, batch.partition, batch.timestamp_type
                for _offset, _timestamp, _key, _value, _headers in batch.rows:
                    pass
                read += len(batch.rows)
        return read, time.perf_counter() - began
