"""Start offset of each leader epoch in one partition's log.

Pure: values only; the log reads and replaces `leader-epoch-checkpoint` (log/checkpoint).

A follower that comes back asks the leader for the end offset of an epoch, and truncates to it
(KIP-101, KIP-279); a consumer does the same to see whether its offset was lost (KIP-320).  Kafka:
LeaderEpochFileCache.

Invariant: epochs and start offsets both rise strictly from entry to entry.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from kserver.model import NO_EPOCH, LeaderEpoch, Offset


class EpochStart(NamedTuple):
    """The first offset that was written in a leader epoch."""

    epoch: LeaderEpoch
    start_offset: Offset


class EpochEnd(NamedTuple):
    """The largest epoch not above the requested one, and its end offset (exclusive)."""

    epoch: LeaderEpoch
    end_offset: Offset


UNDEFINED = EpochEnd(NO_EPOCH, -1)


class LeaderEpochCache:
    __slots__ = ("_entries", "latest_epoch")

    def __init__(self, entries: Iterable[EpochStart] = ()) -> None:
        self._entries: list[EpochStart] = []
        self.latest_epoch: LeaderEpoch = NO_EPOCH
        """Latest epoch, or NO_EPOCH in an empty log; appends compare it and assign only on a
        change."""
        for epoch, start_offset in entries:
            self.assign(epoch, start_offset)

    @property
    def entries(self) -> tuple[EpochStart, ...]:
        return tuple(self._entries)

    @property
    def latest(self) -> EpochStart | None:
        return self._entries[-1] if self._entries else None

    def assign(self, epoch: LeaderEpoch, start_offset: Offset) -> bool:
        """Record that `epoch` begins at `start_offset`; True if that changed anything.

        Entries that contradict the new one (a later epoch, or a start at or after this one) are
        removed: the log was truncated below them, or nothing was ever written in them.
        """
        assert min(epoch, start_offset) >= 0, (epoch, start_offset)
        entries = self._entries
        if entries and entries[-1].epoch == epoch and entries[-1].start_offset <= start_offset:
            return False
        while entries and (entries[-1].epoch >= epoch or entries[-1].start_offset >= start_offset):
            entries.pop()
        entries.append(EpochStart(epoch, start_offset))
        self.latest_epoch = epoch
        return True

    def end_offset_for(self, epoch: LeaderEpoch, log_end_offset: Offset) -> EpochEnd:
        """Return where `epoch` ends in this log; UNDEFINED (-1, -1) if this log cannot know.

        The latest epoch ends at the log's end.  An epoch older than all known ones ends where the
        first known one starts, since its records were deleted.  An epoch newer than all is unknown.
        """
        if epoch == NO_EPOCH:
            return UNDEFINED
        if epoch == self.latest_epoch:
            return EpochEnd(epoch, log_end_offset)
        next_index = bisect_right(self._entries, epoch, key=_epoch_of)
        if next_index == len(self._entries):
            return UNDEFINED
        end_offset = self._entries[next_index].start_offset
        if next_index == 0:
            return EpochEnd(epoch, end_offset)
        return EpochEnd(self._entries[next_index - 1].epoch, end_offset)

    def epoch_of(self, offset: Offset) -> LeaderEpoch:
        """Return the epoch in which `offset` was written; NO_EPOCH if it is older than all known
        ones."""
        index = bisect_right(self._entries, offset, key=_start_of)
        return self._entries[index - 1].epoch if index else NO_EPOCH

    def truncate_from_end(self, end_offset: Offset) -> bool:
        """Remove the epochs that start at or after `end_offset`; True if there were any."""
        entries = self._entries
        before = len(entries)
        while entries and entries[-1].start_offset >= end_offset:
            entries.pop()
        self.latest_epoch = entries[-1].epoch if entries else NO_EPOCH
        return len(entries) != before

    def truncate_from_start(self, start_offset: Offset) -> bool:
        """Remove the epochs that end at or before `start_offset`, the log's new start.

        The epoch that contains `start_offset` then starts there.  True if anything changed.
        """
        index = bisect_right(self._entries, start_offset, key=_start_of)
        if index == 0 or (index == 1 and self._entries[0].start_offset == start_offset):
            return False
        self._entries[:index] = [EpochStart(self._entries[index - 1].epoch, start_offset)]
        return True

    def clear(self) -> None:
        self._entries.clear()
        self.latest_epoch = NO_EPOCH

    def check_invariants(self) -> None:
        pairs = list(pairwise(self._entries))
        assert all(a.epoch < b.epoch and a.start_offset < b.start_offset for a, b in pairs), pairs
        assert self.latest_epoch == (self._entries[-1].epoch if self._entries else NO_EPOCH)


def _epoch_of(entry: EpochStart) -> LeaderEpoch:
    return entry.epoch


def _start_of(entry: EpochStart) -> Offset:
    return entry.start_offset
