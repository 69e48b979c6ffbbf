"""Replay of a log's batches, to rebuild the state of its producers from a snapshot on."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kserver.errors import StorageError
from kserver.log.leftovers import snapshot_offsets
from kserver.log.producer_state import CompletedTransaction, ProducerStateManager
from kserver.log.segment import SNAPSHOT, Cut, Header, LogSegment, segment_path
from kserver.log.transaction_index import AbortedTransaction
from kserver.log.validator import ValidBatch
from kserver.model import Offset
from kserver.wire.batch import CONTROL, ControlType, RecordBatch, read_control_record

if TYPE_CHECKING:
    from kserver.world.disk import Disk

log = logging.getLogger(__name__)

_RECALLED_ENTRIES = 16
"""Index entries back from the log's end, each of index.interval.bytes or one larger batch, in which
the earlier batches of producers are looked for."""


def replay(
    producers: ProducerStateManager,
    segment: LogSegment,
    first: Offset,
    stateful_from: Offset,
    end: int | None = None,
) -> Iterator[Header]:
    """Yield the batches that end at offset `first` or later, up to position `end`; record those
    from `stateful_from` on in `producers`."""
    for position, header in segment.headers(segment.find(first).position, end):
        if header.last_offset >= stateful_from:
            note_producer(producers, segment, position, header)
        yield header


def note_producer(
    producers: ProducerStateManager, segment: LogSegment, position: int, header: Header
) -> CompletedTransaction | None:
    """Record a batch of the log in `producers`; return the transaction that it ended, if any."""
    if header.producer_id < 0:
        return None
    batch = _valid(position, header)
    if not header.attributes & CONTROL:
        producers.append(batch)
        return None
    return note_marker(producers, batch, segment.file.read_at(position, header.size))


def note_marker(
    producers: ProducerStateManager, batch: ValidBatch, data: bytes | memoryview
) -> CompletedTransaction | None:
    """Do the same for a control batch with the bytes `data`."""
    if not batch.record_count:
        # Its transaction was compacted away; the empty batch only keeps its producer's epoch.
        return None
    marker = read_control_record(RecordBatch(data).records()[0])
    if marker.type is ControlType.unknown:
        return None
    return producers.append_marker(
        batch,
        commit=marker.type is ControlType.commit,
        coordinator_epoch=marker.coordinator_epoch,
    )


def _valid(position: int, header: Header) -> ValidBatch:
    return ValidBatch(
        position,
        header.size,
        header.base_offset,
        header.last_offset,
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.record_count,
        header.attributes,
        header.leader_epoch,
    )


def recall_batches(
    producers: ProducerStateManager, segments: Sequence[LogSegment], end: int
) -> None:
    """Give `producers`, restored from a snapshot, their batches near the log's end: position `end`
    in the last of `segments`.

    A snapshot has each producer's last batch only.  A client that sends an earlier one again, whose
    response was lost with the connection, would be refused with OUT_OF_ORDER_SEQUENCE_NUMBER, start
    another epoch, and append it twice.  (Apache Kafka does not recall them.)
    """
    if not producers.has_room():
        return
    batches: list[ValidBatch] = []
    missing = _RECALLED_ENTRIES
    for segment in reversed(segments):
        limit = end if segment is segments[-1] else segment.size
        count = segment.offsets.count_before(limit)
        first = segment.offsets.entry(count - missing).position if count >= missing else 0
        try:
            batches[:0] = [
                _valid(position, header)
                for position, header in segment.headers(first, limit)
                if header.producer_id >= 0 and not header.attributes & CONTROL
            ]
        except StorageError as error:
            # Its index is wrong there; without these batches all is as Kafka's.
            log.warning("producers' earlier batches are not known: %s", error)
            break
        missing -= count
        if missing <= 0:
            break
    producers.recall(batches)


def aborted_transaction(done: CompletedTransaction) -> AbortedTransaction:
    return AbortedTransaction(
        done.producer_id, done.first_offset, done.last_offset, done.last_stable_offset
    )


def restore_producers(
    disk: Disk, directory: str, producers: ProducerStateManager, limit: Offset, now_ms: int
) -> Offset | None:
    """Load the newest valid snapshot that is not above `limit`; return its offset, or None.

    A torn one, which a crash can leave, is removed.
    """
    producers.clear()
    for offset in reversed(snapshot_offsets(disk, directory)):
        if offset <= limit:
            path = segment_path(directory, offset, SNAPSHOT)
            try:
                producers.restore(disk.read_file(path), path, now_ms)
            except StorageError as error:
                log.warning("%s", error)
                disk.remove(path)
            else:
                return offset
    return None


def replay_producers(
    disk: Disk,
    directory: str,
    expiration_ms: int,
    segments: Sequence[LogSegment],
    cut: Cut,
    now_ms: int,
) -> ProducerStateManager:
    """Return the state of the producers at the cut in the last of `segments`."""
    producers = ProducerStateManager(expiration_ms)
    start = restore_producers(disk, directory, producers, cut.end_offset, now_ms) or 0
    for segment in segments:
        if segment.end_offset > start:
            end = cut.position if segment is segments[-1] else segment.size
            for _ in replay(producers, segment, start, start, end):
                pass
    recall_batches(producers, segments, cut.position)
    return producers
