"""The segments of a log: finds the one that holds an offset, and the position in it.

A sequential reader continues with the offset after its last batch, and the high watermark is where
a follower stopped.  The positions of such offsets are remembered, so that most reads need neither
an index nor the file.  A remembered place is a segment and a position, valid until the log is
truncated or loses segments.

    read                         looks at
    tail, offset remembered      nothing                                           2 us
    catching up, remembered      one batch header, to know the first batch's size  4 us
    anywhere                     index, and the headers from its entry on         12-18 us

Kafka: LogSegments, LocalLog.read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from kserver.errors import NO_ROOM, ErrorCode, KafkaError, ProtocolError, no_room
from kserver.log.segment import (
    DELETED,
    LOG,
    SEGMENT_SUFFIXES,
    SNAPSHOT,
    SWAP,
    BatchPosition,
    LogSegment,
    segment_path,
)
from kserver.log.transaction_index import AbortedTransaction
from kserver.model import NO_TIMESTAMP, LeaderEpoch, Offset
from kserver.wire.batch import Record, RecordBatch
from kserver.wire.compression import Oversized
from kserver.world.disk import Disk, FileRange

if TYPE_CHECKING:
    from kserver.config.topic import TopicConfig

_KEPT_PLACES = 64
"""Number of offsets to remember: a few for each reader."""
_HEADER_BYTES = 61
_FILES_TO_ROLL = 16
"""Descriptors that must be free for a new segment: flushes, checkpoints and deletions need them,
and deletions free some."""
_UNFOLDED_BYTES = 16 << 20
"""Maximum bytes of one decompressed batch when searching its records; several threads may do so."""

Place: TypeAlias = tuple[LogSegment, int]


class Cold:
    """Result of a read that would have to wait for the disk."""


COLD: Final = Cold()


class Slice(NamedTuple):
    """Data of a fetch response: `size` bytes of whole batches, except that the last may be cut."""

    data: FileRange | None
    size: int
    upper_bound: Offset
    """Bound above every offset in the data."""


class TimestampedOffset(NamedTuple):
    timestamp: int
    offset: Offset
    leader_epoch: LeaderEpoch


class Segments:
    __slots__ = ("_bases", "_config", "_directory", "_disk", "_places", "_random", "_row", "active")

    def __init__(
        self,
        disk: Disk,
        directory: str,
        config: TopicConfig,
        random: Random,
        row: Sequence[LogSegment],
    ) -> None:
        """Take `row`, which has at least one segment; the last is active."""
        self._disk = disk
        self._directory = directory
        self._config = config
        self._random = random
        self._row = list(row)
        self._bases = [segment.base_offset for segment in row]
        self._places: OrderedDict[Offset, Place] = OrderedDict()
        self.active = self._row[-1]

    def __iter__(self) -> Iterator[LogSegment]:
        return iter(self._row)

    def __len__(self) -> int:
        return len(self._row)

    def __getitem__(self, number: int) -> LogSegment:
        return self._row[number]

    def snapshot(self) -> Segments:
        """Return a copy of the current row, for use in a thread."""
        return Segments(self._disk, self._directory, self._config, self._random, self._row)

    def configure(self, config: TopicConfig) -> None:
        self._config = config
        self.active.configure(config)

    def starting_at(self, offset: Offset) -> list[LogSegment]:
        """Return the segment that holds `offset` and all after it."""
        return self._row[max(bisect_right(self._bases, offset) - 1, 0) :]

    def up_to(self, offset: Offset) -> list[LogSegment]:
        """Return all segments up to the one that holds `offset`."""
        return self._row[: bisect_right(self._bases, offset)]

    def relocate(self, directory: str) -> None:
        self._directory = directory
        for segment in self._row:
            segment.relocate(directory)

    def roll(self, base: Offset, now_ms: int) -> LogSegment:
        """Start a segment at `base`, after the sealed one.

        Raises NoRoom on a full disk; the sealed segment is then active again, and the names in the
        directory may have changed.
        """
        sealed = self.active
        try:
            self._disk.require_files(_FILES_TO_ROLL)
            segment = self._begin(base, now_ms)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            self._remove_files(base)
            sealed.activate(self._config)
            raise no_room(segment_path(self._directory, base, LOG), error) from error
        sealed.end_offset = base
        return segment

    def _remove_files(self, base: Offset) -> None:
        for suffix in SEGMENT_SUFFIXES:
            path = segment_path(self._directory, base, suffix)
            if self._disk.exists(path):
                self._disk.remove(path)

    def start_at(self, base: Offset, now_ms: int) -> None:
        """Start the first segment after all were dropped."""
        assert not self._row
        self._begin(base, now_ms)

    def _begin(self, base: Offset, now_ms: int) -> LogSegment:
        jitter_ms = roll_jitter_ms(self._config, self._random)
        segment = LogSegment.create(
            self._disk, self._directory, base, self._config, now_ms, jitter_ms=jitter_ms
        )
        self._row.append(segment)
        self._bases.append(base)
        self.active = segment
        return segment

    def drop(self, segments: Collection[LogSegment]) -> list[str]:
        """Remove segments; return their renamed files, which readers may still use."""
        renamed = [path for segment in segments for path in self._retire(segment)]
        dropped = set(segments)
        self._set([segment for segment in self._row if segment not in dropped])
        return renamed

    def replace(self, sources: Sequence[LogSegment], now_ms: int) -> list[str]:
        """Replace neighbours by the segment compacted from them; return their renamed files."""
        first, last = sources[0], sources[-1]
        renamed = [path for segment in sources for path in self._retire(segment, first)]
        for suffix in SEGMENT_SUFFIXES:
            path = first.path(suffix)
            if self._disk.exists(path + SWAP):
                self._disk.rename(path + SWAP, path)
        new = LogSegment(self._disk, self._directory, first.base_offset, self._config, now_ms)
        new.load()
        new.end_offset = last.end_offset
        new.first_timestamp = first.first_timestamp
        at = self._row.index(first)
        self._set([*self._row[:at], new, *self._row[at + len(sources) :]])
        return renamed

    def _retire(self, segment: LogSegment, first: LogSegment | None = None) -> list[str]:
        """Rename a segment's files, except the snapshot of `first`, which the replacement needs
        too."""
        segment.keep()
        paths = segment.files()
        if segment is first:
            paths = [path for path in paths if not path.endswith(SNAPSHOT)]
        for path in paths:
            self._disk.rename(path, path + DELETED)
        return [path + DELETED for path in paths]

    def _set(self, row: list[LogSegment]) -> None:
        self._row = row
        self._bases = [segment.base_offset for segment in row]
        if row:
            self.active = row[-1]
        self.forget()

    def read(
        self, offset: Offset, max_bytes: int, up_to: Offset, at_least_one: bool
    ) -> Slice | Cold:
        """Read as `Log.read` does, for an offset below `up_to`, which is at most the log's end."""
        place = self._places.get(offset)
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
            self.remember(first.last_offset + 1, segment, position + first.size)
            if first.size <= max_bytes:
                size = max_bytes
            else:
                size = first.size if at_least_one else 0
            up_to = segment.upper_bound(position + size, up_to)
        elif up_to not in self._places:
            self.remember(up_to, segment, end)
        return Slice(FileRange(segment.file, position, size) if size else None, size, up_to)

    def warm(self, offsets: Sequence[Offset]) -> list[tuple[Offset, LogSegment, int]]:
        """Read from disk what `read` needs for these offsets; return the places for `remember`."""
        places = []
        for offset in offsets:
            segment, batch = self.find(offset)
            segment.file.read_at(batch.position, _HEADER_BYTES)
            places.append((offset, segment, batch.position))
        return places

    def find(self, offset: Offset) -> tuple[LogSegment, BatchPosition]:
        """Return the first batch that ends at `offset` or later.  May wait for the disk."""
        for segment in self.starting_at(offset):
            batch = segment.find(offset)
            if batch.size:
                break
        return segment, batch

    def _locate(self, offset: Offset) -> Place | None:
        """Return the result of `find`, or None if it would have to wait."""
        for segment in self.starting_at(offset):
            batch = segment.find_cached(offset)
            if batch is None:
                return None
            position = batch.position
            if batch.size:
                break
        self.remember(offset, segment, position)
        return segment, position

    def remember(self, offset: Offset, segment: LogSegment, position: int) -> None:
        """Remember where the first batch that ends at `offset` or later begins, or will begin."""
        places = self._places
        if len(places) >= _KEPT_PLACES:
            # A plain dict emptied from the front accumulates holes that iteration must skip: 60 us.
            places.popitem(last=False)
        places[offset] = (segment, position)

    def forget(self) -> None:
        self._places.clear()

    def aborted(self, first: Offset, upper_bound: Offset) -> list[AbortedTransaction]:
        """Return the aborted transactions with records in [first, upper_bound)."""
        transactions: list[AbortedTransaction] = []
        for segment in self.starting_at(first):
            some, is_all = segment.aborted.collect(first, upper_bound)
            transactions += some
            if is_all:
                break
        return transactions

    def first_at(self, timestamp: int, start: Offset) -> TimestampedOffset | None:
        """Return the first record from `start` on whose timestamp is at least `timestamp`.

        May wait for the disk.
        """
        for segment in self.starting_at(start):
            if segment.max_timestamp < timestamp or segment.end_offset <= start:
                continue
            position = segment.position_of_time(timestamp, start)
            for at, header in segment.headers(position):
                if header.max_timestamp < timestamp or header.last_offset < start:
                    continue
                batch = RecordBatch(segment.file.read_at(at, header.size))
                for record in _records(batch, start):
                    if record.timestamp >= timestamp:
                        epoch = batch.leader_epoch
                        return TimestampedOffset(record.timestamp, record.offset, epoch)
        return None

    def latest(self, start: Offset) -> TimestampedOffset | None:
        """Return the first record from `start` on with the largest timestamp, which may be -1.

        None if there is no record, or all are from before 1970.  May wait for the disk.
        """
        latest = NO_TIMESTAMP
        for segment in self.starting_at(start):
            if segment.base_offset >= start:
                latest = max(latest, segment.max_timestamp)
            elif segment.max_timestamp > latest:
                for at, header in segment.headers(segment.find(start).position):
                    if header.base_offset >= start:
                        latest = max(latest, header.max_timestamp)
                        continue
                    batch = RecordBatch(segment.file.read_at(at, header.size))
                    for record in _records(batch, start):
                        latest = max(latest, record.timestamp)
        return self.first_at(latest, start)

    def check(self, log_end_offset: Offset) -> None:
        """Check the invariants, reading every header; for tests."""
        assert self._row[-1] is self.active
        assert self._bases == sorted({segment.base_offset for segment in self._row})
        for number, segment in enumerate(self._row):
            segment.check()
            if segment is not self.active:
                assert segment.is_sealed
                assert segment.end_offset <= self._bases[number + 1]
        assert self.active.end_offset == log_end_offset
        for offset, (segment, position) in self._places.items():
            found_segment, batch = self.find(offset)
            is_there = (segment, position) == (found_segment, batch.position)
            assert is_there or (position == segment.size and batch.position == 0), offset


def roll_jitter_ms(config: TopicConfig, random: Random) -> int:
    """Return how much earlier than `segment.ms` a new segment is rolled, in ms."""
    limit = min(config.segment_jitter_ms, config.segment_ms)
    return random.randrange(limit) if limit > 0 else 0


def _records(batch: RecordBatch, start: Offset) -> Iterator[Record]:
    """Yield the records from `start` on of a batch whose content was not validated.

    If the batch decompresses to more than the limit, one record with the largest timestamp stands
    for all of them: the result cannot come before it.  Raises KafkaError if it cannot be read.
    """
    try:
        for part in batch.records_by_parts(batch.unfolded(_UNFOLDED_BYTES)):
            for record in part:
                if record.offset >= start:
                    yield record
    except Oversized:
        yield Record(max(batch.base_offset, start), batch.max_timestamp, None, None)
    except ProtocolError as error:
        text = f"the batch at offset {batch.base_offset} cannot be read: {error}"
        raise KafkaError(ErrorCode.corrupt_message, text) from error
