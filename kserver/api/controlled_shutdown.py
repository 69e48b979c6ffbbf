"""ControlledShutdown (key 7): v1-v3.

Behaviour:
- A broker that is about to stop sends this to the controller, which elects other leaders for its
  partitions and removes it from every ISR; then it may stop without an outage.
- The response names the partitions that it still leads, since no other replica is in sync.  The
  broker retries, or stops anyway.

Errors: CLUSTER_AUTHORIZATION_FAILED, NOT_CONTROLLER, STALE_BROKER_EPOCH, BROKER_NOT_AVAILABLE (it
is not registered).

Versions:
- v0, of Kafka 0.8, has a header of its own, and is not served
- v2 the broker's epoch (KIP-380); v3 flexible
"""

from __future__ import annotations

from kserver.api.context import Context
from kserver.errors import ErrorCode, KafkaError
from kserver.wire.control import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    ControlMessage,
    RemainingPartition,
)

KEY, VERSIONS = 7, range(1, 4)
MESSAGE = ControlledShutdownRequest


async def handle(request: ControlledShutdownRequest, context: Context) -> ControlMessage:
    if not await context.from_broker("ControlledShutdown"):
        return ControlledShutdownResponse(ErrorCode.cluster_authorization_failed)
    try:
        remaining = await context.parts.controller.shut_down(
            request.broker_id, request.broker_epoch
        )
    except KafkaError as error:
        return ControlledShutdownResponse(error.code)
    return ControlledShutdownResponse(
        ErrorCode.none, tuple(RemainingPartition(*partition) for partition in remaining)
    )
