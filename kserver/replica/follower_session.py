"""A follower's side of an incremental fetch session with its leader (KIP-227).

Pure: values in, values out.

    request            content
    full (epoch 0)     every partition; the leader returns a session id, or 0 if it keeps no
                       session: then the next request is full as well
    incremental        partitions whose position changed, and those that are no longer wanted

    then               the next request is
    answered           incremental
    failed             full, and ends the session that may exist
    lost               full: the leader does not know the session, or expected another epoch

With a session, a follower of a thousand idle partitions sends one empty request, and gets an empty
response, instead of all their names and positions.  (Kafka: FetchSessionHandler.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from kserver.model import LeaderEpoch, Offset

PartitionKey: TypeAlias = tuple[bytes, int]
"""The 16 bytes of the topic id, and the partition number."""

NO_SESSION = 0
FULL_EPOCH = 0
_LAST_EPOCH = 0x7FFFFFFF


class Position(NamedTuple):
    """Fetch position of a log, which is its end, with its epochs and its start."""

    leader_epoch: LeaderEpoch
    offset: Offset
    last_epoch: LeaderEpoch
    log_start_offset: Offset


class SessionRequest(NamedTuple):
    session_id: int
    epoch: int
    positions: Mapping[PartitionKey, Position]
    forgotten: Mapping[PartitionKey, None]


class FollowerSession:
    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = FULL_EPOCH
        self.positions: dict[PartitionKey, Position] = {}
        """All partitions to fetch, with the position last requested or to be requested next."""
        self._changed: dict[PartitionKey, Position] = {}
        self._forgotten: dict[PartitionKey, None] = {}

    def want(self, key: PartitionKey, position: Position) -> None:
        """Fetch the partition from this position."""
        if self.positions.get(key) != position:
            self.positions[key] = self._changed[key] = position
            self._forgotten.pop(key, None)

    def forget(self, key: PartitionKey) -> None:
        """Stop fetching the partition."""
        if self.positions.pop(key, None) is not None:
            self._changed.pop(key, None)
            self._forgotten[key] = None

    def request(self) -> SessionRequest:
        """Return the next request.  The caller then calls `responded`, `failed` or `lost`."""
        changed, forgotten = self._changed, self._forgotten
        self._changed, self._forgotten = {}, {}
        if self._epoch == FULL_EPOCH:
            return SessionRequest(self._id, FULL_EPOCH, self.positions, {})
        return SessionRequest(self._id, self._epoch, changed, forgotten)

    def responded(self, session_id: int) -> None:
        self._id = session_id
        if session_id == NO_SESSION:
            self._epoch = FULL_EPOCH
        else:
            self._epoch = 1 if self._epoch == _LAST_EPOCH else self._epoch + 1

    def failed(self) -> None:
        """Start again with a full fetch: it is unknown whether the leader processed the request."""
        self._epoch = FULL_EPOCH

    def lost(self) -> None:
        self._id, self._epoch = NO_SESSION, FULL_EPOCH

    def check(self) -> None:
        """Check the invariants."""
        assert not self._forgotten.keys() & self.positions.keys()
        for key, position in self._changed.items():
            assert self.positions[key] == position
        assert self._id != NO_SESSION or self._epoch == FULL_EPOCH
