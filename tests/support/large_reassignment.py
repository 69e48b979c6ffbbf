"""Reassignment of gigabyte partitions under load, with a throttle. The broker that they move to and
the controller are killed meanwhile, and reassignments are cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from kcli.client import Blocking, Producer
from kcli.local_cluster.membership import is_complete
from kcli.testing.kafka_cluster import KafkaCluster
from tests.support.brokers import until
from tests.support.moves import Moves
from tests.support.opened_cluster import opened_cluster
from tests.support.steady_load import SteadyLoad
from tests.support.tools import K

TOPIC, LOAD, LOAD_PARTITIONS = "large", "load", 4
RECORD_BYTES = 10_000
BATCH_BYTES = 32_768
"""Small compared with a fetch of 1 MB. A fetch may end with a part of a batch; the throttle counts
this part, and it is sent again.
"""
THROTTLE = 30_000_000
"""Bytes a second."""
SETTINGS = {"zookeeper.session.timeout.ms": 4000, "offsets.topic.num.partitions": 2}


class RateBounds(NamedTuple):
    """Bounds of a rate as fractions of the throttle, and the seconds over which it is measured."""

    least: float
    most: float
    window_s: int


QUIET = RateBounds(0.9, 1.1, 10)
"""For a machine that is otherwise idle."""
BUSY = RateBounds(0.0, 1.5, 5)
"""For a busy machine, where delayed replication may catch up."""


def reassign_under_load(
    directory: Path,
    *,
    partitions: int,
    partition_bytes: int,
    throttle: int,
    rates: RateBounds,
) -> None:
    """Reassign; `throttle` is in bytes a second, `rates` is QUIET or BUSY."""
    with opened_cluster(directory, 3, SETTINGS) as cluster:
        large = LargeReassignment(cluster, partitions, partition_bytes, throttle, rates)
        large.fill()
        large.ask("topics", "--create", "--topic", LOAD, "--partitions", LOAD_PARTITIONS)
        client = {"bootstrap.servers": cluster.bootstrap_servers}
        with SteadyLoad(client, LOAD, LOAD_PARTITIONS) as load:
            load.advance()
            new = cluster.add()
            large.move_to(new, load)
            load.advance()
            large.take_back(new, large.cancel())
            load.advance()
        load.check()
        large.check()


def fill(servers: str, topic: str, partitions: int, records: int) -> None:
    """Produce `records` records to each partition."""
    values = [os.urandom(RECORD_BYTES) for _ in range(16)]
    settings = {"bootstrap.servers": servers, "batch.size": str(BATCH_BYTES)}
    with Blocking(Producer, settings) as producer:
        for number in range(records):
            for partition in range(partitions):
                producer.send(topic, values[number % 16], partition=partition)
        producer.flush()


def assignment(partitions: int) -> dict[int, list[int]]:
    """Return two of the brokers 1 to 3 for each partition."""
    return {n: [1 + n % 3, 1 + (n + 1) % 3] for n in range(partitions)}


def write_plan(file: Path, topic: str, replicas: Mapping[int, list[int]]) -> tuple[str, str]:
    """Write a plan; return the option of `k reassign-partitions` that names it."""
    moves = [{"topic": topic, "partition": n, "replicas": of} for n, of in replicas.items()]
    file.write_text(json.dumps({"version": 1, "partitions": moves}))
    return ("--reassignment-json-file", str(file))


def log_bytes(directory: Path, partitions: str) -> int:
    """Return the bytes of the logs of the partitions whose directories match a pattern."""
    size = 0
    for log in directory.glob(f"**/{partitions}/*.log"):
        with contextlib.suppress(FileNotFoundError):  # deleted since it was listed
            size += log.stat().st_size
    return size


class LargeReassignment(Moves):
    def __init__(
        self,
        cluster: KafkaCluster,
        partitions: int,
        partition_bytes: int,
        throttle: int,
        rates: RateBounds,
    ) -> None:
        super().__init__(cluster, TOPIC, 120 + 4 * partitions * partition_bytes / throttle)
        self.throttle = throttle
        self.partitions = partitions
        self.records = partition_bytes // RECORD_BYTES
        """Records of each partition."""
        self.rates = rates

    def fill(self) -> None:
        """Create and fill the topic with two replicas of each partition, on the brokers 1 to 3."""
        placed = assignment(self.partitions).values()
        words = ",".join(":".join(map(str, replicas)) for replicas in placed)
        self.ask("topics", "--create", "--topic", TOPIC, "--replica-assignment", words)
        fill(self.cluster.bootstrap_servers, TOPIC, self.partitions, self.records)

    def move_to(self, new: int, load: SteadyLoad) -> None:
        """Reassign, kill the new broker, check the throttle, and kill the controller."""
        plan = self.reassign("--plan", "rebalance", "--throttle", str(self.throttle))
        try:
            self.kill_target(new, load)
            self.check_rate(new)
            killed = self.cluster.controller
            self.cluster.kill(killed)
            assert self.cluster.controller != killed
            assert self.is_adding(new)
            self.cluster.start(killed)
            assert plan.wait(self.patience_s) == 0
        finally:
            plan.kill()
        assert self.moving() == self.throttles() == []
        counts = self.replica_counts()
        assert counts[new] > 0
        assert max(counts.values()) - min(counts.values()) <= 1

    def kill_target(self, new: int, load: SteadyLoad) -> None:
        """Kill the broker that partitions move to; start it once all others know.

        The reassignment continues from the records that it has.
        """
        until(lambda: self.held_by(new) > self.throttle, self.patience_s)
        self.cluster.kill(new)
        held = self.held_by(new)
        until(self.others_know, self.patience_s)
        load.advance()
        self.cluster.start(new)
        # A batch at the end of each log may be incomplete.
        assert self.held_by(new) >= held - self.partitions * BATCH_BYTES
        assert self.is_adding(new)

    def check_rate(self, new: int) -> None:
        """Check the throttle."""
        # After a start the first second's quota may be used at once.
        begin = self.held_by(new)
        until(lambda: self.held_by(new) > begin + 2 * self.throttle, self.patience_s)
        since, held = time.monotonic(), self.held_by(new)
        time.sleep(self.rates.window_s)  # a rate is measured
        copied = self.held_by(new) - held
        rate = copied / (time.monotonic() - since) / self.throttle
        print(f"{rate:.2f} of the throttle")
        assert self.rates.least <= rate <= self.rates.most

    def cancel(self) -> dict[int, list[int]]:
        """Cancel a reassignment with --cancel while its records are copied; return the replicas.

        A few partitions may arrive before: brokers learn of the throttle after the reassignment has
        begun, and a slow machine delays the cancellation.
        """
        before = self.replicas()
        added = {n: min(set(self.cluster.running) - set(of)) for n, of in before.items()}
        wanted = {n: [added[n], *of[1:]] for n, of in before.items()}
        plan = write_plan(self.cluster.directory / "cancelled.json", TOPIC, wanted)
        words = (*plan, "--throttle", self.throttle // 10)
        self.ask("reassign-partitions", "--execute", *words)
        until(lambda: self.copied_bytes(added) > 0, self.patience_s)
        output = self.ask("reassign-partitions", "--cancel", *plan)
        told = re.search(
            r"^Successfully cancelled partition reassignments for: (.*)$", output, re.M
        )
        assert told, output
        cancelled = {int(word) for word in re.findall(rf"{TOPIC}-(\d+)", told[1])}
        print(f"{len(cancelled)} of {len(added)} were cancelled")
        # The order is lost: it becomes that of the target, in Kafka too.
        after = self.replicas()
        for n, replicas in after.items():
            assert set(replicas) == set((before if n in cancelled else wanted)[n]), n
        gone = {n: id for n, id in added.items() if n in cancelled}
        until(lambda: self.copied_bytes(gone) == 0, self.patience_s)
        return after

    def take_back(self, new: int, before: dict[int, list[int]]) -> None:
        """Interrupt a reassignment with Ctrl-C, and undo it; `before` has the replicas."""
        words = ("--plan", "evacuate", "--broker-list", str(new), "--throttle", str(self.throttle))
        plan = self.reassign(*words)
        try:
            until(lambda: TOPIC in {one["topic"] for one in self.moving()}, self.patience_s)
            plan.send_signal(signal.SIGINT)
            assert plan.wait(self.patience_s) == 130
        finally:
            plan.kill()
        assert self.moving() == self.throttles() == []
        self.ask("reassign-partitions", "--undo", *self.journal)
        assert self.replicas() == before

    def check(self) -> None:
        """Check that every record is there, and that all replicas of a partition hold the same
        bytes.
        """
        told = self.ask("get-offsets", "--topic", TOPIC)
        assert sorted(map(int, re.findall(r":(\d+)$", told, re.M))) == (
            [self.records] * self.partitions
        )
        self.ask("replica-verification", "--sums", "--topics-include", TOPIC)

    # State of the cluster

    @property
    def journal(self) -> tuple[str, str]:
        return ("--journal", str(self.cluster.directory / "journal.json"))

    def reassign(self, *words: str) -> subprocess.Popen[bytes]:
        servers = ("--bootstrap-server", self.cluster.running_servers)
        given = (*words, "--execute", *self.journal, *servers)
        return subprocess.Popen([*K, "reassign-partitions", *given], stdout=subprocess.DEVNULL)

    def replica_counts(self) -> Counter[int]:
        """Return the number of replicas of all topics by broker."""
        described = json.loads(self.ask("topics", "--describe", "-o", "json"))["items"]
        return Counter(id for one in described for id in one["replicas"])

    def held_by(self, id: int) -> int:
        """Return the bytes of the large topic on a broker's disk."""
        return log_bytes(self.cluster.directory / f"broker-{id}", f"{TOPIC}-*")

    def copied_bytes(self, added: Mapping[int, int]) -> int:
        """Return the bytes of partitions on the disks of the brokers that `added` has for them."""
        return sum(
            log_bytes(self.cluster.directory / f"broker-{id}", f"{TOPIC}-{partition}")
            for partition, id in added.items()
        )

    def is_adding(self, id: int) -> bool:
        """Return whether replicas are being added on a broker."""
        return any(id in partition["adding"] for partition in self.moving())

    def others_know(self) -> bool:
        """Return whether the running brokers know which run, and have a controller."""
        running = self.cluster.running
        addresses = [self.cluster.brokers[id].address for id in running]
        return asyncio.run(is_complete(addresses, running))
