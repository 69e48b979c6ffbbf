"""LeaderAndIsr (key 4): v0-v7.

Behaviour:
- Partitions are hosted, led and followed as the controller says (publisher.py).

Errors: CLUSTER_AUTHORIZATION_FAILED, INVALID_REQUEST (control.py); STALE_CONTROLLER_EPOCH,
STALE_BROKER_EPOCH; by partition those that ReplicaManager.become_leader_or_follower
names.
"""

from __future__ import annotations

from kserver.api import control
from kserver.api.context import Context
from kserver.wire.control import ControlMessage, LeaderAndIsrRequest, LeaderAndIsrResponse

KEY, VERSIONS = 4, range(8)
MESSAGE = LeaderAndIsrRequest


async def handle(request: LeaderAndIsrRequest, context: Context) -> ControlMessage:
    return await control.publish(request, context, LeaderAndIsrResponse)
