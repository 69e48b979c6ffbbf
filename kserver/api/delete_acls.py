"""DeleteAcls (key 31): v1-v3.

Behaviour:
- Every filter is refused: this broker has no authorizer and stores no ACLs.

Errors: SECURITY_DISABLED.
"""

from __future__ import annotations

from typing import Any

from kserver.api.context import Context
from kserver.api.describe_acls import NO_AUTHORIZER
from kserver.errors import ErrorCode
from kserver.wire.versions import reply_to

KEY, VERSIONS = 31, range(1, 4)


async def handle(request: Any, context: Context) -> Any:
    reply = reply_to(request)
    result = reply.filter_results(
        error_code=ErrorCode.security_disabled, error_message=NO_AUTHORIZER, matching_acls=()
    )
    return reply(filter_results=[result] * len(request.filters))
