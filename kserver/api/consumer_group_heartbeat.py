"""ConsumerGroupHeartbeat (key 68): v0-v1.

Behaviour:
- A member joins, stays, reports its subscription and owned partitions, and leaves.  The response
  has its epoch, the heartbeat interval and, if changed, its assignment (KIP-848).
- Epoch 0 joins, -1 leaves, and with -2 a static member leaves for a restart.
- Topics are not filtered by an authorizer: a pattern is matched against all.

Errors: INVALID_REQUEST, UNSUPPORTED_ASSIGNOR, INVALID_REGULAR_EXPRESSION, GROUP_ID_NOT_FOUND
(missing, or a classic group that cannot be upgraded), GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID,
FENCED_MEMBER_EPOCH, FENCED_INSTANCE_ID, UNRELEASED_INSTANCE_ID, UNSUPPORTED_VERSION (the protocol
is disabled), COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR.

Versions:
- v1 subscribed_topic_regex; the member brings its own id (KIP-1082)
"""

from __future__ import annotations

from typing import Any

from kserver.api.context import Context
from kserver.api.group_requests import MILLISECOND, ask
from kserver.errors import ErrorCode, KafkaError
from kserver.group.consumer_events import TopicIdPartition, by_topic
from kserver.group.consumer_requests import ConsumerHeartbeat, ConsumerHeartbeatResult
from kserver.wire.versions import reply_to

KEY, VERSIONS = 68, range(0, 2)

FIRST_WITH_OWN_ID = 1
PROTOCOL = "consumer"


async def handle(request: Any, context: Context) -> Any:
    reply = reply_to(request)
    try:
        response = await _heartbeat(request, context)
    except KafkaError as error:
        return reply(error_code=error.code, error_message=error.message or None)
    assignment = None
    if response.assigned is not None:
        assignment = reply.assignment(
            topic_partitions=[
                reply.assignment.topic_partitions(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in by_topic(response.assigned).items()
            ]
        )
    return reply(
        member_id=response.member_id,
        member_epoch=response.epoch,
        heartbeat_interval=response.heartbeat_interval_ms * MILLISECOND,
        assignment=assignment,
    )


async def _heartbeat(request: Any, context: Context) -> ConsumerHeartbeatResult:
    check_protocol(context)
    owned = request.topic_partitions
    response: ConsumerHeartbeatResult = await ask(
        request.group_id,
        ConsumerHeartbeat(
            request.group_id,
            request.member_id,
            request.member_epoch,
            context.client_id or "",
            f"/{context.session.address}",
            request.instance_id,
            request.rack_id,
            request.rebalance_timeout // MILLISECOND,
            request.subscribed_topic_names,
            getattr(request, "subscribed_topic_regex", None),
            request.server_assignor,
            None
            if owned is None
            else frozenset(
                TopicIdPartition(topic.topic_id, partition)
                for topic in owned
                if topic.topic_id is not None
                for partition in topic.partitions
            ),
            context.version >= FIRST_WITH_OWN_ID,
        ),
        context,
    )
    return response


def check_protocol(context: Context) -> None:
    """Raise UNSUPPORTED_VERSION if `group.version` or the broker config disables KIP-848.

    Clients then fall back to the classic protocol, or report it.
    """
    parts = context.parts
    is_finalized = parts.metadata.current.features.group_version > 0
    if not (is_finalized and PROTOCOL in parts.config().group_coordinator_rebalance_protocols):
        raise KafkaError(
            ErrorCode.unsupported_version, "The consumer group protocol is not enabled."
        )
