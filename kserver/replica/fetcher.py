"""Fetchers: replicate the partitions that this broker follows from their leaders.

    fetch      from the end of each log, with the epoch of its end; only the partitions that
               changed since the last fetch are named (follower_session.py)
    records    appended unchanged from the response; the high watermark follows the leader's
    diverging  the log is truncated where it diverges (truncation.py), and fetched again
    behind     the leader's log starts after the end of the local one, which is truncated fully
               and restarts at the leader's start
    unaligned  that start lies within a batch, after DeleteRecords: the log restarts where the
               batch begins, as it is appended whole
    throttled  not fetched while the rate is exceeded (throttle.py), unless the replica is caught up
    refused    retried after a backoff, which grows up to `replica.fetch.backoff.ms`, or in the
               next leader epoch
    moved      the connection is closed once the metadata has another address of the leader

A fetcher follows one leader (fetcher_manager.py).
Responses for a partition whose leader epoch has ended meanwhile are dropped.  A truncation that has
begun is completed, even if the leader changes: until then the log refuses appends and its end is
not known.

The next fetch is sent once the whole previous response was appended, since its offsets are not
known before.

(Kafka: AbstractFetcherThread; UnexpectedAppendOffsetException for an unaligned start.)
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, NamedTuple

from kserver.config.broker import BrokerConfig
from kserver.errors import ErrorCode, KafkaError, ProtocolError, StorageError
from kserver.metadata import ClusterMetadata, MetadataCache
from kserver.metrics.meters import OneMinuteRate, ReplicationMeters
from kserver.model import BrokerId, LeaderEpoch, TopicPartition
from kserver.peer import Peer, PeerOptions
from kserver.replica import fetch_bytes
from kserver.replica.fetch_bytes import FetchedPartition, FetchRequestLimits
from kserver.replica.follower_session import FollowerSession, PartitionKey, Position
from kserver.replica.partition import Partition
from kserver.replica.throttle import ReplicationQuota, is_listed
from kserver.replica.truncation import truncation_offset, unaligned_start
from kserver.wire import versions
from kserver.wire.api_key import ApiKey
from kserver.wire.special_offsets import EARLIEST, LATEST
from kserver.world.clock import Clock

log = logging.getLogger(__name__)

WARN_AGAIN_S = 60.0
LOST_S = 1.0
"""How long a broken connection suggests that the leader is down; a failover takes less time.  After
that, the leader may as well be up, and unreachable only from here."""
ADDRESS_TIMEOUT_S = 1.0
_LOOK_ALL_S = 1.0
"""Interval for including partitions without new records: retention may have moved their log
start."""
THROTTLED_PAUSE_S = 0.1
"""Pause of a fetcher that has only throttled replicas."""
FIRST_BACKOFF_S = 0.02
"""First backoff after an error.  A leader may learn its role milliseconds after its followers.  The
backoff doubles with each further error."""
PASSING = frozenset(
    {
        ErrorCode.fenced_leader_epoch,
        ErrorCode.not_leader_or_follower,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.unknown_topic_id,
        ErrorCode.unknown_topic_or_partition,
    }
)
"""Errors of a leader that learned of the start or end of its role at another time than we did."""


class FetcherContext(NamedTuple):
    """Dependencies that the fetchers of one broker share."""

    broker_id: BrokerId
    broker_epoch: Callable[[], int]
    config: Callable[[], BrokerConfig]
    metadata: MetadataCache
    clock: Clock
    loop: asyncio.AbstractEventLoop
    quota: ReplicationQuota
    meters: ReplicationMeters
    advanced: Callable[[TopicPartition], None]
    """Called for each partition whose high watermark rose: consumers may wait on it."""


class ReplicaFetcher:
    """Follows the broker `leader`; the metadata has its address."""

    def __init__(self, leader: BrokerId, name: str, context: FetcherContext) -> None:
        self.leader = leader
        self.name = name
        self._rate = OneMinuteRate(context.loop.time())
        self.requests = 0
        self.bytes = 0
        """Bytes of all responses so far."""
        self.lags: dict[Partition, int] = {}
        """Number of committed records that each partition lacks, according to the leader's last
        response."""
        self._context = context
        self._loop = context.loop
        self._config = context.config
        self._partitions: dict[PartitionKey, Partition] = {}
        self._changed: dict[Partition, None] = {}
        """Partitions whose position may differ from the last request."""
        self._refused: dict[Partition, int] = {}
        """Number of consecutive errors of each partition."""
        self._failures = 0
        """Number of consecutive fetches that failed as a whole."""
        self._warned = ""
        """The error that was logged last, until a fetch succeeds."""
        self._warn_again_s = 0.0
        self._resumed_s: dict[Partition, float] = {}
        """Loop time at which each refused partition may be fetched again."""
        self._throttled: dict[Partition, None] = {}
        """Partitions that are not fetched while the replication rate is exceeded."""
        self._session = FollowerSession()
        self._looked_s = 0.0
        self._wakes = asyncio.Event()
        self._peer: Peer | None = None
        self._has_ended = False
        self._lost_s: float | None = None
        """Loop time at which the leader's connection broke; None once it responds again."""
        self.truncations: dict[TopicPartition, asyncio.Future[None]] = {}
        """Logs that are being truncated, with a future that is done afterwards."""

    @property
    def failed_partitions(self) -> int:
        """Number of partitions that wait for their next try."""
        return len(self._resumed_s)

    @property
    def rate(self) -> float:
        """Fetches per second, averaged over the last minute."""
        return self._rate.read(self._loop.time())

    @property
    def address(self) -> tuple[str, str]:
        """Host and port of the connection; empty while there is none."""
        return ("", "") if self._peer is None else (self._peer.host, str(self._peer.port))

    @property
    def is_idle(self) -> bool:
        return not self._partitions

    def add(self, partition: Partition) -> None:
        """Start fetching the partition, or fetch it in its new leader epoch."""
        self._partitions[_key(partition)] = partition
        self._changed[partition] = None
        self._refused.pop(partition, None)
        self._resumed_s.pop(partition, None)
        self._wakes.set()

    def remove(self, partition: Partition) -> None:
        key = _key(partition)
        if self._partitions.get(key) is partition:
            del self._partitions[key]
            self._session.forget(key)
        self._changed.pop(partition, None)
        self._refused.pop(partition, None)
        self._resumed_s.pop(partition, None)
        self._throttled.pop(partition, None)
        self.lags.pop(partition, None)

    @property
    def has_lost_leader(self) -> bool:
        """Whether the connection broke less than LOST_S ago, and was not restored."""
        if self._lost_s is not None:
            return self._loop.time() - self._lost_s < LOST_S
        return self._peer is not None and not self._peer.is_open

    def apply(self, image: ClusterMetadata) -> None:
        """Close the connection if the leader has another address now.  Another broker may listen at
        the old one: it refuses every fetch and keeps the connection open."""
        broker, peer = image.brokers.get(self.leader), self._peer
        if broker is None or peer is None:
            return
        endpoint = broker.endpoints.get(self._config().inter_broker_listener)
        if endpoint is not None and (endpoint.host, endpoint.port) != (peer.host, peer.port):
            peer.close()

    def end(self) -> None:
        """Make `run` return as soon as no log is being truncated."""
        self._has_ended = True
        self._wakes.set()
        if self._peer is not None:
            self._peer.close()

    async def run(self) -> None:
        try:
            while not self._has_ended:
                if self._partitions:
                    await self._fetch_or_report()
                else:
                    await self._pause(math.inf)
        finally:
            if self._peer is not None:
                self._peer.close()

    async def _fetch_or_report(self) -> None:
        """Fetch once.  A bug in one fetcher must not end the broker, which leads other
        partitions."""
        try:
            await self._fetch()
        except Exception as bug:
            self._report(f"{self.name}: fetch from broker {self.leader} failed", bug)
            self._session.lost()
            if self._peer is not None:
                self._peer.close()
            await self._pause(self._longest_backoff_s)

    def _report(self, subject: str, bug: Exception) -> None:
        message = f"{subject}, retrying: a bug in this broker"
        self._loop.call_exception_handler({"message": message, "exception": bug})

    def _warn(self, error: str) -> None:
        """Log a failed fetch, the same error only every `WARN_AGAIN_S`.

        A leader that is down fails once or more a second.
        """
        now_s = self._loop.time()
        if error != self._warned or now_s >= self._warn_again_s:
            log.warning("%s: fetch from broker %d failed: %s", self.name, self.leader, error)
            self._warned, self._warn_again_s = error, now_s + WARN_AGAIN_S

    async def _pause(self, pause_s: float) -> None:
        """Wait for `pause_s`, or until a partition is added."""
        self._wakes.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(None if pause_s == math.inf else pause_s):
                await self._wakes.wait()

    async def _fetch(self) -> None:
        self._position()
        session = self._session
        if not session.positions:
            soonest_s = min(self._resumed_s.values(), default=math.inf)
            if self._throttled:
                soonest_s = min(soonest_s, self._loop.time() + THROTTLED_PAUSE_S)
            await self._pause(max(0.0, soonest_s - self._loop.time()))
            return
        config = self._config()
        limits = FetchRequestLimits(
            config.replica_fetch_wait_max_ms,
            config.replica_fetch_min_bytes,
            config.replica_fetch_response_max_bytes,
            config.replica_fetch_max_bytes,
        )
        try:
            peer = await self._connected()
            version = peer.version(ApiKey.FETCH, fetch_bytes.LAST_VERSION)
            if version < fetch_bytes.FIRST_VERSION:
                raise ProtocolError("it does not support topic ids in Fetch; upgrade it")
            # Connecting takes time, in which the logs may have moved.
            self._position()
            context = self._context
            body = fetch_bytes.write_request(
                version, context.broker_id, context.broker_epoch(), limits, session.request()
            )
            frame = await peer.send(ApiKey.FETCH, version, (body,))
            response = fetch_bytes.read_response(frame)
            self._lost_s = None
            self.requests += 1
            self._rate.mark(self._loop.time())
            self.bytes += len(frame)
        except (OSError, KafkaError, ProtocolError) as error:
            session.failed()
            if self._lost_s is None and isinstance(error, ConnectionError):
                self._lost_s = self._loop.time()
            if not self._has_ended:
                self._warn(str(error))
                await self._pause(self._backoff_s(self._failures))
                self._failures += 1
            return
        if response.error_code:
            code = ErrorCode(response.error_code)
            log.info("%s: fetch from broker %d returned %s", self.name, self.leader, code.name)
            session.lost()
            await self._pause(self._backoff_s(self._failures) if self._failures else 0)
            self._failures += 1
            return
        if self._warned:
            log.info("%s: fetches from broker %d succeed again", self.name, self.leader)
            self._warned = ""
        self._failures = 0
        session.responded(response.session_id)
        for partition_data in response.partitions:
            await self._take(partition_data, peer)

    def _position(self) -> None:
        """Update the session with the position of each log that may have moved."""
        now_s = self._loop.time()
        if self._resumed_s:
            for partition, at_s in list(self._resumed_s.items()):
                if at_s <= now_s:
                    del self._resumed_s[partition]
                    self._changed[partition] = None
        if now_s >= self._looked_s + _LOOK_ALL_S:
            self._looked_s = now_s
            self._changed.update(
                (p, None) for p in self._partitions.values() if p not in self._resumed_s
            )
        too_much = self._context.quota.is_exceeded(int(now_s * 1000))
        if self._throttled and not too_much:
            self._changed.update(self._throttled)
            self._throttled.clear()
        for partition in self._changed:
            own = partition.log
            if too_much and self.lags.get(partition) != 0 and self._is_throttled(partition):
                self._throttled[partition] = None
                self._session.forget(_key(partition))
                continue
            self._session.want(
                _key(partition),
                Position(
                    partition.epoch,
                    own.log_end_offset,
                    own.epochs.latest_epoch,
                    own.log_start_offset,
                ),
            )
        self._changed.clear()

    def _is_throttled(self, partition: Partition) -> bool:
        return is_listed(
            partition.log.config.follower_replication_throttled_replicas,
            partition.topic_partition.partition,
            self._context.broker_id,
        )

    async def _connected(self) -> Peer:
        if self._peer is None or not self._peer.is_open:
            # LeaderAndIsr names a leader before UpdateMetadata sends its address.
            image = await self._context.metadata.wait_for(
                lambda image: self.leader in image.brokers, ADDRESS_TIMEOUT_S
            )
            broker = image.brokers[self.leader]
            listener = self._config().inter_broker_listener
            endpoint = broker.endpoints.get(listener)
            if endpoint is None:
                raise ProtocolError(
                    f"it has no listener {listener}; correct inter.broker.listener.name"
                )
            config = self._config()
            options = PeerOptions(
                client_id=self.name,
                setup_timeout_ms=config.socket_connection_setup_timeout_ms,
                request_timeout_ms=config.replica_socket_timeout_ms,
                receive_buffer_bytes=config.replica_socket_receive_buffer_bytes,
            )
            self._peer = await Peer.connect(endpoint.host, endpoint.port, options)
            self.apply(self._context.metadata.current)  # it may have moved meanwhile
        return self._peer

    def _is_current(self, partition: Partition, epoch: LeaderEpoch) -> bool:
        """Whether the partition is still followed in the epoch in which it was fetched."""
        return self._partitions.get(_key(partition)) is partition and partition.epoch == epoch

    async def _take(self, partition_data: FetchedPartition, peer: Peer) -> None:
        """Process a partition's part of the response: append, truncate, or retry later."""
        key, code, high_watermark, log_start_offset, records, diverging = partition_data
        partition, position = self._partitions.get(key), self._session.positions.get(key)
        if partition is None or position is None or partition.epoch != position.leader_epoch:
            # The role, the epoch or the log's end may have changed while the fetch was in flight.
            return
        own = partition.log
        if own.log_end_offset != position.offset:
            return
        try:
            if code:
                if code == ErrorCode.offset_out_of_range:
                    await self._begin_again(partition, position.leader_epoch, peer)
                    return
                raise KafkaError(ErrorCode(code))
            if diverging is not None:
                end = truncation_offset(own.epochs, own.log_end_offset, diverging)
                await self._truncate(partition, end)
                return
            if records:
                base = unaligned_start(own.log_start_offset, own.log_end_offset, records)
                if base is not None:
                    await self._truncate_uninterrupted(
                        partition, own.truncate_fully_and_start_at(base)
                    )
                    if not self._is_current(partition, position.leader_epoch):
                        return
                own.append_as_follower(records, self._context.clock.now_ms())
                self._changed[partition] = None
                self._context.meters.bytes_in += len(records)
                if self._is_throttled(partition):
                    self._context.quota.record(len(records), int(self._loop.time() * 1000))
            self.lags[partition] = max(0, high_watermark - own.log_end_offset)
            old_high_watermark = own.high_watermark
            if high_watermark > old_high_watermark:
                own.update_high_watermark(high_watermark)
                if own.high_watermark > old_high_watermark:
                    self._context.advanced(own.topic_partition)
            start = min(log_start_offset, own.high_watermark)
            if start > own.log_start_offset:
                own.increment_log_start_offset(start)
                self._changed[partition] = None
            self._refused.pop(partition, None)
        except (KafkaError, StorageError, OSError, ProtocolError) as error:
            log_line = log.info if code in PASSING else log.warning
            log_line("%s cannot follow broker %d: %s", own.topic_partition, self.leader, error)
            self._back_off(partition, position.leader_epoch)
        except Exception as bug:
            self._report(f"{own.topic_partition}: append from broker {self.leader} failed", bug)
            self._back_off(partition, position.leader_epoch)

    def _back_off(self, partition: Partition, epoch: LeaderEpoch) -> None:
        """Retry a refused partition after a backoff."""
        if self._is_current(partition, epoch):
            self._changed.pop(partition, None)
            self._session.forget(_key(partition))
            times = self._refused.get(partition, 0)
            self._refused[partition] = times + 1
            self._resumed_s[partition] = self._loop.time() + self._backoff_s(times)

    def _backoff_s(self, times: int) -> float:
        return min(FIRST_BACKOFF_S * (1 << min(times, 10)), self._longest_backoff_s)

    @property
    def _longest_backoff_s(self) -> float:
        return self._config().replica_fetch_backoff_ms / 1000

    async def _truncate(self, partition: Partition, end: int) -> None:
        own = partition.log
        if end < own.high_watermark:
            log.warning(
                "%s: truncated to %d, below the high watermark %d: the leader's log ends there"
                " (unclean.leader.election.enable)",
                own.topic_partition,
                end,
                own.high_watermark,
            )
        else:
            log.info(
                "%s: truncated to %d, where it diverges from the leader's log",
                own.topic_partition,
                end,
            )
        await self._truncate_uninterrupted(partition, own.truncate_to(end))

    async def _truncate_uninterrupted(
        self, partition: Partition, truncation: Coroutine[Any, Any, None]
    ) -> None:
        key = partition.topic_partition
        done = self.truncations[key] = self._loop.create_future()
        task = self._loop.create_task(truncation)
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            # A stop waits for it too: a partly truncated log cannot be closed cleanly.
            await asyncio.wait((task,))
            task.exception()  # the log itself reports a failed disk
            raise
        finally:
            del self.truncations[key]
            done.set_result(None)
            if self._partitions.get(_key(partition)) is partition:
                self._changed[partition] = None

    async def _begin_again(self, partition: Partition, epoch: LeaderEpoch, peer: Peer) -> None:
        """Truncate the log: it ends outside the leader's log, after its end or before its start."""
        own = partition.log
        latest = await self._offset(partition, epoch, LATEST, peer)
        if not self._is_current(partition, epoch):
            return
        if latest < own.log_end_offset:
            await self._truncate(partition, latest)
            return
        earliest = await self._offset(partition, epoch, EARLIEST, peer)
        if not self._is_current(partition, epoch):
            return
        if earliest <= own.log_end_offset:
            raise KafkaError(ErrorCode.offset_out_of_range)
        log.info(
            "%s: truncated fully, restarting at the leader's start offset %d",
            own.topic_partition,
            earliest,
        )
        await self._truncate_uninterrupted(partition, own.truncate_fully_and_start_at(earliest))

    async def _offset(
        self, partition: Partition, epoch: LeaderEpoch, timestamp: int, peer: Peer
    ) -> int:
        new = versions.request(ApiKey.LIST_OFFSETS, peer.version(ApiKey.LIST_OFFSETS, at_most=7))
        key = partition.topic_partition
        query = new.topics.partitions(
            partition_index=key.partition, current_leader_epoch=epoch, timestamp=timestamp
        )
        topic = new.topics(name=key.topic, partitions=[query])
        response = await peer.call(new(replica_id=self._context.broker_id, topics=[topic]))
        partition_result = response.topics[0].partitions[0]
        if partition_result.error_code is not ErrorCode.none:
            raise KafkaError(partition_result.error_code)
        return int(partition_result.offset)


def _key(partition: Partition) -> PartitionKey:
    return partition.topic_id.bytes, partition.topic_partition.partition
