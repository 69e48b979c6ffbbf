"""DescribeLogDirs (key 35): v1-v5.

Behaviour:
- Returns the directories of log.dirs with their partitions: all, or those of the named topics.
- A directory whose disk failed has only its error.
- A replica that is being moved is listed twice: in its directory, and as a future replica in the
  target.  Its lag is what the future log lacks of the current one; a current log has none.

Errors: KAFKA_STORAGE_ERROR, of one directory.

Versions:
- v2 flexible; v3 an error for the whole response; v4 total and free bytes of the file system; v5
  whether new partitions are kept out (KIP-1066)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from kserver.api.context import Context
from kserver.errors import ErrorCode, StorageError
from kserver.log.directory import LogDirectory
from kserver.model import TopicPartition
from kserver.wire.versions import reply_to

KEY, VERSIONS = 35, range(1, 6)

PartitionFilter = Callable[[TopicPartition], bool]


async def handle(request: Any, context: Context) -> Any:
    reply = reply_to(request)
    if request.topics is None:
        matches: PartitionFilter = lambda _: True  # noqa: E731
    else:
        requested_partitions = {
            (topic.topic, p) for topic in request.topics for p in topic.partitions
        }
        matches = requested_partitions.__contains__
    results = [await _described(reply, d, matches, context) for d in context.parts.logs.directories]
    return reply(error_code=ErrorCode.none, results=results)


async def _described(
    reply: Any, directory: LogDirectory, matches: PartitionFilter, context: Context
) -> Any:
    disk, path = context.parts.world.disk, directory.path
    try:
        if directory.failure is not None:
            raise directory.failure
        room = await disk.offload(lambda: (disk.total_bytes(path), disk.free_bytes(path)))
    except (OSError, StorageError):
        return reply.results(error_code=ErrorCode.kafka_storage_error, log_dir=path, topics=())
    logs = context.parts.logs
    topics: dict[str, list[Any]] = defaultdict(list)
    for log in logs.logs_in(directory):
        if matches(log.topic_partition):
            current = logs.get(log.topic_partition)
            topics[log.topic_partition.topic].append(
                reply.results.topics.partitions(
                    partition_index=log.topic_partition.partition,
                    partition_size=log.size_bytes,
                    offset_lag=current.log_end_offset - log.log_end_offset if current else 0,
                    is_future_key=log is not current,
                )
            )
    return reply.results(
        error_code=ErrorCode.none,
        log_dir=path,
        topics=[
            reply.results.topics(name=n, partitions=partitions) for n, partitions in topics.items()
        ],
        total_bytes=room[0],
        usable_bytes=room[1],
        is_cordoned=path in context.parts.config().cordoned_log_dirs,
    )
