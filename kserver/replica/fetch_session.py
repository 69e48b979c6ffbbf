"""Incremental fetch sessions (KIP-227): a client names its partitions once, then only changes.

Pure: no I/O, no clock; the time is passed in as `now_ms`.

    request (id, epoch)            meaning
    (0, -1)   final, sessionless   a full fetch; no session is kept
    (any, 0)  initial              a full fetch that requests a session; an old one of that id ends
    (n, e>0)  incremental          named partitions are added or changed, forgotten ones removed

A session's epoch is the one that the next request must carry.  It wraps from 2^31-1 to 1.

Errors: FETCH_SESSION_ID_NOT_FOUND (evicted, or never existed), INVALID_FETCH_SESSION_EPOCH (a
request was lost or repeated); the client starts again with a full fetch.

A follower's session may have a thousand partitions of which one is written to.  So its fetch looks
only at those that are *active*: the request named them, something about them has changed since the
last look (`mark_active`), or they were not idle then: there was an error, or more to read.  Every
LOOK_ALL_MS it looks at all, for changes that are not reported, such as a log start moved by
retention.

Eviction (Kafka: server/FetchSession.scala): a full cache makes room for a new session by dropping
the least recently used one if it is stale for two minutes, or the smallest one that is smaller than
the new session and has lived that long; else the new client stays sessionless.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias
from uuid import UUID

from kserver.errors import ErrorCode, KafkaError
from kserver.model import LeaderEpoch, Offset
from kserver.replica.isr import SessionClock

EVICTION_MS = 120_000
LOOK_ALL_MS = 1000
FINAL_EPOCH = -1
INITIAL_EPOCH = 0
NO_SESSION = 0
MAX_EPOCH = 2**31 - 1


SessionKey: TypeAlias = tuple[UUID | str | None, int]
"""Topic id, or topic name for a client that does not use ids, and partition number."""


class FetchPartition(NamedTuple):
    """One partition of a fetch.  `topic` is None if the client sent an unknown topic id."""

    topic: str | None
    topic_id: UUID | None
    partition: int
    current_leader_epoch: LeaderEpoch
    offset: Offset
    last_fetched_epoch: LeaderEpoch
    log_start_offset: Offset
    max_bytes: int

    @property
    def key(self) -> SessionKey:
        return (self.topic_id or self.topic, self.partition)


@dataclass(slots=True)
class CachedPartition:
    """State of a partition last sent to the client; a change is a reason to send it again."""

    fetch_info: FetchPartition
    high_watermark: Offset = -1
    log_start_offset: Offset = -1


@dataclass(slots=True, eq=False)
class FetchSession:
    id: int
    created_ms: int
    used_ms: int
    epoch: int = 1
    partitions: dict[SessionKey, CachedPartition] = field(default_factory=dict)
    active: dict[SessionKey, None] = field(default_factory=dict)
    clock: SessionClock = field(default_factory=SessionClock)
    unnamed: set[SessionKey] = field(default_factory=set)
    """Partitions whose topic id had no name yet when the client named them."""
    _looked_ms: int = 0

    def update(
        self, new_infos: Iterable[FetchPartition], forgotten: Iterable[SessionKey]
    ) -> list[FetchPartition]:
        """Add, change and remove partitions; return the removed ones."""
        removals = []
        for key in forgotten:
            cached = self.partitions.pop(key, None)
            if cached is not None:
                self.active.pop(key, None)
                self.unnamed.discard(key)
                removals.append(cached.fetch_info)
        for fetch_info in new_infos:
            cached = self.partitions.get(fetch_info.key)
            if cached is None:
                self.partitions[fetch_info.key] = CachedPartition(fetch_info)
                if fetch_info.topic is None:
                    self.unnamed.add(fetch_info.key)
            else:
                if fetch_info.topic is None:
                    # The topic was deleted: these are not partitions of another topic with its
                    # name.
                    fetch_info = fetch_info._replace(topic=cached.fetch_info.topic)
                if fetch_info.current_leader_epoch != cached.fetch_info.current_leader_epoch:
                    # A follower drops data of an epoch that has ended, so send the offsets again.
                    cached.high_watermark = cached.log_start_offset = -1
                cached.fetch_info = fetch_info
            self.active[fetch_info.key] = None
        return removals

    def name(self, names: Mapping[UUID, str]) -> list[FetchPartition]:
        """Resolve topic ids that have a name by now; return those partitions.

        This broker learns of new topics a little later than some clients.
        """
        infos = []
        for key in sorted(self.unnamed, key=str):
            cached = self.partitions[key]
            topic_id = cached.fetch_info.topic_id
            if topic_id is not None and (topic := names.get(topic_id)) is not None:
                self.unnamed.discard(key)
                cached.fetch_info = cached.fetch_info._replace(topic=topic)
                self.active[key] = None
                infos.append(cached.fetch_info)
        return infos

    def fetch_infos(self) -> list[FetchPartition]:
        """Return all partitions of the session."""
        return [cached.fetch_info for cached in self.partitions.values()]

    def active_fetch_infos(self) -> list[FetchPartition]:
        return [self.partitions[key].fetch_info for key in self.active]

    def look_at_all(self, now_ms: int) -> None:
        if now_ms - self._looked_ms >= LOOK_ALL_MS:
            self._looked_ms = now_ms
            self.active.update(dict.fromkeys(self.partitions))

    def is_known(self, key: SessionKey, high_watermark: Offset, log_start_offset: Offset) -> bool:
        """Whether these offsets were already sent to the client."""
        cached = self.partitions.get(key)
        return cached is not None and (
            cached.high_watermark == high_watermark and cached.log_start_offset == log_start_offset
        )

    def rotate(self, keys: Sequence[SessionKey]) -> None:
        """Move partitions that got data to the end, so that a small limit does not starve the
        others."""
        for key in keys:
            cached = self.partitions.pop(key, None)
            if cached is not None:
                self.partitions[key] = cached
                if key in self.active:
                    del self.active[key]
                    self.active[key] = None


class Fetching(NamedTuple):
    """Partitions of a fetch, and the session it belongs to, if any."""

    fetch_infos: list[FetchPartition]
    session: FetchSession | None
    incremental: bool
    forgotten: Sequence[FetchPartition] = ()

    @property
    def session_id(self) -> int:
        return NO_SESSION if self.session is None else self.session.id


class FetchSessions:
    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        self._followers: dict[tuple[str | None, int], dict[int, SessionKey]] = {}
        """Key of each partition in the followers' sessions, by session id."""

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(
        self,
        session_id: int,
        epoch: int,
        infos: list[FetchPartition],
        forgotten: Sequence[SessionKey],
        *,
        now_ms: int,
        new_id: int,
        names: Mapping[UUID, str],
        is_follower: bool = False,
    ) -> Fetching:
        """Resolve a request to its partitions and session.

        `new_id` is a random positive id for a session that may be created; `names` are the names of
        all topics by id.  A follower's incremental request yields only the active partitions.

        Raises KafkaError with a session error, which is the error of the whole response.
        """
        if epoch == INITIAL_EPOCH:
            if session_id != NO_SESSION:
                self.end(session_id)
            if not infos:
                return Fetching(infos, None, False)
            new_session = self._create(infos, now_ms, new_id)
            if new_session is not None and is_follower:
                self._watch(new_session, infos)
            return Fetching(infos, new_session, False)
        session = self._sessions.get(session_id)
        if session is None:
            raise KafkaError(ErrorCode.fetch_session_id_not_found)
        if session.epoch != epoch:
            raise KafkaError(ErrorCode.invalid_fetch_session_epoch)
        # With a new epoch each time, a lost or repeated request is detected.
        session.epoch = 1 if epoch == MAX_EPOCH else epoch + 1
        session.used_ms = now_ms
        self._sessions.move_to_end(session_id)
        removals = session.update(infos, forgotten)
        resolved_infos = session.name(names) if session.unnamed else ()
        if is_follower:
            self._unwatch(session, removals)
            self._watch(session, (*infos, *resolved_infos))
            session.look_at_all(now_ms)
        if not session.partitions:
            self.end(session_id)
            return Fetching([], None, False, removals)
        fetch_infos = session.active_fetch_infos() if is_follower else session.fetch_infos()
        return Fetching(fetch_infos, session, True, removals)

    def end(self, session_id: int) -> None:
        """End a session: the client sent a full fetch outside of it, or it has no partitions
        left."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._unwatch(session, session.fetch_infos())

    def mark_active(self, topic_partition: Hashable) -> list[FetchSession]:
        """Mark a changed partition as active; return the followers' sessions that include it."""
        ids = self._followers.get(topic_partition)  # type: ignore[call-overload]
        if not ids:
            return []
        sessions = []
        for session_id, key in ids.items():
            session = self._sessions.get(session_id)
            if session is not None and key in session.partitions:
                session.active[key] = None
                sessions.append(session)
        return sessions

    def _watch(self, session: FetchSession, infos: Iterable[FetchPartition]) -> None:
        for fetch_info in infos:
            self._followers.setdefault((fetch_info.topic, fetch_info.partition), {})[session.id] = (
                fetch_info.key
            )

    def _unwatch(self, session: FetchSession, infos: Iterable[FetchPartition]) -> None:
        for fetch_info in infos:
            ids = self._followers.get((fetch_info.topic, fetch_info.partition))
            if ids is not None and ids.get(session.id) == fetch_info.key:
                del ids[session.id]
                if not ids:
                    del self._followers[fetch_info.topic, fetch_info.partition]

    def _create(self, infos: list[FetchPartition], now_ms: int, new_id: int) -> FetchSession | None:
        if new_id in self._sessions or not self._make_room(len(infos), now_ms):
            return None
        session = FetchSession(new_id, now_ms, now_ms)
        session.update(infos, ())
        self._sessions[new_id] = session
        return session

    def _make_room(self, size: int, now_ms: int) -> bool:
        if len(self._sessions) < self._slots:
            return True
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.used_ms > EVICTION_MS:
            self.end(oldest.id)
            return True
        smaller = (
            s
            for s in self._sessions.values()
            if len(s.partitions) < size and now_ms - s.created_ms > EVICTION_MS
        )
        smallest = min(smaller, key=lambda s: len(s.partitions), default=None)
        if smallest is None:
            return False
        self.end(smallest.id)
        return True
