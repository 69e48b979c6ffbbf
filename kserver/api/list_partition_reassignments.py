"""ListPartitionReassignments (key 46): v0.

Behaviour:
- Returns those of the named partitions, or of all, that are being reassigned (KIP-455).

Errors: NOT_CONTROLLER.
"""

from __future__ import annotations

from typing import Any

from kserver.api.context import Context
from kserver.errors import ErrorCode, KafkaError
from kserver.model import TopicPartition
from kserver.wire.versions import reply_to

KEY, VERSIONS = 46, range(0, 1)


async def handle(request: Any, context: Context) -> Any:
    reply = reply_to(request)
    keys = None
    if request.topics is not None:
        keys = [
            TopicPartition(topic.name, number)
            for topic in request.topics
            for number in topic.partition_indexes
        ]
    try:
        reassignments = context.parts.controller.list_reassignments(keys)
    except KafkaError as error:
        return reply(error_code=error.code, error_message=error.message or None, topics=[])
    topics: dict[str, list[Any]] = {}
    for key, info in reassignments.items():
        topics.setdefault(key.topic, []).append(
            reply.topics.partitions(
                partition_index=key.partition,
                replicas=info.replicas,
                adding_replicas=info.adding,
                removing_replicas=info.removing,
            )
        )
    topic_results = [reply.topics(name=name, partitions=p) for name, p in topics.items()]
    return reply(error_code=ErrorCode.none, error_message=None, topics=topic_results)
