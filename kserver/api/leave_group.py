"""LeaveGroup (key 13): v0-v5.

Behaviour:
- Removes members at once, without waiting for their sessions to expire; the others rebalance.
- An administrator may remove static members by their instance ids alone (KIP-345).

Errors: INVALID_GROUP_ID, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR;
of a member UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.

Versions:
- v3 many members; v4 flexible; v5 reason (KIP-800)
"""

from __future__ import annotations

from typing import Any

from kserver.api.context import Context
from kserver.api.group_requests import ask
from kserver.errors import KafkaError
from kserver.group.requests import LeaveGroup, LeavingMember
from kserver.wire.versions import reply_to

KEY, VERSIONS = 13, range(0, 6)

FIRST_WITH_MANY_MEMBERS = 3


async def handle(request: Any, context: Context) -> Any:
    reply = reply_to(request)
    has_many = context.version >= FIRST_WITH_MANY_MEMBERS
    leaving = [
        LeavingMember(member.member_id, getattr(member, "group_instance_id", None))
        for member in (request.members if has_many else [request])
    ]
    try:
        codes = await ask(request.group_id, LeaveGroup(request.group_id, leaving), context)
    except KafkaError as error:
        return reply(error_code=error.code)
    if not has_many:
        return reply(error_code=codes[0])
    return reply(
        members=[
            reply.members(
                member_id=member.member_id, group_instance_id=member.instance_id, error_code=code
            )
            for member, code in zip(leaving, codes, strict=True)
        ]
    )
