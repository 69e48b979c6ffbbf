"""A history of a cluster: the events that clients saw; tests/support/checks has its checks.

    history = [Joined(0.0, "g", "a"), Assigned(3.1, "g", "a", 1, frozenset({("t", 0)})), ...]
    verify(history)     raises Anomalies, which names each check that failed

An operation is one event, recorded with its response; `since` is the number of events at its
request. So the client knew all events before `since` when it sent the request.

A value is sent once: a retry is "7#2", and 7 must not be there twice. A member's name is used once:
a static member that came back is "s#2", and its partitions are still those of s.
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
    """It has not taken effect, and never will."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Event:
    at_s: float


# Groups


@dataclass(frozen=True, slots=True)
class Wanted(Event):
    """The partitions that the members of this group have to own together."""

    group: str
    partitions: frozenset[Partition]


@dataclass(frozen=True, slots=True)
class Joined(Event):
    """The member is active from now on: it is new, or was resumed."""

    group: str
    member: str


@dataclass(frozen=True, slots=True)
class Gone(Event):
    """The member left, crashed or was paused."""

    group: str
    member: str


@dataclass(frozen=True, slots=True)
class Disturbed(Event):
    """Another event after which a group may need time: a restart, a network cut."""

    what: str


@dataclass(frozen=True, slots=True)
class Assigned(Event):
    """All partitions that this member owns from now on; `generation` is the epoch of a KIP-848
    group.
    """

    group: str
    member: str
    generation: int
    partitions: frozenset[Partition]


@dataclass(frozen=True, slots=True)
class Committed(Event):
    """A committed offset; one in a transaction counts once the transaction is committed."""

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
    """A fetched offset; NOT_COMMITTED if there was none."""

    since: int
    group: str
    partition: Partition
    offset: int


# Transactions


@dataclass(frozen=True, slots=True)
class Started(Event):
    """`producer` continues with this transactional id; producers with a lower identity
    are fenced.
    """

    since: int
    transactional_id: str
    producer: str
    identity: tuple[int, int]
    """Producer id and epoch: both only increase."""


NO_OFFSET = -1


@dataclass(frozen=True, slots=True)
class Sent(Event):
    """A record; `offset` is valid if the result is OK.  It is NO_OFFSET if the leader remembers the
    batch but not its offset (DUPLICATE_SEQUENCE_NUMBER)."""

    since: int
    producer: str
    transaction: str | None
    partition: Partition
    value: str
    offset: int
    result: Result
    number: int = 0
    """Higher than the numbers of all records that were sent before it; 0 if unknown."""
    may_repeat: bool = False
    """Whether its producer is not idempotent."""
    by_leader_alone: bool = False
    """Whether it was sent with acks=1: the leader acknowledges it before any follower has it."""


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
    """The position from which the reader reads next."""

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
    """The number of the reader's poll that returned it, counted from 1."""
    transaction: str | None = None
    """The transaction that its reader had open."""


@dataclass(frozen=True, slots=True)
class AtEnd(Event):
    """After all transactions had ended, the reader reached the end of the partition."""

    reader: str
    partition: Partition
    offset: int


@dataclass(frozen=True, slots=True)
class Looked(Event):
    """The ends of a partition after all transactions had ended."""

    partition: Partition
    last_stable_offset: int
    high_watermark: int


@dataclass(frozen=True, slots=True)
class Told(Event):
    """The high watermark in a response to a ListOffsets request of `asker`."""

    since: int
    asker: str
    partition: Partition
    high_watermark: int


@dataclass(frozen=True, slots=True)
class Done(Event):
    """A client's successful request that no other event records."""

    topic: str


@dataclass(frozen=True, slots=True)
class Deletes(Event):
    """A request to delete the records below this offset, or a possible deletion by retention."""

    partition: Partition
    offset: int


# The cluster


@dataclass(frozen=True, slots=True)
class Struck(Disturbed):
    """A fault of these brokers begins."""

    brokers: frozenset[int]


@dataclass(frozen=True, slots=True)
class Mended(Disturbed):
    """A fault is repaired."""


@dataclass(frozen=True, slots=True)
class LostPower(Event):
    broker: int


@dataclass(frozen=True, slots=True)
class Calm(Event):
    """No fault occurs from here on."""


@dataclass(frozen=True, slots=True)
class Recovered(Event):
    """Every replica is in sync, and each workload has made progress since Calm."""


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
    """This broker was seen as leader."""

    topic_id: str
    partition: Partition
    broker: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class Led(Event):
    """The state long after Calm: the leader, and the live in-sync replicas."""

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
    """A broker is in the ISR, and its log ends before the high watermark."""

    partition: Partition
    broker: int
    end: int
    committed: int


@dataclass(frozen=True, slots=True)
class Differs(Event):
    """Long after Calm, the metadata of the controller or of a broker differ from the znodes."""

    what: str


@dataclass(frozen=True, slots=True)
class Targeted(Event):
    """The replicas that a partition was created with, or that a reassignment requests."""

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
    """A task of a broker that runs although the broker was stopped."""

    broker: str
    task: str


@dataclass(frozen=True, slots=True)
class Kept(Event):
    """State that a broker holds after its clients have gone, with its permitted size."""

    broker: int
    what: str
    count: int
    limit: int


History = Sequence[Event]


def commits_answered(history: History) -> dict[str, int]:
    """Return the transactions whose commit succeeded, each with its index in the history."""
    return {
        event.transaction: at
        for at, event in enumerate(history)
        if isinstance(event, Ended) and event.commit and event.result is Result.OK
    }


def values_read(history: History) -> set[tuple[Partition, str]]:
    return {(e.partition, e.value) for e in history if isinstance(e, Polled)}


def last_readers(history: History) -> set[str]:
    """Return the readers that read partitions to their ends after everything else."""
    return {event.reader for event in history if isinstance(event, AtEnd)}


def ends_reached(history: History) -> dict[Partition, int]:
    """Return the offset up to which each partition was read in the end."""
    passed: dict[Partition, int] = {}
    for event in history:
        if isinstance(event, AtEnd):
            passed[event.partition] = max(event.offset, passed.get(event.partition, 0))
    return passed
