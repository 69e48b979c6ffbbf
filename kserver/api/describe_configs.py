"""DescribeConfigs (key 32): v1-v4.

Behaviour:
- Returns the configs of topics and brokers, all or those with the requested keys, with source and
  type, and with synonyms and documentation if requested.  They are sorted by name: clients that
  use positions exist, and Apache's order is that of a Java map.  Passwords are null.
- A broker named "" means the configs set for all brokers of the cluster, and nothing else.
- The value of an override whose key no config has is null: it may be a secret.
- A broker's loggers have levels as configs (KIP-412).
- A consumer group has configs whether it exists or not.

Errors: UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION, INVALID_REQUEST (another broker's id,
an id that is not a number, a type of resource without configs here).

Versions:
- v3 type and documentation; v4 flexible
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from kserver.api.broker_loggers import levels
from kserver.api.context import Context
from kserver.cluster_config.configs import NOT_KEPT, ResourceType, check_broker
from kserver.config.broker import BrokerConfig
from kserver.config.dynamic import is_sensitive, type_of
from kserver.config.group import GroupConfig
from kserver.config.setting import (
    DescribedConfig,
    Dynamic,
    GivenValue,
    Layer,
    Source,
    describe,
    given_in,
    settings_of,
)
from kserver.config.topic import TopicConfig
from kserver.errors import ErrorCode, KafkaError
from kserver.metadata import TopicInfo, check_topic_name
from kserver.model import NO_BROKER
from kserver.wire.versions import reply_to

KEY, VERSIONS = 32, range(1, 5)


_name = attrgetter("name")


class DescribedEntry(NamedTuple):
    """One config as DescribeConfigs and CreateTopics responses contain it."""

    name: str
    value: str | None
    source: int
    read_only: bool
    sensitive: bool
    type: int
    documentation: str
    synonyms: Sequence[GivenValue]


async def handle(request: Any, context: Context) -> Any:
    reply = reply_to(request)
    results = []
    # A resource named twice gets one result: else a short request could get a huge response.
    resources = {
        (resource.resource_type, resource.resource_name): resource for resource in request.resources
    }
    for resource in resources.values():
        resource_fields = {
            "resource_type": resource.resource_type,
            "resource_name": resource.resource_name,
        }
        try:
            entries = _entries(resource.resource_type, resource.resource_name, context)
        except KafkaError as error:
            results.append(
                reply.results(
                    error_code=error.code, error_message=error.message or None, **resource_fields
                )
            )
            continue
        keys = frozenset(resource.configuration_keys or ())
        results.append(
            reply.results(
                error_code=ErrorCode.none,
                **resource_fields,
                configs=[
                    _config(reply.results.configs, entry, request)
                    for entry in sorted(entries, key=_name)
                    # Java's older clients send an empty list for "all".
                    if not keys or entry.name in keys
                ],
            )
        )
    return reply(results=results)


def topic_entries(topic: TopicInfo, broker: BrokerConfig) -> list[DescribedEntry]:
    """Return all configs of a topic; any of them may be changed while it is in use."""
    config = TopicConfig.stored(topic.config, broker)
    return sorted((_entry(entry, read_only=False) for entry in describe(config)), key=_name)


def _entries(resource_type: int, name: str, context: Context) -> list[DescribedEntry]:
    parts = context.parts
    if resource_type == ResourceType.TOPIC:
        check_topic_name(name)
        topic = parts.metadata.current.topics.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.unknown_topic_or_partition)
        return topic_entries(topic, parts.config())
    if resource_type == ResourceType.BROKER:
        if name == "":
            overrides = parts.metadata.current.broker_configs.get(NO_BROKER, {})
            return _of_all_brokers(overrides)
        if name != str(parts.broker_id):
            raise KafkaError(
                ErrorCode.invalid_request,
                f"Unexpected broker id, expected {parts.broker_id} or empty string,"
                f" but received {name}",
            )
        return [
            _entry(entry, read_only=entry.setting.dynamic is Dynamic.READ_ONLY)
            for entry in describe(parts.config())
        ] + _unknown(parts.config().overrides)
    if resource_type == ResourceType.BROKER_LOGGER:
        if name == "":
            raise KafkaError(ErrorCode.invalid_request, "Broker id must not be empty")
        check_broker(name, parts.broker_id)
        return [_logger(name, level) for name, level in levels().items()]
    if resource_type == ResourceType.GROUP:
        if name == "":
            raise KafkaError(ErrorCode.invalid_request, "Group name must not be empty")
        overrides = parts.metadata.current.group_configs.get(name, {})
        config = GroupConfig.stored(overrides, parts.config())
        return [_entry(entry, read_only=False) for entry in describe(config)]
    if resource_type in NOT_KEPT:
        raise KafkaError(ErrorCode.invalid_request, NOT_KEPT[ResourceType(resource_type)])
    raise KafkaError(ErrorCode.invalid_request, f"Unsupported resource type: {resource_type}")


def _of_all_brokers(overrides: Mapping[str, str]) -> list[DescribedEntry]:
    table = settings_of(BrokerConfig)
    layer = Layer(Source.DYNAMIC_DEFAULT_BROKER_CONFIG, overrides)
    return [
        _entry(
            DescribedConfig(table[name], value.value, value.source, (value,)),
            read_only=table[name].dynamic is Dynamic.READ_ONLY,
        )
        for name in overrides
        if name in table
        for value in given_in((layer,), table[name])
    ] + _unknown((layer,))


def _unknown(layers: Sequence[Layer]) -> list[DescribedEntry]:
    """Return overrides whose names are unknown, for one listener or misspelt."""
    settings = settings_of(BrokerConfig)
    synonyms_by_name: dict[str, list[GivenValue]] = {}
    for source, values in layers:
        for name, text in values.items():
            if name not in settings:
                value = None if is_sensitive(name) else text
                synonyms_by_name.setdefault(name, []).append(GivenValue(name, value, source))
    return [
        DescribedEntry(
            name,
            synonyms[0].value,
            synonyms[0].source.value,
            read_only=False,
            sensitive=is_sensitive(name),
            type=type_of(name) or 0,
            documentation="",
            synonyms=synonyms,
        )
        for name, synonyms in synonyms_by_name.items()
    ]


def _logger(name: str, level: str) -> DescribedEntry:
    source = Source.DYNAMIC_BROKER_LOGGER_CONFIG
    return DescribedEntry(
        name,
        level,
        source.value,
        read_only=False,
        sensitive=False,
        type=0,
        documentation="",
        synonyms=(),
    )


def _entry(config: DescribedConfig, *, read_only: bool) -> DescribedEntry:
    setting = config.setting
    return DescribedEntry(
        config.name,
        config.value,
        config.source.value,
        read_only,
        setting.sensitive,
        setting.type.value,
        setting.doc,
        config.synonyms,
    )


def _config(shape: Any, entry: DescribedEntry, request: Any) -> Any:
    return shape(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        config_type=entry.type,
        documentation=entry.documentation
        if getattr(request, "include_documentation", False)
        else None,
        synonyms=[
            shape.synonyms(name=s.name, value=s.value, source=s.source.value)
            for s in entry.synonyms
        ]
        if request.include_synonyms
        else [],
    )
