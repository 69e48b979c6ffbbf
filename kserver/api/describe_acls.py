"""DescribeAcls (key 29): v1-v3.

Behaviour:
- Refused: this broker has no authorizer and stores no ACLs.

Errors: SECURITY_DISABLED.
"""

from __future__ import annotations

from typing import Any

from kserver.api.context import Context
from kserver.errors import ErrorCode
from kserver.wire.versions import reply_to

KEY, VERSIONS = 29, range(1, 4)

NO_AUTHORIZER = "This broker has no authorizer"


async def handle(request: Any, context: Context) -> Any:
    return reply_to(request)(
        error_code=ErrorCode.security_disabled, error_message=NO_AUTHORIZER, resources=()
    )
