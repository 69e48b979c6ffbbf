"""Group: the membership and commits of a consumer with a group.id.

With `assign` a group is only a name to commit offsets under. With `subscribe` its members share the
partitions, by one of two protocols (group.protocol): `membership.py` or `consumer_group.py`. This
module has the parts of the consumer that both need.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from random import Random
from typing import Protocol

from kcli.client.cluster import Cluster
from kcli.client.config import ConsumerConfig
from kcli.client.consumer.consumer_metadata import ConsumerMetadata, SubscriptionPattern
from kcli.client.consumer.listener import RebalanceListener
from kcli.client.consumer.subscription import SubscriptionState
from kcli.client.errors import ClientError
from kcli.client.group.assignors import Assignor
from kcli.client.group.commits import Commits, Committer, NoMember
from kcli.client.group.group_coordinator import GroupCoordinator, is_transient
from kcli.client.group.group_descriptions import CommittedOffset
from kcli.client.group.group_metadata import GroupMetadata
from kcli.client.group.membership import GRACE_MS, Membership
from kserver.errors import KafkaError, ProtocolError
from kserver.model import TopicPartition

CLOSED = "the consumer is being closed"
UNSUBSCRIBED = "the consumer unsubscribed from all topics"
CLOSE_WITHIN_S = 30.0

_logger = logging.getLogger(__name__)


class GroupMembership(Committer, Protocol):
    """Membership in a group, by either protocol."""

    def metadata(self) -> GroupMetadata: ...

    def set_polling(self, now: bool) -> None: ...

    def request_rejoin(self, reason: str) -> None: ...

    async def poll(self) -> bool: ...

    async def close(self, reason: str) -> None: ...


class ConsumerCoordinator:
    """`on_reassignment` is called when the assignment changes, `wake` when `poll` has work."""

    def __init__(
        self,
        config: ConsumerConfig,
        cluster: Cluster,
        subscription: SubscriptionState,
        assignors: Sequence[Assignor],
        *,
        on_reassignment: Callable[[], object],
        wake: Callable[[], object],
        random: Random,
    ) -> None:
        assert config.group_id is not None
        self._config = config
        self._subscription = subscription
        self._on_reassignment = on_reassignment
        self._wake = wake
        self._random = random
        self._loop = asyncio.get_running_loop()
        self._coordinator = GroupCoordinator(
            cluster, config.group_id, config.max_poll_interval_ms + GRACE_MS
        )
        self._assignors = assignors
        self.commits = Commits(config, self._coordinator)
        self._consumer_metadata = ConsumerMetadata(config, cluster, wake)
        self._watching: asyncio.Task[None] | None = None
        self._member: GroupMembership | None = None
        self._listener = RebalanceListener()
        self._committing: set[asyncio.Task[None]] = set()
        self._commits_itself = config.enable_auto_commit
        self._autocommit: asyncio.Task[None] | None = None
        self._autocommit_at = float("inf")
        self._autocommit_in(config.auto_commit_interval_ms)

    # Subscription

    @property
    def is_subscribed(self) -> bool:
        return self._member is not None

    def topics(self) -> tuple[str, ...]:
        return self._consumer_metadata.topics() if self.is_subscribed else ()

    def subscribe(
        self,
        names: Iterable[str],
        pattern: re.Pattern[str] | SubscriptionPattern | None,
        listener: RebalanceListener | None,
    ) -> None:
        if isinstance(pattern, SubscriptionPattern) and not self._by_coordinator:
            raise ClientError(
                "Subscribing to a SubscriptionPattern is not supported when using the CLASSIC "
                "protocol: group.protocol=consumer does"
            )
        self._listener = listener or RebalanceListener()
        self._consumer_metadata.subscribe(names, pattern)
        if self._watching is None:
            self._watching = self._loop.create_task(self._consumer_metadata.run())
        if self._member is None:
            self._member = self._new_member()
            self.commits.committer = self._member
        self._wake()

    @property
    def _by_coordinator(self) -> bool:
        """Whether the coordinator assigns partitions (KIP-848)."""
        return self._config.group_protocol.lower() == "consumer"

    def _new_member(self) -> GroupMembership:
        if self._by_coordinator:
            from kcli.client.group.consumer_group import ConsumerMembership

            return ConsumerMembership(
                self._config,
                self._coordinator,
                self._consumer_metadata,
                self,
                self._wake,
                self._random,
            )
        return Membership(
            self._config,
            self._coordinator,
            self._assignors,
            self._consumer_metadata,
            self,
            self._wake,
        )

    async def unsubscribe(self, reason: str = UNSUBSCRIBED) -> None:
        """Revoke all partitions and leave; errors of the listener are raised after that."""
        member = self._member
        if member is None:
            return
        try:
            await self._give_up_all(member)
        finally:
            self._member = None
            self.commits.committer = NoMember(self._coordinator.group_id)
            if self._watching is not None:
                self._watching.cancel()
                await asyncio.wait([self._watching])
                self._watching = None
            await member.close(reason)

    async def _give_up_all(self, member: GroupMembership) -> None:
        if not (owned := self.owned_partitions()):
            return
        try:
            member.commit_identity()
        except ClientError:
            await self.lose(owned)
        else:
            await self.revoke(owned)

    def metadata(self) -> GroupMetadata:
        return (
            self.commits.committer.commit_identity()
            if self._member is None
            else self._member.metadata()
        )

    def request_rejoin(self, reason: str) -> None:
        if self._member is not None:
            self._member.request_rejoin(reason)
            self._wake()

    # In the reader's poll

    def set_polling(self, now: bool) -> None:
        if self._member is not None:
            self._member.set_polling(now)

    async def poll(self) -> bool:
        """Return whether owned partitions may be read now."""
        if self._member is not None and not await self._member.poll():
            return False
        if self._commits_itself and self._loop.time() >= self._autocommit_at:
            self._begin_autocommit()
        return True

    async def close(self) -> None:
        """Commit the positions, if enable.auto.commit is set, and leave."""
        try:
            async with asyncio.timeout(CLOSE_WITHIN_S):
                if (settling := self.settle()) is not None:
                    await asyncio.wait([settling])
                if self._committing:
                    await asyncio.wait(self._committing)
        except TimeoutError:
            _logger.warning("offsets could not be committed in time")
        try:
            await self.unsubscribe(CLOSED)
        finally:
            for task in self._committing:
                task.cancel()
            await self._coordinator.close()

    # Changes of the assignment

    def owned_partitions(self) -> tuple[TopicPartition, ...]:
        return self._subscription.partitions()

    async def assign(self, partitions: Sequence[TopicPartition]) -> None:
        before = set(self.owned_partitions())
        self._subscription.assign(partitions, recall=True)
        self._on_reassignment()
        self._autocommit_in(self._config.auto_commit_interval_ms)
        _logger.info("assigned %s", partitions)
        await _notify(self._listener.on_assigned, [p for p in partitions if p not in before])

    async def revoke(self, partitions: Collection[TopicPartition]) -> None:
        _logger.info("revoking %s", partitions)
        try:
            await _notify(self._listener.on_revoked, sorted(partitions))
        finally:
            self._drop(partitions)

    async def lose(self, partitions: Collection[TopicPartition]) -> None:
        _logger.warning("lost %s", partitions)
        try:
            await _notify(self._listener.on_lost, sorted(partitions))
        finally:
            self._drop(partitions)

    def _drop(self, partitions: Collection[TopicPartition]) -> None:
        lost_partitions = set(partitions)
        self._subscription.assign(
            [p for p in self.owned_partitions() if p not in lost_partitions], recall=True
        )
        self._on_reassignment()

    # Commits

    def positions_to_commit(self) -> dict[TopicPartition, CommittedOffset]:
        """Return the positions as offsets to commit."""
        return {
            state.partition: CommittedOffset(
                state.position, None if state.epoch < 0 else state.epoch
            )
            for state in self._subscription
            if state.position is not None
        }

    async def commit(self, offsets: Mapping[TopicPartition, CommittedOffset] | None) -> None:
        await self._wait_for_earlier_commits()
        await self.commits.commit(self.positions_to_commit() if offsets is None else offsets)

    def commit_async(
        self, offsets: Mapping[TopicPartition, CommittedOffset] | None
    ) -> asyncio.Task[None]:
        task = self._in_background(
            self.commits.attempt(self.positions_to_commit() if offsets is None else offsets)
        )
        task.add_done_callback(_log_failure)
        return task

    async def _wait_for_earlier_commits(self) -> None:
        """Wait for earlier commits, so that they cannot overtake this one."""
        if self._committing:
            await asyncio.wait(self._committing)

    def _in_background(self, work: Awaitable[None]) -> asyncio.Task[None]:
        async def working() -> None:
            await work

        task = self._loop.create_task(working())
        self._committing.add(task)
        task.add_done_callback(self._committing.discard)
        return task

    def settle(self) -> asyncio.Task[None] | None:
        """Start to commit the positions, if enable.auto.commit is set. The task ends by
        default.api.timeout.ms and raises nothing.
        """
        offsets = self.positions_to_commit()
        if not self._commits_itself or not offsets:
            return None
        return self._in_background(self._commit_or_warn(offsets))

    async def _commit_or_warn(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        try:
            await self.commits.commit(offsets)
        except (KafkaError, ProtocolError, ClientError) as error:
            _logger.warning("offset commit failed: %s", error)

    def _begin_autocommit(self) -> None:
        if self._autocommit is not None and not self._autocommit.done():
            return
        if offsets := self.positions_to_commit():
            self._autocommit = self._in_background(self._commit_automatically(offsets))
        self._autocommit_in(self._config.auto_commit_interval_ms)

    def _autocommit_in(self, ms: float) -> None:
        """Schedule the next autocommit; it runs within a poll, which is woken for it, or the next
        one.
        """
        if self._commits_itself:
            self._autocommit_at = self._loop.time() + ms / 1000
            self._loop.call_at(self._autocommit_at, self._wake)

    async def _commit_automatically(
        self, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> None:
        try:
            await self.commits.attempt(offsets)
        except (OSError, KafkaError, ProtocolError, ClientError) as error:
            _logger.info("offset commit failed, will retry: %s", error)
            if is_transient(error):
                self._autocommit_in(self._config.retry_backoff_ms)


def _log_failure(task: asyncio.Task[None]) -> None:
    """Log a failed background commit: the caller may not look at the task."""
    if not task.cancelled() and (error := task.exception()) is not None:
        _logger.warning("offset commit failed: %s", error)


async def _notify(
    listen: Callable[[Sequence[TopicPartition]], Awaitable[None] | None],
    partitions: Sequence[TopicPartition],
) -> None:
    outcome = listen(partitions)
    if inspect.isawaitable(outcome):
        await outcome
