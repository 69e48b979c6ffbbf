"""DeleteGroups (key 42): v0-v2.

Behaviour:
- Deletes groups without members, together with their committed offsets.

Errors: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, UNKNOWN_SERVER_ERROR (more offsets than one write may
delete), COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR.

Versions:
- v2 flexible
"""

from __future__ import annotations

from typing import Any

from kserver.api.context import Context
from kserver.api.group_requests import ask
from kserver.errors import ErrorCode, KafkaError
from kserver.group.requests import DeleteGroup
from kserver.wire.versions import reply_to

KEY, VERSIONS = 42, range(0, 3)


async def handle(request: Any, context: Context) -> Any:
    reply = reply_to(request)
    return reply(
        results=[
            reply.results(group_id=group_id, error_code=await _delete(group_id, context))
            for group_id in dict.fromkeys(request.groups_names)
        ]
    )


async def _delete(group_id: str, context: Context) -> ErrorCode:
    try:
        await ask(group_id, DeleteGroup(group_id), context)
    except KafkaError as error:
        return error.code
    return ErrorCode.none
