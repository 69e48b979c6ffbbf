"""LeaderAndIsr (key 4): v0-v7.

Behaviour:
- Partitions are hosted, led and followed as the controller says (publisher.py).

Errors: STALE_CONTROLLER_EPOCH, STALE_BROKER_EPOCH; by partition those that
ReplicaManager.become_leader_or_follower names.
"""

from __future__ import annotations

from kserver.api.context import Context
from kserver.wire.control import ControlMessage, LeaderAndIsrRequest

KEY, VERSIONS = 4, range(8)
MESSAGE = LeaderAndIsrRequest


async def handle(request: LeaderAndIsrRequest, context: Context) -> ControlMessage:
    return await context.parts.publisher.publish(request)
