"""OffsetFetch (key 9): v1-v10.

Behaviour:
- Returns the last committed offset of each requested partition, or of all that a group has; -1 for
  none.
- With require_stable, a partition with offsets in an open transaction has an error instead
  (KIP-447).

Errors: UNSTABLE_OFFSET_COMMIT, UNKNOWN_TOPIC_ID, UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH,
COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR.

Versions:
- v2 all topics, an error code of its own; v3 throttle time; v5 leader epoch; v6 flexible
- v7 require_stable; v8 many groups (KIP-709); v9 members of KIP-848 groups; v10 topic ids (KIP-848)

Encoded by hand: monitoring tools request all offsets of every group, again and again.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from kserver.api import throttling
from kserver.api.context import Parts, Session
from kserver.api.group_requests import ask_now, resolve_topic, result_of
from kserver.errors import ErrorCode, KafkaError
from kserver.group.requests import NO_GENERATION, FetchedOffset, FetchedOffsets, FetchOffsets
from kserver.metadata import ClusterMetadata, TopicInfo
from kserver.network.conversation import Pending, Response
from kserver.wire import varint
from kserver.wire.codec import RequestHeader, read_request

KEY, VERSIONS = 9, range(1, 11)

FIRST_WITH_ERROR = 2
FIRST_WITH_THROTTLE_TIME = 3
FIRST_WITH_LEADER_EPOCH = 5
FIRST_FLEXIBLE = 6
FIRST_WITH_STABLE = 7
FIRST_WITH_MANY_GROUPS = 8
FIRST_WITH_MEMBERS = 9
FIRST_WITH_TOPIC_IDS = 10
SHORT_MAX = 2**15 - 1

_HEAD = struct.Struct(">ii")
_SHORT = struct.Struct(">h")
_INT = struct.Struct(">i")
_PARTITION_V1 = struct.Struct(">iq")
_PARTITION_V5 = struct.Struct(">iqi")
_PARTITION_V6 = struct.Struct(">iqibhb")
"""With empty metadata and no tagged fields."""
_END_V6 = struct.Struct(">hb")


class GroupQuery(NamedTuple):
    """One group of the request."""

    group_id: str
    topics: Sequence[tuple[Any, TopicInfo | None, ErrorCode]] | None
    """Topics with their `resolve_topic` results; None for all that have offsets."""
    result: asyncio.Future[Any] | KafkaError


class Topic(NamedTuple):
    name: str
    id: UUID | None
    partitions: Sequence[FetchedOffset]


def handle_frame(
    header: RequestHeader, frame: memoryview, at: int, session: Session, parts: Parts
) -> Response:
    began_s = parts.loop.time() if parts.quotas.active else 0.0
    version = header.api_version
    request = read_request(header, frame, at)
    image = parts.metadata.current
    stable = version >= FIRST_WITH_STABLE and request.require_stable
    groups = request.groups if version >= FIRST_WITH_MANY_GROUPS else [request]
    queries = [_request_offsets(group, version, stable, image, parts) for group in groups]

    def write() -> bytes:
        wait_ms = 0
        if parts.quotas.active:
            wait_ms = throttling.charge_request(began_s, header, session, parts)
        return _write(header, queries, parts.metadata.current, wait_ms)

    waits = [
        group_query.result
        for group_query in queries
        if isinstance(group_query.result, asyncio.Future)
    ]
    if all(ticket.done() for ticket in waits):
        return write()
    pending = Pending(exclusive=True)

    async def later() -> None:
        try:
            await asyncio.wait(waits)
        finally:  # if the broker stops, the responses are not needed
            for ticket in waits:
                ticket.cancel()
        pending.complete(write())

    parts.spawn(later())
    return pending


def _request_offsets(
    group: Any, version: int, stable: bool, image: ClusterMetadata, parts: Parts
) -> GroupQuery:
    topics = None
    if group.topics is not None:
        topics = [(topic, *resolve_topic(topic, image)) for topic in group.topics]
    has_members = version >= FIRST_WITH_MEMBERS
    group_request = FetchOffsets(
        group.group_id,
        None
        if topics is None
        else [_topic_query(topic, info, version) for topic, info, _ in topics],
        stable,
        group.member_id if has_members else None,
        group.member_epoch if has_members else NO_GENERATION,
    )
    return GroupQuery(group.group_id, topics, ask_now(group.group_id, group_request, parts))


def _topic_query(topic: Any, info: TopicInfo | None, version: int) -> tuple[str, Sequence[int]]:
    """Return topic name and partitions; by name, even a deleted topic may have offsets."""
    if version >= FIRST_WITH_TOPIC_IDS:
        return ("", ()) if info is None else (info.name, topic.partition_indexes)
    return topic.name, topic.partition_indexes


def _topics(
    query: GroupQuery, offsets_by_topic: FetchedOffsets, image: ClusterMetadata, version: int
) -> Iterator[Topic]:
    has_ids = version >= FIRST_WITH_TOPIC_IDS
    if query.topics is None:
        for name, partitions in offsets_by_topic:
            info = image.topics.get(name)
            if info is not None or not has_ids:
                yield Topic(name, None if info is None else info.id, partitions)
        return
    for (topic, info, unknown), (name, partitions) in zip(
        query.topics, offsets_by_topic, strict=True
    ):
        if has_ids and info is None:
            partitions = [FetchedOffset(i, error=unknown) for i in topic.partition_indexes]
        yield Topic(name, topic.topic_id if has_ids else None, partitions)


def _write(
    header: RequestHeader, groups: Sequence[GroupQuery], image: ClusterMetadata, wait_ms: int
) -> bytes:
    _, version, correlation_id, _ = header
    parts = [b"\0"] if version >= FIRST_FLEXIBLE else []  # the header's tagged fields
    if version >= FIRST_WITH_THROTTLE_TIME:
        parts.append(_INT.pack(wait_ms))
    if version >= FIRST_WITH_MANY_GROUPS:
        parts.append(_count(len(groups), version))
    for query in groups:
        result = _result(query)
        error, topics = ErrorCode.none, []
        if not isinstance(result, KafkaError):
            topics = list(_topics(query, result, image, version))
        elif version >= FIRST_WITH_ERROR:
            error = result.code
        else:
            topics = [
                Topic(
                    t.name, None, [FetchedOffset(i, error=result.code) for i in t.partition_indexes]
                )
                for t, _, _ in query.topics or ()
            ]
        if version >= FIRST_WITH_MANY_GROUPS:
            parts.append(_text(query.group_id, version))
        _write_topics(parts, topics, version)
        if version >= FIRST_WITH_ERROR:
            parts.append(_SHORT.pack(error))
        if version >= FIRST_WITH_MANY_GROUPS:
            parts.append(b"\0")
    if version >= FIRST_FLEXIBLE:
        parts.append(b"\0")
    body = b"".join(parts)
    return _HEAD.pack(len(body) + 4, correlation_id) + body


def _result(query: GroupQuery) -> FetchedOffsets | KafkaError:
    result: FetchedOffsets | KafkaError = result_of(query.result)
    if isinstance(result, KafkaError) and result.code is ErrorCode.coordinator_not_available:
        # Consumers older than 3.9 do not know that error here; with this one they look up the
        # coordinator again.
        return KafkaError(ErrorCode.not_coordinator, result.message)
    return result


def _write_topics(parts: list[bytes], topics: Sequence[Topic], version: int) -> None:
    parts.append(_count(len(topics), version))
    for name, topic_id, partitions in topics:
        if version >= FIRST_WITH_TOPIC_IDS:
            parts.append(bytes(16) if topic_id is None else topic_id.bytes)
        else:
            parts.append(_text(name, version))
        parts.append(_count(len(partitions), version))
        if version >= FIRST_FLEXIBLE:
            for index, offset, epoch, metadata, error in partitions:
                if not metadata:
                    parts.append(_PARTITION_V6.pack(index, offset, epoch, 1, error, 0))
                    continue
                fixed = _PARTITION_V5.pack(index, offset, epoch)
                parts += (fixed, _text(metadata, version), _END_V6.pack(error, 0))
            parts.append(b"\0")
            continue
        for index, offset, epoch, metadata, error in partitions:
            if version >= FIRST_WITH_LEADER_EPOCH:
                fixed = _PARTITION_V5.pack(index, offset, epoch)
            else:
                fixed = _PARTITION_V1.pack(index, offset)
            parts += (fixed, _text(metadata, version), _SHORT.pack(error))


def _count(count: int, version: int) -> bytes:
    if version >= FIRST_FLEXIBLE:
        return varint.encode_unsigned(count + 1)
    return _INT.pack(count)


def _text(text: str, version: int) -> bytes:
    data = text.encode()
    if version >= FIRST_FLEXIBLE:
        return varint.encode_unsigned(len(data) + 1) + data
    data = data[:SHORT_MAX]  # the limit of older versions
    return _SHORT.pack(len(data)) + data
