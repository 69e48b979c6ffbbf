"""DeleteRecords (key 21): v0-v2.

Behaviour:
- Moves the log start offset of partitions forward, never back; -1 stands for the high watermark.
  The answer's low watermark is where the log starts now.
- The new starts are in log-start-offset-checkpoint before the answer, where Apache's broker writes
  it once a minute: what was said to be deleted does not come back with a crash.  On a full disk
  they follow once there is room, since deleting is how one makes room.
- Retention removes the segments that lie wholly below, at its next turn
  (`log.retention.check.interval.ms`), and their files after `file.delete.delay.ms`.

Errors: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, OFFSET_OUT_OF_RANGE (below -1, or above
the high watermark), POLICY_VIOLATION (cleanup.policy without delete), INVALID_TOPIC_EXCEPTION (an
internal topic), KAFKA_STORAGE_ERROR.

Versions:
- v2 flexible
"""

from __future__ import annotations

from typing import Any

from kserver.api.context import Context
from kserver.errors import ErrorCode, KafkaError
from kserver.model import INTERNAL_TOPICS, NO_EPOCH, Offset
from kserver.wire.versions import reply_to

KEY, VERSIONS = 21, range(0, 3)


async def handle(request: Any, context: Context) -> Any:
    reply = reply_to(request)
    topics = []
    for topic in request.topics:
        answers = []
        for asked in topic.partitions:
            code, low_watermark = ErrorCode.none, -1
            try:
                low_watermark = _delete(topic.name, asked.partition_index, asked.offset, context)
            except KafkaError as error:
                code = error.code
            answers.append(
                reply.topics.partitions(
                    partition_index=asked.partition_index,
                    low_watermark=low_watermark,
                    error_code=code,
                )
            )
        topics.append(reply.topics(name=topic.name, partitions=answers))
    await context.parts.logs.write_log_starts()
    return reply(topics=topics)


def _delete(topic: str, index: int, offset: Offset, context: Context) -> Offset:
    if topic in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.invalid_topic_exception)
    partition = context.parts.replicas.get(topic, index)
    partition.check_leader(NO_EPOCH)
    return partition.delete_records(offset)
