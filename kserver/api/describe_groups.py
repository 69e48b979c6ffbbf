"""DescribeGroups (key 15): v0-v6.

Behaviour:
- Returns state, protocol and members of classic groups; subscriptions and assignments are the
  bytes that members sent, subscriptions only while the group is stable.
- A group that does not exist has the state Dead; from v6 on also an error.

Errors: GROUP_ID_NOT_FOUND (missing, or not of the classic protocol), COORDINATOR_LOAD_IN_PROGRESS,
COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR.

Versions:
- v3 authorized operations; v4 group_instance_id; v5 flexible; v6 GROUP_ID_NOT_FOUND and a message
  (KIP-1043)
"""

from __future__ import annotations

from typing import Any

from kserver.api.context import Context
from kserver.api.group_requests import ask
from kserver.api.response_fields import GROUP_OPERATIONS, NOT_REQUESTED
from kserver.errors import ErrorCode, KafkaError
from kserver.group.requests import DescribeGroup
from kserver.wire.versions import reply_to

KEY, VERSIONS = 15, range(0, 7)

FIRST_WITH_NOT_FOUND = 6
DEAD = "Dead"


async def handle(request: Any, context: Context) -> Any:
    reply = reply_to(request)
    with_operations = getattr(request, "include_authorized_operations", False)
    operations = GROUP_OPERATIONS if with_operations else NOT_REQUESTED
    return reply(
        groups=[
            reply.groups(group_id=group_id, **await _describe(group_id, operations, reply, context))
            for group_id in request.groups
        ]
    )


async def _describe(group_id: str, operations: int, reply: Any, context: Context) -> dict[str, Any]:
    """Return the response fields of a group."""
    try:
        group = await ask(group_id, DescribeGroup(group_id), context)
    except KafkaError as error:
        if error.code is not ErrorCode.group_id_not_found:
            return {"error_code": error.code}
        if context.version < FIRST_WITH_NOT_FOUND:
            return {"group_state": DEAD, "authorized_operations": operations}
        return {
            "error_code": error.code,
            "error_message": error.message,
            "group_state": DEAD,
        }
    return {
        "group_state": group.state,
        "protocol_type": group.protocol_type,
        "protocol_data": group.protocol,
        "members": [
            reply.groups.members(
                member_id=member.id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in group.members
        ],
        "authorized_operations": operations,
    }
