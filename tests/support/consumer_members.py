"""Members of consumer groups (KIP-848) in virtual time; members.py has the rest of a member."""

from __future__ import annotations

import uuid
from typing import Any

from kserver.errors import ErrorCode, KafkaError
from kserver.group.consumer_events import (
    JOINING_EPOCH,
    LEFT_EPOCH,
    STATIC_LEFT_EPOCH,
    TopicIdPartition,
)
from kserver.group.consumer_requests import ConsumerHeartbeat, ConsumerHeartbeatResult
from tests.support.history import Partition
from tests.support.members import (
    AGAIN,
    BACKOFF_MS,
    GROUP,
    NOTHING_ASSIGNED,
    Member,
    Setting,
    fetch_request,
)

NOT_YET_MS = 1000
"""Time until a member whose instance id is in use tries again."""


class ConsumerMember(Member):
    """A member that revokes what is not assigned to it, reports this, and only then takes new
    partitions.
    """

    def __init__(self, setting: Setting, name: str) -> None:
        super().__init__(setting, name)
        self.member_id = str(uuid.UUID(int=self.time.random.getrandbits(128)))
        self.told = NOTHING_ASSIGNED
        self._heartbeats = 0
        """The number of the heartbeat loop that is active."""
        self.begin()

    def begin(self) -> None:
        """Join, for the first time or again."""
        self.let_go()
        self.generation = JOINING_EPOCH
        self.told = NOTHING_ASSIGNED
        self._says_all = True
        self._beat_again(0)

    def thrown_out(self) -> None:
        self.begin()

    def outdated(self) -> None:
        self.begin()

    def leave(self) -> None:
        epoch = LEFT_EPOCH if self.instance_id is None else STATIC_LEFT_EPOCH
        request = self._request()._replace(epoch=epoch, owned=None)
        self.crash()
        self.ask(request, lambda _: None)

    def fetch_request(self, partitions: tuple[Partition, ...]) -> Any:
        return fetch_request(partitions)

    def _beat_again(self, ms: float) -> None:
        self._heartbeats += 1
        self.process.after(ms, self._beat, self._heartbeats)

    def _request(self) -> ConsumerHeartbeat:
        all_said = self._says_all or self.generation == JOINING_EPOCH
        owned = frozenset(TopicIdPartition(_topic_id(topic), n) for topic, n in self.owned)
        return ConsumerHeartbeat(
            GROUP,
            self.member_id,
            self.generation,
            self.name,
            "/1.2.3.4",
            instance_id=self.instance_id,
            rebalance_ms=self.setting.limits.rebalance_ms if all_said else -1,
            topics=("t",) if all_said else None,
            owned=owned,
        )

    def _beat(self, loop: int) -> None:
        if loop != self._heartbeats:
            return

        def told(answer: Any) -> None:
            if loop != self._heartbeats:
                return
            if isinstance(answer, KafkaError):
                self._refused(answer.code)
            else:
                self._heard(answer)

        self.ask(self._request(), told, may_repeat=False)

    def _heard(self, answer: ConsumerHeartbeatResult) -> None:
        self._says_all = False
        if answer.assigned is not None:
            self.told = frozenset(("t", one.partition) for one in answer.assigned)
        kept = self.owned & self.told
        owned = self.told if kept == self.owned else kept
        has_changed = owned != self.owned
        if has_changed or answer.epoch != self.generation:
            self.take(answer.epoch, owned)
        # It reports revoked and added partitions at once.
        self._beat_again(1 if has_changed else answer.heartbeat_interval_ms)

    def _refused(self, code: ErrorCode) -> None:
        match code:
            case _ if code in AGAIN:
                self._says_all = True
                self._beat_again(BACKOFF_MS)
            case ErrorCode.unreleased_instance_id:
                self._beat_again(NOT_YET_MS)
            case (
                ErrorCode.fenced_member_epoch
                | ErrorCode.unknown_member_id
                | ErrorCode.group_id_not_found
            ):
                self.begin()
            case ErrorCode.fenced_instance_id | ErrorCode.group_max_size_reached:
                self.crash()
            case _:
                raise AssertionError(code)


def _topic_id(topic: str) -> uuid.UUID:
    return uuid.uuid5(uuid.NAMESPACE_DNS, topic)
