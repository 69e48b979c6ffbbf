"""OffsetDelete (key 47): v0.

Behaviour:
- Deletes committed offsets of a group; if it has members, only those of topics that none of them
  subscribes to (KIP-496).  An offset that was never committed is not an error.

Errors: GROUP_ID_NOT_FOUND, INVALID_GROUP_ID, NON_EMPTY_GROUP (members that are not consumers: their
topics are not known), COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR; of
a partition UNKNOWN_TOPIC_OR_PARTITION, GROUP_SUBSCRIBED_TO_TOPIC.
"""

from __future__ import annotations

from typing import Any

from kserver.api.context import Context
from kserver.api.group_requests import ask
from kserver.errors import ErrorCode, KafkaError
from kserver.group.requests import DeleteOffsets
from kserver.wire.versions import reply_to

KEY, VERSIONS = 47, range(0, 1)


async def handle(request: Any, context: Context) -> Any:
    reply = reply_to(request)
    keys = [(topic.name, p.partition_index) for topic in request.topics for p in topic.partitions]
    existing_keys = [partition for partition in keys if _exists(*partition, context)]
    try:
        codes = await ask(request.group_id, DeleteOffsets(request.group_id, existing_keys), context)
    except KafkaError as error:
        return reply(error_code=error.code)
    deleted = dict(zip(existing_keys, codes, strict=True))
    unknown = ErrorCode.unknown_topic_or_partition
    return reply(
        topics=[
            reply.topics(
                name=topic.name,
                partitions=[
                    reply.topics.partitions(
                        partition_index=p.partition_index,
                        error_code=deleted.get((topic.name, p.partition_index), unknown),
                    )
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _exists(topic: str, partition: int, context: Context) -> bool:
    info = context.parts.metadata.current.topics.get(topic)
    return info is not None and 0 <= partition < len(info.partitions)
