"""Brokers of ours and of Apache Kafka 3.9, side by side on one ZooKeeper.

with MixedCluster(tmp_path, {1: OURS, 2: APACHE}) as cluster:
    cluster.create("topic")
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self, TypeAlias

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from tests.support.brokers import OURS, ApacheBroker
from tests.support.process import BrokerProcess
from tests.support.tools import require
from tests.support.zookeeper_server import OwnZooKeeperServer, ZooKeeperServer

APACHE = "3.9.2"
PATIENCE_S = 120
ASK_AGAIN_S = 0.1
REPLICATION = 3
SETTINGS: Mapping[str, object] = {
    "zookeeper.session.timeout.ms": 6000,
    "offsets.topic.num.partitions": 8,
    "offsets.topic.replication.factor": REPLICATION,
    "transaction.state.log.num.partitions": 8,
    "transaction.state.log.replication.factor": REPLICATION,
    "transaction.state.log.min.isr": 2,
    "group.initial.rebalance.delay.ms": 0,
}

AnyBroker: TypeAlias = BrokerProcess | ApacheBroker


class MixedCluster:
    """`kinds` is the kind of each broker id, OURS or APACHE; `racks` is the rack of each id, if
    given.
    """

    def __init__(
        self,
        directory: Path,
        kinds: Mapping[int, str],
        settings: Mapping[str, object] | None = None,
        zookeeper: ZooKeeperServer | None = None,
        racks: Mapping[int, str] | None = None,
    ) -> None:
        self.racks = dict(racks or {})
        self.directory = directory
        self.zookeeper = zookeeper or OwnZooKeeperServer(directory / "zookeeper")
        self.settings = dict(SETTINGS) | dict(settings or {})
        self.brokers: dict[int, AnyBroker] = {id_: self.broker(id_, kinds[id_]) for id_ in kinds}
        self.session = KazooClient(self.zookeeper.address)

    def broker(self, id_: int, kind: str) -> AnyBroker:
        """Return a broker of that kind, on the id's data directory, which does not depend on the
        kind.
        """
        settings = self.settings | {
            "broker.id": id_,
            "zookeeper.connect": self.zookeeper.address,
        }
        if id_ in self.racks:
            settings["broker.rack"] = self.racks[id_]
        directory = self.directory / f"broker-{id_}"
        if kind == OURS:
            return BrokerProcess(directory, settings)
        return ApacheBroker(directory, kind, settings)

    def __enter__(self) -> Self:
        if any(isinstance(broker, ApacheBroker) for broker in self.brokers.values()):
            require("java")
            require("mvn")
        self.zookeeper.start()
        self.session.start()
        try:
            self.start(self.brokers)
            self.admin = AdminClient(self.client)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill(id_ for id_, broker in self.brokers.items() if broker.process is not None)
        self.session.stop()
        self.session.close()
        self.zookeeper.kill()

    def start(self, ids: Iterable[int]) -> None:
        """Start brokers. Apache's do not start while the session from before a kill lasts."""
        ids = set(ids)
        until(lambda: not {id_ for id_ in ids & self.live if not self.is_ours(id_)})
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda id_: self.brokers[id_].start(), ids))

    def kill(self, ids: Iterable[int]) -> None:
        for id_ in ids:
            self.brokers[id_].kill()

    def is_ours(self, id_: int) -> bool:
        return isinstance(self.brokers[id_], BrokerProcess)

    @property
    def addresses(self) -> str:
        return ",".join(broker.address for broker in self.brokers.values())

    @property
    def client(self) -> dict[str, Any]:
        return {"bootstrap.servers": self.addresses}

    def create(self, topic: str, partitions: int = 1) -> None:
        """Create a topic, and wait until every live broker knows it, and every replica is
        in sync.
        """
        self.ask(lambda: self.admin.create_topics([NewTopic(topic, partitions, REPLICATION)]))
        self.until_in_sync(topic, partitions)
        self.until_known(topic, partitions)

    def ask(self, request: Callable[[], Mapping[str, Future[Any]]]) -> None:
        """Send a request to the controller; librdkafka may send it to a former one, or wait for
        that one.
        """

        def done() -> bool:
            self.admin.list_topics(timeout=PATIENCE_S)
            try:
                for answer in request().values():
                    answer.result(PATIENCE_S)
            except KafkaException as error:
                if error.args[0].code() not in (KafkaError.NOT_CONTROLLER, KafkaError._TIMED_OUT):
                    raise
                return False
            return True

        until(done)

    def until_known(self, topic: str, partitions: int) -> None:
        """Wait until every running broker knows the topic; one of 0 partitions is deleted."""

        def known(broker: AnyBroker) -> int:
            admin = AdminClient({"bootstrap.servers": broker.address})
            metadata = admin.list_topics(timeout=PATIENCE_S).topics.get(topic)
            return len(metadata.partitions) if metadata is not None else 0

        running = [b for b in self.brokers.values() if b.process and b.process.poll() is None]
        until(lambda: all(known(broker) == partitions for broker in running))

    # State in ZooKeeper

    def znode(self, path: str) -> Any:
        """Return the znode's content, or None."""
        try:
            data, _ = self.session.get(path)
        except NoNodeError:
            return None
        return json.loads(data)

    def configs(self, topic: str) -> dict[str, Mapping[str, str]]:
        """Return the dynamic configs of the topic, and of each broker by its id."""
        paths = {topic: f"/config/topics/{topic}"}
        paths |= {str(id_): f"/config/brokers/{id_}" for id_ in self.brokers}
        return {
            name: (self.znode(path) or {"config": {}})["config"] for name, path in paths.items()
        }

    @property
    def controller(self) -> int:
        """Return the controller's id; -1 if there is none."""
        holder = self.znode("/controller")
        return -1 if holder is None else int(holder["brokerid"])

    @property
    def live(self) -> set[int]:
        try:
            return {int(id_) for id_ in self.session.get_children("/brokers/ids")}
        except NoNodeError:
            return set()

    def state(self, topic: str, partition: int = 0) -> dict[str, Any]:
        path = f"/brokers/topics/{topic}/partitions/{partition}/state"
        return self.znode(path) or {"leader": -1, "isr": []}

    def led_by(self, id_: int, topic: str, partitions: int) -> int:
        """Return the number of partitions that the broker leads."""
        return sum(self.state(topic, p)["leader"] == id_ for p in range(partitions))

    def until_in_sync(self, topic: str, partitions: int) -> None:
        until(
            lambda: all(len(self.state(topic, p)["isr"]) == REPLICATION for p in range(partitions))
        )

    def make_controller(self, id_: int) -> None:
        """Depose the controller until that broker is elected."""

        def deposed() -> bool:
            now = self.controller
            if now not in (-1, id_):
                self.session.delete("/controller")
            return now == id_

        until(deposed)

    # Files on the disks

    def log_of(self, id_: int, topic: str, partition: int) -> bytes:
        """Return a partition's log on a stopped broker; b"" if it has none."""
        files = sorted((self.brokers[id_].data / f"{topic}-{partition}").glob("*.log"))
        return b"".join(file.read_bytes() for file in files)


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(ASK_AGAIN_S)  # the broker can only be polled
