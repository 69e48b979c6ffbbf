"""Heartbeat (key 12): v0-v4.

Behaviour:
- Renews the session of a group member.
- While the coordinator still loads its groups, every heartbeat succeeds.

Errors: INVALID_GROUP_ID, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION,
REBALANCE_IN_PROGRESS (join again), COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR.

Versions:
- v1 throttle time; v3 group_instance_id; v4 flexible

Heartbeats are the most frequent group request, so they are encoded by hand and need no task.
"""

from __future__ import annotations

import struct
from typing import Any

from kserver.api import throttling
from kserver.api.context import Parts, Session
from kserver.api.group_requests import respond
from kserver.errors import ErrorCode, KafkaError
from kserver.group.requests import Heartbeat
from kserver.network.conversation import Response
from kserver.wire.codec import RequestHeader, read_request

KEY, VERSIONS = 12, range(0, 5)

FIRST_WITH_THROTTLE_TIME = 1
FIRST_WITH_INSTANCE_ID = 3
FIRST_FLEXIBLE = 4

_V0 = struct.Struct(">iih")
"""Size, correlation id and error code."""
_V1 = struct.Struct(">iiih")
"""As v0, with the throttle time before the error code."""
_V4 = struct.Struct(">iibihb")
"""As v1, with empty tagged fields in the header and at the end."""


def handle_frame(
    header: RequestHeader, frame: memoryview, at: int, session: Session, parts: Parts
) -> Response:
    began_s = parts.loop.time() if parts.quotas.active else 0.0
    request = read_request(header, frame, at)
    instance_id = None
    if header.api_version >= FIRST_WITH_INSTANCE_ID:
        instance_id = request.group_instance_id
    group_id = request.group_id
    group_request = Heartbeat(group_id, request.generation_id, request.member_id, instance_id)

    def write(error: Any) -> bytes:
        wait_ms = 0
        if parts.quotas.active:
            wait_ms = throttling.charge_request(began_s, header, session, parts)
        return _write(header, _code(error), wait_ms)

    return respond(group_id, group_request, parts, write)


def _code(error: KafkaError | None) -> ErrorCode:
    if error is None or error.code is ErrorCode.coordinator_load_in_progress:
        return ErrorCode.none
    return error.code


def _write(header: RequestHeader, code: ErrorCode, wait_ms: int) -> bytes:
    _, version, correlation_id, _ = header
    if version >= FIRST_FLEXIBLE:
        return _V4.pack(_V4.size - 4, correlation_id, 0, wait_ms, code, 0)
    if version >= FIRST_WITH_THROTTLE_TIME:
        return _V1.pack(_V1.size - 4, correlation_id, wait_ms, code)
    return _V0.pack(_V0.size - 4, correlation_id, code)
