"""AlterConfigs (key 33): v0-v2.

Behaviour:
- As IncrementalAlterConfigs, but what is given replaces all overrides of a resource, so that what
  is left out falls back; clients older than 2.3 have nothing else.
- Loggers have no such thing.

Errors: those of IncrementalAlterConfigs.

Versions:
- v2 flexible
"""

from __future__ import annotations

from typing import Any

from kserver.api.context import Context
from kserver.api.incremental_alter_configs import answer
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
    return await answer(changes, request, context)
