"""Chunk: one partition's bytes out of a Fetch answer, decoded when they are wanted.

Pure: bytes in, records out.

The headers are read at once, so that the next fetch can be sent before anything is decoded.  Then
`take` gives the records from the asked offset on, batch by batch: those before it (a fetch starts
with the batch that contains the offset) and control batches are left out, with read_committed also
what aborted transactions wrote (KIP-98).

A batch of many records is decoded in parts: packed, a megabyte may hold more of them than memory.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kserver.errors import ErrorCode, KafkaError, ProtocolError
from kserver.model import LeaderEpoch, Offset, ProducerId, TopicPartition
from kserver.wire.batch import (
    ControlType,
    Record,
    RecordBatch,
    TimestampType,
    batches,
    read_control_record,
)

WHOLE_RECORDS = 1 << 16
"""Batches of more records are decoded in parts."""


class Aborted(NamedTuple):
    """A transaction that was aborted: its producer's records from `first_offset` to the marker."""

    first_offset: Offset
    producer_id: ProducerId


class FetchedBatch(NamedTuple):
    """Records of one batch; `next_offset` is where the partition goes on after them."""

    topic: str
    partition: int
    records: list[Record]
    timestamp_type: TimestampType
    leader_epoch: LeaderEpoch
    next_offset: Offset


class Chunk:
    """`position` is the next offset that `take` may give, `end` the offset after the last batch.

    ProtocolError when the headers make no sense.
    """

    __slots__ = (
        "_aborted",
        "_aborting",
        "_batches",
        "_check_crcs",
        "_partition",
        "_parts",
        "_rest",
        "_rest_of",
        "end",
        "position",
        "size",
    )

    def __init__(
        self,
        partition: TopicPartition,
        offset: Offset,
        data: bytes,
        *,
        aborted: Sequence[Aborted] = (),
        check_crcs: bool = True,
    ) -> None:
        self.position = offset
        self.size = len(data)
        self._partition = partition
        self._check_crcs = check_crcs
        self._aborted = list(aborted)
        heapq.heapify(self._aborted)
        self._aborting: set[ProducerId] = set()
        found = list(batches(data))
        if data and not found:
            raise ProtocolError(f"a fetch of {partition} without one whole batch")
        self.end = found[-1].next_offset if found else offset
        if found and self.end <= offset:
            raise ProtocolError(f"a fetch of {partition} from {offset} that ends at {self.end}")
        self._batches: Iterator[RecordBatch] = iter(found)
        self._parts: Iterator[list[Record]] = iter(())
        """What is still to be decoded of `_rest_of`."""
        self._rest: list[Record] = []
        self._rest_of: RecordBatch | None = None

    def take(self, most: int) -> FetchedBatch | None:
        """Up to `most` records of the next batch that has any; None when there are no more.

        KafkaError for a checksum that is wrong, ProtocolError for records that make no sense.
        """
        while not self._rest:
            if (part := next(self._parts, None)) is not None:
                self._rest = self._unread(part)
                continue
            if self._rest_of is not None:
                self.position = max(self.position, self._rest_of.next_offset)
            self._rest_of = batch = next(self._batches, None)
            if batch is None:
                self.position = max(self.position, self.end)
                return None
            if batch.last_offset >= self.position and self._is_visible(batch):
                self._parts = _decoded(batch)
        batch, records = self._rest_of, self._rest
        assert batch is not None
        if len(records) > most:
            self._rest = records[most:]
            records = records[:most]
            next_offset = records[-1].offset + 1
        else:
            self._rest = []
            in_parts = batch.count > WHOLE_RECORDS
            next_offset = records[-1].offset + 1 if in_parts else batch.next_offset
        self.position = next_offset
        topic, partition = self._partition
        return FetchedBatch(
            topic, partition, records, batch.timestamp_type, batch.leader_epoch, next_offset
        )

    def _unread(self, records: list[Record]) -> list[Record]:
        if records and records[0].offset < self.position:
            return [record for record in records if record.offset >= self.position]
        return records

    def _is_visible(self, batch: RecordBatch) -> bool:
        """Whether its records are for the reader."""
        if self._check_crcs and not batch.is_valid_crc():
            raise KafkaError(
                ErrorCode.corrupt_message,
                f"the batch at offset {batch.base_offset} of {self._partition} does not match its"
                " checksum",
            )
        if self._aborted or self._aborting:
            while self._aborted and self._aborted[0].first_offset <= batch.last_offset:
                self._aborting.add(heapq.heappop(self._aborted).producer_id)
            if batch.producer_id in self._aborting:
                if batch.is_control:
                    self._end_of_transaction(batch)
                elif batch.is_transactional:
                    return False
        return not batch.is_control

    def _end_of_transaction(self, batch: RecordBatch) -> None:
        records = next(_decoded(batch), [])
        if records and read_control_record(records[0]).type is ControlType.abort:
            self._aborting.discard(batch.producer_id)


def _decoded(batch: RecordBatch) -> Iterator[list[Record]]:
    if batch.count <= WHOLE_RECORDS:
        return iter((batch.records(),))
    return batch.records_by_parts(batch.unfolded())
