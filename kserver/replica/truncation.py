"""Where a log leaves its leader's, and what is cut off it.

Each record carries the epoch of the leader that wrote it, and a leader notes where its epoch
begins.  So two logs agree up to where the last epoch that both have ends in the one that ends
sooner.  With each fetch the reader tells the epoch that its log ends in:

    the leader has that epoch, up to the fetch's offset or beyond    records are sent
    else      diverging: its last epoch not above that one, and where it ends
              the reader cuts its log there (`truncation_offset`) and fetches again

Each round takes the reader's last epoch away, or ends in agreement.  The high watermark has no say
in this: a follower may know an old one, and what is above that may be committed (KIP-101).

Pure: epochs and offsets only.  (Kafka: AbstractFetcherThread.getOffsetTruncationState, UnifiedLog;
KIP-101, KIP-279, KIP-595.)
"""

from __future__ import annotations

from typing import NamedTuple

from kserver.errors import ErrorCode, KafkaError
from kserver.log.leader_epochs import EpochEnd, LeaderEpochCache
from kserver.model import NO_EPOCH, LeaderEpoch, Offset


class Diverging(NamedTuple):
    """The leader's last epoch not above the reader's, and where it ends in the leader's log."""

    epoch: LeaderEpoch
    end_offset: Offset


def divergence(
    found: EpochEnd, last_fetched_epoch: LeaderEpoch, offset: Offset
) -> Diverging | None:
    """The leader's part: `found` is what its log has of the epoch that the reader's log ends in, at
    `offset`.  None where they agree; OFFSET_OUT_OF_RANGE where the leader cannot tell."""
    if found.epoch == NO_EPOCH or found.end_offset == -1:
        raise KafkaError(ErrorCode.offset_out_of_range)
    if found.epoch < last_fetched_epoch or found.end_offset < offset:
        return Diverging(found.epoch, found.end_offset)
    return None


def truncation_offset(
    epochs: LeaderEpochCache, log_end_offset: Offset, diverging: Diverging
) -> Offset:
    """The follower's part: where its log, with these epochs, is to end."""
    epoch, leader_end = diverging
    own = epochs.end_offset_for(epoch, log_end_offset)
    if own.epoch == epoch or own.epoch == NO_EPOCH:
        return min(own.end_offset if own.epoch == epoch else log_end_offset, leader_end)
    # The leader's epoch is not in this log: of what follows the one before it, nothing can be the
    # leader's, and whether that one is will be asked next (KIP-279).
    return own.end_offset
