"""One partition's log: a row of segments that grows at its end and is deleted from its start.

    log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset
    recovery_point <= log_end_offset: everything below it is on disk

Append is synchronous and makes one write: validate (log/validator), check the producer
(log/producer_state), roll if needed, write, update the state.  Read returns a file range.  It looks
at batch headers, never at records, and never waits for the disk: if it would have to, it returns
COLD, and `read_cold` waits in a thread.

`fsync`, look-ups by time and truncating files run in threads.  That work only reads the log's
state; its result is applied on the event loop, unless the log was truncated meanwhile.

After a disk failure the caller and every later append get StorageError with the directory's name:
the state after a failed fsync is unknown.  A full disk raises NoRoom and undoes a partial write.

An append of one record of 100 bytes takes 3.6 us with its CRC, of which log/validator 2.1, and the
write itself 1.2 us (row `micro` of tests.bench, CPython 3.11).

Log/retention decides what to delete, log/recovery what is valid after a crash, and the holder
(log/manager) when to flush, delete and write checkpoints.  Kafka: UnifiedLog, LocalLog.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from kserver.errors import NO_DESCRIPTOR, ErrorCode, KafkaError, NoRoom, StorageError, storage_error
from kserver.log import checkpoint, recovery, retention
from kserver.log.flusher import Flusher
from kserver.log.home import Housekeeping, LogHome
from kserver.log.leader_epochs import EpochEnd, LeaderEpochCache
from kserver.log.leftovers import remove_snapshots_above
from kserver.log.producer_state import ProducerStateManager
from kserver.log.replay import aborted_transaction, note_marker, replay_producers
from kserver.log.segment import SNAPSHOT, Cut, LogSegment
from kserver.log.segments import COLD, Cold, Segments, Slice, TimestampedOffset
from kserver.log.transaction_index import AbortedTransaction
from kserver.log.validator import Appended, Origin, ValidBatch, validate, validate_replicated
from kserver.model import NO_TIMESTAMP, LeaderEpoch, Offset, TopicPartition
from kserver.wire.batch import CONTROL, RecordBatch, read_control_record

if TYPE_CHECKING:
    from kserver.config.topic import TopicConfig

__all__ = ["COLD", "Appended", "Cold", "Housekeeping", "Log", "LogHome", "Origin", "Slice"]

T = TypeVar("T")


class Log:
    def __init__(
        self,
        home: LogHome,
        directory: str,
        topic_partition: TopicPartition,
        config: TopicConfig,
        recovered: recovery.Recovered,
        now_ms: int,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id: UUID | None = recovered.topic_id
        self.directory = directory
        self.log_start_offset: Offset = recovered.log_start_offset
        self.log_end_offset: Offset = recovered.log_end_offset
        self.high_watermark: Offset = recovered.log_start_offset
        self.recovery_point: Offset = recovered.recovery_point
        self.producers: ProducerStateManager = recovered.producers
        self.epochs: LeaderEpochCache = recovered.epochs
        self.failure: StorageError | None = None
        """Disk failure, after which nothing can be appended or flushed; None before."""
        self.cleaned_to: Offset | None = None
        """Offset below which the log was compacted; None if it never was."""
        self.flushed_ms = now_ms
        """Time of the last flush by the holder, from which `flush.ms` counts."""
        self._disk = home.disk
        self._housekeeping = home.housekeeping
        self._segments = Segments(home.disk, directory, config, home.random, recovered.segments)
        self._flusher = Flusher(home.disk, directory, recovered.unsynced)
        self._flusher.epochs_changed = recovered.epochs_changed
        self._refusal: Exception | None = None
        """Error that appends raise: the failure, or that the log is closed or being truncated."""
        self.truncations = 0
        """Counts the begins and ends of truncations; what was read before one may be invalid."""
        self.reconfigure(config)

    @classmethod
    def open(
        cls,
        home: LogHome,
        directory: str,
        topic_partition: TopicPartition,
        config: TopicConfig,
        now_ms: int,
        stored: recovery.StoredOffsets = recovery.NOTHING_STORED,
    ) -> Log:
        """Recover the log in `directory`, or create one.  Waits for the disk.

        Raises StorageError if the disk fails, or if data that had been on it is damaged.
        """
        try:
            home.disk.make_directories(directory)
            producers = ProducerStateManager(home.producer_expiration_ms)
            recovered = recovery.Recovery(
                home.disk, directory, config, stored, now_ms, producers, home.random
            ).run()
        except OSError as error:
            raise storage_error(directory, error) from error
        log = cls(home, directory, topic_partition, config, recovered, now_ms)
        log.cleaned_to = recovered.cleaned_to
        log.update_high_watermark(stored.high_watermark)
        return log

    # Configuration and offsets

    def reconfigure(self, config: TopicConfig) -> None:
        self.config = config
        self._compacted = "compact" in config.cleanup_policy
        self._segments.configure(config)

    def write_topic_id(self, topic_id: UUID) -> None:
        """Write partition.metadata, which the next flush syncs.  Raises OSError."""
        self.topic_id = topic_id
        self._flusher.write(checkpoint.PARTITION_METADATA, checkpoint.encode_topic_id(topic_id))

    def relocate(self, directory: str) -> None:
        """Use the new name of the log's directory; no one else was using it."""
        self.directory = directory
        self._segments.relocate(directory)
        self._flusher.directory = directory

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    @property
    def segments(self) -> tuple[LogSegment, ...]:
        return tuple(self._segments)

    @property
    def last_stable_offset(self) -> Offset:
        """Offset below which all transactions are decided; read_committed consumers stop here."""
        first = self.producers.first_unstable_offset
        if first is None or first >= self.high_watermark:
            return self.high_watermark
        return max(first, self.log_start_offset)

    def update_high_watermark(self, offset: Offset) -> None:
        """Set the high watermark, limited to the log's start and end."""
        self.high_watermark = min(max(offset, self.log_start_offset), self.log_end_offset)
        self.producers.replicated_to(self.high_watermark)

    def commit_all(self) -> None:
        """Move the high watermark to the end: `update_high_watermark` in a third of its time."""
        self.high_watermark = self.log_end_offset
        if self.producers.first_unstable_offset is not None:
            self.producers.replicated_to(self.high_watermark)

    def increment_log_start_offset(self, offset: Offset) -> bool:
        """Delete records below `offset`; raises OFFSET_OUT_OF_RANGE above the high watermark."""
        if offset > (limit := self.high_watermark):
            raise KafkaError(
                ErrorCode.offset_out_of_range,
                f"Cannot increment the log start offset to {offset} of partition "
                f"{self.topic_partition} since it is larger than the high watermark {limit}",
            )
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        if self.epochs.truncate_from_start(offset):
            self._save_epochs_soon()
        self.producers.replicated_to(offset)
        return True

    # Append

    @property
    def is_being_cut(self) -> bool:
        return self._refusal is not None and self.failure is None

    def append_as_leader(
        self,
        records: memoryview,
        leader_epoch: LeaderEpoch,
        now_ms: int,
        *,
        origin: Origin = Origin.client,
    ) -> Appended:
        """Append the one batch in `records`, stamping offset and leader epoch in place.

        Raises KafkaError if the batch is refused, StorageError if the disk fails.
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
        batch, start = batches[0], self.log_start_offset
        if batch.producer_id >= 0:
            if batch.attributes & CONTROL:
                marker = read_control_record(RecordBatch(buffer).records()[0])
                self.producers.check_marker(batch, marker.coordinator_epoch)
            elif (prior := self.producers.check(batch, origin)) is not None:
                return Appended(
                    prior.first_offset, prior.last_offset, prior.timestamp, start, duplicate=True
                )
        self._append(buffer, batches, now_ms)
        return Appended(batch.base_offset, batch.last_offset, log_append_time, start)

    def append_as_follower(self, records: memoryview, now_ms: int) -> Appended | None:
        """Append the leader's batches with their offsets and epochs, except a last incomplete one.

        Returns None if there is no whole batch.  Raises KafkaError, StorageError.
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
            segment = self._segments.active
            if not segment.has_room(size, last_offset, timestamp, now_ms):
                segment = self._roll(batches[0].base_offset, now_ms)
            segment.append(buffer, batches)
            for batch in batches:
                if batch.leader_epoch > self.epochs.latest_epoch:
                    self.assign_epoch(batch.leader_epoch, batch.base_offset)
                if batch.producer_id >= 0:
                    self._note_producer(batch, buffer)
        except NoRoom as full:
            self._housekeeping.no_room(self, full)
            raise
        except OSError as error:
            raise self.failed(error) from error
        self.log_end_offset = last_offset + 1
        if self.log_end_offset - self.recovery_point >= self.config.flush_messages:
            self._housekeeping.flush_soon(self)

    def _note_producer(self, batch: ValidBatch, buffer: memoryview) -> None:
        if not batch.attributes & CONTROL:
            self.producers.append(batch)
            return
        data = buffer[batch.position : batch.position + batch.size]
        done = note_marker(self.producers, batch, data)
        if done is not None and done.is_aborted:
            self._segments.active.aborted.append(aborted_transaction(done))
            self._flusher.names_changed = True

    def assign_epoch(self, epoch: LeaderEpoch, start_offset: Offset) -> None:
        """Start a leader epoch, and request a flush that writes the checkpoint."""
        if self.epochs.assign(epoch, start_offset):
            self._save_epochs_soon()

    def _save_epochs_soon(self) -> None:
        # A crash before that is harmless: recovery finds the epoch in the batches themselves.
        self._flusher.epochs_changed = True
        self._housekeeping.flush_soon(self)

    def roll(self, now_ms: int, offset: Offset = 0) -> None:
        """Start a segment at the log's end, or at a higher `offset`, which becomes the end."""
        if self._refusal is not None:
            raise self._refusal
        try:
            self._roll(offset, now_ms)
        except OSError as error:
            raise self.failed(error) from error
        self.log_end_offset = max(offset, self.log_end_offset)

    def _roll(self, first_offset: Offset, now_ms: int) -> LogSegment:
        active = self._segments.active
        base = max(first_offset, self.log_end_offset)
        if base == active.base_offset:
            return active
        active.seal()
        # Recovery trusts a segment that ends at the recovery point, as the sealed one then does.
        is_trusted = self.recovery_point == self.log_end_offset
        if is_trusted:
            active.sync()
        try:
            segment = self._segments.roll(base, now_ms)
        except NoRoom:
            # Else a crash could leave the new segment's files next to what is appended here.
            self._flusher.sync_names()
            raise
        self._write_snapshot(base)
        if is_trusted:
            self._flusher.sync_names()
        else:
            # Flush the sealed segment, so that recovery need not check it.
            self._housekeeping.flush_soon(self)
        return segment

    def _write_snapshot(self, offset: Offset) -> None:
        # A torn snapshot has a wrong CRC; recovery skips it and replays more of the log.
        self._flusher.write_if_room(f"{offset:020d}{SNAPSHOT}", self.producers.snapshot())

    # Read

    def read(
        self, offset: Offset, max_bytes: int, *, up_to: Offset, at_least_one: bool = True
    ) -> Slice | Cold:
        """Return the data from the batch that holds `offset` to `up_to`, within one segment.

        At most `max_bytes`, which may cut the last batch.  A larger first batch is returned whole
        with `at_least_one`, else not at all.  Raises OFFSET_OUT_OF_RANGE outside the log.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise KafkaError(
                ErrorCode.offset_out_of_range,
                f"Received request for offset {offset} for partition {self.topic_partition}, "
                f"but we only have offsets {self.log_start_offset} to {self.log_end_offset}.",
            )
        if offset >= up_to:
            if offset == self.log_end_offset:
                # A fetch that waits at the log's end will continue from here.
                self._segments.remember(offset, self._segments.active, self._segments.active.size)
            return Slice(None, 0, up_to)
        try:
            return self._segments.read(offset, max_bytes, up_to, at_least_one)
        except OSError as error:
            raise self.failed(error, may_repeat=True) from error

    async def read_cold(
        self, offset: Offset, max_bytes: int, *, up_to: Offset, at_least_one: bool = True
    ) -> None:
        """Wait until the disk has read what `read` with these arguments needs; then read again."""
        offsets = [o for o in (offset, up_to) if o < self.log_end_offset]
        truncations = self.truncations
        segments = self._segments.snapshot()
        places = await self._offload(lambda: segments.warm(offsets))
        if truncations == self.truncations:
            for place in places:
                self._segments.remember(*place)

    def aborted(self, first: Offset, upper_bound: Offset) -> list[AbortedTransaction]:
        """Return the aborted transactions with records in [first, upper_bound)."""
        return self._segments.aborted(first, upper_bound)

    def end_offset_for_epoch(self, epoch: LeaderEpoch) -> EpochEnd:
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    async def offset_for_timestamp(self, timestamp: int) -> TimestampedOffset | None:
        """Return the first record whose timestamp is at least `timestamp`."""
        segments, start = self._segments.snapshot(), self.log_start_offset
        return await self._offload(lambda: segments.first_at(timestamp, start))

    async def offset_of_max_timestamp(self) -> TimestampedOffset | None:
        """Return the first record with the largest timestamp; None if no record has one."""
        segments, start = self._segments.snapshot(), self.log_start_offset
        return await self._offload(lambda: segments.latest(start))

    # Flush

    async def flush(self) -> Offset:
        """Flush everything appended before the call, and return the recovery point.  A call while a
        flush runs joins the next one."""
        end = self._flush_end
        while self.failure is None and (self.recovery_point < end or self._flusher.is_behind):
            await self._flusher.idle()
            if self.recovery_point < end or self._flusher.is_behind:
                await self._flush_round()
            end = min(end, self._flush_end)
        if self.failure is not None:
            raise self.failure
        return self.recovery_point

    @property
    def _flush_end(self) -> Offset:
        # During a truncation no offset counts as flushed: it may not exist any more afterwards.
        return 0 if isinstance(self._refusal, KafkaError) else self.log_end_offset

    async def _flush_round(self) -> None:
        end, truncations = self._flush_end, self.truncations
        active = self._segments.active
        segments = self._segments.starting_at(self.recovery_point)

        def synced() -> None:
            if truncations == self.truncations:
                # If it was sealed meanwhile, only the next round flushes its indexes.
                reached = end if active is self._segments.active else min(end, active.base_offset)
                self.recovery_point = max(self.recovery_point, reached)

        try:
            await self._flusher.run(self._offload, segments, self.epochs, synced)
        except OSError as error:
            raise self.failed(error) from error

    async def _offload(self, work: Callable[[], T], *, may_repeat: bool = True) -> T:
        try:
            return await self._disk.offload(work)
        except OSError as error:
            raise self.failed(error, may_repeat=may_repeat) from error

    def failed(self, error: OSError, *, may_repeat: bool = False) -> StorageError:
        if may_repeat and error.errno in NO_DESCRIPTOR:
            return storage_error(self.directory, error)
        failure = StorageError(f"{self.directory}: {error}")
        if self.failure is None:
            self.fail(failure)
            self._housekeeping.disk_failed(self, failure)
        return self.failure or failure

    def fail(self, failure: StorageError) -> None:
        """Refuse everything from now on, after the disk failed."""
        self._refusal = self.failure = failure

    def abandon(self) -> None:
        """Refuse everything from now on, after the log was deleted."""
        self.fail(StorageError(f"{self.directory}: the log was deleted"))

    async def close(self) -> None:
        """Flush everything, and write a snapshot of the producers; later appends are refused."""
        if self._refusal is not None:
            raise StorageError(str(self._refusal))
        self._refusal = StorageError(f"{self.directory}: the log is closed")
        await self._flusher.idle()
        try:
            self._segments.active.seal()
            self._write_snapshot(self.log_end_offset)
        except OSError as error:
            raise self.failed(error) from error
        await self._flush_round()

    # Deletion and truncation

    def delete_old_segments(self, now_ms: int) -> int:
        """Delete the segments that retention allows; return their number.  Raises StorageError."""
        if self._refusal is not None:
            raise self._refusal
        try:
            count = retention.expired(
                list(self._segments),
                self.config,
                log_start_offset=self.log_start_offset,
                log_end_offset=self.log_end_offset,
                high_watermark=self.high_watermark,
                now_ms=now_ms,
            )
            if count:
                if count == len(self._segments):
                    try:
                        self._roll(self.log_end_offset, now_ms)
                    except NoRoom:
                        count -= 1  # deleting makes room
                self.increment_log_start_offset(self._segments[count].base_offset)
                self._drop(list(self._segments)[:count])
        except OSError as error:
            raise self.failed(error) from error
        return count

    def _drop(self, segments: Sequence[LogSegment]) -> None:
        """Remove segments from the log: rename their files, and delete those after the delay."""
        renamed = self._segments.drop(segments)
        self._flusher.names_changed = True
        self._housekeeping.remove_later(self, renamed)

    def replace_segments(self, sources: Sequence[LogSegment]) -> None:
        """Replace these segments by the one that compaction made of them, and staged."""
        if self.failure is not None:
            raise self.failure
        try:
            renamed = self._segments.replace(sources, self.flushed_ms)
        except OSError as error:
            raise self.failed(error) from error
        self._flusher.names_changed = True
        self._housekeeping.remove_later(self, renamed)

    async def truncate_to(self, offset: Offset) -> None:
        """Remove the records of `offset` and above, and the batch that `offset` lies in.

        The log then ends after the last remaining batch.  The caller is a follower.  Appends are
        refused meanwhile, and, if the call is cancelled, until the log is opened again.  Raises
        NoRoom before anything has changed, StorageError.
        """
        if self._refusal is not None:
            raise self._refusal
        if offset >= self.log_end_offset:
            if self.epochs.truncate_from_end(self.log_end_offset):
                self._save_epochs_soon()
            return
        if offset < self._segments[0].base_offset:
            await self.truncate_fully_and_start_at(offset)
            return
        await self._begin_truncation()
        segments = self._segments.up_to(offset)
        segment = segments[-1]

        def prepare() -> tuple[Cut, ProducerStateManager]:
            cut = segment.cut_at(offset)
            expiration_ms = self.producers.expiration_ms
            if not self.producers.producers:  # appends, which add some, are refused
                return cut, ProducerStateManager(expiration_ms)
            disk, now_ms = self._disk, self.flushed_ms
            return cut, replay_producers(disk, self.directory, expiration_ms, segments, cut, now_ms)

        cut, producers = await self._offload(prepare, may_repeat=False)
        await self._lower_recovery_point(cut.end_offset)
        try:
            self._drop(list(self._segments)[len(segments) :])
            segment.truncate(cut, self.config)
            remove_snapshots_above(self._disk, self.directory, cut.end_offset)
        except OSError as error:
            raise self.failed(error) from error
        self.producers = producers
        self._end_at(cut.end_offset)
        await self._offload(lambda: self._shorten(segment, cut.position), may_repeat=False)
        self._refusal = self.failure  # another log may have found that the disk failed
        self._save_epochs_soon()

    async def truncate_fully_and_start_at(self, offset: Offset) -> None:
        """Remove all records; the log starts and ends at `offset`.  Raises like `truncate_to`."""
        if self._refusal is not None:
            raise self._refusal
        await self._begin_truncation()
        await self._lower_recovery_point(offset)
        try:
            self._drop(list(self._segments))
            remove_snapshots_above(self._disk, self.directory, -1)
            self._segments.start_at(offset, self.flushed_ms)
        except OSError as error:
            raise self.failed(error) from error
        self.producers.clear()
        self.log_start_offset = offset
        self._end_at(offset)
        self._refusal = self.failure  # another log may have found that the disk failed
        self._save_epochs_soon()

    def _shorten(self, segment: LogSegment, position: int) -> None:
        # Durable at once: else a crash could bring back the records after the cut.
        segment.file.truncate(position)
        segment.sync()
        self._disk.sync_directory(self.directory)

    async def _begin_truncation(self) -> None:
        text = f"{self.topic_partition} is being truncated"
        self._refusal = KafkaError(ErrorCode.not_leader_or_follower, text)
        self.truncations += 1
        await self._housekeeping.stop_cleaning(self)

    async def _lower_recovery_point(self, offset: Offset) -> None:
        """Lower it before the cut: a crash after that must not look like damage.  Raises NoRoom."""
        if offset < (before := self.recovery_point):
            self.recovery_point = offset
            try:
                await self._housekeeping.recovery_point_lowered(self)
            except NoRoom:
                self.recovery_point, self._refusal = before, self.failure
                self._save_epochs_soon()
                raise

    def _end_at(self, offset: Offset) -> None:
        self.truncations += 1
        self._segments.forget()
        self.log_end_offset = offset
        self.log_start_offset = min(self.log_start_offset, offset)
        self.recovery_point = min(self.recovery_point, offset)
        if self.cleaned_to is not None:
            self.cleaned_to = min(self.cleaned_to, offset)
        self.epochs.truncate_from_end(offset)
        self.update_high_watermark(self.high_watermark)

    def check(self) -> None:
        """Check the invariants, reading every header; for tests."""
        self._segments.check(self.log_end_offset)
        assert self._segments[0].base_offset <= self.log_start_offset <= self.last_stable_offset
        assert self.last_stable_offset <= self.high_watermark <= self.log_end_offset
        assert self.recovery_point <= self.log_end_offset
        self.producers.check_invariants()
        self.epochs.check_invariants()
