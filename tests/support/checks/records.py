"""Checks of what the log guarantees to producers and consumers."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator

from tests.support.checks import groups
from tests.support.checks.groups import HEARING_S
from tests.support.history import (
    NO_OFFSET,
    AtEnd,
    Decided,
    Deletes,
    History,
    LostPower,
    Mended,
    Partition,
    Polled,
    Result,
    Seated,
    Sent,
    Struck,
    commits_answered,
    ends_reached,
    last_readers,
    values_read,
)

DEAF = groups.DEAF | {"slow_link", "pause"}
"""Faults during which a broker may not receive the controller's decisions."""


def lost_write(history: History) -> Iterator[str]:
    """Check that a reader that passes the offset of an acknowledged record reads it. `torn_txn`
    reports a transaction of which a part is there, and another check reports losses after a power
    cut.
    """
    powerless = _first_power_loss(history)
    for at, event in _lost(history):
        if at >= powerless:
            yield f"{event.value} was written to {event.partition} and is not there"


def acked_survives_power_loss(history: History) -> Iterator[str]:
    """Check that records acknowledged before one machine lost its power are read afterwards."""
    powerless = _first_power_loss(history)
    for at, event in _lost(history):
        if at < powerless:
            yield f"{event.value} was lost of {event.partition} with the power"


def _first_power_loss(history: History) -> int:
    """Return the index before which acknowledged records are at risk; 0 without a power loss."""
    return max((at for at, e in enumerate(history) if isinstance(e, LostPower)), default=0)


def _lost(history: History) -> Iterator[tuple[int, Sent]]:
    read, passed, committed = values_read(history), ends_reached(history), commits_answered(history)
    deleted = _deleted(history)
    sent = [(at, e) for at, e in enumerate(history) if isinstance(e, Sent)]
    torn = {e.transaction for _, e in sent if (e.partition, e.value) in read} - {None}
    for at, event in sent:
        if (
            event.result is Result.OK
            and not event.by_leader_alone
            and (event.transaction is None or event.transaction in committed)
            and event.transaction not in torn
            and deleted[event.partition] <= event.offset < passed.get(event.partition, 0)
            and (event.partition, event.value) not in read
        ):
            yield at, event


def _deleted(history: History) -> defaultdict[Partition, int]:
    """Return the offset of each partition below which records may be deleted."""
    deleted: defaultdict[Partition, int] = defaultdict(int)
    for event in history:
        if isinstance(event, Deletes):
            deleted[event.partition] = max(deleted[event.partition], event.offset)
    return deleted


def unseen_after_final_poll(history: History) -> Iterator[str]:
    """Check that no record was acknowledged beyond the end that the last reader reached."""
    passed, committed = ends_reached(history), commits_answered(history)
    for event in history:
        if (
            isinstance(event, Sent)
            and event.result is Result.OK
            and not event.by_leader_alone
            and (event.transaction is None or event.transaction in committed)
            and event.offset >= passed.get(event.partition, event.offset + 1)
        ):
            yield (
                f"{event.value} was written to {event.partition} at {event.offset}, which ends at"
                f" {passed[event.partition]}"
            )


def leader_write_lost(history: History) -> Iterator[str]:
    """Check that a record that only the leader acknowledged (acks=1) is lost only if a new leader
    epoch began since. A former leader that does not know of it yet may acknowledge records as well.
    """
    passed, last = ends_reached(history), last_readers(history)
    there = {(e.partition, e.value) for e in history if isinstance(e, Polled) and e.reader in last}
    ends = max((at for at, e in enumerate(history) if isinstance(e, AtEnd)), default=0)
    begun_s: dict[Partition, tuple[int, float]] = {}
    """The last leader epoch of each partition, and the time when it began."""
    for event in history[:ends]:
        if isinstance(event, Decided):
            before = begun_s.get(event.partition)
            if before is None or before[0] != event.leader_epoch:
                begun_s[event.partition] = event.leader_epoch, event.at_s
    for at, event in enumerate(history):
        if (
            isinstance(event, Sent)
            and event.by_leader_alone
            and event.result is Result.OK
            and event.partition in passed
            and (event.partition, event.value) not in there
            and begun_s.get(event.partition, (0, 0.0))[1] < _deaf_since_s(history, event)
        ):
            yield f"{event.value} is not in {event.partition} (event {at}), whose leader stayed"


def _deaf_since_s(history: History, sent: Sent) -> float:
    """Return the time since which the acknowledging broker may have missed the controller's
    decisions.
    """
    asked_s = history[sent.since - 1].at_s if sent.since else 0.0
    since_s = asked_s - HEARING_S
    began_s: defaultdict[str, list[float]] = defaultdict(list)
    for event in history:
        if isinstance(event, Struck) and event.what in DEAF and event.at_s <= sent.at_s:
            began_s[event.what].append(event.at_s)
        elif isinstance(event, Mended) and event.what in DEAF and event.at_s < asked_s - HEARING_S:
            began_s[event.what].pop(0)
    return min([since_s, *itertools.chain(*began_s.values())])


def read_lost(history: History) -> Iterator[str]:
    """Check that every record that was read is at its offset in the end, unless it was deleted."""
    last, passed, deleted = last_readers(history), ends_reached(history), _deleted(history)
    there = {
        (e.partition, e.offset, e.value)
        for e in history
        if isinstance(e, Polled) and e.reader in last
    }
    for at, event in enumerate(history):
        if (
            isinstance(event, Polled)
            and event.partition in passed
            and event.offset >= deleted[event.partition]
            and (event.partition, event.offset, event.value) not in there
        ):
            yield (
                f"{event.reader} read {event.value} at {event.offset} of {event.partition} (event"
                f" {at}), which is not there"
            )


def duplicate(history: History) -> Iterator[str]:
    """Check that the log has no duplicates of an idempotent producer's records."""
    may_repeat = {e.value for e in history if isinstance(e, Sent) and e.may_repeat}
    found: dict[tuple[str, str], tuple[Partition, int]] = {}
    for event in history:
        if isinstance(event, Polled) and event.value not in may_repeat:
            here = (event.partition, event.offset)
            first = found.setdefault((event.partition[0], event.value.partition("#")[0]), here)
            if first != here:
                yield f"{event.value} is at {first} and at {here}"


def inconsistent_offsets(history: History) -> Iterator[str]:
    """Check that an offset has one value for all writers and readers, at any time."""
    found: dict[tuple[Partition, int], str] = {}
    for at, event in enumerate(history):
        if isinstance(event, Polled) or (
            isinstance(event, Sent)
            and event.result is Result.OK
            and event.offset != NO_OFFSET
            and not event.by_leader_alone
        ):
            first = found.setdefault((event.partition, event.offset), event.value)
            if first != event.value:
                yield (
                    f"{event.partition} has {first} and {event.value} at {event.offset}"
                    f" (event {at})"
                )


# Writers


def nonmonotonic_send(history: History) -> Iterator[str]:
    """Check that a producer's records of a partition have offsets in the order of sending."""
    for before, event in _sends(history):
        if before.transaction is None or before.transaction != event.transaction:
            yield f"{event.value} is at {event.offset}, and {before.value} before it"


def int_nonmonotonic_send(history: History) -> Iterator[str]:
    """Check the same for two records of one transaction."""
    for before, event in _sends(history):
        if before.transaction is not None and before.transaction == event.transaction:
            yield f"{event.value} is at {event.offset}, and {before.value} before it"


def _sends(history: History) -> Iterator[tuple[Sent, Sent]]:
    """Yield adjacent records of a producer in a partition that are in the wrong order."""
    sent: defaultdict[tuple[str, Partition], list[Sent]] = defaultdict(list)
    for event in history:
        if (
            isinstance(event, Sent)
            and event.result is Result.OK
            and event.number
            and event.offset != NO_OFFSET
            and not event.by_leader_alone
        ):
            sent[event.producer, event.partition].append(event)
    for events in sent.values():
        events.sort(key=lambda event: event.number)
        for before, event in itertools.pairwise(events):
            if event.offset <= before.offset:
                yield before, event


# Readers


def poll_skip(history: History) -> Iterator[str]:
    """Check that a reader skips no record from one poll to the next."""
    for event, text, is_internal in _skips(history):
        if not is_internal:
            yield f"{event.reader} {text}"


def int_poll_skip(history: History) -> Iterator[str]:
    """Check the same within one poll."""
    for event, text, is_internal in _skips(history):
        if is_internal:
            yield f"{event.reader} {text} in poll {event.poll}"


def _skips(history: History) -> Iterator[tuple[Polled, str, bool]]:
    """Yield records that one reader of committed records skipped and another one read."""
    there: defaultdict[Partition, set[int]] = defaultdict(set)
    deleted = _deleted(history)
    for event in history:
        if isinstance(event, Polled):
            there[event.partition].add(event.offset)
    for at, event, expected, is_internal in _polls(history):
        begin = max(expected, deleted[event.partition])
        passed = there[event.partition].intersection(range(begin, event.offset))
        if passed:
            text = (
                f"came from {expected} to {event.offset} of {event.partition} (event {at}), past"
                f" {min(passed)}"
            )
            yield event, text, is_internal


def nonmonotonic_poll(history: History) -> Iterator[str]:
    """Check that a reader's position never goes back from one poll to the next."""
    for event, text, is_internal in _returns(history):
        if not is_internal:
            yield f"{event.reader} {text}"


def int_nonmonotonic_poll(history: History) -> Iterator[str]:
    """Check the same within one poll."""
    for event, text, is_internal in _returns(history):
        if is_internal:
            yield f"{event.reader} {text} in poll {event.poll}"


def _returns(history: History) -> Iterator[tuple[Polled, str, bool]]:
    for at, event, expected, is_internal in _polls(history):
        if event.offset < expected:
            text = (
                f"was given {event.offset} of {event.partition} (event {at}) and was at {expected}"
            )
            yield event, text, is_internal


def _polls(history: History) -> Iterator[tuple[int, Polled, int, bool]]:
    """Yield each record with its reader's position, and whether the same poll had set it."""
    position: dict[tuple[str, Partition], tuple[int, int]] = {}
    for at, event in enumerate(history):
        if isinstance(event, Seated):
            position[event.reader, event.partition] = event.offset, 0
        elif isinstance(event, Polled):
            key = (event.reader, event.partition)
            expected, poll = position.get(key, (0, 0))
            yield at, event, expected, event.poll != 0 and event.poll == poll
            position[key] = event.offset + 1, event.poll
