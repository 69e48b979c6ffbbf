"""AllocateProducerIds (key 67): v0.

Behaviour:
- The controller allocates the next block of a thousand producer ids to the requesting broker.  No
  other broker gets any of them.

Errors: CLUSTER_AUTHORIZATION_FAILED, NOT_CONTROLLER, BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH
(of another registration), UNKNOWN_SERVER_ERROR (no ids are left).
"""

from __future__ import annotations

from typing import Any

from kserver.api.context import Context
from kserver.errors import ErrorCode, KafkaError
from kserver.wire.versions import reply_to

KEY, VERSIONS = 67, range(0, 1)


async def handle(request: Any, context: Context) -> Any:
    reply = reply_to(request)
    if not await context.from_broker("AllocateProducerIds"):
        return reply(error_code=ErrorCode.cluster_authorization_failed)
    try:
        block = await context.parts.controller.allocate_producer_ids(
            request.broker_id, request.broker_epoch
        )
    except KafkaError as error:
        return reply(error_code=error.code)
    return reply(producer_id_start=block.first, producer_id_len=block.last + 1 - block.first)
