"""AlterClientQuotas (key 49): v0-v1.

Behaviour:
- Each entity has its own result; a change is in force by the time of the response, also for open
  connections.
- `validate_only` checks the changes without making them.

Errors: INVALID_REQUEST (an entity that is invalid or named twice, a key that is invalid for it or
named twice, an invalid value), NOT_CONTROLLER, REQUEST_TIMED_OUT (as in IncrementalAlterConfigs),
KAFKA_STORAGE_ERROR.

Versions:
- v1 flexible
"""

from __future__ import annotations

from typing import Any

from kserver.api.context import Context
from kserver.cluster_config.quotas import Alteration
from kserver.errors import ErrorCode
from kserver.wire.versions import reply_to

KEY, VERSIONS = 49, range(0, 2)


async def handle(request: Any, context: Context) -> Any:
    reply = reply_to(request)
    changes = [
        Alteration(
            components=[
                (component.entity_type, component.entity_name) for component in entry.entity
            ],
            changes=[(op.key, None if op.remove else op.value) for op in entry.ops],
        )
        for entry in request.entries
    ]
    errors = await context.parts.configs.alter_quotas(changes, validate_only=request.validate_only)
    return reply(
        entries=[
            reply.entries(
                error_code=error.code if error else ErrorCode.none,
                error_message=(error.message or None) if error else None,
                entity=[
                    reply.entries.entity(entity_type=kind, entity_name=name)
                    for kind, name in alteration.components
                ],
            )
            for alteration, error in zip(changes, errors, strict=True)
        ]
    )
