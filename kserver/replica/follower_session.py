"""A follower's side of an incremental fetch session with its leader (KIP-227).

Pure: values in, values out.

    request            says
    full (epoch 0)     every partition; the leader answers with the id of a session, or with 0
                       where it keeps none: then the next is full as well
    incremental        those whose position is another than it knows, those that are not wanted

    then               the next request is
    answered           incremental
    failed             full, and ends the session that may be there
    lost               full: the leader says that it does not know the session, or lost count

A session costs a follower of a thousand idle partitions one empty request and answer instead of
their names and positions.  (Kafka: FetchSessionHandler.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from kserver.model import LeaderEpoch, Offset

PartitionKey: TypeAlias = tuple[bytes, int]
"""The 16 bytes of the topic's id, and the partition's number."""

NO_SESSION = 0
FULL_EPOCH = 0
_LAST_EPOCH = 0x7FFFFFFF


class Position(NamedTuple):
    """Where a log ends, which is what it asks for next, and in what epochs."""

    leader_epoch: LeaderEpoch
    offset: Offset
    last_epoch: LeaderEpoch
    log_start_offset: Offset


class SessionRequest(NamedTuple):
    session_id: int
    epoch: int
    wanted: Mapping[PartitionKey, Position]
    forgotten: Mapping[PartitionKey, None]


class FollowerSession:
    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = FULL_EPOCH
        self.wanted: dict[PartitionKey, Position] = {}
        """All that is fetched, as it was last asked for or will be."""
        self._changed: dict[PartitionKey, Position] = {}
        self._forgotten: dict[PartitionKey, None] = {}

    def want(self, key: PartitionKey, position: Position) -> None:
        """Fetch it from there."""
        if self.wanted.get(key) != position:
            self.wanted[key] = self._changed[key] = position
            self._forgotten.pop(key, None)

    def forget(self, key: PartitionKey) -> None:
        """Fetch it no more."""
        if self.wanted.pop(key, None) is not None:
            self._changed.pop(key, None)
            self._forgotten[key] = None

    def request(self) -> SessionRequest:
        """What the next request says; then `answered`, `failed` or `lost` is called."""
        changed, forgotten = self._changed, self._forgotten
        self._changed, self._forgotten = {}, {}
        if self._epoch == FULL_EPOCH:
            return SessionRequest(self._id, FULL_EPOCH, self.wanted, {})
        return SessionRequest(self._id, self._epoch, changed, forgotten)

    def answered(self, session_id: int) -> None:
        self._id = session_id
        if session_id == NO_SESSION:
            self._epoch = FULL_EPOCH
        else:
            self._epoch = 1 if self._epoch == _LAST_EPOCH else self._epoch + 1

    def failed(self) -> None:
        """Nobody knows whether the leader took the request."""
        self._epoch = FULL_EPOCH

    def lost(self) -> None:
        self._id, self._epoch = NO_SESSION, FULL_EPOCH

    def check(self) -> None:
        """The invariants."""
        assert not self._forgotten.keys() & self.wanted.keys()
        for key, position in self._changed.items():
            assert self.wanted[key] == position
        assert self._id != NO_SESSION or self._epoch == FULL_EPOCH
