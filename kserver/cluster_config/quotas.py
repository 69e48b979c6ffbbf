"""Client quotas: validation, the overrides to store, and filters.

Pure: a request and the present quotas go in, the new ones come out.

    entity                            keys
    user, client id, user + client    producer_byte_rate, consumer_byte_rate (whole numbers),
                                      request_percentage, controller_mutation_rate
    ip                                connection_creation_rate (a whole number)

Rules and texts are those of Kafka 4's ClientQuotaControlManager and ClientQuotasImage (KIP-546),
except that an ip has to be an address: this broker does not resolve host names of clients.
"""

from __future__ import annotations

import ipaddress
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from kserver.config.setting import DOUBLE, INT, INT_MAX, LONG, LONG_MAX, Type, java_double
from kserver.errors import ErrorCode, KafkaError, StorageError
from kserver.model import QuotaEntity

USER, CLIENT_ID, IP = "user", "client-id", "ip"
PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"

CLIENT_KEYS: Mapping[str, Type] = {
    PRODUCER_BYTE_RATE: LONG,
    CONSUMER_BYTE_RATE: LONG,
    REQUEST_PERCENTAGE: DOUBLE,
    CONTROLLER_MUTATION_RATE: DOUBLE,
}
IP_KEYS: Mapping[str, Type] = {CONNECTION_CREATION_RATE: INT}
KEYS = CLIENT_KEYS.keys() | IP_KEYS.keys()

MAX_NAME_BYTES = 1024
"""Maximum bytes of one name in an entity; URL-encoded in a znode's name it may be three times as
long."""
_KEYS_ORDER = (
    PRODUCER_BYTE_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    REQUEST_PERCENTAGE,
    CONNECTION_CREATION_RATE,
)
_FEW_KEYS = 3
_FEW_KEYS_ORDER = (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    REQUEST_PERCENTAGE,
    PRODUCER_BYTE_RATE,
    CONNECTION_CREATION_RATE,
)
_MAX_VALUES = {INT: INT_MAX, LONG: LONG_MAX}
_NOT_WHOLE = 1e-6

Quotas: TypeAlias = Mapping[QuotaEntity, Mapping[str, float]]

EXACT, DEFAULT, ANY = 0, 1, 2
"""Match type of a filter's component: this name, the default, any name."""


class Alteration(NamedTuple):
    """Requested change of one entity: `components` as (type, name), with None for the default; a
    value of None removes the key."""

    components: Sequence[tuple[str, str | None]]
    changes: Sequence[tuple[str, float | None]]


class QuotaPlan(NamedTuple):
    entity: QuotaEntity
    changes: Mapping[str, str | None]
    """Values by key, as they are written; None for keys that are removed."""


class Component(NamedTuple):
    type: str
    match_type: int
    name: str | None


def entity_of(components: Sequence[tuple[str, str | None]]) -> QuotaEntity:
    """Raises INVALID_REQUEST for an invalid entity."""
    if not components:
        raise _invalid("Invalid empty client quota entity")
    names: dict[str, str] = {}
    for kind, name in components:
        if kind not in (USER, CLIENT_ID, IP):
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if kind in names:
            raise _invalid(f"Invalid client quota entity, duplicate entity entry {kind}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
        # ZooKeeper interprets these two as path components, and URL-encoding does not change them.
        if name in (".", "..") or len((name or "").encode()) > MAX_NAME_BYTES:
            raise _invalid(f"A {kind} is 1 to {MAX_NAME_BYTES} bytes, and not '.' or '..'")
        names[kind] = name or ""
    address = names.get(IP)
    if address is not None and len(names) > 1:
        raise _invalid(
            "Invalid quota entity combination, IP entity should not be combined with User or"
            " ClientId"
        )
    if address:
        try:
            ipaddress.ip_address(address)
        except ValueError as error:
            raise _invalid(f"{address} is not a valid IP.") from error
    return QuotaEntity(names.get(USER), names.get(CLIENT_ID), address)


def names_of(entity: QuotaEntity) -> list[tuple[str, str | None]]:
    """Return the types and names of an entity, in the order in which Kafka lists them."""
    components = zip((CLIENT_ID, USER, IP), (entity.client_id, entity.user, entity.ip), strict=True)
    return [(kind, name or None) for kind, name in components if name is not None]


def in_kafkas_order(bounds: Mapping[str, float]) -> list[tuple[str, float]]:
    """Return a quota's keys and values in the order of Kafka 4.3.1: by the hashes of the keys, in
    a table of 4 or 8 places."""
    places = _FEW_KEYS_ORDER if len(bounds) <= _FEW_KEYS else _KEYS_ORDER
    return sorted(bounds.items(), key=lambda item: places.index(item[0]))


def named_twice(alterations: Sequence[Alteration]) -> frozenset[frozenset[tuple[str, str | None]]]:
    """Return the entities, as named in the request, that occur more than once."""
    times = Counter(frozenset(alteration.components) for alteration in alterations)
    return frozenset(components for components, number in times.items() if number > 1)


def plan(alteration: Alteration, twice: Collection[frozenset[tuple[str, str | None]]]) -> QuotaPlan:
    """Raises INVALID_REQUEST."""
    entity = entity_of(alteration.components)
    if frozenset(alteration.components) in twice:
        raise _invalid(f"Ignoring duplicate entity {entity}")
    types = CLIENT_KEYS if entity.ip is None else IP_KEYS
    changes: dict[str, str | None] = {}
    for key, value in alteration.changes:
        if key in changes:
            raise _invalid(f"Duplicate quota key {key} not updating quota for this entity {entity}")
        if key not in types:
            raise _invalid(f"Invalid configuration key {key}")
        changes[key] = None if value is None else _text(key, types[key], value)
    return QuotaPlan(entity, changes)


def bounds(overrides: Mapping[str, str]) -> dict[str, float]:
    """Return the quotas among an entity's overrides.  Raises StorageError if one is not a
    number."""
    bounds_by_key = {key: overrides[key] for key in overrides if key in KEYS}
    try:
        return {key: float(text) for key, text in bounds_by_key.items()}
    except ValueError as error:
        raise StorageError(f"a quota is not a number: {bounds_by_key}") from error


def without_empty(bounds: Quotas) -> Quotas:
    """Return the quotas without entities that have none."""
    return MappingProxyType({entity: keys for entity, keys in bounds.items() if keys})


def matching(
    quotas: Quotas,
    components: Sequence[Component],
    *,
    strict: bool,
) -> list[tuple[QuotaEntity, Mapping[str, float]]]:
    """Return the quotas that match every component and, if `strict`, have no other components.

    Raises INVALID_REQUEST, or UNSUPPORTED_VERSION for an unknown entity type.
    """
    by_type = dict(_checked(components))
    if IP in by_type and len(by_type) > 1:
        raise _invalid(
            "Invalid entity filter component combination. IP filter component should not be used"
            " with user or clientId filter component."
        )
    return [
        (entity, values)
        for entity, values in sorted(quotas.items(), key=lambda item: str(item[0]))
        if _matches(dict(names_of(entity)), by_type, strict)
    ]


def _checked(components: Iterable[Component]) -> Iterator[tuple[str, Component]]:
    types: set[str] = set()
    for component in components:
        if not component.type:
            raise _invalid("Invalid empty entity type.")
        if component.type in types:
            raise _invalid(
                f"Entity type {component.type} cannot appear more than once in the filter."
            )
        if component.type not in (USER, CLIENT_ID, IP):
            text = f"Unsupported entity type {component.type}"
            raise KafkaError(ErrorCode.unsupported_version, text)
        if component.match_type not in (EXACT, DEFAULT, ANY):
            raise _invalid(f"Unknown match type {component.match_type}")
        if (component.name is not None) is not (component.match_type == EXACT):
            raise _invalid("A name is required for an exact match, and not allowed otherwise.")
        types.add(component.type)
        yield component.type, component


def _matches(
    names: Mapping[str, str | None], by_type: Mapping[str, Component], strict: bool
) -> bool:
    if strict and len(names) != len(by_type):
        return False
    return all(
        kind in names and (component.match_type == ANY or names[kind] == component.name)
        for kind, component in by_type.items()
    )


def _text(key: str, type: Type, value: float) -> str:
    if not math.isfinite(value):
        raise _invalid(f"Quota {key} must be a number")
    if value <= 0:
        raise _invalid(f"Quota {key} must be greater than 0")
    if type is DOUBLE:
        return java_double(value)
    if value > float(_MAX_VALUES[type]):
        raise _invalid(f"Proposed value for {key} is too large for a {type.name}.")
    if value % 1.0 > _NOT_WHOLE:
        raise _invalid(f"{key} cannot be a fractional value.")
    return str(min(int(value), _MAX_VALUES[type]))


def _invalid(text: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_request, text)
