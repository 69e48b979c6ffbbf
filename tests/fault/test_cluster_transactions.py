"""Test confluent-kafka transactions over partitions with three different leaders, while the
transaction coordinator is killed and restarted."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.support.process_cluster import PATIENCE_S, TRANSACTION, Cluster

TOPIC, PARTITIONS = "ledger", 3
TRANSACTIONS = 45


@pytest.fixture
def cluster(tmp_path):
    with Cluster(tmp_path) as cluster:
        yield cluster


class Writer:
    """Writes each number to every partition in one transaction.

    An aborted transaction is retried with the same number. `committed` holds the values of the
    committed transactions, in order.
    """

    def __init__(self, cluster):
        self.committed = []
        self._producer = Producer(
            cluster.client
            | {
                "transactional.id": "x",
                "transaction.timeout.ms": 20_000,
                "retry.backoff.ms": 50,
                "linger.ms": 0,
            }
        )
        insist(self._producer.init_transactions)
        self._tried = 0

    def write(self, number):
        while not self._is_committed(number):
            pass

    def _is_committed(self, number):
        self._tried += 1
        value = f"{number}:{self._tried}"
        try:
            self._send(value)
            insist(self._producer.commit_transaction)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            insist(self._producer.abort_transaction)
            return False
        self.committed.append(value)
        return True

    def abort(self, number):
        self._tried += 1
        try:
            self._send(f"{number}:{self._tried}")
            self._producer.flush(PATIENCE_S)
        finally:
            insist(self._producer.abort_transaction)

    def _send(self, value):
        self._producer.begin_transaction()
        for partition in range(PARTITIONS):
            self._producer.produce(TOPIC, value.encode(), partition=partition)


def insist(call):
    """Call `call` until it succeeds, retrying on retriable errors for up to `PATIENCE_S`."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return call(10)
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise


def consumed(cluster, last):
    """Return each partition's values as a read_committed consumer gets them, up to `last`."""
    consumer = Consumer(
        cluster.client
        | {"group.id": "none", "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    )
    consumer.assign([TopicPartition(TOPIC, n, 0) for n in range(PARTITIONS)])
    found = {n: [] for n in range(PARTITIONS)}
    deadline = time.monotonic() + PATIENCE_S
    while any(values[-1:] != [last] for values in found.values()):
        assert time.monotonic() < deadline, {n: values[-1:] for n, values in found.items()}
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            found[message.partition()].append(message.value().decode())
    consumer.close()
    return found


def test_each_transaction_is_there_whole_or_not_at_all(cluster):
    cluster.create(TOPIC, PARTITIONS)
    leaders = {p.leader for p in cluster.admin.list_topics(TOPIC).topics[TOPIC].partitions.values()}
    assert len(leaders) == PARTITIONS
    coordinator = cluster.brokers[cluster.coordinator("x", TRANSACTION)]
    writer = Writer(cluster)
    for number in range(TRANSACTIONS):
        if number == TRANSACTIONS // 3:
            coordinator.kill()
        elif number == 2 * TRANSACTIONS // 3:
            coordinator.start()
        if number % 5 == 4:
            writer.abort(number)
        else:
            writer.write(number)
    writer.write(TRANSACTIONS)
    numbers = [int(value.partition(":")[0]) for value in writer.committed]
    assert numbers == [n for n in range(TRANSACTIONS + 1) if n % 5 != 4]
    found = consumed(cluster, writer.committed[-1])
    assert found == dict.fromkeys(range(PARTITIONS), writer.committed)
