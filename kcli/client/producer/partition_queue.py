"""PartitionQueue: a partition's batches; keeps records in order and written exactly once.

Pure: no I/O, no await; times are values.

    open batch  ->  waiting  ->  in flight  ->  settled
                       ^             |
                       +- put back --+

Java's clients have these parts in RecordAccumulator and TransactionManager.

Order and idempotence (KIP-98, KIP-360):
1. A batch gets its sequence when it is first taken and keeps it; a batch that is put back goes
   before all younger ones.
2. While a batch is retried, all younger ones wait: its outcome also decides on theirs.
3. When a batch with a sequence fails for good, or the broker does not know the sequence before it,
   the queue is `broken`: no batch is taken until none is in flight. Then its epoch is bumped and
   waiting batches are numbered from 0 again. Epochs are per partition: other queues are not
   affected.
4. A batch whose response was lost is `maybe_appended`: it may have been appended, and under a new
   sequence it would be appended twice. So before a new epoch begins it is retried under the old
   one.
5. A broker of Apache's that restarted remembers only a producer's last batch, and refuses an older
   one as out of order although it has it. After such a refusal the queue is `probing`: the youngest
   such batch is tried first. If the broker has that one, it has all before it; if not, the next
   older one is tried. (Java's clients write these twice.)
6. That holds as long as sequences have no gaps. A broker that forgot a producer takes any sequence
   for a first one. So a queue does not probe in an epoch where a batch was refused with others in
   flight behind it, and stops probing when the connection or the leader changes. Then 5 is skipped:
   duplicates are better than losses.
7. In a transaction only the coordinator bumps epochs (KIP-360, KIP-890): a queue that would start a
   new epoch is `lost`, and with it the transaction, until `restart`.
8. For the same reason as 6 all batches wait for the first one of an epoch: if it were refused, a
   broker that does not know the producer would take the second for the first. (Java's clients write
   these out of order.)
9. A batch waits while one in flight is five or more before it, by `place`. A former leader may hold
   one's response while younger ones are appended by the new leader, and a broker would not
   recognize it behind more than five. (Java's clients write these twice.)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from kserver.model import NO_PRODUCER_ID, BrokerId, Offset, ProducerId, TopicPartition
from kserver.wire.batch import HEADER_SIZE, NewRecord

SEQUENCE_MASK = 0x7FFFFFFF
LAST_EPOCH = 0x7FFF
# Brokers remember the last five batches of a producer in a partition.
IN_FLIGHT_PER_LANE = 5


class RecordMetadata(NamedTuple):
    """Position of a record; the offset is -1 with acks=0, and if only an earlier attempt, whose
    response was lost, could have returned it.
    """

    topic: str
    partition: int
    offset: Offset
    timestamp: int


OnDelivery: TypeAlias = Callable[[Exception | None, RecordMetadata | None], object]


class BatchResult(NamedTuple):
    """The outcome of one batch: `records` are (timestamp, key, value, headers) as they were sent.

    The first record has `offset`, the next one more, and so on; -1 if the broker did not return it.
    """

    topic: str
    partition: int
    offset: Offset
    append_time: int
    records: Sequence[NewRecord]
    error: Exception | None


OnBatch: TypeAlias = Callable[[BatchResult], object]


@dataclass(slots=True)
class Rules:
    """Configuration and identity shared by all queues of a producer. Queues start with this
    producer id and epoch, and take it again when their epochs are used up; the sender fetches it.
    """

    idempotent: bool = True
    max_in_flight: int = 5
    producer_id: ProducerId = NO_PRODUCER_ID
    producer_epoch: int = -1
    transactional: bool = False
    implicit: bool = False
    """Whether producing to a partition adds it to the transaction (transaction.version 2)."""


class ProducerBatch:
    """Records of one partition on their way; `size` estimates their bytes.

    `number` orders the batches of a queue, `place` those that were given a sequence; `encoded` is
    kept between attempts. `finished` is set when the outcome was reported, which for a batch in
    flight may be before its response.
    """

    __slots__ = (
        "attempts",
        "base_sequence",
        "created_at",
        "deliveries",
        "encoded",
        "finished",
        "maybe_appended",
        "number",
        "on_finish",
        "place",
        "queue",
        "records",
        "reserved_bytes",
        "size",
    )

    def __init__(self, queue: PartitionQueue, number: int, created_at: float) -> None:
        self.queue = queue
        self.number = number
        self.created_at = created_at
        self.size = HEADER_SIZE
        self.reserved_bytes = 0
        self.records: list[NewRecord] = []
        self.deliveries: list[tuple[int, OnDelivery]] = []
        self.on_finish: list[Callable[[], object]] = []
        self.attempts = 0
        self.base_sequence = -1
        self.place = 0
        self.maybe_appended = False
        self.encoded: tuple[bytes, bytes] | None = None
        self.finished = False

    def deliver(
        self, error: Exception | None, offset: Offset, append_time: int
    ) -> Iterator[tuple[OnDelivery, Exception | None, RecordMetadata | None]]:
        """Yield the callback of each record with its outcome; an `append_time` of -1 keeps the
        records' timestamps.
        """
        topic, partition = self.queue.partition
        for index, on_delivery in self.deliveries:
            if error is not None:
                yield on_delivery, error, None
                continue
            timestamp = self.records[index][0] if append_time < 0 else append_time
            at = offset + index if offset >= 0 else -1
            yield on_delivery, None, RecordMetadata(topic, partition, at, timestamp)


class PartitionQueue:
    """`leader` is the broker to send to, None while unknown; `not_before` holds the queue back
    after a failure; `due`: the open batch may be taken too; `queued`: the sender has the queue in a
    list of those that may have something to send; `awaits_transaction`: its partition is not in the
    transaction so far.
    """

    __slots__ = (
        "_gaps",
        "_next_place",
        "_next_sequence",
        "_probing",
        "_rules",
        "awaits_transaction",
        "broken",
        "due",
        "epoch",
        "in_flight",
        "leader",
        "not_before",
        "open",
        "partition",
        "producer_id",
        "queued",
        "waiting",
    )

    def __init__(self, partition: TopicPartition, rules: Rules) -> None:
        self.partition = partition
        self.leader: BrokerId | None = None
        self.open: ProducerBatch | None = None
        self.waiting: deque[ProducerBatch] = deque()
        self.in_flight: list[ProducerBatch] = []
        self.due = False
        self.queued = False
        self.not_before = 0.0
        self.producer_id: ProducerId = NO_PRODUCER_ID
        self.epoch = -1
        self.broken = False
        self.awaits_transaction = rules.transactional
        self._rules = rules
        self._next_sequence = 0
        self._next_place = 0
        self._probing = False
        self._gaps = False

    def lead(self, leader: BrokerId | None) -> None:
        """Set the leader of the partition."""
        if self.leader != leader:
            self.leader = leader
            self._probing = False

    def on_connect(self) -> None:
        """Note a new connection to the leader."""
        self._probing = False

    # Out

    def next_batch(self, now: float) -> ProducerBatch | None:
        """Return the batch to take next, or None if none may be sent now."""
        if self.awaits_transaction or self.not_before > now:
            return None
        if self.broken:
            # Not repaired yet: a batch is in flight or may be appended.
            return None if self.in_flight else self._next_maybe_appended()
        if self.waiting:
            batch = self.waiting[0]
        elif self.due and self.open is not None:
            batch = self.open
        else:
            return None
        return None if self.in_flight and self._must_wait(batch) else batch

    def _must_wait(self, batch: ProducerBatch) -> bool:
        """Whether a batch in flight has to be settled first."""
        if self._rules.max_in_flight == 1:
            return True
        if not self._rules.idempotent:
            return False
        if len(self.in_flight) >= IN_FLIGHT_PER_LANE or self.in_flight[0].base_sequence == 0:
            return True
        place = batch.place if batch.base_sequence >= 0 else self._next_place
        if place - min(b.place for b in self.in_flight) >= IN_FLIGHT_PER_LANE:
            return True
        attempts = batch.attempts
        return any((attempts or b.attempts) and b.number <= batch.number for b in self.in_flight)

    def take(self, batch: ProducerBatch) -> None:
        """Move a waiting batch in flight; the first time it gets its sequence."""
        self.waiting.remove(batch)
        if self._rules.idempotent and batch.base_sequence < 0:
            if self.producer_id == NO_PRODUCER_ID:
                self.producer_id, self.epoch = self._rules.producer_id, self._rules.producer_epoch
            self._number(batch)
        self.in_flight.append(batch)

    def _number(self, batch: ProducerBatch) -> None:
        batch.base_sequence = self._next_sequence
        batch.place = self._next_place
        self._next_place += 1
        batch.maybe_appended = False
        batch.encoded = None
        self._next_sequence = (self._next_sequence + len(batch.records)) & SEQUENCE_MASK

    # Back

    def put_back(self, batch: ProducerBatch, not_before: float, *, maybe_appended: bool) -> None:
        """Put a batch in flight back to be retried, not before the given time.

        `maybe_appended`: whether it may have been appended, by this attempt or an earlier one.
        """
        batch.maybe_appended = maybe_appended
        if not maybe_appended:
            self._note_gap(batch)
        self.in_flight.remove(batch)
        self.not_before = max(self.not_before, not_before)
        batch.attempts += 1
        self._insert(batch)
        self._start_new_epoch()

    def out_of_order(self, batch: ProducerBatch, not_before: float) -> None:
        """Put a batch back whose sequence the broker refused. If no older one is pending, the queue
        is broken.
        """
        if not any(b.number < batch.number for b in (*self.in_flight, *self.waiting)):
            self.broken = True
            self._probing = not self._gaps
        # Brokers always remember the youngest batch that was appended.
        younger = any(
            b.number > batch.number and (b.maybe_appended or b in self.in_flight)
            for b in (*self.in_flight, *self.waiting)
        )
        self.put_back(
            batch, not_before, maybe_appended=batch.maybe_appended and younger and self._probing
        )

    def replace(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """Replace a batch that was too large for the broker by its parts, with its sequences."""
        self._note_gap(batch)
        self.in_flight.remove(batch)
        for part in reversed(parts):
            self._insert(part)
        self._start_new_epoch()

    def _insert(self, batch: ProducerBatch) -> None:
        """Insert a batch before all that are not older."""
        at = 0
        while at < len(self.waiting) and self.waiting[at].number < batch.number:
            at += 1
        self.waiting.insert(at, batch)

    def complete(self, batch: ProducerBatch, *, appended: bool | None) -> list[ProducerBatch]:
        """Remove a batch in flight that will not be retried; `appended` None means unknown.

        Returns older ones that are thereby known to be appended, and are removed too.
        """
        self.in_flight.remove(batch)
        older: list[ProducerBatch] = []
        if not appended and batch.base_sequence >= 0:
            self.broken = True
            if appended is not None:
                self._note_gap(batch)
        elif self._probing and batch.maybe_appended:
            older = [b for b in self.waiting if b.number < batch.number]
            if not all(b.maybe_appended for b in older):
                # A batch known not to be appended was skipped: sequences prove nothing here.
                older = []
            for earlier in older:
                self.waiting.remove(earlier)
        self._start_new_epoch()
        if not self.in_flight and (not self.waiting or self.waiting[0].base_sequence < 0):
            # All batches with a sequence are settled: the broker expects our next one.
            self._gaps = False
        return older

    def give_up(self, batch: ProducerBatch) -> None:
        """Give up a batch. One in flight stays so until its response."""
        if batch in self.waiting:
            self.waiting.remove(batch)
            if batch.base_sequence >= 0:
                self.broken = True
            self._start_new_epoch()

    def _note_gap(self, batch: ProducerBatch) -> None:
        """Note that batches in flight behind a refused one have a gap before them now."""
        if any(b.number > batch.number for b in self.in_flight):
            self._gaps = True

    def _next_maybe_appended(self) -> ProducerBatch | None:
        """Return the `maybe_appended` batch to try before a new epoch may begin. A batch after one
        that is known not to be appended is not one of them.
        """
        if self._probing:
            return next((batch for batch in reversed(self.waiting) if batch.maybe_appended), None)
        return self.waiting[0] if self.waiting and self.waiting[0].maybe_appended else None

    def _is_stuck(self) -> bool:
        return self.broken and not self.in_flight and self._next_maybe_appended() is None

    @property
    def lost(self) -> bool:
        """Whether only a new epoch would help, which only the transaction's end brings."""
        return self._rules.transactional and self._is_stuck()

    def restart(self) -> None:
        """Start over with a new producer id or epoch; no batch has a sequence of the old one."""
        assert not self.in_flight
        assert not self.waiting
        self.broken = self._probing = self._gaps = False
        self.producer_id = NO_PRODUCER_ID
        self._next_sequence = 0

    def _start_new_epoch(self) -> None:
        """Start a new epoch in a broken queue without batches in flight or `maybe_appended`."""
        if self._rules.transactional or not self._is_stuck():
            return
        self.broken = self._probing = self._gaps = False
        self._next_sequence = 0
        self.epoch += 1
        sequenced = [batch for batch in self.waiting if batch.base_sequence >= 0]
        if self.epoch > LAST_EPOCH:
            # The sender fetches a new id; the queue takes it with its next batch.
            self.producer_id = self._rules.producer_id = NO_PRODUCER_ID
            for batch in sequenced:
                batch.base_sequence = -1
        else:
            for batch in sequenced:
                self._number(batch)
