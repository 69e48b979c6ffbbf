"""DescribeTopicPartitions (key 75): v0.

Behaviour:
- Returns topics in order of their names, with at most `response_partition_limit` partitions per
  response (and at most `max.request.partition.size.limit`); the cursor is where the next response
  continues (KIP-966).
- No topics means all of them.
- Eligible leader replicas are empty lists, never null: Java's client dereferences them.

Errors: UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION, INVALID_REQUEST (a cursor whose topic
was not requested, or whose partition is negative).
"""

from __future__ import annotations

from typing import Any

from kserver.api.context import Context
from kserver.api.response_fields import TOPIC_OPERATIONS, state_of
from kserver.errors import ErrorCode, KafkaError
from kserver.metadata import check_topic_name
from kserver.wire.versions import reply_to

KEY, VERSIONS = 75, range(0, 1)


async def handle(request: Any, context: Context) -> Any:
    reply = reply_to(request)
    image = await context.cluster_metadata()
    topic_names = {topic.name for topic in request.topics}
    names = sorted(topic_names or image.topics)
    first = 0
    cursor = request.cursor
    if cursor is not None:
        # If all topics are requested, the cursor's topic may have been deleted meanwhile.
        if cursor.partition_index < 0 or (topic_names and cursor.topic_name not in topic_names):
            invalid = ErrorCode.invalid_request
            return reply(topics=[reply.topics(error_code=invalid, name=name) for name in names])
        names = [name for name in names if name >= cursor.topic_name]
        if names and names[0] == cursor.topic_name:
            first = cursor.partition_index
    remaining = min(
        request.response_partition_limit, context.parts.config().max_request_partition_size_limit
    )
    remaining = max(remaining, 1)
    topics: list[Any] = []
    for name in names:
        if remaining == 0:
            return reply(
                topics=topics,
                next_cursor=reply.next_cursor(topic_name=name, partition_index=0),
            )
        topic = image.topics.get(name)
        if topic is None:
            topics.append(reply.topics(error_code=_why_missing(name), name=name))
            continue
        page = topic.partitions[first : first + remaining]
        topics.append(
            reply.topics(
                error_code=ErrorCode.none,
                name=name,
                topic_id=topic.id,
                is_internal=topic.is_internal,
                topic_authorized_operations=TOPIC_OPERATIONS,
                partitions=[
                    reply.topics.partitions(
                        **state_of(name, p, image, context),
                        eligible_leader_replicas=(),
                        last_known_elr=(),
                    )
                    for p in page
                ],
            )
        )
        remaining -= len(page)
        if first + len(page) < len(topic.partitions):
            return reply(
                topics=topics,
                next_cursor=reply.next_cursor(topic_name=name, partition_index=first + len(page)),
            )
        first = 0
    return reply(topics=topics)


def _why_missing(name: str) -> ErrorCode:
    try:
        check_topic_name(name)
    except KafkaError as error:
        return error.code
    return ErrorCode.unknown_topic_or_partition
