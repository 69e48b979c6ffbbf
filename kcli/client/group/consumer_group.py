"""ConsumerMembership: a consumer's membership in a group with server-side assignment (KIP-848).

Its only request is the heartbeat: it carries the member's subscription and owned partitions; the
response carries its target assignment and the interval to the next heartbeat. Partitions are
revoked and assigned within the reader's `poll`, as with the classic protocol (`membership.py`), and
only those that move. States and the meaning of errors: `consumer_member.py`.
"""

from __future__ import annotations

import asyncio
import base64
import datetime
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, TypeAlias
from uuid import UUID

from kcli.client.config import ConsumerConfig
from kcli.client.consumer.consumer_metadata import ConsumerMetadata
from kcli.client.errors import CommitFailed
from kcli.client.group.commits import LEFT_BEHIND
from kcli.client.group.consumer_member import (
    COMMIT_MEANINGS,
    NOT_SUPPORTED,
    ConsumerMember,
    ConsumerMemberState,
    MemberDescription,
    Owned,
)
from kcli.client.group.group_coordinator import GroupCoordinator, is_transient
from kcli.client.group.group_metadata import GroupMetadata
from kcli.client.group.member import MemberAction
from kcli.client.group.membership import LEAVE_WITHIN_S, Owner, Settling
from kserver.errors import ErrorCode, KafkaError, ProtocolError
from kserver.model import TopicPartition
from kserver.wire.api_key import ApiKey

# First version of ConsumerGroupHeartbeat with regular expressions.
WITH_REGEX = 1
REGEX_NOT_SUPPORTED = (
    "The cluster does not support resolution of SubscriptionPattern on the broker side."
)

AssignedPartitions: TypeAlias = dict[tuple[UUID, int], TopicPartition]

_logger = logging.getLogger(__name__)


class ConsumerMembership:
    """`wake` is called when `poll` has something to do."""

    def __init__(
        self,
        config: ConsumerConfig,
        coordinator: GroupCoordinator,
        consumer_metadata: ConsumerMetadata,
        owner: Owner,
        wake: Callable[[], object],
        random: Random,
    ) -> None:
        self._config = config
        self._coordinator = coordinator
        self._consumer_metadata = consumer_metadata
        self._owner = owner
        self._wake = wake
        self._loop = asyncio.get_running_loop()
        id = base64.urlsafe_b64encode(random.randbytes(16)).decode().rstrip("=")
        self._member = ConsumerMember(id, self._member_description())
        self._last_epoch = -1
        self._partitions: AssignedPartitions = {}
        self._news = asyncio.Event()
        self._settling = Settling(owner, wake)
        self._heartbeats: asyncio.Task[None] | None = None
        self._is_polling = False
        self._polled_at = self._loop.time()
        self._failure: KafkaError | None = None

    def _member_description(self) -> MemberDescription:
        config = self._config
        return MemberDescription(
            self._consumer_metadata.topics(),
            self._consumer_metadata.regex,
            config.group_instance_id,
            config.client_rack or None,
            config.group_remote_assignor,
            config.max_poll_interval_ms,
        )

    # Identity

    def metadata(self) -> GroupMetadata:
        """Return the identity with the member's last epoch: once lost, commits with it are
        fenced.
        """
        return GroupMetadata(
            self._coordinator.group_id,
            self._last_epoch,
            self._member.member_id,
            self._config.group_instance_id,
        )

    def lookup_identity(self) -> GroupMetadata:
        """Return the identity to fetch offsets as: the epoch of a member is checked, but without
        one anybody may fetch.
        """
        if not self._member.is_member:
            return GroupMetadata(self._coordinator.group_id)
        return self.metadata()

    def commit_identity(self) -> GroupMetadata:
        if not self._member.is_member:
            raise CommitFailed(LEFT_BEHIND)
        return self.metadata()

    def action_after(self, code: ErrorCode, metadata: GroupMetadata) -> MemberAction:
        action = COMMIT_MEANINGS.get(code, MemberAction.FATAL)
        if action is MemberAction.FATAL:
            raise KafkaError(code)
        return action

    # In the reader's poll

    def set_polling(self, now: bool) -> None:
        """Note that the reader is inside or outside of poll; inside it, max.poll.interval.ms does
        not apply.
        """
        self._is_polling = now
        self._polled_at = self._loop.time()

    def request_rejoin(self, reason: str) -> None:
        """Do nothing: the coordinator alone decides on rebalances."""

    async def poll(self) -> bool:
        """Join, revoke or assign as needed; return whether owned partitions may be read meanwhile.

        Raises KafkaError if the member cannot be in the group, and any error of a listener.
        """
        member = self._member
        if self._failure is not None:
            raise self._failure
        if not self._consumer_metadata.is_known:
            return True
        while True:
            if member.state is ConsumerMemberState.LOST:
                self._settling.task = None
                self._partitions = {}
                if owned := self._owner.owned_partitions():
                    await self._owner.lose(owned)
                member.acknowledge_loss()
            member.subscribe(self._member_description())
            if self._heartbeats is None:
                self._heartbeats = self._loop.create_task(self._run_heartbeats())
            if member.has_news:
                self._news.set()
            if member.state is not ConsumerMemberState.RECONCILING:
                return True
            by_id = self._consumer_metadata.names_by_id()
            target = {
                (id, n): TopicPartition(by_id[id], n) for id, n in member.target if id in by_id
            }
            if target.keys() == member.owned:
                # The others belong to topics whose names are not known yet.
                self._consumer_metadata.look()
                return True
            if not self._is_settled(target):
                return False
            await self._reconcile(target)

    def _is_settled(self, target: AssignedPartitions) -> bool:
        """Whether offsets are committed, as needed before partitions are revoked."""
        if self._settling.task is None and self._member.owned <= target.keys():
            return True
        return self._settling.is_done()

    async def _reconcile(self, target: AssignedPartitions) -> None:
        """Revoke and assign partitions up to `target`. Partitions of a topic that was deleted and
        created again are other partitions, since `target` has topic ids.
        """
        if revoked := [p for key, p in self._partitions.items() if key not in target]:
            await self._owner.revoke(revoked)
        if self._member.state is not ConsumerMemberState.RECONCILING:
            return
        self._partitions = target
        self._member.update_owned(target)
        self._news.set()
        await self._owner.assign(sorted(target.values()))

    # Beating

    async def _run_heartbeats(self) -> None:
        tries = 0
        beat_at = self._loop.time()
        while True:
            late_at = self._polled_at + self._config.max_poll_interval_ms / 1000
            if self._is_polling or self._member.state is ConsumerMemberState.LOST:
                late_at = beat_at
            now = self._loop.time()
            if (wait := min(beat_at, late_at) - now) > 0:
                self._news.clear()
                try:
                    async with asyncio.timeout(wait):
                        await self._news.wait()
                except TimeoutError:
                    continue
                if tries == 0:
                    beat_at = self._loop.time()
                continue
            if self._member.state is ConsumerMemberState.LOST:
                # The reader has to lose its partitions before the member joins again.
                self._news.clear()
                await self._news.wait()
                beat_at = self._loop.time()
                continue
            if not self._is_polling and now >= late_at:
                _logger.warning(
                    "consumer poll timeout has expired: the time between polls was longer than "
                    "max.poll.interval.ms; the group is left"
                )
                await self._leave()
                self._wake()
                continue
            try:
                pause = await self._send_heartbeat()
                tries = 0
            except (OSError, KafkaError, ProtocolError) as error:
                self._member.reset_sent_fields()
                if isinstance(error, KafkaError) and not is_transient(error):
                    self._failure = error
                    self._wake()
                    return
                _logger.debug("heartbeat: %s", error)
                tries += 1
                pause = self._coordinator.cluster.backoff(tries)
            beat_at = self._loop.time() + pause

    async def _send_heartbeat(self) -> float:
        """Send a heartbeat and return the seconds until the next is due."""
        member = self._member
        fields = member.heartbeat()
        member.on_heartbeat_sent(fields)
        response = await self._call(fields)
        match member.handle_response(response.error_code, fields, response.error_message):
            case MemberAction.MOVED:
                self._coordinator.mark_unknown(response.error_code.name)
                raise KafkaError(ErrorCode.coordinator_not_available)
            case MemberAction.AGAIN:
                raise KafkaError(response.error_code)
            case MemberAction.DONE:
                assignment = response.assignment and _owned(response.assignment.topic_partitions)
                member_id = response.member_id or member.member_id
                member.apply_response(fields, response.member_epoch, member_id, assignment)
                if member.is_member:
                    self._last_epoch = member.epoch
        if member.state in (ConsumerMemberState.RECONCILING, ConsumerMemberState.LOST):
            self._wake()
        if member.has_news:
            return 0
        interval: datetime.timedelta = response.heartbeat_interval
        return interval.total_seconds()

    async def _call(self, fields: dict[str, Any]) -> Any:
        if not await self._coordinator.knows(ApiKey.CONSUMER_GROUP_HEARTBEAT):
            raise KafkaError(ErrorCode.unsupported_version, NOT_SUPPORTED)
        if fields.get("regex") and not await self._coordinator.knows(
            ApiKey.CONSUMER_GROUP_HEARTBEAT, WITH_REGEX
        ):
            raise KafkaError(ErrorCode.unsupported_version, REGEX_NOT_SUPPORTED)

        def build(new: Any, version: int) -> Any:
            owned = fields.get("owned")
            return new(
                group_id=self._coordinator.group_id,
                member_id=fields["member_id"],
                member_epoch=fields["member_epoch"],
                instance_id=fields.get("instance_id"),
                rack_id=fields.get("rack_id"),
                rebalance_timeout=datetime.timedelta(
                    milliseconds=fields.get("rebalance_timeout_ms", -1)
                ),
                subscribed_topic_names=fields.get("topics"),
                subscribed_topic_regex=fields.get("regex"),
                server_assignor=fields.get("server_assignor"),
                topic_partitions=None if owned is None else _by_topic(new, owned),
            )

        return await self._coordinator.call(ApiKey.CONSUMER_GROUP_HEARTBEAT, build)

    # Leaving

    async def close(self, reason: str) -> None:
        """Leave the group; owned partitions are revoked by the caller."""
        tasks = [task for task in (self._heartbeats, self._settling.task) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._heartbeats = self._settling.task = None
        await self._leave()

    async def _leave(self) -> None:
        member = self._member
        was_member = member.is_member
        fields = member.leave()
        member.lose()
        if not was_member or self._coordinator.node is None:
            return
        try:
            async with asyncio.timeout(LEAVE_WITHIN_S):
                await self._call(fields)
        except (OSError, KafkaError, ProtocolError) as error:
            _logger.info("leaving group %s: %s", self._coordinator.group_id, error)


def _owned(topic_partitions: Iterable[Any]) -> Owned:
    return frozenset((t.topic_id, n) for t in topic_partitions for n in t.partitions)


def _by_topic(new: Any, owned: Owned) -> list[Any]:
    topics: dict[UUID, list[int]] = defaultdict(list)
    for id, n in sorted(owned):
        topics[id].append(n)
    return [new.topic_partitions(topic_id=id, partitions=of) for id, of in topics.items()]
