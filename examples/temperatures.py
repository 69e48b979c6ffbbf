"""A Python producer and consumer: send temperatures of rooms, and print the mean of each room.

    k server-start &
    python examples/temperatures.py [HOST:PORT]

The key is the room, so all temperatures of a room are in one partition, in order.
"""

import asyncio
import json
import os
import random
import sys
from collections import defaultdict

from kcli.client import Admin, Consumer, Producer, TopicPartition
from kcli.client.admin.descriptions import NewTopic

TOPIC = "temperatures"
ROOMS = ("attic", "cellar", "kitchen")
MEASUREMENTS = 3000


async def measure(broker: str) -> None:
    """Send all records without waiting for each.  Raises KafkaError if any of them failed."""
    properties = {"bootstrap.servers": broker, "compression.type": "lz4"}
    async with Producer(properties, value_serializer=lambda v: json.dumps(v).encode()) as producer:
        sent = []
        for number in range(MEASUREMENTS):
            room = ROOMS[number % len(ROOMS)]
            celsius = round(random.gauss(10 + 5 * ROOMS.index(room)), 1)
            sent.append(await producer.send(TOPIC, {"celsius": celsius}, key=room.encode()))
        await asyncio.gather(*sent)


async def means(broker: str) -> dict[str, float]:
    """Read from the beginning to the current end of the topic."""
    seen: dict[str, list[float]] = defaultdict(list)
    properties = {"bootstrap.servers": broker, "auto.offset.reset": "earliest"}
    async with Consumer(properties, value_deserializer=json.loads) as consumer:
        partitions = [
            TopicPartition(TOPIC, p.partition) for p in await consumer.partitions_for(TOPIC)
        ]
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        while any([await consumer.position(p) < ends[p] for p in partitions]):
            for record in await consumer.poll(timeout_ms=1000):
                seen[record.key.decode()].append(record.value["celsius"])
    return {room: sum(all_) / len(all_) for room, all_ in sorted(seen.items())}


async def main(broker: str) -> None:
    async with Admin({"bootstrap.servers": broker}) as admin:
        await admin.create_topics([NewTopic(TOPIC, partitions=3)])
    await measure(broker)
    for room, mean in (await means(broker)).items():
        print(f"{room:8} {mean:5.1f} °C")


if __name__ == "__main__":
    default = os.environ.get("K_BOOTSTRAP_SERVER", "127.0.0.1:9092")
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else default))
