"""Incremental fetch (KIP-227): a client names its partitions once, then only what changed.

Pure: no I/O, no clock; the time comes in as `now_ms`.

    request (id, epoch)        meaning
    (0, -1)   final, sessionless   a full fetch; no session is kept
    (any, 0)  initial              a full fetch that asks for a session; an old one of that id ends
    (n, e>0)  incremental          what it names is added or changed, what it forgets is removed

A session's epoch is the one that the next request must carry.  It wraps from 2^31-1 to 1.

Errors: FETCH_SESSION_ID_NOT_FOUND (evicted, or never was), INVALID_FETCH_SESSION_EPOCH (a request
lost or repeated); the client begins anew with a full fetch.

Eviction (Kafka: server/FetchSession.scala): a full cache makes room for a new session by dropping
the least recently used one if it is stale for two minutes, or if it is smaller than the newcomer
and has lived that long; else the newcomer stays sessionless.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from kserver.errors import ErrorCode, KafkaError
from kserver.model import LeaderEpoch, Offset

EVICTION_MS = 120_000
FINAL_EPOCH = -1
INITIAL_EPOCH = 0
NO_SESSION = 0
MAX_EPOCH = 2**31 - 1


class FetchPartition(NamedTuple):
    """One partition of a fetch.  `topic` is None when the client named an id we do not know."""

    topic: str | None
    topic_id: UUID | None
    partition: int
    current_leader_epoch: LeaderEpoch
    offset: Offset
    last_fetched_epoch: LeaderEpoch
    log_start_offset: Offset
    max_bytes: int

    @property
    def key(self) -> tuple[UUID | str | None, int]:
        return (self.topic_id or self.topic, self.partition)


@dataclass(slots=True)
class Known:
    """What the client was last told of a partition; a change is reason to mention it again."""

    wanted: FetchPartition
    high_watermark: Offset = -1
    log_start_offset: Offset = -1


@dataclass(slots=True)
class FetchSession:
    id: int
    created_ms: int
    used_ms: int
    epoch: int = 1
    partitions: dict[tuple[UUID | str | None, int], Known] = field(default_factory=dict)

    def update(
        self, named: Iterable[FetchPartition], forgotten: Iterable[tuple[UUID | str | None, int]]
    ) -> None:
        for key in forgotten:
            self.partitions.pop(key, None)
        for wanted in named:
            known = self.partitions.get(wanted.key)
            if known is None:
                self.partitions[wanted.key] = Known(wanted)
            else:
                known.wanted = wanted

    def rotate(self, answered: Sequence[tuple[UUID | str | None, int]]) -> None:
        """Those that got bytes go to the end of the line, so that a small limit starves nobody."""
        for key in answered:
            known = self.partitions.pop(key, None)
            if known is not None:
                self.partitions[key] = known


class Fetching(NamedTuple):
    """What a fetch is about: all its partitions, and the session it belongs to, if any."""

    wanted: list[FetchPartition]
    session: FetchSession | None
    incremental: bool

    @property
    def session_id(self) -> int:
        return NO_SESSION if self.session is None else self.session.id


class FetchSessions:
    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(
        self,
        session_id: int,
        epoch: int,
        named: list[FetchPartition],
        forgotten: Sequence[tuple[UUID | str | None, int]],
        *,
        now_ms: int,
        new_id: int,
    ) -> Fetching:
        """Resolve a request.  `new_id` is a random positive id for a session that may be made.

        Raises KafkaError with a session error; it is the whole response's error.
        """
        if epoch == INITIAL_EPOCH:
            if session_id != NO_SESSION:
                self.end(session_id)
            if not named:
                return Fetching(named, None, False)
            return Fetching(named, self._create(named, now_ms, new_id), False)
        session = self._sessions.get(session_id)
        if session is None:
            raise KafkaError(ErrorCode.fetch_session_id_not_found)
        if session.epoch != epoch:
            raise KafkaError(ErrorCode.invalid_fetch_session_epoch)
        session.epoch = 1 if epoch == MAX_EPOCH else epoch + 1
        session.used_ms = now_ms
        self._sessions.move_to_end(session_id)
        session.update(named, forgotten)
        if not session.partitions:
            del self._sessions[session_id]
            return Fetching([], None, False)
        return Fetching([k.wanted for k in session.partitions.values()], session, True)

    def end(self, session_id: int) -> None:
        """The client asked for a last full fetch outside of its session."""
        self._sessions.pop(session_id, None)

    def _create(self, named: list[FetchPartition], now_ms: int, new_id: int) -> FetchSession | None:
        if new_id in self._sessions or not self._make_room(len(named), now_ms):
            return None
        session = FetchSession(new_id, now_ms, now_ms)
        session.update(named, ())
        self._sessions[new_id] = session
        return session

    def _make_room(self, size: int, now_ms: int) -> bool:
        if len(self._sessions) < self._slots:
            return True
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.used_ms > EVICTION_MS:
            del self._sessions[oldest.id]
            return True
        smaller = (
            s
            for s in self._sessions.values()
            if len(s.partitions) < size and now_ms - s.created_ms > EVICTION_MS
        )
        smallest = min(smaller, key=lambda s: len(s.partitions), default=None)
        if smallest is None:
            return False
        del self._sessions[smallest.id]
        return True
