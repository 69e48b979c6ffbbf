"""DeleteRecords (key 21): v0-v2.

Behaviour:
- Moves the log start offset of partitions forward, never back; -1 means the high watermark.  The
  response is sent once the replicas of all live brokers start there as well, so that no later
  leader restores those records; its low watermark is the lowest log start offset of them.
- The new log starts are in log-start-offset-checkpoint before the response, which Apache's broker
  writes once a minute: records reported as deleted do not return after a crash.  On a full disk
  they are written within a second once there is room, since deleting makes room.
- Retention removes the segments that are wholly below, at its next run
  (`log.retention.check.interval.ms`), and their files after `file.delete.delay.ms`.

Errors: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, OFFSET_OUT_OF_RANGE (below -1, or above
the high watermark), POLICY_VIOLATION (cleanup.policy without delete), INVALID_TOPIC_EXCEPTION (an
internal topic), KAFKA_STORAGE_ERROR, REQUEST_TIMED_OUT (a follower has not deleted them yet).

Versions:
- v2 flexible
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any, NamedTuple

from kserver.api.context import Context, Parts
from kserver.errors import ErrorCode, KafkaError
from kserver.model import INTERNAL_TOPICS, NO_EPOCH, BrokerId, LeaderEpoch, Offset
from kserver.replica.partition import Partition
from kserver.wire.versions import reply_to

KEY, VERSIONS = 21, range(0, 3)


class Deletion(NamedTuple):
    partition: Partition
    led_since: LeaderEpoch
    before: Offset

    def is_over(self, live: Container[BrokerId]) -> bool:
        return not self.is_led or self.partition.low_watermark(live) >= self.before

    @property
    def is_led(self) -> bool:
        return self.partition.led_since == self.led_since

    def outcome(self, live: Container[BrokerId]) -> tuple[ErrorCode, Offset]:
        if not self.is_led:
            return ErrorCode.not_leader_or_follower, -1
        is_over = self.is_over(live)
        code = ErrorCode.none if is_over else ErrorCode.request_timed_out
        return code, self.partition.low_watermark(live)


async def handle(request: Any, context: Context) -> Any:
    reply, parts = reply_to(request), context.parts
    outcomes: dict[tuple[str, int], Deletion | ErrorCode] = {}
    for topic in request.topics:
        for partition in topic.partitions:
            key = (topic.name, partition.partition_index)
            try:
                outcomes[key] = _delete(*key, partition.offset, context)
            except KafkaError as error:
                outcomes[key] = error.code
    await parts.logs.write_log_starts()
    deletions = [deletion for deletion in outcomes.values() if isinstance(deletion, Deletion)]
    await _until_over(deletions, parts, request.timeout.total_seconds())
    live = parts.metadata.current.brokers

    def partition_result(topic: str, partition: int) -> Any:
        outcome = outcomes[topic, partition]
        if isinstance(outcome, Deletion):
            code, low_watermark = outcome.outcome(live)
        else:
            code, low_watermark = outcome, -1
        return reply.topics.partitions(
            partition_index=partition, low_watermark=low_watermark, error_code=code
        )

    return reply(
        topics=[
            reply.topics(
                name=topic.name,
                partitions=[
                    partition_result(topic.name, partition.partition_index)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _delete(topic: str, index: int, offset: Offset, context: Context) -> Deletion:
    if topic in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.invalid_topic_exception)
    partition = context.parts.replicas.get(topic, index)
    partition.check_leader(NO_EPOCH)
    return Deletion(partition, partition.led_since, partition.delete_records(offset))


async def _until_over(deletions: Sequence[Deletion], parts: Parts, timeout_s: float) -> None:
    """Wait until every live follower has deleted the same records, or the timeout."""
    over = parts.loop.create_future()

    def end() -> None:
        if not over.done():
            over.set_result(None)

    def ready() -> bool:
        live = parts.metadata.current.brokers
        if not all(deletion.is_over(live) for deletion in deletions):
            return False
        end()
        return True

    if ready():
        return
    keys = [deletion.partition.topic_partition for deletion in deletions]
    wait = parts.purgatory.wait(keys, ready, parts.loop.time() + max(timeout_s, 0), end)
    try:
        await over
    finally:
        wait.end()
