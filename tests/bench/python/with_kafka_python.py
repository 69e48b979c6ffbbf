"""kafka-python: pure Python, with threads."""

from __future__ import annotations

import time

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from tests.bench.shapes import BATCH_BYTES, COUNT, LINGER_MS, Shape

NO_MESSAGE_MS = 10_000
AT_ONCE = 10_000
LOOK_EVERY = 100


def produce(address: str, topic: str, shape: Shape, seconds: float) -> tuple[int, float]:
    producer = KafkaProducer(
        bootstrap_servers=address,
        compression_type=None if shape.compression == "none" else shape.compression,
        batch_size=BATCH_BYTES,
        linger_ms=LINGER_MS,
    )
    messages = shape.messages()
    send, sent = producer.send, 0
    began = time.perf_counter()
    while time.perf_counter() < began + seconds:
        at = sent % COUNT
        for value, key, headers in messages[at : at + LOOK_EVERY]:
            send(topic, value, key, headers or None)
        sent += LOOK_EVERY
    producer.flush()
    took = time.perf_counter() - began
    producer.close()
    return sent, took


def consume(address: str, topic: str, messages: int) -> tuple[int, float]:
    consumer = KafkaConsumer(
        bootstrap_servers=address, enable_auto_commit=False, auto_offset_reset="earliest"
    )
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    first = len(consumer.poll(NO_MESSAGE_MS, max_records=1).get(partition, ()))
    began = time.perf_counter()
    read = 0
    while first + read < messages:
        most = min(AT_ONCE, messages - first - read)
        found = consumer.poll(NO_MESSAGE_MS, max_records=most).get(partition, ())
        if not found:
            raise SystemExit(f"stopped after {first + read} messages")
        for r in found:
            r.topic, r.partition, r.offset, r.timestamp, r.key, r.value, r.headers  # noqa: B018
        read += len(found)
    took = time.perf_counter() - began
    consumer.close()
    return read, took
