"""FindCoordinator (key 10): v0-v6.

Behaviour:
- Clients with a group.id ask it even for assigned partitions, so it is answered before there are
  coordinators: COORDINATOR_NOT_AVAILABLE, which clients retry in the background.

Errors: COORDINATOR_NOT_AVAILABLE, INVALID_REQUEST (an unknown key type).

Versions:
- v1 key types (0 group, 1 transaction); v3 flexible; v4 many keys (KIP-699); v6 share groups (2)
"""

from __future__ import annotations

from typing import Any

from kserver.api.context import Context
from kserver.errors import ErrorCode
from kserver.model import NO_BROKER
from kserver.wire.versions import reply_to

KEY, VERSIONS = 10, range(0, 7)

GROUP, TRANSACTION = 0, 1
FIRST_WITH_MANY_KEYS = 4


async def handle(request: Any, context: Context) -> Any:
    reply = reply_to(request)
    known = getattr(request, "key_type", GROUP) in (GROUP, TRANSACTION)
    refusal = {
        "error_code": ErrorCode.coordinator_not_available if known else ErrorCode.invalid_request,
        "error_message": "this broker does not serve groups and transactions"
        if known
        else "unknown coordinator type",
        "node_id": NO_BROKER,
        "host": "",
        "port": -1,
    }
    if context.version < FIRST_WITH_MANY_KEYS:
        return reply(**refusal)
    return reply(
        coordinators=[reply.coordinators(key=key, **refusal) for key in request.coordinator_keys]
    )
