"""Divergence of a log from its leader's, and the offset to truncate it to.

Each record carries the epoch of the leader that wrote it, and a leader records where its epoch
begins.  So two logs agree up to the end of the last epoch that both have, in the log where it ends
first.  With each fetch the reader sends the epoch that its log ends in:

    the leader has that epoch, up to the fetch's offset or beyond    records are sent
    else      diverging: its last epoch not above that one, and where it ends
              the reader truncates its log (`truncation_offset`) and fetches again

Each round removes the reader's last epoch, or ends in agreement.  The high watermark is not used: a
follower's may be outdated, and records above it may be committed (KIP-101).

Pure: epochs and offsets only.  (Kafka: AbstractFetcherThread.getOffsetTruncationState, UnifiedLog;
KIP-101, KIP-279, KIP-595.)
"""

from __future__ import annotations

from typing import NamedTuple

from kserver.errors import ErrorCode, KafkaError
from kserver.log.leader_epochs import EpochEnd, LeaderEpochCache
from kserver.model import NO_EPOCH, LeaderEpoch, Offset
from kserver.wire.batch import HEADER, HEADER_SIZE


class DivergingEpoch(NamedTuple):
    """The leader's last epoch not above the reader's, and where it ends in the leader's log."""

    epoch: LeaderEpoch
    end_offset: Offset


def divergence(
    epoch_end: EpochEnd, last_fetched_epoch: LeaderEpoch, offset: Offset
) -> DivergingEpoch | None:
    """Return the divergence, on the leader, or None if the logs agree.

    `epoch_end` is the end in its log of the epoch that the reader's log ends in, at `offset`.
    Raises OFFSET_OUT_OF_RANGE if the leader does not know that epoch.
    """
    if epoch_end.epoch == NO_EPOCH or epoch_end.end_offset == -1:
        raise KafkaError(ErrorCode.offset_out_of_range)
    if epoch_end.epoch < last_fetched_epoch or epoch_end.end_offset < offset:
        return DivergingEpoch(epoch_end.epoch, epoch_end.end_offset)
    return None


def truncation_offset(
    epochs: LeaderEpochCache, log_end_offset: Offset, diverging: DivergingEpoch
) -> Offset:
    """Return where the follower's log, with these epochs, must end."""
    epoch, leader_end = diverging
    own = epochs.end_offset_for(epoch, log_end_offset)
    if own.epoch == epoch or own.epoch == NO_EPOCH:
        return min(own.end_offset if own.epoch == epoch else log_end_offset, leader_end)
    # The leader's epoch is not in this log, so nothing after the one before it is the leader's.
    # Whether that one is, the next fetch will show (KIP-279).
    return own.end_offset


def unaligned_start(
    log_start_offset: Offset, log_end_offset: Offset, records: bytes | memoryview
) -> Offset | None:
    """Return the base offset of the first batch if an empty log, between these offsets, starts
    within it; else None.  A leader's log starts within a batch after a DeleteRecords."""
    if log_start_offset != log_end_offset or len(records) < HEADER_SIZE:
        return None
    (base_offset, _, _, _, _, _, last_offset_delta, *_) = HEADER.unpack_from(records)
    is_within = 0 <= base_offset < log_end_offset <= base_offset + last_offset_delta
    return base_offset if is_within else None
