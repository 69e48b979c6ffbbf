"""The client library with a real broker: its configuration, and all records of a topic."""

from __future__ import annotations

from kcli.client.config import ConsumerConfig
from kcli.client.consumer.consumer import Consumer, ConsumerRecord
from kserver.model import TopicPartition
from tests.support import brokers


def bootstrap(broker: brokers.Broker, **settings: object) -> dict[str, str]:
    given = {key.replace("_", "."): str(value) for key, value in settings.items()}
    return {"bootstrap.servers": broker.address} | given


async def read(
    broker: brokers.Broker, topic: str, partitions: int = 3, **settings: object
) -> dict[int, list[ConsumerRecord]]:
    """All records of a topic, by partition."""
    all_of = [TopicPartition(topic, n) for n in range(partitions)]
    found: dict[int, list[ConsumerRecord]] = {n: [] for n in range(partitions)}
    given = {"auto_offset_reset": "earliest"} | settings
    async with Consumer(ConsumerConfig.of(bootstrap(broker, **given))) as consumer:
        consumer.assign(all_of)
        ends = await consumer.end_offsets(all_of)
        while [p for p, end in ends.items() if await consumer.position(p) < end]:
            for record in await consumer.poll(1000):
                found[record.partition].append(record)
    return found
