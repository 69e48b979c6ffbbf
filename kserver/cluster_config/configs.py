"""Overrides of topics, brokers and the cluster's default: what a change of them amounts to.

Pure: a request and the present image go in; what is to be stored comes out.

    set        the value given
    delete     no override any more
    append     of a list: the entries given that it has not, after those of the override, or where
               there is none of the default
    subtract   of a list: without the entries given

A request's resources are judged one by one, and one of which any key is refused is not changed at
all.  Rules, order and texts are those of Kafka 4's ConfigAdminManager, ConfigurationControlManager
and ControllerConfigurationValidator: of a topic INVALID_CONFIG, of a broker INVALID_REQUEST.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from kserver import znodes
from kserver.cluster_config.entity_names import sanitized
from kserver.config import dynamic
from kserver.config.broker import BrokerConfig
from kserver.config.dynamic import BrokerOverrides
from kserver.config.group import GroupConfig
from kserver.config.setting import Setting, Type, settings_of
from kserver.config.topic import TopicConfig
from kserver.errors import ConfigError, ErrorCode, KafkaError
from kserver.metadata import ClusterMetadata, check_topic_name
from kserver.model import NO_BROKER, BrokerId

MAX_STORED_BYTES = 500_000
"""The most of one resource's overrides: ZooKeeper ends a connection that sends it 1 MB."""

_KEY = re.compile(r"[a-zA-Z0-9._-]{1,255}")


class ResourceType(IntEnum):
    """What has a configuration (Kafka's ConfigResource.Type)."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


NOT_KEPT = {
    ResourceType.CLIENT_METRICS: "This broker takes no metrics from clients (KIP-714), so there "
    "are no subscriptions to configure.",
}


class OpType(IntEnum):
    """Kafka's AlterConfigOp.OpType."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Op(NamedTuple):
    key: str
    type: int
    value: str | None


class Change(NamedTuple):
    """What is asked for one resource; of brokers "" names the default of all.

    `replaces`: the operations start from no overrides at all (AlterConfigs).
    """

    kind: int
    name: str
    ops: Sequence[Op]
    replaces: bool = False


class ConfigPlan(NamedTuple):
    """What a resource's overrides are to be."""

    kind: ResourceType
    name: str
    overrides: Mapping[str, str]
    was: Mapping[str, str]

    @property
    def broker(self) -> BrokerId:
        return int(self.name) if self.name else NO_BROKER

    @property
    def entity(self) -> tuple[str, str]:
        """What `znodes.config_path` takes."""
        if self.kind is ResourceType.TOPIC:
            return znodes.TOPIC_CONFIGS, self.name
        if self.kind is ResourceType.GROUP:
            return znodes.GROUP_CONFIGS, sanitized(self.name)
        return znodes.BROKER_CONFIGS, self.name or znodes.DEFAULT_ENTITY


def overrides_of(image: ClusterMetadata, broker: BrokerId) -> BrokerOverrides:
    configs = image.broker_configs
    return BrokerOverrides(configs.get(NO_BROKER, {}), configs.get(broker, {}))


def refused(changes: Sequence[Change]) -> list[KafkaError | None]:
    """For each, in order, why it is refused before anything is looked up."""
    times = Counter((change.kind, change.name) for change in changes)
    return [
        _invalid("Each resource must appear at most once.")
        if times[change.kind, change.name] > 1
        else _malformed(change)
        for change in changes
    ]


def _malformed(change: Change) -> KafkaError | None:
    keys = [op.key for op in change.ops]
    if len(set(keys)) != len(keys):
        return _invalid("Error due to duplicate config keys")
    if empty := [op.key for op in change.ops if op.value is None and op.type != OpType.DELETE]:
        return _invalid(f"Null value not supported for : {', '.join(empty)}")
    if change.kind not in list(ResourceType) or (
        change.replaces and change.kind == ResourceType.BROKER_LOGGER
    ):
        return _invalid(f"Unknown resource type {change.kind}")
    if change.kind in NOT_KEPT:
        return _invalid(NOT_KEPT[ResourceType(change.kind)])
    if any(not _KEY.fullmatch(key) for key in keys):
        return _invalid("A config key is 1 to 255 letters, digits, '.', '_' and '-'")
    if strange := [op.type for op in change.ops if op.type not in list(OpType)]:
        return _invalid(f"Unknown operations type {strange[0]}")
    return None


def plan(
    change: Change,
    image: ClusterMetadata,
    broker: BrokerId,
    static: BrokerConfig,
    config: BrokerConfig,
) -> ConfigPlan:
    """What the change, which `refused` let through, makes of a topic, of the broker of that number
    or of the default; its settings are `static` from its file and now `config`.  KafkaError."""
    if change.kind == ResourceType.TOPIC:
        planned = _topic(change, image, config)
    elif change.kind == ResourceType.GROUP:
        planned = _group(change, image, config)
    else:
        planned = _broker(change, image, broker, static, config)
    if len(znodes.encode_config(planned.overrides)) > MAX_STORED_BYTES:
        text = f"The overrides of one resource take at most {MAX_STORED_BYTES} bytes."
        raise KafkaError(ErrorCode.invalid_config, text)
    return planned


def _topic(change: Change, image: ClusterMetadata, config: BrokerConfig) -> ConfigPlan:
    if not change.name:
        raise _invalid("Default topic resources are not allowed.")
    check_topic_name(change.name)
    topic = image.topics.get(change.name)
    was = {} if topic is None else topic.config
    overrides = altered(was, change, settings_of(TopicConfig))
    try:
        TopicConfig.of(overrides, config)
    except ConfigError as error:
        raise KafkaError(ErrorCode.invalid_config, str(error)) from error
    if topic is None:
        text = f"The topic '{change.name}' does not exist."
        raise KafkaError(ErrorCode.unknown_topic_or_partition, text)
    return ConfigPlan(ResourceType.TOPIC, change.name, overrides, was)


def _group(change: Change, image: ClusterMetadata, config: BrokerConfig) -> ConfigPlan:
    """The group need not exist."""
    if not change.name:
        raise _invalid("Default group resources are not allowed.")
    was = image.group_configs.get(change.name, {})
    overrides = altered(was, change, settings_of(GroupConfig))
    try:
        GroupConfig.of(overrides, config)
    except ConfigError as error:
        raise KafkaError(ErrorCode.invalid_config, str(error)) from error
    return ConfigPlan(ResourceType.GROUP, change.name, overrides, was)


def _broker(
    change: Change,
    image: ClusterMetadata,
    broker: BrokerId,
    static: BrokerConfig,
    config: BrokerConfig,
) -> ConfigPlan:
    if change.name:
        check_broker(change.name, broker)
    before = overrides_of(image, broker)
    was = before.broker if change.name else before.cluster
    # What an old tool may have stored there, and cannot be, goes with the first change.
    usable, _ = dynamic.usable(was, per_broker=bool(change.name))
    overrides = altered(usable, change, settings_of(BrokerConfig))
    after = BrokerOverrides(
        before.cluster if change.name else overrides, overrides if change.name else before.broker
    )
    try:
        dynamic.check(overrides, per_broker=bool(change.name))
        new = dynamic.merged(static, dynamic.usable_of(after))
        dynamic.check_step(config, new)
    except ConfigError as error:
        raise _invalid(str(error)) from error
    return ConfigPlan(ResourceType.BROKER, change.name, overrides, was)


def check_broker(name: str, broker: BrokerId) -> None:
    """INVALID_REQUEST unless that is the broker's own number."""
    try:
        number = int(name)
    except ValueError:
        raise _invalid(f"Node id must be an integer, but it is: {name}") from None
    if str(number) != name or number != broker:
        raise _invalid(f"Unexpected broker id, expected {broker}, but received {name}")


def altered(
    overrides: Mapping[str, str], change: Change, table: Mapping[str, Setting]
) -> dict[str, str]:
    """The overrides after the change.  INVALID_CONFIG where a list is wanted and is none."""
    after = {} if change.replaces else dict(overrides)
    for key, type, value in change.ops:
        if type == OpType.DELETE:
            after.pop(key, None)
            continue
        assert value is not None
        if type == OpType.SET:
            after[key] = value
            continue
        setting = table.get(key)
        if setting is None or setting.type is not Type.LIST:
            text = f"Can't {OpType(type).name} to key {key} because its type is not LIST."
            raise KafkaError(ErrorCode.invalid_config, text)
        entries = _entries(after.get(key, setting.render(setting.default) or ""))
        given = _entries(value)
        if type == OpType.APPEND:
            entries += [entry for entry in given if entry not in entries]
        else:
            entries = [entry for entry in entries if entry not in given]
        after[key] = ",".join(entries)
    return after


def _entries(text: str) -> list[str]:
    return list(dict.fromkeys(entry.strip() for entry in text.split(",") if entry.strip()))


def _invalid(text: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_request, text)
