"""Test commands and clients that keep running while each of three brokers is stopped or killed in
turn and restarted, so that leaders, coordinators and the controller move."""

from __future__ import annotations

import subprocess
import threading
import time
from collections import Counter

import pytest

from kcli.client import Blocking, Consumer, Producer, TopicPartition
from kcli.testing.broker_nursery import Nursery
from kcli.testing.kafka_cluster import KafkaCluster
from tests.support.tools import K

PATIENCE_S = 100
PARTITIONS = 3
PAUSE_S = 0.02
LINES_AT_ONCE = 5
SETTINGS = {
    "num.partitions": PARTITIONS,
    "min.insync.replicas": 2,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
}
CONSUMERS = {
    "classic": (),
    "new": ("--command-property", "group.protocol=consumer"),
}


@pytest.fixture
def cluster(tmp_path):
    with Nursery() as nursery:
        cluster = KafkaCluster(nursery, tmp_path / "cluster", 3, SETTINGS)
        cluster.open()
        try:
            yield cluster
        finally:
            for name, log in cluster.logs.items():
                print(f"--- {name}\n{log}")  # pytest shows it with a failure
            cluster.close()


class Running:
    """A running command, and the lines that it has printed."""

    def __init__(self, cluster, command, *words):
        words = [*K, command, "--bootstrap-server", cluster.bootstrap_servers, *words]
        self.process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []
        self.errors: list[str] = []
        self._readers = [
            threading.Thread(
                target=lambda: self.lines.extend(map(str.rstrip, self.process.stdout))
            ),
            threading.Thread(target=lambda: self.errors.extend(self.process.stderr)),
        ]
        for reader in self._readers:
            reader.start()

    def wait_for(self, count):
        """Wait until the command has printed `count` lines."""
        deadline = time.monotonic() + PATIENCE_S
        while len(self.lines) < count:
            assert self.process.poll() is None, self.errors
            assert time.monotonic() < deadline, (len(self.lines), count, self.errors)
            time.sleep(PAUSE_S)

    def end(self, *, kill=False):
        """End the command and return its exit status."""
        if kill:
            self.process.kill()
        self.process.stdin.close()
        status = self.process.wait(PATIENCE_S)
        for reader in self._readers:
            reader.join()
        self.process.stdout.close()
        self.process.stderr.close()
        return status


class Steady:
    """Calls `work` with 0, 1, ... in a thread, until `end`."""

    def __init__(self, work):
        self.count = 0
        self.failure = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(work,))
        self._thread.start()

    def _run(self, work):
        try:
            while not self._ended.wait(PAUSE_S):
                work(self.count)
                self.count += 1
        except Exception as error:
            self.failure = error

    def end(self):
        """Stop the thread and return the number of calls."""
        self._ended.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        if self.failure is not None:
            raise self.failure
        return self.count


def each_goes_and_comes_back(cluster, leave):
    for id in (1, 2, 3):
        leave(cluster, id)
        for partition in range(PARTITIONS):
            cluster.leader_of("orders", partition)
        cluster.start(id)
        for topic in ("orders", "copied", "__consumer_offsets", "__transaction_state"):
            cluster.wait_in_sync(topic)


@pytest.mark.parametrize("leave", [KafkaCluster.stop, KafkaCluster.kill], ids=["stop", "kill"])
def test_nobody_loses_a_record_or_ends(cluster, leave):
    client = {"bootstrap.servers": cluster.bootstrap_servers}
    with Blocking(Producer, client) as producer:
        for topic in ("orders", "copied"):
            producer.send(topic, b"0").result()
    with Blocking(Producer, client | {"transactional.id": "copier"}) as copier:
        copier.init_transactions()

        def copy(number):
            with copier.transaction():
                for partition in range(PARTITIONS):
                    copier.send("copied", str(number).encode(), partition=partition)

        # Start the consumers before the load, so that they live through every restart.
        consumers = {
            name: Running(
                cluster,
                "console-consumer",
                *("--topic", "orders", "--group", name, "--from-beginning", *words),
            )
            for name, words in CONSUMERS.items()
        }
        for consumer in consumers.values():
            consumer.wait_for(1)
        sender = Running(cluster, "console-producer", "--topic", "orders")

        def send(number):
            first = 1 + number * LINES_AT_ONCE
            sender.process.stdin.writelines(f"{first + i}\n" for i in range(LINES_AT_ONCE))
            sender.process.stdin.flush()

        # Produce and copy while each broker goes away and comes back.
        sending, copying = Steady(send), Steady(copy)
        each_goes_and_comes_back(cluster, leave)
        count, copies = sending.end() * LINES_AT_ONCE + 1, copying.end()
        assert sender.end() == 0, sender.errors
    try:
        for name, consumer in consumers.items():
            consumer.wait_for(count)
            assert Counter(map(int, consumer.lines)) == Counter(range(count)), name
    finally:
        for consumer in consumers.values():
            consumer.end(kill=True)
    # The slice leaves out the record that was sent before the transactions.
    found = committed(client)
    for partition in range(PARTITIONS):
        assert found[partition][-copies:] == list(range(copies)), partition
    for name in CONSUMERS:
        words = ("--bootstrap-server", cluster.bootstrap_servers, "--describe", "--group", name)
        described = subprocess.run(
            [*K, "consumer-groups", *words], capture_output=True, text=True, timeout=PATIENCE_S
        )
        assert described.returncode == 0, described.stderr


def committed(client):
    """Return the values of "copied", by partition, as a read_committed consumer gets them."""
    found = {partition: [] for partition in range(PARTITIONS)}
    with Blocking(Consumer, client | {"isolation.level": "read_committed"}) as consumer:
        partitions = [TopicPartition("copied", number) for number in range(PARTITIONS)]
        consumer.assign(partitions)
        consumer.seek_to_beginning(partitions)
        ends = consumer.end_offsets(partitions)
        while any(consumer.position(one) < ends[one] for one in partitions):
            for record in consumer.poll(1000):
                found[record.partition].append(int(record.value))
    return found
