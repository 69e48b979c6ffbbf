"""DescribeClientQuotas (key 48): v0-v1.

Behaviour:
- Returns quotas of users, client ids, pairs of both, and addresses: all, or those that match every
  component of the filter (an exact name, the default, or any name); with `strict` only those that
  have no other component.  Entities are in the order of their names; the types of one, and its
  keys, in the order of Kafka 4.3.1.

Errors: INVALID_REQUEST (a type twice, an address together with others, an unexpected name),
UNSUPPORTED_VERSION (another type of entity).

Versions:
- v1 flexible
"""

from __future__ import annotations

from typing import Any

from kserver.api.context import Context
from kserver.cluster_config.quotas import Component, in_kafkas_order, matching, names_of
from kserver.errors import ErrorCode, KafkaError
from kserver.wire.versions import reply_to

KEY, VERSIONS = 48, range(0, 2)


async def handle(request: Any, context: Context) -> Any:
    reply = reply_to(request)
    components = [Component(c.entity_type, c.match_type, c.match) for c in request.components]
    quotas = context.parts.metadata.current.quotas
    try:
        matches = matching(quotas, components, strict=request.strict)
    except KafkaError as error:
        return reply(error_code=error.code, error_message=error.message or None, entries=None)
    entry = reply.entries
    return reply(
        error_code=ErrorCode.none,
        entries=[
            entry(
                entity=[
                    entry.entity(entity_type=kind, entity_name=name)
                    for kind, name in names_of(entity)
                ],
                values=[
                    entry.values(key=key, value=bound) for key, bound in in_kafkas_order(bounds)
                ],
            )
            for entity, bounds in matches
        ],
    )
