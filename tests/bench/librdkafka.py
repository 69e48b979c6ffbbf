"""A process that uses confluent-kafka as its users do, on a topic of one partition.

    python -m tests.bench.librdkafka produce ADDRESS TOPIC SECONDS
    python -m tests.bench.librdkafka consume ADDRESS TOPIC MESSAGES

Prints one line of JSON: messages and seconds.
"""

from __future__ import annotations

import json
import sys
import time

from confluent_kafka import Consumer, Producer, TopicPartition

MESSAGE_BYTES = 200
AT_ONCE = 10_000
"""Messages between two looks at the clock, and in one call of consume."""
NO_MESSAGE_S = 10
FLUSH_S = 60


def produce(address: str, topic: str, seconds: float) -> tuple[int, float]:
    """To the last acknowledgement, without callbacks: whoever calls counts what arrived."""
    producer = Producer(
        {
            "bootstrap.servers": address,
            "queue.buffering.max.messages": 1_000_000,
            "delivery.report.only.error": True,
            "error_cb": _fail,
        }
    )
    value = b"v" * MESSAGE_BYTES
    send, sent = producer.produce, 0
    began = time.perf_counter()
    while time.perf_counter() < began + seconds:
        for _ in range(AT_ONCE):
            while True:
                try:
                    send(topic, value, partition=0)
                    break
                except BufferError:
                    producer.poll(0.01)
            sent += 1
    producer.flush(FLUSH_S)
    return sent, time.perf_counter() - began


def consume(address: str, topic: str, messages: int) -> tuple[int, float]:
    """From the first message to the last, finding the broker excluded."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 1,  # its default of 1 s looks like a broker that stalls
            "error_cb": _fail,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    first = len(consumer.consume(1, NO_MESSAGE_S))
    began = time.perf_counter()
    read = 0
    while first + read < messages:
        batch = consumer.consume(min(AT_ONCE, messages - first - read), NO_MESSAGE_S)
        if not batch or any(message.error() for message in batch):
            sys.exit(f"stopped after {first + read} messages")
        read += len(batch)
    took = time.perf_counter() - began
    consumer.close()
    return read, took


def _fail(error: object) -> None:
    sys.exit(f"librdkafka: {error}")


if __name__ == "__main__":
    mode, address, topic, amount = sys.argv[1:]
    if mode == "produce":
        messages, seconds = produce(address, topic, float(amount))
    else:
        messages, seconds = consume(address, topic, int(amount))
    print(json.dumps({"messages": messages, "seconds": seconds}))
