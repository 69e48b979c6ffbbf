"""Accumulator: records that wait to be sent, as batches by partition.

Pure: no I/O, no await; time, chance and what must happen outside are handed in.

    offer(record)      into the open batch of its partition: a list append, no bytes are made
    take(lane)         the next batch that may be sent, closed and given its sequence
    put_back(batch)    it was refused and is to be tried again, in its old place
    finish(batch)      it is done, well or not: its memory is free, its order settled

A *lane* is the way to one partition: one open batch, then the closed ones that wait, then those
in flight.  Java's clients have its parts in RecordAccumulator and TransactionManager.

Order and idempotence (KIP-98, KIP-360), lane by lane:
1. A batch gets its sequence when it is first taken and keeps it; what is put back goes before
   everything younger.
2. While a batch is tried again, everything younger waits: what becomes of it tells what became of
   the rest.
3. When a batch with a sequence fails for good, or the broker does not know the sequence before it,
   the lane is `broken`: nothing new is taken until nothing is in flight, then its epoch rises and
   what waits is numbered from 0 again.  Epochs count for each partition alone: other lanes go on.
4. A batch whose answer was lost is `doubtful`: it may have been appended, and under new numbers it
   would be once more.  So before a new epoch begins it is tried again under the old ones.
5. A broker that restarted remembers a producer's last batch alone, and refuses an older one as out
   of order although it has it.  After such a refusal the lane is `probing`: the youngest in doubt
   is tried first.  If the broker has that one, it has all before it; if not, the next older one is
   tried.  (Java's clients write these twice.)
6. That holds as long as sequences have no gaps.  A broker that forgot a producer takes any sequence
   for a first one; so a lane does not probe in an epoch where a batch was refused with others in
   flight behind it, and stops to when the connection or the leader changes.  Then 5 is left out:
   better twice than never.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple, TypeAlias

from kcli.client.partitioner import partition_for_key
from kserver.errors import ErrorCode, KafkaError
from kserver.model import NO_PRODUCER_ID, BrokerId, Offset, ProducerId, TopicPartition
from kserver.wire.batch import HEADER_SIZE, Headers, NewRecord

SEQUENCE_MASK = 0x7FFFFFFF
LAST_EPOCH = 0x7FFF
# Brokers remember the last five batches of a producer in a partition.
IN_FLIGHT_PER_LANE = 5
# A record beside its key, value and headers: seven varints, as long as they commonly are.
RECORD_OVERHEAD = 12
HEADER_OVERHEAD = 4
LEADER_DRAWS = 8


class RecordMetadata(NamedTuple):
    """Where a record went; the offset is -1 with acks=0 and for a duplicate that was dropped."""

    topic: str
    partition: int
    offset: Offset
    timestamp: int


OnDelivery: TypeAlias = Callable[[Exception | None, RecordMetadata | None], object]


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes."""

    batch_size: int = 16384
    buffer_memory: int = 33554432
    max_request_size: int = 1048576
    max_in_flight: int = 5
    idempotent: bool = True
    ignore_keys: bool = False
    adaptive: bool = True


class Batch:
    """Records of one partition on their way; `size` estimates their bytes.

    `number` orders the batches of a lane; `encoded` is kept from try to try.  `finished` is set
    when the outcome was told, which for one in flight may be before its answer.
    """

    __slots__ = (
        "attempts",
        "base_sequence",
        "created_at",
        "deliveries",
        "doubtful",
        "encoded",
        "finished",
        "lane",
        "number",
        "on_finish",
        "records",
        "reserved",
        "size",
    )

    def __init__(self, lane: Lane, number: int, created_at: float) -> None:
        self.lane = lane
        self.number = number
        self.created_at = created_at
        self.size = HEADER_SIZE
        self.reserved = 0
        self.records: list[NewRecord] = []
        self.deliveries: list[tuple[int, OnDelivery]] = []
        self.on_finish: list[Callable[[], object]] = []
        self.attempts = 0
        self.base_sequence = -1
        self.doubtful = False
        self.encoded: bytes | None = None
        self.finished = False

    def deliver(
        self, error: Exception | None, offset: Offset, append_time: int
    ) -> Iterator[tuple[OnDelivery, Exception | None, RecordMetadata | None]]:
        """The calls that tell each record's outcome; an `append_time` of -1 leaves the records'."""
        topic, partition = self.lane.partition
        for index, on_delivery in self.deliveries:
            if error is not None:
                yield on_delivery, error, None
                continue
            timestamp = self.records[index][0] if append_time < 0 else append_time
            at = offset + index if offset >= 0 else -1
            yield on_delivery, None, RecordMetadata(topic, partition, at, timestamp)


class Lane:
    """The way to one partition.

    `leader` is where its batches go, None while unknown.  `not_before` holds it back after a
    failure.  `due`: the open batch may be taken too.
    """

    __slots__ = (
        "broken",
        "due",
        "epoch",
        "gaps",
        "in_flight",
        "leader",
        "next_sequence",
        "not_before",
        "open",
        "partition",
        "probing",
        "producer_id",
        "queued",
        "waiting",
    )

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.leader: BrokerId | None = None
        """Set through `lead`."""
        self.open: Batch | None = None
        self.waiting: deque[Batch] = deque()
        self.in_flight: list[Batch] = []
        self.due = False
        self.queued = False
        """Whether the sender has it in a list of those that may have something to send."""
        self.not_before = 0.0
        self.producer_id: ProducerId = NO_PRODUCER_ID
        self.epoch = -1
        self.next_sequence = 0
        self.broken = False
        self.probing = False
        self.gaps = False


class _Topic:
    __slots__ = ("lanes", "sticky", "sticky_bytes")

    def __init__(self) -> None:
        self.lanes: list[Lane] = []
        self.sticky: Lane | None = None
        self.sticky_bytes = 0
        """How much went to the sticky lane in batches that are closed."""


class Accumulator:
    """`on_open(batch)` is called when a batch is begun, `on_full(lane)` when one is closed.

    `on_stamp` is called when the time was read, and sets `stamp_ms` to 0 before time goes on.
    """

    def __init__(
        self,
        limits: Limits,
        *,
        now: Callable[[], float],
        now_ms: Callable[[], int],
        chance: Random,
        on_open: Callable[[Batch], object],
        on_full: Callable[[Lane], object],
        on_stamp: Callable[[], object],
    ) -> None:
        self.used_bytes = 0
        self.incomplete: dict[Batch, None] = {}
        """Every batch that is begun and not finished, as they were begun."""
        self.producer_id: ProducerId = NO_PRODUCER_ID
        """What new lanes start with, and lanes whose epochs are used up; set by the sender."""
        self.producer_epoch = -1
        self.stamp_ms = 0
        """The time as it was read last, 0 when it is to be read again: asking for every record
        takes a quarter of the time to send it.
        """
        self._limits = limits
        self._batch_size = min(limits.batch_size, limits.max_request_size)
        self._now = now
        self._now_ms = now_ms
        self._chance = chance
        self._on_open = on_open
        self._on_full = on_full
        self._on_stamp = on_stamp
        self._topics: dict[str, _Topic] = {}
        self._sticky: dict[str, Batch] = {}
        self._number = 0

    # Topics

    def knows(self, topic: str) -> bool:
        return topic in self._topics

    def topics(self) -> Iterator[str]:
        return iter(self._topics)

    def lanes(self, topic: str) -> Sequence[Lane]:
        found = self._topics.get(topic)
        return found.lanes if found else ()

    def grow(self, topic: str, partitions: int) -> None:
        """The topic has so many partitions; fewer than before leave the lanes as they are."""
        lanes = self._topics.setdefault(topic, _Topic()).lanes
        lanes += (Lane(TopicPartition(topic, p)) for p in range(len(lanes), partitions))

    def lead(self, lane: Lane, leader: BrokerId | None) -> None:
        if lane.leader != leader:
            lane.leader = leader
            lane.probing = False

    def connected(self, leader: BrokerId) -> None:
        """A new connection to a leader is open."""
        for topic in self._topics.values():
            for lane in topic.lanes:
                if lane.leader == leader:
                    lane.probing = False

    # In

    def offer(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
        on_delivery: OnDelivery | None = None,
    ) -> bool:
        """Take one record in; False while the topic is not known or the memory is full.

        KafkaError for a record that is too large for any request, or a partition that is not there.
        """
        if timestamp is None:
            timestamp = self.stamp_ms or self._stamp()
        sticky = self._sticky
        if key is None and partition is None and value is not None and not headers:
            # Half of a producer's time goes by here: no call, and one look into the dictionary.
            size = RECORD_OVERHEAD + len(value)
            batch = sticky.get(topic)
        else:
            size = _size(key, value, headers)
            lane = self._lane(topic, key, partition)
            batch = None if lane is None else lane.open
        if batch is None or batch.size + size > self._batch_size:
            batch = self._batch_for(topic, key, partition, size)
            if batch is None:
                return False
        batch.size += size
        batch.records.append((timestamp, key, value, headers))
        if on_delivery is not None:
            batch.deliveries.append((len(batch.records) - 1, on_delivery))
        return True

    def _stamp(self) -> int:
        """The time for this record and those that follow in the same turn and batch."""
        self.stamp_ms = self._now_ms()
        self._on_stamp()
        return self.stamp_ms

    def _lane(self, topic: str, key: bytes | None, partition: int | None) -> Lane | None:
        found = self._topics.get(topic)
        if found is None:
            return None
        lanes = found.lanes
        if partition is not None:
            if not 0 <= partition < len(lanes):
                raise KafkaError(
                    ErrorCode.unknown_topic_or_partition,
                    f"{topic} has no partition {partition}, but {len(lanes)}",
                )
            return lanes[partition]
        if key is not None and not self._limits.ignore_keys:
            return lanes[partition_for_key(key, len(lanes))]
        if found.sticky is None:
            found.sticky = self._choose(lanes)
            found.sticky_bytes = 0
        return found.sticky

    def _choose(self, lanes: list[Lane]) -> Lane:
        """By chance; of two the one with less to send, if that counts (KIP-794)."""
        first = self._draw(lanes)
        if not self._limits.adaptive:
            return first
        second = self._draw(lanes)
        return first if len(first.waiting) <= len(second.waiting) else second

    def _draw(self, lanes: list[Lane]) -> Lane:
        """One with a leader, unless a few draws find none."""
        for _ in range(LEADER_DRAWS):
            lane = self._chance.choice(lanes)
            if lane.leader is not None:
                break
        return lane

    def _batch_for(
        self, topic: str, key: bytes | None, partition: int | None, size: int
    ) -> Batch | None:
        """An open batch with room for a record of `size`; None: unknown topic, or memory is full.

        What has no room is closed on the way, and with that a sticky topic may move on.
        """
        if HEADER_SIZE + size > self._limits.max_request_size:
            raise KafkaError(
                ErrorCode.message_too_large,
                f"The message is {HEADER_SIZE + size} bytes when serialized which is larger than"
                f" {self._limits.max_request_size}, which is the value of the max.request.size"
                " configuration.",
            )
        while True:
            lane = self._lane(topic, key, partition)
            if lane is None:
                return None
            batch = lane.open
            if batch is None or batch.size + size <= self._batch_size:
                break
            self._close(lane)
            self._on_full(lane)
        if batch is None:
            batch = self._begin(lane, size)
        if batch is not None and self._topics[topic].sticky is lane:
            self._sticky[topic] = batch
        return batch

    def _begin(self, lane: Lane, size: int) -> Batch | None:
        reserved = max(self._batch_size, HEADER_SIZE + size)
        if self.used_bytes and self.used_bytes + reserved > self._limits.buffer_memory:
            return None
        self._number += 1
        batch = lane.open = Batch(lane, self._number, self._now())
        batch.reserved = reserved
        self.used_bytes += reserved
        self.incomplete[batch] = None
        self._on_open(batch)
        return batch

    def _close(self, lane: Lane) -> None:
        """The open batch waits now; a sticky topic moves on when a batch's worth went there."""
        batch = lane.open
        assert batch is not None
        lane.open = None
        lane.due = False
        lane.waiting.append(batch)
        self.stamp_ms = 0
        name = lane.partition.topic
        topic = self._topics[name]
        if topic.sticky is lane:
            self._sticky.pop(name, None)
            topic.sticky_bytes += batch.size
            # A full batch ends somewhat short of batch.size.
            if 2 * topic.sticky_bytes >= self._batch_size:
                topic.sticky = None

    # Out

    def due(self, batch: Batch) -> bool:
        """Its linger is over: it may be taken although it is not full.  False: it was taken."""
        if batch.lane.open is not batch:
            return False
        batch.lane.due = True
        return True

    def due_all(self) -> list[Lane]:
        """All that waits may be taken: a flush, or the memory is full.  The lanes that have any."""
        lanes = []
        for batch in self.incomplete:
            if self.due(batch) or batch.lane.waiting:
                lanes.append(batch.lane)
        return list(dict.fromkeys(lanes))

    def sendable(self, lane: Lane, now: float) -> Batch | None:
        """The batch that `take` would give, None when none may go now."""
        if lane.not_before > now:
            return None
        if lane.broken:
            # Not mended yet: something is in flight, or in doubt.
            return None if lane.in_flight else self._next_in_doubt(lane)
        if not lane.waiting:
            if not lane.due or lane.open is None:
                return None
            batch = lane.open
        else:
            batch = lane.waiting[0]
        if not lane.in_flight:
            return batch
        if self._limits.max_in_flight == 1:
            return None
        if self._limits.idempotent:
            if len(lane.in_flight) >= IN_FLIGHT_PER_LANE:
                return None
            tried = batch.attempts
            if any((tried or b.attempts) and b.number <= batch.number for b in lane.in_flight):
                return None
        return batch

    def take(self, batch: Batch) -> None:
        """What `sendable` said is in flight now; the first time it gets its sequence."""
        lane = batch.lane
        if lane.open is batch:
            self._close(lane)
        lane.waiting.remove(batch)
        if self._limits.idempotent and batch.base_sequence < 0:
            if lane.producer_id == NO_PRODUCER_ID:
                lane.producer_id, lane.epoch = self.producer_id, self.producer_epoch
            self._number_batch(batch)
        lane.in_flight.append(batch)

    def _number_batch(self, batch: Batch) -> None:
        lane = batch.lane
        batch.base_sequence = lane.next_sequence
        batch.doubtful = False
        lane.next_sequence = (lane.next_sequence + len(batch.records)) & SEQUENCE_MASK
        batch.encoded = None

    def is_oldest(self, batch: Batch) -> bool:
        """Whether nothing that was numbered before it is still on its way."""
        lane = batch.lane
        older = (b for b in (*lane.in_flight, *lane.waiting) if b.number < batch.number)
        return next(older, None) is None

    def put_back(self, batch: Batch, not_before: float, *, doubtful: bool) -> None:
        """It is in flight no more and shall be tried again, not before the given time.

        `doubtful`: whether it may have been appended, by this try or one before.
        """
        lane = batch.lane
        batch.doubtful = doubtful
        if not doubtful:
            self._refused(batch)
        lane.in_flight.remove(batch)
        lane.not_before = max(lane.not_before, not_before)
        batch.attempts += 1
        self._insert(batch)
        self._mend(lane)

    def out_of_order(self, batch: Batch, not_before: float) -> None:
        """The broker refused its sequence: as `put_back`; if nothing older is on its way, the lane
        is broken.
        """
        lane = batch.lane
        if self.is_oldest(batch):
            lane.broken = True
            lane.probing = not lane.gaps
        # The youngest that was appended is the one a broker always remembers.
        younger = any(
            b.number > batch.number and (b.doubtful or b in lane.in_flight)
            for b in (*lane.in_flight, *lane.waiting)
        )
        self.put_back(batch, not_before, doubtful=batch.doubtful and younger and lane.probing)

    def _insert(self, batch: Batch) -> None:
        """Before all that is not older."""
        waiting = batch.lane.waiting
        at = 0
        while at < len(waiting) and waiting[at].number < batch.number:
            at += 1
        waiting.insert(at, batch)

    def split(self, batch: Batch) -> None:
        """It was too large for the broker: two halves wait in its place, with its sequences."""
        lane = batch.lane
        self._refused(batch)
        lane.in_flight.remove(batch)
        del self.incomplete[batch]
        batch.finished = True
        middle = len(batch.records) // 2
        assert middle > 0, "one record cannot be split"
        halves = [self._part(batch, 0, middle), self._part(batch, middle, len(batch.records))]
        halves[0].reserved = batch.reserved
        halves[1].on_finish = batch.on_finish
        for half in reversed(halves):
            self._insert(half)
        self._mend(lane)

    def _part(self, batch: Batch, first: int, end: int) -> Batch:
        """Some of its records as a batch with the same number: between the same neighbours."""
        part = Batch(batch.lane, batch.number, batch.created_at)
        part.records = batch.records[first:end]
        part.size = batch.size // 2
        part.attempts = batch.attempts + 1
        part.deliveries = [(i - first, call) for i, call in batch.deliveries if first <= i < end]
        if batch.base_sequence >= 0:
            part.base_sequence = (batch.base_sequence + first) & SEQUENCE_MASK
        self.incomplete[part] = None
        return part

    def answered(self, batch: Batch, *, appended: bool | None) -> list[Batch]:
        """It is in flight no more and will not be tried again; None: nobody knows.

        Returns older ones that are thereby known to be appended, and wait no more.
        """
        lane = batch.lane
        lane.in_flight.remove(batch)
        older: list[Batch] = []
        if not appended and batch.base_sequence >= 0:
            lane.broken = True
            if appended is not None:
                self._refused(batch)
        elif lane.probing and batch.doubtful:
            older = [b for b in lane.waiting if b.number < batch.number]
            if not all(b.doubtful for b in older):
                # One that is known not to be there was passed over: sequences prove nothing here.
                older = []
            for known in older:
                lane.waiting.remove(known)
        self._mend(lane)
        if not lane.in_flight and (not lane.waiting or lane.waiting[0].base_sequence < 0):
            # All that had a sequence is settled: the broker's next is ours.
            lane.gaps = False
        return older

    def finish(self, batch: Batch) -> None:
        """Its outcome is told: its memory is free.  One in flight stays so until its answer."""
        assert not batch.finished
        lane = batch.lane
        batch.finished = True
        del self.incomplete[batch]
        self.used_bytes -= batch.reserved
        if lane.open is batch:
            self._close(lane)
        if batch in lane.waiting:
            lane.waiting.remove(batch)
            if batch.base_sequence >= 0:
                lane.broken = True
            self._mend(lane)

    def _refused(self, batch: Batch) -> None:
        lane = batch.lane
        if any(b.number > batch.number for b in lane.in_flight):
            lane.gaps = True

    def _next_in_doubt(self, lane: Lane) -> Batch | None:
        """What to try before a new epoch may begin.  What follows on one that is known not to be
        appended is not in doubt.
        """
        if lane.probing:
            return next((batch for batch in reversed(lane.waiting) if batch.doubtful), None)
        return lane.waiting[0] if lane.waiting and lane.waiting[0].doubtful else None

    def _mend(self, lane: Lane) -> None:
        """A broken lane with nothing in flight starts over in a new epoch (KIP-360)."""
        if not lane.broken or lane.in_flight or self._next_in_doubt(lane) is not None:
            return
        lane.broken = lane.probing = lane.gaps = False
        lane.next_sequence = 0
        lane.epoch += 1
        if lane.epoch > LAST_EPOCH:
            # The sender fetches a new id; the lane takes it with its next batch.
            lane.producer_id = self.producer_id = NO_PRODUCER_ID
        for batch in lane.waiting:
            if batch.base_sequence >= 0:
                if lane.producer_id == NO_PRODUCER_ID:
                    batch.base_sequence = -1
                else:
                    self._number_batch(batch)


def _size(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    size = RECORD_OVERHEAD + len(key or b"") + len(value or b"")
    for name, content in headers:
        size += HEADER_OVERHEAD + len(name) + len(content or b"")
    return size
