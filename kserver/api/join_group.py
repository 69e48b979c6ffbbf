"""JoinGroup (key 11): v0-v9.

Behaviour:
- A member gets its response once all members of its group have joined, or the rebalance timeout has
  passed.  The leader's lists all members, the others' only the new generation.
- A member that joins without an id gets one and must join again with it (KIP-394).
- A static member that was restarted keeps its place (KIP-345).

Errors: INVALID_GROUP_ID, INVALID_SESSION_TIMEOUT, MEMBER_ID_REQUIRED, UNKNOWN_MEMBER_ID,
FENCED_INSTANCE_ID, INCONSISTENT_GROUP_PROTOCOL, GROUP_MAX_SIZE_REACHED, REBALANCE_IN_PROGRESS (the
same member joined again meanwhile), COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE,
NOT_COORDINATOR.

Versions:
- v1 rebalance timeout, before that the session's; v4 MEMBER_ID_REQUIRED; v5 group_instance_id
- v6 flexible; v7 protocol_type in the response; v8 reason (KIP-800); v9 skip_assignment (KIP-814)
"""

from __future__ import annotations

from typing import Any

from kserver.api.context import Context
from kserver.api.group_requests import MILLISECOND, ask
from kserver.errors import KafkaError
from kserver.group.requests import JoinGroup, JoinGroupResult
from kserver.wire.versions import reply_to

KEY, VERSIONS = 11, range(0, 10)

FIRST_WITH_REQUIRED_ID = 4
FIRST_WITH_NULLABLE_PROTOCOL = 7
FIRST_WITH_SKIPPED_ASSIGNMENT = 9


async def handle(request: Any, context: Context) -> Any:
    version = context.version
    result = await _join(request, context)
    reply = reply_to(request)
    members = [
        reply.members(
            member_id=member.id, group_instance_id=member.instance_id, metadata=member.metadata
        )
        for member in result.members
    ]
    protocol = result.protocol
    if protocol is None and version < FIRST_WITH_NULLABLE_PROTOCOL:
        protocol = ""
    return reply(
        error_code=result.error,
        generation_id=result.generation,
        protocol_type=result.protocol_type,
        protocol_name=protocol,
        leader=result.leader,
        skip_assignment=result.skips_assignment,
        member_id=result.member_id,
        members=members,
    )


async def _join(request: Any, context: Context) -> JoinGroupResult:
    session_ms = request.session_timeout // MILLISECOND
    rebalance = getattr(request, "rebalance_timeout", None)
    group_request = JoinGroup(
        request.group_id,
        request.member_id,
        getattr(request, "group_instance_id", None),
        context.client_id or "",
        f"/{context.session.address}",
        session_ms,
        session_ms if rebalance is None else rebalance // MILLISECOND,
        request.protocol_type,
        tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
        context.version >= FIRST_WITH_REQUIRED_ID,
        context.version >= FIRST_WITH_SKIPPED_ASSIGNMENT,
    )
    try:
        result: JoinGroupResult = await ask(request.group_id, group_request, context)
    except KafkaError as error:
        return JoinGroupResult(request.member_id, error.code)
    return result
