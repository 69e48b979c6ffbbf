"""The cluster as this broker knows it: one immutable image, replaced as a whole.

Readers take `cache.current` once and use it to the end of their request.  A change builds a new
image and calls `update`.  After an `await`, take it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from uuid import UUID

from kserver.errors import ErrorCode, KafkaError
from kserver.model import (
    INTERNAL_TOPICS,
    NO_BROKER,
    NO_EPOCH,
    BrokerId,
    Endpoint,
    LeaderEpoch,
    QuotaEntity,
)
from kserver.wire.control import (
    DURING_DELETION,
    FULL,
    SECURITY_PROTOCOLS,
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
)

NO_ID = UUID(int=0)

GROUP_VERSION = "group.version"
TRANSACTION_VERSION = "transaction.version"

MAX_DELETED_TOPICS = 10_000
MAX_TOPIC_NAME_LENGTH = 249
LEGAL_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """Leadership and placement of one partition; the preferred replica stands first."""

    partition: int
    leader: BrokerId
    leader_epoch: LeaderEpoch
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    partition_epoch: int = 0
    adding: tuple[BrokerId, ...] = ()
    """Replicas being added, and replicas being removed (KIP-455)."""
    removing: tuple[BrokerId, ...] = ()
    is_recovering: bool = False
    """As in LeaderAndIsr; only known to the controller and the leader."""
    offline: tuple[BrokerId, ...] = ()
    """Unreachable replicas, as reported by the controller."""


@dataclass(frozen=True, slots=True)
class TopicInfo:
    name: str
    id: UUID
    partitions: tuple[PartitionInfo, ...]
    """Partition p is at index p."""
    config: Mapping[str, str] = field(default_factory=dict)
    """The topic's config overrides, as text."""

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    id: BrokerId
    endpoints: Mapping[str, Endpoint]
    """Advertised endpoints, by listener name."""
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class Features:
    """Features that all brokers of the cluster agree on (KIP-584)."""

    levels: Mapping[str, int] = field(default_factory=dict)
    """Finalized levels by name; missing features have level 0."""
    epoch: int = -1
    """Increased with every change; -1 before the first."""

    @property
    def transaction_version(self) -> int:
        return self.levels.get(TRANSACTION_VERSION, 0)

    @property
    def group_version(self) -> int:
        return self.levels.get(GROUP_VERSION, 0)


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    cluster_id: str
    controller: BrokerId = NO_BROKER
    brokers: Mapping[BrokerId, BrokerInfo] = field(default_factory=dict)
    topics: Mapping[str, TopicInfo] = field(default_factory=dict)
    topic_names: Mapping[UUID, str] = field(default_factory=dict)
    quotas: Mapping[QuotaEntity, Mapping[str, float]] = field(default_factory=dict)
    """Quotas of each entity by key, such as producer_byte_rate."""
    broker_configs: Mapping[BrokerId, Mapping[str, str]] = field(default_factory=dict)
    """Dynamic configs of each broker, as text; the cluster-wide defaults are at NO_BROKER."""
    group_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Dynamic configs of consumer groups, as text, by group."""
    features: Features = Features()
    deleted_topics: Mapping[str, None] = field(default_factory=dict)
    """Latest MAX_DELETED_TOPICS topics that the controller reported as deleted.  A topic that is
    no longer in the metadata need not be deleted: its znodes may be unreadable for a while."""

    def with_topics(
        self,
        changed: Mapping[str, TopicInfo],
        deleted: Collection[str] = (),
        *,
        unnamed: Collection[str] = (),
    ) -> ClusterMetadata:
        """Return a new image with these topics set, and without deleted ones and those no longer
        named.

        Costs two copies at memory speed, plus work in proportion to the change.
        """
        topics, names = dict(self.topics), dict(self.topic_names)
        for name in (*deleted, *unnamed, *changed):
            before = topics.pop(name, None)
            if before is not None:
                del names[before.id]
        topics.update(changed)
        names.update((topic.id, name) for name, topic in changed.items())
        deleted_topics = self.deleted_topics
        if deleted or not deleted_topics.keys().isdisjoint(changed):
            deleted_names = [*(name for name in deleted_topics if name not in changed), *deleted]
            deleted_topics = MappingProxyType(dict.fromkeys(deleted_names[-MAX_DELETED_TOPICS:]))
        return replace(
            self,
            topics=MappingProxyType(topics),
            topic_names=MappingProxyType(names),
            deleted_topics=deleted_topics,
        )

    def with_broker_config(self, broker: BrokerId, overrides: Mapping[str, str]) -> ClusterMetadata:
        """Return a new image with these overrides of one broker, or of all at NO_BROKER."""
        return replace(
            self, broker_configs=MappingProxyType({**self.broker_configs, broker: overrides})
        )

    def with_group_config(self, group: str, overrides: Mapping[str, str]) -> ClusterMetadata:
        """Return a new image with these overrides of one group."""
        configs = {**self.group_configs, group: overrides}
        nonempty = {name: values for name, values in configs.items() if values}
        return replace(self, group_configs=MappingProxyType(nonempty))

    def updated(
        self, update: UpdateMetadataRequest, configs: Mapping[str, Mapping[str, str]]
    ) -> ClusterMetadata:
        """Return a new image with the controller's update; `configs` are the overrides of new
        topics."""
        changed: dict[str, TopicInfo] = {}
        deleted = set()
        for state in update.topic_states:
            if state.partition_states[0].leader == DURING_DELETION:
                deleted.add(state.topic_name)
                continue
            # A controller may name a topic more than once, each time with other partitions.
            before = changed.get(state.topic_name) or self.topics.get(state.topic_name)
            if before is None or before.id != state.topic_id:
                config = configs.get(state.topic_name, {})
                before = TopicInfo(state.topic_name, state.topic_id, (), config)
            changed[before.name] = replace(
                before, partitions=_updated_partitions(before.partitions, state.partition_states)
            )
        unnamed: Collection[str] = ()
        if update.type == FULL:
            unnamed = self.topics.keys() - changed.keys()
        brokers = {broker.id: _broker_info(broker) for broker in update.live_brokers}
        image = replace(self, controller=update.controller_id, brokers=MappingProxyType(brokers))
        if changed or deleted or unnamed:
            image = image.with_topics(changed, sorted(deleted), unnamed=unnamed)
        return image

    def topic_by_id(self, topic_id: UUID) -> TopicInfo | None:
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics.get(name)


def _updated_partitions(
    before: tuple[PartitionInfo, ...], states: Sequence[UpdateMetadataPartitionState]
) -> tuple[PartitionInfo, ...]:
    partitions = list(before)
    for state in states:
        while len(partitions) <= state.partition_index:
            # A later update describes it: a controller may send partitions in any order.
            partitions.append(PartitionInfo(len(partitions), NO_BROKER, NO_EPOCH, (), ()))
        partitions[state.partition_index] = PartitionInfo(
            state.partition_index,
            state.leader,
            state.leader_epoch,
            state.replicas,
            state.isr,
            state.zk_version,
            offline=state.offline_replicas,
        )
    return tuple(partitions)


def _broker_info(broker: UpdateMetadataBroker) -> BrokerInfo:
    endpoints = {
        e.listener: Endpoint(e.listener, SECURITY_PROTOCOLS[e.security_protocol], e.host, e.port)
        for e in broker.endpoints
    }
    return BrokerInfo(broker.id, endpoints, broker.rack)


class MetadataCache:
    def __init__(self, current: ClusterMetadata) -> None:
        self.current = current
        self._waiting: list[tuple[Callable[[ClusterMetadata], bool], asyncio.Future[None]]] = []

    def update(self, image: ClusterMetadata) -> None:
        self.current = image
        still = []
        for holds, future in self._waiting:
            if future.done():
                continue
            if holds(image):
                future.set_result(None)
            else:
                still.append((holds, future))
        self._waiting = still

    async def wait_for(
        self, holds: Callable[[ClusterMetadata], bool], timeout_s: float
    ) -> ClusterMetadata:
        """Return the first image for which `holds` is true.  Raises TimeoutError if none arrives
        in time."""
        if not holds(self.current):
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((holds, future))
            async with asyncio.timeout(timeout_s):
                await future
        return self.current


def check_topic_name(name: str) -> None:
    """Raises INVALID_TOPIC_EXCEPTION, with the text of `Topic.validate`."""
    if not name:
        reason = "the empty string is not allowed"
    elif name in (".", ".."):
        reason = f"'{name}' is not allowed"
    elif len(name) > MAX_TOPIC_NAME_LENGTH:
        most = MAX_TOPIC_NAME_LENGTH
        reason = f"the length of '{name}' is longer than the max allowed length {most}"
    elif not LEGAL_CHARACTERS.issuperset(name):
        reason = (
            f"'{name}' contains one or more characters other than ASCII alphanumerics, "
            "'.', '_' and '-'"
        )
    else:
        return
    raise KafkaError(ErrorCode.invalid_topic_exception, f"Topic name is invalid: {reason}")
