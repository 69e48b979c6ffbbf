"""Changes of the configs of topics, groups and brokers: validation, and the resulting overrides.

Pure: a request and the present image go in; the overrides to store come out.

    set        the given value
    delete     no override any more
    append     to a list: the given entries that are missing, after those of the override, or of the
               default if there is no override
    subtract   from a list: without the given entries

A request's resources are validated one by one; a resource with any invalid key is not changed at
all.  Rules, order and texts are those of Kafka 4's ConfigAdminManager, ConfigurationControlManager
and ControllerConfigurationValidator.  Errors are INVALID_CONFIG for topics, INVALID_REQUEST for
brokers.
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
"""Maximum size of one resource's overrides: ZooKeeper closes a connection that sends it 1 MB."""

_KEY = re.compile(r"[a-zA-Z0-9._-]{1,255}")


class ResourceType(IntEnum):
    """Kafka's ConfigResource.Type."""

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
    """Requested change of one resource; the name "" of a broker means the cluster-wide default.

    `replaces`: the operations start from no overrides at all (AlterConfigs).
    """

    kind: int
    name: str
    ops: Sequence[Op]
    replaces: bool = False


class ConfigPlan(NamedTuple):
    """New overrides of a resource, and the previous ones."""

    kind: ResourceType
    name: str
    overrides: Mapping[str, str]
    was: Mapping[str, str]

    @property
    def broker(self) -> BrokerId:
        return int(self.name) if self.name else NO_BROKER

    @property
    def entity(self) -> tuple[str, str]:
        """Arguments for `znodes.config_path`."""
        if self.kind is ResourceType.TOPIC:
            return znodes.TOPIC_CONFIGS, self.name
        if self.kind is ResourceType.GROUP:
            return znodes.GROUP_CONFIGS, sanitized(self.name)
        return znodes.BROKER_CONFIGS, self.name or znodes.DEFAULT_ENTITY


def overrides_of(image: ClusterMetadata, broker: BrokerId) -> BrokerOverrides:
    configs = image.broker_configs
    return BrokerOverrides(configs.get(NO_BROKER, {}), configs.get(broker, {}))


def refused(changes: Sequence[Change]) -> list[KafkaError | None]:
    """Return an error or None for each change, in order, from checks that need no lookup."""
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
    """Plan a change that `refused` accepted: of a topic, a group, this broker or the default.
    `static` is the broker's config from its file, `config` the present one.  Raises KafkaError."""
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
    """Plan a change of a group, which need not exist."""
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
    # Invalid overrides, which an old tool may have stored, are removed with the first change.
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
    """Raises INVALID_REQUEST unless `name` is this broker's id."""
    try:
        number = int(name)
    except ValueError:
        raise _invalid(f"Node id must be an integer, but it is: {name}") from None
    if str(number) != name or number != broker:
        raise _invalid(f"Unexpected broker id, expected {broker}, but received {name}")


def altered(
    overrides: Mapping[str, str], change: Change, table: Mapping[str, Setting]
) -> dict[str, str]:
    """Return the overrides after the change.  Raises INVALID_CONFIG for a list operation on a key
    that is not a list."""
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
        operands = _entries(value)
        if type == OpType.APPEND:
            entries += [entry for entry in operands if entry not in entries]
        else:
            entries = [entry for entry in entries if entry not in operands]
        after[key] = ",".join(entries)
    return after


def _entries(text: str) -> list[str]:
    return list(dict.fromkeys(entry.strip() for entry in text.split(",") if entry.strip()))


def _invalid(text: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_request, text)
