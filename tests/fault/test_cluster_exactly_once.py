"""Apache's client consumes, transforms and produces over three brokers of ours, and each that has a
part in it is killed and comes back."""

from __future__ import annotations

import itertools
import threading
from collections import Counter

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kserver.wire.api_key import ApiKey
from kserver.wire.special_offsets import LATEST
from tests.integration.clients.transacting import Transactors, read_by_confluent
from tests.support.process_cluster import GROUP, IDS, PATIENCE_S, TRANSACTION, Cluster, until

SOURCE, TARGET, PARTITIONS = "source", "target", 3
AT_ONCE = 25
"""Records written to each partition before it is looked whether to go on."""
SEED = 20261125
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
SETTINGS = {
    "group.min.session.timeout.ms": 1000,
    "transaction.state.log.min.isr": 2,
    "min.insync.replicas": 2,
}


@pytest.fixture
def cluster(tmp_path):
    with Cluster(tmp_path, SETTINGS) as cluster:
        yield cluster


@pytest.fixture
def transactors(tmp_path):
    with Transactors(tmp_path, SEED) as transactors:
        yield transactors


class Source:
    """Numbers, written to the source in the background until `stop`."""

    def __init__(self, cluster):
        self.written = Counter()
        self.errors = []
        self._producer = Producer(
            cluster.client | {"enable.idempotence": True, "linger.ms": 5, "retry.backoff.ms": 50}
        )
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _write(self):
        numbers = itertools.count()
        while not self._stopped.is_set():
            for partition, _ in itertools.product(range(PARTITIONS), range(AT_ONCE)):
                value = str(next(numbers))
                self._producer.produce(SOURCE, value, partition=partition, on_delivery=self._told)
            self._producer.flush()
            self._stopped.wait(0.2)  # the pace of it

    def _told(self, error, message):
        if error is None:
            self.written[message.value().decode()] += 1
        else:
            self.errors.append(error)

    def stop(self):
        self._stopped.set()
        self._thread.join()


@pytest.fixture
def source(cluster):
    cluster.create(SOURCE, PARTITIONS)
    source = Source(cluster)
    yield source
    source.stop()


def named(cluster, broker, of):
    """A group or transactional id that the broker coordinates."""
    return next(
        name
        for name in (f"x{number}" for number in range(100))
        if cluster.coordinator(name, of) == broker
    )


def committed(cluster, group):
    """The offset of each partition of the source up to which the group has read."""
    asker = Consumer(cluster.client | {"group.id": group})
    asked = [TopicPartition(SOURCE, partition) for partition in range(PARTITIONS)]
    try:
        return [p.offset for p in asker.committed(asked, timeout=PATIENCE_S)]
    finally:
        asker.close()


def is_open(cluster, leader, coordinator, transactional_id):
    """Whether the transaction goes on, and records of it are in the target."""

    def ends(isolation):
        asked = [{"partition_index": p, "timestamp": LATEST} for p in range(PARTITIONS)]
        answer = cluster.call(
            cluster.brokers[leader],
            ApiKey.LIST_OFFSETS,
            5,
            replica_id=-1,
            isolation_level=isolation,
            topics=[{"name": TARGET, "partitions": asked}],
        )
        return [p.offset for topic in answer.topics for p in topic.partitions]

    described = {"transactional_ids": [transactional_id]}
    answer = cluster.call(
        cluster.brokers[coordinator], ApiKey.DESCRIBE_TRANSACTIONS, 0, **described
    )
    (told,) = answer.transaction_states
    return told.transaction_state == "Ongoing" and ends(READ_COMMITTED) != ends(READ_UNCOMMITTED)


def test_each_record_counts_once_whichever_part_is_killed(cluster, source, transactors):
    leader, transaction_coordinator, group_coordinator = IDS
    cluster.create(TARGET, PARTITIONS, leader=leader)
    group = named(cluster, group_coordinator, GROUP)
    transactional_id = named(cluster, transaction_coordinator, TRANSACTION)
    transactors.start(
        "java",
        "copy",
        bootstrap_server=cluster.addresses,
        source=SOURCE,
        target=TARGET,
        group_id=group,
        transactional_id=transactional_id,
    )
    (copier,) = transactors.each

    def advance():
        wanted = copier.committed + 5
        transactors.wait_until(lambda: copier.committed >= wanted)

    def strike(id_):
        cluster.brokers[id_].kill()
        advance()
        cluster.brokers[id_].start()
        cluster.until_in_sync()
        advance()

    advance()
    for id_ in (leader, transaction_coordinator, group_coordinator):
        strike(id_)
    # What it leaves open is ended by the next of its id, with the next coordinator.
    until(
        lambda: copier.is_killed_where(
            lambda: is_open(cluster, leader, transaction_coordinator, transactional_id)
        )
    )
    strike(transaction_coordinator)
    source.stop()
    assert not source.errors
    assert sum(source.written.values()) == len(source.written)
    counted = Counter()

    def copied():
        counted.clear()
        counted.update(read_by_confluent(cluster.addresses, TARGET, "read_committed"))
        return counted.keys() >= source.written.keys()

    transactors.wait_until(copied)
    assert counted == source.written
    # Their part of the transaction may end a moment after that of the records.
    transactors.wait_until(lambda: sum(committed(cluster, group)) == len(source.written))
    # The check can fail: who reads all reads what was begun and never ended.
    everything = Counter(read_by_confluent(cluster.addresses, TARGET, "read_uncommitted"))
    assert everything > counted
