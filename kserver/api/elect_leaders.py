"""ElectLeaders (key 43): v0-v2.

Behaviour:
- The controller elects the preferred replica, or, for a partition without a leader, one that is not
  in sync.
- No partitions means all; those that need no election are left out of the response.
- A partition has its result once this broker's metadata has the new leader.

Errors: NOT_CONTROLLER for all of them, which v0 returns for each partition; by partition
ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE,
UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION (being deleted), INVALID_REQUEST (an election of
another type).

Versions:
- v1 types of election (KIP-460); v2 flexible
"""

from __future__ import annotations

from typing import Any

from kserver.api.context import Context
from kserver.errors import ErrorCode, KafkaError
from kserver.model import ElectionType, TopicPartition
from kserver.wire.versions import reply_to

KEY, VERSIONS = 43, range(0, 3)


async def handle(request: Any, context: Context) -> Any:
    reply = reply_to(request)
    keys = None
    if request.topic_partitions is not None:
        keys = [
            TopicPartition(topic.topic, number)
            for topic in request.topic_partitions
            for number in topic.partitions
        ]
    results: dict[TopicPartition, KafkaError | None]
    code = ErrorCode.none
    try:
        election = ElectionType(request.election_type if context.version >= 1 else 0)
        results = await context.parts.controller.elect_leaders(election, keys)
    except ValueError:
        code = ErrorCode.invalid_request
        error = KafkaError(code, f"There is no election type {request.election_type}.")
        results = dict.fromkeys(keys or (), error)
    except KafkaError as error:
        code = error.code
        results = dict.fromkeys(keys or (), error)
    topics: dict[str, list[Any]] = {}
    for key, key_error in results.items():
        if keys is None and key_error and key_error.code is ErrorCode.election_not_needed:
            continue
        topics.setdefault(key.topic, []).append(
            reply.replica_election_results.partition_result(
                partition_id=key.partition,
                error_code=key_error.code if key_error else ErrorCode.none,
                error_message=(key_error.message or None) if key_error else None,
            )
        )
    fields = {"error_code": code} if context.version >= 1 else {}
    return reply(
        replica_election_results=[
            reply.replica_election_results(topic=name, partition_result=partition_results)
            for name, partition_results in topics.items()
        ],
        **fields,
    )
