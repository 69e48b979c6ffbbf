"""AlterReplicaLogDirs (key 34): v1-v2.

Behaviour:
- Starts to move each replica to the directory, which must be an entry of log.dirs, and responds at
  once; DescribeLogDirs reports the progress.  The replica is written to and read meanwhile.
- A request for another directory restarts the move; one for the current directory cancels it.
- A restart of the broker abandons moves in progress, while Apache's broker continues them.
- A partition that is not here yet is refused, and the request is not remembered.

Errors: LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR (the directory, the partition or any directory is
offline, or is full), UNKNOWN_TOPIC_OR_PARTITION, REPLICA_NOT_AVAILABLE (it is elsewhere, or not
here yet), INVALID_TOPIC_EXCEPTION (the name is too long).

Versions:
- v2 flexible
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from kserver.api.context import Context
from kserver.errors import ErrorCode, KafkaError
from kserver.wire.versions import reply_to

KEY, VERSIONS = 34, range(1, 3)


async def handle(request: Any, context: Context) -> Any:
    reply = reply_to(request)
    results: dict[str, list[Any]] = defaultdict(list)
    for directory in request.dirs:
        for topic in directory.topics:
            for number in topic.partitions:
                code = ErrorCode.none
                try:
                    context.parts.moves.begin(topic.name, number, directory.path)
                except KafkaError as error:
                    code = error.code
                    if code == ErrorCode.not_leader_or_follower:
                        # Clients wait on this error while a replica is on its way to this broker.
                        code = ErrorCode.replica_not_available
                results[topic.name].append(
                    reply.results.partitions(partition_index=number, error_code=code)
                )
    return reply(
        results=[
            reply.results(topic_name=name, partitions=partitions)
            for name, partitions in results.items()
        ]
    )
