"""Clusters of brokers on this machine, as users start them: one process per broker, default
configs.

Our brokers run on the ZooKeeper of `k zookeeper-server-start`, Apache's 3.9.2 on the ZooKeeper of
its own release, and Apache's 4.3.1 without ZooKeeper: each of its nodes is broker and controller.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kserver.errors import ErrorCode
from kserver.wire.api_key import ApiKey
from kserver.wire.special_offsets import LATEST
from tests.bench.load import batch
from tests.bench.machine import BenchError
from tests.bench.servers import (
    APACHE,
    APACHE_VERSION,
    ELDER_VERSION,
    OURS,
    K,
    Kind,
    Server,
    apache_command,
    compile_packages,
    free_port,
)
from tests.support import apache_kafka
from tests.support.wire_client import WireClient, milliseconds

ALL_IN_SYNC = -1
PATIENCE_S = 120
ASK_AGAIN_S = 0.01
ZOOKEEPER_TIMEOUT_S = 60


class ZooKeeper:
    """A ZooKeeper server, ours or that of Apache's release, with its own directory."""

    def __init__(self, kind: Kind, directory: Path) -> None:
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        directory.mkdir(parents=True)
        if kind is OURS:
            compile_packages()
            config = directory / "zookeeper.properties"
            config.write_text(f"dataDir={directory}/data\nclientPort={self.port}\n")
            command = [sys.executable, "-c", K, "zookeeper-server-start", str(config)]
        else:
            command = [
                *(sys.executable, apache_kafka.__file__, "zookeeper", ELDER_VERSION),
                *("--data", str(directory), "--port", str(self.port)),
            ]
        with open(directory / "output.txt", "ab") as file:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=file
            )

    def wait_until_it_listens(self) -> None:
        deadline = time.monotonic() + ZOOKEEPER_TIMEOUT_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise BenchError("ZooKeeper does not listen") from None
            time.sleep(ASK_AGAIN_S)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


class Cluster:
    """Brokers 1 to `count` of one kind, and their ZooKeeper if they need one."""

    def __init__(self, kind: Kind, directory: Path, count: int = 3) -> None:
        self.kind = kind
        ids = range(1, count + 1)
        self.zookeeper = None if kind is APACHE else ZooKeeper(kind, directory / "zookeeper")
        controllers = {id_: free_port() for id_ in ids}
        quorum = ",".join(f"{id_}@127.0.0.1:{port}" for id_, port in controllers.items())
        self.brokers = {
            id_: Server(
                self._member(id_, quorum), directory / str(id_), *self._settings(id_, count)
            )
            for id_ in ids
        }
        self._topics = 0

    def _settings(self, id_: int, count: int) -> Sequence[str]:
        # Kafka's default; apache_kafka.py sets 1 because its brokers mostly run alone.
        settings = [f"offsets.topic.replication.factor={min(3, count)}"]
        if self.kind is OURS:
            assert self.zookeeper is not None
            settings += [f"broker.id={id_}", f"zookeeper.connect={self.zookeeper.address}"]
        return settings

    def _member(self, id_: int, quorum: str) -> Kind:
        if self.kind is OURS:
            return OURS
        options = ["--broker-id", str(id_)]
        if self.zookeeper is None:
            version = APACHE_VERSION
            options += ["--quorum", quorum]
        else:
            version = ELDER_VERSION
            options += ["--zookeeper", self.zookeeper.address]

        def command(directory: Path, port: int, settings: Sequence[str]) -> list[str]:
            return apache_command(version, directory, port, settings, *options)

        return Kind(self.kind.name, command, self.kind.warm_up_s)

    def start(self) -> float:
        """Start the brokers; return the seconds until the first record is on all of them.

        ZooKeeper and everything that is prepared only once are ready before the measurement.
        """
        if self.zookeeper is not None:
            self.zookeeper.wait_until_it_listens()
        for broker in self.brokers.values():
            broker.directory.mkdir(parents=True, exist_ok=True)
            broker.kind.command(broker.directory, broker.port, broker.settings)
        began = time.perf_counter()
        with ThreadPoolExecutor() as pool:
            list(pool.map(Server.start, self.brokers.values()))
        topic = self.create(1)
        self.write_one(topic)
        return time.perf_counter() - began

    def stop(self) -> None:
        for broker in self.brokers.values():
            if broker.runs:
                broker.kill()
        if self.zookeeper is not None:
            self.zookeeper.stop()

    # Queries

    def survivor(self) -> Server:
        return next(broker for broker in self.brokers.values() if broker.runs)

    @property
    def address(self) -> str:
        return ",".join(broker.address for broker in self.brokers.values())

    def metadata(self, topic: str) -> Any:
        """Return the metadata of one topic from a running broker."""
        with WireClient(self.survivor().address) as client:
            return client.call(
                ApiKey.METADATA, 4, topics=[{"name": topic}], allow_auto_topic_creation=False
            )

    def leaders(self, topic: str) -> Mapping[int, int]:
        """Return the leader of each partition, -1 if it has none."""
        (found,) = self.metadata(topic).topics
        return {
            p.partition_index: p.leader_id if p.error_code is ErrorCode.none else -1
            for p in found.partitions
        }

    def controller(self) -> int:
        """Return the id of the controller; wait until there is one."""
        found: list[int] = []

        def told() -> bool:
            found.append(self._controller())
            return found[-1] in self.brokers

        self.until(told, "has no controller")
        return found[-1]

    def _controller(self) -> int:
        """Return the controller's id, or -1.

        With KRaft, the controller id in metadata is any broker, so the metadata quorum's leader is
        returned.
        """
        with WireClient(self.survivor().address) as client:
            if self.kind is not APACHE:
                return int(client.call(ApiKey.METADATA, 4, topics=[]).controller_id)
            partitions = [{"partition_index": 0}]
            asked = [{"topic_name": "__cluster_metadata", "partitions": partitions}]
            (found,) = client.call(ApiKey.DESCRIBE_QUORUM, 0, topics=asked).topics
        return int(found.partitions[0].leader_id)

    def coordinator(self, group: str) -> int:
        """Return the id of the group's coordinator, as soon as it has one."""
        found: list[int] = []

        def told() -> bool:
            with WireClient(self.survivor().address) as client:
                answer = client.call(ApiKey.FIND_COORDINATOR, 0, key=group)
            found.append(int(answer.node_id))
            return answer.error_code is ErrorCode.none

        self.until(told, "names no coordinator")
        return found[-1]

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Wait until `holds` returns true. Raises BenchError if it does not in `PATIENCE_S`."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                if holds():
                    return
            except OSError:
                pass  # no broker responds, or none yet
            if time.monotonic() > deadline:
                raise BenchError(f"a cluster of {self.kind.name} {what}")
            time.sleep(ASK_AGAIN_S)

    def until_whole(self, topic: str) -> None:
        """Wait until each replica of the topic is in sync, which requires that all its brokers
        run."""

        def whole() -> bool:
            (found,) = self.metadata(topic).topics
            return all(len(p.isr_nodes) == len(p.replica_nodes) for p in found.partitions)

        self.until(whole, "does not get in sync")

    def create(
        self, partitions: int, *, leader: int | None = None, replicas: int | None = None
    ) -> str:
        """Create a topic, on all brokers unless `replicas` is given; `leader` leads all its
        partitions.

        Tries again until enough brokers are registered.
        """
        self._topics += 1
        name = f"bench-{self._topics}"
        count = replicas or len(self.brokers)
        others = [id_ for id_ in self.brokers if id_ != leader]
        wanted: dict[str, Any] = {"num_partitions": partitions, "replication_factor": count}
        if leader is not None:
            assigned = [
                {"partition_index": index, "broker_ids": [leader, *others][:count]}
                for index in range(partitions)
            ]
            wanted = {"num_partitions": -1, "replication_factor": -1, "assignments": assigned}

        def made() -> bool:
            with WireClient(self.survivor().address, timeout_s=PATIENCE_S) as client:
                controller = client.call(ApiKey.METADATA, 4, topics=[])
                at = {b.node_id: f"{b.host}:{b.port}" for b in controller.brokers}
            if len(at) < count or controller.controller_id not in at:
                return False
            with WireClient(at[controller.controller_id], timeout_s=PATIENCE_S) as client:
                (answer,) = client.call(
                    ApiKey.CREATE_TOPICS,
                    5,
                    topics=[{"name": name} | wanted],
                    timeout=milliseconds(30_000),
                ).topics
            return answer.error_code in (ErrorCode.none, ErrorCode.topic_already_exists)

        self.until(made, "makes no topic")
        alive = set(self.brokers)
        self.until(lambda: self.is_led(name, partitions, alive), "has no leaders")
        self.until(lambda: self.serves(name), "does not serve what it leads")
        return name

    def is_led(self, topic: str, partitions: int, by: set[int]) -> bool:
        led = self.leaders(topic)
        return len(led) == partitions and set(led.values()) <= by

    def serves(self, topic: str) -> bool:
        """Return whether each leader serves its partitions."""
        led: dict[int, list[int]] = {}
        for partition, leader in self.leaders(topic).items():
            led.setdefault(leader, []).append(partition)
        for leader, partitions in led.items():
            asked = [{"partition_index": p, "timestamp": LATEST} for p in partitions]
            with WireClient(self.brokers[leader].address) as client:
                (answer,) = client.call(
                    ApiKey.LIST_OFFSETS,
                    2,
                    replica_id=-1,
                    topics=[{"name": topic, "partitions": asked}],
                ).topics
            if any(p.error_code is not ErrorCode.none for p in answer.partitions):
                return False
        return True

    def write_one(self, topic: str) -> None:
        """Produce one record with acks=all."""
        data = {"index": 0, "records": batch(1)}
        asked = [{"name": topic, "partition_data": [data]}]

        def written() -> bool:
            with WireClient(self.brokers[self.leaders(topic)[0]].address) as client:
                answer = client.call(
                    ApiKey.PRODUCE,
                    7,
                    acks=ALL_IN_SYNC,
                    timeout=milliseconds(30_000),
                    topic_data=asked,
                ).responses[0]
            return answer.partition_responses[0].error_code is ErrorCode.none

        self.until(written, "takes no record")

    def end_offsets(self, topic: str) -> int:
        """Return the sum of the end offsets of all partitions."""
        found = 0
        for partition, leader in self.leaders(topic).items():
            asked = {
                "name": topic,
                "partitions": [{"partition_index": partition, "timestamp": LATEST}],
            }
            with WireClient(self.brokers[leader].address) as client:
                (answer,) = client.call(
                    ApiKey.LIST_OFFSETS, 2, replica_id=-1, topics=[asked]
                ).topics
            found += answer.partitions[0].offset
        return found

    def cpu_s(self) -> float:
        """Return the CPU time that all brokers have used."""
        return sum(broker.cpu_s() for broker in self.brokers.values())

    # Actions

    def terminate(self, id_: int) -> None:
        """Send SIGTERM and do not wait for the end."""
        os.kill(self.brokers[id_].pid, signal.SIGTERM)

    def bring_back(self, id_: int, topic: str) -> None:
        """Restart the broker after it has ended, and wait until the topic's replicas are in
        sync."""
        broker = self.brokers[id_]
        if broker.runs:
            broker.stop()
        broker.start()
        self.until_whole(topic)


@contextmanager
def running(kind: Kind, directory: Path, count: int = 3) -> Iterator[Cluster]:
    cluster = Cluster(kind, directory, count)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
