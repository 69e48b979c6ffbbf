"""What the coordinator of one partition is: a pure core that decides, and changes by replay.

    handle(request)   -> Outcome   decides; may change what is not kept: who waits, which sessions
    replay(event)                  one event becomes state: at loading, and once it is written
    expire(now)       -> Outcome   a deadline has passed
    loaded(now)       -> Outcome   all that was kept has been replayed
    image_changed(..) -> Outcome   topics came, grew or went

An *event* is a frozen dataclass that says what becomes of what is kept; `encode` and `decode` are
its record in the partition.  There is one way by which kept state changes, `replay`: so what is
loaded again is what was there.

A *ticket* stands for a request that is to be answered: its shard keeps it as long as it likes and
names it in the answers of some Outcome, its own or a later one.

Pure: no I/O and no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from kserver.metadata import ClusterMetadata
from kserver.model import NO_PRODUCER_ID, ProducerId

Ticket: TypeAlias = Any
"""Opaque to the shard."""

E = TypeVar("E")


class Now(NamedTuple):
    ms: int
    """The event loop's time, for deadlines."""
    wall_ms: int
    """Since 1970: for what is kept."""


class Transactional(NamedTuple):
    """Whose open transaction the events of an outcome belong to."""

    producer_id: ProducerId
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a shard decided.  Its events are written as one batch; the rest happens once they, and
    all that was written before, are committed."""

    events: Sequence[Any] = ()
    answers: Sequence[tuple[Ticket, Any]] = ()
    """A KafkaError refuses."""
    effects: Sequence[Any] = ()
    """What the coordinator's shell is to do."""
    transactional: Transactional | None = None
    only_events: bool = False
    """Nothing changes but what the events change.  Where they cannot be written for now, the shard
    is as it was, and the client may retry."""


NOTHING = Outcome()


class Step:
    """An outcome in the making, for a decision in which several parts of a shard have a say: each
    adds its events and answers.  A shard that decides in one place makes its Outcome at once."""

    __slots__ = ("answers", "events", "now", "transactional")

    def __init__(self, now: Now) -> None:
        self.now = now
        self.events: list[Any] = []
        self.answers: list[tuple[Ticket, Any]] = []
        self.transactional: Transactional | None = None

    def answer(self, ticket: Ticket | None, answer: Any) -> None:
        """Nobody waits where there is no ticket."""
        if ticket is not None:
            self.answers.append((ticket, answer))

    def keep(self, events: Iterable[Any]) -> None:
        self.events += events

    def outcome(self, *, only_events: bool = False) -> Outcome:
        if not self.events and not self.answers:
            return NOTHING
        return Outcome(self.events, self.answers, (), self.transactional, only_events)


MOST_BYTES_AT_ONCE = 1 << 18
"""Of the records that one pass of time writes, unless one alone has more: they are one batch, and
names may be long."""


def take_what_fits(
    events: Iterable[E], encode: Callable[[E], tuple[bytes, bytes | None]], most: int
) -> tuple[list[E], bool]:
    """The first of `events` that fit into one batch, at most so many, and whether these are all."""
    taken: list[E] = []
    size = 0
    for event in events:
        key, value = encode(event)
        size += len(key) + len(value or b"")
        if len(taken) >= most or (taken and size > MOST_BYTES_AT_ONCE):
            return taken, False
        taken.append(event)
    return taken, True


class Shard(Protocol):
    @property
    def next_deadline_ms(self) -> int | None:
        """When `expire` is to be called, by the loop's time; too early does no harm."""

    def handle(self, request: Any, ticket: Ticket, now: Now) -> Outcome:
        """Raises KafkaError to refuse; nothing has changed then."""

    def expire(self, now: Now) -> Outcome: ...

    def loaded(self, now: Now) -> Outcome: ...

    def image_changed(self, image: ClusterMetadata, now: Now) -> Outcome: ...

    def replay(self, event: Any, producer_id: ProducerId = NO_PRODUCER_ID) -> None:
        """With a producer id: it counts once that producer's transaction is committed."""

    def replay_end(self, producer_id: ProducerId, committed: bool) -> None:
        """The producer's transaction ended."""

    def encode(self, event: Any) -> tuple[bytes, bytes | None]:
        """Key and value of its record."""

    def decode(self, key: bytes, value: bytes | None) -> Any | None:
        """The event; None for a kind of record that is not known.  Raises ProtocolError."""
