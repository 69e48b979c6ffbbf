"""SyncGroup (key 14): v0-v5.

Behaviour:
- The leader sends all assignments; once they are written, each member gets its own.  A member that
  sends its request later gets it at once.

Errors: INVALID_GROUP_ID, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION,
REBALANCE_IN_PROGRESS (join again), INCONSISTENT_GROUP_PROTOCOL, UNKNOWN_SERVER_ERROR (more than a
record may hold), COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR.

Versions:
- v3 group_instance_id; v4 flexible; v5 protocol type and name, which are required (KIP-559)
"""

from __future__ import annotations

from typing import Any

from kserver.api.context import Context
from kserver.api.group_requests import ask
from kserver.errors import ErrorCode, KafkaError
from kserver.group.requests import SyncGroup, SyncGroupResult
from kserver.wire.versions import reply_to

KEY, VERSIONS = 14, range(0, 6)

FIRST_WITH_PROTOCOL = 5


async def handle(request: Any, context: Context) -> Any:
    reply = reply_to(request)
    try:
        result = await _sync(request, context)
    except KafkaError as error:
        return reply(error_code=error.code)
    return reply(
        protocol_type=result.protocol_type,
        protocol_name=result.protocol,
        assignment=result.assignment,
    )


async def _sync(request: Any, context: Context) -> SyncGroupResult:
    protocol_type = getattr(request, "protocol_type", None)
    protocol = getattr(request, "protocol_name", None)
    if context.version >= FIRST_WITH_PROTOCOL and (protocol_type is None or protocol is None):
        raise KafkaError(ErrorCode.inconsistent_group_protocol)
    group_request = SyncGroup(
        request.group_id,
        request.generation_id,
        request.member_id,
        getattr(request, "group_instance_id", None),
        protocol_type,
        protocol,
        {member.member_id: member.assignment for member in request.assignments},
    )
    result: SyncGroupResult = await ask(request.group_id, group_request, context)
    return result
