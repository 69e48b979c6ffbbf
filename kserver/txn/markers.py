"""Transaction markers, written into every partition that took part in a transaction.

    MarkerLog       appends one marker to one partition that this broker leads, and reports when it
                    is committed; for __consumer_offsets, also notifies the group coordinator
    MarkerSender    sends the markers of one transaction to all its partitions, and retries until
                    each is written; then sends MarkersWritten to the coordinator

    result of a partition                                  next
    NONE, UNSUPPORTED_FOR_MESSAGE_FORMAT                   done
    INVALID_PRODUCER_EPOCH: it has a later epoch           done: this one's transaction is not open
    TRANSACTION_COORDINATOR_FENCED: coordinator moved      all of the transaction is abandoned
    any other error, or its broker is unreachable          retried
    (its topic was deleted)                                done
    (no leader, or not in the metadata)                    retried

A topic counts as deleted only once the metadata is from the controller that made this broker the
coordinator; before that, a new topic would appear to be missing.

A transactional id has one `PendingMarkers` at a time, the latest.  An earlier one, of a coordinator
that was loaded again since, must not report for it.  (Kafka: TransactionMarkerChannelManager.)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from kserver.coordinator.runtime import CoordinatorRuntime
from kserver.errors import ErrorCode, KafkaError, ProtocolError, StorageError
from kserver.log.validator import Origin
from kserver.metadata import MetadataCache
from kserver.model import (
    ALL_IN_SYNC,
    CONSUMER_OFFSETS,
    NO_BROKER,
    TRANSACTION_STATE,
    BrokerId,
    LeaderEpoch,
    TopicPartition,
)
from kserver.peers.peers import NotTriedAgain, Outbox, Peers
from kserver.replica.committed import Uncommitted, when_committed
from kserver.replica.manager import ReplicaManager
from kserver.replica.partition import Partition
from kserver.replica.purgatory import Purgatory
from kserver.txn.requests import MarkersWritten
from kserver.txn.shard import WriteMarkers
from kserver.txn.transaction import EPOCH_BUMPS, ProducerIdAndEpoch
from kserver.txn.verification import Verification
from kserver.wire.api_key import ApiKey
from kserver.wire.batch import encode_batch, end_transaction_marker
from kserver.wire.versions import request
from kserver.world.clock import Clock

log = logging.getLogger(__name__)

RETRY_S = 0.1
"""Delay before the marker of a partition is retried, in seconds."""
UNKNOWN_S = 600.0
"""Time after which an unknown partition counts as deleted, in seconds: this broker may have been
down when the controller announced the deletion."""
MAX_MARKERS_PER_REQUEST = 1000
"""Maximum number of markers in one request."""
DONE = frozenset(
    {
        ErrorCode.none,
        ErrorCode.unsupported_for_message_format,
        ErrorCode.invalid_producer_epoch,
    }
)

OnWritten: TypeAlias = Callable[[ErrorCode], None]


@dataclass(frozen=True, slots=True)
class Marker:
    """End of one producer's transaction."""

    producer: ProducerIdAndEpoch
    commit: bool
    coordinator_epoch: LeaderEpoch
    version: int = 0
    """Transaction version; from 2 on no transaction with this epoch has begun yet."""


class MarkerLog:
    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        replicas: ReplicaManager,
        purgatory: Purgatory,
        groups: CoordinatorRuntime[Any],
        verification: Verification,
        timeout_ms: Callable[[], int],
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._replicas = replicas
        self._purgatory = purgatory
        self._groups = groups
        self._verification = verification
        self._timeout_ms = timeout_ms

    def write(self, marker: Marker, key: TopicPartition, on_written: OnWritten) -> None:
        """Append a marker.  The callback gets NONE once it is committed, or an error, possibly at
        once."""
        try:
            partition = self._replicas.get(*key)
            self._append(marker, partition)
        except KafkaError as error:
            on_written(error.code)
            return
        except StorageError:
            on_written(ErrorCode.kafka_storage_error)
            return
        producer_id = marker.producer.producer_id
        self._verification.on_marker(key, producer_id)
        if key.topic == CONSUMER_OFFSETS:
            self._groups.transaction_ended(key.partition, producer_id, marker.commit)
        if partition.log.config.flush_before_ack:
            self._replicas.flush_soon(partition)
        self._purgatory.check(key)
        write = Uncommitted(partition, partition.led_since, partition.log.log_end_offset)
        deadline_s = self._loop.time() + self._timeout_ms() / 1000
        when_committed([write], self._purgatory, deadline_s, lambda codes: on_written(codes[0]))

    def _append(self, marker: Marker, partition: Partition) -> None:
        producer_id, epoch = marker.producer
        open_epoch = partition.open_epoch(producer_id)
        if marker.version >= EPOCH_BUMPS and open_epoch is not None and open_epoch >= epoch:
            # A late duplicate: it does not end the transaction that is open now.
            raise KafkaError(ErrorCode.invalid_producer_epoch)
        now_ms = self._clock.now_ms()
        batch = encode_batch(
            [(now_ms, *end_transaction_marker(marker.commit, marker.coordinator_epoch), ())],
            producer_id=producer_id,
            producer_epoch=epoch,
            transactional=True,
            control=True,
        )
        partition.append_as_leader(
            memoryview(bytearray(batch)), ALL_IN_SYNC, now_ms, origin=Origin.coordinator
        )


class PendingMarkers:
    """Markers of one transaction that are being sent."""

    __slots__ = ("coordinator", "led_since", "remaining", "started_s", "transaction")

    def __init__(self, transaction: WriteMarkers, coordinator: Partition, started_s: float) -> None:
        self.transaction = transaction
        self.started_s = started_s
        self.coordinator = coordinator
        self.led_since = coordinator.led_since
        self.remaining = set(transaction.partitions)

    @property
    def coordinator_epoch(self) -> LeaderEpoch:
        return self.coordinator.epoch

    @property
    def marker(self) -> Marker:
        transaction = self.transaction
        return Marker(
            transaction.producer, transaction.commit, self.coordinator_epoch, transaction.version
        )


Outgoing: TypeAlias = tuple[PendingMarkers, TopicPartition]


class MarkerSender:
    """`knows_topics` returns whether the metadata is from the controller that made this broker the
    coordinator."""

    def __init__(
        self,
        broker_id: BrokerId,
        *,
        loop: asyncio.AbstractEventLoop,
        metadata: MetadataCache,
        replicas: ReplicaManager,
        marker_log: MarkerLog,
        transactions: CoordinatorRuntime[Any],
        peers: Peers,
        knows_topics: Callable[[], bool],
    ) -> None:
        self._broker_id = broker_id
        self._loop = loop
        self._metadata = metadata
        self._replicas = replicas
        self._log = marker_log
        self._transactions = transactions
        self._peers = peers
        self._knows_topics = knows_topics
        self._pending: dict[str, PendingMarkers] = {}
        self._outbox = Outbox[Outgoing](self._send_to, MAX_MARKERS_PER_REQUEST)

    def send(self, transaction: WriteMarkers) -> None:
        """Send markers without waiting; those for partitions led here are appended at once."""
        index = self._transactions.partition_of(transaction.transactional_id)
        coordinator = self._replicas.partitions[TRANSACTION_STATE, index]
        pending = self._pending[transaction.transactional_id] = PendingMarkers(
            transaction, coordinator, self._loop.time()
        )
        self._send([(pending, key) for key in sorted(transaction.partitions)])
        if not transaction.partitions:
            self._finish(pending)

    def _is_current(self, pending: PendingMarkers) -> bool:
        coordinator = pending.coordinator
        return (
            self._pending.get(pending.transaction.transactional_id) is pending
            and self._replicas.partitions.get(coordinator.topic_partition) is coordinator
            and coordinator.is_leader
            and coordinator.led_since == pending.led_since
        )

    def _send(self, markers: Collection[Outgoing]) -> None:
        retries = []
        for pending, key in markers:
            if not self._is_current(pending):
                self._give_up(pending)
                continue
            leader = self._leader(pending, key)
            if leader is None:
                self._on_response(pending, key, ErrorCode.none)
            elif leader == self._broker_id:
                self._log.write(pending.marker, key, partial(self._on_response, pending, key))
            elif leader == NO_BROKER:
                retries.append((pending, key))
            else:
                self._outbox.put(leader, (pending, key))
        self._send_later(retries)

    def _leader(self, pending: PendingMarkers, key: TopicPartition) -> BrokerId | None:
        """Return the leader; None if the partition was deleted.  An unknown partition need not be
        deleted: while its znodes are unreadable, its records are still there without their
        marker."""
        image = self._metadata.current
        topic = image.topics.get(key.topic)
        if topic is not None and key.partition < len(topic.partitions):
            return topic.partitions[key.partition].leader
        if not self._knows_topics():
            return NO_BROKER
        is_deleted = key.topic in image.deleted_topics
        return (
            None if is_deleted or self._loop.time() > pending.started_s + UNKNOWN_S else NO_BROKER
        )

    def _send_later(self, markers: Collection[Outgoing]) -> None:
        if markers:
            self._loop.call_later(RETRY_S, self._send, markers)

    def _on_response(self, pending: PendingMarkers, key: TopicPartition, code: ErrorCode) -> None:
        if not self._is_settled(pending, key, code):
            self._send_later([(pending, key)])

    def _is_settled(self, pending: PendingMarkers, key: TopicPartition, code: ErrorCode) -> bool:
        """Return whether the partition is done or the transaction abandoned; False to retry."""
        if code in DONE:
            pending.remaining.discard(key)
            if not pending.remaining:
                self._finish(pending)
            return True
        if code is ErrorCode.transaction_coordinator_fenced:
            log.warning(
                "%s: transactional id is coordinated by another broker: %s",
                pending.transaction.transactional_id,
                key,
            )
            self._give_up(pending)
            return True
        return False

    def _give_up(self, pending: PendingMarkers) -> None:
        """Abandon the transaction; its next coordinator sends the markers again."""
        if self._pending.get(pending.transaction.transactional_id) is pending:
            del self._pending[pending.transaction.transactional_id]

    def _finish(self, pending: PendingMarkers) -> None:
        """Send MarkersWritten to the coordinator, with retries while it cannot take it: too few of
        its replicas are in sync, or this broker has a new ZooKeeper session and does not know yet
        that it still leads.

        A coordinator that is loaded again sends the markers again.
        """
        if not self._is_current(pending):
            self._give_up(pending)
            return
        transaction = pending.transaction
        markers_written = MarkersWritten(transaction.transactional_id, transaction.producer)
        try:
            response = self._transactions.ask(transaction.transactional_id, markers_written)
        except KafkaError:
            self._loop.call_later(RETRY_S, self._finish, pending)
        else:
            response.add_done_callback(partial(self._on_completed, pending))

    def _on_completed(self, pending: PendingMarkers, response: asyncio.Future[Any]) -> None:
        error = None if response.cancelled() else response.exception()
        if isinstance(error, KafkaError) and error.code is ErrorCode.coordinator_not_available:
            self._loop.call_later(RETRY_S, self._finish, pending)
        else:
            self._give_up(pending)

    # Requests to other brokers

    async def run(self) -> None:
        """Send markers until cancelled."""
        try:
            await self._outbox.run()
        finally:
            self._peers.close()

    async def _send_to(self, broker: BrokerId, markers: Sequence[Outgoing]) -> None:
        current = [(pending, key) for pending, key in markers if self._is_current(pending)]
        if not current:
            return
        try:
            peer = await self._peers.to(broker)
            response = await peer.call(_request(peer.version(ApiKey.WRITE_TXN_MARKERS), current))
        except NotTriedAgain:
            self._send_later(current)
            return
        except (OSError, ProtocolError, KafkaError) as error:
            log.info("broker %d: WriteTxnMarkers failed, will retry: %s", broker, error)
            self._send_later(current)
            return
        codes = {
            (
                marker.producer_id,
                TopicPartition(topic.name, partition.partition_index),
            ): partition.error_code
            for marker in response.markers
            for topic in marker.topics
            for partition in topic.partitions
        }
        retries = []
        for pending, key in current:
            marker_key = pending.transaction.producer.producer_id, key
            code = codes.get(marker_key, ErrorCode.unknown_server_error)
            if not self._is_settled(pending, key, code):
                retries.append((pending, key))
        self._send_later(retries)


def _request(version: int, markers: Collection[Outgoing]) -> Any:
    new = request(ApiKey.WRITE_TXN_MARKERS, version)
    topics_by_transaction: dict[PendingMarkers, dict[str, list[int]]] = {}
    for pending, key in markers:
        topics_by_transaction.setdefault(pending, {}).setdefault(key.topic, []).append(
            key.partition
        )
    return new(
        markers=[
            new.markers(
                producer_id=pending.transaction.producer.producer_id,
                producer_epoch=pending.transaction.producer.epoch,
                transaction_result=pending.transaction.commit,
                coordinator_epoch=pending.coordinator_epoch,
                transaction_version=pending.transaction.version,
                topics=[
                    new.markers.topics(name=name, partition_indexes=tuple(indexes))
                    for name, indexes in topics.items()
                ],
            )
            for pending, topics in topics_by_transaction.items()
        ]
    )
