"""What a leader appended, until it is known to be committed: one wait for Produce, the coordinators
and the markers.

    the partition is hosted no more           UNKNOWN_TOPIC_OR_PARTITION
    this broker leads it no more              NOT_LEADER_OR_FOLLOWER: another leader may cut it off
    the high watermark has reached its end    NONE
    acks=1, and it is on this broker's disk   NONE
    its disk failed                           KAFKA_STORAGE_ERROR
    acks=all, every in-sync replica has it,   NOT_ENOUGH_REPLICAS_AFTER_APPEND; it stays in the log
    and they are fewer than they must be
    the deadline passed                       REQUEST_TIMED_OUT; it stays in the log

The first line that holds is the outcome, and stands whatever comes after.  A broker that leads on
in the next leader epoch, since a follower died, has what it appended in the one before, and waits
on: to say otherwise would have a client without idempotence send it twice.
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
    """An append of records below `end`, by the leader since that epoch."""

    partition: Partition
    led_since: LeaderEpoch
    end: Offset
    acks: int | None = None
    """That a producer requested; None for a coordinator's records, which wait for `min_isr`."""

    def outcome(self) -> ErrorCode | None:
        """None while it is open."""
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
    told: Callable[[Sequence[ErrorCode]], None],
) -> Wait | None:
    """Call `told` with the outcomes, in order, once all are known or the loop's time is
    `deadline_s`; None where that was at once."""
    outcomes: list[ErrorCode | None] = [None] * len(appends)

    def known_by_now(otherwise: ErrorCode | None) -> list[ErrorCode]:
        for place, append in enumerate(appends):
            if outcomes[place] is None:
                outcome = append.outcome()
                outcomes[place] = otherwise if outcome is None else outcome
        return [outcome for outcome in outcomes if outcome is not None]

    def ready() -> bool:
        known = known_by_now(None)
        if len(known) < len(appends):
            return False
        told(known)
        return True

    def expired() -> None:
        told(known_by_now(ErrorCode.request_timed_out))

    if ready():
        return None
    keys = [append.partition.topic_partition for append in appends]
    return purgatory.wait(keys, ready, deadline_s, expired)
