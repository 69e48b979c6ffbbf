"""What clients saw of a cluster, event by event; tests/support/checks says what it may not be.

    history = [Joined(0.0, "g", "a"), Assigned(3.1, "g", "a", 1, frozenset({("t", 0)})), ...]
    verify(history)     raises Anomalies, which names each check that found something

An operation is one event, entered when its answer came; `since` is how many events there were when
it was asked for.  So what comes before `since` was known to whoever asked.

A value is sent once: what is tried again is "7#2", and 7 must not be there twice.  A member's name
is used once: a static one that came back is "s#2", and its partitions are still those of s.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

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


NO_OFFSET = -1


@dataclass(frozen=True, slots=True)
class Sent(Event):
    """A record; `offset` counts where the result is OK.  It is NO_OFFSET where the leader knows of
    the batch and no longer where it is (DUPLICATE_SEQUENCE_NUMBER)."""

    since: int
    producer: str
    transaction: str | None
    partition: Partition
    value: str
    offset: int
    result: Result
    number: int = 0
    """Higher than those of all records that were sent before it; 0 where that is not known."""
    may_repeat: bool = False
    """Its producer is not idempotent."""
    by_leader_alone: bool = False
    """It was sent with acks=1: the leader acknowledges what no follower has yet."""


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
    poll: int = 0
    """Of the reader's calls of poll, the one that returned it, counted from 1."""
    transaction: str | None = None
    """The one that its reader had open."""


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


@dataclass(frozen=True, slots=True)
class Told(Event):
    """The high watermark, as `asker` was told who asked for the end."""

    since: int
    asker: str
    partition: Partition
    high_watermark: int


@dataclass(frozen=True, slots=True)
class Done(Event):
    """A client had the answer that it wanted to what no other event tells of."""

    topic: str


@dataclass(frozen=True, slots=True)
class Deletes(Event):
    """The records below this offset are asked to be deleted, or may be by retention."""

    partition: Partition
    offset: int


# The cluster


@dataclass(frozen=True, slots=True)
class Struck(Disturbed):
    """A fault of these brokers begins."""

    brokers: frozenset[int]


@dataclass(frozen=True, slots=True)
class Mended(Disturbed):
    """What one fault broke is as before."""


@dataclass(frozen=True, slots=True)
class LostPower(Event):
    broker: int


@dataclass(frozen=True, slots=True)
class Calm(Event):
    """Nothing is broken from here on."""


@dataclass(frozen=True, slots=True)
class Recovered(Event):
    """Every replica is in sync, and each workload got something done since it is calm."""


@dataclass(frozen=True, slots=True)
class Decided(Event):
    """The state of a partition, as the controller wrote it."""

    topic_id: str
    partition: Partition
    leader: int
    leader_epoch: int
    isr: frozenset[int]


@dataclass(frozen=True, slots=True)
class Leads(Event):
    """This broker was seen to lead."""

    topic_id: str
    partition: Partition
    broker: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class Led(Event):
    """How it is when it has long been calm: who leads, and who of the in-sync replicas is up."""

    partition: Partition
    leader: int | None
    live_isr: frozenset[int]


@dataclass(frozen=True, slots=True)
class Holds(Event):
    """The log of a replica at rest: its batches, each a base offset and a digest."""

    partition: Partition
    broker: int
    log_start_offset: int
    batches: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class Lacks(Event):
    """A broker is in the ISR, and its log ends before what is committed."""

    partition: Partition
    broker: int
    end: int
    committed: int


@dataclass(frozen=True, slots=True)
class Differs(Event):
    """It has long been calm, and the controller, or a broker, knows something else than the znodes
    say."""

    what: str


@dataclass(frozen=True, slots=True)
class Targeted(Event):
    """The replicas that a partition was created with, or that a reassignment names."""

    partition: Partition
    replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Placed(Event):
    """The replicas of a partition at rest, and the brokers that host it."""

    partition: Partition
    replicas: tuple[int, ...]
    hosts: frozenset[int]
    is_moving: bool
    """Whether a reassignment is still in progress."""


@dataclass(frozen=True, slots=True)
class Orphaned(Event):
    """A task of a broker that goes on though the broker was stopped."""

    broker: str
    task: str


@dataclass(frozen=True, slots=True)
class Kept(Event):
    """What a broker still holds once its clients have gone, and how much of it may be there."""

    broker: int
    what: str
    count: int
    limit: int


History = Sequence[Event]


def commits_answered(history: History) -> dict[str, int]:
    """Transactions whose commit was answered, and where."""
    return {
        event.transaction: at
        for at, event in enumerate(history)
        if isinstance(event, Ended) and event.commit and event.result is Result.OK
    }


def values_read(history: History) -> set[tuple[Partition, str]]:
    return {(e.partition, e.value) for e in history if isinstance(e, Polled)}


def last_readers(history: History) -> set[str]:
    """Those who read partitions to their ends after everything else."""
    return {event.reader for event in history if isinstance(event, AtEnd)}


def ends_reached(history: History) -> dict[Partition, int]:
    """How far partitions were read in the end."""
    passed: dict[Partition, int] = {}
    for event in history:
        if isinstance(event, AtEnd):
            passed[event.partition] = max(event.offset, passed.get(event.partition, 0))
    return passed
