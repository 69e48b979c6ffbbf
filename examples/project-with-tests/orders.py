"""The project: it announces orders in a topic, reads them back, and packs them in a group.

It uses k's client; any other Kafka client works too.
"""

import json
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kcli.client import Blocking, Consumer, ConsumerRecord, Producer, TopicPartition

TOPIC = "orders"


class Order(NamedTuple):
    customer: str
    items: list[str]

    @classmethod
    def of(cls, record: ConsumerRecord) -> "Order":
        return cls(record.key.decode(), json.loads(record.value))


def announce(order: Order, broker: str) -> None:
    """Return once the broker has the order.  Raises KafkaError if the broker rejects it."""
    announce_all([order], broker)


def announce_all(orders: Iterable[Order], broker: str) -> None:
    """Announce orders one after the other, with one producer; k's is idempotent by default."""
    with Blocking(Producer, {"bootstrap.servers": broker}) as producer:
        for order in orders:
            value = json.dumps(order.items).encode()
            producer.send(TOPIC, value, key=order.customer.encode()).result()


def announced(broker: str) -> list[Order]:
    """All orders announced until now, the oldest first."""
    only = TopicPartition(TOPIC, 0)
    orders = []
    with Blocking(Consumer, {"bootstrap.servers": broker}) as consumer:
        consumer.assign([only])
        consumer.seek_to_beginning()
        end = consumer.end_offsets([only])[only]
        while consumer.position(only) < end:
            for record in consumer.poll(1000):
                orders.append(Order.of(record))
    return orders


def to_pack(broker: str) -> Iterator[Order]:
    """Orders for one packer; an order counts as packed when the packer requests the next one."""
    config = {
        "bootstrap.servers": broker,
        "group.id": "packers",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": "false",
    }
    with Blocking(Consumer, config) as consumer:
        consumer.subscribe([TOPIC])
        while True:
            for record in consumer.poll(1000):
                yield Order.of(record)
                consumer.commit({TopicPartition(TOPIC, record.partition): record.offset + 1})
