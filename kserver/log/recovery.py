"""Recovery of one partition's directory: finds the valid bytes.

    file                           what it is                    what happens to it
    B.log                          a segment                     opened, see below
    B.index, .timeindex, .txnindex its indexes                   loaded; removed without B.log
    O.snapshot                     producers before offset O     kept if O is a segment's base, or
                                                                 the last one at the log's end
    any other                      see log/leftovers
    leader-epoch-checkpoint        torn or missing               rebuilt from the batches' headers,
                                                                 written by the first flush

A crash tears data that was not synced; everything below the recovery point was.  So:

    state      when                                             goes to
    trusted    its end is at or below the recovery point,       loaded    indexes and tail fit
               or the shutdown was clean                        suspect   they do not, or an index
                                                                          is missing
                                                                missing   it ends before the next
                                                                          one begins
    suspect    otherwise: every batch is checked, the indexes   verified  every batch is valid
               and aborted transactions are rebuilt             cut       one at or above the
                                                                          recovery point is invalid
                                                                corrupt   one below it is invalid
    cut        its file ends at the first invalid batch;        (the last segment)
               later segments are removed
    corrupt    DamagedLog names file, position and remedy       (the partition is refused)
    missing    the same with offsets: compaction cannot have    (the partition is refused)
               left this gap; so is a log that ends below
               its recovery point, that has no segment though
               its recovery point is above 0, or that begins
               above the start that a clean stop checkpointed

A batch is valid if it is whole, of format version 2, with a right CRC, if its offsets follow those
before it and fit the segment, and if its leader epoch is not below theirs: an overwritten file may
contain old batches again.

The producers' state is the newest snapshot that is not above the first suspect segment, and then
every batch after it.  The result satisfies `Log.check`.  Kafka: LogLoader, LogSegment.recover,
UnifiedLog.rebuildProducerState.

All of it waits for the disk: it runs in a thread, on files that no one else has open.  After a run
that is interrupted, or ends with StorageError, the next one can start as well.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from kserver.errors import StorageError
from kserver.log import checkpoint
from kserver.log.leader_epochs import EpochStart, LeaderEpochCache
from kserver.log.leftovers import remove_segment, retired_files, snapshot_offsets, tidy
from kserver.log.producer_state import ProducerStateManager
from kserver.log.replay import (
    aborted_transaction,
    note_producer,
    recall_batches,
    replay,
    restore_producers,
)
from kserver.log.segment import (
    MAX_RELATIVE_OFFSET,
    SNAPSHOT,
    Header,
    LogSegment,
    segment_path,
)
from kserver.log.segments import roll_jitter_ms
from kserver.model import NO_EPOCH, LeaderEpoch, Offset
from kserver.wire.batch import (
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
)
from kserver.wire.checksum import crc32c

if TYPE_CHECKING:
    from kserver.config.topic import TopicConfig
    from kserver.world.disk import Disk, File

log = logging.getLogger(__name__)

CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
_CHUNK_BYTES = 1 << 20
_NO_LIMIT: Offset = (1 << 63) - 1


class DamagedLog(StorageError):
    """Data that had reached the disk is missing: no crash explains it, no broker can repair it."""


@dataclass(slots=True)
class Recovered:
    """State that a log starts from; the last segment is active."""

    topic_id: UUID | None
    segments: list[LogSegment]
    log_start_offset: Offset
    log_end_offset: Offset
    recovery_point: Offset
    producers: ProducerStateManager
    epochs: LeaderEpochCache
    epochs_changed: bool
    """Whether the first flush must write the epochs, since their file differs.

    A crash before it is harmless, as the next run finds the same; syncing here would take two syncs
    for each of thousands of logs, and delay the start.
    """
    unsynced: list[File]
    """Small files that the first flush must sync."""
    cleaned_to: Offset | None
    """The stored offset; or the log's start, if a gap was attributed to compaction because nothing
    was known of the log, or nothing can be lost.  The next start must do the same."""


class StoredOffsets(NamedTuple):
    """Checkpointed offsets of a log, and how the broker was shut down."""

    clean: bool = False
    recovery_point: Offset | None = None
    """None if no checkpoint lists the log."""
    log_start_offset: Offset | None = None
    """None if it is the first segment's base.  Kafka's checkpoint has only other starts."""
    high_watermark: Offset = 0
    cleaned_to: Offset | None = None
    """None if it was never compacted."""
    is_same_boot: bool = False
    """Whether the machine has stayed up: then everything written is there, synced or not."""


NOTHING_STORED = StoredOffsets()


def accept_loss_command(name: str) -> str:
    """Return the command that lets the next start use what is left of this log (log/missing)."""
    topic, _, partition = name.rpartition("-")
    return f"k storage accept-loss --topic {topic} --partition {partition}"


class Recovery:
    """One run over one directory; `run` returns the result."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        config: TopicConfig,
        stored: StoredOffsets,
        now_ms: int,
        producers: ProducerStateManager,
        random: Random,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._config = config
        self._clean = stored.clean
        self._recovery_point = stored.recovery_point or 0
        self._synced_below = _NO_LIMIT if stored.clean else self._recovery_point
        """A crash cannot have torn data below this offset."""
        self._may_have_gaps = (
            stored.recovery_point is None
            or stored.cleaned_to is not None
            or "compact" in config.cleanup_policy
        )
        self._gaps_below = stored.recovery_point
        self._is_same_boot = stored.is_same_boot
        self._cleaned_to = stored.cleaned_to
        self._stored_start = stored.log_start_offset
        self._log_start_offset = stored.log_start_offset or 0
        self._now_ms = now_ms
        self._random = random
        self._producers = producers
        self._epochs = LeaderEpochCache()
        self._segments: list[LogSegment] = []
        self._unsynced: list[File] = []
        self._suspect: set[Offset] = set()
        """Base offsets of the suspect segments."""
        self._verified_epoch: LeaderEpoch = NO_EPOCH
        """Leader epoch of the last batch that was verified."""

    def run(self) -> Recovered:
        # First remove or rename what a crash left: that decides which segments there are.
        bases = tidy(self._disk, self._directory)
        retired = [] if bases else retired_files(self._disk, self._directory)
        self._check_start(bases, is_retired=bool(retired))
        self._open_segments(self._not_deleted(bases))
        topic_id = self._read_topic_id()
        stored_epochs = self._read_epochs()
        self._epochs = LeaderEpochCache(stored_epochs or ())
        log_end_offset = self._replay(stored_epochs is None)
        if self._clean and log_end_offset < self._recovery_point:
            last = self._segments[-1].file.path if self._segments else self._directory
            raise self._missing(last, log_end_offset, self._recovery_point)
        if log_end_offset < self._log_start_offset:
            log.warning(
                "%s: log ends at %d, below its start offset %d; restarting it empty at that offset",
                self._directory,
                log_end_offset,
                self._log_start_offset,
            )
            self._start_anew()
        if not self._segments:
            log_end_offset = self._log_start_offset
            self._segments.append(
                LogSegment.create(
                    self._disk,
                    self._directory,
                    log_end_offset,
                    self._config,
                    self._now_ms,
                    roll_jitter_ms(self._config, self._random),
                )
            )
            if retired:
                # Until the new segment is durable, they prove that nothing is missing.
                self._disk.sync_directory(self._directory)
                for path in retired:
                    self._disk.remove(path)
        first = self._segments[0].base_offset
        self._log_start_offset = max(self._log_start_offset, first)
        active = self._segments[-1]
        if active.is_sealed:
            active.activate(self._config)
        active.end_offset = log_end_offset
        recall_batches(self._producers, self._segments, active.size)
        self._epochs.truncate_from_end(log_end_offset)
        self._epochs.truncate_from_start(self._log_start_offset)
        self._remove_stray_snapshots(log_end_offset)
        return Recovered(
            topic_id,
            self._segments,
            self._log_start_offset,
            log_end_offset,
            log_end_offset if self._clean else min(self._recovery_point, log_end_offset),
            self._producers,
            self._epochs,
            list(self._epochs.entries) != (stored_epochs or []),
            self._unsynced,
            self._cleaned_to,
        )

    def _check_start(self, bases: Sequence[Offset], *, is_retired: bool) -> None:
        """Raise DamagedLog if the first segments are missing."""
        if not bases:
            end = self._recovery_point
            # A crash may come between renaming all segments and the first flush of the new one.
            if end > self._log_start_offset and (self._clean or not is_retired):
                raise self._begins_late(self._log_start_offset, end, "no segment is left")
            return
        start = self._stored_start
        if start is None or bases[0] <= start:
            return
        if self._clean:
            raise self._begins_late(start, bases[0], f"its first segment begins at {bases[0]}")
        log.warning(
            "%s: first segment starts at offset %d, %s has %d; the crash came after old segments"
            " were deleted",
            self._directory,
            bases[0],
            checkpoint.LOG_STARTS,
            start,
        )

    def _begins_late(self, start: Offset, end: Offset, fault: str) -> DamagedLog:
        point = "a clean shutdown" if self._clean else f"the recovery point {self._recovery_point}"
        command = accept_loss_command(self._directory.rpartition("/")[2])
        return DamagedLog(
            f"{self._directory} lacks the records of offsets {start} to {end - 1}, which were on"
            f" disk at {point}: {fault}. {self._remedy('the files')} Only if every copy is lost:"
            f" stop this broker and run {command}"
        )

    def _not_deleted(self, bases: list[Offset]) -> list[Offset]:
        """Remove segments below the log's start: a crash can bring back deleted ones."""
        while len(bases) > 1 and bases[1] <= self._log_start_offset:
            remove_segment(self._disk, self._directory, bases.pop(0))
        return bases

    def _open_segments(self, bases: Sequence[Offset]) -> None:
        ends = [*bases[1:], _NO_LIMIT]
        for number, base in enumerate(bases):
            segment = LogSegment(
                self._disk,
                self._directory,
                base,
                self._config,
                self._now_ms,
                jitter_ms=roll_jitter_ms(self._config, self._random),
            )
            self._segments.append(segment)
            is_last = number + 1 == len(bases)
            if ends[number] > self._synced_below:
                self._suspect.add(base)
                continue
            segment.end_offset = ends[number]
            try:
                segment.load()
            except (FileNotFoundError, StorageError) as error:
                log.warning("%s: rebuilding indexes: %s", segment.file.path, error)
                self._suspect.add(base)
            else:
                self._check_tail(segment, is_last=is_last)

    def _check_tail(self, segment: LogSegment, *, is_last: bool) -> None:
        """Check that the file ends with whole batches, and where the next segment begins."""
        next_offset = segment.base_offset
        try:
            for _, header in segment.headers(segment.offsets.last().position):
                next_offset = header.last_offset + 1
            if next_offset > segment.end_offset:
                raise segment.broken(segment.size)
            # Retention relies on it.
            segment.check_largest_timestamp()
        except StorageError as error:
            # Verification will show whether the file is wrong, or the index that led there.
            log.warning("%s: verifying every batch: %s", segment.file.path, error)
            self._suspect.add(segment.base_offset)
            return
        if is_last:
            segment.end_offset = next_offset
            for _, header in segment.headers():
                segment.first_timestamp = header.max_timestamp
                break
        elif next_offset < segment.end_offset and not self._may_have_gaps:
            raise self._missing(segment.file.path, next_offset, segment.end_offset)

    def _read_topic_id(self) -> UUID | None:
        path = f"{self._directory}/{checkpoint.PARTITION_METADATA}"
        try:
            topic_id = checkpoint.read_topic_id(self._disk, path)
        except StorageError as error:
            if self._clean:
                raise DamagedLog(str(error)) from error
            # A crash tore it before its first sync, so no record was synced either.
            self._disk.remove(path)
            return None
        if topic_id is not None:
            self._unsynced.append(self._disk.open(path))
        return topic_id

    def _read_epochs(self) -> list[EpochStart] | None:
        """Return the checkpointed epochs; None if the file is torn or missing."""
        path = self._epochs_path()
        if not self._disk.exists(path):
            return None if self._segments else []
        data = self._disk.read_file(path)
        try:
            if not data.endswith(b"\n"):
                raise StorageError(f"{path} ends within a line")
            return checkpoint.decode_epochs(data, path)
        except StorageError as error:
            log.warning("%s; rebuilding the leader epochs from the batches", error)
            return None

    def _replay(self, needs_epochs: bool) -> Offset:
        """Rebuild producers and epochs, verify suspect segments, and return the log's end."""
        if not self._segments:
            return self._log_start_offset
        first = end = self._segments[0].base_offset
        suspects = [s.base_offset for s in self._segments if s.base_offset in self._suspect]
        limit = suspects[0] if suspects else self._segments[-1].end_offset
        self._log_rebuilds()
        stateful_from = (
            restore_producers(self._disk, self._directory, self._producers, limit, self._now_ms)
            or first
        )
        walk_from = first if needs_epochs else stateful_from
        for number, segment in enumerate(self._segments):
            if segment.base_offset not in self._suspect:
                if number and segment.base_offset > end and not self._may_have_gaps:
                    before = self._segments[number - 1].file.path
                    raise self._missing(before, end, segment.base_offset)
                if segment.end_offset > walk_from:
                    for header in replay(self._producers, segment, walk_from, stateful_from):
                        self._note_epoch(header)
            elif number and not self._follows(segment, end):
                self._remove(self._segments[number:])
                return end
            elif not self._verify(segment, end, stateful_from):
                self._remove(self._segments[number + 1 :])
                return segment.end_offset
            end = segment.end_offset
        return end

    def _log_rebuilds(self) -> None:
        """Log once which indexes are rebuilt: an empty segment has none."""
        suspects = [s for s in self._segments if s.base_offset in self._suspect and s.size]
        if suspects:
            log.info(
                "%s: rebuilding the indexes of %d segment(s), starting at offset %d",
                self._directory,
                len(suspects),
                suspects[0].base_offset,
            )

    def _follows(self, segment: LogSegment, end: Offset) -> bool:
        """Return whether a suspect segment continues the log, which ends at `end`.

        The file before it may have lost its last batches, even whole ones.  Below the recovery
        point a gap may also be compaction's, and is taken for that if nothing is known of the log.
        Above it too, if the machine has stayed up, since then nothing is lost: a follower has the
        gaps of its leader, and rolls segments after them.
        """
        if segment.base_offset == end:
            return True
        if segment.base_offset > end and self._may_have_gaps:
            limit = self._gaps_below
            if self._is_same_boot or limit is None:
                if self._cleaned_to is None:
                    self._cleaned_to = self._segments[0].base_offset
                return True
            if segment.base_offset <= limit:
                return True
        if end < self._recovery_point:
            raise self._damage(segment, 0, end)
        log.warning(
            "%s: removing this segment: it does not continue the log, which ends at offset %d",
            segment.file.path,
            end,
        )
        return False

    def _verify(self, segment: LogSegment, next_offset: Offset, stateful_from: Offset) -> bool:
        """Check every batch and rebuild the indexes; False if the segment was cut."""
        segment.rebuild(self._config)
        if segment.base_offset >= stateful_from:
            self._write_snapshot(segment.base_offset)
        end = 0
        expected = first = max(next_offset, segment.base_offset)
        no_gaps_below = 0 if self._may_have_gaps or self._clean else self._recovery_point
        for position, header in valid_batches(segment, first, self._verified_epoch):
            if expected < min(header.base_offset, no_gaps_below):
                # The CRC does not cover a batch's offset, and a wrong one would hide later batches.
                break
            expected = header.last_offset + 1
            if header.leader_epoch != self._verified_epoch:
                self._note_epoch(header)
                self._verified_epoch = header.leader_epoch
            if header.producer_id >= 0 and header.last_offset >= stateful_from:
                done = note_producer(self._producers, segment, position, header)
                if done is not None and done.is_aborted:
                    segment.aborted.append(aborted_transaction(done))
            if not position:
                segment.first_timestamp = header.max_timestamp
            size = header.size
            segment.note(position, size, header.last_offset, header.max_timestamp)
            end = position + size
        is_whole = end == segment.size
        is_last = segment is self._segments[-1]
        # A last file that ends with a whole batch may still lack records that were on disk once.
        if segment.end_offset < (
            (self._recovery_point if is_last and not self._clean else 0)
            if is_whole
            else self._synced_below
        ):
            # The next start must not trust them.
            segment.remove_indexes()
            raise self._damage(segment, end, segment.end_offset)
        if not is_whole:
            log.warning(
                "%s: truncated from %d to %d bytes; a crash left the batch at offset %d incomplete",
                segment.file.path,
                segment.size,
                end,
                segment.end_offset,
            )
            segment.size = end
        if is_last or not is_whole:
            # It stays active: sealing takes space, which a full disk does not have.
            segment.trim()
        else:
            segment.seal()
        if segment.end_offset <= self._synced_below and not is_last:
            segment.sync()
        return is_whole

    def _damage(self, segment: LogSegment, position: int, offset: Offset) -> DamagedLog:
        return self._refused(
            f"{segment.file.path} is damaged at position {position}: no valid batch with offset"
            f" {offset} or above follows",
            "the file",
            offset,
        )

    def _missing(self, path: str, offset: Offset, next_offset: Offset) -> DamagedLog:
        """Return the error for a missing segment, or the missing end of the one at `path`."""
        return self._refused(
            f"{path}: the records of offsets {offset} to {next_offset - 1} are missing after it",
            "the files",
            offset,
        )

    def _refused(self, fault: str, files: str, offset: Offset) -> DamagedLog:
        point = "a clean shutdown" if self._clean else f"the recovery point {self._recovery_point}"
        return DamagedLog(
            f"{fault}. These records were on disk at {point}, so a crash cannot be the cause."
            f" {self._remedy(files)} Only if every copy is lost: stop this broker, set this"
            f" partition's offset in {checkpoint.RECOVERY_POINTS} to {offset} and remove"
            f" {CLEAN_SHUTDOWN}; this keeps the records before offset {offset} and loses the rest"
        )

    def _remedy(self, files: str) -> str:
        return (
            f"Restore {files} from a backup, then restart this broker. If another in-sync replica"
            f" has these records, stop this broker, move {self._directory} out of its log"
            " directory, and restart: the records are then replicated."
        )

    def _note_epoch(self, header: Header) -> None:
        if header.leader_epoch > self._epochs.latest_epoch:
            self._epochs.assign(header.leader_epoch, header.base_offset)

    def _epochs_path(self) -> str:
        return f"{self._directory}/{checkpoint.LEADER_EPOCHS}"

    def _write_snapshot(self, offset: Offset) -> None:
        """Write a snapshot, unless it exists or the log starts here."""
        path = segment_path(self._directory, offset, SNAPSHOT)
        if self._disk.exists(path):
            self._unsynced.append(self._disk.open(path))
        elif offset > self._segments[0].base_offset:
            file = self._disk.open(path, create=True)
            file.write_at(0, self._producers.snapshot())
            self._unsynced.append(file)

    def _remove(self, segments: list[LogSegment]) -> None:
        for segment in segments:
            log.warning(
                "%s: removing this segment (%d bytes): the log ends before it",
                segment.file.path,
                segment.size,
            )
            remove_segment(self._disk, self._directory, segment.base_offset)
        removed = {segment.base_offset for segment in segments}
        self._segments = [s for s in self._segments if s.base_offset not in removed]

    def _start_anew(self) -> None:
        self._remove(self._segments)
        self._epochs.clear()
        self._producers.clear()

    def _remove_stray_snapshots(self, log_end_offset: Offset) -> None:
        bases = {segment.base_offset for segment in self._segments}
        offsets = snapshot_offsets(self._disk, self._directory)
        for offset in offsets:
            is_last = offset == offsets[-1] and max(bases) < offset <= log_end_offset
            if offset not in bases and not is_last:
                self._disk.remove(segment_path(self._directory, offset, SNAPSHOT))


def valid_batches(
    segment: LogSegment, next_offset: Offset, epoch: LeaderEpoch
) -> Iterator[tuple[int, Header]]:
    """Yield position and header of each batch up to the first invalid one.

    Each must start at `next_offset` or later, in leader epoch `epoch` or later.
    """
    file, size = segment.file, segment.size
    position = 0
    chunk = memoryview(b"")
    start = 0
    while size - position >= HEADER_SIZE:
        at = position - start
        if len(chunk) - at < HEADER_SIZE:
            chunk, start, at = memoryview(file.read_at(position, _CHUNK_BYTES)), position, 0
            if len(chunk) < HEADER_SIZE:
                return
        fields = HEADER.unpack_from(chunk, at)
        base_offset, length, batch_epoch, magic, crc, _, delta = fields[:7]
        last_offset = base_offset + delta
        end = position + length + LOG_OVERHEAD
        if (
            magic != MAGIC
            or end - position < HEADER_SIZE
            or end > size
            or base_offset < next_offset
            or delta < 0
            or last_offset - segment.base_offset > MAX_RELATIVE_OFFSET
            or batch_epoch < epoch
        ):
            return
        if end - start > len(chunk):
            needed = max(_CHUNK_BYTES, end - position)
            chunk, start, at = memoryview(file.read_at(position, needed)), position, 0
        if crc32c(chunk[at + CRC_START : end - start]) != crc:
            return
        yield position, Header._make(fields)
        epoch = batch_epoch
        next_offset = last_offset + 1
        position = end
