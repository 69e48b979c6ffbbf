"""Shard: the coordinator of one partition, a pure core that decides, and changes by replay.

    handle(request)   -> Outcome   decides; may change volatile state: waiting requests, sessions
    replay(event)                  applies an event: while loading, and once it is written
    expire(now)       -> Outcome   a deadline has passed
    loaded(now)       -> Outcome   all persisted events have been replayed
    image_changed(..) -> Outcome   topics were created, extended or deleted

An *event* is a frozen dataclass that describes one change to the persisted state; `encode` and
`decode` convert it to and from its record.  Persisted state changes only by `replay`, so a load
restores the same state.

A *ticket* stands for a request that waits for a response.  Its shard may keep it, and name it in
the responses of any Outcome, its own or a later one.

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
    """The event loop's time in ms, for deadlines."""
    wall_ms: int
    """Wall-clock time in ms since 1970, for persisted state."""


class Transactional(NamedTuple):
    """Producer whose open transaction the events of an outcome belong to."""

    producer_id: ProducerId
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """Decision of a shard.  Its events are written as one batch; responses and effects follow
    once these, and everything written before, are committed."""

    events: Sequence[Any] = ()
    responses: Sequence[tuple[Ticket, Any]] = ()
    """Responses by ticket; a KafkaError is an error response."""
    effects: Sequence[Any] = ()
    """Actions for the runtime to perform."""
    transactional: Transactional | None = None
    only_events: bool = False
    """Whether only the events change the shard.  If they cannot be written for now, the shard is
    unchanged and the client may retry."""


NOTHING = Outcome()


class Step:
    """Builder of an outcome, for decisions to which several parts of a shard add events and
    responses.  A shard that decides in one place creates its Outcome directly."""

    __slots__ = ("events", "now", "responses", "transactional")

    def __init__(self, now: Now) -> None:
        self.now = now
        self.events: list[Any] = []
        self.responses: list[tuple[Ticket, Any]] = []
        self.transactional: Transactional | None = None

    def respond(self, ticket: Ticket | None, response: Any) -> None:
        """Add a response; nothing if there is no ticket."""
        if ticket is not None:
            self.responses.append((ticket, response))

    def add_events(self, events: Iterable[Any]) -> None:
        self.events += events

    def outcome(self, *, only_events: bool = False) -> Outcome:
        if not self.events and not self.responses:
            return NOTHING
        return Outcome(self.events, self.responses, (), self.transactional, only_events)


MAX_BATCH_BYTES = 1 << 18
"""Maximum bytes of the records written by one call of `expire`, unless a single record is larger:
they are one batch, and names may be long."""


def take_what_fits(
    events: Iterable[E], encode: Callable[[E], tuple[bytes, bytes | None]], most: int
) -> tuple[list[E], bool]:
    """Return the first of `events` that fit into one batch, at most `most`, and whether these are
    all."""
    batch: list[E] = []
    size = 0
    for event in events:
        key, value = encode(event)
        size += len(key) + len(value or b"")
        if len(batch) >= most or (batch and size > MAX_BATCH_BYTES):
            return batch, False
        batch.append(event)
    return batch, True


class Shard(Protocol):
    @property
    def next_deadline_ms(self) -> int | None:
        """Time of the next call of `expire`, by the loop's clock; an earlier call does no harm."""

    def handle(self, request: Any, ticket: Ticket, now: Now) -> Outcome:
        """Handle a request.  Raises KafkaError for an error response; then nothing has changed."""

    def expire(self, now: Now) -> Outcome: ...

    def loaded(self, now: Now) -> Outcome: ...

    def image_changed(self, image: ClusterMetadata, now: Now) -> Outcome: ...

    def replay(self, event: Any, producer_id: ProducerId = NO_PRODUCER_ID) -> None:
        """Apply an event.  With a producer id, it counts once that producer's transaction is
        committed."""

    def replay_end(self, producer_id: ProducerId, committed: bool) -> None:
        """Handle the end of the producer's transaction."""

    def encode(self, event: Any) -> tuple[bytes, bytes | None]:
        """Return key and value of the event's record."""

    def decode(self, key: bytes, value: bytes | None) -> Any | None:
        """Return the event; None for an unknown kind of record.  Raises ProtocolError."""
