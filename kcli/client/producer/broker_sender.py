"""BrokerSender: the connection to one broker, and the queues that may have batches for it.

`pump` sends until no queue is ready or max.in.flight.requests.per.connection is reached; it is
called whenever that may have changed. One task for each broker sender connects when there is
something to send and no connection.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import struct
from collections import deque
from typing import Protocol, TypeAlias
from uuid import UUID

from kcli.client.cluster import Cluster
from kcli.client.config import ProducerConfig
from kcli.client.producer.accumulator import Accumulator
from kcli.client.producer.partition_queue import PartitionQueue, ProducerBatch, Rules
from kcli.client.producer.produce import (
    BY_TOPIC_ID,
    PartitionProduceData,
    PartitionProduceResponse,
    read_response,
    request_body,
)
from kcli.client.producer.record_faults import encoding_fault
from kcli.client.producer.transactions import BEFORE_IMPLICIT
from kserver.errors import ErrorCode, KafkaError, ProtocolError
from kserver.model import NO_PRODUCER_ID, BrokerId
from kserver.peer import Peer
from kserver.wire.api_key import ApiKey
from kserver.wire.batch import EncodedRecords, batch_in_two
from kserver.wire.compression import Compression

BatchesByPartition: TypeAlias = dict[tuple[str | UUID, int], ProducerBatch]

# Seconds between checks of whether a throttling broker has disconnected, which ends its throttle.
LOOK_AGAIN = 1.0

_MISSING = PartitionProduceResponse(
    ErrorCode.network_exception, "the broker left it out", -1, -1, ()
)
_UNACKED = PartitionProduceResponse(ErrorCode.none, "", -1, -1, ())

_logger = logging.getLogger(__name__)


class Encoder:
    """Encodes a batch, or returns the bytes of an earlier attempt while they are valid."""

    def __init__(self, config: ProducerConfig) -> None:
        self._codec = Compression[config.compression_type]
        levels = {
            Compression.gzip: config.compression_gzip_level,
            Compression.lz4: config.compression_lz4_level,
            Compression.zstd: config.compression_zstd_level,
        }
        self._level = levels.get(self._codec)
        self._transactional = config.transactional_id is not None

    def encode(self, batch: ProducerBatch) -> tuple[bytes, bytes]:
        """Return header and records."""
        if batch.encoded is None:
            queue = batch.queue
            sequenced = batch.base_sequence >= 0
            batch.encoded = batch_in_two(
                batch.records,
                compression=self._codec,
                level=self._level,
                producer_id=queue.producer_id if sequenced else NO_PRODUCER_ID,
                producer_epoch=queue.epoch if sequenced else -1,
                base_sequence=batch.base_sequence,
                transactional=self._transactional,
            )
        return batch.encoded


class Events(Protocol):
    """Callbacks from a broker sender to the sender."""

    def settle(self, batch: ProducerBatch, response: PartitionProduceResponse) -> None: ...

    def fail_batch(self, batch: ProducerBatch, error: Exception) -> None: ...

    def enqueue(self, queue: PartitionQueue) -> None:
        """Hand over a queue that has another leader now."""

    def metadata_is_stale(self) -> None: ...

    def need_producer_id(self) -> None: ...


class BrokerSender:
    def __init__(
        self,
        node: BrokerId,
        config: ProducerConfig,
        cluster: Cluster,
        accumulator: Accumulator,
        rules: Rules,
        encoder: Encoder,
        events: Events,
    ) -> None:
        self._node = node
        self._config = config
        self._cluster = cluster
        self._accumulator = accumulator
        self._rules = rules
        self._encoder = encoder
        self._events = events
        self._loop = asyncio.get_running_loop()
        self._acks = config.required_acks
        self._peer: Peer | None = None
        self._ready: deque[PartitionQueue] = deque()
        self._in_flight = 0
        self._scheduled = False
        self._not_before = 0.0
        self._wake = asyncio.Event()

    def add(self, queue: PartitionQueue) -> None:
        """Add a queue that may have something to send."""
        queue.queued = True
        self._ready.append(queue)
        self.schedule()

    def schedule(self) -> None:
        """Schedule one pump, so that records offered in one turn go out together."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self.pump)

    async def wait_until_written(self) -> None:
        """Wait until the socket has taken what was posted without a response to wait for
        (acks=0).
        """
        if self._peer is not None:
            await self._peer.drained()

    # The connection

    async def run(self) -> None:
        tries = 0
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                peer = await self._cluster.peer(self._node)
                if peer is not self._peer:
                    self._peer = peer
                    self._not_before = 0.0
                    for queue in self._accumulator.queues_of_leader(self._node):
                        queue.on_connect()
                await peer.writable()
                tries = 0
            except (OSError, KafkaError, ProtocolError) as error:
                _logger.debug("broker %d cannot be reached: %s", self._node, error)
                tries += 1
                self._events.metadata_is_stale()
                self._release()
                await self._cluster.pause(tries)
            self.schedule()

    def _release(self) -> None:
        """Release the queues that have another leader now."""
        for _ in range(len(self._ready)):
            queue = self._ready.popleft()
            if queue.leader == self._node:
                self._ready.append(queue)
            else:
                self._return_queue(queue)

    def _return_queue(self, queue: PartitionQueue) -> None:
        queue.queued = False
        self._events.enqueue(queue)

    # Out

    def pump(self) -> None:
        self._scheduled = False
        if not self._ready:
            return
        if self._rules.idempotent and self._rules.producer_id == NO_PRODUCER_ID:
            self._events.need_producer_id()
            return
        now = self._loop.time()
        if self._not_before > now and self._peer is not None and self._peer.is_open:
            self._scheduled = True
            self._loop.call_at(min(self._not_before, now + LOOK_AGAIN), self.pump)
            return
        while self._ready and self._in_flight < self._rules.max_in_flight:
            peer = self._peer
            if peer is None or not peer.is_open or not peer.is_writable:
                self._wake.set()
                return
            batches = self._drain(now)
            if not batches:
                return
            self._send(peer, batches)

    def _drain(self, now: float) -> list[ProducerBatch]:
        """Take at most one batch of each ready queue, together within max.request.size."""
        ready = self._ready
        batches: list[ProducerBatch] = []
        room = self._config.max_request_size
        for _ in range(len(ready)):
            queue = ready.popleft()
            if queue.leader != self._node:
                self._return_queue(queue)
                continue
            batch = queue.next_batch(now)
            if batch is None:
                queue.queued = False
                continue
            if batches and batch.size > room:
                ready.appendleft(queue)
                break
            self._accumulator.take(batch)
            batches.append(batch)
            room -= batch.size
            if queue.waiting:
                ready.append(queue)
            else:
                queue.queued = False
        return batches

    def _send(self, peer: Peer, batches: list[ProducerBatch]) -> None:
        try:
            version = self._version(peer, batches)
        except KafkaError as error:
            for batch in batches:
                self._events.fail_batch(batch, error)
            return
        batches_by_partition: BatchesByPartition = {}
        parts = []
        for batch in batches:
            name, partition = batch.queue.partition
            id = self._topic_id(name)
            topic = name if version < BY_TOPIC_ID or id is None else id
            try:
                parts.append(PartitionProduceData(topic, partition, *self._encoder.encode(batch)))
            except (TypeError, ValueError, AttributeError, struct.error) as error:
                self._events.fail_batch(batch, _error_for(batch, error))
                continue
            batches_by_partition[topic, partition] = batch
        if parts:
            self._ask(peer, version, parts, batches_by_partition)

    def _version(self, peer: Peer, batches: list[ProducerBatch]) -> int:
        """Return the newest version of Produce that both ends know. By name (before topic ids) if a
        topic id is unknown; before KIP-890's implicit versions in a transaction by the older
        protocol, which those versions would not mean.
        """
        if self._rules.transactional and not self._rules.implicit:
            return peer.version(ApiKey.PRODUCE, BEFORE_IMPLICIT[ApiKey.PRODUCE])
        version = peer.version(ApiKey.PRODUCE)
        names = {batch.queue.partition.topic for batch in batches}
        if version >= BY_TOPIC_ID and None in map(self._topic_id, names):
            return peer.version(ApiKey.PRODUCE, BY_TOPIC_ID - 1)
        return version

    def _topic_id(self, name: str) -> UUID | None:
        topic = self._cluster.topics.get(name)
        return None if topic is None else topic.id

    def _ask(
        self,
        peer: Peer,
        version: int,
        parts: list[PartitionProduceData],
        batches_by_partition: BatchesByPartition,
    ) -> None:
        timeout_ms = self._config.request_timeout_ms
        body = request_body(
            version,
            parts,
            acks=self._acks,
            timeout_ms=timeout_ms,
            transactional_id=self._config.transactional_id,
        )
        try:
            if self._acks == 0:
                # Without a response, a batch counts as delivered once the socket took it.
                peer.post(ApiKey.PRODUCE, version, body)
                for batch in batches_by_partition.values():
                    self._events.settle(batch, _UNACKED)
                return
            response = peer.send(ApiKey.PRODUCE, version, body)
        except (OSError, ProtocolError) as error:
            self._on_connection_lost(batches_by_partition, error)
            return
        self._in_flight += 1
        response.add_done_callback(
            functools.partial(self._on_response, batches_by_partition, version)
        )

    # Responses

    def _on_response(
        self,
        batches_by_partition: BatchesByPartition,
        version: int,
        response: asyncio.Future[memoryview],
    ) -> None:
        self._in_flight -= 1
        if response.cancelled():
            return
        try:
            partition_responses, throttle_ms = read_response(version, response.result())
        except (OSError, ProtocolError) as error:
            self._on_connection_lost(batches_by_partition, error)
            self.schedule()
            return
        if throttle_ms:
            self._not_before = self._loop.time() + throttle_ms / 1000
        for at, batch in batches_by_partition.items():
            self._events.settle(batch, partition_responses.get(at, _MISSING))
        self.pump()

    def _on_connection_lost(
        self, batches_by_partition: BatchesByPartition, error: Exception
    ) -> None:
        """Settle batches whose connection ended before their response: their outcome is unknown."""
        _logger.debug("broker %d: %s", self._node, error)
        outcome = PartitionProduceResponse(ErrorCode.network_exception, str(error), -1, -1, ())
        for batch in batches_by_partition.values():
            self._events.settle(batch, outcome)


def _error_for(batch: ProducerBatch, error: Exception) -> Exception:
    """Return the error for the caller. Records are inspected for the faulty one, unless they came
    encoded.
    """
    if isinstance(batch.records, EncodedRecords):
        return error
    fault = encoding_fault(batch.queue.partition.topic, batch.records)
    if fault is None:
        return error
    fault.__cause__ = error
    return fault
