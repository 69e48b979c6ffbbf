"""StopReplica (key 5): v0-v4.

Behaviour:
- Stops hosting partitions, and deletes them if requested (publisher.py).

Errors: CLUSTER_AUTHORIZATION_FAILED, INVALID_REQUEST (api/control.py); STALE_CONTROLLER_EPOCH,
STALE_BROKER_EPOCH; FENCED_LEADER_EPOCH, KAFKA_STORAGE_ERROR.
"""

from __future__ import annotations

from kserver.api import control
from kserver.api.context import Context
from kserver.wire.control import ControlMessage, StopReplicaRequest, StopReplicaResponse

KEY, VERSIONS = 5, range(5)
MESSAGE = StopReplicaRequest


async def handle(request: StopReplicaRequest, context: Context) -> ControlMessage:
    return await control.publish(request, context, StopReplicaResponse)
