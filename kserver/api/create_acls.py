"""CreateAcls (key 30): v1-v3.

Behaviour:
- Every ACL is refused: this broker has no authorizer and stores no ACLs.

Errors: SECURITY_DISABLED.
"""

from __future__ import annotations

from typing import Any

from kserver.api.context import Context
from kserver.api.describe_acls import NO_AUTHORIZER
from kserver.errors import ErrorCode
from kserver.wire.versions import reply_to

KEY, VERSIONS = 30, range(1, 4)


async def handle(request: Any, context: Context) -> Any:
    reply = reply_to(request)
    result = reply.results(error_code=ErrorCode.security_disabled, error_message=NO_AUTHORIZER)
    return reply(results=[result] * len(request.creations))
