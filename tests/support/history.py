"""What clients saw of groups and transactions, event by event, and the checks of such a history.

    history = [Joined(0.0, "g", "a"), Assigned(3.1, "g", "a", 1, frozenset({("t", 0)})), ...]
    verify(history)     raises Anomalies, which names each check that found something

    one-owner           no partition has two owners in one generation
    group-liveness      every partition is owned again 30 s after the last disturbance
    commit-regression   a committed offset never goes back, and is never lost
    zombie-fenced       nothing is taken from whoever was replaced
    torn-txn            of a transaction all is read, or nothing
    aborted-read        nothing of an aborted transaction is read
    precommitted-read   nothing is read before its transaction's commit was asked for
    lost-write          what was committed is read
    duplicate           nothing is there twice
    poll-skip           a reader passes over nothing that is there
    nonmonotonic-poll   a reader never goes back by itself
    lso-stuck           nothing keeps readers back once all transactions have ended

Pure: an operation is one event, entered when its answer came; `since` is how many events there
were when it was asked for.  So what comes before `since` was known to whoever asked.

A value is sent once: what is tried again is "7#2", and 7 must not be there twice.  A member's name
is used once: a static one that came back is "s#2", and its partitions are still those of s.

(The names are those of Jepsen's Kafka workload where it has one.  Unlike there, an operation whose
outcome is not known counts as one that may have taken effect, and never more than once.)
"""

from __future__ import annotations

import bisect
import enum
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

LIVENESS_S = 30.0
NOT_COMMITTED = -1

Partition = tuple[str, int]


class Result(enum.Enum):
    OK = "ok"
    REFUSED = "refused"
    """It has not taken effect, and will not."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Event:
    at_s: float


# Groups


@dataclass(frozen=True, slots=True)
class Wanted(Event):
    """What the members of this group are to own between them."""

    group: str
    partitions: frozenset[Partition]


@dataclass(frozen=True, slots=True)
class Joined(Event):
    """From now on it does what a member does: it is new, or woke up."""

    group: str
    member: str


@dataclass(frozen=True, slots=True)
class Gone(Event):
    """It left, crashed or fell asleep."""

    group: str
    member: str


@dataclass(frozen=True, slots=True)
class Disturbed(Event):
    """Something else that a group may need time for: a restart, a cut."""

    what: str


@dataclass(frozen=True, slots=True)
class Assigned(Event):
    """All that this member owns from now on; `generation` is its epoch in a group by KIP-848."""

    group: str
    member: str
    generation: int
    partitions: frozenset[Partition]


@dataclass(frozen=True, slots=True)
class Committed(Event):
    """An offset; in a transaction it counts once that is committed."""

    since: int
    group: str
    member: str
    generation: int
    partition: Partition
    offset: int
    result: Result
    transaction: str | None = None


@dataclass(frozen=True, slots=True)
class Fetched(Event):
    """A committed offset; NOT_COMMITTED when there was none."""

    since: int
    group: str
    partition: Partition
    offset: int


# Transactions


@dataclass(frozen=True, slots=True)
class Started(Event):
    """`producer` goes on as this transactional id; whoever had a lower identity is replaced."""

    since: int
    transactional_id: str
    producer: str
    identity: tuple[int, int]
    """Producer id and epoch: both only grow."""


@dataclass(frozen=True, slots=True)
class Sent(Event):
    """A record; `offset` counts where the result is OK."""

    since: int
    producer: str
    transaction: str | None
    partition: Partition
    value: str
    offset: int
    result: Result


@dataclass(frozen=True, slots=True)
class Ended(Event):
    since: int
    producer: str
    transaction: str
    commit: bool
    result: Result


# Readers, of committed records only


@dataclass(frozen=True, slots=True)
class Seated(Event):
    """This is what the reader is given next."""

    reader: str
    partition: Partition
    offset: int


@dataclass(frozen=True, slots=True)
class Polled(Event):
    reader: str
    partition: Partition
    offset: int
    value: str


@dataclass(frozen=True, slots=True)
class AtEnd(Event):
    """After all transactions had ended, the reader came to the end of the partition."""

    reader: str
    partition: Partition
    offset: int


@dataclass(frozen=True, slots=True)
class Looked(Event):
    """After all transactions had ended."""

    partition: Partition
    last_stable_offset: int
    high_watermark: int


History = Sequence[Event]
Check = Callable[[History], Iterator[str]]


class Anomalies(AssertionError):
    def __init__(self, found: Mapping[str, Sequence[str]]) -> None:
        lines = [f"{name}: {texts[0]} ({len(texts)} in all)" for name, texts in found.items()]
        super().__init__("\n".join(lines))
        self.names = frozenset(found)


def verify(history: History) -> None:
    found = {name: texts for name, check in CHECKS.items() if (texts := list(check(history)))}
    if found:
        raise Anomalies(found)


# Checks of groups


def one_owner(history: History) -> Iterator[str]:
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
    wanted: dict[str, frozenset[Partition]] = {}
    live: defaultdict[str, dict[str, None]] = defaultdict(dict)
    owned: defaultdict[str, dict[str, frozenset[Partition]]] = defaultdict(dict)
    disturbed_s: defaultdict[str, float] = defaultdict(float)
    missing: dict[str, frozenset[Partition]] = {}
    """By group, as it has been since the event before."""
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
    """Whoever asks for an offset gets at least what had been answered, to a commit or to another
    who asked; and nothing that nobody committed."""
    committed_at = _decided_at(history)
    known: defaultdict[tuple[str, Partition], list[tuple[int, int]]] = defaultdict(list)
    """Where in the history an offset was known, and the offset."""
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
    for at, event in enumerate(history):
        if not isinstance(event, Fetched):
            continue
        key = (event.group, event.partition)
        before = bisect.bisect_left(floors[key], (event.since, NOT_COMMITTED - 1))
        floor = floors[key][before - 1][1] if before else NOT_COMMITTED
        if event.offset < floor:
            yield f"{key} is at {event.offset} again (event {at}): {floor} had been committed"
        if event.offset != NOT_COMMITTED and event.offset not in asked[key]:
            yield f"{key} is at {event.offset} (event {at}), which nobody committed"


def _decided_at(history: History) -> dict[str, int]:
    """Transactions whose commit was answered, and where."""
    return {
        event.transaction: at
        for at, event in enumerate(history)
        if isinstance(event, Ended) and event.commit and event.result is Result.OK
    }


def zombie_fenced(history: History) -> Iterator[str]:
    """Of a member nothing is taken for a partition that another had been given in a later
    generation before it asked, nor of two with one instance id in turn; of a producer, nothing
    once another goes on as its transactional id."""
    yield from _zombie_members(history)
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
            case (
                Sent(result=Result.OK, producer=producer, since=since)
                | Ended(result=Result.OK, producer=producer, since=since)
            ):
                if since > replaced_at.get(producer, at):
                    yield f"{producer} was replaced, and {event} was taken (event {at})"


def _zombie_members(history: History) -> Iterator[str]:
    given: defaultdict[tuple[str, Partition], list[tuple[int, int, str]]] = defaultdict(list)
    given_at: dict[str, int] = {}
    """When each member was last given anything."""
    taken: defaultdict[tuple[str, int, str], list[tuple[int, Committed]]] = defaultdict(list)
    """Commits of a group's generation, by instance id."""
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


# Checks of transactions


def aborted_read(history: History) -> Iterator[str]:
    """What a commit that was refused did, or an abort, or nobody who ever asked for the commit."""
    aborted = {
        event.transaction
        for event in history
        if isinstance(event, Ended) and (not event.commit or event.result is Result.REFUSED)
    }
    yield from _reads_of(history, aborted, lambda at, transaction: True)


def precommitted_read(history: History) -> Iterator[str]:
    asked_at: dict[str, int] = {}
    aborted: set[str] = set()
    transactions: set[str] = set()
    for event in history:
        if isinstance(event, Ended):
            if event.commit:
                asked_at.setdefault(event.transaction, event.since)
            else:
                aborted.add(event.transaction)
        elif isinstance(event, Sent | Committed) and event.transaction is not None:
            transactions.add(event.transaction)
    never = len(history)
    yield from _reads_of(
        history,
        transactions - aborted,
        lambda at, transaction: at < asked_at.get(transaction, never),
    )


def _reads_of(
    history: History, transactions: set[str], counts: Callable[[int, str], bool]
) -> Iterator[str]:
    """Records and offsets that readers saw and only these transactions wrote."""
    of_value: dict[tuple[Partition, str], str] = {}
    of_offset: defaultdict[tuple[str, Partition, int], set[str | None]] = defaultdict(set)
    for event in history:
        if isinstance(event, Sent) and event.transaction is not None:
            of_value[event.partition, event.value] = event.transaction
        elif isinstance(event, Committed) and event.result is not Result.REFUSED:
            of_offset[event.group, event.partition, event.offset].add(event.transaction)
    for at, event in enumerate(history):
        if isinstance(event, Polled):
            transaction = of_value.get((event.partition, event.value), "")
            if transaction in transactions and counts(at, transaction):
                yield f"{event.reader} read {event.value} of {transaction} (event {at})"
        elif isinstance(event, Fetched):
            writers = of_offset.get((event.group, event.partition, event.offset))
            if writers and all(
                writer is not None and writer in transactions and counts(at, writer)
                for writer in writers
            ):
                yield (
                    f"{event.group} is at {event.offset} of {event.partition}, as"
                    f" {', '.join(sorted(map(str, writers)))} had it (event {at})"
                )


def torn_txn(history: History) -> Iterator[str]:
    """Some of what a transaction wrote was read, and some never, by readers that came past it."""
    read, passed = _read(history), _passed(history)
    written: defaultdict[str, list[Sent]] = defaultdict(list)
    for event in history:
        if isinstance(event, Sent) and event.transaction is not None and event.result is Result.OK:
            written[event.transaction].append(event)
    for transaction, sent in written.items():
        seen = [s for s in sent if (s.partition, s.value) in read]
        unseen = [
            s
            for s in sent
            if s.offset < passed.get(s.partition, 0) and (s.partition, s.value) not in read
        ]
        if seen and unseen:
            yield f"{transaction}: {seen[0].value} is there and {unseen[0].value} is not"


def lost_write(history: History) -> Iterator[str]:
    """Where a part is there it is `torn_txn` that tells."""
    read, passed, committed = _read(history), _passed(history), _decided_at(history)
    sent = [e for e in history if isinstance(e, Sent) and e.result is Result.OK]
    torn = {e.transaction for e in sent if (e.partition, e.value) in read} - {None}
    for event in sent:
        if (
            (event.transaction is None or event.transaction in committed)
            and event.transaction not in torn
            and event.offset < passed.get(event.partition, 0)
            and (event.partition, event.value) not in read
        ):
            yield f"{event.value} was written to {event.partition} and is not there"


def _read(history: History) -> set[tuple[Partition, str]]:
    return {(e.partition, e.value) for e in history if isinstance(e, Polled)}


def _passed(history: History) -> dict[Partition, int]:
    """How far partitions were read in the end."""
    passed: dict[Partition, int] = {}
    for event in history:
        if isinstance(event, AtEnd):
            passed[event.partition] = max(event.offset, passed.get(event.partition, 0))
    return passed


def duplicate(history: History) -> Iterator[str]:
    found: dict[str, tuple[Partition, int]] = {}
    for event in history:
        if isinstance(event, Polled):
            here = (event.partition, event.offset)
            first = found.setdefault(event.value.partition("#")[0], here)
            if first != here:
                yield f"{event.value} is at {first} and at {here}"


# Checks of readers


def poll_skip(history: History) -> Iterator[str]:
    """Readers of committed records see the same of what they come past, whenever they do."""
    there: defaultdict[Partition, set[int]] = defaultdict(set)
    for event in history:
        if isinstance(event, Polled):
            there[event.partition].add(event.offset)
    for at, event, expected in _polls(history):
        passed = there[event.partition].intersection(range(expected, event.offset))
        if passed:
            yield (
                f"{event.reader} came from {expected} to {event.offset} of {event.partition}"
                f" (event {at}), past {min(passed)}"
            )


def nonmonotonic_poll(history: History) -> Iterator[str]:
    for at, event, expected in _polls(history):
        if event.offset < expected:
            yield (
                f"{event.reader} was given {event.offset} of {event.partition} (event {at}),"
                f" and was at {expected}"
            )


def _polls(history: History) -> Iterator[tuple[int, Polled, int]]:
    """Each, and the offset at which its reader was."""
    position: dict[tuple[str, Partition], int] = {}
    for at, event in enumerate(history):
        if isinstance(event, Seated):
            position[event.reader, event.partition] = event.offset
        elif isinstance(event, Polled):
            key = (event.reader, event.partition)
            yield at, event, position.get(key, 0)
            position[key] = event.offset + 1


def lso_stuck(history: History) -> Iterator[str]:
    for event in history:
        if isinstance(event, Looked) and event.last_stable_offset < event.high_watermark:
            yield (
                f"{event.partition} is kept back at {event.last_stable_offset} of"
                f" {event.high_watermark}"
            )


CHECKS: Mapping[str, Check] = {
    "one-owner": one_owner,
    "group-liveness": group_liveness,
    "commit-regression": commit_regression,
    "zombie-fenced": zombie_fenced,
    "torn-txn": torn_txn,
    "aborted-read": aborted_read,
    "precommitted-read": precommitted_read,
    "lost-write": lost_write,
    "duplicate": duplicate,
    "poll-skip": poll_skip,
    "nonmonotonic-poll": nonmonotonic_poll,
    "lso-stuck": lso_stuck,
}
