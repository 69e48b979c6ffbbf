"""Fixtures: log directories of our broker and of Apache's, filled by the same real clients with the
same records."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.integration.clients.catalogue import Catalogue
from tests.integration.clients.client import Record
from tests.integration.clients.promises import CODECS, ODD
from tests.support import brokers

WRITERS = ("confluent", "java-4.3.1", "franz", "kafka-python")
SEGMENTS, STAMPED = "segments", "stamped"
PATIENCE_S = 30
SETTINGS = {"log.index.interval.bytes": 512}


class Filled(NamedTuple):
    """Data that a broker left after a clean stop."""

    broker: brokers.Broker
    topics: dict[str, int]
    """Number of records in each topic's only partition."""

    def files(self, suffix: str) -> list[str]:
        return sorted(
            str(f) for t in self.topics for f in self.broker.data.glob(f"{t}-0/*{suffix}")
        )


def fill(catalogue: Catalogue, address: str) -> dict[str, int]:
    topics = {}
    for writer in WRITERS:
        topic = brokers.create_topic(address, f"from-{writer}")
        client = catalogue.open(writer, address)
        count = 0
        for codec in CODECS:
            for idempotent in (False, True):
                records = [
                    Record(b"%d" % n * 50, key=b"k%d" % n, headers=(("h", b"v"),))
                    for n in range(20)
                ]
                client.produce(topic, records, codec=codec, idempotent=idempotent)
                count += len(records)
        topics[topic] = count
    odd = brokers.create_topic(address, "odd")
    catalogue.open("java-4.3.1", address).produce(odd, ODD)
    topics[odd] = len(ODD)
    brokers.create_topic(address, SEGMENTS, segment_bytes=1 << 20)
    now_ms = int(time.time() * 1000)
    for n in range(400):
        # Timestamps go back and forth, so that the time index differs from the offset index.
        brokers.append(address, SEGMENTS, [(now_ms + (n ^ 7), b"%d" % n, b"x" * 9000, ())])
    topics[SEGMENTS] = 400
    brokers.create_topic(address, STAMPED, message_timestamp_type="LogAppendTime")
    for _ in range(5):
        brokers.append(address, STAMPED, [(1, None, b"a", ()), (2, None, b"b", ())])
    topics[STAMPED] = 10
    return topics


@pytest.fixture(scope="session")
def catalogue(tmp_path_factory):
    catalogue = Catalogue(tmp_path_factory.mktemp("programs"))
    yield catalogue
    catalogue.close()


def coordinate(address: str) -> None:
    """Commit offsets with groups of both protocols, for one of them within a transaction."""
    producer = Producer({"bootstrap.servers": address, "transactional.id": "tx-é"})
    producer.init_transactions(PATIENCE_S)
    for protocol in ("classic", "consumer"):
        settings = {"group.id": protocol, "group.protocol": protocol}
        reads = {"auto.offset.reset": "earliest", "enable.auto.commit": False}
        consumer = Consumer({"bootstrap.servers": address} | settings | reads)
        consumer.subscribe([SEGMENTS])
        assert consumer.poll(PATIENCE_S) is not None
        consumer.commit(asynchronous=False)
        if protocol == "classic":
            producer.begin_transaction()
            producer.produce(brokers.create_topic(address, "within"), b"a transaction")
            committed = [TopicPartition(SEGMENTS, 0, 3, metadata='"\x1b')]
            group = consumer.consumer_group_metadata()
            producer.send_offsets_to_transaction(committed, group, PATIENCE_S)
            producer.commit_transaction(PATIENCE_S)
        consumer.close()


def filled(kind: str, directory: Path) -> Filled:
    with brokers.running(kind, directory / "broker", SETTINGS) as broker:
        with contextlib.closing(Catalogue(directory)) as catalogue:
            topics = fill(catalogue, broker.address)
        if kind != brokers.OURS:
            coordinate(broker.address)
        broker.stop()
    return Filled(broker, topics)


@pytest.fixture(scope="session")
def ours(tmp_path_factory):
    return filled(brokers.OURS, tmp_path_factory.mktemp("ours"))


@pytest.fixture(scope="session")
def apaches(tmp_path_factory):
    return filled("4.3.1", tmp_path_factory.mktemp("apaches"))
