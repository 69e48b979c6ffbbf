"""DescribeCluster (key 60): v0-v2.

Behaviour:
- Returns the cluster id, the controller, and brokers with their addresses on the listener of the
  connection.

Errors: UNSUPPORTED_ENDPOINT_TYPE (controllers have no endpoints of their own here).

Versions:
- v1 endpoint type (KIP-919); v2 fenced brokers (there are none)
"""

from __future__ import annotations

from typing import Any

from kserver.api.context import Context
from kserver.api.response_fields import CLUSTER_OPERATIONS, NOT_REQUESTED
from kserver.errors import ErrorCode
from kserver.model import NO_BROKER
from kserver.wire.versions import reply_to

KEY, VERSIONS = 60, range(0, 3)

BROKERS = 1


async def handle(request: Any, context: Context) -> Any:
    reply = reply_to(request)
    image = await context.cluster_metadata()
    if getattr(request, "endpoint_type", BROKERS) != BROKERS:
        return reply(
            error_code=ErrorCode.unsupported_endpoint_type,
            error_message="Only brokers can be described here.",
            cluster_id=image.cluster_id,
            controller_id=NO_BROKER,
            cluster_authorized_operations=NOT_REQUESTED,
        )
    listener = context.session.endpoint.listener
    return reply(
        error_code=ErrorCode.none,
        endpoint_type=BROKERS,
        cluster_id=image.cluster_id,
        controller_id=image.controller,
        brokers=[
            reply.brokers(broker_id=b.id, host=e.host, port=e.port, rack=b.rack)
            for b in image.brokers.values()
            if (e := b.endpoints.get(listener)) is not None
        ],
        cluster_authorized_operations=CLUSTER_OPERATIONS
        if request.include_cluster_authorized_operations
        else NOT_REQUESTED,
    )
