"""DeleteTopics (key 20): v1-v6.

Behaviour:
- Deletes topics by name, from v6 also by id.  Each has its own result, sent once the deletion is
  recorded and clients no longer get the topic in metadata.  Its name can be used again
  once every replica is deleted, including those on brokers that are down or whose disk failed.
- A client above its controller_mutation_rate is refused; up to v4 it is only throttled (KIP-599).

Errors: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, TOPIC_DELETION_DISABLED, INVALID_REQUEST
(named twice, by both name and id, or by neither), THROTTLING_QUOTA_EXCEEDED.

Versions:
- v4 flexible; v5 error messages; v6 topic ids (KIP-516)
"""

from __future__ import annotations

from collections import Counter
from typing import Any
from uuid import UUID

from kserver.api.context import Context
from kserver.api.throttling import Mutations
from kserver.errors import ErrorCode, KafkaError
from kserver.wire.versions import reply_to

KEY, VERSIONS = 20, range(1, 7)

FIRST_STRICT = 5

TopicKey = tuple[str | None, UUID | None]


async def handle(request: Any, context: Context) -> Any:
    reply = reply_to(request)
    if context.version >= 6:
        keys: list[TopicKey] = [(t.name, t.topic_id) for t in request.topics]
    else:
        keys = [(name, None) for name in request.topic_names]
    image = context.parts.metadata.current
    outcomes: list[tuple[str | None, UUID | None, KafkaError | None]] = []
    names: list[str] = []
    times = Counter(keys)
    reported: set[TopicKey] = set()
    for key in keys:
        if key in reported:
            continue
        name, topic_id = key
        try:
            names.append(_resolve(name, topic_id, image.topic_names, times[key]))
        except KafkaError as error:
            outcomes.append((name, topic_id, error))
            if name is not None or topic_id is not None:
                reported.add(key)
    mutations = Mutations(context, strict=context.version >= FIRST_STRICT)
    results = await context.parts.controller.delete_topics(names, mutations.charge)
    for name, result in zip(names, results, strict=True):
        topic = image.topics.get(name)
        outcomes.append((name, topic.id if topic else None, result))
    response = reply(
        responses=[
            reply.responses(
                name=name if name is not None or context.version >= 6 else "",
                topic_id=topic_id,
                error_code=error.code if error else ErrorCode.none,
                error_message=(error.message or None) if error else None,
            )
            for name, topic_id, error in outcomes
        ]
    )
    return mutations.throttled(response)


def _resolve(name: str | None, topic_id: UUID | None, names: Any, times: int) -> str:
    if name is None and topic_id is None:
        text = "Neither topic name nor id were specified."
        raise KafkaError(ErrorCode.invalid_request, text)
    if times > 1:
        kind = "name" if topic_id is None else "id"
        raise KafkaError(ErrorCode.invalid_request, f"Duplicate topic {kind}.")
    if name is not None:
        if topic_id is not None:
            raise KafkaError(
                ErrorCode.invalid_request, "You may not specify both topic name and topic id."
            )
        return name
    topic_name = names.get(topic_id) if topic_id is not None else None
    if topic_name is None:
        raise KafkaError(ErrorCode.unknown_topic_id)
    return str(topic_name)
