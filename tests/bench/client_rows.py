"""Rows of Python clients: the columns are brokers, the figures are clients."""

from __future__ import annotations

from collections.abc import Mapping

from tests.bench import clients, compiled
from tests.bench.clients import Client
from tests.bench.figures import Aim, at_least, at_least_times, at_least_times_of
from tests.bench.row import Row, Work
from tests.bench.servers import OURS, Server
from tests.bench.shapes import SHAPES

FILL_BYTES = 1 << 28
K = "k"
K_COMPILED = "k compiled"
CONFLUENT = "confluent-kafka"
CLIENTS = (
    Client(K, "k"),
    Client(K_COMPILED, "k"),
    Client(CONFLUENT, "confluent_kafka", "confluent_kafka"),
    Client("kafka-python", "kafka_python", "kafka"),
    Client("aiokafka", "aiokafka", "aiokafka"),
)
CONSUMED = {"kafka-python": 100_000, "aiokafka": 200_000}
"""Number of messages to consume for clients that would take too long for a million."""
A_MILLION = 1_000_000
SLOW = frozenset(CONSUMED)
"""Clients that are measured at our broker only, since no broker limits them."""
SHAPED = ("plain", "keyed", "headers", "lz4")


def messages_s(client: str) -> str:
    return f"{client} messages/s"


def compared(work: Work, server: Server, names: tuple[str, ...]) -> list[Client]:
    """Return the clients of these names that are measured at this broker."""
    found = []
    for client in CLIENTS:
        if client.name not in names or (client.name in SLOW and server.kind is not OURS):
            continue
        if client.name == K_COMPILED:
            paths = (compiled.build(work.directory / compiled.DIRECTORY),)
            client = Client(client.name, client.module, paths=paths)
        found.append(client)
    return found


ALL = tuple(client.name for client in CLIENTS)


def produce(
    name: str,
    shape: str,
    aims: Mapping[str, Aim | None],
    names: tuple[str, ...] = ALL,
    *,
    has_rival: bool = True,
) -> Row:
    def measure(work: Work, server: Server, _: str) -> Mapping[str, float]:
        return {
            messages_s(client.name): clients.python_produce(client, server, shape, work.seconds / 2)
            for client in compared(work, server, names)
        }

    figures: dict[str, Aim | None] = dict.fromkeys(map(messages_s, names))
    about = f"Python's producers: {SHAPES[shape].about}"
    aims = figures | dict(aims)
    return Row(name, about, measure, aims, partitions=1, has_rival=has_rival)


def consume(name: str, shape: str, aims: Mapping[str, Aim | None]) -> Row:
    def measure(work: Work, server: Server, topic: str) -> Mapping[str, float]:
        return {
            messages_s(client.name): clients.python_consume(
                client, server, topic, shape, CONSUMED.get(client.name, A_MILLION)
            )
            for client in compared(work, server, ALL)
        }

    figures: dict[str, Aim | None] = dict.fromkeys(map(messages_s, ALL))
    about = f"Python's consumers, every field read: {SHAPES[shape].about}"
    return Row(
        name,
        about,
        measure,
        figures | dict(aims),
        partitions=1,
        fill_bytes=FILL_BYTES,
        fill_with=shape,
    )


AHEAD = at_least_times_of(messages_s(CONFLUENT), 1)
"""Aim: at least the rate of librdkafka in C, without our compiled modules."""
AIMS = {messages_s(K): AHEAD, messages_s(CONFLUENT): at_least_times(1)}

ROWS = (
    *(produce(f"client-produce-{shape}", shape, AIMS) for shape in SHAPED),
    *(consume(f"client-consume-{shape}", shape, AIMS) for shape in SHAPED),
    produce(
        "client-paper-1",
        "paper-1",
        {messages_s(K): at_least(50_000)},
        (K, K_COMPILED, CONFLUENT),
        # At some 5,000 records/s Apache's broker does not drain the clients' queues before they
        # time out.
        has_rival=False,
    ),
    produce(
        "client-paper-50",
        "paper-50",
        {messages_s(K): at_least(400_000)},
        (K, K_COMPILED, CONFLUENT),
    ),
)
