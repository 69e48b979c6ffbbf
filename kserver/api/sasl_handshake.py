"""SaslHandshake (key 17): v0-v1.

Behaviour:
- Refused, with no mechanism: no listener of this broker authenticates by SASL.  Clients send it to
  find that out (the Rust client kafka_client does), so the connection stays open, as in Kafka.

Errors: ILLEGAL_SASL_STATE.
"""

from __future__ import annotations

from typing import Any

from kserver.api.context import Context
from kserver.errors import ErrorCode
from kserver.wire.versions import reply_to

KEY, VERSIONS = 17, range(2)


async def handle(request: Any, context: Context) -> Any:
    return reply_to(request)(error_code=ErrorCode.illegal_sasl_state, mechanisms=())
