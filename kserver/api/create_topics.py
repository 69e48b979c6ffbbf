"""CreateTopics (key 19): v2-v7.

Behaviour:
- Every topic has its own result; it has a leader and accepts writes by the time of the response.
- -1 means `num.partitions` and `default.replication.factor` (KIP-464).
- A client above its controller_mutation_rate is refused; up to v5 it is only throttled (KIP-599).
- From v5 the response has partitions, replication factor and all configs (KIP-525).

Errors: TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION, INVALID_PARTITIONS,
INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT, INVALID_CONFIG, INVALID_REQUEST,
THROTTLING_QUOTA_EXCEEDED.

Versions:
- v4 defaults by -1; v5 flexible, configs; v6 quota errors; v7 topic ids
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from kserver.api.context import Context
from kserver.api.describe_configs import topic_entries
from kserver.api.throttling import Mutations
from kserver.controller.topics import CreatableTopic
from kserver.errors import ErrorCode, KafkaError
from kserver.metadata import TopicInfo
from kserver.wire.versions import reply_to

KEY, VERSIONS = 19, range(2, 8)

FIRST_STRICT = 6


async def handle(request: Any, context: Context) -> Any:
    reply = reply_to(request)
    # The controller gets each topic once.
    errors = _errors(request.topics)
    new_topics = [
        CreatableTopic(
            name=topic.name,
            partitions=topic.num_partitions,
            replication_factor=topic.replication_factor,
            assignments={a.partition_index: a.broker_ids for a in topic.assignments} or None,
            config={c.name: c.value for c in topic.configs},
        )
        for topic in request.topics
        if topic.name not in errors
    ]
    mutations = Mutations(context, strict=context.version >= FIRST_STRICT)
    made = await context.parts.controller.create_topics(
        new_topics, validate_only=request.validate_only, charge=mutations.charge
    )
    results = dict(zip([new.name for new in new_topics], made, strict=True))
    topics = []
    for name, topic in (results | errors).items():
        if not isinstance(topic, TopicInfo):
            topics.append(
                reply.topics(
                    name=name,
                    error_code=topic.code,
                    error_message=topic.message or None,
                    num_partitions=-1,
                    replication_factor=-1,
                    configs=(),
                )
            )
            continue
        topics.append(
            reply.topics(
                name=topic.name,
                topic_id=topic.id,
                error_code=ErrorCode.none,
                num_partitions=len(topic.partitions),
                replication_factor=len(topic.partitions[0].replicas),
                configs=[
                    reply.topics.configs(
                        name=entry.name,
                        value=entry.value,
                        read_only=entry.read_only,
                        config_source=entry.source,
                        is_sensitive=entry.sensitive,
                    )
                    for entry in topic_entries(topic, context.parts.config())
                ],
            )
        )
    return mutations.throttled(reply(topics=topics))


def _errors(topics: Sequence[Any]) -> dict[str, KafkaError]:
    """Return the errors of topics named twice, one for each name, or with a partition assigned
    twice."""
    errors = {}
    for topic in topics:
        times = Counter(a.partition_index for a in topic.assignments)
        twice = [partition for partition, number in times.items() if number > 1]
        if twice:
            errors[topic.name] = KafkaError(
                ErrorCode.invalid_replica_assignment,
                f"Found multiple manual partition assignments for partition {twice[0]}",
            )
    for name, number in Counter(topic.name for topic in topics).items():
        if number > 1:
            errors[name] = KafkaError(ErrorCode.invalid_request, "Duplicate topic name.")
    return errors
