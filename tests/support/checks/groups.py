"""Checks of what groups guarantee."""

from __future__ import annotations

import bisect
import itertools
from collections import defaultdict
from collections.abc import Iterator

from tests.support.history import (
    NOT_COMMITTED,
    Assigned,
    Committed,
    Disturbed,
    Ended,
    Fetched,
    Gone,
    History,
    Joined,
    Mended,
    Partition,
    Result,
    Sent,
    Started,
    Struck,
    Wanted,
    commits_answered,
)

LIVENESS_S = 30.0
DEAF = frozenset({"isolate", "zookeeper_cut", "cut", "cut_one_way", "refuse"})
"""Faults during which the controller may not reach a broker that clients reach."""
HEARING_S = 10.0
"""Seconds after such a fault until the broker has the controller's requests, and clients have
received its earlier responses.
"""


def one_owner(history: History) -> Iterator[str]:
    """Check that no partition has two owners in one generation."""
    owners: dict[tuple[str, int, Partition], str] = {}
    for event in history:
        if isinstance(event, Assigned):
            for partition in sorted(event.partitions):
                key = (event.group, event.generation, partition)
                owner = owners.setdefault(key, event.member)
                if _instance(owner) != _instance(event.member):
                    yield (
                        f"{partition} is {event.member}'s and {owner}'s"
                        f" in generation {event.generation} of {event.group}"
                    )


def _instance(member: str) -> str:
    return member.partition("#")[0]


def group_liveness(history: History) -> Iterator[str]:
    """Check that every partition has an owner again 30 s after the last disturbance."""
    wanted: dict[str, frozenset[Partition]] = {}
    live: defaultdict[str, dict[str, None]] = defaultdict(dict)
    owned: defaultdict[str, dict[str, frozenset[Partition]]] = defaultdict(dict)
    disturbed_s: defaultdict[str, float] = defaultdict(float)
    missing: dict[str, frozenset[Partition]] = {}
    """The partitions without an owner since the event before, by group."""
    told: set[str] = set()
    for event in history:
        for group, partitions in missing.items():
            if partitions and event.at_s > disturbed_s[group] + LIVENESS_S and group not in told:
                told.add(group)
                yield (
                    f"nobody of {group} owns {min(partitions)} at {event.at_s:.3f} s: its last"
                    f" disturbance was at {disturbed_s[group]:.3f} s"
                )
        match event:
            case Wanted():
                wanted[event.group] = event.partitions
                disturbed_s[event.group] = event.at_s
            case Joined():
                live[event.group][event.member] = None
                disturbed_s[event.group] = event.at_s
            case Gone():
                live[event.group].pop(event.member, None)
                disturbed_s[event.group] = event.at_s
            case Disturbed():
                disturbed_s.update(dict.fromkeys(wanted, event.at_s))
            case Assigned():
                owned[event.group][event.member] = event.partitions
            case _:
                continue
        for group in [event.group] if isinstance(event, Assigned) else list(wanted):
            shares = [owned[group].get(member, frozenset()) for member in live[group]]
            missing[group] = (
                wanted.get(group, frozenset()).difference(*shares) if shares else frozenset()
            )


def commit_regression(history: History) -> Iterator[str]:
    """Check that a fetched offset is at least the last one known from a successful commit or from
    another fetch, and that a member committed it. A broker that clients reach, but that cannot
    learn that it is no longer coordinator, may return older offsets.
    """
    committed_at = commits_answered(history)
    known: defaultdict[tuple[str, Partition], list[tuple[int, int]]] = defaultdict(list)
    """The known offsets by partition, each with its index in the history."""
    asked: defaultdict[tuple[str, Partition], set[int]] = defaultdict(set)
    for at, event in enumerate(history):
        if isinstance(event, Committed):
            key = (event.group, event.partition)
            if event.result is not Result.REFUSED:
                asked[key].add(event.offset)
            if event.result is Result.OK:
                decided_at = (
                    at if event.transaction is None else committed_at.get(event.transaction)
                )
                if decided_at is not None:
                    known[key].append((max(decided_at, at), event.offset))
        elif isinstance(event, Fetched):
            known[event.group, event.partition].append((at, event.offset))
    floors = {
        key: list(itertools.accumulate(sorted(offsets), lambda a, b: (b[0], max(a[1], b[1]))))
        for key, offsets in known.items()
    }
    deaf: list[str] = []
    deaf_until_s = 0.0
    for at, event in enumerate(history):
        if isinstance(event, Struck) and event.what in DEAF:
            deaf.append(event.what)
        elif isinstance(event, Mended) and event.what in DEAF:
            deaf.remove(event.what)
            deaf_until_s = event.at_s + HEARING_S
        if not isinstance(event, Fetched):
            continue
        key = (event.group, event.partition)
        before = bisect.bisect_left(floors[key], (event.since, NOT_COMMITTED - 1))
        floor = floors[key][before - 1][1] if before else NOT_COMMITTED
        if event.offset < floor and not deaf and event.at_s > deaf_until_s:
            yield f"{key} is at {event.offset} again (event {at}): {floor} had been committed"
        if event.offset != NOT_COMMITTED and event.offset not in asked[key]:
            yield f"{key} is at {event.offset} (event {at}), which nobody committed"


def zombie_fenced(history: History) -> Iterator[str]:
    """Check that zombies are fenced. A member's commit fails for a partition that another member
    was assigned in a later generation before the request. Of two members with one instance id, only
    the later one commits. A producer's requests fail once another has the same transactional id.
    """
    yield from _zombie_members(history)
    begun = {
        event.transaction
        for event in history
        if isinstance(event, Sent | Committed) and event.result is Result.OK
    }
    replaced_at: dict[str, int] = {}
    started: defaultdict[str, dict[str, tuple[int, int]]] = defaultdict(dict)
    for at, event in enumerate(history):
        match event:
            case Started(producer=producer, identity=identity):
                if event.since > replaced_at.get(producer, at):
                    yield f"{producer} was let in again (event {at})"
                others = started[event.transactional_id]
                for other, of_other in others.items():
                    if other != producer:
                        replaced_at.setdefault(producer if identity < of_other else other, at)
                others[producer] = identity
            case Ended(commit=False, transaction=transaction) if transaction not in begun:
                pass  # a producer may start a transaction of which no broker knows
            case (
                Sent(result=Result.OK, producer=producer, since=since)
                | Ended(result=Result.OK, producer=producer, since=since)
            ):
                if since > replaced_at.get(producer, at):
                    yield f"{producer} was replaced, and {event} was taken (event {at})"


def _zombie_members(history: History) -> Iterator[str]:
    given: defaultdict[tuple[str, Partition], list[tuple[int, int, str]]] = defaultdict(list)
    given_at: dict[str, int] = {}
    """The index of each member's last assignment."""
    taken: defaultdict[tuple[str, int, str], list[tuple[int, Committed]]] = defaultdict(list)
    """Successful commits of a group's generation, by instance id."""
    for at, event in enumerate(history):
        if isinstance(event, Assigned):
            given_at[event.member] = at
            for partition in event.partitions:
                given[event.group, partition].append((at, event.generation, event.member))
        elif isinstance(event, Committed) and event.result is Result.OK and event.generation >= 0:
            member, key = event.member, (event.group, event.generation, _instance(event.member))
            later = [
                owner
                for when, generation, owner in given[event.group, event.partition]
                if when < event.since and generation > event.generation and owner != member
            ]
            in_turn = [
                other.member
                for when, other in taken[key]
                if when < event.since and other.member != member
                if other.since > given_at.get(member, at)
            ]
            for owner in (later + in_turn)[:1]:
                yield (
                    f"{member} committed {event.offset} of {event.partition} in generation"
                    f" {event.generation} (event {at}): it is {owner}'s"
                )
            taken[key].append((at, event))
