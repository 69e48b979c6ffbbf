"""Commits: commits a group's offsets at its coordinator, and fetches them.

`commit` retries until default.api.timeout.ms, `attempt` tries once. The member's identity is sent
along, so a member that missed a rebalance is fenced. CommitFailed is raised if its partitions
belong to others now, RebalanceInProgress if they may soon; the next poll finds out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Protocol, TypeVar

from kcli.client.config import ConsumerConfig
from kcli.client.errors import CommitFailed, RebalanceInProgress
from kcli.client.group.group_coordinator import GroupCoordinator
from kcli.client.group.group_descriptions import CommittedOffset
from kcli.client.group.group_metadata import GroupMetadata
from kcli.client.group.member import ClassicMemberCore, Generation, MemberAction
from kserver.errors import ErrorCode, KafkaError
from kserver.model import TopicPartition
from kserver.wire.api_key import ApiKey

T = TypeVar("T")

# Later versions have topic ids instead of names.
BY_NAME = 9
# First version of OffsetFetch with several groups (KIP-709) and the member's identity (KIP-848).
MANY_GROUPS = 8

LEFT_BEHIND = (
    "Offset commit cannot be completed since the consumer is not part of an active group for "
    "automatic partition assignment; it is likely that the consumer was kicked out of the group."
)
REBALANCING = (
    "Offset commit cannot be completed since the consumer is undergoing a rebalance for auto "
    "partition assignment. You can try completing the rebalance by calling poll() and then retry "
    "the operation."
)


class Committer(Protocol):
    """The group member, or consumer without one, for which offsets are committed."""

    def lookup_identity(self) -> GroupMetadata: ...

    def commit_identity(self) -> GroupMetadata:
        """Return the identity to commit as. Raises CommitFailed or RebalanceInProgress while it may
        not.
        """

    def action_after(self, code: ErrorCode, metadata: GroupMetadata) -> MemberAction:
        """Return the action after an error for `metadata`. Raises KafkaError if it is fatal."""


class NoMember:
    """A consumer that assigns itself: only an empty group accepts its offsets."""

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id

    def lookup_identity(self) -> GroupMetadata:
        return GroupMetadata(self._group_id)

    def commit_identity(self) -> GroupMetadata:
        return GroupMetadata(self._group_id)

    def action_after(self, code: ErrorCode, metadata: GroupMetadata) -> MemberAction:
        return ClassicMemberCore().handle_response(ApiKey.OFFSET_COMMIT, code, Generation())


class Commits:
    def __init__(self, config: ConsumerConfig, coordinator: GroupCoordinator) -> None:
        self._config = config
        self._coordinator = coordinator
        self._cluster = coordinator.cluster
        self.committer: Committer = NoMember(coordinator.group_id)

    async def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Commit offsets. Raises CommitFailed, RebalanceInProgress, KafkaError or TimedOut."""
        await self._until_done("commitSync", lambda: self.attempt(offsets))

    async def committed(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, CommittedOffset | None]:
        """Return the committed offsets, None where there is none."""
        return await self._until_done("committed", lambda: self.look_up(partitions))

    async def _until_done(self, call: str, attempt: Callable[[], Awaitable[T]]) -> T:
        deadline = self._cluster.deadline(self._config.default_api_timeout_ms)
        return await self._cluster.retry(call, deadline, attempt)

    async def attempt(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Commit once, without retries. Raises like `commit`, and OSError or a retriable
        KafkaError.
        """
        if not offsets:
            return
        identity = self.committer.commit_identity()

        def build(new: Any, version: int) -> Any:
            topics: dict[str, list[Any]] = defaultdict(list)
            for (topic, partition), offset in offsets.items():
                topics[topic].append(
                    new.topics.partitions(
                        partition_index=partition,
                        committed_offset=offset.offset,
                        committed_leader_epoch=(
                            -1 if offset.leader_epoch is None else offset.leader_epoch
                        ),
                        committed_metadata=offset.metadata,
                    )
                )
            return new(
                group_id=identity.group_id,
                # The field's name before KIP-848, and since.
                generation_id=identity.generation_id,
                generation_id_or_member_epoch=identity.generation_id,
                member_id=identity.member_id,
                group_instance_id=identity.group_instance_id,
                topics=[new.topics(name=name, partitions=of) for name, of in topics.items()],
            )

        response = await self._coordinator.call(ApiKey.OFFSET_COMMIT, build, at_most=BY_NAME)
        for topic in response.topics:
            for p in topic.partitions:
                if p.error_code != ErrorCode.none:
                    self._handle_partition_error(
                        p.error_code, TopicPartition(topic.name, p.partition_index), identity
                    )

    def _handle_partition_error(
        self, code: ErrorCode, partition: TopicPartition, identity: GroupMetadata
    ) -> None:
        what = f"committing an offset of {partition}"
        try:
            action = self.committer.action_after(code, identity)
        except KafkaError as error:
            raise KafkaError(code, what) from error
        match action:
            case MemberAction.AGAIN:
                again = code if code.retriable else ErrorCode.coordinator_load_in_progress
                raise KafkaError(again, f"{what}: {code.name}")
            case MemberAction.MOVED:
                self._coordinator.mark_unknown(code.name)
                raise KafkaError(ErrorCode.coordinator_not_available)
            case MemberAction.REJOIN:
                raise RebalanceInProgress(REBALANCING)
            case MemberAction.PAST:
                self.committer.commit_identity()
                raise CommitFailed(LEFT_BEHIND)
            case MemberAction.UNKNOWN | MemberAction.STALE:
                raise CommitFailed(LEFT_BEHIND)

    async def look_up(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, CommittedOffset | None]:
        """Fetch committed offsets once, without retries. Raises a retriable KafkaError while a
        transaction with offsets of a partition is open (require_stable).
        """
        if not partitions:
            return {}
        identity = self.committer.lookup_identity()

        def build(new: Any, version: int) -> Any:
            many = version >= MANY_GROUPS
            kind = (new.groups if many else new).topics
            topics: dict[str, list[int]] = defaultdict(list)
            for topic, partition in partitions:
                topics[topic].append(partition)
            topic_requests = [kind(name=name, partition_indexes=of) for name, of in topics.items()]
            if not many:
                return new(group_id=identity.group_id, topics=topic_requests, require_stable=True)
            group = new.groups(
                group_id=identity.group_id,
                member_id=identity.member_id or None,
                member_epoch=identity.generation_id,
                topics=topic_requests,
            )
            return new(groups=[group], require_stable=True)

        response = await self._coordinator.call(ApiKey.OFFSET_FETCH, build, at_most=BY_NAME)
        group = response.groups[0] if hasattr(response, "groups") else response
        self._check(getattr(group, "error_code", ErrorCode.none), f"group {identity.group_id}")
        committed_offsets: dict[TopicPartition, CommittedOffset | None] = dict.fromkeys(partitions)
        for topic in group.topics:
            for p in topic.partitions:
                partition = TopicPartition(topic.name, p.partition_index)
                self._check(p.error_code, f"the committed offset of {partition}")
                if p.committed_offset >= 0:
                    epoch = getattr(p, "committed_leader_epoch", -1)
                    committed_offsets[partition] = CommittedOffset(
                        p.committed_offset, None if epoch < 0 else epoch, p.metadata or ""
                    )
        return committed_offsets

    def _check(self, code: ErrorCode, what: str) -> None:
        if code == ErrorCode.none:
            return
        if code in (ErrorCode.not_coordinator, ErrorCode.coordinator_not_available):
            self._coordinator.mark_unknown(code.name)
        if code in (ErrorCode.stale_member_epoch, ErrorCode.unknown_member_id):
            # The next heartbeat will bring another epoch.
            raise KafkaError(ErrorCode.coordinator_load_in_progress, what)
        raise KafkaError(code, what)
