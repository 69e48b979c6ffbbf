"""Files that a crash or a delayed removal leaves in a log's directory, and the names of valid ones.

    *.swap       compaction had completed       replaces the segments whose records it holds
    *.cleaned    compaction had not completed   removed
    *.deleted    waiting for removal            removed; by the caller if no segment is left
    *.tmp        the next version of a file     removed
    B.index, B.timeindex, B.txnindex without B.log    removed

The segments of one compaction are renamed from .cleaned to .swap last to first.  A remaining
.cleaned file therefore means that the .swap files after it are incomplete; they are removed too.

All of it waits for the disk.  Kafka: LogLoader, LogFileUtils.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kserver.log.segment import (
    CLEANED,
    DELETED,
    LOG,
    OFFSET_INDEX,
    SEGMENT_SUFFIXES,
    SNAPSHOT,
    SWAP,
    TIME_INDEX,
    TRANSACTION_INDEX,
    Header,
    segment_path,
)
from kserver.model import Offset
from kserver.wire.batch import HEADER, HEADER_SIZE

if TYPE_CHECKING:
    from kserver.world.disk import Disk

INDEXES = (OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX)
TEMPORARY = ".tmp"
_NO_LIMIT: Offset = (1 << 63) - 1


def snapshot_offsets(disk: Disk, directory: str) -> list[Offset]:
    names = disk.list(directory)
    offsets = (base_offset(name, SNAPSHOT) for name in names)
    return sorted(offset for offset in offsets if offset is not None)


def remove_snapshots_above(disk: Disk, directory: str, offset: Offset) -> None:
    for snapshot_offset in snapshot_offsets(disk, directory):
        if snapshot_offset > offset:
            disk.remove(segment_path(directory, snapshot_offset, SNAPSHOT))


def base_offset(name: str, suffix: str) -> Offset | None:
    """Return the offset in a file name: 4711 of `00000000000000004711.log`; None for any other
    name."""
    digits = name.removesuffix(suffix)
    return int(digits) if digits != name and len(digits) == 20 and digits.isdigit() else None


def tidy(disk: Disk, directory: str) -> list[Offset]:
    """Remove and rename what a crash left; return the base offsets of the segments, ascending."""
    names = disk.list(directory)
    cleaned = [_offset_of(name) for name in names if name.endswith(CLEANED)]
    incomplete_from = min(cleaned, default=_NO_LIMIT)
    swaps = []
    for name in names:
        is_lost_swap = name.endswith(SWAP) and _offset_of(name) >= incomplete_from
        if name.endswith((CLEANED, TEMPORARY)) or is_lost_swap:
            disk.remove(f"{directory}/{name}")
        elif name.endswith(SWAP):
            swaps.append(name)
    if swaps:
        _finish_swap(disk, directory, swaps)
        names = disk.list(directory)
    bases = [base for name in names if (base := base_offset(name, LOG)) is not None]
    log_bases = set(bases)
    if bases:
        for path in retired_files(disk, directory):
            disk.remove(path)
    for name in names:
        if not name.endswith(INDEXES):
            continue
        for suffix in INDEXES:
            base = base_offset(name, suffix)
            if base is not None and base not in log_bases:
                disk.remove(f"{directory}/{name}")
    return bases


def retired_files(disk: Disk, directory: str) -> list[str]:
    """Return the files that wait for removal."""
    return [f"{directory}/{name}" for name in disk.list(directory) if name.endswith(DELETED)]


def remove_segment(disk: Disk, directory: str, base: Offset) -> None:
    """Remove a segment's files, and the producer snapshot at its base offset."""
    for suffix in (*SEGMENT_SUFFIXES, SNAPSHOT):
        path = segment_path(directory, base, suffix)
        if disk.exists(path):
            disk.remove(path)


def stage_swap(disk: Disk, directory: str, base: Offset) -> None:
    """Mark a compacted segment as complete: after a crash, the next start swaps it in."""
    for suffix in SEGMENT_SUFFIXES:
        path = segment_path(directory, base, suffix)
        if disk.exists(path + CLEANED):
            disk.rename(path + CLEANED, path + SWAP)
    disk.sync_directory(directory)


def _finish_swap(disk: Disk, directory: str, swaps: Sequence[str]) -> None:
    """Replace the segments whose records the compacted ones hold."""
    first, end = _NO_LIMIT, 0
    for name in swaps:
        base = base_offset(name, LOG + SWAP)
        if base is not None:
            first = min(first, base)
            end = max(end, base, _end_offset(disk, f"{directory}/{name}"))
    for name in disk.list(directory):
        for suffix in SEGMENT_SUFFIXES:
            base = base_offset(name, suffix)
            if base is not None and first <= base < end:
                disk.remove(f"{directory}/{name}")
    for name in swaps:
        disk.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP)}")


def _end_offset(disk: Disk, path: str) -> Offset:
    """Return the offset after the last batch of a segment file that has no index yet."""
    file = disk.open(path)
    position, size, end = 0, file.size(), 0
    while size - position >= HEADER_SIZE:
        header = Header._make(HEADER.unpack(file.read_at(position, HEADER_SIZE)))
        end = header.last_offset + 1
        position += max(header.size, HEADER_SIZE)
    return end


def _offset_of(name: str) -> Offset:
    digits = name[:20]
    return int(digits) if digits.isdigit() else _NO_LIMIT
