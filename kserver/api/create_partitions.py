"""CreatePartitions (key 37): v0-v3.

Behaviour:
- Increases topics to a new total; assignments, if given, are for the new partitions only.
- A client above its controller_mutation_rate is refused; up to v2 it is only throttled (KIP-599).

Errors: UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS, INVALID_REPLICA_ASSIGNMENT, INVALID_REQUEST,
THROTTLING_QUOTA_EXCEEDED.

Versions:
- v2 flexible; v3 quota errors
"""

from __future__ import annotations

from typing import Any

from kserver.api.context import Context
from kserver.api.throttling import Mutations
from kserver.controller.topics import CreatablePartitions
from kserver.errors import ErrorCode
from kserver.wire.versions import reply_to

KEY, VERSIONS = 37, range(0, 4)

FIRST_STRICT = 3


async def handle(request: Any, context: Context) -> Any:
    reply = reply_to(request)
    new_partitions = [
        CreatablePartitions(
            name=topic.name,
            count=topic.count,
            assignments=None
            if topic.assignments is None
            else [a.broker_ids for a in topic.assignments],
        )
        for topic in request.topics
    ]
    mutations = Mutations(context, strict=context.version >= FIRST_STRICT)
    errors = await context.parts.controller.create_partitions(
        new_partitions, validate_only=request.validate_only, charge=mutations.charge
    )
    response = reply(
        results=[
            reply.results(
                name=new.name,
                error_code=error.code if error else ErrorCode.none,
                error_message=(error.message or None) if error else None,
            )
            for new, error in zip(new_partitions, errors, strict=True)
        ]
    )
    return mutations.throttled(response)
