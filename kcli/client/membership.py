"""Membership: a consumer's part in a classic group; it joins, syncs, beats, leaves.

What a member does with its partitions happens within the reader's `poll`, as with Java's client:
only there are they taken from it or given to it, and what listens to that is called.  The requests
themselves, and heartbeats, go on beside it.  So between two polls nothing changes under the reader;
one that does not poll for max.poll.interval.ms leaves the group, and learns at its next poll that
it has lost what it had.

    eager         before it joins, a member gives everything back; nobody reads until all have
    cooperative   it keeps what it has, reads on, and gives up only what moves to another; that one
                  gets it in a rebalance that follows (KIP-429)

States and the meaning of answers: `member.py`.  Kafka: ConsumerCoordinator, AbstractCoordinator.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple, Protocol

from kcli.client.assignors import Assignor, cooperates
from kcli.client.commits import LEFT_BEHIND, REBALANCING
from kcli.client.config import ConsumerConfig
from kcli.client.consumer_metadata import ConsumerMetadata
from kcli.client.errors import CommitFailed, RebalanceInProgress
from kcli.client.group_coordinator import GroupCoordinator, Line, is_passing
from kcli.client.group_metadata import GroupMetadata
from kcli.client.group_protocol import (
    PROTOCOL_TYPE,
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from kcli.client.member import (
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    OFFSET_COMMIT,
    SYNC_GROUP,
    ClassicMemberCore,
    ClassicMemberState,
    Generation,
    MemberAction,
)
from kserver.errors import ErrorCode, KafkaError, ProtocolError
from kserver.model import TopicPartition

# LeaveGroup takes many members from here on, static ones too (KIP-345).
LEAVE_MANY = 3
# How much longer than the rebalance itself its answer may take.
GRACE_MS = 5000
LEAVE_WITHIN_S = 5.0
SETTLE_WITHIN_S = 5.0

POLLED_TOO_LATE = "consumer poll timeout has expired."

_logger = logging.getLogger(__name__)


class Owner(Protocol):
    """Whose partitions they are: what happens to them in the reader's poll."""

    def owned(self) -> tuple[TopicPartition, ...]:
        """What was given last."""

    def settle(self) -> asyncio.Task[None] | None:
        """Commit what was read, before others get it; None where there is nothing to commit."""

    async def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Read exactly these; those that stay are read on."""

    async def revoke(self, partitions: Collection[TopicPartition]) -> None:
        """Give these up in good order."""

    async def lose(self, partitions: Collection[TopicPartition]) -> None:
        """These may be others' by now."""


class Settling:
    """The commit of what was read before it is given up, over as many polls as it takes."""

    def __init__(self, owner: Owner, wake: Callable[[], object]) -> None:
        self._owner = owner
        self._wake = wake
        self.task: asyncio.Task[None] | None = None
        """While it is under way."""

    def is_done(self) -> bool:
        """Whether what was read is committed, as far as that can be; begun by the first call."""
        if self.task is None:
            self.task = self._owner.settle()
            if self.task is None:
                return True
            self.task.add_done_callback(lambda _: self._wake())
        if not self.task.done():
            return False
        self.task = None
        return True


class JoinedGroup(NamedTuple):
    """What a rebalance has led to."""

    identity: Generation
    assignor: Assignor
    assignment: bytes


class Membership:
    """`wake` is called when `poll` has something to do."""

    def __init__(
        self,
        config: ConsumerConfig,
        coordinator: GroupCoordinator,
        assignors: Sequence[Assignor],
        consumer_metadata: ConsumerMetadata,
        owner: Owner,
        wake: Callable[[], object],
    ) -> None:
        self._config = config
        self._coordinator = coordinator
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self._cooperative = cooperates(assignors)
        self._consumer_metadata = consumer_metadata
        self._owner = owner
        self._wake = wake
        self._loop = asyncio.get_running_loop()
        self._member = ClassicMemberCore(config.group_instance_id)
        self._assigned_as = self._member.identity
        """The identity that what is owned was assigned to: once the member is lost, or has joined
        anew between two polls, the coordinator fences what is committed by it."""
        self._topics: tuple[str, ...] = ()
        """What was subscribed to when it joined last."""
        self._group_topics: list[str] = []
        self._shared_out: dict[str, int] | None = None
        """What a leader has shared out: what the whole group subscribes to, and how many partitions
        that had."""
        self._settling = Settling(owner, wake)
        self._joining: asyncio.Task[JoinedGroup | None] | None = None
        self._beating: asyncio.Task[None] | None = None
        self._has_joined = asyncio.Event()
        self._is_polling = False
        self._polled_at = self._heard_at = self._loop.time()
        self._failure: KafkaError | None = None

    # Who it is

    def metadata(self) -> GroupMetadata:
        return self._told_as(self._assigned_as)

    def _told_as(self, identity: Generation) -> GroupMetadata:
        return GroupMetadata(self._coordinator.group_id, *identity, self._config.group_instance_id)

    def looking_up_as(self) -> GroupMetadata:
        """Nobody's identity: a member in a rebalance may ask, too."""
        return GroupMetadata(self._coordinator.group_id)

    def committing_as(self) -> GroupMetadata:
        match self._member.state:
            case ClassicMemberState.STABLE:
                return self._told_as(self._member.identity)
            case ClassicMemberState.UNJOINED:
                raise CommitFailed(LEFT_BEHIND)
        raise RebalanceInProgress(REBALANCING)

    def judge(self, code: ErrorCode, asked: GroupMetadata) -> MemberAction:
        identity = Generation(asked.generation_id, asked.member_id)
        means = self._member.answered(OFFSET_COMMIT, code, identity)
        if means in (MemberAction.REJOIN, MemberAction.UNKNOWN, MemberAction.STALE):
            self._wake()
        return means

    # In the reader's poll

    def polling(self, now: bool) -> None:
        """Whether the reader waits in poll from now on: then it is not late."""
        self._is_polling = now
        self._polled_at = self._loop.time()

    def request_rejoin(self, reason: str) -> None:
        self._member.request_rejoin(reason)

    async def poll(self) -> bool:
        """Go on with what there is to do; whether what is owned may be read meanwhile.

        KafkaError for what keeps it out of the group, and whatever a listener raises.
        """
        member = self._member
        if self._failure is not None:
            raise self._failure
        while True:
            if member.is_lost:
                member.lost_is_told()
                self._settling.task = None
                if owned := self._owner.owned():
                    await self._owner.lose(owned)
                continue
            if self._joining is None:
                topics = self._consumer_metadata.topics()
                self._notice_changes(topics)
                if member.rejoin is None or not self._consumer_metadata.is_known:
                    return True
                if not self._settling.is_done():
                    return self._cooperative
                if await self._gave_back(topics):
                    continue
                self._start_joining(topics)
            assert self._joining is not None
            if not self._joining.done():
                return True
            joining, self._joining = self._joining, None
            joined = joining.result()
            if joined is not None and joined.identity == member.identity:
                await self._complete(joined)

    def _notice_changes(self, topics: tuple[str, ...]) -> None:
        if self._member.state is not ClassicMemberState.STABLE:
            return
        if topics != self._topics:
            self._member.request_rejoin("subscription has changed")
        elif self._shared_out not in (None, self._consumer_metadata.counts(self._group_topics)):
            self._member.request_rejoin("cached metadata has changed")

    async def _gave_back(self, topics: tuple[str, ...]) -> bool:
        """What is to be given up before joining."""
        owned = self._owner.owned()
        revoked = [p for p in owned if not self._cooperative or p.topic not in topics]
        if revoked:
            await self._owner.revoke(revoked)
        return bool(revoked)

    def _start_joining(self, topics: tuple[str, ...]) -> None:
        self._member.prepare()
        self._topics = topics
        self._consumer_metadata.unwatch()
        self._shared_out = None
        self._joining = self._loop.create_task(self._join(topics, self._owner.owned()))
        self._joining.add_done_callback(lambda _: self._wake())
        if self._beating is None:
            self._beating = self._loop.create_task(self._keep_beating())

    async def _complete(self, joined: JoinedGroup) -> None:
        """Take over what the leader has given."""
        self._assigned_as = joined.identity
        partitions = sorted(read_assignment(joined.assignment))
        if not {p.topic for p in partitions} <= set(self._topics):
            self._member.request_rejoin(
                "received assignment does not match the current subscription"
            )
            return
        owned = self._owner.owned()
        if self._cooperative and (revoked := sorted({*owned} - {*partitions})):
            self._member.request_rejoin("need to revoke partitions and re-join")
            if (settling := self._owner.settle()) is not None:
                await asyncio.wait([settling], timeout=SETTLE_WITHIN_S)
            await self._owner.revoke(revoked)
            if self._member.is_lost:
                return
        joined.assignor.assigned(partitions, joined.identity.generation)
        await self._owner.assign(partitions)

    # Joining

    async def _join(
        self, topics: tuple[str, ...], owned: tuple[TopicPartition, ...]
    ) -> JoinedGroup | None:
        """Until the group is stable with it; None where it was reset meanwhile."""
        tries = 0
        while True:
            try:
                means, joined = await self._join_once(topics, owned)
            except (OSError, KafkaError) as error:
                if not is_passing(error):
                    self._member.reset(f"rebalance failed: {error}"[:255])
                    raise
                _logger.info("joining group %s: %s", self._coordinator.group_id, error)
                means, joined = MemberAction.AGAIN, None
            match means:
                case MemberAction.DONE:
                    return joined
                case MemberAction.PAST | MemberAction.UNKNOWN | MemberAction.STALE:
                    return None
                case MemberAction.MOVED:
                    self._coordinator.lost("it has moved")
            if means is not MemberAction.NEW_ID:
                tries += 1
                await self._coordinator.cluster.pause(tries)
            self._member.prepare()

    async def _join_once(
        self, topics: tuple[str, ...], owned: tuple[TopicPartition, ...]
    ) -> tuple[MemberAction, JoinedGroup | None]:
        member, config = self._member, self._config
        asked = member.identity
        reason = (member.rejoin or "")[:255]

        def build(new: Any, version: int) -> Any:
            protocols = [
                new.protocols(name=name, metadata=self._subscription(topics, owned, assignor))
                for name, assignor in self._assignors.items()
            ]
            return new(
                group_id=self._coordinator.group_id,
                session_timeout=_ms(config.session_timeout_ms),
                rebalance_timeout=_ms(config.max_poll_interval_ms),
                member_id=asked.member_id,
                group_instance_id=member.instance_id,
                protocol_type=PROTOCOL_TYPE,
                protocols=protocols,
                reason=reason,
            )

        answer = await self._coordinator.call(JOIN_GROUP, build, line=Line.REBALANCE)
        means = member.answered(JOIN_GROUP, answer.error_code, asked)
        if means is MemberAction.NEW_ID:
            member.given_id(answer.member_id)
        if means is not MemberAction.DONE:
            return means, None
        if member.state is not ClassicMemberState.PREPARING:
            return MemberAction.PAST, None  # it was reset meanwhile, after a commit say
        kind = getattr(answer, "protocol_type", None) or PROTOCOL_TYPE
        assignor = self._assignors.get(answer.protocol_name or "")
        if kind != PROTOCOL_TYPE or assignor is None:
            raise KafkaError(
                ErrorCode.inconsistent_group_protocol,
                f"the group has chosen {answer.protocol_name} of {kind}",
            )
        member.joined(answer.generation_id, answer.member_id)
        self._heard_at = self._loop.time()
        self._has_joined.set()
        return await self._sync(answer, assignor)

    def _subscription(
        self, topics: tuple[str, ...], owned: tuple[TopicPartition, ...], assignor: Assignor
    ) -> bytes:
        return write_subscription(
            Subscription(
                topics,
                owned,
                self._member.identity.generation,
                self._config.client_rack or None,
                assignor.user_data(),
            )
        )

    async def _sync(
        self, answer: Any, assignor: Assignor
    ) -> tuple[MemberAction, JoinedGroup | None]:
        member = self._member
        asked = member.identity
        plan: list[tuple[str, bytes]] = []
        if answer.leader == asked.member_id:
            plan = await self._share_out(answer, assignor)

        def build(new: Any, version: int) -> Any:
            return new(
                group_id=self._coordinator.group_id,
                generation_id=asked.generation,
                member_id=asked.member_id,
                group_instance_id=member.instance_id,
                protocol_type=PROTOCOL_TYPE,
                protocol_name=answer.protocol_name,
                assignments=[new.assignments(member_id=m, assignment=data) for m, data in plan],
            )

        synced = await self._coordinator.call(SYNC_GROUP, build, line=Line.REBALANCE)
        means = member.answered(SYNC_GROUP, synced.error_code, asked)
        if means is not MemberAction.DONE:
            return means, None
        if member.identity != asked or member.state is not ClassicMemberState.COMPLETING:
            return MemberAction.PAST, None
        member.synced()
        return means, JoinedGroup(asked, assignor, synced.assignment)

    async def _share_out(self, answer: Any, assignor: Assignor) -> list[tuple[str, bytes]]:
        """The leader's part."""
        members = {
            m.member_id: read_subscription(m.metadata, getattr(m, "group_instance_id", None))
            for m in answer.members
        }
        self._group_topics = sorted({topic for one in members.values() for topic in one.topics})
        await self._consumer_metadata.watch(self._group_topics)
        counts = self._consumer_metadata.counts(self._group_topics)
        self._shared_out = counts
        if getattr(answer, "skip_assignment", False):
            # A static leader that came back: what was shared out still holds (KIP-814).
            return []
        plan = assignor.assign(counts, members)
        return [(member, write_assignment(plan.get(member, ()))) for member in members]

    # Beating

    async def _keep_beating(self) -> None:
        beat_at = 0.0
        tries = 0
        while True:
            if not self._member.beats:
                self._has_joined.clear()
                await self._has_joined.wait()
                beat_at = self._loop.time() + self._config.heartbeat_interval_ms / 1000
            late_at = self._polled_at + self._config.max_poll_interval_ms / 1000
            if self._is_polling:
                late_at = beat_at
            now = self._loop.time()
            if (wait := min(beat_at, late_at) - now) > 0:
                await asyncio.sleep(wait)
                continue
            if not self._is_polling and now >= late_at:
                _logger.warning(
                    "consumer poll timeout has expired: the time between polls was longer than "
                    "max.poll.interval.ms; the group is left"
                )
                await self._leave(POLLED_TOO_LATE)
                self._wake()
                continue
            try:
                await self._beat()
                tries = 0
                pause = self._config.heartbeat_interval_ms / 1000
            except (OSError, KafkaError, ProtocolError) as error:
                if isinstance(error, KafkaError) and not is_passing(error):
                    self._failure = error
                    self._wake()
                    return
                tries += 1
                pause = self._coordinator.cluster.backoff(tries)
                if self._loop.time() - self._heard_at > self._config.session_timeout_ms / 1000:
                    self._coordinator.lost("it was not heard within session.timeout.ms")
                    self._heard_at = self._loop.time()
            beat_at = self._loop.time() + pause

    async def _beat(self) -> None:
        member = self._member
        asked = member.identity

        def build(new: Any, version: int) -> Any:
            return new(
                group_id=self._coordinator.group_id,
                generation_id=asked.generation,
                member_id=asked.member_id,
                group_instance_id=member.instance_id,
            )

        answer = await self._coordinator.call(HEARTBEAT, build)
        self._heard_at = self._loop.time()
        match member.answered(HEARTBEAT, answer.error_code, asked):
            case MemberAction.MOVED:
                self._coordinator.lost(answer.error_code.name)
                raise KafkaError(ErrorCode.coordinator_not_available)
            case MemberAction.AGAIN:
                raise KafkaError(answer.error_code)
            case MemberAction.REJOIN | MemberAction.UNKNOWN | MemberAction.STALE:
                self._wake()

    # Leaving

    async def close(self, reason: str) -> None:
        """Leave the group; what it owned is no concern of this."""
        under_way = (self._joining, self._beating, self._settling.task)
        tasks = [task for task in under_way if task is not None]
        for task in tasks:
            task.cancel()
        # What they may have failed with is of no more metadata.
        await asyncio.gather(*tasks, return_exceptions=True)
        self._joining = self._beating = self._settling.task = None
        await self._leave(reason)
        self._member.lost_is_told()

    async def _leave(self, reason: str) -> None:
        """A static member only falls silent: it may come back within its session."""
        member = self._member
        member_id = member.identity.member_id
        member.reset(reason)
        if member.instance_id is not None or not member_id or self._coordinator.node is None:
            return

        def build(new: Any, version: int) -> Any:
            leaving = [new.members(member_id=member_id, reason=reason)]
            return new(group_id=self._coordinator.group_id, member_id=member_id, members=leaving)

        try:
            async with asyncio.timeout(LEAVE_WITHIN_S):
                await self._coordinator.call(LEAVE_GROUP, build)
        except (OSError, KafkaError, ProtocolError) as error:
            _logger.info("leaving group %s: %s", self._coordinator.group_id, error)


def _ms(value: int) -> datetime.timedelta:
    return datetime.timedelta(milliseconds=value)
