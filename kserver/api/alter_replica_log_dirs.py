"""AlterReplicaLogDirs (key 34): v1-v2.

Behaviour:
- Each replica begins to move to the directory, an entry of log.dirs as it stands there, and is
  answered at once; DescribeLogDirs tells how far it is.  It is written to and read meanwhile.
- Asked for another directory, the move begins anew; asked for the one where it is, it ends.
- A start gives up what was on its way, where Apache's broker goes on with it.
- A partition that is not here yet is refused, and not remembered for when it comes.

Errors: LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR (the directory, the partition or any directory is
offline, or is full), UNKNOWN_TOPIC_OR_PARTITION, REPLICA_NOT_AVAILABLE (it is elsewhere, or
not here yet), INVALID_TOPIC_EXCEPTION (the name is too long).

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
                        # What clients wait for while a replica is on its way to this broker.
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
