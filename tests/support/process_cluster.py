"""Three brokers of ours, each a process, on one ZooKeeper.

    with Cluster(tmp_path) as cluster:
        cluster.create("topic")

`Cluster(tmp_path, network=Namespaces())` runs each process in a network that can be cut.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

from confluent_kafka.admin import AdminClient

from kserver.errors import ErrorCode
from kserver.wire.api_key import ApiKey
from tests.support.namespaces import Namespaces, Seat
from tests.support.process import BrokerProcess
from tests.support.wire_client import WireClient, milliseconds
from tests.support.zookeeper_server import OwnZooKeeperServer, ZooKeeperEnsemble, ZooKeeperServer

PATIENCE_S = 90
ASK_AGAIN_S = 0.05
IDS = (1, 2, 3)
SETTINGS: Mapping[str, object] = {
    "zookeeper.session.timeout.ms": 2000,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
    "group.initial.rebalance.delay.ms": 0,
}
OWN, APACHE, ENSEMBLE = "own", "apache", "ensemble"
"""ZooKeepers: ours, Apache's one node, Apache's three nodes."""
GROUP, TRANSACTION = 0, 1


class Cluster:
    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, object] | None = None,
        zookeeper: str = OWN,
        network: Namespaces | None = None,
    ) -> None:
        self.network = network
        self.seats: dict[BrokerProcess | ZooKeeperServer, Seat] = {}
        self.zookeeper = self._zookeeper(directory / "zookeeper", zookeeper)
        self.brokers = {id_: self._broker(directory / str(id_), id_, settings or {}) for id_ in IDS}

    def _zookeeper(self, directory: Path, kind: str) -> ZooKeeperServer | ZooKeeperEnsemble:
        seats = [self.network.seat() for _ in range(3)] if self.network else []
        if kind == ENSEMBLE:
            places = [(seat.host, seat.command) for seat in seats] or [("127.0.0.1", ())] * 3
            ensemble = ZooKeeperEnsemble(directory, places)
            self.seats |= dict(zip(ensemble.servers, seats, strict=False))
            return ensemble
        made = OwnZooKeeperServer if kind == OWN else ZooKeeperServer
        if not seats:
            return made(directory)
        server = made(directory, seats[0].host, seats[0].command)
        self.seats[server] = seats[0]
        return server

    def _broker(self, directory: Path, id_: int, settings: Mapping[str, object]) -> BrokerProcess:
        own: dict[str, object] = {
            "broker.id": id_,
            "zookeeper.connect": self.zookeeper.address,
        }
        if self.network is None:
            return BrokerProcess(directory, SETTINGS | own | settings)
        seat = self.network.seat()
        own["listeners"] = f"PLAINTEXT://{seat.host}:0"
        broker = BrokerProcess(directory, SETTINGS | own | settings)
        broker.command = (*seat.command, *BrokerProcess.command)
        self.seats[broker] = seat
        return broker

    def __enter__(self) -> Self:
        try:
            self.zookeeper.start()
            with ThreadPoolExecutor() as pool:
                list(pool.map(BrokerProcess.start, self.brokers.values()))
            self.admin = AdminClient(self.client)
            until(lambda: len(self.admin.list_topics(timeout=PATIENCE_S).brokers) == len(IDS))
            # Creates __consumer_offsets, for which it takes all three.
            self.coordinator("none")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for broker in self.brokers.values():
            if broker.process is not None:
                broker.kill()
        self.zookeeper.kill()

    @property
    def addresses(self) -> str:
        return ",".join(broker.address for broker in self.brokers.values())

    @property
    def client(self) -> dict[str, Any]:
        return {"bootstrap.servers": self.addresses}

    @property
    def zookeeper_servers(self) -> Sequence[ZooKeeperServer]:
        if isinstance(self.zookeeper, ZooKeeperEnsemble):
            return self.zookeeper.servers
        return [self.zookeeper]

    def zookeeper_leader(self) -> ZooKeeperServer:
        """Return the leader of an ensemble, else the only server; wait for it."""

        def leaders() -> list[ZooKeeperServer]:
            servers = self.zookeeper_servers
            return [s for s in servers if s.mode in ("leader", "standalone")]

        until(lambda: bool(leaders()))
        return leaders()[0]

    def call(self, broker: BrokerProcess, api: int, version: int, /, **fields: Any) -> Any:
        with WireClient(broker.address, timeout_s=PATIENCE_S) as client:
            return client.call(api, version, **fields)

    def create(self, topic: str, partitions: int = 1, leader: int | None = None) -> None:
        """Create a topic, led by `leader` if given; wait until each broker knows it."""
        others = [id_ for id_ in IDS if id_ != leader]
        wanted: dict[str, Any] = {"num_partitions": partitions, "replication_factor": 3}
        if leader is not None:
            assigned = [
                {"partition_index": index, "broker_ids": [leader, *others]}
                for index in range(partitions)
            ]
            wanted = {"num_partitions": -1, "replication_factor": -1, "assignments": assigned}
        asked = [{"name": topic} | wanted]

        def made() -> bool:
            (answer,) = self.call(
                self.brokers[self.controller()],
                ApiKey.CREATE_TOPICS,
                5,
                topics=asked,
                timeout=milliseconds(30_000),
            ).topics
            return answer.error_code in (ErrorCode.none, ErrorCode.topic_already_exists)

        until(made)
        # The controller notifies the others.
        until(lambda: all(self._leads(b, topic, partitions) for b in self.brokers.values()))

    def _leads(self, broker: BrokerProcess, topic: str, partitions: int) -> bool:
        (found,) = self.call(
            broker, ApiKey.METADATA, 4, topics=[{"name": topic}], allow_auto_topic_creation=False
        ).topics
        led = [p for p in found.partitions if p.error_code is ErrorCode.none]
        return len(led) == partitions

    def controller(self) -> int:
        """Return the controller as a broker reports it; wait until there is one."""
        found: list[int] = []

        def told() -> bool:
            for broker in self.brokers.values():
                if broker.process is None or broker.process.poll() is not None:
                    continue
                found.append(int(self.call(broker, ApiKey.METADATA, 4, topics=[]).controller_id))
                return found[-1] in self.brokers
            return False

        until(told)
        return found[-1]

    def coordinator(self, key: str, of: int = GROUP) -> int:
        """Return the coordinator of a group, or of a transactional id."""
        found: list[int] = []

        def told() -> bool:
            answer = self.call(
                self.brokers[self.controller()], ApiKey.FIND_COORDINATOR, 1, key=key, key_type=of
            )
            found.append(int(answer.node_id))
            return answer.error_code is ErrorCode.none

        until(told)
        return found[-1]

    def partition(self, topic: str) -> Any:
        """Return the metadata of its partition 0 from any broker."""
        return self.admin.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions[0]

    def until_in_sync(self, *topics: str) -> None:
        """Wait until all replicas of the topics, by default of all topics, are in sync, and until
        every broker reports this: one that was cut off may still believe that it leads.
        """

        def in_sync() -> bool:
            first, *others = (self._states(broker, topics) for broker in self.brokers.values())
            return all(isr == IDS for _, _, _, isr in first) and others == [first, first]

        until(in_sync)

    def _states(
        self, broker: BrokerProcess, topics: Sequence[str]
    ) -> set[tuple[str, int, int, tuple[int, ...]]]:
        """Return topic, partition, leader epoch and ISR, as the broker reports them."""
        asked = [{"name": topic} for topic in topics] or None
        answer = self.call(
            broker, ApiKey.METADATA, 7, topics=asked, allow_auto_topic_creation=False
        )
        return {
            (topic.name, p.partition_index, p.leader_epoch, tuple(sorted(p.isr_nodes)))
            for topic in answer.topics
            for p in topic.partitions
        }

    def log_of(self, broker: BrokerProcess, topic: str) -> bytes:
        """Return the bytes of its partition 0 on a broker that does not run."""
        return b"".join(
            path.read_bytes() for path in sorted((broker.data / f"{topic}-0").glob("*.log"))
        )


def until(holds: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
    """Wait until `holds`; an unreachable broker counts as false."""
    deadline = time.monotonic() + patience_s
    while not _holds(holds):
        assert time.monotonic() < deadline
        time.sleep(ASK_AGAIN_S)  # the cluster can only be polled


def _holds(holds: Callable[[], bool]) -> bool:
    try:
        return holds()
    except OSError:
        return False
