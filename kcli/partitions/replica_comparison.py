"""Compares replicas, batch by batch, or by a sum.

ReplicaComparison   the comparison of Kafka's verification tool, and its progress
ReplicaSum          a checksum of one replica's bytes between two offsets

Only batches below the high watermark count. (Kafka: ReplicaVerificationTool.)

Pure: bytes in, texts out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from kserver.errors import ProtocolError
from kserver.model import BrokerId, Offset, TopicPartition
from kserver.wire.batch import CRC_START, RecordBatch, batches
from kserver.wire.checksum import crc32c


class UnreadableReplica(Exception):
    """Invalid batches; the text names the replica."""


class OffsetsDiffer(Exception):
    """Replicas whose batches end at different offsets, after which they cannot be compared."""


class Lag(NamedTuple):
    """How far the verification of a partition is behind its highest high watermark."""

    offsets: int
    partition: TopicPartition | None
    at: Offset


class Replica(NamedTuple):
    """A replica's response: its batches, and its high watermark, -1 if not reported."""

    records: bytes
    high_watermark: Offset


class _ReplicaBatch(NamedTuple):
    """A batch of the first replica."""

    replica: BrokerId
    batch: RecordBatch
    computed: int


class ReplicaComparison:
    """`offsets` is the next offset to fetch of each partition, from all of its replicas."""

    def __init__(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        self.offsets = dict(offsets)
        self.lag = Lag(-1, None, -1)

    def compare(
        self, fetched: Mapping[TopicPartition, Mapping[BrokerId, Replica]]
    ) -> Iterator[str]:
        """Yield a line of Kafka's tool for each batch that differs; advance `offsets` and `lag`.

        Raises OffsetsDiffer and UnreadableReplica.
        """
        self.lag = self.lag._replace(offsets=-1)
        for partition, replicas in fetched.items():
            yield from self._compare(partition, replicas)
            highest = max((replica.high_watermark for replica in replicas.values()), default=-1)
            if highest - self.offsets[partition] > self.lag.offsets:
                at = self.offsets[partition]
                self.lag = Lag(highest - at, partition, at)

    def _compare(
        self, partition: TopicPartition, replicas: Mapping[BrokerId, Replica]
    ) -> Iterator[str]:
        pending = {id: batches(replica.records) for id, replica in sorted(replicas.items())}
        is_in_all = bool(pending)
        while is_in_all:
            first: _ReplicaBatch | None = None
            for id, iterator in pending.items():
                batch = self._next(partition, id, iterator)
                if batch is None or batch.last_offset >= replicas[id].high_watermark:
                    is_in_all = False
                    continue
                # A stored checksum may be equal although the bytes differ.
                replica_batch = _ReplicaBatch(id, batch, crc32c(batch.buffer[CRC_START:]))
                if first is None:
                    first = replica_batch
                elif (difference := _difference(partition, first, replica_batch)) is not None:
                    yield difference
            if is_in_all and first is not None:
                self.offsets[partition] = first.batch.next_offset

    def _next(
        self, partition: TopicPartition, replica: BrokerId, iterator: Iterator[RecordBatch]
    ) -> RecordBatch | None:
        try:
            return next(iterator, None)
        except ProtocolError as error:
            raise UnreadableReplica(
                f"Error in processing replica {replica} in partition {partition} at offset "
                f"{self.offsets[partition]}: {error}"
            ) from error


def _difference(
    partition: TopicPartition, first: _ReplicaBatch, other: _ReplicaBatch
) -> str | None:
    """Return the difference, or None. Raises OffsetsDiffer if the batches cannot be compared."""
    offset = other.batch.last_offset
    if first.batch.last_offset != offset:
        raise OffsetsDiffer(
            f"partition {partition}: replica {first.replica}'s offset {first.batch.last_offset} "
            f"doesn't match replica {other.replica}'s offset {offset}"
        )
    sums = first.batch.crc, other.batch.crc
    if sums[0] == sums[1]:
        sums = first.computed, other.computed
    if sums[0] == sums[1]:
        return None
    return (
        f"partition {partition} has unmatched checksum at offset {offset}; replica "
        f"{first.replica}'s checksum {sums[0]}; replica {other.replica}'s checksum {sums[1]}"
    )


class ReplicaSum:
    """Of the complete batches from `start` on and before `end`; a batch that contains `start`
    counts as a whole, as it is fetched.
    """

    def __init__(self, start: Offset, end: Offset) -> None:
        self.start = start
        self.end = end
        self.next_offset = start
        self.bytes = 0
        self._hash = hashlib.sha256()

    @property
    def is_done(self) -> bool:
        return self.next_offset >= self.end

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()

    def take(self, records: bytes) -> None:
        """Add the batches fetched from `next_offset` on. Raises ProtocolError if they are
        invalid.
        """
        for batch in batches(records):
            if batch.last_offset >= self.end:
                self.next_offset = self.end
                return
            if batch.last_offset >= self.next_offset:
                self._hash.update(batch.buffer)
                self.bytes += batch.size
                self.next_offset = batch.next_offset
