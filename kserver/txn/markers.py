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

A transactional id has one errand at a time, the latest.  An earlier errand, of a coordinator that
was loaded again since, must not report for it.  (Kafka: TransactionMarkerChannelManager.)
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
from kserver.peers import NotTriedAgain, Outbox, Peers
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

Told: TypeAlias = Callable[[ErrorCode], None]


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

    def write(self, marker: Marker, key: TopicPartition, told: Told) -> None:
        """Append a marker.  The callback gets NONE once it is committed, or an error, possibly at
        once."""
        try:
            partition = self._replicas.get(*key)
            self._append(marker, partition)
        except KafkaError as error:
            told(error.code)
            return
        except StorageError:
            told(ErrorCode.kafka_storage_error)
            return
        producer_id = marker.producer.producer_id
        self._verification.ended(key, producer_id)
        if key.topic == CONSUMER_OFFSETS:
            self._groups.transaction_ended(key.partition, producer_id, marker.commit)
        if partition.log.config.flush_before_ack:
            self._replicas.flush_soon(partition)
        self._purgatory.check(key)
        appended = Uncommitted(partition, partition.led_since, partition.log.log_end_offset)
        deadline_s = self._loop.time() + self._timeout_ms() / 1000
        when_committed([appended], self._purgatory, deadline_s, lambda codes: told(codes[0]))

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


class Errand:
    """Markers of one transaction that are being sent."""

    __slots__ = ("begun_s", "coordinator", "led_since", "left", "wanted")

    def __init__(self, wanted: WriteMarkers, coordinator: Partition, begun_s: float) -> None:
        self.wanted = wanted
        self.begun_s = begun_s
        self.coordinator = coordinator
        self.led_since = coordinator.led_since
        self.left = set(wanted.partitions)

    @property
    def coordinator_epoch(self) -> LeaderEpoch:
        return self.coordinator.epoch

    @property
    def marker(self) -> Marker:
        wanted = self.wanted
        return Marker(wanted.producer, wanted.commit, self.coordinator_epoch, wanted.version)


Outgoing: TypeAlias = tuple[Errand, TopicPartition]


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
        self._errands: dict[str, Errand] = {}
        self._outbox = Outbox[Outgoing](self._send_to, MAX_MARKERS_PER_REQUEST)

    def send(self, wanted: WriteMarkers) -> None:
        """Send markers without waiting; those for partitions led here are appended at once."""
        index = self._transactions.partition_of(wanted.transactional_id)
        coordinator = self._replicas.partitions[TRANSACTION_STATE, index]
        errand = self._errands[wanted.transactional_id] = Errand(
            wanted, coordinator, self._loop.time()
        )
        self._send([(errand, key) for key in sorted(wanted.partitions)])
        if not wanted.partitions:
            self._finish(errand)

    def _is_current(self, errand: Errand) -> bool:
        coordinator = errand.coordinator
        return (
            self._errands.get(errand.wanted.transactional_id) is errand
            and self._replicas.partitions.get(coordinator.topic_partition) is coordinator
            and coordinator.is_leader
            and coordinator.led_since == errand.led_since
        )

    def _send(self, markers: Collection[Outgoing]) -> None:
        again = []
        for errand, key in markers:
            if not self._is_current(errand):
                self._give_up(errand)
                continue
            leader = self._leader(errand, key)
            if leader is None:
                self._answered(errand, key, ErrorCode.none)
            elif leader == self._broker_id:
                self._log.write(errand.marker, key, partial(self._answered, errand, key))
            elif leader == NO_BROKER:
                again.append((errand, key))
            else:
                self._outbox.put(leader, (errand, key))
        self._send_later(again)

    def _leader(self, errand: Errand, key: TopicPartition) -> BrokerId | None:
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
        return None if is_deleted or self._loop.time() > errand.begun_s + UNKNOWN_S else NO_BROKER

    def _send_later(self, markers: Collection[Outgoing]) -> None:
        if markers:
            self._loop.call_later(RETRY_S, self._send, markers)

    def _answered(self, errand: Errand, key: TopicPartition, code: ErrorCode) -> None:
        if not self._is_settled(errand, key, code):
            self._send_later([(errand, key)])

    def _is_settled(self, errand: Errand, key: TopicPartition, code: ErrorCode) -> bool:
        """Return whether the partition is done or the transaction abandoned; False to retry."""
        if code in DONE:
            errand.left.discard(key)
            if not errand.left:
                self._finish(errand)
            return True
        if code is ErrorCode.transaction_coordinator_fenced:
            log.warning(
                "%s: transactional id is coordinated by another broker: %s",
                errand.wanted.transactional_id,
                key,
            )
            self._give_up(errand)
            return True
        return False

    def _give_up(self, errand: Errand) -> None:
        """Abandon the transaction; its next coordinator sends the markers again."""
        if self._errands.get(errand.wanted.transactional_id) is errand:
            del self._errands[errand.wanted.transactional_id]

    def _finish(self, errand: Errand) -> None:
        """Send MarkersWritten to the coordinator, with retries while too few of its replicas are
        in sync.

        A coordinator that is loaded again sends the markers again.
        """
        if not self._is_current(errand):
            self._give_up(errand)
            return
        wanted = errand.wanted
        done = MarkersWritten(wanted.transactional_id, wanted.producer)
        try:
            answer = self._transactions.ask(wanted.transactional_id, done)
        except KafkaError as error:
            log.info("%s: %s", wanted.transactional_id, error)
            self._give_up(errand)
        else:
            answer.add_done_callback(partial(self._completed, errand))

    def _completed(self, errand: Errand, answer: asyncio.Future[Any]) -> None:
        error = None if answer.cancelled() else answer.exception()
        if isinstance(error, KafkaError) and error.code is ErrorCode.coordinator_not_available:
            self._loop.call_later(RETRY_S, self._finish, errand)
        else:
            self._give_up(errand)

    # Requests to other brokers

    async def run(self) -> None:
        """Send markers until cancelled."""
        try:
            await self._outbox.run()
        finally:
            self._peers.close()

    async def _send_to(self, broker: BrokerId, markers: Sequence[Outgoing]) -> None:
        wanted = [(errand, key) for errand, key in markers if self._is_current(errand)]
        if not wanted:
            return
        try:
            peer = await self._peers.to(broker)
            answer = await peer.call(_request(peer.version(ApiKey.WRITE_TXN_MARKERS), wanted))
        except NotTriedAgain:
            self._send_later(wanted)
            return
        except (OSError, ProtocolError, KafkaError) as error:
            log.info("broker %d: WriteTxnMarkers failed, will retry: %s", broker, error)
            self._send_later(wanted)
            return
        codes = {
            (marker.producer_id, TopicPartition(topic.name, one.partition_index)): one.error_code
            for marker in answer.markers
            for topic in marker.topics
            for one in topic.partitions
        }
        again = []
        for errand, key in wanted:
            named = errand.wanted.producer.producer_id, key
            code = codes.get(named, ErrorCode.unknown_server_error)
            if not self._is_settled(errand, key, code):
                again.append((errand, key))
        self._send_later(again)


def _request(version: int, markers: Collection[Outgoing]) -> Any:
    new = request(ApiKey.WRITE_TXN_MARKERS, version)
    by_errand: dict[Errand, dict[str, list[int]]] = {}
    for errand, key in markers:
        by_errand.setdefault(errand, {}).setdefault(key.topic, []).append(key.partition)
    return new(
        markers=[
            new.markers(
                producer_id=errand.wanted.producer.producer_id,
                producer_epoch=errand.wanted.producer.epoch,
                transaction_result=errand.wanted.commit,
                coordinator_epoch=errand.coordinator_epoch,
                transaction_version=errand.wanted.version,
                topics=[
                    new.markers.topics(name=name, partition_indexes=tuple(indexes))
                    for name, indexes in topics.items()
                ],
            )
            for errand, topics in by_errand.items()
        ]
    )
