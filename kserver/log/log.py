"""One partition's log: a row of segments that grows at one end and is deleted from the other.

    log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset
    recovery_point <= log_end_offset: all below it is on disk

Append is synchronous and one write: validate (log/validator), judge the producer
(log/producer_state), roll if it must, write, keep the books.  Read gives a file range: it looks at
batch headers where it must know where to begin, never at records, and never waits for the disk;
what cannot be told from memory is COLD, and `read_cold` waits in a thread.

`fsync`, look-ups by time and the cutting of files run off the loop.  What runs there only reads,
and its result is taken over on the loop unless the log was truncated meanwhile.

When the disk fails, the caller gets StorageError with the directory's name, and so does every
later append: what a failed fsync left on disk is not known.

Measured (CPython 3.11, one record of 100 bytes): see `tests/bench/bench_log.py`.

What to delete is decided in log/retention, what counts after a crash in log/recovery; when to
flush, delete and write checkpoints is the holder's (log/manager).  Kafka: UnifiedLog, LocalLog.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar
from uuid import UUID

from kserver.errors import ErrorCode, KafkaError, StorageError
from kserver.log import checkpoint, recovery, retention
from kserver.log.index import TimestampOffset
from kserver.log.leader_epochs import EpochEnd, LeaderEpochCache
from kserver.log.producer_state import ProducerState
from kserver.log.segment import DELETED, SNAPSHOT, Found, LogSegment, segment_path
from kserver.log.transaction_index import AbortedTransaction
from kserver.log.validator import (
    Origin,
    ValidBatch,
    validate,
    validate_replicated,
)
from kserver.model import NO_TIMESTAMP, LeaderEpoch, Offset, TopicPartition
from kserver.wire.batch import CONTROL, RecordBatch, read_control_record
from kserver.world.disk import Disk, File, FileRange

if TYPE_CHECKING:
    from kserver.config.topic import TopicConfig

__all__ = ["COLD", "Appended", "Cold", "Housekeeping", "Log", "Origin", "Slice"]

T = TypeVar("T")

_KEPT_PLACES = 64
"""How many offsets a log remembers the position of: a few for each reader."""
_HEADER_BYTES = 61


class Cold:
    """The answer of a read that would have to wait for the disk."""


COLD: Final = Cold()


class Appended(NamedTuple):
    first_offset: Offset
    last_offset: Offset
    log_append_time: int
    """-1 where the producer's timestamps stand."""
    log_start_offset: Offset
    duplicate: bool = False
    """The offsets are those of the first time."""


class Slice(NamedTuple):
    """What a fetch answers: `size` bytes of whole batches, but for the last one."""

    data: FileRange | None
    size: int
    upper_bound: Offset
    """Above every offset in it."""


class TimestampedOffset(NamedTuple):
    timestamp: int
    offset: Offset
    leader_epoch: LeaderEpoch


class Housekeeping(Protocol):
    """What a log asks of its holder; none of these waits."""

    def flush_soon(self, log: Log) -> None:
        """More is unflushed than the log's configuration allows, or a segment was rolled."""

    def remove_later(self, log: Log, paths: Sequence[str]) -> None:
        """Readers may still have these files; remove them after `file.delete.delay.ms`."""

    async def recovery_point_lowered(self, log: Log) -> None:
        """Make it durable before returning: the log is about to be cut below the one on disk."""


class Log:
    __slots__ = (
        "_active",
        "_bases",
        "_compacted",
        "_disk",
        "_epochs_changed",
        "_flushing",
        "_housekeeping",
        "_names_changed",
        "_new_files",
        "_places",
        "_random",
        "_refusal",
        "_segments",
        "_truncations",
        "config",
        "directory",
        "epochs",
        "failure",
        "flushed_ms",
        "high_watermark",
        "log_end_offset",
        "log_start_offset",
        "producers",
        "recovery_point",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        topic_partition: TopicPartition,
        topic_id: UUID | None,
        config: TopicConfig,
        recovered: recovery.Recovered,
        housekeeping: Housekeeping,
        random: Random,
        now_ms: int,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.directory = directory
        self.log_start_offset: Offset = recovered.log_start_offset
        self.log_end_offset: Offset = recovered.log_end_offset
        self.high_watermark: Offset = recovered.log_start_offset
        self.recovery_point: Offset = recovered.recovery_point
        self.producers: ProducerState = recovered.producers
        self.epochs: LeaderEpochCache = recovered.epochs
        self.failure: StorageError | None = None
        """How the disk failed; nothing can be appended or flushed any more."""
        self.flushed_ms = now_ms
        """When its holder last flushed it; what `flush.ms` counts from."""
        self._disk = disk
        self._housekeeping = housekeeping
        self._random = random
        self._segments = recovered.segments
        self._bases = [segment.base_offset for segment in recovered.segments]
        self._active = recovered.segments[-1]
        self._places: dict[Offset, tuple[LogSegment, int]] = {}
        """Where batches begin that were read or appended up to: offset to segment and position."""
        self._new_files: list[File] = []
        """Snapshots that the next flush must sync."""
        self._names_changed = True
        """Files were made or removed since the directory was synced."""
        self._epochs_changed = False
        self._refusal: Exception | None = None
        """What appends raise: the failure, or that the log is closed or being truncated."""
        self._flushing: asyncio.Future[None] | None = None
        self._truncations = 0
        self.reconfigure(config)

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: str,
        topic_partition: TopicPartition,
        config: TopicConfig,
        *,
        housekeeping: Housekeeping,
        random: Random,
        now_ms: int,
        topic_id: UUID | None = None,
        clean: bool = False,
        recovery_point: Offset = 0,
        log_start_offset: Offset = 0,
        producer_expiration_ms: int = 86_400_000,
    ) -> Log:
        """Recover what is in `directory`, or begin there.  Waits for the disk.

        StorageError where the disk fails, or what had been on it is damaged.
        """
        try:
            disk.make_directories(directory)
            recovered = recovery.Recovery(
                disk,
                directory,
                config,
                clean=clean,
                recovery_point=recovery_point,
                log_start_offset=log_start_offset,
                now_ms=now_ms,
                producer_expiration_ms=producer_expiration_ms,
                jitter_ms=lambda: _jitter_ms(config, random),
            ).run()
        except OSError as error:
            raise StorageError(f"{directory}: {error}") from error
        return cls(
            disk,
            directory,
            topic_partition,
            topic_id,
            config,
            recovered,
            housekeeping,
            random,
            now_ms,
        )

    # Configuration and offsets

    def reconfigure(self, config: TopicConfig) -> None:
        self.config = config
        self._compacted = "compact" in config.cleanup_policy
        self._active.configure(config)

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    @property
    def segments(self) -> tuple[LogSegment, ...]:
        return tuple(self._segments)

    @property
    def last_stable_offset(self) -> Offset:
        """Every transaction below it is decided: where read_committed consumers stop."""
        first = self.producers.first_unstable_offset
        if first is None or first >= self.high_watermark:
            return self.high_watermark
        return max(first, self.log_start_offset)

    def update_high_watermark(self, offset: Offset) -> None:
        """Kept within the log's start and end."""
        self.high_watermark = min(max(offset, self.log_start_offset), self.log_end_offset)
        self.producers.replicated_to(self.high_watermark)

    def increment_log_start_offset(self, offset: Offset) -> bool:
        """Records below `offset` are deleted; OFFSET_OUT_OF_RANGE above the high watermark."""
        if offset > self.high_watermark:
            raise KafkaError(
                ErrorCode.offset_out_of_range,
                f"Cannot increment the log start offset to {offset} of partition "
                f"{self.topic_partition} since it is larger than the high watermark "
                f"{self.high_watermark}",
            )
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        if self.epochs.truncate_from_start(offset):
            self._save_epochs_soon()
        self.producers.replicated_to(offset)
        return True

    # Append

    def append_as_leader(
        self,
        records: memoryview,
        leader_epoch: LeaderEpoch,
        now_ms: int,
        *,
        origin: Origin = Origin.client,
    ) -> Appended:
        """Append the one batch in `records`, which is stamped in place with offset and epoch.

        Raises KafkaError when it is refused, StorageError when the disk fails.
        """
        if self._refusal is not None:
            raise self._refusal
        buffer, batches, log_append_time = validate(
            records,
            self.config,
            now_ms,
            origin=origin,
            first_offset=self.log_end_offset,
            leader_epoch=leader_epoch,
            compacted=self._compacted,
        )
        batch = batches[0]
        if batch.producer_id >= 0:
            if batch.attributes & CONTROL:
                marker = read_control_record(RecordBatch(buffer).records()[0])
                self.producers.check_marker(batch, marker.coordinator_epoch)
            elif (repeated := self.producers.check(batch, origin)) is not None:
                return Appended(
                    repeated.first_offset,
                    repeated.last_offset,
                    NO_TIMESTAMP if log_append_time < 0 else repeated.timestamp,
                    self.log_start_offset,
                    duplicate=True,
                )
        self._append(buffer, batches, now_ms)
        return Appended(
            batch.base_offset, batch.last_offset, log_append_time, self.log_start_offset
        )

    def append_as_follower(self, records: memoryview, now_ms: int) -> Appended | None:
        """Append what the leader sent, with its offsets and epochs; a cut batch at the end is left.

        None when there is no whole batch.  Raises KafkaError, StorageError.
        """
        if self._refusal is not None:
            raise self._refusal
        buffer, batches, _ = validate_replicated(records, self.log_end_offset)
        if not batches:
            return None
        if len(buffer) <= self.config.segment_bytes:
            self._append(buffer, batches, now_ms)
        else:
            for batch in batches:
                end = batch.position + batch.size
                self._append(buffer[batch.position : end], (batch,), now_ms)
        return Appended(
            batches[0].base_offset, batches[-1].last_offset, NO_TIMESTAMP, self.log_start_offset
        )

    def _append(self, buffer: memoryview, batches: Sequence[ValidBatch], now_ms: int) -> None:
        size = len(buffer)
        last = batches[-1]
        last_offset, timestamp = last.last_offset, last.max_timestamp
        if len(batches) > 1:
            timestamp = max(batch.max_timestamp for batch in batches)
        if size > self.config.segment_bytes:
            raise KafkaError(
                ErrorCode.record_list_too_large,
                f"Message batch size is {size} bytes in append to partition "
                f"{self.topic_partition}, which exceeds the maximum configured segment size of "
                f"{self.config.segment_bytes}.",
            )
        try:
            if not self._active.has_room(size, last_offset, timestamp, now_ms):
                self._roll(batches[0].base_offset, now_ms)
            self._active.append(buffer, batches)
            for batch in batches:
                if batch.leader_epoch > self.epochs.latest_epoch:
                    self.assign_epoch(batch.leader_epoch, batch.base_offset)
                if batch.producer_id >= 0:
                    self._note_producer(batch, buffer)
        except OSError as error:
            raise self._failed(error) from error
        self.log_end_offset = last_offset + 1
        if self.log_end_offset - self.recovery_point >= self.config.flush_messages:
            self._housekeeping.flush_soon(self)

    def _note_producer(self, batch: ValidBatch, buffer: memoryview) -> None:
        if not batch.attributes & CONTROL:
            self.producers.append(batch)
            return
        data = buffer[batch.position : batch.position + batch.size]
        done = recovery.note_marker(self.producers, batch, data)
        if done is not None and done.is_aborted:
            self._active.aborted.append(recovery.aborted_transaction(done))

    def assign_epoch(self, epoch: LeaderEpoch, start_offset: Offset) -> None:
        """A leader epoch begins; the checkpoint follows with a flush that is asked for here."""
        if self.epochs.assign(epoch, start_offset):
            self._save_epochs_soon()

    def _save_epochs_soon(self) -> None:
        # Until it is on disk the batches' own epochs tell: they lie above the recovery point.
        self._epochs_changed = True
        self._housekeeping.flush_soon(self)

    def roll(self, now_ms: int) -> None:
        """Begin a new segment at the log's end, unless the active one is empty."""
        if self._refusal is not None:
            raise self._refusal
        try:
            self._roll(self.log_end_offset, now_ms)
        except OSError as error:
            raise self._failed(error) from error

    def _roll(self, first_offset: Offset, now_ms: int) -> None:
        base = max(first_offset, self.log_end_offset)
        if base == self._active.base_offset:
            return
        self._active.seal()
        self._active.end_offset = base
        segment = LogSegment.create(
            self._disk,
            self.directory,
            base,
            self.config,
            now_ms,
            _jitter_ms(self.config, self._random),
        )
        self._segments.append(segment)
        self._bases.append(base)
        self._active = segment
        self._write_snapshot(base)
        self._names_changed = True
        # The sealed segment goes to disk, so that recovery need not check it.
        self._housekeeping.flush_soon(self)

    def _write_snapshot(self, offset: Offset) -> None:
        """Synced with the next flush; a torn one has a wrong CRC, and recovery skips it."""
        path = segment_path(self.directory, offset, SNAPSHOT)
        file = self._disk.open(path, create=True)
        data = self.producers.snapshot()
        file.write_at(0, data)
        file.truncate(len(data))
        self._new_files.append(file)

    # Read

    def read(
        self, offset: Offset, max_bytes: int, *, up_to: Offset, at_least_one: bool = True
    ) -> Slice | Cold:
        """From the batch that holds `offset`, all that is below `up_to` in its segment.

        At most `max_bytes`, which may cut the last batch; a first batch that is larger is given
        whole with `at_least_one`, and not at all without.  OFFSET_OUT_OF_RANGE outside the log.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise KafkaError(
                ErrorCode.offset_out_of_range,
                f"Received request for offset {offset} for partition {self.topic_partition}, "
                f"but we only have offsets {self.log_start_offset} to {self.log_end_offset}.",
            )
        place = self._places.get(offset)
        if offset >= up_to:
            if place is None and offset == self.log_end_offset:
                self._remember(offset, self._active, self._active.size)
            return Slice(None, 0, up_to)
        try:
            if place is None or place[1] == place[0].size:
                place = self._locate(offset)
                if place is None:
                    return COLD
            segment, position = place
            end = segment.size
            if up_to < segment.end_offset:
                bound = self._places.get(up_to) or self._locate(up_to)
                if bound is None:
                    return COLD
                if bound[0] is segment:
                    end = bound[1]
            else:
                up_to = segment.end_offset
            size = end - position
            if size > max_bytes:
                first = segment.batch_at(position)
                if first is None:
                    return COLD
                self._remember(first.last_offset + 1, segment, position + first.size)
                if first.size <= max_bytes:
                    size = max_bytes
                else:
                    size = first.size if at_least_one else 0
                up_to = segment.upper_bound(position + size, up_to)
            elif up_to not in self._places:
                self._remember(up_to, segment, end)
        except OSError as error:
            raise self._failed(error) from error
        data = FileRange(segment.file, position, size) if size else None
        return Slice(data, size, up_to)

    async def read_cold(
        self, offset: Offset, max_bytes: int, *, up_to: Offset, at_least_one: bool = True
    ) -> None:
        """Wait for what `read` with these arguments needs; read again afterwards."""
        wanted = [o for o in (offset, up_to) if o < self.log_end_offset]
        truncations = self._truncations
        segments, bases = list(self._segments), list(self._bases)

        def look() -> list[tuple[Offset, LogSegment, int]]:
            places = []
            for one in wanted:
                segment, found = _find(segments, bases, one)
                segment.file.read_at(found.position, _HEADER_BYTES)
                places.append((one, segment, found.position))
            return places

        places = await self._offload(look)
        if truncations == self._truncations:
            for one, segment, position in places:
                self._remember(one, segment, position)

    def _locate(self, offset: Offset) -> tuple[LogSegment, int] | None:
        """Where the first batch begins that ends at `offset` or later; None where it is cold."""
        number = bisect_right(self._bases, offset) - 1
        while True:
            segment = self._segments[number]
            found = segment.find(offset, segment.file.read_cached)
            if found is None:
                return None
            if found.size or segment is self._active:
                self._remember(offset, segment, found.position)
                return segment, found.position
            number += 1

    def _remember(self, offset: Offset, segment: LogSegment, position: int) -> None:
        places = self._places
        if len(places) >= _KEPT_PLACES:
            del places[next(iter(places))]
        places[offset] = (segment, position)

    def aborted(self, first: Offset, upper_bound: Offset) -> list[AbortedTransaction]:
        """The aborted transactions with records in [first, upper_bound)."""
        found: list[AbortedTransaction] = []
        for segment in self._segments[max(bisect_right(self._bases, first) - 1, 0) :]:
            some, is_all = segment.aborted.collect(first, upper_bound)
            found += some
            if is_all:
                break
        return found

    def end_offset_for_epoch(self, epoch: LeaderEpoch) -> EpochEnd:
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    async def offset_for_timestamp(self, timestamp: int) -> TimestampedOffset | None:
        """The first record whose timestamp is at least `timestamp`."""
        segments, start = list(self._segments), self.log_start_offset
        return await self._offload(lambda: _first_at(segments, timestamp, start))

    async def offset_of_max_timestamp(self) -> TimestampedOffset | None:
        """The first record with the largest timestamp of all; None when no record has one."""
        latest = max(self._segments, key=lambda segment: segment.max_timestamp)
        timestamp, near = latest.max_timestamp, latest.offset_of_max_timestamp
        if timestamp < 0:
            return None
        return await self._offload(lambda: _first_at([latest], timestamp, near))

    # Flush

    async def flush(self) -> Offset:
        """What was appended before the call is on disk; the recovery point.

        Whoever calls while a flush runs shares the next one.
        """
        end = self.log_end_offset
        while (self.recovery_point < end or self._epochs_changed) and self.failure is None:
            if self._flushing is not None:
                await asyncio.shield(self._flushing)
            else:
                await self._flush_once()
            end = min(end, self.log_end_offset)
        if self.failure is not None:
            raise self.failure
        return self.recovery_point

    async def _flush_once(self) -> None:
        self._flushing = asyncio.get_running_loop().create_future()
        try:
            await self._sync()
        finally:
            self._flushing.set_result(None)
            self._flushing = None

    async def _sync(self) -> None:
        end, truncations = self.log_end_offset, self._truncations
        first = max(bisect_right(self._bases, self.recovery_point) - 1, 0)
        segments = self._segments[first:]
        files = [file for segment in segments for file in segment.unsynced()]
        aborted = [segment.aborted for segment in segments]
        snapshots, self._new_files = self._new_files, []
        names_changed, self._names_changed = self._names_changed, False
        epochs = self.epochs.entries if self._epochs_changed else None
        self._epochs_changed = False

        def sync() -> None:
            for file in files + snapshots:
                file.sync()
            for index in aborted:
                index.sync()
            if epochs is not None:
                path = f"{self.directory}/{checkpoint.LEADER_EPOCHS}"
                checkpoint.write_epochs(self._disk, path, epochs)
            if names_changed:
                self._disk.sync_directory(self.directory)
                self._disk.sync_directory(self.directory.rpartition("/")[0] or "/")

        await self._offload(sync)
        if truncations == self._truncations:
            self.recovery_point = max(self.recovery_point, end)
            for segment in segments:
                if segment.is_sealed:
                    segment.release()

    async def _offload(self, work: Callable[[], T]) -> T:
        try:
            return await self._disk.offload(work)
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> StorageError:
        if self.failure is None:
            self._refusal = self.failure = StorageError(f"{self.directory}: {error}")
        return self.failure

    async def close(self) -> None:
        """Flush all, with a snapshot of the producers; the log takes no appends afterwards."""
        if self._refusal is not None:
            raise self._refusal
        self._refusal = StorageError(f"{self.directory}: the log is closed")
        while self._flushing is not None:
            await asyncio.shield(self._flushing)
        try:
            self._active.seal()
            self._write_snapshot(self.log_end_offset)
        except OSError as error:
            raise self._failed(error) from error
        await self._flush_once()

    # Deletion and truncation

    def delete_old_segments(self, now_ms: int) -> int:
        """Delete what retention allows; how many segments went.  Raises StorageError."""
        if self._refusal is not None:
            raise self._refusal
        try:
            doomed = retention.expired(
                self._segments,
                self.config,
                log_start_offset=self.log_start_offset,
                log_end_offset=self.log_end_offset,
                high_watermark=self.high_watermark,
                now_ms=now_ms,
            )
            if doomed == len(self._segments):
                self._roll(self.log_end_offset, now_ms)
            if doomed:
                self.increment_log_start_offset(max(self._bases[doomed], self.log_start_offset))
                self._drop(self._segments[:doomed])
        except OSError as error:
            raise self._failed(error) from error
        return doomed

    def _drop(self, segments: Sequence[LogSegment]) -> None:
        """Take segments out of the log: their files are renamed, and removed after the delay."""
        renamed = []
        for segment in segments:
            snapshot = segment.path(SNAPSHOT)
            paths = segment.files()
            if self._disk.exists(snapshot):
                paths.append(snapshot)
            for path in paths:
                self._disk.rename(path, path + DELETED)
                renamed.append(path + DELETED)
        gone = {segment.base_offset for segment in segments}
        self._segments = [s for s in self._segments if s.base_offset not in gone]
        self._bases = [segment.base_offset for segment in self._segments]
        self._places.clear()
        self._names_changed = True
        self._housekeeping.remove_later(self, renamed)

    async def truncate_to(self, offset: Offset) -> None:
        """Remove the records of `offset` and above, and the batch that `offset` lies in.

        No append may be under way: the caller is a follower.  A call that is cancelled leaves the
        log unusable until it is opened again.
        """
        if self._refusal is not None:
            raise self._refusal
        if offset >= self.log_end_offset:
            if self.epochs.truncate_from_end(self.log_end_offset):
                self._save_epochs_soon()
            return
        if offset < self._bases[0]:
            await self.truncate_fully_and_start_at(offset)
            return
        await self._begin_truncation(offset)
        kept = bisect_right(self._bases, offset)
        segments = self._segments[:kept]
        segment = segments[-1]
        expiration_ms = self.producers.expiration_ms
        is_stateful = bool(self.producers.producers)

        def prepare() -> tuple[int, TimestampOffset, ProducerState]:
            found = segment.find(offset, segment.file.read_at)
            assert found is not None
            producers = ProducerState(expiration_ms)
            if is_stateful:
                self._replay_producers(producers, segments, offset, found.position)
            return found.position, segment.latest_before(offset, found.position), producers

        position, latest, producers = await self._offload(prepare)
        try:
            self._drop(self._segments[kept:])
            segment.truncate(offset, position, latest, self.config)
            self._drop_snapshots_above(offset)
        except OSError as error:
            raise self._failed(error) from error
        self._active = segment
        self.producers = producers
        self._end_at(offset)
        await self._offload(lambda: segment.file.truncate(position))
        self._refusal = None

    async def truncate_fully_and_start_at(self, offset: Offset) -> None:
        """Remove all records; the log begins and ends at `offset`."""
        if self._refusal is not None:
            raise self._refusal
        await self._begin_truncation(offset)
        try:
            self._drop(self._segments)
            self._drop_snapshots_above(-1)
            self._active = LogSegment.create(
                self._disk,
                self.directory,
                offset,
                self.config,
                self.flushed_ms,
                _jitter_ms(self.config, self._random),
            )
        except OSError as error:
            raise self._failed(error) from error
        self._segments = [self._active]
        self._bases = [offset]
        self.producers.clear()
        self.log_start_offset = offset
        self._end_at(offset)
        self._refusal = None

    async def _begin_truncation(self, offset: Offset) -> None:
        self._refusal = KafkaError(
            ErrorCode.not_leader_or_follower, f"{self.topic_partition} is being truncated"
        )
        self._truncations += 1
        if offset < self.recovery_point:
            self.recovery_point = offset
            await self._housekeeping.recovery_point_lowered(self)

    def _end_at(self, offset: Offset) -> None:
        self._places.clear()
        self.log_end_offset = offset
        self.log_start_offset = min(self.log_start_offset, offset)
        self.recovery_point = min(self.recovery_point, offset)
        self.epochs.truncate_from_end(offset)
        self._save_epochs_soon()
        self.update_high_watermark(min(self.high_watermark, offset))

    def _replay_producers(
        self,
        producers: ProducerState,
        segments: Sequence[LogSegment],
        offset: Offset,
        end_position: int,
    ) -> None:
        start = recovery.restore_producers(
            self._disk, self.directory, producers, offset, self.flushed_ms
        )
        start = max(start or 0, self.log_start_offset)
        for segment in segments:
            if segment.end_offset > start:
                end = end_position if segment is segments[-1] else None
                for _ in recovery.replay(producers, segment, start, start, end):
                    pass

    def _drop_snapshots_above(self, offset: Offset) -> None:
        for taken in recovery.snapshot_offsets(self._disk, self.directory):
            if taken > offset:
                self._disk.remove(segment_path(self.directory, taken, SNAPSHOT))

    def check(self) -> None:
        """The invariants; for tests, it reads every header."""
        assert self._segments[-1] is self._active
        assert self._bases == [segment.base_offset for segment in self._segments]
        for segment, following in pairwise(self._segments):
            assert segment.end_offset <= following.base_offset
            assert segment.is_sealed
        for segment in self._segments:
            segment.check()
        assert self._active.end_offset == self.log_end_offset
        assert self._segments[0].base_offset <= self.log_start_offset <= self.last_stable_offset
        assert self.last_stable_offset <= self.high_watermark <= self.log_end_offset
        assert self.recovery_point <= self.log_end_offset
        for offset, (segment, position) in self._places.items():
            found = _find(self._segments, self._bases, offset)
            assert (segment, position) == (found[0], found[1].position) or (
                position == segment.size and found[1].position == 0
            ), (offset, position, found)
        self.producers.check_invariants()
        self.epochs.check_invariants()


def _find(
    segments: Sequence[LogSegment], bases: Sequence[Offset], offset: Offset
) -> tuple[LogSegment, Found]:
    """The first batch that ends at `offset` or later; may wait for the disk."""
    number = max(bisect_right(bases, offset) - 1, 0)
    while True:
        segment = segments[number]
        found = segment.find(offset, segment.file.read_at)
        assert found is not None
        number += 1
        if found.size or number == len(segments):
            return segment, found


def _first_at(
    segments: Sequence[LogSegment], timestamp: int, start: Offset
) -> TimestampedOffset | None:
    """The first record from `start` on whose timestamp is at least `timestamp`."""
    for segment in segments:
        if segment.largest_timestamp() < timestamp or segment.end_offset <= start:
            continue
        indexed = segment.times.lookup(timestamp).offset
        position = segment.offsets.position_before(max(indexed, start))
        for at, header in segment.headers(position):
            if header.max_timestamp < timestamp or header.last_offset < start:
                continue
            batch = RecordBatch(segment.file.read_at(at, header.size))
            for record in batch.records():
                if record.timestamp >= timestamp and record.offset >= start:
                    return TimestampedOffset(record.timestamp, record.offset, batch.leader_epoch)
    return None


def _jitter_ms(config: TopicConfig, random: Random) -> int:
    limit = min(config.segment_jitter_ms, config.segment_ms)
    return random.randrange(limit) if limit > 0 else 0
