"""Requests for configurations: DescribeConfigs (key 32), AlterConfigs (33), IncrementalAlterConfigs
(44) and ListConfigResources (74).

Brokers and their loggers are described and changed by the broker itself; everything else, including
the name "", the default of all brokers, by any broker.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kcli.client.admin.descriptions import (
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    ResourceType,
)
from kcli.client.cluster import To
from kcli.client.errors import refusal_of
from kcli.client.offsets import missing_from_response
from kserver.errors import ErrorCode, KafkaError
from kserver.model import BrokerId
from kserver.peer import Peer
from kserver.wire import versions
from kserver.wire.api_key import ApiKey

# Before, ListConfigResources was ListClientMetricsResources (KIP-1142).
ALL_RESOURCES = 1

_OF_ONE_BROKER = (ResourceType.BROKER, ResourceType.BROKER_LOGGER)


@dataclass(frozen=True, slots=True)
class Query:
    """Options of DescribeConfigs; `keys` None is all of them."""

    keys: Collection[str] | None = None
    synonyms: bool = False
    documentation: bool = False


def by_target(resources: Iterable[ConfigResource]) -> dict[BrokerId | To, list[ConfigResource]]:
    """Return the resources by the broker to ask."""
    targets: dict[BrokerId | To, list[ConfigResource]] = defaultdict(list)
    for kind, name in dict.fromkeys(resources):
        itself = kind in _OF_ONE_BROKER and name.isdecimal()
        targets[int(name) if itself else To.ANY].append((ResourceType(kind), name))
    return targets


async def describe(
    peer: Peer, resources: Sequence[ConfigResource], query: Query
) -> dict[ConfigResource, list[ConfigEntry] | KafkaError]:
    new = versions.request(ApiKey.DESCRIBE_CONFIGS, peer.version(ApiKey.DESCRIBE_CONFIGS))
    keys = None if query.keys is None else list(query.keys)
    response = await peer.call(
        new(
            resources=[
                new.resources(resource_type=kind, resource_name=name, configuration_keys=keys)
                for kind, name in resources
            ],
            include_synonyms=query.synonyms,
            include_documentation=query.documentation,
        )
    )
    results: dict[ConfigResource, list[ConfigEntry] | KafkaError] = {
        (r.resource_type, r.resource_name): refusal_of(r)
        or [entry_of(entry) for entry in r.configs]
        for r in response.results
    }
    return {resource: results.get(resource, missing_from_response()) for resource in resources}


async def alter_incrementally(
    peer: Peer,
    changes: Mapping[ConfigResource, Sequence[ConfigChange]],
    *,
    validate_only: bool,
) -> dict[ConfigResource, KafkaError | None]:
    new = versions.request(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, peer.version(ApiKey.INCREMENTAL_ALTER_CONFIGS)
    )
    configs = new.resources.configs
    response = await peer.call(
        new(
            resources=[
                new.resources(
                    resource_type=kind,
                    resource_name=name,
                    configs=[
                        configs(
                            name=operation.key,
                            config_operation=operation.type,
                            value=operation.value,
                        )
                        for operation in of_one
                    ],
                )
                for (kind, name), of_one in changes.items()
            ],
            validate_only=validate_only,
        )
    )
    return _results_by_resource(response, changes)


async def alter(
    peer: Peer,
    configs: Mapping[ConfigResource, Mapping[str, str]],
    *,
    validate_only: bool,
) -> dict[ConfigResource, KafkaError | None]:
    new = versions.request(ApiKey.ALTER_CONFIGS, peer.version(ApiKey.ALTER_CONFIGS))
    response = await peer.call(
        new(
            resources=[
                new.resources(
                    resource_type=kind,
                    resource_name=name,
                    configs=[
                        new.resources.configs(name=key, value=value) for key, value in set_.items()
                    ],
                )
                for (kind, name), set_ in configs.items()
            ],
            validate_only=validate_only,
        )
    )
    return _results_by_resource(response, configs)


async def list_resources(peer: Peer, types: Sequence[ResourceType]) -> list[ConfigResource]:
    """Return the existing resources. Raises KafkaError if the broker cannot list these types."""
    version = peer.version(ApiKey.LIST_CONFIG_RESOURCES)
    new = versions.request(ApiKey.LIST_CONFIG_RESOURCES, version)
    if version < ALL_RESOURCES and list(types) != [ResourceType.CLIENT_METRICS]:
        text = f"{peer} lists no resources but client metrics"
        raise KafkaError(ErrorCode.unsupported_version, text)
    response = await peer.call(new(resource_types=list(types)))
    if response.error_code != ErrorCode.none:
        raise KafkaError(response.error_code)
    if version < ALL_RESOURCES:
        resources = response.config_resources
        return [(ResourceType.CLIENT_METRICS, resource.resource_name) for resource in resources]
    resource_types = list(ResourceType)
    return [
        (ResourceType(resource.resource_type), resource.resource_name)
        for resource in response.config_resources
        if resource.resource_type in resource_types
    ]


def _results_by_resource(
    response: Any, resources: Iterable[ConfigResource]
) -> dict[ConfigResource, KafkaError | None]:
    """Return the outcome by resource. Raises NOT_CONTROLLER, which is transient, so that the whole
    request is retried; changes that were made are not affected by that.
    """
    results = {(r.resource_type, r.resource_name): refusal_of(r) for r in response.responses}
    for refusal in results.values():
        if refusal is not None and refusal.code == ErrorCode.not_controller:
            raise refusal
    return {resource: results.get(resource, missing_from_response()) for resource in resources}


def entry_of(entry: Any) -> ConfigEntry:
    """Return an entry of a DescribeConfigs or CreateTopics response."""
    return ConfigEntry(
        entry.name,
        entry.value,
        ConfigSource(entry.config_source),
        entry.is_sensitive,
        entry.read_only,
        ConfigType(getattr(entry, "config_type", 0)),
        getattr(entry, "documentation", None),
        tuple(
            ConfigSynonym(s.name, s.value, ConfigSource(s.source))
            for s in getattr(entry, "synonyms", ())
        ),
    )
