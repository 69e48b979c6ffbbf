"""DescribeConfigs (key 32): v1-v4.

Behaviour:
- Topics and brokers; all settings, or those whose keys are asked, with source and type, and with
  synonyms and documentation where asked.  Passwords are null.
- A broker may be named "" : the cluster-wide defaults, of which there are none yet.
- A broker's loggers are not settings here.

Errors: UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION, INVALID_REQUEST (another broker's id,
no number, a kind of resource that has no settings here).

Versions:
- v3 type and documentation; v4 flexible
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kserver.api.context import Context
from kserver.config.broker import BrokerConfig
from kserver.config.setting import Described, Dynamic, GivenValue, describe
from kserver.config.topic import TopicConfig
from kserver.controller.topics import check_name
from kserver.errors import ErrorCode, KafkaError
from kserver.metadata import TopicInfo
from kserver.wire.versions import reply_to

KEY, VERSIONS = 32, range(1, 5)

TOPIC, BROKER = 2, 4


class Entry(NamedTuple):
    """One setting as the answers of DescribeConfigs and CreateTopics tell it."""

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
    for resource in request.resources:
        named = {"resource_type": resource.resource_type, "resource_name": resource.resource_name}
        try:
            entries = _entries(resource.resource_type, resource.resource_name, context)
        except KafkaError as error:
            results.append(
                reply.results(error_code=error.code, error_message=error.message or None, **named)
            )
            continue
        keys = resource.configuration_keys
        results.append(
            reply.results(
                error_code=ErrorCode.none,
                **named,
                configs=[
                    _config(reply.results.configs, entry, request)
                    for entry in entries
                    # Java's older clients send an empty list for "all".
                    if not keys or entry.name in keys
                ],
            )
        )
    return reply(results=results)


def topic_entries(topic: TopicInfo, broker: BrokerConfig) -> list[Entry]:
    """All settings of a topic; any of them may be changed while it is in use."""
    return [_entry(one, read_only=False) for one in describe(TopicConfig.of(topic.config, broker))]


def _entries(resource_type: int, name: str, context: Context) -> list[Entry]:
    parts = context.parts
    if resource_type == TOPIC:
        check_name(name)
        topic = parts.metadata.current.topics.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.unknown_topic_or_partition)
        return topic_entries(topic, parts.config)
    if resource_type == BROKER:
        if name == "":
            return []
        if name != str(parts.broker_id):
            raise KafkaError(
                ErrorCode.invalid_request,
                f"Unexpected broker id, expected {parts.broker_id} or empty string,"
                f" but received {name}",
            )
        return [
            _entry(one, read_only=one.setting.dynamic is Dynamic.READ_ONLY)
            for one in describe(parts.config)
        ]
    raise KafkaError(ErrorCode.invalid_request, f"Unsupported resource type: {resource_type}")


def _entry(one: Described, *, read_only: bool) -> Entry:
    setting = one.setting
    return Entry(
        one.name,
        one.value,
        one.source.value,
        read_only,
        setting.sensitive,
        setting.type.value,
        setting.doc,
        one.synonyms,
    )


def _config(shape: Any, entry: Entry, request: Any) -> Any:
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
