"""OffsetCommit (key 8): v2-v10.

Behaviour:
- Responds once the offsets are written; those of existing partitions are, whatever happens to the
  others.
- A member of the group commits within its generation; a client that is not a member may commit
  while the group has no members.

Errors: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, OFFSET_METADATA_TOO_LARGE, UNKNOWN_MEMBER_ID,
FENCED_INSTANCE_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS, GROUP_ID_NOT_FOUND,
STALE_MEMBER_EPOCH, UNSUPPORTED_VERSION, UNKNOWN_SERVER_ERROR (more than a record may hold),
COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR.

Versions:
- v2-v4 retention_time; v6 leader epoch (KIP-320); v7 group_instance_id; v8 flexible
- v9 members of KIP-848 groups, GROUP_ID_NOT_FOUND; v10 topic ids (KIP-848)

It is answered without a task, and encoded by hand: clients commit often, and kio takes as long to
encode the response as everything else takes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, TypeAlias

from kserver.api import throttling
from kserver.api.context import Parts, Session
from kserver.api.group_requests import MILLISECOND, commits, exists, resolve_topic, respond
from kserver.errors import ErrorCode, KafkaError
from kserver.group.requests import CommitOffsets
from kserver.metadata import TopicInfo
from kserver.network.conversation import Response
from kserver.wire import varint
from kserver.wire.codec import RequestHeader, read_request

KEY, VERSIONS = 8, range(2, 11)

FIRST_WITH_THROTTLE_TIME = 3
FIRST_WITHOUT_RETENTION = 5
FIRST_WITH_INSTANCE_ID = 7
FIRST_FLEXIBLE = 8
FIRST_WITH_MEMBER_EPOCHS = 9
FIRST_WITH_TOPIC_IDS = 10

_HEAD = struct.Struct(">ii")
_SHORT = struct.Struct(">h")
_INT = struct.Struct(">i")
_PARTITION = struct.Struct(">ih")
_PARTITION_V8 = struct.Struct(">ihb")

Topic: TypeAlias = tuple[Any, TopicInfo | None, ErrorCode]
"""The topic of the request, its metadata, and the error to return if that is None."""


def handle_frame(
    header: RequestHeader, frame: memoryview, at: int, session: Session, parts: Parts
) -> Response:
    began_s = parts.loop.time() if parts.quotas.active else 0.0
    request = read_request(header, frame, at)
    image = parts.metadata.current
    topics = [(topic, *resolve_topic(topic, image)) for topic in request.topics]

    def write(result: Sequence[ErrorCode] | KafkaError) -> bytes:
        wait_ms = 0
        if parts.quotas.active:
            wait_ms = throttling.charge_request(began_s, header, session, parts)
        return _write(header, topics, result, wait_ms)

    group_request = _group_request(request, header.api_version, topics)
    if not group_request.commits:
        return write(())
    return respond(group_request.group_id, group_request, parts, write)


def _group_request(request: Any, version: int, topics: Sequence[Topic]) -> CommitOffsets:
    retention_ms = None
    if version < FIRST_WITHOUT_RETENTION and request.retention_time >= 0 * MILLISECOND:
        retention_ms = request.retention_time // MILLISECOND
    knows_epochs = version >= FIRST_WITH_MEMBER_EPOCHS
    return CommitOffsets(
        request.group_id,
        request.generation_id_or_member_epoch,
        request.member_id,
        request.group_instance_id if version >= FIRST_WITH_INSTANCE_ID else None,
        commits(topics),
        retention_ms,
        knows_epochs,
        knows_epochs,
    )


def _write(
    header: RequestHeader,
    topics: Sequence[Topic],
    result: Sequence[ErrorCode] | KafkaError,
    wait_ms: int,
) -> bytes:
    _, version, correlation_id, _ = header
    error_code = result.code if isinstance(result, KafkaError) else None
    codes = iter(() if isinstance(result, KafkaError) else result)
    is_flexible = version >= FIRST_FLEXIBLE
    uvarint = varint.encode_unsigned
    parts = [b"\0"] if is_flexible else []  # the header's tagged fields
    if version >= FIRST_WITH_THROTTLE_TIME:
        parts.append(_INT.pack(wait_ms))
    parts.append(uvarint(len(topics) + 1) if is_flexible else _INT.pack(len(topics)))
    for topic, info, unknown in topics:
        if version >= FIRST_WITH_TOPIC_IDS:
            parts.append(bytes(16) if topic.topic_id is None else topic.topic_id.bytes)
        else:
            name = topic.name.encode()
            parts += (uvarint(len(name) + 1) if is_flexible else _SHORT.pack(len(name)), name)
        count = len(topic.partitions)
        parts.append(uvarint(count + 1) if is_flexible else _INT.pack(count))
        for partition in topic.partitions:
            if info is None:
                code = unknown
            elif not exists(partition, info):
                code = ErrorCode.unknown_topic_or_partition
            else:
                code = error_code or next(codes)
            index = partition.partition_index
            if is_flexible:
                parts.append(_PARTITION_V8.pack(index, code, 0))
            else:
                parts.append(_PARTITION.pack(index, code))
        if is_flexible:
            parts.append(b"\0")
    if is_flexible:
        parts.append(b"\0")
    body = b"".join(parts)
    return _HEAD.pack(len(body) + 4, correlation_id) + body
