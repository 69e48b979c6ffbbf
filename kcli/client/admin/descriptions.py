"""Types of the admin client's arguments and results: topics, partitions, configs, brokers.

Pure: values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple, TypeAlias
from uuid import UUID

from kcli.client.cluster import Node
from kserver.errors import KafkaError
from kserver.model import BrokerId, LeaderEpoch, TopicPartition


class ResourceType(IntEnum):
    """Resources that can have a configuration (Kafka's ConfigResource.Type)."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    """Source of a config's value (Kafka's DescribeConfigsResponse.ConfigSource)."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8
    DYNAMIC_DEFAULT_CLIENT_METRICS_CONFIG = 9
    DYNAMIC_DEFAULT_GROUP_CONFIG = 10

    @classmethod
    def _missing_(cls, value: object) -> ConfigSource:
        """Return UNKNOWN for sources of newer brokers than this list."""
        return cls.UNKNOWN


class ConfigType(IntEnum):
    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9

    @classmethod
    def _missing_(cls, value: object) -> ConfigType:
        return cls.UNKNOWN


class ConfigOp(IntEnum):
    """Operation on a key (Kafka's AlterConfigOp.OpType); the last two are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class CoordinatorType(IntEnum):
    GROUP = 0
    TRANSACTION = 1


ConfigResource: TypeAlias = tuple[ResourceType, str]


class ConfigChange(NamedTuple):
    """One key; ConfigOp.DELETE has no value."""

    key: str
    type: ConfigOp
    value: str | None = None


class TopicListing(NamedTuple):
    name: str
    id: UUID | None
    is_internal: bool


class PartitionDescription(NamedTuple):
    """`elr` and `last_known_elr` (KIP-966) are None if the broker does not report them."""

    partition: int
    leader: BrokerId | None
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    elr: tuple[BrokerId, ...] | None = None
    last_known_elr: tuple[BrokerId, ...] | None = None
    leader_epoch: LeaderEpoch = -1


class TopicDescription(NamedTuple):
    name: str
    id: UUID | None
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]


class NewTopic(NamedTuple):
    """-1 takes the broker's default; `assignments` (replicas by partition) excludes both counts."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    assignments: Mapping[int, Sequence[BrokerId]] | None = None
    config: Mapping[str, str | None] = MappingProxyType({})


class CreatedTopic(NamedTuple):
    """A topic as the broker created it; -1 and None if it does not report them (before v5)."""

    name: str
    id: UUID | None
    partitions: int
    replication_factor: int
    config: tuple[ConfigEntry, ...] | None


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """The new total number of partitions, `count`; `assignments` holds the replicas of each added
    one.
    """

    count: int
    assignments: Sequence[Sequence[BrokerId]] | None = None


class ConfigSynonym(NamedTuple):
    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """One key; `value` is None for null and for sensitive values."""

    name: str
    value: str | None
    source: ConfigSource
    is_sensitive: bool
    is_read_only: bool
    type: ConfigType = ConfigType.UNKNOWN
    documentation: str | None = None
    synonyms: tuple[ConfigSynonym, ...] = ()

    @property
    def is_default(self) -> bool:
        return self.source is ConfigSource.DEFAULT_CONFIG


class ClusterDescription(NamedTuple):
    cluster_id: str | None
    controller_id: BrokerId | None
    brokers: list[Node]
    fenced: frozenset[BrokerId] | None = None
    """Brokers that are registered and fenced; None if the broker does not report them."""


class Reassignment(NamedTuple):
    """An ongoing reassignment of a partition from some replicas to others (KIP-455)."""

    replicas: tuple[BrokerId, ...]
    adding: tuple[BrokerId, ...]
    removing: tuple[BrokerId, ...]


class ReplicaInLogDirectory(NamedTuple):
    partition: TopicPartition
    size: int
    """Bytes of its segments."""
    lag: int
    """Offsets by which a future replica is behind the current one."""
    is_future: bool
    """Whether this replica is being moved here, to replace the current one once it has caught up.
    """


class LogDirDescription(NamedTuple):
    path: str
    error: KafkaError | None
    replicas: list[ReplicaInLogDirectory]
    total_bytes: int | None = None
    """Bytes of the file system; `usable_bytes` of it are free. None if the broker does not report
    it.
    """
    usable_bytes: int | None = None
    is_cordoned: bool = False
    """Whether it is assigned no new partitions (KIP-1066)."""
