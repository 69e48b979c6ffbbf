"""FetchSessionHandler: a broker's memory of our fetches, so that only changes are sent (KIP-227).

Pure: values in, values out.

A session begins with a full fetch of epoch 0; the broker responds with its id, or with 0 if it
keeps none. After that each request has the next epoch and names the partitions that are new or
changed, and those to forget; a response leaves out partitions without records or changes.

    build(positions)     contents of the next request
    handle_response(id)  the broker accepted it
    handle_error()       it did not, or the outcome is unknown: the next request is full again
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from kserver.model import LeaderEpoch, Offset, TopicPartition

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
NO_SESSION = 0
_LAST_EPOCH = 0x7FFFFFFF


class FetchPosition(NamedTuple):
    """Fetch parameters of one partition; `topic_id` None fetches by name."""

    topic_id: UUID | None
    offset: Offset
    current_leader_epoch: LeaderEpoch
    max_bytes: int


class SessionRequest(NamedTuple):
    session_id: int
    epoch: int
    partitions: dict[TopicPartition, FetchPosition]
    forgotten: dict[TopicPartition, UUID | None]


class FetchSessionHandler:
    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._session_partitions: dict[TopicPartition, FetchPosition] = {}
        self._building: dict[TopicPartition, FetchPosition] = {}

    @property
    def partitions(self) -> Mapping[TopicPartition, FetchPosition]:
        """All partitions of the last request, whether named in it or known to the broker."""
        return self._building

    def build(self, positions: Mapping[TopicPartition, FetchPosition]) -> SessionRequest:
        self._building = dict(positions)
        if self._epoch == INITIAL_EPOCH:
            return SessionRequest(self._id, INITIAL_EPOCH, self._building, {})
        before = self._session_partitions
        changed = {p: w for p, w in positions.items() if before.get(p) != w}
        forgotten = {
            p: w.topic_id
            for p, w in before.items()
            # A topic that was created again is another topic: forget the old id.
            if p not in positions or positions[p].topic_id != w.topic_id
        }
        return SessionRequest(self._id, self._epoch, changed, forgotten)

    def handle_response(self, session_id: int) -> None:
        self._session_partitions = self._building
        self._id = session_id
        if session_id == NO_SESSION:
            self._epoch = INITIAL_EPOCH
        else:
            self._epoch = 1 if self._epoch == _LAST_EPOCH else self._epoch + 1

    def handle_error(self, *, forget: bool = False) -> None:
        """Start over. `forget`: the broker does not know our session; else the next request
        replaces it.
        """
        self._epoch = INITIAL_EPOCH
        self._session_partitions = {}
        if forget:
            self._id = NO_SESSION
