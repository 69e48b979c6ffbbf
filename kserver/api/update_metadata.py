"""UpdateMetadata (key 6): v0-v8.

Behaviour:
- Replaces the brokers, leaders and topics that clients get in responses (publisher.py).

Errors: CLUSTER_AUTHORIZATION_FAILED, INVALID_REQUEST (api/control.py); STALE_CONTROLLER_EPOCH,
STALE_BROKER_EPOCH.
"""

from __future__ import annotations

from kserver.api import control
from kserver.api.context import Context
from kserver.wire.control import ControlMessage, UpdateMetadataRequest, UpdateMetadataResponse

KEY, VERSIONS = 6, range(9)
MESSAGE = UpdateMetadataRequest


async def handle(request: UpdateMetadataRequest, context: Context) -> ControlMessage:
    return await control.publish(request, context, UpdateMetadataResponse)
