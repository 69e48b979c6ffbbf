"""ListOffsets (key 2): v1-v11.

Behaviour:
- Latest is the high watermark, or the last stable offset for read_committed; by time the first
  record at or after the timestamp, found inside its batch; neither is ever beyond the visible
  records.
- A timestamp after all records: offset -1, timestamp -1, no error.
- A look-up by time reads the log in a thread.
- For a follower, by its replica id, latest is the log's end.  Ids that are not of live brokers are
  treated like clients' ids: some tools leave the field 0, and would show a lag of 0.
- A new leader does not return latest until its high watermark has reached the start of its epoch:
  it may be behind what an earlier leader returned (KIP-207).

Errors: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH,
UNKNOWN_LEADER_EPOCH, INVALID_REQUEST (a partition named twice), KAFKA_STORAGE_ERROR,
UNSUPPORTED_VERSION (a negative timestamp without a meaning, or without one in that version),
OFFSET_NOT_AVAILABLE (LEADER_NOT_AVAILABLE before v5), CORRUPT_MESSAGE (a batch that may contain the
timestamp cannot be read).

Versions:
- v2 isolation level; v4 leader epochs (KIP-320); v6 flexible; v7 max timestamp (-3, KIP-734)
- v8 earliest local (-4); v9 latest tiered (-5); v10 timeout; v11 earliest pending upload (-6):
  there is no tiered storage, so -4 is the earliest, -5 and -6 are unknown (-1)
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from kserver.api.context import Context, is_broker
from kserver.errors import ErrorCode, KafkaError, StorageError
from kserver.model import NO_EPOCH, NO_TIMESTAMP, LeaderEpoch, Offset
from kserver.wire.special_offsets import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
)
from kserver.wire.versions import reply_to

KEY, VERSIONS = 2, range(1, 12)

SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
READ_COMMITTED = 1
FIRST_WITH_OFFSET_NOT_AVAILABLE = 5

TimestampAndOffset = tuple[int, Offset, LeaderEpoch]
UNKNOWN: TimestampAndOffset = (NO_TIMESTAMP, -1, NO_EPOCH)


async def handle(request: Any, context: Context) -> Any:
    reply = reply_to(request)
    committed = getattr(request, "isolation_level", 0) == READ_COMMITTED
    to_log_end = is_broker(request.replica_id, context.session, context.parts)
    times = Counter((t.name, p.partition_index) for t in request.topics for p in t.partitions)
    topics = []
    for topic in request.topics:
        partitions = []
        for partition in topic.partitions:
            index = partition.partition_index
            try:
                if times[topic.name, index] > 1:
                    raise KafkaError(ErrorCode.invalid_request)
                timestamp, offset, epoch = await _look_up(
                    topic.name, partition, committed, to_log_end, context
                )
            except (KafkaError, StorageError) as error:
                code = getattr(error, "code", ErrorCode.kafka_storage_error)
                partitions.append(
                    reply.topics.partitions(
                        partition_index=index,
                        error_code=code,
                        timestamp=NO_TIMESTAMP,
                        offset=-1,
                        leader_epoch=NO_EPOCH,
                    )
                )
                continue
            partitions.append(
                reply.topics.partitions(
                    partition_index=index,
                    error_code=ErrorCode.none,
                    timestamp=timestamp,
                    offset=offset,
                    leader_epoch=epoch,
                )
            )
        topics.append(reply.topics(name=topic.name, partitions=partitions))
    return reply(topics=topics)


async def _look_up(
    topic: str, query: Any, committed: bool, to_log_end: bool, context: Context
) -> TimestampAndOffset:
    partition = context.parts.replicas.get(topic, query.partition_index)
    partition.check_leader(getattr(query, "current_leader_epoch", NO_EPOCH))
    log = partition.log
    timestamp = query.timestamp
    if timestamp < 0 and context.version < SINCE.get(timestamp, 0):
        raise KafkaError(ErrorCode.unsupported_version)
    visible = log.last_stable_offset if committed else log.high_watermark
    if timestamp == LATEST:
        if to_log_end:
            visible = log.log_end_offset
        elif not partition.knows_what_is_committed:
            raise _not_available(context)
        return NO_TIMESTAMP, visible, partition.epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start = log.log_start_offset
        return NO_TIMESTAMP, start, log.epochs.epoch_of(start)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return UNKNOWN
    if timestamp == MAX_TIMESTAMP:
        result = await log.offset_of_max_timestamp()
    elif timestamp < 0:
        raise KafkaError(ErrorCode.unsupported_version)
    else:
        result = await log.offset_for_timestamp(timestamp)
    if result is None or result[1] >= visible:
        if not partition.knows_what_is_committed:
            raise _not_available(context)
        return UNKNOWN
    return result


def _not_available(context: Context) -> KafkaError:
    return KafkaError(
        ErrorCode.offset_not_available
        if context.version >= FIRST_WITH_OFFSET_NOT_AVAILABLE
        else ErrorCode.leader_not_available
    )
