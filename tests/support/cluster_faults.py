"""Faults of a cluster of processes under load, and a check that every record survives.

A cell is a fault, its target, a client library and its workload.  Three brokers have three
roles then: one is controller; another leads the topic, and coordinates the group or transactions of
the load; the third follows.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from random import Random
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.integration.clients.catalogue import HERE
from tests.integration.clients.teller import Teller
from tests.support import apache_kafka
from tests.support.brokers import QUICK_START
from tests.support.namespaces import Seat
from tests.support.process import BrokerProcess
from tests.support.process_cluster import GROUP, PATIENCE_S, TRANSACTION, Cluster
from tests.support.tools import require
from tests.support.zookeeper_server import ZooKeeperServer

JAVA = "4.3.1"
KILL, PAUSE, STOP, CUT = "kill", "pause", "stop", "cut"
CUT_OUTGOING, CUT_INCOMING = "cut-outgoing", "cut-incoming"
"""The packets that the target sends are lost, or those sent to it."""
CUT_PEER = "cut-peer"
"""The packets between the target and one broker are lost; PEERS has the role of this broker."""
FAULTS = (KILL, PAUSE, STOP, CUT, CUT_OUTGOING, CUT_INCOMING, CUT_PEER)
CUTS: Mapping[str, Callable[[Seat, Seat], None]] = {
    CUT: lambda seat, peer: seat.cut(),
    CUT_OUTGOING: lambda seat, peer: seat.cut_outgoing(),
    CUT_INCOMING: lambda seat, peer: seat.cut_incoming(),
    CUT_PEER: Seat.cut_from,
}
LEADER, FOLLOWER, CONTROLLER, ZOOKEEPER = "leader", "follower", "controller", "zookeeper"
TARGETS = (LEADER, FOLLOWER, CONTROLLER, ZOOKEEPER)
PEERS = {LEADER: FOLLOWER, FOLLOWER: CONTROLLER, CONTROLLER: LEADER, ZOOKEEPER: LEADER}
LIBRARIES = ("confluent", "java", "k")
WRITE, TRANSACT, READ = "write", "transact", "read"
WORKLOADS = (WRITE, TRANSACT, READ)
SETTINGS = {"replica.lag.time.max.ms": 5000}
"""A leader that is cut off from a follower removes it from the ISR soon."""
SESSION_S = 2.0
HOLD_S = SESSION_S + 1.5
"""Seconds for which a process is paused or cut off: until its session has ended."""
SOME = 100
"""Numbers that count as progress."""
NAMES = 12
"""Names to try until one is a group or transactional id that the controller does not coordinate."""


class Cell(NamedTuple):
    fault: str
    target: str
    library: str
    workload: str

    def __str__(self) -> str:
        return "-".join(self)


class Worker:
    """One of tests/integration/clients/workers, in a process of its own."""

    def __init__(self, library: str, mode: str, **options: str) -> None:
        self.name = f"{library} {mode}"
        self.done: list[int] = []
        self.failed: list[str] = []
        self.said: list[str] = []
        self._told = threading.Condition()
        words = [w for k, v in options.items() for w in (f"--{k.replace('_', '-')}", v)]
        command = [*_program(library), mode, *words]
        self._process = Teller(command, self._told, self._take, self.said.append)

    def _take(self, line: str) -> None:
        told = json.loads(line)
        self.done += told.get("done", ())
        if "failed" in told:
            self.failed.append(told["failed"])

    def until_done(self, count: int) -> None:
        """Wait until it has processed `count` numbers in all."""

        def is_done() -> bool:
            return len(self.done) >= count or bool(self.failed) or not self._process.is_running

        with self._told:
            self._told.wait_for(is_done, PATIENCE_S)
            assert len(self.done) >= count, f"{self.name} does not go on: {self.story()}"

    def until_progress(self) -> None:
        self.until_done(len(self.done) + SOME)

    def stop(self) -> None:
        """Stop the worker once it has finished what it began."""
        self._process.stop()
        assert not self.failed, f"{self.name}: {self.story()}"

    def kill(self) -> None:
        self._process.kill()

    def story(self) -> str:
        return f"{len(self.done)} done, {self.failed[:5]}, {''.join(self.said[-20:])}"


def _program(library: str) -> list[str]:
    if library == "java":
        libraries = f"{apache_kafka.install(JAVA)}/libs/*"
        source = str(HERE / "java" / "Worker.java")
        return [require("java"), "-Xmx256M", *QUICK_START.split(), "-cp", libraries, source]
    if library == "confluent":
        require("confluent_kafka")
    return [sys.executable, str(HERE / "workers" / f"{library}_worker.py")]


def strike(cluster: Cluster, cell: Cell, name: str) -> str:
    """Run the cell's fault under its load, and return the load's topic. Raises AssertionError if a
    record is lost, duplicated or reordered, or if a client has an error that it must not see.
    """
    controller, leader, key = roles(cluster, cell.workload, name)
    with under_load(cluster, cell.library, cell.workload, name, leader, key) as load:
        harm(cluster, cell, controller, leader, load)
    return f"{name}-topic"


def storm(cluster: Cluster, library: str, workload: str, random: Random, rounds: int) -> str:
    """Do the same with one fault after the other, each of any broker and of any length: roles move,
    and clients come back to brokers that had them before.
    """
    _, leader, key = roles(cluster, workload, "storm")
    with under_load(cluster, library, workload, "storm", leader, key) as load:
        for number in range(rounds):
            id_ = random.choice((cluster.controller(), *cluster.brokers))
            fault = random.choice((PAUSE, PAUSE, KILL, CUT, CUT_OUTGOING, CUT_INCOMING))
            held_s = random.uniform(0, random.choice((SESSION_S, 3 * SESSION_S)))
            print(f"round {number}: {fault} of broker {id_} for {held_s:.1f} s", flush=True)
            undo = begin(cluster, fault, cluster.brokers[id_], cluster.brokers[id_])
            try:
                time.sleep(held_s)  # the time is what is tested
            finally:
                undo()
            load.until_progress()
            cluster.until_in_sync("storm-topic")
    return "storm-topic"


@contextmanager
def under_load(
    cluster: Cluster, library: str, workload: str, name: str, leader: int, key: str
) -> Iterator[Worker]:
    """Yield the worker whose progress counts, once it has made some; `key` is its group or
    transactional id. Afterwards, everything is in sync, it goes on, and all records are there.
    """
    topic = f"{name}-topic"
    cluster.create(topic, leader=leader)
    cluster.until_in_sync(topic)
    with ExitStack() as stack:

        def started(mode: str, **options: str) -> Worker:
            worker = Worker(library, mode, bootstrap_server=cluster.addresses, **options)
            stack.callback(worker.kill)
            return worker

        reader = None
        if workload == TRANSACT:
            worker = started(TRANSACT, topic=topic, transactional_id=key)
        else:
            worker = started(WRITE, topic=topic)
        if workload == READ:
            reader = started(READ, topic=topic, group_id=key)
        watched = reader or worker
        watched.until_done(SOME)
        yield watched
        watched.until_progress()
        cluster.until_in_sync(topic)
        watched.until_progress()
        worker.stop()
        expect(worker, worker.done)
        if reader is not None:
            reader.until_done(len(worker.done))
            reader.stop()
            expect(reader, reader.done)
            assert len(reader.done) == len(worker.done)
        found = in_order(written(cluster, topic, "read_committed"))
        assert found == f"0 to {len(worker.done)}", found
        if workload == TRANSACT:
            # This check can fail: a reader of uncommitted records reads aborted ones.
            assert -1 in written(cluster, topic, "read_uncommitted")
        cluster.until_in_sync(topic)


def roles(cluster: Cluster, workload: str, name: str) -> tuple[int, int, str]:
    """Return the controller, another broker, and a name that this one coordinates. If the
    controller coordinates all names, return any name and broker.
    """
    controller = cluster.controller()
    leader = next(id_ for id_ in cluster.brokers if id_ != controller)
    if workload != WRITE:
        of = GROUP if workload == READ else TRANSACTION
        for number in range(NAMES):
            key = f"{name}-{number}"
            coordinator = cluster.coordinator(key, of)
            if coordinator != controller:
                return controller, coordinator, key
    return controller, leader, name


def harm(cluster: Cluster, cell: Cell, controller: int, leader: int, load: Worker) -> None:
    """Start and end the fault. The load continues meanwhile if a broker is the target; a leader
    without its controller waits, as the in-sync replicas cannot change.
    """
    (follower,) = set(cluster.brokers) - {controller, leader}
    ids = {LEADER: leader, FOLLOWER: follower, CONTROLLER: controller}
    is_broker = cell.target in ids
    target = cluster.brokers[ids[cell.target]] if is_broker else cluster.zookeeper_leader()
    undo = begin(cluster, cell.fault, target, cluster.brokers[ids[PEERS[cell.target]]])
    began = time.monotonic()
    try:
        if is_broker and (cell.fault, cell.target) != (CUT_PEER, CONTROLLER):
            load.until_progress()
        if cell.fault in (PAUSE, *CUTS) or not is_broker:
            time.sleep(max(0.0, began + HOLD_S - time.monotonic()))  # the time is what is tested
    finally:
        undo()


def begin(
    cluster: Cluster, fault: str, target: BrokerProcess | ZooKeeperServer, peer: BrokerProcess
) -> Callable[[], object]:
    """Start the fault, and return a function that ends it."""
    assert target.process is not None
    if fault == PAUSE:
        pid = target.process.pid
        os.kill(pid, signal.SIGSTOP)
        return lambda: os.kill(pid, signal.SIGCONT)
    if fault in CUTS:
        seat = cluster.seats[target]
        CUTS[fault](seat, cluster.seats[peer])
        return seat.heal
    if fault == KILL:
        target.kill()
    elif isinstance(target, BrokerProcess):
        assert target.stop() == 0
    else:
        target.process.send_signal(signal.SIGTERM)
        target.process.wait(PATIENCE_S)
    return target.start


def written(cluster: Cluster, topic: str, isolation: str) -> list[int]:
    """Return the numbers in partition 0, up to its end."""
    consumer = Consumer(
        cluster.client
        | {
            "group.id": "none",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[int] = []
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        for message in consumer.consume(1000, timeout=1):
            error = message.error()
            if error is None:
                found.append(int(message.value() or b""))
            elif error.code() == KafkaError._PARTITION_EOF:
                consumer.close()
                return found
    raise AssertionError(f"{topic} has no end")


def expect(worker: Worker, numbers: Sequence[int]) -> None:
    found = in_order(numbers)
    assert found == f"0 to {len(numbers)}", f"{worker.name}: {found}"


def check_at_rest(cluster: Cluster, topic: str) -> None:
    """Kill the brokers; check that replicas are equal, and that no broker logged a traceback."""
    for broker in cluster.brokers.values():
        broker.kill()
    first, *others = (cluster.log_of(broker, topic) for broker in cluster.brokers.values())
    assert first
    assert [other == first for other in others] == [True, True]
    output = "".join(line for broker in cluster.brokers.values() for line in broker.output)
    assert "Traceback" not in output, output[output.index("Traceback") - 500 :][:3000]


def in_order(numbers: Sequence[int]) -> str:
    """Return whether the numbers ascend from 0, else the first error, the missing and the
    duplicates.
    """
    for place, number in enumerate(numbers):
        if place != number:
            missing = sorted(set(range(max(numbers) + 1)) - set(numbers))
            twice = len(numbers) - len(set(numbers))
            around = numbers[max(0, place - 2) : place + 3]
            return (
                f"{number} at {place} ({around}); {len(missing)} missing {missing[:5]}, "
                f"{twice} twice; {len(numbers)} in all"
            )
    return f"0 to {len(numbers)}"
