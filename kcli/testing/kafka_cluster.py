"""A cluster for tests: a ZooKeeper and brokers of a nursery, which can be killed and started one by
one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from kcli.client.admin.admin import Admin
from kcli.client.admin.descriptions import CoordinatorType, PartitionDescription
from kcli.client.cluster import Node
from kcli.client.config import AdminConfig
from kcli.local_cluster.membership import is_complete
from kcli.local_cluster.plan import HOST, broker_defaults, zookeeper_properties
from kcli.testing.broker_nursery import STOP_SIGNAL, KafkaBroker, Nursery, NurseryProcess
from kserver.errors import KafkaError

PATIENCE_S = 60
"""Seconds that a cluster may take to reach an awaited state."""
LOOK_AGAIN_S = 0.02

T = TypeVar("T")


class KafkaCluster:
    """A ZooKeeper and brokers with the ids 1, 2 and so on. Ports are free ones at the first start
    and kept from then on, so that clients find a broker again after it was killed or stopped.
    """

    def __init__(
        self, nursery: Nursery, directory: Path, count: int, settings: Mapping[str, Any]
    ) -> None:
        self.directory = directory
        self._count = count
        self._settings = broker_defaults(count) | dict(settings)
        self._nursery = nursery
        self._zookeeper = NurseryProcess(nursery, "zookeeper")
        self.brokers: dict[int, KafkaBroker] = {}
        """By id, including those that do not run."""

    def __str__(self) -> str:
        return self.bootstrap_servers

    def __repr__(self) -> str:
        running = [id for id, broker in self.brokers.items() if broker.runs]
        return f"<KafkaCluster {self.bootstrap_servers or 'not started'}, running: {running}>"

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers, including those that do not run."""
        return ",".join(broker.address for broker in self.brokers.values())

    @property
    def zookeeper_connect(self) -> str:
        """HOST:PORT of its ZooKeeper."""
        return self._zookeeper.address

    @property
    def running(self) -> list[int]:
        """The ids of the brokers that run."""
        return [id for id, broker in self.brokers.items() if broker.runs]

    @property
    def running_servers(self) -> str:
        """The addresses of the brokers that run."""
        return ",".join(self.brokers[id].address for id in self.running)

    @property
    def logs(self) -> Mapping[str, str]:
        """Each server's log, by its name."""
        brokers = {f"broker {id}": broker.log for id, broker in self.brokers.items()}
        return brokers | {"zookeeper": self._zookeeper.log}

    def open(self) -> None:
        """Start all servers; return once each broker knows all others."""
        self._zookeeper.begin(zookeeper_properties(f"{self.directory}/zookeeper", f"{HOST}:0"))
        self._zookeeper.wait()
        for id in range(1, self._count + 1):
            self.brokers[id] = self._broker(id)
        for broker in self.brokers.values():
            broker.begin()
        for broker in self.brokers.values():
            broker.wait()
        self._wait_complete()

    def close(self) -> None:
        """Stop all in order, the ZooKeeper last."""
        for broker in reversed(self.brokers.values()):
            broker.stop()
        self._zookeeper.end(STOP_SIGNAL)

    def _broker(self, id: int) -> KafkaBroker:
        own = {"broker.id": id, "zookeeper.connect": self._zookeeper.address}
        directory = self.directory / f"broker-{id}"
        return KafkaBroker(self._nursery, directory, self._settings | own)

    # One broker

    def add(self) -> int:
        """Start another broker, with no data yet; return its id, the next one, once all running
        brokers know it.
        """
        id = max(self.brokers) + 1
        self.brokers[id] = self._broker(id)
        self.start(id)
        return id

    def start(self, id: int) -> None:
        """Start a broker that was killed or stopped, on its data and port; return once all running
        brokers know it.
        """
        self.brokers[id].start()
        self._wait_complete()

    def stop(self, id: int) -> None:
        """Stop it cleanly: it hands over its leaderships, answers pending requests, and flushes
        everything.
        """
        self.brokers[id].stop()

    def kill(self, id: int) -> None:
        """kill -9: nothing is handed over, flushed or marked clean."""
        self.brokers[id].kill()

    def restart(self, id: int) -> None:
        """Stop, and start on the same data and port."""
        self.stop(id)
        self.start(id)

    # The state of the cluster

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """Return the running broker that leads it; after a leader was killed, its successor.

        Waits at most PATIENCE_S for a leader. Raises RuntimeError then, also if the topic does not
        exist.
        """

        async def leader(admin: Admin) -> int | None:
            description = await _partition(admin, topic, partition)
            return (
                description.leader if description and description.leader in self.running else None
            )

        return self._wait(leader, f"no running broker leads {topic}-{partition}")

    def in_sync(self, topic: str, partition: int = 0) -> list[int]:
        """Return the brokers whose replicas of it are in sync."""

        async def isr(admin: Admin) -> list[int] | None:
            description = await _partition(admin, topic, partition)
            return None if description is None else sorted(description.isr)

        return self._wait(isr, f"there is no {topic}-{partition}")

    def wait_in_sync(self, topic: str) -> None:
        """Return once all replicas of all partitions of the topic are in sync."""

        async def whole(admin: Admin) -> bool:
            partitions = await _partitions(admin, topic)
            return bool(partitions) and all(len(p.isr) == len(p.replicas) for p in partitions)

        self._wait(whole, f"{topic} has replicas that are not in sync")

    @property
    def controller(self) -> int:
        """The running broker that is the controller; waits for one."""

        async def controller(admin: Admin) -> int | None:
            id = (await admin.describe_cluster()).controller_id
            return id if id in self.running else None

        return self._wait(controller, "no running broker is the controller")

    def coordinator_of(self, group: str) -> int:
        """Return the running broker that coordinates the group; waits for one."""
        return self._coordinator(group, CoordinatorType.GROUP)

    def transaction_coordinator_of(self, transactional_id: str) -> int:
        """Return the running broker that coordinates the transactional id; waits for one."""
        return self._coordinator(transactional_id, CoordinatorType.TRANSACTION)

    def _coordinator(self, key: str, kind: CoordinatorType) -> int:
        async def coordinator(admin: Admin) -> int | None:
            node = (await admin.find_coordinators([key], kind))[key]
            return node.id if isinstance(node, Node) and node.id in self.running else None

        return self._wait(coordinator, f"no running broker coordinates {key}")

    def _wait_complete(self) -> None:
        async def complete(_: Admin) -> bool:
            running = self.running
            return await is_complete([self.brokers[id].address for id in running], running)

        self._wait(complete, "the brokers do not know each other")

    def _wait(self, look: Callable[[Admin], Awaitable[T | None]], otherwise: str) -> T:
        """Return the result of `look`, once it is neither false nor empty."""
        servers = self.running_servers
        if not servers:
            raise RuntimeError("no broker of the cluster runs")

        async def wait() -> T:
            deadline = time.monotonic() + PATIENCE_S
            async with Admin(AdminConfig.of({"bootstrap.servers": servers})) as admin:
                while not (result := await look(admin)):
                    if time.monotonic() > deadline:
                        raise RuntimeError(f"{otherwise}, after {PATIENCE_S} s: {self!r}")
                    await asyncio.sleep(LOOK_AGAIN_S)  # brokers do not report changes
                return result

        # In a loop of its own: the test may itself run in one.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, wait()).result()


async def _partition(admin: Admin, topic: str, partition: int) -> PartitionDescription | None:
    partitions = await _partitions(admin, topic)
    return partitions[partition] if partition < len(partitions) else None


async def _partitions(admin: Admin, topic: str) -> Sequence[PartitionDescription]:
    """Return the topic's partitions; none if it does not exist, or not yet."""
    description = (await admin.describe_topics([topic]))[topic]
    return () if isinstance(description, KafkaError) else description.partitions
