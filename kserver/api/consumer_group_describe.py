"""ConsumerGroupDescribe (key 69): v0-v1.

Behaviour:
- Returns state, epochs, assignor and members of KIP-848 groups, each member with its assignment and
  its target assignment.  Topics that were deleted since are left out of both.

Errors: GROUP_ID_NOT_FOUND (missing, or not of this protocol), UNSUPPORTED_VERSION (the protocol is
disabled), INVALID_GROUP_ID (empty), COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE,
NOT_COORDINATOR.

Versions:
- v1 member_type
"""

from __future__ import annotations

from typing import Any

from kserver.api.consumer_group_heartbeat import check_protocol
from kserver.api.context import Context
from kserver.api.group_requests import ask
from kserver.api.response_fields import GROUP_OPERATIONS, NOT_REQUESTED
from kserver.errors import ErrorCode, KafkaError
from kserver.group.consumer_events import Partitions, by_topic
from kserver.group.consumer_requests import DescribeConsumerGroup, DescribedConsumer
from kserver.wire.versions import reply_to

KEY, VERSIONS = 69, range(0, 2)

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1


async def handle(request: Any, context: Context) -> Any:
    reply = reply_to(request)
    operations = GROUP_OPERATIONS if request.include_authorized_operations else NOT_REQUESTED
    return reply(
        groups=[
            reply.groups(group_id=group_id, **await _describe(group_id, operations, reply, context))
            for group_id in request.group_ids
        ]
    )


async def _describe(group_id: str, operations: int, reply: Any, context: Context) -> dict[str, Any]:
    """Return the response fields of a group."""
    try:
        if not group_id:
            raise KafkaError(ErrorCode.invalid_group_id)
        check_protocol(context)
        group = await ask(group_id, DescribeConsumerGroup(group_id), context)
    except KafkaError as error:
        return {"error_code": error.code, "error_message": error.message or None}
    return {
        "group_state": group.state,
        "group_epoch": group.epoch,
        "assignment_epoch": group.target_epoch,
        "assignor_name": group.assignor,
        "members": [_member(member, reply.groups.members, context) for member in group.members],
        "authorized_operations": operations,
    }


def _member(member: DescribedConsumer, reply: Any, context: Context) -> Any:
    subscription = member.subscription
    return reply(
        member_id=member.id,
        instance_id=subscription.instance_id,
        rack_id=subscription.rack_id,
        member_epoch=member.epoch,
        client_id=subscription.client_id,
        client_host=subscription.client_host,
        subscribed_topic_names=subscription.topics,
        subscribed_topic_regex=subscription.pattern,
        assignment=_assignment(member.assigned, reply.assignment, context),
        target_assignment=_assignment(member.target, reply.target_assignment, context),
        member_type=CONSUMER_MEMBER if subscription.classic is None else CLASSIC_MEMBER,
    )


def _assignment(partitions: Partitions, reply: Any, context: Context) -> Any:
    names = context.parts.metadata.current.topic_names
    return reply(
        topic_partitions=[
            reply.topic_partitions(
                topic_id=topic_id, topic_name=names[topic_id], partitions=numbers
            )
            for topic_id, numbers in by_topic(partitions).items()
            if topic_id in names
        ]
    )
