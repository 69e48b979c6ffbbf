"""Accumulator: records that wait to be sent, in batches by partition, within a limit of memory.

Pure: no I/O, no await; clock, random source and callbacks are passed in.

    offer(record)      append to the open batch of its queue: a list append, nothing is encoded
    next_batch(queue)  decided by the queue; `take` closes the batch if it is the open one
    finish(batch)      its outcome is reported; its memory is free once it is not in flight either
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import repeat
from random import Random
from typing import cast

from kcli.client.producer.partition_queue import (
    SEQUENCE_MASK,
    OnDelivery,
    PartitionQueue,
    ProducerBatch,
    Rules,
)
from kcli.client.producer.partitioner import partition_for_key
from kcli.client.producer.record_faults import encoding_fault
from kserver.errors import ErrorCode, KafkaError
from kserver.model import BrokerId, TopicPartition
from kserver.wire.batch import HEADER_SIZE, EncodedRecords, Headers, NewRecord

# A record's bytes besides its key, value and headers: seven varints of common length.
RECORD_OVERHEAD = 12
HEADER_OVERHEAD = 4
LEADER_DRAWS = 8
LAST_TIMESTAMP_MS = 2**63 - 1


@dataclass(frozen=True, slots=True)
class AccumulatorLimits:
    """Configs of the producer that bound what it holds; sizes are in bytes."""

    batch_size: int = 16384
    buffer_memory: int = 33554432
    max_request_size: int = 1048576
    ignore_keys: bool = False
    adaptive: bool = True
    stuck_after: float = 0.0
    """Seconds: a queue whose oldest batch has waited this long gets no more records without a key.
    0 means never (partitioner.availability.timeout.ms).
    """


class _Topic:
    __slots__ = ("queues", "sticky", "sticky_bytes", "used_at")

    def __init__(self, now: float) -> None:
        self.queues: list[PartitionQueue] = []
        self.sticky: PartitionQueue | None = None
        self.sticky_bytes = 0
        """Bytes of the sticky queue's closed batches."""
        self.used_at = now


class Accumulator:
    """`on_open(batch)` is called when a batch is begun, `on_full(queue)` when one is closed.

    `on_stamp` is called after the clock was read; it sets `stamp_ms` to 0 before time goes on.
    """

    def __init__(
        self,
        limits: AccumulatorLimits,
        rules: Rules,
        *,
        now: Callable[[], float],
        now_ms: Callable[[], int],
        random: Random,
        on_open: Callable[[ProducerBatch], object],
        on_full: Callable[[PartitionQueue], object],
        on_stamp: Callable[[], object],
    ) -> None:
        self.used_bytes = 0
        self.incomplete: dict[ProducerBatch, None] = {}
        """Every batch that was begun and is not finished, in order of creation."""
        self.stamp_ms = 0
        """The time when the clock was last read, or 0 to read it again. Reading the clock for every
        record takes a quarter of the time to send it.
        """
        self._limits = limits
        self._rules = rules
        self._batch_size = min(limits.batch_size, limits.max_request_size)
        self._now = now
        self._now_ms = now_ms
        self._random = random
        self._on_open = on_open
        self._on_full = on_full
        self._on_stamp = on_stamp
        self._topics: dict[str, _Topic] = {}
        self._sticky: dict[str, ProducerBatch] = {}
        self._open_queues: dict[PartitionQueue, None] = {}
        """The queues that have an open batch."""
        self._number = 0
        self._refused_bytes = self._batch_size

    # Topics

    def knows(self, topic: str) -> bool:
        return topic in self._topics

    def queues_of_leader(self, leader: BrokerId) -> list[PartitionQueue]:
        queues = (queue for topic in self._topics.values() for queue in topic.queues)
        return [queue for queue in queues if queue.leader == leader]

    def topics(self, since: float = 0.0) -> list[str]:
        """Return the topics that got a batch since then or have an unfinished one."""
        busy = {batch.queue.partition.topic for batch in self.incomplete}
        return [name for name, t in self._topics.items() if t.used_at >= since or name in busy]

    def queues(self, topic: str) -> Sequence[PartitionQueue]:
        entry = self._topics.get(topic)
        return entry.queues if entry else ()

    def grow(self, topic: str, partitions: int) -> None:
        """Grow the topic to `partitions` queues; a smaller number leaves the queues as they are."""
        if topic not in self._topics:
            self._topics[topic] = _Topic(self._now())
        queues = self._topics[topic].queues
        queues += (
            PartitionQueue(TopicPartition(topic, p), self._rules)
            for p in range(len(queues), partitions)
        )

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
        """Append one record; return False while the topic is unknown or the memory is full.

        Raises KafkaError if the record is too large for any request, the timestamp is negative, or
        the partition does not exist; ClientError if a key, value or header is seen not to be bytes.
        """
        # Half of a producer's time is spent here: no calls, and few steps.
        try:
            if timestamp is None:
                timestamp = self.stamp_ms or self._stamp()
            elif not 0 <= timestamp <= LAST_TIMESTAMP_MS:
                raise KafkaError(ErrorCode.invalid_timestamp, f"Invalid timestamp: {timestamp}.")
            size = RECORD_OVERHEAD
            if value is not None:
                size += len(value)
            if headers:
                for name, content in headers:
                    size += HEADER_OVERHEAD + len(name) + (0 if content is None else len(content))
            if key is None and partition is None:
                batch = self._sticky.get(topic)
            else:
                if key is not None:
                    size += len(key)
                queue = self._queue(topic, key, partition)
                batch = None if queue is None else queue.open
        except (TypeError, ValueError) as error:
            if fault := encoding_fault(topic, [(timestamp, key, value, headers)]):
                raise fault from error
            raise
        if batch is None or (full_size := batch.size + size) > self._batch_size:
            batch = self._batch_for(topic, key, partition, size)
            if batch is None:
                return False
            full_size = batch.size + size
        batch.size = full_size
        batch.records.append((timestamp, key, value, headers))
        if on_delivery is not None:
            batch.deliveries.append((len(batch.records) - 1, on_delivery))
        return True

    def offer_all(self, topic: str, values: Sequence[bytes], timestamp: int | None = None) -> int:
        """Append records that consist of values only, as `offer` would one by one; return how many
        were accepted.

        It takes a tenth of the time: whole runs of records go into a batch without Python code for
        each.
        """
        try:
            ends = list(itertools.accumulate(map(len, values)))
        except TypeError as error:
            if fault := encoding_fault(topic, [(0, None, value, ()) for value in values]):
                raise fault from error
            raise
        position = 0
        while position < len(values):
            before = ends[position - 1] if position else 0
            size = RECORD_OVERHEAD + ends[position] - before
            batch = self._batch_for(topic, None, None, size)
            if batch is None:
                break
            room = self._batch_size - batch.size

            def size_of_run(count: int, position: int = position, before: int = before) -> int:
                return ends[position + count - 1] - before + count * RECORD_OVERHEAD

            # As many as fit; the first always does, or gets a batch of its own.
            count = max(
                1, bisect.bisect_right(range(1, len(values) - position + 1), room, key=size_of_run)
            )
            stamp = self.stamp_ms or self._stamp() if timestamp is None else timestamp
            run = values[position : position + count]
            batch.records.extend(zip(repeat(stamp), repeat(None), run, repeat(())))
            batch.size += size_of_run(count)
            position += count
        return position

    def offer_encoded(self, partition: TopicPartition, records: EncodedRecords) -> bool:
        """Append an encoded batch behind the queue's other batches; return False as `offer` does.

        For many records made at once in other ways than Python code for each: a fifth of `offer`'s
        time.
        """
        queue = self._queue(partition.topic, None, partition.partition)
        if queue is None:
            return False
        size = len(records.body)
        self._expect_possible(size)
        if queue.open is not None:
            self._close(queue)
            self._on_full(queue)
        batch = self._begin(queue, HEADER_SIZE + size)
        if batch is None:
            return False
        # The batch is closed below, so nothing will be appended to it.
        batch.records = cast(list[NewRecord], records)
        batch.size = HEADER_SIZE + size
        self._close(queue)
        self._on_full(queue)
        return True

    def choose(self, topic: str) -> int:
        """Return a partition of a known topic for records that may go to any."""
        return self._choose(self._topics[topic].queues).partition.partition

    def _stamp(self) -> int:
        """Read the clock, for this record and those that follow in the same turn and batch."""
        self.stamp_ms = self._now_ms()
        self._on_stamp()
        return self.stamp_ms

    def _queue(self, topic: str, key: bytes | None, partition: int | None) -> PartitionQueue | None:
        entry = self._topics.get(topic)
        if entry is None:
            return None
        queues = entry.queues
        if partition is not None:
            if not 0 <= partition < len(queues):
                raise KafkaError(
                    ErrorCode.unknown_topic_or_partition,
                    f"{topic} has no partition {partition}, but {len(queues)}",
                )
            return queues[partition]
        if key is not None and not self._limits.ignore_keys:
            return queues[partition_for_key(key, len(queues)) if len(queues) > 1 else 0]
        if entry.sticky is None:
            entry.sticky = self._choose(queues)
            entry.sticky_bytes = 0
        return entry.sticky

    def _choose(self, queues: list[PartitionQueue]) -> PartitionQueue:
        """Choose a queue at random; if adaptive, the one of two with fewer waiting batches
        (KIP-794).
        """
        if len(queues) == 1:
            return queues[0]
        first = self._draw(queues)
        if not self._limits.adaptive:
            return first
        second = self._draw(queues)
        return first if len(first.waiting) <= len(second.waiting) else second

    def _draw(self, queues: list[PartitionQueue]) -> PartitionQueue:
        """Draw a queue that has a leader and is not stuck, unless a few draws find none."""
        for _ in range(LEADER_DRAWS):
            queue = self._random.choice(queues)
            if queue.leader is not None and not self._is_stuck(queue):
                break
        return queue

    def _is_stuck(self, queue: PartitionQueue) -> bool:
        limit = self._limits.stuck_after
        return bool(limit and queue.waiting and self._now() - queue.waiting[0].created_at > limit)

    def _batch_for(
        self, topic: str, key: bytes | None, partition: int | None, size: int
    ) -> ProducerBatch | None:
        """Return an open batch with room for a record of `size`; None if the topic is unknown or
        the memory is full.

        Batches without room are closed on the way, whereupon a sticky topic may switch to another
        queue.
        """
        self._expect_possible(size)
        while True:
            queue = self._queue(topic, key, partition)
            if queue is None:
                return None
            batch = queue.open
            if batch is None or batch.size + size <= self._batch_size:
                break
            self._close(queue)
            self._on_full(queue)
        if batch is None:
            batch = self._begin(queue, max(self._batch_size, HEADER_SIZE + size))
        if batch is not None and self._topics[topic].sticky is queue:
            self._sticky[topic] = batch
        return batch

    def _expect_possible(self, size: int) -> None:
        """Raises KafkaError if a record of `size` bytes fits into no request."""
        if HEADER_SIZE + size > self._limits.max_request_size:
            raise KafkaError(
                ErrorCode.message_too_large,
                f"The message is {HEADER_SIZE + size} bytes when serialized which is larger than"
                f" {self._limits.max_request_size}, which is the value of the max.request.size"
                " configuration.",
            )

    @property
    def has_room(self) -> bool:
        """Whether the last refused batch would fit now."""
        return self._fits(self._refused_bytes)

    def _fits(self, size: int) -> bool:
        return not self.used_bytes or self.used_bytes + size <= self._limits.buffer_memory

    def _begin(self, queue: PartitionQueue, reserved_bytes: int) -> ProducerBatch | None:
        if not self._fits(reserved_bytes):
            self._refused_bytes = reserved_bytes
            return None
        self._number += 1
        batch = queue.open = ProducerBatch(queue, self._number, self._now())
        self._topics[queue.partition.topic].used_at = batch.created_at
        batch.reserved_bytes = reserved_bytes
        self.used_bytes += reserved_bytes
        self.incomplete[batch] = None
        self._open_queues[queue] = None
        self._on_open(batch)
        return batch

    def _close(self, queue: PartitionQueue) -> None:
        """Close the open batch so that it waits to be sent. A sticky topic switches queues after
        about `batch_size` bytes.
        """
        batch = queue.open
        assert batch is not None
        queue.open = None
        queue.due = False
        del self._open_queues[queue]
        queue.waiting.append(batch)
        self.stamp_ms = 0
        name = queue.partition.topic
        topic = self._topics[name]
        if topic.sticky is queue:
            self._sticky.pop(name, None)
            topic.sticky_bytes += batch.size
            # A full batch ends somewhat short of batch.size.
            if 2 * topic.sticky_bytes >= self._batch_size:
                topic.sticky = None

    # Out

    def due(self, batch: ProducerBatch) -> bool:
        """Mark a batch as sendable though it is not full, after its linger. Return False if it was
        taken.
        """
        if batch.queue.open is not batch:
            return False
        batch.queue.due = True
        return True

    def due_all(self) -> list[PartitionQueue]:
        """Mark all open batches as sendable, for a flush or when the memory is full; return their
        queues.
        """
        queues = list(self._open_queues)
        for queue in queues:
            queue.due = True
        return queues

    def take(self, batch: ProducerBatch) -> None:
        """Move the batch that its queue returned as sendable in flight."""
        if batch.queue.open is batch:
            self._close(batch.queue)
        batch.queue.take(batch)

    def split(self, batch: ProducerBatch) -> None:
        """Replace a batch that was too large for the broker by two halves."""
        del self.incomplete[batch]
        batch.finished = True
        middle = len(batch.records) // 2
        assert middle > 0, "one record cannot be split"
        halves = [self._part(batch, 0, middle), self._part(batch, middle, len(batch.records))]
        halves[0].reserved_bytes = batch.reserved_bytes
        halves[1].on_finish = batch.on_finish
        batch.queue.replace(batch, halves)

    def _part(self, batch: ProducerBatch, first: int, end: int) -> ProducerBatch:
        """Return some of the batch's records as a batch with the same number, to keep its place in
        the order.
        """
        part = ProducerBatch(batch.queue, batch.number, batch.created_at)
        part.records = batch.records[first:end]
        part.size = batch.size // 2
        part.attempts = batch.attempts + 1
        part.deliveries = [(i - first, call) for i, call in batch.deliveries if first <= i < end]
        if batch.base_sequence >= 0:
            part.base_sequence = (batch.base_sequence + first) & SEQUENCE_MASK
            part.place = batch.place
        self.incomplete[part] = None
        return part

    def finish(self, batch: ProducerBatch) -> None:
        """Mark a batch as finished. Its memory is freed unless it is in flight: then its response
        frees it, or bytes that a slow broker has yet to read would not count.
        """
        assert not batch.finished
        batch.finished = True
        del self.incomplete[batch]
        if batch not in batch.queue.in_flight:
            self.free(batch)

    def free(self, batch: ProducerBatch) -> None:
        """Free the memory of a batch that is finished and neither waits nor is in flight."""
        self.used_bytes -= batch.reserved_bytes
        batch.reserved_bytes = 0

    def give_up(self, batch: ProducerBatch) -> None:
        """Give up a batch before it is sent (again). One in flight stays so until its response."""
        if batch.queue.open is batch:
            self._close(batch.queue)
        batch.queue.give_up(batch)
