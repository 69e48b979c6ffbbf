"""Unchanged brokers over one simulated ZooKeeper, in one loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from kserver.broker.broker import Broker
from kserver.model import TopicPartition
from kserver.replica.partition import Partition
from tests.support.at_rest import differences
from tests.support.clock import SimClock
from tests.support.loop import SimLoop
from tests.support.simulated import SimulatedBroker
from tests.support.zookeeper import SimEnsemble, SimZooKeeper

SETTINGS = {
    "zookeeper.connect": "simulated",
    "zookeeper.session.timeout.ms": 6000,
    "replica.lag.time.max.ms": 5000,
    "offsets.topic.num.partitions": 2,
}
PATIENCE_S = 600
"""Virtual seconds in which a cluster without faults has to be in sync again."""


class SimulatedCluster:
    """Brokers 1, 2, ...; their hosts are named b1, b2, ..."""

    def __init__(
        self, loop: SimLoop, brokers: int = 3, settings: Mapping[str, object] | None = None
    ) -> None:
        self.loop = loop
        self.ensemble = SimEnsemble(loop, SimClock(loop))
        self.brokers = {
            id_: SimulatedBroker(
                loop,
                SETTINGS | {"broker.id": id_} | dict(settings or {}),
                f"b{id_}",
                self.ensemble,
            )
            for id_ in range(1, brokers + 1)
        }
        self.up: set[int] = set()

    @property
    def bootstrap(self) -> dict[str, str]:
        addresses = [f"{broker.name}:{broker.port}" for broker in self.brokers.values()]
        return {"bootstrap.servers": ",".join(addresses)}

    async def start(self, *ids: int) -> None:
        """Start these brokers, or all."""
        started = ids or tuple(self.brokers)
        await asyncio.gather(*(self.brokers[id_].start() for id_ in started))
        self.up.update(started)

    async def kill(self, id_: int) -> None:
        self.up.discard(id_)
        await self.brokers[id_].kill()

    async def stop(self, id_: int) -> None:
        self.up.discard(id_)
        await self.brokers[id_].stop()

    async def cut_power(self, id_: int, keep: float | None = None) -> None:
        """Cut the power of the broker's machine: unsynced writes are lost, as `SimDisk.crash` says.
        Connections get no response, not even a refusal, until it is started again.
        """
        self.up.discard(id_)
        await self.brokers[id_].cut_power(keep)

    def zookeeper(self, id_: int) -> SimZooKeeper:
        zookeeper = self.brokers[id_].zookeeper
        assert isinstance(zookeeper, SimZooKeeper)
        return zookeeper

    def expire(self, id_: int) -> None:
        self.zookeeper(id_).expire()

    def replicas(self, topic: str, partition: int) -> dict[int, Partition]:
        """Return the hosted replicas, by broker."""
        found = {}
        for id_ in sorted(self.up):
            hosted = self.hosted(id_).get((topic, partition))
            if hosted is not None:
                found[id_] = hosted
        return found

    def leader(self, topic: str, partition: int) -> Partition | None:
        """Return the leader of the newest leader epoch, if it is up."""
        hosted = self.replicas(topic, partition).values()
        newest = max(hosted, key=lambda replica: replica.epoch, default=None)
        return next((r for r in hosted if r.is_leader and newest and r.epoch == newest.epoch), None)

    async def until_in_sync(self, topic: str, partitions: int) -> None:
        """Wait until every replica of every partition is in sync, and has all of its leader's log,
        and until the metadata of the controller and every broker equal the znodes.
        """
        await self._until(
            lambda: (
                all(self._in_sync(topic, number) for number in range(partitions))
                and not self.differences()
            )
        )

    async def until_all_in_sync(self) -> None:
        """Wait for the same of every hosted partition."""
        await self._until(
            lambda: (
                all(self._in_sync(*key) for key in self.hosted_anywhere())
                and not self.differences()
            )
        )

    def differences(self) -> list[str]:
        """Return the differences of the metadata of the controller and of each live broker from the
        znodes.
        """
        parts = {id_: self._broker(id_)._parts for id_ in self.up}
        return list(
            differences(
                self.ensemble.tree.nodes,
                {id_: p.controller for id_, p in parts.items()},
                {id_: p.metadata.current for id_, p in parts.items()},
            )
        )

    async def until_all_in_isr(self) -> None:
        """Wait until every hosted partition has a leader and a full ISR, though records are under
        way.
        """
        await self._until(self._all_in_isr)

    async def until_steady(self) -> None:
        """Wait for the same while no change of metadata is under way, as after a session that has
        expired: the controller is about to shrink the ISRs of its broker.
        """
        await self._until(lambda: self._all_in_isr() and not self.differences())

    async def _until(self, holds: Callable[[], bool]) -> None:
        """Wait for at most PATIENCE_S of virtual time; fail with a description of the cluster."""
        deadline = self.loop.time() + PATIENCE_S
        while not holds():
            if self.loop.time() > deadline:
                raise AssertionError(f"not in sync after {PATIENCE_S} s:\n{self.description()}")
            await asyncio.sleep(0.1)

    def description(self) -> str:
        """Return leaders, ISR, epochs and ends of each partition, and the znodes of their
        states.
        """
        lines = [f"up: {sorted(self.up)}"]
        for key in self.hosted_anywhere():
            for id_, replica in self.replicas(*key).items():
                isr = sorted(replica.leader.isr) if replica.leader else ""
                lines.append(
                    f"{key} on {id_}: {'leader' if replica.is_leader else 'follower'} in epoch"
                    f" {replica.epoch}, end {replica.log.log_end_offset}, high watermark"
                    f" {replica.log.high_watermark}, ISR {isr}"
                )
        lines += [
            f"{path}: {node.data!r}"
            for path, node in sorted(self.ensemble.tree.nodes.items())
            if path.endswith("/state") or path in ("/controller", "/controller_epoch")
        ]
        return "\n".join(lines + self.differences())

    def _has_full_isr(self, topic: str, number: int) -> bool:
        leader, replicas = self.leader(topic, number), self.replicas(topic, number)
        return (
            leader is not None
            and leader.leader is not None
            and leader.leader.isr == set(replicas)
            and len(replicas) == leader.replica_count
        )

    def _all_in_isr(self) -> bool:
        return all(self._has_full_isr(*key) for key in self.hosted_anywhere())

    def hosted_anywhere(self) -> list[TopicPartition]:
        return sorted({key for id_ in self.up for key in self.hosted(id_)})

    def hosted(self, id_: int) -> Mapping[TopicPartition, Partition]:
        return self._broker(id_)._parts.replicas.partitions  # type: ignore[return-value]

    def _broker(self, id_: int) -> Broker:
        broker = self.brokers[id_].broker
        assert broker is not None
        return broker

    def connections_of_clients(self, id_: int) -> int:
        """Return the number of client connections of a broker."""
        names = {broker.name for broker in self.brokers.values()}
        return self.loop.network.connections(self.brokers[id_].name, besides=names)

    def waiting(self, id_: int) -> int:
        """Return the number of a broker's delayed requests."""
        return len(self._broker(id_)._parts.purgatory)

    def _in_sync(self, topic: str, number: int) -> bool:
        leader = self.leader(topic, number)
        replicas = self.replicas(topic, number)
        return (
            leader is not None
            and self._has_full_isr(topic, number)
            and len({r.log.log_end_offset for r in replicas.values()}) == 1
            and {r.log.high_watermark for r in replicas.values()} == {leader.log.log_end_offset}
        )

    @staticmethod
    def whole(replica: Partition) -> bytes:
        """Return the bytes of the replica's log."""
        return b"".join(s.file.read_at(0, s.size) for s in replica.log.segments)

    def check(self) -> None:
        """Check the invariant that no two brokers lead in one epoch."""
        led: dict[tuple[object, int], int] = {}
        for id_ in self.up:
            for key, hosted in self.hosted(id_).items():
                if hosted.is_leader:
                    other = led.setdefault((key, hosted.epoch), id_)
                    assert other == id_, f"{key} is led by {other} and {id_} in one epoch"
