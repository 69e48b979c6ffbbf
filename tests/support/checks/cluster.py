"""Checks of what a cluster guarantees."""

from __future__ import annotations

from collections.abc import Iterator

from tests.support.history import (
    Calm,
    Committed,
    Decided,
    Differs,
    Done,
    Ended,
    Event,
    Fetched,
    History,
    Holds,
    Kept,
    Lacks,
    Leads,
    Led,
    Mended,
    Orphaned,
    Partition,
    Placed,
    Polled,
    Recovered,
    Result,
    Sent,
    Struck,
    Targeted,
    Told,
)

RECOVERY_S = 30.0
FAULT_S = 60.0
MIN_OPERATIONS = 100
"""Operations that all clients together complete in FAULT_S of one fault, while most brokers are
well.
"""


def hw_monotonic(history: History) -> Iterator[str]:
    """Check that the high watermark that one client reads never goes back. Another client may read
    a lower one: it may ask a former leader when neither of them knows the new leader yet.
    """
    told: dict[tuple[str, Partition], Told] = {}
    for at, event in enumerate(history):
        if isinstance(event, Told):
            before = told.setdefault((event.asker, event.partition), event)
            if event.high_watermark < before.high_watermark:
                yield (
                    f"{event.partition} ended at {event.high_watermark} (event {at}), and at"
                    f" {before.high_watermark} before"
                )
            else:
                told[event.asker, event.partition] = event


def epoch_monotonic(history: History) -> Iterator[str]:
    """Check that each leader epoch has one leader, and that epochs only rise."""
    leader: dict[tuple[str, Partition, int], int] = {}
    newest: dict[tuple[str, Partition], int] = {}
    for at, event in enumerate(history):
        if isinstance(event, Decided):
            key = (event.topic_id, event.partition)
            if event.leader_epoch < newest.get(key, 0):
                yield f"{event.partition} is in epoch {event.leader_epoch} again (event {at})"
            newest[key] = event.leader_epoch
            broker = event.leader
        elif isinstance(event, Leads):
            broker = event.broker
        else:
            continue
        if broker >= 0:
            of_epoch = (event.topic_id, event.partition, event.leader_epoch)
            first = leader.setdefault(of_epoch, broker)
            if first != broker:
                yield (
                    f"{event.partition} is led by {first} and {broker} in epoch"
                    f" {event.leader_epoch} (event {at})"
                )


def replica_equal(history: History) -> Iterator[str]:
    """Check that replicas at rest have the same bytes, from the later log start offset on."""
    first: dict[Partition, Holds] = {}
    for event in history:
        if isinstance(event, Holds):
            other = first.setdefault(event.partition, event)
            start = max(event.log_start_offset, other.log_start_offset)
            ours, theirs = (
                [batch for batch in one.batches if batch[0] >= start] for one in (event, other)
            )
            if ours != theirs:
                at = next(
                    (a for a, b in zip(ours, theirs, strict=False) if a != b),
                    min(ours[len(theirs) :] + theirs[len(ours) :], default=(start, "")),
                )
                yield (
                    f"{event.partition} on {event.broker} and {other.broker} differ from {at[0]} on"
                )


def progress_during_fault(history: History) -> Iterator[str]:
    """Check that clients make progress while one fault lasts and most brokers are well. Reading a
    record again that was read before the fault is not progress.
    """
    since: Struck | None = None
    done = 0
    read: set[tuple[Partition, int]] = set()
    for event in history:
        if isinstance(event, Struck):
            since, done = event, 0
        elif since is not None and isinstance(event, Mended):
            lasted_s = event.at_s - since.at_s
            if lasted_s >= FAULT_S and done < MIN_OPERATIONS:
                yield f"{done} operations in {lasted_s:.0f} s of {since.what}"
            since = None
        if isinstance(event, Polled):
            record = (event.partition, event.offset)
            done += record not in read
            read.add(record)
        else:
            done += is_done(event)


def recovery(history: History) -> Iterator[str]:
    """Check that the cluster has recovered 30 s after the last fault."""
    calm_s = None
    for event in history:
        if isinstance(event, Struck):
            calm_s = None
        elif isinstance(event, Calm):
            calm_s = event.at_s
        elif isinstance(event, Recovered):
            if calm_s is not None and event.at_s > calm_s + RECOVERY_S:
                yield f"it took {event.at_s - calm_s:.0f} s"
            calm_s = None
    if calm_s is not None:
        yield f"it has not happened since {calm_s:.0f} s"


def led(history: History) -> Iterator[str]:
    """Check that each partition with a live in-sync replica is led by a live in-sync replica."""
    for event in history:
        if isinstance(event, Led) and event.live_isr and event.leader not in event.live_isr:
            in_sync = sorted(event.live_isr)
            yield f"{event.partition} is led by {event.leader}: in sync and up are {in_sync}"


def isr_complete(history: History) -> Iterator[str]:
    """Check that every in-sync replica has all committed records, at any time."""
    for event in history:
        if isinstance(event, Lacks):
            yield (
                f"{event.partition} ends at {event.end} on broker {event.broker}, which is in sync:"
                f" {event.committed} is committed"
            )


def context_equals_znodes(history: History) -> Iterator[str]:
    """Check that the controller's context and the brokers' metadata equal the znodes at rest."""
    for event in history:
        if isinstance(event, Differs):
            yield event.what


def placed_as_asked(history: History) -> Iterator[str]:
    """Check that at rest a partition has the replicas of its creation or of a reassignment, and
    that no other broker hosts it. A reassignment that was cancelled or replaced, or that had no
    response, may have taken effect or not. As in Kafka, a cancelled one may leave the replicas in
    another order.
    """
    asked: dict[Partition, set[frozenset[int]]] = {}
    for event in history:
        if isinstance(event, Targeted):
            asked.setdefault(event.partition, set()).add(frozenset(event.replicas))
        elif isinstance(event, Placed):
            of = {frozenset(event.replicas)}  # partitions that were added since are not checked
            if event.is_moving:
                yield f"{event.partition} is still being reassigned: {event.replicas}"
            elif frozenset(event.replicas) not in asked.get(event.partition, of):
                yield f"{event.partition} is placed on {event.replicas}, which was never asked for"
            if others := sorted(event.hosts - set(event.replicas)):
                yield f"{event.partition} is hosted by {others}, which are not its replicas"


def ownerless_task(history: History) -> Iterator[str]:
    """Check that no task of a broker runs after the broker stopped."""
    for event in history:
        if isinstance(event, Orphaned):
            yield f"{event.broker} has stopped, and goes on with {event.task}"


def memory_bounded(history: History) -> Iterator[str]:
    """Check that a broker keeps no state for clients that have gone."""
    for event in history:
        if isinstance(event, Kept) and event.count > event.limit:
            yield f"broker {event.broker} has {event.count} {event.what}, not {event.limit}"


def is_done(event: Event) -> bool:
    """Return whether the event is a successful response to a client, other than a poll."""
    return isinstance(event, Fetched | Told | Done) or (
        isinstance(event, Sent | Committed | Ended) and event.result is Result.OK
    )
