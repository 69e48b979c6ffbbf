"""AlterConfigs (key 33): v0-v2.

Behaviour:
- Like IncrementalAlterConfigs, but the given configs replace all overrides of a resource, so that
  omitted ones fall back to their defaults; clients older than 2.3 have only this API.
- Not available for loggers.

Errors: those of IncrementalAlterConfigs.

Versions:
- v2 flexible
"""

from __future__ import annotations

from typing import Any

from kserver.api.context import Context
from kserver.api.incremental_alter_configs import alter
from kserver.cluster_config.configs import Change, Op, OpType

KEY, VERSIONS = 33, range(3)


async def handle(request: Any, context: Context) -> Any:
    changes = [
        Change(
            resource.resource_type,
            resource.resource_name,
            [Op(c.name, OpType.SET, c.value) for c in resource.configs],
            replaces=True,
        )
        for resource in request.resources
    ]
    return await alter(changes, request, context)
