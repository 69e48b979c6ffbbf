"""Read orders and write invoices, exactly once, although the program crashes repeatedly.

    k server-start &
    python examples/exactly_once.py [HOST:PORT]

Each transaction holds invoices and the offsets of their orders: both are committed or neither is.
A crash in between leaves an open transaction; the next producer with the same transactional.id
aborts it.
"""

import asyncio
import os
import sys
from collections import Counter
from random import Random

from kcli.client import Admin, Consumer, Producer, TopicPartition
from kcli.client.admin.descriptions import NewTopic

ORDERS, INVOICES = "orders", "invoices"
ORDER_COUNT = 500


class Crash(Exception):
    """Simulates a power failure, a kill -9 or a bug."""


async def write_orders(broker: str) -> None:
    async with Producer({"bootstrap.servers": broker}) as producer:
        sent = [await producer.send(ORDERS, b"%d" % number) for number in range(ORDER_COUNT)]
        await asyncio.gather(*sent)


async def invoice_all(broker: str, random: Random) -> None:
    """Return when no orders are left.  Raises Crash at a random place, in most runs."""
    reading = {
        "bootstrap.servers": broker,
        "group.id": "invoicing",
        "enable.auto.commit": "false",
        "auto.offset.reset": "earliest",
        "max.poll.records": "20",
    }
    writing = {"bootstrap.servers": broker, "transactional.id": "invoicing"}
    async with Consumer(reading) as consumer, Producer(writing) as producer:
        await producer.init_transactions()
        consumer.subscribe([ORDERS])
        while orders := await consumer.poll(timeout_ms=5000):
            async with producer.transaction():
                for order in orders:
                    await producer.send(INVOICES, b"invoice for " + order.value)
                if random.random() < 0.05:
                    raise Crash
                offsets = {TopicPartition(o.topic, o.partition): o.offset + 1 for o in orders}
                await producer.send_offsets_to_transaction(offsets, consumer.group_metadata())


async def read_invoices(broker: str) -> Counter[bytes]:
    """Count the invoices that were committed."""
    settings = {"auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    found: Counter[bytes] = Counter()
    async with Consumer({"bootstrap.servers": broker} | settings) as consumer:
        partitions = [
            TopicPartition(INVOICES, p.partition) for p in await consumer.partitions_for(INVOICES)
        ]
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        while any([await consumer.position(p) < ends[p] for p in partitions]):
            found.update(record.value for record in await consumer.poll(timeout_ms=1000))
    return found


async def main(broker: str) -> None:
    async with Admin({"bootstrap.servers": broker}) as admin:
        await admin.create_topics([NewTopic(name, partitions=3) for name in (ORDERS, INVOICES)])
    await write_orders(broker)
    crashes = 0
    random = Random(1)
    while True:
        try:
            await invoice_all(broker, random)
            break
        except Crash:
            crashes += 1
    invoices = await read_invoices(broker)
    print(f"{crashes} crashes, {len(invoices)} orders invoiced, each {max(invoices.values())} time")


if __name__ == "__main__":
    default = os.environ.get("K_BOOTSTRAP_SERVER", "127.0.0.1:9092")
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else default))
