"""C10: a record comes out of the topic it went into, whole, whatever breaks on its way.

CVE-2026-35554: a producer gave the buffer of a batch that had timed out to another topic's.  Here
buffers are used again too: for large requests by the broker, between connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from random import Random

import pytest

from kcli.client import Producer
from kcli.client.config import ProducerConfig
from kcli.client.errors import ClientError
from kserver.errors import KafkaError
from kserver.wire.api_key import ApiKey
from kserver.wire.batch import batches, encode_batch
from kserver.wire.codec import write_request
from kserver.wire.versions import request
from tests.contract.api.calls import Topic, fetch, produce_fields, topic_id
from tests.simulation.test_broker import create
from tests.simulation.test_broker import fetch as fetch_from_peer
from tests.support import brokers
from tests.support.loop import SimLoop, host, simulate
from tests.support.simulated import PORT, SimulatedBroker
from tests.support.wire_client import WireClient, build

CANARIES = brokers.names("canary")
SMALL, LARGE = 500, 200_000
PATIENCE_S = 60


def value(topic: str, number: int, size: int) -> bytes:
    """All of it says whose it is."""
    mark = f"<{topic}/{number}>".encode()
    return (mark * (size // len(mark) + 1))[:size]


def is_of(topic: str, data: bytes) -> bool:
    number = int(data[: data.index(b">")].rpartition(b"/")[2])
    return data == value(topic, number, len(data))


def frame(topic: Topic, number: int, size: int) -> bytes:
    data = {0: encode_batch([(1_000, None, value(topic.name, number, size), ())])}
    return write_request(
        build(request(ApiKey.PRODUCE, 9), produce_fields(9, topic, data)), number, "c10"
    )


@pytest.mark.parametrize("seed", range(3))
def test_requests_that_are_cut_and_interleaved_stay_in_their_topics(broker, seed):
    """Many connections send pieces by turns; some leave within a request, and others take over."""
    random = Random(seed)
    with WireClient(broker.address) as client:
        names = [brokers.create_topic(broker.address, next(CANARIES)) for _ in range(6)]
        topics = [Topic(name, topic_id(client, name)) for name in names]

    def connect():
        sock = socket.create_connection(("127.0.0.1", broker.port), PATIENCE_S)
        return sock, random.choice(topics), bytearray()

    lines = [connect() for _ in range(12)]
    for number in range(600):
        at = random.randrange(len(lines))
        sock, topic, left = lines[at]
        if not left:
            left += frame(topic, number, random.choice((SMALL, LARGE)))
        piece = random.randrange(1, 150_000)
        with contextlib.suppress(ConnectionError):
            sock.sendall(left[:piece])
        del left[:piece]
        if random.random() < 0.05:
            sock.close()
            lines[at] = connect()
    for sock, _, left in lines:
        with contextlib.suppress(ConnectionError):
            sock.sendall(left)
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(1 << 16):
                pass
        sock.close()
    found = 0
    with WireClient(broker.address) as client:
        for topic in topics:
            for one in read_all(client, topic):
                found += 1
                assert is_of(topic.name, one)
    assert found > 50


def read_all(client, topic):
    offset = 0
    while True:
        records = fetch(client, 9, topic, offset).records
        if not records:
            return
        for batch in batches(records):
            for record in batch.records():
                yield record.value
            offset = batch.next_offset


async def expiring(loop: SimLoop) -> None:
    random = loop.random
    broker = SimulatedBroker(loop)
    await broker.start()
    admin = await broker.connect("admin")
    names = [f"topic-{number}" for number in range(5)]
    for name in names:
        await create(admin, name)
    settings = {
        "bootstrap.servers": f"{broker.name}:{PORT}",
        "delivery.timeout.ms": "400",
        "request.timeout.ms": "200",
        "retry.backoff.ms": "10",
        "linger.ms": "5",
        "batch.size": "4000",
        "buffer.memory": "60000",
    }
    outcomes = []
    with host("client"):
        async with Producer(
            ProducerConfig.of(settings), now_ms=broker.clock.now_ms, random=Random(0)
        ) as producer:
            for number in range(400):
                name = random.choice(names)
                data = value(name, number, random.randrange(20, 3000))
                with contextlib.suppress(KafkaError, ClientError):
                    outcomes.append(await producer.send(name, data))
                await asyncio.sleep(random.expovariate(100))
                if number % 40 == 20:
                    loop.network.cut("client", broker.name)
                    # Longer than the delivery timeout, and not.
                    await asyncio.sleep((0.9, 0.1, 0.3)[number // 40 % 3])
                    loop.network.heal("client", broker.name)
            ended = await asyncio.gather(*outcomes, return_exceptions=True)
    assert any(isinstance(one, BaseException) for one in ended), "none expired"
    found = 0
    for name in names:
        offset = 0
        while records := (await fetch_from_peer(admin, name, 0, offset)).records:
            for batch in batches(records):
                for record in batch.records():
                    found += 1
                    assert is_of(name, record.value)
                offset = batch.next_offset
    assert found >= sum(not isinstance(one, BaseException) for one in ended) > 50
    await broker.stop()


@pytest.mark.parametrize("seed", range(4))
def test_a_producer_whose_batches_expire_mixes_no_topics(seed):
    """Deliveries expire, and are sent again, while connections break."""
    simulate(expiring, seed)
