"""IncrementalAlterConfigs (key 44): v0-v1.

Behaviour:
- Changes configs of topics, this broker, all brokers (the name ""), this broker's loggers, and
  consumer groups, which need not exist; operations are set, delete, append and subtract (KIP-339).
- Each resource is changed as a whole or not at all, independently of others; a change is in force
  by the time of the response.
- Given up with REQUEST_TIMED_OUT if ZooKeeper has not taken it within zookeeper.session.timeout.ms:
  the client may have sent it to another broker by then, and later changes after it.
- Configs that name a class, a file, a command or a password are refused.
- Loggers keep a level until the broker stops (KIP-412).

Errors: INVALID_CONFIG (a topic's, a group's), INVALID_REQUEST (a broker's; a resource or key named
twice, no value, a type of resource without configs here), INVALID_TOPIC_EXCEPTION,
UNKNOWN_TOPIC_OR_PARTITION, NOT_CONTROLLER, REQUEST_TIMED_OUT, KAFKA_STORAGE_ERROR.

Versions:
- v1 flexible
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kserver.api import broker_loggers
from kserver.api.context import Context
from kserver.cluster_config.configs import Change, Op, ResourceType, check_broker, refused
from kserver.errors import ErrorCode, KafkaError
from kserver.wire.versions import reply_to

KEY, VERSIONS = 44, range(2)


async def handle(request: Any, context: Context) -> Any:
    changes = [
        Change(
            resource.resource_type,
            resource.resource_name,
            [Op(c.name, c.config_operation, c.value) for c in resource.configs],
        )
        for resource in request.resources
    ]
    return await alter(changes, request, context)


async def alter(changes: Sequence[Change], request: Any, context: Context) -> Any:
    """Make the changes, and return the response with the result of each resource, in order."""
    parts = context.parts
    results = refused(changes)
    stored = []
    for at, change in enumerate(changes):
        if results[at] is None:
            if change.kind == ResourceType.BROKER_LOGGER:
                results[at] = _log(change, context, validate_only=request.validate_only)
            else:
                stored.append(at)
    done = await parts.configs.alter_configs(
        [changes[at] for at in stored], validate_only=request.validate_only
    )
    for at, result in zip(stored, done, strict=True):
        results[at] = result
    reply = reply_to(request)
    return reply(
        responses=[
            reply.responses(
                error_code=ErrorCode.none if error is None else error.code,
                error_message=error and (error.message or None),
                resource_type=change.kind,
                resource_name=change.name,
            )
            for change, error in zip(changes, results, strict=True)
        ]
    )


def _log(change: Change, context: Context, *, validate_only: bool) -> KafkaError | None:
    try:
        check_broker(change.name, context.parts.broker_id)
        broker_loggers.alter(change.ops, validate_only=validate_only)
    except KafkaError as error:
        return error
    return None
