"""AlterPartitionReassignments (key 45): v0-v1.

Behaviour:
- Reassigns a partition to these replicas; without any, cancels its reassignment in progress
  (KIP-455).  The response is sent once that is recorded; ListPartitionReassignments reports when it
  is done.
- If the replication factor may not change, a partition is refused that would get another number of
  replicas than it has, or is to have by a reassignment in progress (KIP-860).

Versions:
- v1 allow_replication_factor_change

Errors: NOT_CONTROLLER for all of them; by partition UNKNOWN_TOPIC_OR_PARTITION,
INVALID_REPLICA_ASSIGNMENT, INVALID_REPLICATION_FACTOR, NO_REASSIGNMENT_IN_PROGRESS.
"""

from __future__ import annotations

from typing import Any

from kserver.api.context import Context
from kserver.errors import ErrorCode, KafkaError
from kserver.model import TopicPartition
from kserver.wire.versions import reply_to

KEY, VERSIONS = 45, range(0, 2)


async def handle(request: Any, context: Context) -> Any:
    reply = reply_to(request)
    may_change = getattr(request, "allow_replication_factor_change", True)
    targets = {
        TopicPartition(topic.name, partition.partition_index): partition.replicas
        for topic in request.topics
        for partition in topic.partitions
    }
    try:
        results = await context.parts.controller.alter_reassignments(
            targets, allow_replication_factor_change=may_change
        )
    except KafkaError as error:
        return reply(
            allow_replication_factor_change=may_change,
            error_code=error.code,
            error_message=error.message or None,
            responses=[],
        )
    topics: dict[str, list[Any]] = {}
    for key, refused in results.items():
        topics.setdefault(key.topic, []).append(
            reply.responses.partitions(
                partition_index=key.partition,
                error_code=refused.code if refused else ErrorCode.none,
                error_message=(refused.message or None) if refused else None,
            )
        )
    responses = [reply.responses(name=name, partitions=p) for name, p in topics.items()]
    return reply(
        allow_replication_factor_change=may_change,
        error_code=ErrorCode.none,
        error_message=None,
        responses=responses,
    )
