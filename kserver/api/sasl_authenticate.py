"""SaslAuthenticate (key 36): v0-v2.

Behaviour:
- Refused: no listener of this broker authenticates by SASL.

Errors: ILLEGAL_SASL_STATE.
"""

from __future__ import annotations

from typing import Any

from kserver.api.context import Context
from kserver.errors import ErrorCode
from kserver.wire.versions import reply_to

KEY, VERSIONS = 36, range(3)


async def handle(request: Any, context: Context) -> Any:
    return reply_to(request)(
        error_code=ErrorCode.illegal_sasl_state,
        error_message="SaslAuthenticate on a listener without SASL",
        auth_bytes=b"",
    )
