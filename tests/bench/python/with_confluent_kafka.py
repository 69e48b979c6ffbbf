"""confluent-kafka (librdkafka) at its fastest: without delivery callbacks."""

from __future__ import annotations

import sys
import time

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.bench.shapes import COUNT, Shape

AT_ONCE = 10_000
"""Messages per call of consume."""
NO_MESSAGE_S = 10
FLUSH_S = 60


def produce(address: str, topic: str, shape: Shape, seconds: float) -> tuple[int, float]:
    producer = Producer(
        {
            "bootstrap.servers": address,
            "acks": shape.acks,
            "batch.num.messages": shape.at_once or 10_000,
            "compression.type": shape.compression,
            "queue.buffering.max.messages": 1_000_000,
            "delivery.report.only.error": True,
            "error_cb": _fail,
        }
    )
    messages = shape.messages()
    send, sent = producer.produce, 0
    began = time.perf_counter()
    while time.perf_counter() < began + seconds:
        for value, key, headers in messages:
            while True:
                try:
                    if headers:
                        send(topic, value, key, headers=headers)
                    else:
                        send(topic, value, key)
                    break
                except BufferError:
                    producer.poll(0.01)
        sent += COUNT
    producer.flush(FLUSH_S)
    return sent, time.perf_counter() - began


def consume(address: str, topic: str, messages: int) -> tuple[int, float]:
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 1,  # its default of 1 s looks like a stalled broker
            "error_cb": _fail,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    first = len(consumer.consume(1, NO_MESSAGE_S))
    began = time.perf_counter()
    read = 0
    while first + read < messages:
        found = consumer.consume(min(AT_ONCE, messages - first - read), NO_MESSAGE_S)
        if not found:
            sys.exit(f"stopped after {first + read} messages")
        for message in found:
            if message.error():
                sys.exit(f"stopped after {first + read} messages: {message.error()}")
            message.topic(), message.partition(), message.offset(), message.timestamp()
            message.key(), message.value(), message.headers()
        read += len(found)
    took = time.perf_counter() - began
    consumer.close()
    return read, took


def _fail(error: object) -> None:
    sys.exit(f"librdkafka: {error}")
