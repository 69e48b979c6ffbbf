"""Test exactly-once processing: Apache Kafka's Java client consumes, transforms and produces in
transactions on three brokers, while each broker and the client itself are killed and restarted."""

from __future__ import annotations

import itertools
import signal
import threading
import time
from collections import Counter

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kserver.wire.api_key import ApiKey
from kserver.wire.special_offsets import LATEST
from tests.integration.clients.transacting import Transactors, read_by_confluent
from tests.support.process_cluster import GROUP, IDS, PATIENCE_S, TRANSACTION, Cluster, until

SOURCE, TARGET, PARTITIONS = "source", "target", 3
AT_ONCE = 25
"""Records written to each partition between two checks of the stop flag."""
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
    """Writes consecutive numbers to the source topic in the background until `stop`."""

    def __init__(self, cluster):
        self.written = Counter()
        self.errors = []
        self._producer = Producer(
            cluster.client
            | {
                "enable.idempotence": True,
                "linger.ms": 5,
                "retry.backoff.ms": 50,
                # The copy must not run out of records while this waits for a paused broker.
                "socket.timeout.ms": 5000,
            }
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
            self._stopped.wait(0.2)  # Limits the write rate.

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
    """Return a group id or transactional id whose coordinator is `broker`."""
    return next(
        name
        for name in (f"x{number}" for number in range(100))
        if cluster.coordinator(name, of) == broker
    )


def committed(cluster, group):
    """Return the committed offset of the group for each partition of the source topic."""
    asker = Consumer(cluster.client | {"group.id": group})
    asked = [TopicPartition(SOURCE, partition) for partition in range(PARTITIONS)]
    try:
        return [p.offset for p in asker.committed(asked, timeout=PATIENCE_S)]
    finally:
        asker.close()


def is_open(cluster, leader, coordinator, transactional_id):
    """Return whether the transaction is ongoing and has records in the target topic."""

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


class Copy:
    """A program copies the source to the target in transactions, while brokers fail."""

    def __init__(self, cluster, source, transactors, library, *, patience_s=PATIENCE_S):
        self.leader, self.transaction_coordinator, group_coordinator = IDS
        self.brokers = {
            "leader": self.leader,
            "transaction coordinator": self.transaction_coordinator,
            "group coordinator": group_coordinator,
        }
        cluster.create(TARGET, PARTITIONS, leader=self.leader)
        self.group = named(cluster, group_coordinator, GROUP)
        self.transactional_id = named(cluster, self.transaction_coordinator, TRANSACTION)
        self._cluster, self._source, self._transactors = cluster, source, transactors
        self._patience_s = patience_s
        transactors.start(
            library,
            "copy",
            bootstrap_server=cluster.addresses,
            source=SOURCE,
            target=TARGET,
            group_id=self.group,
            transactional_id=self.transactional_id,
        )
        (self.copier,) = transactors.each

    def advance(self):
        enough = self.copier.committed + 5
        self._transactors.wait_until(lambda: self.copier.committed >= enough, self._patience_s)

    def kill(self, id_):
        """Returns the seconds until transactions are committed again without the broker."""
        began_s = time.monotonic()
        self._cluster.brokers[id_].kill()
        self.advance()
        took_s = time.monotonic() - began_s
        self._cluster.brokers[id_].start()
        self._cluster.until_in_sync()
        self.advance()
        return took_s

    def pause(self, id_):
        """As `kill`, by SIGSTOP and SIGCONT."""
        began_s = time.monotonic()
        process = self._cluster.brokers[id_].process
        process.send_signal(signal.SIGSTOP)
        self.advance()
        took_s = time.monotonic() - began_s
        process.send_signal(signal.SIGCONT)
        self._cluster.until_in_sync()
        self.advance()
        return took_s

    def finish(self):
        """Each record counts once; returns how often each is in the target."""
        self._source.stop()
        assert not self._source.errors
        assert sum(self._source.written.values()) == len(self._source.written)
        counted = Counter()

        def is_whole():
            counted.clear()
            counted.update(read_by_confluent(self._cluster.addresses, TARGET, "read_committed"))
            return counted.keys() >= self._source.written.keys()

        self._transactors.wait_until(is_whole, self._patience_s)
        assert counted == self._source.written
        # The offsets' part of the transaction may end a moment after that of the records.
        self._transactors.wait_until(
            lambda: sum(committed(self._cluster, self.group)) == len(self._source.written)
        )
        return counted


def test_each_record_counts_once_whichever_part_is_killed(cluster, source, transactors):
    copy = Copy(cluster, source, transactors, "java")
    copy.advance()
    for id_ in copy.brokers.values():
        copy.kill(id_)
    # What it leaves open is ended by the next of its id, with the next coordinator.
    until(
        lambda: copy.copier.is_killed_where(
            lambda: is_open(
                cluster, copy.leader, copy.transaction_coordinator, copy.transactional_id
            )
        )
    )
    copy.kill(copy.transaction_coordinator)
    counted = copy.finish()
    # The check can fail: a reader of all finds what was begun and never ended.
    everything = Counter(read_by_confluent(cluster.addresses, TARGET, "read_uncommitted"))
    assert everything > counted


def test_each_record_counts_once_whichever_part_is_paused(cluster, source, transactors):
    copy = Copy(cluster, source, transactors, "k")
    copy.advance()
    for id_ in (copy.leader, copy.transaction_coordinator):
        copy.pause(id_)
    copy.finish()
