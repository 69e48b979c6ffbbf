"""Three brokers of Apache Kafka without ZooKeeper, each of which is a controller too.

with KRaftCluster(tmp_path, "4.3.1") as cluster:
    client = Producer(cluster.client)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)

from tests.support.brokers import ApacheBroker
from tests.support.mixed_cluster import PATIENCE_S, until
from tests.support.tools import require

IDS = (1, 2, 3)
SETTINGS: Mapping[str, object] = {
    "offsets.topic.num.partitions": 8,
    "group.initial.rebalance.delay.ms": 0,
}
ASK_S = 5
"""How long a broker may take to answer before it is asked again."""
LAST = "message.max.bytes"
"""Config of a broker that is changed to see that the broker has applied all changes before."""
DYNAMIC = {ConfigSource.DYNAMIC_TOPIC_CONFIG.value, ConfigSource.DYNAMIC_BROKER_CONFIG.value}


class _Node(ApacheBroker):
    """A broker that is one of several controllers."""

    id_: int
    quorum: str

    @property
    def membership(self) -> list[str]:
        return ["--broker-id", str(self.id_), "--quorum", self.quorum]


class KRaftCluster:
    def __init__(
        self,
        directory: Path,
        version: str,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self.directory = directory
        self.brokers = {
            id_: _Node(directory / f"broker-{id_}", version, SETTINGS | dict(settings or {}))
            for id_ in IDS
        }
        voters = [f"{id_}@127.0.0.1:{node.controller_port}" for id_, node in self.brokers.items()]
        for id_, node in self.brokers.items():
            node.id_, node.quorum = id_, ",".join(voters)
        self._changes = 0

    def __enter__(self) -> Self:
        require("java")
        require("mvn")
        try:
            with ThreadPoolExecutor() as pool:
                list(pool.map(_Node.start, self.brokers.values()))
            self.admin = AdminClient(self.client)
            until(lambda: len(self.admin.list_topics(timeout=PATIENCE_S).brokers) == len(IDS))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.brokers.values():
            if node.process is not None:
                node.kill()

    @property
    def addresses(self) -> str:
        return ",".join(node.address for node in self.brokers.values())

    @property
    def client(self) -> dict[str, Any]:
        return {"bootstrap.servers": self.addresses}

    def configs(self, topic: str) -> dict[str, Mapping[str, str]]:
        """Return the dynamic configs of the topic, and of each running broker by its id.

        A broker applies changes in order, a moment after the response to them. So another change is
        made, and awaited.
        """
        self._changes += 1
        last = str((1 << 20) + self._changes)
        names = [str(id_) for id_, node in self.brokers.items() if node.is_running]
        for name in names:
            self._set(name, last)

        def of_brokers() -> dict[str, Mapping[str, str]]:
            return {name: self._described(ResourceType.BROKER, name) for name in names}

        until(lambda: all(configs.get(LAST) == last for configs in of_brokers().values()))
        return {topic: self._described(ResourceType.TOPIC, topic)} | of_brokers()

    def _set(self, broker: str, value: str) -> None:
        operation = AlterConfigOpType.SET
        entry = ConfigEntry(LAST, value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.BROKER, broker, incremental_configs=[entry])
        self._ask(lambda: self.admin.incremental_alter_configs([resource], request_timeout=ASK_S))

    def _described(self, kind: ResourceType, name: str) -> dict[str, str]:
        """Return the dynamic configs; a broker describes its own."""
        resource = ConfigResource(kind, name)
        entries = self._ask(
            lambda: self.admin.describe_configs([resource], request_timeout=ASK_S)
        ).values()
        return {entry.name: entry.value for entry in entries if entry.source in DYNAMIC}

    def _ask(self, request: Callable[[], Mapping[Any, Future[Any]]]) -> Any:
        """Return the only result of a request. librdkafka sends it to the broker that metadata
        names as the controller, which without ZooKeeper is any broker, and waits for it after it
        has stopped.
        """
        deadline = time.monotonic() + PATIENCE_S
        while True:
            self.admin.list_topics(timeout=PATIENCE_S)
            (answer,) = request().values()
            try:
                return answer.result(PATIENCE_S)
            except KafkaException as error:
                if error.args[0].code() != KafkaError._TIMED_OUT or time.monotonic() > deadline:
                    raise
