"""Committed offsets: the last one of each group and partition, and those of open transactions.

    commit             an offset is stored; it expires by the rule of its group (KIP-211)
    in a transaction   it is pending until the transaction is committed; meanwhile clients that
                       require stable offsets get an error and retry (KIP-447)
    topic deleted      its offsets are deleted, also if it was recreated under another id

Pure: requests, events and times go in.  (Kafka: OffsetMetadataManager.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from uuid import UUID

from kserver.config.broker import BrokerConfig
from kserver.config.setting import MINUTE_MS
from kserver.coordinator.shard import Step, Ticket, Transactional
from kserver.errors import ErrorCode, KafkaError
from kserver.group.events import OffsetCommitted, OffsetDeleted
from kserver.group.group import CommitCheck, Group
from kserver.group.requests import (
    NO_TOPIC_ID,
    CommitOffsets,
    CommitTransactionalOffsets,
    DeleteOffsets,
    FetchedOffset,
    FetchedOffsets,
    FetchOffsets,
)
from kserver.metadata import ClusterMetadata, TopicInfo
from kserver.metrics.meters import GroupMeters
from kserver.model import NO_PRODUCER_ID, NO_TIMESTAMP, ProducerId

StoredOffset = tuple[OffsetCommitted, int]
"""Committed offset and its sequence number among all commits."""
Topics = dict[str, dict[int, StoredOffset]]


class Offsets:
    def __init__(
        self,
        groups: Mapping[str, Group],
        config: Callable[[], BrokerConfig],
        meters: GroupMeters,
    ) -> None:
        self._groups = groups
        self._config = config
        self._meters = meters
        self._by_group: dict[str, Topics] = {}
        self._pending: dict[ProducerId, dict[str, Topics]] = {}
        """Pending offsets, by producer id and then by group."""
        self._open: dict[str, dict[ProducerId, None]] = {}
        """Producers with pending offsets, by group."""
        self._of_topic: dict[str, dict[str, None]] = {}
        """Groups with offsets of a topic, including pending ones, by topic."""
        self._topic_ids: dict[str, UUID] = {}
        """Topic ids by name, for which offsets of a deleted topic of the same name have been
        removed."""
        self._serial = 0

    def __len__(self) -> int:
        """Number of committed offsets, without pending ones."""
        return sum(len(p) for topics in self._by_group.values() for p in topics.values())

    # Queries

    @property
    def group_ids(self) -> set[str]:
        """Ids of groups with offsets, including pending ones."""
        return {*self._by_group, *self._open}

    def get(self, group_id: str, topic: str, partition: int) -> OffsetCommitted | None:
        stored = self._by_group.get(group_id, {}).get(topic, {}).get(partition)
        return None if stored is None else stored[0]

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Return whether an open transaction has a pending offset of this partition."""
        return any(
            partition in self._pending[producer][group_id].get(topic, ())
            for producer in self._open.get(group_id, ())
        )

    def fetch(self, request: FetchOffsets) -> FetchedOffsets:
        """Raises KafkaError if the member may not fetch offsets."""
        group = self._groups.get(request.group_id)
        if group is not None:
            group.check_fetch(request.member_id, request.member_epoch)
        topics = self._by_group.get(request.group_id, {})
        queries = request.topics
        if queries is None:
            queries = [(topic, list(partitions)) for topic, partitions in topics.items()]
        unstable = request.require_stable and request.group_id in self._open
        offsets_by_topic: list[tuple[str, list[FetchedOffset]]] = []
        for topic, indexes in queries:
            offsets = topics.get(topic, {})
            partitions = []
            for index in indexes:
                if unstable and self.is_pending(request.group_id, topic, index):
                    error = ErrorCode.unstable_offset_commit
                    partitions.append(FetchedOffset(index, error=error))
                elif (stored := offsets.get(index)) is None:
                    partitions.append(FetchedOffset(index))
                else:
                    event = stored[0]
                    partitions.append(
                        FetchedOffset(index, event.offset, event.leader_epoch, event.metadata)
                    )
            offsets_by_topic.append((topic, partitions))
        return offsets_by_topic

    # Requests

    def commit(self, request: CommitOffsets, ticket: Ticket, step: Step) -> None:
        """Raises KafkaError if the member may not commit."""
        group = self._groups.get(request.group_id)
        check = None
        if group is not None:
            check = group.check_commit(
                request.member_id,
                request.instance_id,
                request.generation,
                transactional=False,
                knows_stale_member_epoch=request.knows_stale_member_epoch,
            )
        elif request.generation >= 0:
            raise KafkaError(
                ErrorCode.group_id_not_found
                if request.knows_group_id_not_found
                else ErrorCode.illegal_generation
            )
        now_ms = step.now.wall_ms
        retention_ms = request.retention_ms
        expires_ms = NO_TIMESTAMP if retention_ms is None else now_ms + retention_ms
        self._write(request, check, expires_ms, ticket, step)

    def commit_in_transaction(
        self, request: CommitTransactionalOffsets, ticket: Ticket, step: Step
    ) -> None:
        """Raises KafkaError if the member may not commit."""
        if not request.group_id:
            raise KafkaError(ErrorCode.invalid_group_id)
        group = self._groups.get(request.group_id)
        check = None
        if group is not None:
            check = group.check_commit(
                request.member_id, request.instance_id, request.generation, transactional=True
            )
        elif request.generation >= 0:
            raise KafkaError(ErrorCode.illegal_generation)
        step.transactional = Transactional(request.producer_id, request.producer_epoch)
        self._write(request, check, NO_TIMESTAMP, ticket, step)

    def _write(
        self,
        request: CommitOffsets | CommitTransactionalOffsets,
        check: CommitCheck | None,
        expires_ms: int,
        ticket: Ticket,
        step: Step,
    ) -> None:
        limit = self._config().offset_metadata_max_bytes
        group = self._groups.get(request.group_id)
        # All offsets of a known group share one string for its id.
        group_id = request.group_id if group is None else group.id
        now_ms = step.now.wall_ms
        events = step.events
        errors = []
        for topic, topic_id, partition, offset, leader_epoch, metadata in request.commits:
            if metadata is not None and len(metadata) > limit:
                errors.append(ErrorCode.offset_metadata_too_large)
                continue
            if check is not None and (error := check(topic_id, partition)):
                errors.append(error)
                continue
            events.append(
                OffsetCommitted(
                    group_id,
                    topic,
                    partition,
                    offset,
                    leader_epoch,
                    metadata or "",
                    now_ms,
                    expires_ms,
                    topic_id,
                )
            )
            errors.append(ErrorCode.none)
        self._meters.offsets_committed += len(events)
        step.respond(ticket, errors)

    def delete(self, request: DeleteOffsets, ticket: Ticket, step: Step) -> None:
        """Raises KafkaError if the group does not exist, or has members that are not consumers."""
        if not request.group_id:
            raise KafkaError(ErrorCode.invalid_group_id)
        group = self._groups.get(request.group_id)
        if group is None:
            raise KafkaError(ErrorCode.group_id_not_found)
        group.check_offset_delete()
        errors = []
        for topic, partition in request.partitions:
            if group.is_subscribed_to(topic):
                errors.append(ErrorCode.group_subscribed_to_topic)
                continue
            errors.append(ErrorCode.none)
            if self.get(group.id, topic, partition) is not None or self.is_pending(
                group.id, topic, partition
            ):
                step.events.append(OffsetDeleted(group.id, topic, partition))
        self._meters.offsets_deleted += len(step.events)
        step.respond(ticket, errors)

    def all_deleted(self, group_id: str) -> Iterator[OffsetDeleted]:
        """Yield the events that delete all offsets of a group, including pending ones."""
        for topic, partitions in self._partitions_of(group_id).items():
            for partition in partitions:
                yield OffsetDeleted(group_id, topic, partition)

    def _partitions_of(self, group_id: str) -> dict[str, dict[int, None]]:
        partitions_by_topic: dict[str, dict[int, None]] = {}
        for topics in self._stores_of(group_id):
            for topic, offsets in topics.items():
                partitions_by_topic.setdefault(topic, {}).update(dict.fromkeys(offsets))
        return partitions_by_topic

    def _stores_of(self, group_id: str) -> list[Topics]:
        pending = [self._pending[p][group_id] for p in self._open.get(group_id, ())]
        return [self._by_group.get(group_id, {}), *pending]

    # Expiry and deleted topics

    def expired(self, group: Group, now_ms: int) -> tuple[list[OffsetDeleted], bool]:
        """Return the events that delete expired offsets, and whether they leave no offsets of the
        group.  `now_ms` is the wall-clock time."""
        retention_ms = self._config().offsets_retention_minutes * MINUTE_MS
        expired, is_all = [], True
        for topic, partitions in self._by_group.get(group.id, {}).items():
            is_read = group.is_subscribed_to(topic)
            for partition, (event, _) in partitions.items():
                if (
                    is_read
                    or not _is_expired(event, group, now_ms, retention_ms)
                    or self.is_pending(group.id, topic, partition)
                ):
                    is_all = False
                else:
                    expired.append(OffsetDeleted(group.id, topic, partition))
        return expired, is_all and group.id not in self._open

    def of_deleted_topics(self, image: ClusterMetadata) -> Iterator[OffsetDeleted]:
        """Yield the events that delete offsets of deleted topics.  An unknown topic may also be
        one whose znodes are unreadable, so it has to be listed as deleted."""
        for topic, groups in self._of_topic.items():
            topic_info = image.topics.get(topic)
            if topic_info is None and topic not in image.deleted_topics:
                continue
            if topic_info is None:
                for group_id in groups:
                    stores = [offsets.get(topic, {}) for offsets in self._stores_of(group_id)]
                    for partition in {p: None for store in stores for p in store}:
                        yield OffsetDeleted(group_id, topic, partition)
            elif self._topic_ids.get(topic) != topic_info.id:
                yield from self._of_another_topic(topic_info, groups)
                self._topic_ids[topic] = topic_info.id

    def _of_another_topic(self, topic: TopicInfo, groups: Iterable[str]) -> Iterator[OffsetDeleted]:
        for group_id in groups:
            partitions = self._by_group.get(group_id, {}).get(topic.name, {})
            for partition, (event, _) in partitions.items():
                if event.topic_id not in (topic.id, NO_TOPIC_ID):
                    yield OffsetDeleted(group_id, topic.name, partition)

    # Persisted state

    def replay(self, event: OffsetCommitted, producer_id: ProducerId) -> None:
        self._serial += 1
        group_id, topic, partition = event[:3]
        groups = self._by_group
        if producer_id != NO_PRODUCER_ID:
            groups = self._pending.setdefault(producer_id, {})
            self._open.setdefault(group_id, {})[producer_id] = None
        topics = groups.get(group_id)
        if topics is None:
            topics = groups[group_id] = {}
        partitions = topics.get(topic)
        if partitions is None:
            partitions = topics[topic] = {}
            self._of_topic.setdefault(topic, {})[group_id] = None
        partitions[partition] = (event, self._serial)

    def forget(self, event: OffsetDeleted) -> None:
        """Remove an offset, and the pending offsets of open transactions for its partition."""
        group_id, topic, partition = event
        _take(self._by_group, group_id, topic, partition)
        for producer_id in list(self._open.get(group_id, ())):
            pending = self._pending[producer_id]
            _take(pending, group_id, topic, partition)
            if group_id not in pending:
                self._close(group_id, producer_id)
            if not pending:
                del self._pending[producer_id]
        self._drop_topic(topic, group_id)

    def end(self, producer_id: ProducerId, *, committed: bool) -> None:
        """End a producer's transaction.  Of two commits the later one wins, in whichever order the
        transactions ended."""
        for group_id, topics in self._pending.pop(producer_id, {}).items():
            self._close(group_id, producer_id)
            for topic, partitions in topics.items():
                if committed:
                    before = self._by_group.setdefault(group_id, {}).setdefault(topic, {})
                    for partition, stored in partitions.items():
                        other = before.get(partition)
                        if other is None or other[1] < stored[1]:
                            before[partition] = stored
                else:
                    self._drop_topic(topic, group_id)

    def _close(self, group_id: str, producer_id: ProducerId) -> None:
        del self._open[group_id][producer_id]
        if not self._open[group_id]:
            del self._open[group_id]

    def _drop_topic(self, topic: str, group_id: str) -> None:
        if any(topic in topics for topics in self._stores_of(group_id)):
            return
        groups = self._of_topic.get(topic, {})
        groups.pop(group_id, None)
        if not groups:
            self._of_topic.pop(topic, None)
            self._topic_ids.pop(topic, None)

    def check(self) -> None:
        """Assert the invariants; for tests."""
        of_topic: dict[str, set[str]] = {}
        for groups in (self._by_group, *self._pending.values()):
            assert groups or groups is self._by_group
            for group_id, topics in groups.items():
                assert topics
                for topic, partitions in topics.items():
                    assert partitions
                    of_topic.setdefault(topic, set()).add(group_id)
        assert {topic: set(groups) for topic, groups in self._of_topic.items()} == of_topic
        opened = {(group, producer) for producer, gs in self._pending.items() for group in gs}
        assert opened == {(group, p) for group, ps in self._open.items() for p in ps}


def _is_expired(event: OffsetCommitted, group: Group, now_ms: int, retention_ms: int) -> bool:
    began_ms = group.retention_began_ms(event.committed_ms)
    if began_ms is None:
        return False
    if event.expires_ms != NO_TIMESTAMP:
        return now_ms >= event.expires_ms
    return now_ms - began_ms >= retention_ms


def _take(groups: dict[str, Topics], group_id: str, topic: str, partition: int) -> None:
    partitions = groups.get(group_id, {}).get(topic, {})
    if partitions.pop(partition, None) is None or partitions:
        return
    del groups[group_id][topic]
    if not groups[group_id]:
        del groups[group_id]
