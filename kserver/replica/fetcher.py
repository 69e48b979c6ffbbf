"""Followers: what this broker's replicas lack is fetched from those who lead them.

    fetch      from the end of each log, with the epoch that it ends in
    records    appended as they are; the high watermark follows the leader's
    diverging  the log is cut where the two part (truncation.py), and fetched again
    behind     the leader's log begins after the end of ours: ours begins anew where its does
    refused    tried again after `replica.fetch.backoff.ms`, or in the next leader epoch

A fetcher follows one leader; a leader's partitions are spread over `num.replica.fetchers` of them.
What comes for a partition whose leader epoch has ended meanwhile is dropped.
(Kafka: AbstractFetcherThread, ReplicaFetcherManager.)
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID

from kserver.config.broker import BrokerConfig
from kserver.errors import ErrorCode, KafkaError, ProtocolError, StorageError
from kserver.metadata import MetadataCache
from kserver.model import NO_BROKER, BrokerId, LeaderEpoch
from kserver.peer import Peer, PeerOptions
from kserver.replica.partition import Partition
from kserver.replica.truncation import Diverging, truncation_offset
from kserver.wire import versions
from kserver.world.clock import Clock
from kserver.world.running import RunningParts

log = logging.getLogger(__name__)

FETCH, LIST_OFFSETS = 1, 2
FETCH_WITH_TOPIC_IDS = 13
EARLIEST, LATEST = -2, -1
ADDRESS_TIMEOUT_S = 1.0
NO_SESSION, FINAL_EPOCH = 0, -1


class ReplicaFetcher:
    """Follows the broker `leader`, whose addresses `metadata` has."""

    def __init__(
        self,
        broker_id: BrokerId,
        leader: BrokerId,
        name: str,
        config: Callable[[], BrokerConfig],
        metadata: MetadataCache,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._id = broker_id
        self._leader = leader
        self._name = name
        self._config = config
        self._metadata = metadata
        self._clock = clock
        self._loop = loop
        self._partitions: dict[Partition, float] = {}
        """When each may be fetched next, by the loop's time."""
        self._has_partitions = asyncio.Event()
        self._peer: Peer | None = None

    @property
    def is_idle(self) -> bool:
        return not self._partitions

    def add(self, partition: Partition) -> None:
        self._partitions[partition] = 0.0
        self._has_partitions.set()

    def remove(self, partition: Partition) -> None:
        self._partitions.pop(partition, None)

    async def run(self) -> None:
        try:
            while True:
                if not self._partitions:
                    self._has_partitions.clear()
                    await self._has_partitions.wait()
                await self._fetch()
        finally:
            if self._peer is not None:
                self._peer.close()

    async def _fetch(self) -> None:
        now_s = self._loop.time()
        due = {p: p.epoch for p, at_s in self._partitions.items() if at_s <= now_s}
        backoff_s = self._config().replica_fetch_backoff_ms / 1000
        if not due:
            await asyncio.sleep(backoff_s)
            return
        try:
            peer = await self._connected()
            answer = await peer.call(self._request(due))
            if answer.error_code is not ErrorCode.none:
                raise KafkaError(answer.error_code)
        except (OSError, KafkaError, ProtocolError) as error:
            log.warning("%s: broker %d was not fetched from: %s", self._name, self._leader, error)
            await asyncio.sleep(backoff_s)
            return
        by_id = {(p.topic_id, p.topic_partition.partition): p for p in due}
        for topic in answer.responses:
            for data in topic.partitions:
                partition = by_id.get((topic.topic_id, data.partition_index))
                if partition is not None:
                    await self._take(partition, due[partition], data, peer)

    async def _connected(self) -> Peer:
        if self._peer is None or not self._peer.is_open:
            # LeaderAndIsr names a leader, and only then UpdateMetadata tells where it is.
            image = await self._metadata.wait_for(
                lambda image: self._leader in image.brokers, ADDRESS_TIMEOUT_S
            )
            broker = image.brokers[self._leader]
            listener = self._config().inter_broker_listener
            endpoint = broker.endpoints.get(listener)
            if endpoint is None:
                raise ProtocolError(f"it has no listener {listener} (inter.broker.listener.name)")
            options = PeerOptions(client_id=self._name)
            self._peer = await Peer.connect(endpoint.host, endpoint.port, options)
        return self._peer

    def _request(self, due: Mapping[Partition, LeaderEpoch]) -> Any:
        config = self._config()
        new = versions.request(FETCH, FETCH_WITH_TOPIC_IDS)
        topics: dict[UUID, list[Any]] = {}
        for partition, epoch in due.items():
            own = partition.log
            topics.setdefault(partition.topic_id, []).append(
                new.topics.partitions(
                    partition=partition.topic_partition.partition,
                    current_leader_epoch=epoch,
                    fetch_offset=own.log_end_offset,
                    last_fetched_epoch=own.epochs.latest_epoch,
                    log_start_offset=own.log_start_offset,
                    partition_max_bytes=config.replica_fetch_max_bytes,
                )
            )
        return new(
            replica_id=self._id,
            max_wait=timedelta(milliseconds=config.replica_fetch_wait_max_ms),
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
            session_id=NO_SESSION,
            session_epoch=FINAL_EPOCH,
            topics=[
                new.topics(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in topics.items()
            ],
        )

    async def _take(self, partition: Partition, epoch: LeaderEpoch, data: Any, peer: Peer) -> None:
        if partition not in self._partitions or partition.epoch != epoch:
            return
        own = partition.log
        try:
            if data.error_code is ErrorCode.offset_out_of_range:
                await self._begin_anew(partition, epoch, peer)
                return
            if data.error_code is not ErrorCode.none:
                raise KafkaError(data.error_code)
            diverging = Diverging(data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
            if diverging.epoch >= 0:
                end = truncation_offset(own.epochs, own.log_end_offset, diverging)
                log.info("%s is cut at %d, where it leaves its leader's", own.topic_partition, end)
                await own.truncate_to(end)
                return
            if data.records:
                own.append_as_follower(memoryview(bytearray(data.records)), self._clock.now_ms())
            if data.high_watermark > own.high_watermark:
                own.update_high_watermark(data.high_watermark)
            start = min(data.log_start_offset, own.high_watermark)
            if start > own.log_start_offset:
                own.increment_log_start_offset(start)
        except (KafkaError, StorageError, OSError, ProtocolError) as error:
            log.warning("%s cannot follow broker %d: %s", own.topic_partition, self._leader, error)
            if partition in self._partitions:
                backoff_s = self._config().replica_fetch_backoff_ms / 1000
                self._partitions[partition] = self._loop.time() + backoff_s

    async def _begin_anew(self, partition: Partition, epoch: LeaderEpoch, peer: Peer) -> None:
        """The leader's log does not reach to where ours ends, or begins after it."""
        own = partition.log
        latest = await self._offset(partition, epoch, LATEST, peer)
        if partition.epoch != epoch:
            return
        if latest < own.log_end_offset:
            await own.truncate_to(latest)
            return
        earliest = await self._offset(partition, epoch, EARLIEST, peer)
        if partition.epoch == epoch and earliest > own.log_end_offset:
            log.info("%s begins anew at %d, as its leader's", own.topic_partition, earliest)
            await own.truncate_fully_and_start_at(earliest)

    async def _offset(
        self, partition: Partition, epoch: LeaderEpoch, timestamp: int, peer: Peer
    ) -> int:
        new = versions.request(LIST_OFFSETS, peer.version(LIST_OFFSETS, at_most=7))
        key = partition.topic_partition
        wanted = new.topics.partitions(
            partition_index=key.partition, current_leader_epoch=epoch, timestamp=timestamp
        )
        topic = new.topics(name=key.topic, partitions=[wanted])
        answer = await peer.call(new(replica_id=self._id, topics=[topic]))
        found = answer.topics[0].partitions[0]
        if found.error_code is not ErrorCode.none:
            raise KafkaError(found.error_code)
        return int(found.offset)


class _Place(NamedTuple):
    leader: BrokerId
    number: int


class ReplicaFetcherManager:
    """The fetchers of one broker; each begins with its first partition and ends with its last."""

    def __init__(
        self,
        broker_id: BrokerId,
        config: Callable[[], BrokerConfig],
        metadata: MetadataCache,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._id = broker_id
        self._config = config
        self._metadata = metadata
        self._clock = clock
        self._loop = loop
        self._fetchers: dict[_Place, ReplicaFetcher] = {}
        self._places: dict[Partition, _Place] = {}
        self._running = RunningParts[ReplicaFetcher]()
        self._number = config().num_replica_fetchers
        """Of each leader."""

    def assign(self, partition: Partition) -> None:
        """Its role, leader or epoch may have changed, or it is hosted no more."""
        place = self._places.pop(partition, None)
        if place is not None:
            self._leave(partition, place)
        if not partition.is_hosted or partition.is_leader or partition.leader_id == NO_BROKER:
            return
        topic, index = partition.topic_partition
        number = (zlib.crc32(topic.encode()) + index) % self._number
        place = self._places[partition] = _Place(partition.leader_id, number)
        fetcher = self._fetchers.get(place)
        if fetcher is None:
            fetcher = self._fetchers[place] = ReplicaFetcher(
                self._id,
                place.leader,
                f"broker-{self._id}-fetcher-{number}",
                self._config,
                self._metadata,
                self._clock,
                self._loop,
            )
            self._running.start(fetcher)
        fetcher.add(partition)

    def resize(self) -> None:
        """As many to a leader as the settings of now say."""
        number = self._config().num_replica_fetchers
        if number != self._number:
            self._number = number
            for partition in list(self._places):
                self.assign(partition)

    def _leave(self, partition: Partition, place: _Place) -> None:
        fetcher = self._fetchers[place]
        fetcher.remove(partition)
        if fetcher.is_idle:
            del self._fetchers[place]
            self._running.stop(fetcher)

    async def run(self) -> None:
        await self._running.run()
