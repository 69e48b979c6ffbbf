"""The table of open sessions and their deadlines.

Pure: no I/O, no clock; times are passed in as milliseconds of a monotonic clock.

A session is opened by its first connection and lives until it is closed, or until nothing was
received from it for its timeout. Deadlines are rounded up to ticks, as ZooKeeper's are: all that
expire in a tick are in one bucket, and most requests of a session do not move it.

    state     event                  next state
    OPEN      request, connected     OPEN, with a later deadline
    OPEN      expired, or closed     CLOSING: refused from now on, ephemerals about to be deleted
    CLOSING   removed                gone: SessionExpired for a client that reconnects

A session belongs to its last connection; earlier ones are closed.
"""

from __future__ import annotations

import enum
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field

from kserver.world.journal import StoredSession

PASSWORD_BYTES = 16
SERVER_ID = 1
"""In the highest byte of a session's id, as in a single ZooKeeper server."""


class SessionState(enum.Enum):
    OPEN = "open"
    CLOSING = "closing"


@dataclass(slots=True)
class ZooKeeperSession:
    id: int
    password: bytes
    timeout_ms: int
    due_ms: int
    """A whole number of ticks: its bucket."""
    owner: object | None = None
    """The session's connection."""
    state: SessionState = SessionState.OPEN


@dataclass(slots=True)
class SessionTable:
    tick_ms: int
    min_timeout_ms: int
    max_timeout_ms: int
    sessions: dict[int, ZooKeeperSession] = field(default_factory=dict)
    _buckets: dict[int, dict[int, None]] = field(default_factory=dict)
    _last_id: int = 0

    def restore(self, stored: Mapping[int, StoredSession], now_ms: int) -> None:
        """Restore sessions after a start; each has its full timeout to reconnect."""
        for session, (timeout_ms, password) in stored.items():
            self._add(session, password, timeout_ms, now_ms)
            self._last_id = max(self._last_id, session)

    def new_id(self, wall_ms: int) -> int:
        """Return a new id. Its middle is the time, so that later starts use higher ids
        (ZOOKEEPER-1622).
        """
        low = SERVER_ID << 56 | (wall_ms & (1 << 40) - 1) << 16
        self._last_id = max(low, self._last_id + 1)
        return self._last_id

    def negotiated(self, asked_ms: int) -> int:
        return min(max(asked_ms, self.min_timeout_ms), self.max_timeout_ms)

    def open(self, session: int, password: bytes, timeout_ms: int, now_ms: int) -> ZooKeeperSession:
        """Add a session; `timeout_ms` is the negotiated one."""
        assert session not in self.sessions
        return self._add(session, password, timeout_ms, now_ms)

    def reopen(
        self, session: int, password: bytes, timeout_ms: int, now_ms: int
    ) -> ZooKeeperSession | None:
        """Return the session with a new deadline; None if it has ended or the password is wrong."""
        open_session = self.sessions.get(session)
        if open_session is None or open_session.state is SessionState.CLOSING:
            return None
        if not hmac.compare_digest(open_session.password, password):
            return None
        open_session.timeout_ms = timeout_ms
        self._wait(open_session, now_ms)
        return open_session

    def is_open(self, session: int) -> bool:
        open_session = self.sessions.get(session)
        return open_session is not None and open_session.state is SessionState.OPEN

    def touch(self, session: int, now_ms: int) -> bool:
        """Extend the deadline; return whether the session is still open."""
        open_session = self.sessions.get(session)
        if open_session is None or open_session.state is SessionState.CLOSING:
            return False
        self._wait(open_session, now_ms)
        return True

    def close(self, session: int) -> bool:
        """Refuse the session from now on; return whether it was open."""
        open_session = self.sessions.get(session)
        if open_session is None or open_session.state is SessionState.CLOSING:
            return False
        open_session.state = SessionState.CLOSING
        self._forget_deadline(open_session)
        return True

    def remove(self, session: int) -> None:
        """Remove the session after its ephemerals were deleted."""
        open_session = self.sessions.pop(session, None)
        if open_session is not None and open_session.state is SessionState.OPEN:
            self._forget_deadline(open_session)

    def next_deadline_ms(self) -> int | None:
        return min(self._buckets, default=None)

    def expire(self, now_ms: int) -> list[int]:
        """Set expired sessions to CLOSING and return them, the longest expired first."""
        due = [
            session
            for bucket in sorted(self._buckets)
            if bucket <= now_ms
            for session in self._buckets[bucket]
        ]
        for session in due:
            self.close(session)
        return due

    def check(self) -> None:
        waiting = {s: bucket for bucket, them in self._buckets.items() for s in them}
        assert all(self._buckets.values()), "no bucket is empty"
        for session in self.sessions.values():
            assert session.due_ms % self.tick_ms == 0
            expected = session.due_ms if session.state is SessionState.OPEN else None
            assert waiting.pop(session.id, None) == expected
        assert not waiting

    def _add(self, session: int, password: bytes, timeout_ms: int, now_ms: int) -> ZooKeeperSession:
        due_ms = self._bucket(now_ms + timeout_ms)
        added = self.sessions[session] = ZooKeeperSession(session, password, timeout_ms, due_ms)
        self._buckets.setdefault(due_ms, {})[session] = None
        return added

    def _wait(self, session: ZooKeeperSession, now_ms: int) -> None:
        due_ms = self._bucket(now_ms + session.timeout_ms)
        if due_ms > session.due_ms:
            self._forget_deadline(session)
            session.due_ms = due_ms
            self._buckets.setdefault(due_ms, {})[session.id] = None

    def _bucket(self, due_ms: int) -> int:
        """Return the first tick after a time."""
        return (due_ms // self.tick_ms + 1) * self.tick_ms

    def _forget_deadline(self, session: ZooKeeperSession) -> None:
        bucket = self._buckets[session.due_ms]
        del bucket[session.id]
        if not bucket:
            del self._buckets[session.due_ms]
