"""Members of groups in virtual time: the clients' side of both protocols as small state machines.

    ClassicMember     JoinGroup, SyncGroup, Heartbeat; revokes all its partitions to join again
    ConsumerMember    ConsumerGroupHeartbeat (KIP-848); revokes what its assignment lacks

They read their partitions, each from its committed offset on, commit as they go, and record their
observations in a history.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID

from kserver.errors import ErrorCode, KafkaError
from kserver.group import requests
from kserver.group.consumer_events import (
    JOINING_EPOCH,
    LEFT_EPOCH,
    STATIC_LEFT_EPOCH,
    TopicIdPartition,
)
from kserver.group.consumer_requests import ConsumerHeartbeat
from tests.support.history import (
    Assigned,
    Committed,
    Event,
    Fetched,
    Gone,
    Joined,
    Partition,
    Result,
)
from tests.support.virtual import (
    Line,
    VirtualCoordinator,
    VirtualNetwork,
    VirtualProcess,
    VirtualTime,
)

GROUP = "g"
TIMEOUT_MS = 2000
BACKOFF_MS = 100
NOTHING_ASSIGNED: frozenset[Partition] = frozenset()
AGAIN = {
    ErrorCode.network_exception,
    ErrorCode.not_coordinator,
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available,
}


class Limits(NamedTuple):
    session_ms: int = 10_000
    rebalance_ms: int = 10_000
    heartbeat_ms: int = 3000
    commit_ms: int = 1000


class Setting(NamedTuple):
    """State that the members of a group share."""

    time: VirtualTime
    network: VirtualNetwork
    coordinator: VirtualCoordinator[Any]
    history: list[Event]
    partitions: tuple[Partition, ...]
    limits: Limits


class Member:
    """A member with a unique `name`; the part before a # is its instance id."""

    def __init__(self, setting: Setting, name: str) -> None:
        self.setting = setting
        self.name = name
        instance_id, is_static, _ = name.partition("#")
        self.instance_id = instance_id if is_static else None
        self.member_id = requests.NO_MEMBER
        self.generation = -1
        self.owned = NOTHING_ASSIGNED
        self.process = VirtualProcess(setting.time)
        self._positions: dict[Partition, int] = {}
        self._line = Line()
        self._round = 0
        """Grows with each assignment: operations that began under the one before are ignored."""
        self.note(Joined(self.time.now_s, GROUP, name))

    @property
    def time(self) -> VirtualTime:
        return self.setting.time

    def note(self, event: Event) -> None:
        self.setting.history.append(event)

    # Faults

    def crash(self) -> None:
        self.process.is_alive = False
        if not self.process.is_asleep:
            self.note(Gone(self.time.now_s, GROUP, self.name))

    def sleep(self) -> None:
        self.process.is_asleep = True
        self.note(Gone(self.time.now_s, GROUP, self.name))

    def wake(self) -> None:
        self.note(Joined(self.time.now_s, GROUP, self.name))
        self.process.wake()

    # Requests

    def ask(
        self,
        request: Any,
        told: Callable[[Any], None],
        *,
        timeout_ms: int = TIMEOUT_MS,
        may_repeat: bool = True,
    ) -> None:
        self.setting.network.call(
            self._line,
            self.setting.coordinator.ask,
            request,
            lambda answer: self.process.do(told, answer),
            timeout_ms=timeout_ms,
            may_repeat=may_repeat,
        )

    # Assignment

    def take(self, generation: int, partitions: frozenset[Partition]) -> None:
        """Own these partitions from now on."""
        self._round += 1
        self.generation = generation
        gained = partitions - self.owned
        self.owned = partitions
        self._positions = {p: at for p, at in self._positions.items() if p in partitions}
        self.note(Assigned(self.time.now_s, GROUP, self.name, generation, partitions))
        if gained:
            self._fetch(self._round, tuple(sorted(gained)))
        elif partitions:
            self.process.after(self._pause_ms(), self._commit, self._round)

    def let_go(self) -> None:
        if self.owned:
            self.take(self.generation, NOTHING_ASSIGNED)
        self._round += 1

    def _pause_ms(self) -> float:
        return self.time.random.uniform(0.5, 1.5) * self.setting.limits.commit_ms

    def _fetch(self, round_: int, partitions: tuple[Partition, ...]) -> None:
        """Fetch the offsets to begin at."""
        if round_ != self._round:
            return
        since = len(self.setting.history)

        def told(answer: Any) -> None:
            if isinstance(answer, KafkaError):
                self.process.after(BACKOFF_MS, self._fetch, round_, partitions)
                return
            found = _offsets(answer)
            for partition in partitions:
                self.note(Fetched(self.time.now_s, since, GROUP, partition, found[partition]))
            if round_ == self._round:
                self._positions |= {p: max(found[p], 0) for p in partitions}
                self.process.after(self._pause_ms(), self._commit, round_)

        self.ask(self.fetch_request(partitions), told)

    def fetch_request(self, partitions: tuple[Partition, ...]) -> Any:
        return fetch_request(partitions)

    def _commit(self, round_: int) -> None:
        """Advance the positions, and commit them."""
        if round_ != self._round:
            return
        random = self.time.random
        moved = [p for p in sorted(self._positions) if random.random() < 0.7]
        for partition in moved:
            self._positions[partition] += random.randrange(1, 10)
        if not moved:
            self.process.after(self._pause_ms(), self._commit, round_)
            return
        generation, since = self.generation, len(self.setting.history)
        offsets = [self._positions[partition] for partition in moved]

        def note(answer: Any) -> None:
            """Record the response, whether or not the member still waits for it."""
            codes = answer if isinstance(answer, list) else [answer] * len(moved)
            for partition, offset, code in zip(moved, offsets, codes, strict=True):
                self.note(
                    Committed(
                        self.time.now_s,
                        since,
                        GROUP,
                        self.name,
                        generation,
                        partition,
                        offset,
                        _result(code),
                    )
                )
            self.process.do(told, answer)

        def told(answer: Any) -> None:
            code = answer.code if isinstance(answer, KafkaError) else None
            codes = answer if isinstance(answer, list) else [code]
            if round_ != self._round:
                return
            if ErrorCode.fenced_instance_id in codes:
                self.crash()
            elif ErrorCode.unknown_member_id in codes:
                self.thrown_out()
            elif ErrorCode.illegal_generation in codes:
                self.outdated()
            else:
                self.process.after(self._pause_ms(), self._commit, round_)

        commits = [
            requests.Commit(topic, requests.NO_TOPIC_ID, partition, offset, -1, "")
            for (topic, partition), offset in zip(moved, offsets, strict=True)
        ]
        request = requests.CommitOffsets(
            GROUP, generation, self.member_id, self.instance_id, commits
        )
        # A repeated commit is harmless to a client, except for the order: it must not overtake the
        # next one.
        self.setting.network.call(
            self._line,
            self.setting.coordinator.ask,
            request,
            note,
            timeout_ms=TIMEOUT_MS,
            may_repeat=False,
        )

    def thrown_out(self) -> None:
        raise NotImplementedError

    def outdated(self) -> None:
        raise NotImplementedError


class ClassicMember(Member):
    def __init__(self, setting: Setting, name: str) -> None:
        super().__init__(setting, name)
        self._heartbeats = 0
        """The number of the heartbeat loop that is active."""
        self.is_joining = False
        self.begin()

    def begin(self) -> None:
        """Join, for the first time or again; give up the assignment first."""
        if self.is_joining:
            return
        self.is_joining = True
        self._heartbeats += 1
        self.let_go()
        self._join()

    def thrown_out(self) -> None:
        self.member_id = requests.NO_MEMBER
        self.begin()

    def outdated(self) -> None:
        self.begin()

    def leave(self) -> None:
        self.crash()
        leaving = requests.LeavingMember(self.member_id, self.instance_id)
        if self.member_id:
            self.ask(requests.LeaveGroup(GROUP, [leaving]), lambda _: None)

    def _join(self) -> None:
        limits = self.setting.limits
        request = requests.JoinGroup(
            GROUP,
            self.member_id,
            self.instance_id,
            self.name,
            "/1.2.3.4",
            limits.session_ms,
            limits.rebalance_ms,
            "consumer",
            (("range", b""),),
        )
        self.ask(request, self._joined, timeout_ms=limits.rebalance_ms + TIMEOUT_MS)

    def _joined(self, answer: Any) -> None:
        if isinstance(answer, KafkaError):
            self.process.after(BACKOFF_MS, self._join)
            return
        match answer.error:
            case ErrorCode.none:
                self.member_id, self.generation = answer.member_id, answer.generation
                assignments = self._shares(answer) if answer.members else {}
                self._sync(answer.generation, assignments)
            case ErrorCode.member_id_required:
                self.member_id = answer.member_id
                self._join()
            case ErrorCode.unknown_member_id:
                self.member_id = requests.NO_MEMBER
                self.process.after(BACKOFF_MS, self._join)
            case ErrorCode.fenced_instance_id | ErrorCode.group_max_size_reached:
                self.crash()
            case ErrorCode.rebalance_in_progress:
                self.process.after(BACKOFF_MS, self._join)
            case code:
                raise AssertionError(code)

    def _shares(self, answer: requests.JoinGroupResult) -> dict[str, bytes]:
        """Assign the partitions in turn, by the order of the members."""
        shares: dict[str, list[Partition]] = {member.id: [] for member in answer.members}
        ids = sorted(shares)
        for at, partition in enumerate(self.setting.partitions):
            shares[ids[at % len(ids)]].append(partition)
        return {member: json.dumps(owned).encode() for member, owned in shares.items()}

    def _sync(self, generation: int, assignments: dict[str, bytes]) -> None:
        request = requests.SyncGroup(
            GROUP, generation, self.member_id, self.instance_id, "consumer", "range", assignments
        )
        self.ask(request, self._synced, timeout_ms=self.setting.limits.rebalance_ms + TIMEOUT_MS)

    def _synced(self, answer: Any) -> None:
        self.is_joining = False
        if isinstance(answer, requests.SyncGroupResult):
            owned = json.loads(answer.assignment or b"[]")
            self.take(self.generation, frozenset((topic, n) for topic, n in owned))
            self._heartbeats += 1
            self.process.after(self.setting.limits.heartbeat_ms, self._heartbeat, self._heartbeats)
        elif answer.code in AGAIN:
            self.process.after(BACKOFF_MS, self.begin)
        else:
            self._refused(answer.code)

    def _refused(self, code: ErrorCode) -> None:
        match code:
            case ErrorCode.unknown_member_id:
                self.thrown_out()
            case ErrorCode.illegal_generation | ErrorCode.rebalance_in_progress:
                self.begin()
            case ErrorCode.fenced_instance_id:
                self.crash()
            case _:
                raise AssertionError(code)

    def _heartbeat(self, loop: int) -> None:
        if loop != self._heartbeats:
            return

        def told(answer: Any) -> None:
            if loop != self._heartbeats:
                return
            if isinstance(answer, KafkaError) and answer.code not in AGAIN:
                self._refused(answer.code)
            else:
                self.process.after(self.setting.limits.heartbeat_ms, self._heartbeat, loop)

        self.ask(requests.Heartbeat(GROUP, self.generation, self.member_id, self.instance_id), told)


class ConsumerMember(Member):
    def __init__(self, setting: Setting, name: str) -> None:
        super().__init__(setting, name)
        topic = setting.coordinator.image.topics["t"]
        self._topic_id = topic.id
        self._is_told_all = False
        """Whether the coordinator has responded to the full state."""
        self.begin()

    def begin(self) -> None:
        """Join under a new random member id."""
        self.member_id = str(UUID(int=self.time.random.getrandbits(128)))
        self._join()

    def _join(self) -> None:
        self.let_go()
        self.generation = JOINING_EPOCH
        self._is_told_all = False
        self._heartbeat()

    def thrown_out(self) -> None:
        """Do nothing: its heartbeats fail as well, and join again."""

    outdated = thrown_out

    def leave(self) -> None:
        self.crash()
        epoch = LEFT_EPOCH if self.instance_id is None else STATIC_LEFT_EPOCH
        self.ask(self._said(epoch), lambda _: None)

    def fetch_request(self, partitions: tuple[Partition, ...]) -> Any:
        return fetch_request(partitions, self.member_id, self.generation)

    def _said(self, epoch: int) -> ConsumerHeartbeat:
        request = ConsumerHeartbeat(
            GROUP, self.member_id, epoch, self.name, "/1.2.3.4", self.instance_id
        )
        if self._is_told_all:
            return request
        owned = frozenset(TopicIdPartition(self._topic_id, n) for _, n in self.owned)
        return request._replace(
            rebalance_ms=self.setting.limits.rebalance_ms, topics=("t",), owned=owned
        )

    def _heartbeat(self) -> None:
        # A request that arrives late a second time could be answered with partitions, and the
        # response ignored: the protocol relies on one heartbeat after the other.
        self.ask(self._said(self.generation), self._heard, may_repeat=False)

    def _heard(self, answer: Any) -> None:
        if isinstance(answer, KafkaError):
            self._is_told_all = False
            self._refused(answer.code)
            return
        self._is_told_all = True
        self.generation = answer.epoch
        owned = self.owned
        if answer.assigned is not None:
            owned = frozenset(("t", one.partition) for one in answer.assigned)
        if owned == self.owned:
            self.process.after(self.setting.limits.heartbeat_ms, self._heartbeat)
        else:
            self.take(answer.epoch, owned)
            self._is_told_all = False
            self.process.after(1, self._heartbeat)  # it has reconciled

    def _refused(self, code: ErrorCode) -> None:
        match code:
            case ErrorCode.fenced_member_epoch | ErrorCode.unknown_member_id:
                self._join()
            case ErrorCode.fenced_instance_id | ErrorCode.group_max_size_reached:
                self.crash()
            case ErrorCode.unreleased_instance_id:
                self.process.after(self.setting.limits.heartbeat_ms, self._heartbeat)
            case _ if code in AGAIN:
                self.process.after(BACKOFF_MS, self._heartbeat)
            case _:
                raise AssertionError(code)


def fetch_request(
    partitions: tuple[Partition, ...], member_id: str | None = None, epoch: int = -1
) -> requests.FetchOffsets:
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return requests.FetchOffsets(GROUP, list(topics.items()), True, member_id, epoch)


def _offsets(answer: Any) -> dict[Partition, int]:
    found = {}
    for topic, offsets in answer:
        for one in offsets:
            assert one.error is ErrorCode.none, one
            found[topic, one.partition] = one.offset
    return found


def _result(code: Any) -> Result:
    """A coordinator that moved may have written it before."""
    if isinstance(code, KafkaError) and code.code in AGAIN:
        return Result.UNKNOWN
    return Result.OK if code is ErrorCode.none else Result.REFUSED
