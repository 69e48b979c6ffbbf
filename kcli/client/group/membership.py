"""Membership: a consumer's membership in a classic group: JoinGroup, SyncGroup, Heartbeat,
LeaveGroup.

As in Java's client, partitions are assigned and revoked, and listeners called, only within the
reader's `poll`. The requests themselves, and heartbeats, run in the background. So between two
polls nothing changes for the reader. A member that does not poll for max.poll.interval.ms leaves
the group, and at its next poll its partitions are lost.

    eager         before it joins, a member revokes all its partitions; no member reads until all
                  have joined
    cooperative   it keeps its partitions, reads on, and revokes only those that move to another
                  member, which gets them in a following rebalance (KIP-429)

States and the meaning of errors: `member.py`. Kafka: ConsumerCoordinator, AbstractCoordinator.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple, Protocol

from kcli.client.config import ConsumerConfig
from kcli.client.consumer.consumer_metadata import ConsumerMetadata
from kcli.client.errors import CommitFailed, RebalanceInProgress
from kcli.client.group.assignors import Assignor, cooperates
from kcli.client.group.commits import LEFT_BEHIND, REBALANCING
from kcli.client.group.group_coordinator import (
    CoordinatorConnection,
    GroupCoordinator,
    is_transient,
)
from kcli.client.group.group_metadata import GroupMetadata
from kcli.client.group.group_protocol import (
    PROTOCOL_TYPE,
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from kcli.client.group.member import ClassicMemberCore, ClassicMemberState, Generation, MemberAction
from kserver.errors import ErrorCode, KafkaError, ProtocolError
from kserver.model import TopicPartition
from kserver.wire.api_key import ApiKey

# First version of LeaveGroup with several members, static ones too (KIP-345).
LEAVE_MANY = 3
# How much longer than the rebalance itself its response may take.
GRACE_MS = 5000
LEAVE_WITHIN_S = 5.0
SETTLE_WITHIN_S = 5.0

POLLED_TOO_LATE = "consumer poll timeout has expired."

_logger = logging.getLogger(__name__)


class Owner(Protocol):
    """The consumer that owns the partitions: their changes within the reader's poll."""

    def owned_partitions(self) -> tuple[TopicPartition, ...]:
        """Return the partitions assigned last."""

    def settle(self) -> asyncio.Task[None] | None:
        """Commit positions before others get the partitions; None if there is nothing to commit."""

    async def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Read exactly these partitions; those assigned before keep their positions."""

    async def revoke(self, partitions: Collection[TopicPartition]) -> None:
        """Revoke these partitions; their offsets can still be committed."""

    async def lose(self, partitions: Collection[TopicPartition]) -> None:
        """Lose these partitions, which others may own by now."""


class Settling:
    """The commit of positions before partitions are revoked, over as many polls as it takes."""

    def __init__(self, owner: Owner, wake: Callable[[], object]) -> None:
        self._owner = owner
        self._wake = wake
        self.task: asyncio.Task[None] | None = None
        """The commit while it is under way."""

    def is_done(self) -> bool:
        """Return whether positions are committed as far as possible; the first call begins the
        commit.
        """
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
    """The outcome of a rebalance."""

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
        """The generation that owned partitions were assigned in. Once the member is lost, or has
        joined again between two polls, the coordinator fences commits with it.
        """
        self._topics: tuple[str, ...] = ()
        """The subscribed topics at the last join."""
        self._group_topics: list[str] = []
        self._shared_out: dict[str, int] | None = None
        """Partition counts of all topics of the group at the last assignment; None unless leader.
        """
        self._settling = Settling(owner, wake)
        self._join_task: asyncio.Task[JoinedGroup | None] | None = None
        self._heartbeats: asyncio.Task[None] | None = None
        self._has_joined = asyncio.Event()
        self._is_polling = False
        self._polled_at = self._last_response_at = self._loop.time()
        self._failure: KafkaError | None = None

    # Identity

    def metadata(self) -> GroupMetadata:
        return self._metadata_as(self._assigned_as)

    def _metadata_as(self, identity: Generation) -> GroupMetadata:
        return GroupMetadata(self._coordinator.group_id, *identity, self._config.group_instance_id)

    def lookup_identity(self) -> GroupMetadata:
        """Return the identity to fetch offsets as: none, so that it works during a rebalance."""
        return GroupMetadata(self._coordinator.group_id)

    def commit_identity(self) -> GroupMetadata:
        match self._member.state:
            case ClassicMemberState.STABLE:
                return self._metadata_as(self._member.identity)
            case ClassicMemberState.UNJOINED:
                raise CommitFailed(LEFT_BEHIND)
        raise RebalanceInProgress(REBALANCING)

    def action_after(self, code: ErrorCode, metadata: GroupMetadata) -> MemberAction:
        identity = Generation(metadata.generation_id, metadata.member_id)
        action = self._member.handle_response(ApiKey.OFFSET_COMMIT, code, identity)
        if action in (MemberAction.REJOIN, MemberAction.UNKNOWN, MemberAction.STALE):
            self._wake()
        return action

    # In the reader's poll

    def set_polling(self, now: bool) -> None:
        """Note that the reader is inside or outside of poll; inside it, max.poll.interval.ms does
        not apply.
        """
        self._is_polling = now
        self._polled_at = self._loop.time()

    def request_rejoin(self, reason: str) -> None:
        self._member.request_rejoin(reason)

    async def poll(self) -> bool:
        """Join, revoke or assign as needed; return whether owned partitions may be read meanwhile.

        Raises KafkaError if the member cannot be in the group, and any error of a listener.
        """
        member = self._member
        if self._failure is not None:
            raise self._failure
        while True:
            if member.is_lost:
                member.acknowledge_loss()
                self._settling.task = None
                if owned := self._owner.owned_partitions():
                    await self._owner.lose(owned)
                continue
            if self._join_task is None:
                topics = self._consumer_metadata.topics()
                self._notice_changes(topics)
                if member.rejoin is None or not self._consumer_metadata.is_known:
                    return True
                if not self._settling.is_done():
                    return self._cooperative
                if await self._revoke_before_join(topics):
                    continue
                self._start_join(topics)
            assert self._join_task is not None
            if not self._join_task.done():
                return True
            join_task, self._join_task = self._join_task, None
            joined = join_task.result()
            if joined is not None and joined.identity == member.identity:
                await self._complete(joined)

    def _notice_changes(self, topics: tuple[str, ...]) -> None:
        if self._member.state is not ClassicMemberState.STABLE:
            return
        if topics != self._topics:
            self._member.request_rejoin("subscription has changed")
        elif self._shared_out not in (None, self._consumer_metadata.counts(self._group_topics)):
            self._member.request_rejoin("cached metadata has changed")

    async def _revoke_before_join(self, topics: tuple[str, ...]) -> bool:
        """Revoke the partitions that have to be before joining; return whether there were any."""
        owned = self._owner.owned_partitions()
        revoked = [p for p in owned if not self._cooperative or p.topic not in topics]
        if revoked:
            await self._owner.revoke(revoked)
        return bool(revoked)

    def _start_join(self, topics: tuple[str, ...]) -> None:
        self._member.prepare()
        self._topics = topics
        self._consumer_metadata.unwatch()
        self._shared_out = None
        self._join_task = self._loop.create_task(self._join(topics, self._owner.owned_partitions()))
        self._join_task.add_done_callback(lambda _: self._wake())
        if self._heartbeats is None:
            self._heartbeats = self._loop.create_task(self._run_heartbeats())

    async def _complete(self, joined: JoinedGroup) -> None:
        """Apply the assignment of a rebalance."""
        self._assigned_as = joined.identity
        partitions = sorted(read_assignment(joined.assignment))
        if not {p.topic for p in partitions} <= set(self._topics):
            self._member.request_rejoin(
                "received assignment does not match the current subscription"
            )
            return
        owned = self._owner.owned_partitions()
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
        """Join until the group is stable; return None if the member was reset meanwhile."""
        tries = 0
        while True:
            try:
                action, joined = await self._join_once(topics, owned)
            except (OSError, KafkaError) as error:
                if not is_transient(error):
                    self._member.reset(f"rebalance failed: {error}"[:255])
                    raise
                _logger.info("joining group %s: %s", self._coordinator.group_id, error)
                action, joined = MemberAction.AGAIN, None
            match action:
                case MemberAction.DONE:
                    return joined
                case MemberAction.PAST | MemberAction.UNKNOWN | MemberAction.STALE:
                    return None
                case MemberAction.MOVED:
                    self._coordinator.mark_unknown("it has moved")
            if action is not MemberAction.NEW_ID:
                tries += 1
                await self._coordinator.cluster.pause(tries)
            if self._member.state is ClassicMemberState.UNJOINED:
                return None  # a heartbeat has reset it: `owned` is lost
            self._member.prepare()

    async def _join_once(
        self, topics: tuple[str, ...], owned: tuple[TopicPartition, ...]
    ) -> tuple[MemberAction, JoinedGroup | None]:
        member, config = self._member, self._config
        identity = member.identity
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
                member_id=identity.member_id,
                group_instance_id=member.instance_id,
                protocol_type=PROTOCOL_TYPE,
                protocols=protocols,
                reason=reason,
            )

        response = await self._coordinator.call(
            ApiKey.JOIN_GROUP, build, line=CoordinatorConnection.REBALANCE
        )
        action = member.handle_response(ApiKey.JOIN_GROUP, response.error_code, identity)
        if action is MemberAction.NEW_ID:
            member.set_member_id(response.member_id)
        if action is not MemberAction.DONE:
            return action, None
        if member.state is not ClassicMemberState.PREPARING:
            return MemberAction.PAST, None  # it was reset meanwhile, for example after a commit
        kind = getattr(response, "protocol_type", None) or PROTOCOL_TYPE
        assignor = self._assignors.get(response.protocol_name or "")
        if kind != PROTOCOL_TYPE or assignor is None:
            raise KafkaError(
                ErrorCode.inconsistent_group_protocol,
                f"the group has chosen {response.protocol_name} of {kind}",
            )
        member.on_join(response.generation_id, response.member_id)
        self._last_response_at = self._loop.time()
        self._has_joined.set()
        return await self._sync(response, assignor)

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
        self, response: Any, assignor: Assignor
    ) -> tuple[MemberAction, JoinedGroup | None]:
        member = self._member
        identity = member.identity
        plan: list[tuple[str, bytes]] = []
        if response.leader == identity.member_id:
            plan = await self._assign_as_leader(response, assignor)

        def build(new: Any, version: int) -> Any:
            return new(
                group_id=self._coordinator.group_id,
                generation_id=identity.generation,
                member_id=identity.member_id,
                group_instance_id=member.instance_id,
                protocol_type=PROTOCOL_TYPE,
                protocol_name=response.protocol_name,
                assignments=[new.assignments(member_id=m, assignment=data) for m, data in plan],
            )

        synced = await self._coordinator.call(
            ApiKey.SYNC_GROUP, build, line=CoordinatorConnection.REBALANCE
        )
        action = member.handle_response(ApiKey.SYNC_GROUP, synced.error_code, identity)
        if action is not MemberAction.DONE:
            return action, None
        if member.identity != identity or member.state is not ClassicMemberState.COMPLETING:
            return MemberAction.PAST, None
        member.on_sync()
        return action, JoinedGroup(identity, assignor, synced.assignment)

    async def _assign_as_leader(self, response: Any, assignor: Assignor) -> list[tuple[str, bytes]]:
        """Assign the partitions, as the leader of the group."""
        members = {
            m.member_id: read_subscription(m.metadata, getattr(m, "group_instance_id", None))
            for m in response.members
        }
        self._group_topics = sorted(
            {topic for subscription in members.values() for topic in subscription.topics}
        )
        await self._consumer_metadata.watch(self._group_topics)
        counts = self._consumer_metadata.counts(self._group_topics)
        self._shared_out = counts
        if getattr(response, "skip_assignment", False):
            # A static leader rejoined: the present assignment still holds (KIP-814).
            return []
        plan = assignor.assign(counts, members)
        return [(member, write_assignment(plan.get(member, ()))) for member in members]

    # Beating

    async def _run_heartbeats(self) -> None:
        beat_at = 0.0
        tries = 0
        while True:
            if not self._member.sends_heartbeats:
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
                await self._send_heartbeat()
                tries = 0
                pause = self._config.heartbeat_interval_ms / 1000
            except (OSError, KafkaError, ProtocolError) as error:
                if isinstance(error, KafkaError) and not is_transient(error):
                    self._failure = error
                    self._wake()
                    return
                tries += 1
                pause = self._coordinator.cluster.backoff(tries)
                if (
                    self._loop.time() - self._last_response_at
                    > self._config.session_timeout_ms / 1000
                ):
                    self._coordinator.mark_unknown("it was not heard within session.timeout.ms")
                    self._last_response_at = self._loop.time()
            beat_at = self._loop.time() + pause

    async def _send_heartbeat(self) -> None:
        member = self._member
        identity = member.identity

        def build(new: Any, version: int) -> Any:
            return new(
                group_id=self._coordinator.group_id,
                generation_id=identity.generation,
                member_id=identity.member_id,
                group_instance_id=member.instance_id,
            )

        response = await self._coordinator.call(ApiKey.HEARTBEAT, build)
        self._last_response_at = self._loop.time()
        match member.handle_response(ApiKey.HEARTBEAT, response.error_code, identity):
            case MemberAction.MOVED:
                self._coordinator.mark_unknown(response.error_code.name)
                raise KafkaError(ErrorCode.coordinator_not_available)
            case MemberAction.AGAIN:
                raise KafkaError(response.error_code)
            case MemberAction.REJOIN | MemberAction.UNKNOWN | MemberAction.STALE:
                self._wake()

    # Leaving

    async def close(self, reason: str) -> None:
        """Leave the group; owned partitions are revoked by the caller."""
        under_way = (self._join_task, self._heartbeats, self._settling.task)
        tasks = [task for task in under_way if task is not None]
        for task in tasks:
            task.cancel()
        # Ignore their errors: the member leaves anyway.
        await asyncio.gather(*tasks, return_exceptions=True)
        self._join_task = self._heartbeats = self._settling.task = None
        await self._leave(reason)
        self._member.acknowledge_loss()

    async def _leave(self, reason: str) -> None:
        """Send LeaveGroup, except for a static member: it may return within its session."""
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
                await self._coordinator.call(ApiKey.LEAVE_GROUP, build)
        except (OSError, KafkaError, ProtocolError) as error:
            _logger.info("leaving group %s: %s", self._coordinator.group_id, error)


def _ms(value: int) -> datetime.timedelta:
    return datetime.timedelta(milliseconds=value)
