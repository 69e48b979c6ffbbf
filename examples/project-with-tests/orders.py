"""The project: orders are announced in a topic, and looked up there.

Its client is k's; any other would do.
"""

import json
from typing import NamedTuple

from kcli.client import Blocking, Consumer, Producer, TopicPartition

TOPIC = "orders"


class Order(NamedTuple):
    customer: str
    items: list[str]


def announce(order: Order, broker: str) -> None:
    """Returns once the broker has it; raises where it cannot take it."""
    with Blocking(Producer, {"bootstrap.servers": broker}) as producer:
        value = json.dumps(order.items).encode()
        producer.send(TOPIC, value, key=order.customer.encode()).result()


def announced(broker: str) -> list[Order]:
    """All so far, the oldest first."""
    only = TopicPartition(TOPIC, 0)
    orders = []
    with Blocking(Consumer, {"bootstrap.servers": broker}) as consumer:
        consumer.assign([only])
        consumer.seek_to_beginning()
        end = consumer.end_offsets([only])[only]
        while consumer.position(only) < end:
            for record in consumer.poll(1000):
                orders.append(Order(record.key.decode(), json.loads(record.value)))
    return orders
