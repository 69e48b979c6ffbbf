"""Reassignment of gigabyte partitions under load, with a throttle; the controller is killed
meanwhile, and a reassignment is cancelled.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path

from kcli.client import Blocking, Producer
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
WINDOW_S = 10
"""Seconds over which the rate is measured."""
QUIET = (0.9, 1.1)
"""Bounds of the rate as fractions of the throttle, on a machine that is otherwise idle."""
BUSY = (0.0, 1.5)
"""The same on a busy machine, where delayed replication may catch up."""
SETTINGS = {"zookeeper.session.timeout.ms": 4000, "offsets.topic.num.partitions": 2}


def reassign_under_load(
    directory: Path,
    *,
    partitions: int,
    partition_bytes: int,
    throttle: int,
    rates: tuple[float, float],
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
            large.move_to(new)
            load.advance()
            large.take_back(new)
            load.advance()
        load.check()
        large.check()


class LargeReassignment(Moves):
    def __init__(
        self,
        cluster: KafkaCluster,
        partitions: int,
        partition_bytes: int,
        throttle: int,
        rates: tuple[float, float],
    ) -> None:
        super().__init__(cluster, TOPIC, 120 + 4 * partitions * partition_bytes / throttle)
        self.throttle = throttle
        self.partitions = partitions
        self.records = partition_bytes // RECORD_BYTES
        """Records of each partition."""
        self.rates = rates

    def fill(self) -> None:
        """Create and fill the topic with two replicas of each partition, on the brokers 1 to 3."""
        placed = ",".join(f"{1 + n % 3}:{1 + (n + 1) % 3}" for n in range(self.partitions))
        self.ask("topics", "--create", "--topic", TOPIC, "--replica-assignment", placed)
        values = [os.urandom(RECORD_BYTES) for _ in range(16)]
        servers = self.cluster.bootstrap_servers
        settings = {"bootstrap.servers": servers, "batch.size": str(BATCH_BYTES)}
        with Blocking(Producer, settings) as producer:
            for number in range(self.records):
                for partition in range(self.partitions):
                    producer.send(TOPIC, values[number % 16], partition=partition)
            producer.flush()

    def move_to(self, new: int) -> None:
        """Reassign, check the throttle, and kill the controller meanwhile."""
        plan = self.reassign("--plan", "rebalance", "--throttle", str(self.throttle))
        try:
            # The first second's quota may be used at once.
            until(lambda: self.held_by(new) > 2 * self.throttle, self.patience_s)
            since, held = time.monotonic(), self.held_by(new)
            time.sleep(WINDOW_S)  # a rate is measured
            came = self.held_by(new) - held
            rate = came / (time.monotonic() - since) / self.throttle
            print(f"{rate:.2f} of the throttle")
            least, most = self.rates
            assert least <= rate <= most
            killed = self.cluster.controller
            self.cluster.kill(killed)
            assert self.cluster.controller != killed
            self.cluster.start(killed)
            assert plan.wait(self.patience_s) == 0
        finally:
            plan.kill()
        assert self.moving() == self.throttles() == []
        assert self.replicas_of(new) >= self.partitions // 2

    def take_back(self, new: int) -> None:
        """Interrupt a reassignment with Ctrl-C, and undo it."""
        before = self.replicas()
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

    def replicas_of(self, id: int) -> int:
        return sum(id in replicas for replicas in self.replicas().values())

    def held_by(self, id: int) -> int:
        """Return the bytes of the large topic on a broker's disk."""
        logs = (self.cluster.directory / f"broker-{id}").glob(f"**/{TOPIC}-*/*.log")
        return sum(log.stat().st_size for log in logs)
