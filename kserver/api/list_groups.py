"""ListGroups (key 16): v0-v5.

Behaviour:
- Returns the groups that this broker coordinates, with the requested states and types, which are
  case-insensitive; an unknown one matches nothing.

Errors: COORDINATOR_LOAD_IN_PROGRESS (some groups are not loaded yet), COORDINATOR_NOT_AVAILABLE.

Versions:
- v3 flexible; v4 states (KIP-518); v5 types (KIP-848)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kserver.api.context import Context
from kserver.errors import ErrorCode, KafkaError
from kserver.group.requests import ListedGroup, ListGroups
from kserver.model import CONSUMER_OFFSETS
from kserver.wire.versions import reply_to

KEY, VERSIONS = 16, range(0, 6)


async def handle(request: Any, context: Context) -> Any:
    reply = reply_to(request)
    group_request = ListGroups(
        _folded(getattr(request, "states_filter", ())),
        _folded(getattr(request, "types_filter", ())),
    )
    try:
        groups = await _list(group_request, context)
    except KafkaError as error:
        return reply(error_code=error.code)
    return reply(
        error_code=ErrorCode.none,
        groups=[
            reply.groups(
                group_id=group.id,
                protocol_type=group.protocol_type,
                group_state=group.state,
                group_type=group.type,
            )
            for group in groups
        ],
    )


def _folded(names: Iterable[str]) -> frozenset[str]:
    return frozenset(name.strip().lower() for name in names)


async def _list(group_request: ListGroups, context: Context) -> list[ListedGroup]:
    parts = context.parts
    topic = parts.metadata.current.topics.get(CONSUMER_OFFSETS)
    groups: list[ListedGroup] = []
    for index in range(0 if topic is None else len(topic.partitions)):
        try:
            groups += await parts.groups.ask_partition(index, group_request)
        except KafkaError as error:
            if error.code is not ErrorCode.not_coordinator:
                raise
    return groups
