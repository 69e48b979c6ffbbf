"""Quotas of clients: DescribeClientQuotas (key 48) and AlterClientQuotas (key 49), KIP-546.

An entity is a user, a client id, both, or an address (`QuotaEntity`); "" stands for its default.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from kcli.client import arguments
from kcli.client.errors import ClientError
from kserver.errors import ErrorCode, KafkaError
from kserver.model import QuotaEntity
from kserver.peer import Peer
from kserver.wire import versions
from kserver.wire.api_key import ApiKey

__all__ = ["Match", "QuotaComponent", "QuotaEntity"]

USER, CLIENT_ID, IP = "user", "client-id", "ip"


class Match(IntEnum):
    EXACT = 0
    DEFAULT = 1
    ANY = 2


class QuotaComponent(NamedTuple):
    """Part of a filter: matches entities that have `type` (user, client-id or ip), with that name,
    as the default, or with any name.
    """

    type: str
    match: Match = Match.ANY
    name: str | None = None
    """The name for Match.EXACT."""


async def describe(
    peer: Peer, components: Iterable[QuotaComponent], *, strict: bool
) -> dict[QuotaEntity, dict[str, float]]:
    """Return quotas by entity. Raises KafkaError if the broker refuses the filter."""
    new = versions.request(
        ApiKey.DESCRIBE_CLIENT_QUOTAS, peer.version(ApiKey.DESCRIBE_CLIENT_QUOTAS)
    )
    component_requests = [
        new.components(entity_type=component.type, match_type=component.match, match=component.name)
        for component in components
    ]
    response = await peer.call(new(components=component_requests, strict=strict))
    if response.error_code != ErrorCode.none:
        raise KafkaError(response.error_code, response.error_message or "")
    return {
        _entity(entry.entity): {value.key: value.value for value in entry.values}
        for entry in response.entries or ()
    }


def filter_of(components: Iterable[QuotaComponent]) -> tuple[QuotaComponent, ...]:
    """Return the components after a check of their fields; raises ClientError."""
    all_components = arguments.all_of(QuotaComponent, "components", components)
    for component in all_components:
        if not isinstance(component.type, str):
            raise ClientError(f"the type of a component is a str, not {component.type!r}")
        if component.match not in tuple(Match):
            raise ClientError(f"the match of a component is a Match, not {component.match!r}")
        if component.match == Match.EXACT and not isinstance(component.name, str):
            raise ClientError(
                f"the name of a component with Match.EXACT is a str, not {component.name!r}"
            )
    return all_components


def validate(
    changes: Mapping[QuotaEntity, Mapping[str, float | None]],
) -> Mapping[QuotaEntity, Mapping[str, float | None]]:
    """Return the changes after a check that they are bounds by key, by entity; raises
    ClientError.
    """
    for entity, bounds in arguments.by_kind(QuotaEntity, "changes", changes).items():
        for name in entity:
            if not isinstance(name, str | None):
                raise ClientError(f"the names of a QuotaEntity are str or None, not {name!r}")
        for key, bound in arguments.by_kind(str, f"the change of {entity}", bounds).items():
            if bound is not None and not isinstance(bound, int | float):
                raise ClientError(f"the bound {key} of {entity} is a number or None, not {bound!r}")
    return changes


async def alter(
    peer: Peer,
    changes: Mapping[QuotaEntity, Mapping[str, float | None]],
    *,
    validate_only: bool,
) -> dict[QuotaEntity, KafkaError | None]:
    new = versions.request(ApiKey.ALTER_CLIENT_QUOTAS, peer.version(ApiKey.ALTER_CLIENT_QUOTAS))
    entry = new.entries
    response = await peer.call(
        new(
            entries=[
                entry(
                    entity=[
                        entry.entity(entity_type=kind, entity_name=name or None)
                        for kind, name in zip((USER, CLIENT_ID, IP), entity, strict=True)
                        if name is not None
                    ],
                    ops=[
                        entry.ops(key=key, value=value or 0.0, remove=value is None)
                        for key, value in bounds.items()
                    ],
                )
                for entity, bounds in changes.items()
            ],
            validate_only=validate_only,
        )
    )
    return {
        _entity(entry.entity): None
        if entry.error_code == ErrorCode.none
        else KafkaError(entry.error_code, entry.error_message or "")
        for entry in response.entries
    }


def _entity(parts: Iterable[Any]) -> QuotaEntity:
    names = {part.entity_type: part.entity_name or "" for part in parts}
    return QuotaEntity(names.get(USER), names.get(CLIENT_ID), names.get(IP))
