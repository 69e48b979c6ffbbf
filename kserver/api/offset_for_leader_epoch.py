"""OffsetForLeaderEpoch (key 23): v2-v4.

Behaviour:
- Returns the end offset in this log of the largest epoch not above the requested one (KIP-101,
  KIP-279); consumers use it to see whether records that they read were lost (KIP-320).
- Replica ids of 0 and above are treated like clients' ids, as Apache does without an authorizer.

Errors: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH,
UNKNOWN_LEADER_EPOCH.

Versions:
- v3 replica id; v4 flexible
"""

from __future__ import annotations

from typing import Any

from kserver.api.context import Context
from kserver.errors import ErrorCode, KafkaError
from kserver.model import NO_EPOCH
from kserver.wire.versions import reply_to

KEY, VERSIONS = 23, range(2, 5)


async def handle(request: Any, context: Context) -> Any:
    reply = reply_to(request)
    topics = []
    for topic in request.topics:
        partitions = []
        for query in topic.partitions:
            code, epoch, end = ErrorCode.none, NO_EPOCH, -1
            try:
                partition = context.parts.replicas.get(topic.topic, query.partition)
                partition.check_leader(query.current_leader_epoch)
                epoch, end = partition.log.end_offset_for_epoch(query.leader_epoch)
            except KafkaError as error:
                code = error.code
            partitions.append(
                reply.topics.partitions(
                    error_code=code, partition=query.partition, leader_epoch=epoch, end_offset=end
                )
            )
        topics.append(reply.topics(topic=topic.topic, partitions=partitions))
    return reply(topics=topics)
