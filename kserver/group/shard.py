"""GroupShard: the groups of one partition of __consumer_offsets.

Requests are dispatched to classic groups (`classic.py`), consumer groups (`consumer.py`), groups
with members of both protocols (`migration.py`) and committed offsets (`offsets.py`); their state
changes by replay.

Pure: requests, events and times go in; Outcomes come out.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from kserver.config.broker import BrokerConfig
from kserver.coordinator.deadlines import Deadlines
from kserver.coordinator.shard import Now, Outcome, Step, Ticket, take_what_fits
from kserver.errors import ErrorCode, KafkaError
from kserver.group import consumer_events, events, requests
from kserver.group.classic import ClassicGroups, Deadline
from kserver.group.consumer import ConsumerGroups
from kserver.group.consumer_group import ConsumerGroup
from kserver.group.consumer_requests import ConsumerHeartbeat, DescribeConsumerGroup
from kserver.group.group import ClassicGroup, Group
from kserver.group.migration import Migration
from kserver.group.offsets import Offsets
from kserver.group.records import RECORDS
from kserver.metadata import ClusterMetadata
from kserver.metrics.meters import GroupMeters
from kserver.model import NO_PRODUCER_ID, ProducerId
from kserver.wire.schema import UnknownKind

Handler = Callable[[Any, Ticket, Step], None]
Replay = Callable[[Any, ProducerId], None]

DECODERS = {**events.DECODERS, **consumer_events.DECODERS}

RETENTION: Deadline = ("retention", "", "")
"""Deadline of the next check for expired offsets."""
TOPICS: Deadline = ("topics", "", "")
"""Deadline to delete more offsets of deleted topics."""
ONLY_EVENTS = frozenset(
    {
        requests.CommitOffsets,
        requests.CommitTransactionalOffsets,
        requests.DeleteGroup,
        requests.DeleteOffsets,
    }
)
"""Requests whose only changes are their events.  Others set deadlines or let members wait."""
MAX_DELETED = 1000
"""Maximum number of offsets and groups deleted in one step, whose tombstones have to fit into one
batch."""


class GroupShard:
    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        new_id: Callable[[], str],
        meters: GroupMeters | None = None,
    ) -> None:
        """Create an empty shard.  `new_id` returns a unique part of a member id."""
        self._config = config
        self._meters = meters = meters or GroupMeters()
        self._image: ClusterMetadata | None = None
        self._deadlines: Deadlines[Deadline] = Deadlines()
        self.groups: dict[str, Group] = {}
        """Groups of any type, by id; each module handles its own type."""
        self.offsets = Offsets(self.groups, config, meters)
        self._classic = ClassicGroups(self.groups, self._deadlines, config, new_id, meters)
        self._consumers = ConsumerGroups(self.groups, self._deadlines, config, new_id)
        self._migration = Migration(self._consumers, self._classic, self._deadlines, config, new_id)
        self._handlers: dict[type, Handler] = {
            requests.JoinGroup: self._migration.join,
            requests.SyncGroup: self._migration.sync,
            requests.Heartbeat: self._migration.heartbeat_of_classic,
            requests.LeaveGroup: self._migration.leave,
            ConsumerHeartbeat: self._migration.heartbeat,
            DescribeConsumerGroup: self._consumers.describe,
            requests.DescribeGroup: self._describe,
            requests.ListGroups: self._list,
            requests.DeleteGroup: self._delete,
            requests.CommitOffsets: self._commit,
            requests.CommitTransactionalOffsets: self.offsets.commit_in_transaction,
            requests.FetchOffsets: self._fetch,
            requests.DeleteOffsets: self.offsets.delete,
        }
        self._replays: dict[type, Replay] = {
            events.ClassicGroupMetadata: lambda event, _: self._classic.replay(event),
            events.GroupDeleted: lambda event, _: self._classic.delete(event),
            events.OffsetCommitted: self._replay_offset,
            events.OffsetDeleted: lambda event, _: self.offsets.forget(event),
        }
        for kind in consumer_events.EVENTS:
            self._replays[kind] = lambda event, _: self._consumers.replay(event)

    # Requests

    def handle(self, request: Any, ticket: Ticket, now: Now) -> Outcome:
        step = Step(now)
        self._handlers[type(request)](request, ticket, step)
        return step.outcome(only_events=type(request) in ONLY_EVENTS)

    def _commit(self, request: requests.CommitOffsets, ticket: Ticket, step: Step) -> None:
        self.offsets.commit(request, ticket, step)
        group = self.groups.get(request.group_id)
        if isinstance(group, ClassicGroup):
            self._classic.committed(group, request.member_id, step)

    def _fetch(self, request: requests.FetchOffsets, ticket: Ticket, step: Step) -> None:
        step.respond(ticket, self.offsets.fetch(request))

    def _describe(self, request: requests.DescribeGroup, ticket: Ticket, step: Step) -> None:
        step.respond(ticket, self._classic.describe(request))

    def _list(self, request: requests.ListGroups, ticket: Ticket, step: Step) -> None:
        listed = [
            requests.ListedGroup(group.id, group.protocol_type or "", group.state_name, group.type)
            for group in self.groups.values()
            if (not request.states or group.state_name.lower() in request.states)
            and (not request.types or group.type in request.types)
        ]
        step.respond(ticket, listed)

    def _delete(self, request: requests.DeleteGroup, ticket: Ticket, step: Step) -> None:
        group = self.groups.get(request.group_id)
        if group is None:
            raise KafkaError(ErrorCode.group_id_not_found)
        group.check_delete()
        step.add_events(self.offsets.all_deleted(group.id))
        step.add_events(group.deleted())
        step.respond(ticket, None)

    # Deadlines

    @property
    def next_deadline_ms(self) -> int | None:
        return self._deadlines.next_ms

    def expire(self, now: Now) -> Outcome:
        step = Step(now)
        passed = self._deadlines.passed(now.ms)
        for deadline in passed:
            if deadline in self._deadlines:
                continue  # an earlier deadline of this step has set it again
            if deadline == RETENTION:
                self._expire_offsets(step)
            elif deadline == TOPICS:
                self._delete_offsets_of_deleted_topics(step)
            else:
                self._migration.expire(deadline, step)
        return step.outcome(only_events=passed == [RETENTION])

    def _expire_offsets(self, step: Step) -> None:
        before = len(step.events)
        is_all = self._delete_what_fits(self._expired(step.now), step)
        expired = (e for e in step.events[before:] if isinstance(e, events.OffsetDeleted))
        self._meters.offsets_expired += sum(1 for _ in expired)
        again_ms = self._config().offsets_retention_check_interval_ms if is_all else 0
        self._deadlines.set(RETENTION, step.now.ms + again_ms)

    def _expired(self, now: Now) -> Iterator[Any]:
        """Yield the events that delete expired offsets, and empty groups without offsets."""
        for group in self.groups.values():
            expired, is_all = self.offsets.expired(group, now.wall_ms)
            yield from expired
            if is_all and group.is_empty:
                yield from group.deleted()

    def _delete_offsets_of_deleted_topics(self, step: Step) -> None:
        assert self._image is not None
        if not self._delete_what_fits(self.offsets.of_deleted_topics(self._image), step):
            self._deadlines.set(TOPICS, step.now.ms)

    def _delete_what_fits(self, deleted: Iterable[Any], step: Step) -> bool:
        """Add the events that fit into this step; return whether all of them did."""
        batch, is_all = take_what_fits(deleted, self.encode, MAX_DELETED - len(step.events))
        step.add_events(batch)
        return is_all

    # Loading and metadata

    def loaded(self, now: Now) -> Outcome:
        step = Step(now)
        for group_id in sorted(self.offsets.group_ids - self.groups.keys()):
            # A group whose conversion between the protocols was interrupted: its offsets are kept.
            self.groups[group_id] = ClassicGroup(group_id)
        for group in list(self.groups.values()):
            if isinstance(group, ClassicGroup):
                self._classic.loaded(group, step)
            elif isinstance(group, ConsumerGroup):
                self._consumers.loaded(group, step)
        interval_ms = self._config().offsets_retention_check_interval_ms
        self._deadlines.set(RETENTION, now.ms + interval_ms)
        return step.outcome()

    def image_changed(self, image: ClusterMetadata, now: Now) -> Outcome:
        self._image = image
        self._consumers.image_changed(image)
        step = Step(now)
        self._delete_offsets_of_deleted_topics(step)
        return step.outcome()

    # Persisted state

    def replay(self, event: Any, producer_id: ProducerId = NO_PRODUCER_ID) -> None:
        self._replays[type(event)](event, producer_id)

    def replay_end(self, producer_id: ProducerId, committed: bool) -> None:
        self.offsets.end(producer_id, committed=committed)

    def _replay_offset(self, event: events.OffsetCommitted, producer_id: ProducerId) -> None:
        if event.group_id not in self.groups:
            # Offsets can be committed for a group without members.
            self.groups[event.group_id] = ClassicGroup(event.group_id)
        self.offsets.replay(event, producer_id)

    def encode(self, event: Any) -> tuple[bytes, bytes | None]:
        """Encode an event.  Raises KafkaError with MESSAGE_TOO_LARGE if a client's name is too
        long for a record."""
        try:
            record: tuple[bytes, bytes | None] = event.encode()
        except struct.error:
            text = "A name is longer than the 32767 bytes that a record can hold."
            raise KafkaError(ErrorCode.message_too_large, text) from None
        return record

    def decode(self, key: bytes, value: bytes | None) -> Any | None:
        commit = events.read_commit(key, value)
        if commit is not None:
            return commit
        try:
            kind, fields = RECORDS.decode_key(key)
        except UnknownKind:
            return None
        decode = DECODERS.get(kind)
        if decode is None:
            return None
        return decode(fields, None if value is None else RECORDS.decode_value(kind, value)[1])

    def check(self) -> None:
        """Assert the invariants; for tests."""
        self.offsets.check()
        self._deadlines.check()
        for id, group in self.groups.items():
            assert id == group.id
            if isinstance(group, ClassicGroup | ConsumerGroup):
                group.check()
