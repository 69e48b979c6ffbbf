"""Resolves a range of offsets on the cluster: where each partition is read from and up to."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from kcli.console.offset_range import AfterStart, Edge, Exact, Last, OffsetRange, Since, Stop
from kserver.errors import ErrorCode, KafkaError
from kserver.model import Offset, TopicPartition

if TYPE_CHECKING:
    from kcli.client.config import ConsumerConfig
    from kcli.client.consumer.consumer import Consumer, FetchedBatch

RECORDS_AT_ONCE = 20_000
LOOK_MS = 50
EMPTY_ROUNDS = 2
PROBE_WAIT_MS = 10
LARGEST_STEP = 1 << 20


async def seek(
    consumer: Consumer,
    config: ConsumerConfig,
    partitions: Iterable[TopicPartition],
    offset_range: OffsetRange,
    *,
    to_end: bool = False,
) -> UpTo | None:
    """Assign the partitions and seek to the start of the range; return a reader up to its stop.

    Returns None if it has no stop. `to_end` stops a range without a stop at the present end;
    `config` is the consumer's. Raises KafkaError if a partition is unauthorized, or with
    auto.offset.reset=none if its log does not have the start; TimedOut.
    """
    partitions = list(partitions)
    stops = None
    if offset_range.stop is not None or to_end:
        stops = await _stops(consumer, partitions, offset_range.stop or Edge.END)
    if stops is None and isinstance(offset_range.start, Edge):
        consumer.assign(partitions)
        at_start = offset_range.start is Edge.START
        await (consumer.seek_to_beginning() if at_start else consumer.seek_to_end())
        return None
    if stops is None and isinstance(offset_range.start, Exact):
        starts = dict.fromkeys(partitions, offset_range.start.offset)
    else:
        starts = await _starts(consumer, config, partitions, offset_range)
    if stops is not None and config.auto_offset_reset == "none":
        await _check_for_gaps(consumer, offset_range, starts)
    consumer.assign(partitions)
    for partition, offset in starts.items():
        await consumer.seek(partition, offset)
    return None if stops is None else UpTo(consumer, config, stops)


async def _check_for_gaps(
    consumer: Consumer, offset_range: OffsetRange, starts: dict[TopicPartition, Offset]
) -> None:
    """Raises OFFSET_OUT_OF_RANGE if a log does not have the start, as a fetch would: up to a stop,
    missing offsets would otherwise be skipped.
    """
    first = await consumer.beginning_offsets(starts)
    ends = await consumer.end_offsets(starts)
    exact = offset_range.start.offset if isinstance(offset_range.start, Exact) else None
    gaps = []
    for partition, start in starts.items():
        begin, end = first[partition], ends[partition]
        if exact is not None and exact < begin:
            gaps.append(f"{partition} begins at offset {begin:,}, after {exact:,}")
        elif start > end:
            gaps.append(f"{partition} ends at offset {end:,}, before {start:,}")
    if gaps:
        raise KafkaError(
            ErrorCode.offset_out_of_range,
            f"{'; '.join(gaps)}: with auto.offset.reset=none, start where the log has records",
        )


async def _stops(
    consumer: Consumer, partitions: list[TopicPartition], stop: Stop
) -> dict[TopicPartition, Offset]:
    ends = await consumer.end_offsets(partitions)
    match stop:
        case Exact(offset):
            return {p: min(end, offset) for p, end in ends.items()}
        case Since(time_ms):
            results = await consumer.offsets_for_times(dict.fromkeys(partitions, time_ms))
            return {p: ends[p] if at is None else at.offset for p, at in results.items()}
    return ends


async def _starts(
    consumer: Consumer,
    config: ConsumerConfig,
    partitions: list[TopicPartition],
    offset_range: OffsetRange,
) -> dict[TopicPartition, Offset]:
    if offset_range.start is Edge.END:
        return await consumer.end_offsets(partitions)
    first = await consumer.beginning_offsets(partitions)
    match offset_range.start:
        case Edge.START:
            return first
        case Exact(offset):
            return {p: max(start, offset) for p, start in first.items()}
        case AfterStart(offsets):
            return {p: start + offsets for p, start in first.items()}
        case Since(time_ms):
            ends = await consumer.end_offsets(partitions)
            results = await consumer.offsets_for_times(dict.fromkeys(partitions, time_ms))
            return {p: ends[p] if at is None else at.offset for p, at in results.items()}
        case Last(records):
            ends = await consumer.end_offsets(partitions)
            return await _last(config, records, first, ends)
    raise AssertionError(offset_range.start)


async def _last(
    config: ConsumerConfig,
    records: int,
    first: dict[TopicPartition, Offset],
    ends: dict[TopicPartition, Offset],
) -> dict[TopicPartition, Offset]:
    """Return the offset of the last record but `records` - 1 in each partition.

    It cannot be computed from the end: compaction, markers and aborted transactions leave gaps. So
    as many offsets are read as records are wanted; if that gives fewer records, twice as many
    offsets before them, and so on. Most partitions have no gaps, and are read once. It uses a
    consumer of its own, whose last fetch does not wait for new records: otherwise the first printed
    record would be delayed by it.
    """
    from kcli.client.consumer.consumer import Consumer
    from kcli.client.serialization import BYTES_IN

    config = replace(config, fetch_max_wait_ms=PROBE_WAIT_MS)
    async with Consumer(config, **BYTES_IN) as consumer:
        return await _looked_up(consumer, config, records, first, ends)


async def _looked_up(
    consumer: Consumer,
    config: ConsumerConfig,
    records: int,
    first: dict[TopicPartition, Offset],
    ends: dict[TopicPartition, Offset],
) -> dict[TopicPartition, Offset]:
    results: dict[TopicPartition, Offset] = {}
    missing = dict.fromkeys(ends, records)
    low, step = dict(ends), records
    while pending := [p for p in ends if p not in results]:
        high = {p: low[p] for p in pending}
        low |= {p: max(first[p], high[p] - step) for p in pending}
        last_offsets = {p: deque[Offset](maxlen=missing[p]) for p in pending}
        consumer.assign(pending)
        for partition in pending:
            await consumer.seek(partition, low[partition])
        reading = UpTo(consumer, config, high)
        while (batches := await reading.poll(None, RECORDS_AT_ONCE)) is not None:
            for batch in batches:
                partition = TopicPartition(batch.topic, batch.partition)
                last_offsets[partition].extend([row[0] for row in batch.rows])
        for partition in pending:
            missing[partition] -= len(last_offsets[partition])
            if not missing[partition]:
                results[partition] = last_offsets[partition][0]
            elif low[partition] == first[partition]:
                results[partition] = first[partition]
        step = min(2 * step, max(records, LARGEST_STEP))
    return results


class UpTo:
    """Reads the assigned partitions, each up to its stop, which is exclusive."""

    def __init__(
        self, consumer: Consumer, config: ConsumerConfig, stops: dict[TopicPartition, Offset]
    ) -> None:
        self._consumer = consumer
        self._stops = stops
        # A fetch that finds nothing takes half of it.
        self._quiet_s = max(2 * config.fetch_max_wait_ms, LOOK_MS) / 1000
        self._loop = asyncio.get_running_loop()
        self._quiet_since = self._loop.time()
        self._empty_rounds = 0

    async def poll(self, patience_ms: float | None, most: int) -> list[FetchedBatch] | None:
        """Return the next records; [] if there were none in time, None when all partitions are
        done.
        """
        patience_s = float("inf") if patience_ms is None else patience_ms / 1000
        began = self._loop.time()
        while await self._reading():
            left_s = patience_s - (self._loop.time() - began)
            batches = await self._consumer.poll_batches(min(LOOK_MS, max(left_s, 0) * 1000), most)
            if batches:
                self._quiet_since = self._loop.time()
                self._empty_rounds = 0
                if before := [cut for batch in batches if (cut := self._cut(batch)).rows]:
                    return before
            elif left_s <= 0:
                return []
            elif self._loop.time() - self._quiet_since > self._quiet_s:
                await self._confirm_end()
        return None

    async def _reading(self) -> bool:
        """Unassign partitions that reached their stop; return whether any are left."""
        done = [p for p, stop in self._stops.items() if await self._consumer.position(p) >= stop]
        if done:
            for partition in done:
                del self._stops[partition]
            self._consumer.assign(self._stops)
        return bool(self._stops)

    def _cut(self, batch: FetchedBatch) -> FetchedBatch:
        stop = self._stops[TopicPartition(batch.topic, batch.partition)]
        if batch.next_offset <= stop:
            return batch
        return batch._replace(rows=[r for r in batch.rows if r[0] < stop])

    async def _confirm_end(self) -> None:
        """Stop if the remaining offsets have no records. Compaction may have removed the last
        records before a stop, and then no fetch reaches it. A leader that responds now has
        responded to the fetches before; after EMPTY_ROUNDS rounds without records, there are none.
        """
        await self._consumer.end_offsets(self._stops)
        self._empty_rounds += 1
        self._quiet_since = self._loop.time()
        if self._empty_rounds == EMPTY_ROUNDS:
            self._stops.clear()
