"""The fetchers of one broker.

A fetcher follows one leader; a leader's partitions are spread over `num.replica.fetchers` of them.
`truncations_ended` waits until truncations that have begun are completed, before a role is
assigned.

(Kafka: AbstractFetcherManager, ReplicaFetcherManager.)
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Collection
from typing import NamedTuple

from kserver.metadata import ClusterMetadata
from kserver.model import NO_BROKER, BrokerId, TopicPartition
from kserver.replica.fetcher import FetcherContext, ReplicaFetcher
from kserver.replica.partition import Partition
from kserver.world.running_parts import RunningParts


class _FetcherKey(NamedTuple):
    leader: BrokerId
    number: int


class ReplicaFetcherManager:
    """Fetchers of one broker; each starts with its first partition and ends with its last."""

    def __init__(self, context: FetcherContext) -> None:
        self._context = context
        self._fetchers: dict[_FetcherKey, ReplicaFetcher] = {}
        self._places: dict[Partition, _FetcherKey] = {}
        self._ending: list[ReplicaFetcher] = []
        """Fetchers without partitions that were still truncating a log when they lost the last
        one."""
        self._running = RunningParts[ReplicaFetcher]()
        self._number = context.config().num_replica_fetchers
        """Number of fetchers per leader."""

    @property
    def running(self) -> Collection[ReplicaFetcher]:
        return self._fetchers.values()

    def assign(self, partition: Partition) -> None:
        """Reassign the partition to a fetcher after its role, leader or epoch changed or it was
        dropped."""
        before, place = self._places.pop(partition, None), self._place(partition)
        if before is not None and before != place:
            self._leave(partition, before)
        if place is None:
            return
        self._places[partition] = place
        fetcher = self._fetchers.get(place)
        if fetcher is None:
            name = f"broker-{self._context.broker_id}-fetcher-{place.number}"
            fetcher = ReplicaFetcher(place.leader, name, self._context)
            self._fetchers[place] = fetcher
            self._running.start(fetcher)
        fetcher.add(partition)

    def _place(self, partition: Partition) -> _FetcherKey | None:
        leader = partition.leader_id
        if not partition.is_hosted or partition.is_leader or leader == NO_BROKER:
            return None
        if partition.log.failure is not None:
            return None
        topic, index = partition.topic_partition
        return _FetcherKey(leader, (zlib.crc32(topic.encode()) + index) % self._number)

    def resize(self) -> None:
        """Apply a changed `num.replica.fetchers`."""
        number = self._context.config().num_replica_fetchers
        if number != self._number:
            self._number = number
            for partition in list(self._places):
                self.assign(partition)

    @property
    def lost_leaders(self) -> frozenset[BrokerId]:
        """Leaders that most likely are down, so that other brokers will soon lead."""
        fetchers = self._fetchers.items()
        return frozenset(place.leader for place, fetcher in fetchers if fetcher.has_lost_leader)

    def truncating(
        self, keys: Collection[TopicPartition]
    ) -> dict[TopicPartition, asyncio.Future[None]]:
        """Return those of these logs that are being truncated, with a future that is done
        afterwards."""
        self._ending = [fetcher for fetcher in self._ending if fetcher.truncations]
        fetchers = (*self._fetchers.values(), *self._ending)
        return {key: done for f in fetchers for key, done in f.truncations.items() if key in keys}

    async def truncations_ended(self, keys: Collection[TopicPartition]) -> None:
        """Wait until none of these logs is being truncated."""
        while truncations := self.truncating(keys):
            await asyncio.wait(truncations.values())

    def _leave(self, partition: Partition, place: _FetcherKey) -> None:
        fetcher = self._fetchers[place]
        fetcher.remove(partition)
        if fetcher.is_idle:
            del self._fetchers[place]
            self._running.let_end(fetcher)
            fetcher.end()
            if fetcher.truncations:
                self._ending.append(fetcher)

    def apply(self, image: ClusterMetadata) -> None:
        for fetcher in self._fetchers.values():
            fetcher.apply(image)

    async def run(self) -> None:
        await self._running.run()
