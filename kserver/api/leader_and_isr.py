"""LeaderAndIsr (key 4): v0-v7.

Behaviour:
- Hosts partitions, and leads or follows them, as the controller assigns them (publisher.py).

Errors: CLUSTER_AUTHORIZATION_FAILED, INVALID_REQUEST (api/control.py); STALE_CONTROLLER_EPOCH,
STALE_BROKER_EPOCH; by partition those of ReplicaManager.become_leader_or_follower.
"""

from __future__ import annotations

from kserver.api import control
from kserver.api.context import Context
from kserver.wire.control import ControlMessage, LeaderAndIsrRequest, LeaderAndIsrResponse

KEY, VERSIONS = 4, range(8)
MESSAGE = LeaderAndIsrRequest


async def handle(request: LeaderAndIsrRequest, context: Context) -> ControlMessage:
    return await control.publish(request, context, LeaderAndIsrResponse)
