"""The ends of transactions, written into every partition that took part.

    MarkerLog       one marker into one partition that this broker leads: committed, then told;
                    a partition of __consumer_offsets is also told to its groups' coordinator
    MarkerSender    the markers of one transaction to all its partitions, wherever they are led,
                    again and again until each is there; then MarkersWritten to the coordinator

    a partition answers                                    what becomes of it
    NONE, UNSUPPORTED_FOR_MESSAGE_FORMAT                   done
    INVALID_PRODUCER_EPOCH: it knows a later epoch         done: nothing of this one is open there
    TRANSACTION_COORDINATOR_FENCED: another coordinates    given up, all of the transaction
    anything else, or its broker cannot be reached         tried again
    (its topic was deleted)                                done
    (nobody leads it, or nobody has told of it)            tried again

That a topic was deleted is believed once the controller that made this broker the coordinator has
told of its topics: before, one that is new would look like none.

A transactional id has one errand at a time, the last that was given: an earlier one of a
coordinator that was loaded anew must not report for it.  (Kafka: TransactionMarkerChannelManager.)
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
from kserver.wire.batch import encode_batch, end_transaction_marker
from kserver.wire.versions import request
from kserver.world.clock import Clock

log = logging.getLogger(__name__)

WRITE_TXN_MARKERS = 27
RETRY_S = 0.1
"""Before a partition that could not take its marker is asked again."""
UNKNOWN_S = 600.0
"""After which a partition that is still unknown is taken for deleted: this broker may have been
down when the controller said so."""
MOST_AT_ONCE = 1000
"""Markers in one request."""
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
    """The end of one producer's transaction."""

    producer: ProducerIdAndEpoch
    commit: bool
    coordinator_epoch: LeaderEpoch
    version: int = 0
    """The version of transactions: from 2 on no transaction under this epoch has begun yet."""


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
        """`told` is called once it is committed, or with the reason why not: maybe at once."""
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
            # It was sent again, and late: it is not the end of what is open now.
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
    """The markers of one transaction, on their way."""

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
    """`knows_topics` says whether the metadata is that of the controller by whose word this broker
    coordinates."""

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
        self._outbox = Outbox[Outgoing](self._send_to, MOST_AT_ONCE)

    def send(self, wanted: WriteMarkers) -> None:
        """Returns at once; what this broker leads itself is then written."""
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
        """None where the partition was deleted.  One that is unknown need not be: its znodes may be
        unreadable for a while, and then its records are there without their marker."""
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
        """False where the partition is to be asked again."""
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
        """Whoever coordinates it from now on sends them again."""
        if self._errands.get(errand.wanted.transactional_id) is errand:
            del self._errands[errand.wanted.transactional_id]

    def _finish(self, errand: Errand) -> None:
        """Tell the coordinator, again and again while too few of its replicas are in sync.

        Once it is loaded again, it has the markers sent again.
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

    # To other brokers

    async def run(self) -> None:
        """Until it is cancelled."""
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
            answer = await peer.call(_request(peer.version(WRITE_TXN_MARKERS), wanted))
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
    new = request(WRITE_TXN_MARKERS, version)
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
