"""Waiting until appended records are committed, for Produce, the coordinators and the markers.

    the partition is no longer hosted         UNKNOWN_TOPIC_OR_PARTITION
    this broker no longer leads it            NOT_LEADER_OR_FOLLOWER: another leader may truncate it
    the high watermark has reached its end    NONE
    acks=1, and it is on this broker's disk   NONE
    its disk failed                           KAFKA_STORAGE_ERROR
    acks=all, every in-sync replica has it,   NOT_ENOUGH_REPLICAS_AFTER_APPEND; it stays in the log
    and they are fewer than min.insync.replicas
    the deadline passed                       REQUEST_TIMED_OUT; it stays in the log

The first line that applies is the outcome, and is final.  acks=1 waits here only with
`flush.before.ack`.  A broker that still leads in the next
leader epoch, since a follower died, has what it appended in the previous one, and keeps waiting:
with an error, a client without idempotence would send the records twice.

(Kafka: DelayedProduce.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from kserver.errors import ErrorCode
from kserver.model import ALL_IN_SYNC, LEADER_ONLY, LeaderEpoch, Offset
from kserver.replica.partition import Partition
from kserver.replica.purgatory import Purgatory, Wait


class Uncommitted(NamedTuple):
    """An append of records below `end`, by the leader since epoch `led_since`."""

    partition: Partition
    led_since: LeaderEpoch
    end: Offset
    acks: int | None = None
    """acks of the Produce request; None for a coordinator's records, which wait for `min_isr`."""

    def outcome(self) -> ErrorCode | None:
        """Return the outcome, or None while it is open."""
        partition, led_since, end, acks = self
        if not partition.is_hosted:
            return ErrorCode.unknown_topic_or_partition
        if partition.led_since != led_since:
            return ErrorCode.not_leader_or_follower
        if partition.log.high_watermark >= end:
            return ErrorCode.none
        if acks == LEADER_ONLY and partition.log.recovery_point >= end:
            return ErrorCode.none
        if partition.log.failure is not None:
            return ErrorCode.kafka_storage_error
        if acks == ALL_IN_SYNC and partition.lacks_replicas(end):
            return ErrorCode.not_enough_replicas_after_append
        return None


def when_committed(
    appends: Sequence[Uncommitted],
    purgatory: Purgatory,
    deadline_s: float,
    on_committed: Callable[[Sequence[ErrorCode]], None],
) -> Wait | None:
    """Pass the outcomes to the callback, in order, once all are known or the loop's time is
    `deadline_s`.

    Returns the wait, or None if all were known at once.
    """
    outcomes: list[ErrorCode | None] = [None] * len(appends)

    def known_by_now(otherwise: ErrorCode | None) -> list[ErrorCode]:
        for place, append in enumerate(appends):
            if outcomes[place] is None:
                outcome = append.outcome()
                outcomes[place] = otherwise if outcome is None else outcome
        return [outcome for outcome in outcomes if outcome is not None]

    def ready() -> bool:
        codes = known_by_now(None)
        if len(codes) < len(appends):
            return False
        on_committed(codes)
        return True

    def expired() -> None:
        on_committed(known_by_now(ErrorCode.request_timed_out))

    if ready():
        return None
    keys = [append.partition.topic_partition for append in appends]
    return purgatory.wait(keys, ready, deadline_s, expired)
