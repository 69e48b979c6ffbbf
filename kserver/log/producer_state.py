"""State of the producers that write to one partition: sequences, epochs, transactions.

Pure: no I/O; the log reads and writes the snapshots.

The last five batches of each producer id are kept, so that a retried batch is recognized and
answered as it was the first time, and a gap is refused.  A snapshot has only the last one; the
others are recalled from the log's end (log/replay).

    a client's batch, its producer known with epoch e and next sequence n     response
    epoch < e                                    INVALID_PRODUCER_EPOCH
    epoch = e, the exact range of a kept batch   that batch: a duplicate, not appended again
    the same, but its transaction has ended      UNKNOWN_PRODUCER_ID
    epoch = e, sequence = n                      appended
    epoch = e, any other sequence                OUT_OF_ORDER_SEQUENCE_NUMBER
    epoch > e, sequence 0                        appended; the kept batches of e are forgotten
    epoch > e, any other sequence                OUT_OF_ORDER_SEQUENCE_NUMBER
    not transactional, a transaction is open     INVALID_TXN_STATE
    producer unknown, the log not empty          appended, whatever its sequence (KIP-360)
    producer unknown, offset 0, sequence 0       appended
    producer unknown, offset 0, any other        OUT_OF_ORDER_SEQUENCE_NUMBER (KAFKA-15591)

In an empty log that starts at 0 nothing can have been deleted.  A sequence above 0 has then
overtaken another batch, which was refused while the partition was being created and would never be
accepted.  After a deletion the log's end is above 0, and a producer that was forgotten continues.
A producer of transaction version 2 starts at 0 in any log, which replica/partition checks.

A producer that ends a transaction has a response for each of its batches, or has given it up.  So a
batch with the sequences of an ended transaction has new records.  librdkafka (2.16) sends such ones
after an abort: it reuses the sequences of records that it gave up when no response came in time.
Apache's broker (4.3.1) takes them for duplicates: the next transaction is committed without them.
After UNKNOWN_PRODUCER_ID, clients abort the transaction, and continue in a new epoch.

Sequences run from 0 to 2^31 - 1 and wrap to 0.  A marker that starts a new epoch leaves n = 0.
Coordinators (group offsets in transactions, markers) have no sequences: only their epoch is
checked.  Batches that a leader already accepted are replayed without checks: a follower and
recovery only append.  DUPLICATE_SEQUENCE_NUMBER is never returned: since Kafka 1.1, an old batch
that is no longer kept is out of order.

    transaction of a producer     transition
    none -> ongoing               the first transactional batch: its offset becomes unstable
    ongoing -> decided            the marker: CompletedTransaction, for the index if aborted
    decided -> none               the high watermark passes the marker

`first_unstable_offset` is the first record of the oldest transaction that is ongoing or decided.
The last stable offset, up to which read_committed consumers read, is never above it.

Kafka: ProducerStateManager, ProducerAppendInfo, ProducerStateEntry.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import NamedTuple

from kserver.errors import ErrorCode, KafkaError, StorageError
from kserver.log.validator import Origin, ValidBatch
from kserver.model import NO_TIMESTAMP, Offset, ProducerId
from kserver.wire.batch import TRANSACTIONAL
from kserver.wire.checksum import crc32c

KEPT_BATCHES = 5
NO_SEQUENCE = -1
NO_OFFSET: Offset = -1

_LAST_SEQUENCE = 0x7FFF_FFFF


class RecentBatch(NamedTuple):
    """One of the last batches of a producer; sequences and offsets are inclusive."""

    first_sequence: int
    last_sequence: int
    first_offset: Offset
    last_offset: Offset
    timestamp: int
    """The batch's maximum timestamp."""


class CompletedTransaction(NamedTuple):
    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset
    """Offset of the marker."""
    is_aborted: bool
    last_stable_offset: Offset
    """First record of the oldest ongoing transaction, else the offset after the marker."""


class ProducerStateEntry:
    """State of one producer id; a DescribeProducers response contains these fields."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "last_timestamp",
        "next_sequence",
        "transaction_start",
    )

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches: list[RecentBatch] = []
        """Last batches, oldest first, at most KEPT_BATCHES, all of `epoch`."""
        self.next_sequence = 0
        self.last_timestamp = NO_TIMESTAMP
        self.coordinator_epoch = -1
        """Epoch of the coordinator that wrote the last marker; -1 before any."""
        self.transaction_start: Offset = NO_OFFSET
        """First record of the ongoing transaction; -1 outside one."""

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def has_ended(self, batch: RecentBatch) -> bool:
        """Whether the transaction of this transactional batch has ended."""
        return not 0 <= self.transaction_start <= batch.first_offset

    def start_epoch(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches.clear()
        self.next_sequence = 0

    def keep(self, batch: RecentBatch) -> None:
        if len(self.batches) == KEPT_BATCHES:
            del self.batches[0]
        self.batches.append(batch)
        self.next_sequence = (batch.last_sequence + 1) & _LAST_SEQUENCE
        self.last_timestamp = batch.timestamp


class ProducerStateManager:
    __slots__ = ("_decided", "_ongoing", "_producers", "expiration_ms", "first_unstable_offset")

    def __init__(self, expiration_ms: int) -> None:
        self.expiration_ms = expiration_ms
        """producer.id.expiration.ms"""
        self.first_unstable_offset: Offset | None = None
        """None while no transaction is open; may be below the log start if that has moved up since.
        """
        self._producers: dict[ProducerId, ProducerStateEntry] = {}
        self._ongoing: dict[Offset, ProducerId] = {}
        """Producer by first offset, ascending: a transaction starts at the log's end."""
        self._decided: dict[Offset, Offset] = {}
        """First offset to marker offset, for transactions whose marker may not be replicated yet.
        """

    @property
    def producers(self) -> Mapping[ProducerId, ProducerStateEntry]:
        return self._producers

    def check(self, batch: ValidBatch, origin: Origin) -> RecentBatch | None:
        """Check whether the leader may append this data batch; return the kept batch it repeats, or
        None.

        Raises INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_TXN_STATE.  Changes
        nothing: `append` follows the write.  Only for batches that have a producer id.
        """
        producer = self._producers.get(batch.producer_id)
        if producer is None:
            if batch.base_offset == 0 and batch.base_sequence > 0 and origin is Origin.client:
                raise KafkaError(
                    ErrorCode.out_of_order_sequence_number,
                    f"Out of order sequence number for producer {batch.producer_id}: "
                    f"{batch.base_sequence} (incoming seq. number), but the log is empty, "
                    "so the first must be 0",
                )
            return None
        epoch = batch.producer_epoch
        if epoch < producer.epoch:
            raise _fenced(batch.producer_id, epoch, producer)
        is_transactional = bool(batch.attributes & TRANSACTIONAL)
        if origin is Origin.client:
            sequence = batch.base_sequence
            if epoch == producer.epoch:
                if sequence != producer.next_sequence:
                    # A producer retries a batch if the first response was lost.
                    last_sequence = _last_sequence(batch)
                    for recent in producer.batches:
                        if recent.first_sequence == sequence and (
                            recent.last_sequence == last_sequence
                        ):
                            if is_transactional and producer.has_ended(recent):
                                raise _reused_sequence(batch)
                            return recent
                    raise KafkaError(
                        ErrorCode.out_of_order_sequence_number,
                        f"Out of order sequence number for producer {batch.producer_id}: "
                        f"{sequence} (incoming seq. number), "
                        f"{producer.last_sequence} (current end sequence number)",
                    )
            elif sequence != 0:
                raise KafkaError(
                    ErrorCode.out_of_order_sequence_number,
                    f"Invalid sequence number for new epoch of producer {batch.producer_id}: "
                    f"{epoch} (request epoch), {sequence} (seq. number), "
                    f"{producer.epoch} (current producer epoch)",
                )
        if producer.transaction_start >= 0 and not is_transactional:
            raise KafkaError(
                ErrorCode.invalid_txn_state,
                f"Expected transactional write from producer {batch.producer_id}",
            )
        return None

    def append(self, batch: ValidBatch) -> None:
        """Record a data batch that was written.  Only for batches that have a producer id."""
        producer = self._producers.get(batch.producer_id)
        if producer is None:
            producer = self._producers[batch.producer_id] = ProducerStateEntry(batch.producer_epoch)
        elif producer.epoch != batch.producer_epoch:
            producer.start_epoch(batch.producer_epoch)
        producer.keep(_recent(batch))
        if batch.attributes & TRANSACTIONAL and producer.transaction_start < 0:
            producer.transaction_start = batch.base_offset
            self._ongoing[batch.base_offset] = batch.producer_id
            self._find_first_unstable()

    def has_room(self) -> bool:
        """Return whether a producer has fewer batches than are kept, so that `recall` may help."""
        return any(0 < len(p.batches) < KEPT_BATCHES for p in self._producers.values())

    def recall(self, batches: Iterable[ValidBatch]) -> None:
        """Keep earlier batches too, which a snapshot does not have: `batches` are the log's last
        ones, oldest first.

        Only those whose sequences lead to the batches that are kept already, in the same epoch.
        """
        earlier: dict[ProducerId, list[ValidBatch]] = {}
        for batch in batches:
            producer = self._producers.get(batch.producer_id)
            if (
                producer is not None
                and producer.batches
                and producer.epoch == batch.producer_epoch
                and batch.last_offset < producer.batches[0].first_offset
            ):
                earlier.setdefault(batch.producer_id, []).append(batch)
        for producer_id, earlier_batches in earlier.items():
            recent = self._producers[producer_id].batches
            for batch in reversed(earlier_batches):
                follows = (_last_sequence(batch) + 1) & _LAST_SEQUENCE == recent[0].first_sequence
                if len(recent) == KEPT_BATCHES or not follows:
                    break
                recent.insert(0, _recent(batch))

    def check_marker(self, batch: ValidBatch, coordinator_epoch: int) -> None:
        """Check whether the leader may append this transaction marker.

        Raises INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
        """
        producer = self._producers.get(batch.producer_id)
        if producer is None:
            return
        if batch.producer_epoch < producer.epoch:
            raise _fenced(batch.producer_id, batch.producer_epoch, producer)
        if coordinator_epoch < producer.coordinator_epoch:
            raise KafkaError(
                ErrorCode.transaction_coordinator_fenced,
                f"Invalid coordinator epoch for producer {batch.producer_id}: {coordinator_epoch} "
                f"(zombie), {producer.coordinator_epoch} (current)",
            )

    def append_marker(
        self, batch: ValidBatch, *, commit: bool, coordinator_epoch: int
    ) -> CompletedTransaction | None:
        """Record a marker that was written; None if it ended nothing: an empty transaction."""
        producer = self._producers.get(batch.producer_id)
        if producer is None:
            producer = self._producers[batch.producer_id] = ProducerStateEntry(batch.producer_epoch)
        elif producer.epoch != batch.producer_epoch:
            producer.start_epoch(batch.producer_epoch)
        producer.coordinator_epoch = coordinator_epoch
        producer.last_timestamp = batch.max_timestamp
        first_offset = producer.transaction_start
        if first_offset < 0:
            return None
        producer.transaction_start = NO_OFFSET
        del self._ongoing[first_offset]
        self._decided[first_offset] = batch.base_offset
        self._find_first_unstable()
        return CompletedTransaction(
            batch.producer_id,
            first_offset,
            batch.base_offset,
            not commit,
            next(iter(self._ongoing), batch.base_offset + 1),
        )

    def replicated_to(self, offset: Offset) -> None:
        """Remove decided transactions whose marker is below `offset`, the high watermark or log
        start."""
        if not self._decided:
            return
        done = [first for first, marker in self._decided.items() if marker < offset]
        for first in done:
            del self._decided[first]
        if done:
            self._find_first_unstable()

    def expire(self, now_ms: int) -> None:
        """Forget producers that were idle for `expiration_ms`, unless in a transaction."""
        idle = [id for id, producer in self._producers.items() if self._is_idle(producer, now_ms)]
        for producer_id in idle:
            del self._producers[producer_id]

    def clear(self) -> None:
        """Forget everything: the log was truncated, and is replayed from a snapshot."""
        self._producers.clear()
        self._ongoing.clear()
        self._decided.clear()
        self.first_unstable_offset = None

    def snapshot(self) -> bytes:
        """Return Kafka's `<offset>.snapshot`, version 1: each producer with its last batch only."""
        entries = bytearray(_COUNT.pack(len(self._producers)))
        for producer_id, producer in self._producers.items():
            last = producer.batches[-1] if producer.batches else None
            entries += _ENTRY.pack(
                producer_id,
                producer.epoch,
                last.last_sequence if last else NO_SEQUENCE,
                last.last_offset if last else NO_OFFSET,
                last.last_offset - last.first_offset if last else 0,
                producer.last_timestamp,
                producer.coordinator_epoch,
                producer.transaction_start,
            )
        return _HEAD.pack(_SNAPSHOT_VERSION, crc32c(entries)) + entries

    def restore(self, snapshot: bytes, path: str, now_ms: int) -> None:
        """Load a snapshot, without the producers that have expired since.

        Raises StorageError if it is corrupt; the state is then empty, and the caller must replay an
        older snapshot or the log itself.
        """
        self.clear()
        self._producers = {
            producer_id: producer
            for producer_id, producer in _decode(snapshot, path).items()
            if not self._is_idle(producer, now_ms)
        }
        self._ongoing = dict(
            sorted(
                (producer.transaction_start, producer_id)
                for producer_id, producer in self._producers.items()
                if producer.transaction_start >= 0
            )
        )
        self._find_first_unstable()

    def check_invariants(self) -> None:
        ongoing = {}
        for producer_id, producer in self._producers.items():
            batches = producer.batches
            assert len(batches) <= KEPT_BATCHES
            assert all(b.first_offset <= b.last_offset for b in batches)
            assert all(a.last_offset < b.first_offset for a, b in pairwise(batches))
            assert producer.next_sequence == (producer.last_sequence + 1) & _LAST_SEQUENCE
            if producer.transaction_start >= 0:
                ongoing[producer.transaction_start] = producer_id
        assert ongoing == self._ongoing
        assert list(self._ongoing) == sorted(self._ongoing)
        assert all(first <= marker for first, marker in self._decided.items())
        assert not self._decided.keys() & self._ongoing.keys()
        unstable = self._ongoing.keys() | self._decided.keys()
        assert self.first_unstable_offset == (min(unstable) if unstable else None)

    def _is_idle(self, producer: ProducerStateEntry, now_ms: int) -> bool:
        return (
            producer.transaction_start < 0
            and now_ms - producer.last_timestamp >= self.expiration_ms
        )

    def _find_first_unstable(self) -> None:
        first = next(iter(self._ongoing), None)
        if self._decided:
            decided = min(self._decided)
            first = decided if first is None else min(first, decided)
        self.first_unstable_offset = first


_HEAD = struct.Struct(">hI")
"""Version, and the CRC-32C of all that follows."""
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")
"""Producer id, epoch, last sequence, last offset, offset delta of the last batch, timestamp,
coordinator epoch, first offset of the ongoing transaction."""
_SNAPSHOT_VERSION = 1


def _decode(snapshot: bytes, path: str) -> dict[ProducerId, ProducerStateEntry]:
    if len(snapshot) < _HEAD.size + _COUNT.size:
        raise _corrupt(path, f"{len(snapshot)} bytes are not a snapshot")
    version, crc = _HEAD.unpack_from(snapshot)
    if version != _SNAPSHOT_VERSION:
        raise _corrupt(path, f"version {version}, not {_SNAPSHOT_VERSION}")
    if crc32c(snapshot[_HEAD.size :]) != crc:
        raise _corrupt(path, "its CRC is wrong")
    (count,) = _COUNT.unpack_from(snapshot, _HEAD.size)
    entries = snapshot[_HEAD.size + _COUNT.size :]
    if count * _ENTRY.size != len(entries):
        raise _corrupt(path, f"{count} producers in {len(entries)} bytes")
    producers = {}
    for (
        producer_id,
        epoch,
        last_sequence,
        last_offset,
        offset_delta,
        timestamp,
        coordinator_epoch,
        transaction_start,
    ) in _ENTRY.iter_unpack(entries):
        producer = ProducerStateEntry(epoch)
        if last_offset >= 0:
            producer.keep(
                RecentBatch(
                    _first_sequence(last_sequence, offset_delta),
                    last_sequence,
                    last_offset - offset_delta,
                    last_offset,
                    timestamp,
                )
            )
        producer.last_timestamp = timestamp
        producer.coordinator_epoch = coordinator_epoch
        producer.transaction_start = transaction_start
        producers[producer_id] = producer
    return producers


def _recent(batch: ValidBatch) -> RecentBatch:
    return RecentBatch(
        batch.base_sequence,
        _last_sequence(batch),
        batch.base_offset,
        batch.last_offset,
        batch.max_timestamp,
    )


def _first_sequence(last_sequence: int, offset_delta: int) -> int:
    if last_sequence == NO_SEQUENCE:
        return NO_SEQUENCE
    return (last_sequence - offset_delta) & _LAST_SEQUENCE


def _last_sequence(batch: ValidBatch) -> int:
    """Return the last sequence, by offsets: compaction removes records but keeps offsets."""
    if batch.base_sequence == NO_SEQUENCE:
        return NO_SEQUENCE
    return (batch.base_sequence + batch.last_offset - batch.base_offset) & _LAST_SEQUENCE


def _reused_sequence(batch: ValidBatch) -> KafkaError:
    text = (
        f"Sequence number {batch.base_sequence} of producer {batch.producer_id} is that of a batch "
        "of an earlier transaction, which has ended"
    )
    return KafkaError(ErrorCode.unknown_producer_id, text)


def _fenced(producer_id: ProducerId, epoch: int, producer: ProducerStateEntry) -> KafkaError:
    return KafkaError(
        ErrorCode.invalid_producer_epoch,
        f"Epoch of producer {producer_id} is {epoch}, which is smaller than the last seen epoch "
        f"{producer.epoch}",
    )


def _corrupt(path: str, reason: str) -> StorageError:
    return StorageError(f"{path}: {reason}; remove it to replay the log instead")
