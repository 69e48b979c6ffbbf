"""aiokafka: asyncio, with its record codec in C."""

from __future__ import annotations

import asyncio
import time

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from tests.bench.shapes import BATCH_BYTES, COUNT, LINGER_MS, Shape

NO_MESSAGE_MS = 10_000
AT_ONCE = 10_000
LOOK_EVERY = 100


def produce(address: str, topic: str, shape: Shape, seconds: float) -> tuple[int, float]:
    return asyncio.run(_produce(address, topic, shape, seconds))


async def _produce(address: str, topic: str, shape: Shape, seconds: float) -> tuple[int, float]:
    producer = AIOKafkaProducer(
        bootstrap_servers=address,
        compression_type=None if shape.compression == "none" else shape.compression,
        max_batch_size=BATCH_BYTES,
        linger_ms=LINGER_MS,
    )
    messages = shape.messages()
    await producer.start()
    send, sent = producer.send, 0
    began = time.perf_counter()
    while time.perf_counter() < began + seconds:
        at = sent % COUNT
        for value, key, headers in messages[at : at + LOOK_EVERY]:
            await send(topic, value, key, headers=headers or None)
        sent += LOOK_EVERY
    await producer.flush()
    took = time.perf_counter() - began
    await producer.stop()
    return sent, took


def consume(address: str, topic: str, messages: int) -> tuple[int, float]:
    return asyncio.run(_consume(address, topic, messages))


async def _consume(address: str, topic: str, messages: int) -> tuple[int, float]:
    consumer = AIOKafkaConsumer(bootstrap_servers=address, auto_offset_reset="earliest")
    partition = TopicPartition(topic, 0)
    await consumer.start()
    consumer.assign([partition])
    found = await consumer.getmany(timeout_ms=NO_MESSAGE_MS, max_records=1)
    first = len(found.get(partition, ()))
    began = time.perf_counter()
    read = 0
    while first + read < messages:
        most = min(AT_ONCE, messages - first - read)
        found = await consumer.getmany(timeout_ms=NO_MESSAGE_MS, max_records=most)
        if not found:
            raise SystemExit(f"stopped after {first + read} messages")
        for r in found[partition]:
            r.topic, r.partition, r.offset, r.timestamp, r.key, r.value, r.headers  # noqa: B018
        read += len(found[partition])
    took = time.perf_counter() - began
    await consumer.stop()
    return read, took
