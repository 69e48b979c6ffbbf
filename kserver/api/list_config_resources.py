"""ListConfigResources (key 74): v0-v1.

Behaviour:
- Returns the names of resources that can have configs: topics, brokers, and brokers again for their
  loggers; all types, or the requested ones (KIP-1142).
- Groups are listed only if they have configs of their own.
- Client metrics have no configs here, so none is listed; v0, which was
  ListClientMetricsResources, has no other type.

Errors: UNSUPPORTED_VERSION for an unknown type.

Versions:
- v1 resource types in request and response
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kserver.api.context import Context
from kserver.cluster_config.configs import ResourceType
from kserver.errors import ErrorCode
from kserver.wire.versions import reply_to

KEY, VERSIONS = 74, range(2)

FIRST_WITH_KINDS = 1


async def handle(request: Any, context: Context) -> Any:
    reply = reply_to(request)
    types = [ResourceType.CLIENT_METRICS]
    if context.version >= FIRST_WITH_KINDS:
        types = list(dict.fromkeys(request.resource_types)) or list(ResourceType)
    if not set(types) <= set(ResourceType):
        return reply(error_code=ErrorCode.unsupported_version, config_resources=[])
    return reply(
        error_code=ErrorCode.none,
        config_resources=[
            reply.config_resources(resource_name=name, resource_type=kind)
            for kind in types
            for name in _names(kind, context)
        ],
    )


def _names(kind: int, context: Context) -> Iterable[str]:
    image = context.parts.metadata.current
    if kind == ResourceType.TOPIC:
        return image.topics
    if kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        return map(str, image.brokers)
    if kind == ResourceType.GROUP:
        return image.group_configs
    return ()
