"""Admin: describes and changes topics, configurations, offsets and brokers.

    async with Admin({"bootstrap.servers": "localhost:9092"}) as admin:
        for topic in await admin.list_topics():
            print(topic.name)

A call takes at most default.api.timeout.ms. Where it concerns several items, the result holds for
each item either its value or the KafkaError that refused it; only errors of the whole call are
raised: ClusterUnreachable, TimedOut, or KafkaError for all.
"""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar
from uuid import UUID

from kcli.client import arguments, coordinators, offsets
from kcli.client.admin import configs, elections, log_dirs, quotas, reassignments, scram, topics
from kcli.client.admin.descriptions import (
    ClusterDescription,
    ConfigChange,
    ConfigEntry,
    ConfigOp,
    ConfigResource,
    ConfigSource,
    ConfigType,
    CoordinatorType,
    CreatedTopic,
    LogDirDescription,
    NewPartitions,
    NewTopic,
    Reassignment,
    ResourceType,
    TopicDescription,
    TopicListing,
)
from kcli.client.admin.quotas import QuotaComponent, QuotaEntity
from kcli.client.admin.record_times import record_times
from kcli.client.admin.scram import NewCredential, ScramMechanism
from kcli.client.admin.topics import created_topic, more_partitions, new_topic
from kcli.client.cluster import Cluster, Node, To, node_of
from kcli.client.config import AdminConfig
from kcli.client.controller import of_controller
from kcli.client.errors import refusal_of
from kcli.client.offsets import ListedOffset
from kserver.errors import ErrorCode, KafkaError
from kserver.model import BrokerId, ElectionType, Offset, TopicPartition
from kserver.peer import Peer
from kserver.wire import versions
from kserver.wire.api_key import ApiKey

if TYPE_CHECKING:
    from kcli.client.admin.features import FeatureAdmin
    from kcli.client.admin.groups import Groups
    from kcli.client.admin.transaction_admin import TransactionAdmin

__all__ = [
    "Admin",
    "ClusterDescription",
    "ConfigChange",
    "ConfigEntry",
    "ConfigOp",
    "ConfigResource",
    "ConfigSource",
    "ConfigType",
    "CoordinatorType",
    "CreatedTopic",
    "LogDirDescription",
    "NewPartitions",
    "NewTopic",
    "Reassignment",
    "ResourceType",
    "TopicDescription",
    "TopicListing",
]

T = TypeVar("T")
K = TypeVar("K")

UNREGISTER_BROKER = 64

# First versions of Metadata (KIP-516) and DeleteTopics with topic ids.
METADATA_BY_ID = 12
DELETE_BY_ID = 6
# First versions of DescribeCluster with controllers (KIP-919) and with fenced brokers (KIP-1073).
DESCRIBE_CONTROLLERS = 1
DESCRIBE_FENCED = 2


class Admin:
    """Open while the `async with` lasts; connections are made when first needed.

    Topics, partitions, records, configurations, quotas, SCRAM credentials, brokers and log
    directories have methods here; three families have an attribute of their own:

        admin.groups: listings, describe, offsets, commit, delete, delete_offsets, remove_members
        admin.transactions: listings, describe, producers, abort, fence, find_hanging
        admin.features: describe, update
    """

    def __init__(
        self, config: AdminConfig | Mapping[str, object], *, random: Random | None = None
    ) -> None:
        config = AdminConfig.resolve(config)
        self.cluster = Cluster(config, random=random)
        self.asks_controllers = bool(config.bootstrap_controllers)
        """Whether the addresses are those of controllers, which know no brokers to ask."""
        self._config = config

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self.cluster.close()

    # The larger families are imported on first use.

    @cached_property
    def groups(self) -> Groups:
        """The groups, their members and offsets: `help(Groups)` in kcli.client.admin.groups."""
        from kcli.client.admin.groups import Groups

        return Groups(self.cluster, self._config)

    @cached_property
    def transactions(self) -> TransactionAdmin:
        """Transactions and their producers: see TransactionAdmin."""
        from kcli.client.admin.transaction_admin import TransactionAdmin

        return TransactionAdmin(self.cluster, self._config)

    @cached_property
    def features(self) -> FeatureAdmin:
        """The cluster's features and their levels: `FeatureAdmin` in kcli.client.admin.features."""
        from kcli.client.admin.features import FeatureAdmin

        return FeatureAdmin(self.cluster, self._config)

    # Topics

    async def list_topics(self, *, include_internal: bool = True) -> list[TopicListing]:
        """Return the topics sorted by name."""
        await self._retry("listTopics", lambda: self.cluster.refresh(None))
        return [
            TopicListing(topic.name, topic.id, topic.is_internal)
            for _, topic in sorted(self.cluster.topics.items())
            if include_internal or not topic.is_internal
        ]

    async def describe_topics(
        self, names: Iterable[str], *, page_size: int = 2000
    ) -> dict[str, TopicDescription | KafkaError]:
        """Describe topics, in pages of `page_size` partitions by DescribeTopicPartitions if
        known.
        """
        topic_names = list(dict.fromkeys(arguments.names("names", names)))

        async def attempt() -> dict[str, TopicDescription | KafkaError]:
            peer = await self.cluster.peer()
            if ApiKey.DESCRIBE_TOPIC_PARTITIONS in peer.versions:
                return await topics.describe_in_pages(peer, topic_names, page_size)
            new = versions.request(ApiKey.METADATA, peer.version(ApiKey.METADATA))
            topic_requests = [new.topics(name=name) for name in topic_names]
            response = await peer.call(new(topics=topic_requests, allow_auto_topic_creation=False))
            self.cluster.learn(response, topic_names, peer)
            return {topic.name: topics.description_or_error(topic) for topic in response.topics}

        if not topic_names:
            return {}
        descriptions = await self._retry("describeTopics", attempt)
        unknown = KafkaError(ErrorCode.unknown_topic_or_partition)
        return {name: descriptions.get(name, unknown) for name in topic_names}

    async def describe_topics_by_id(
        self, ids: Iterable[UUID]
    ) -> dict[UUID, TopicDescription | KafkaError]:
        topic_ids = list(dict.fromkeys(arguments.all_of(UUID, "ids", ids)))

        async def attempt() -> dict[UUID | None, TopicDescription | KafkaError]:
            peer = await self.cluster.peer()
            version = peer.version(ApiKey.METADATA)
            if version < METADATA_BY_ID:
                raise KafkaError(ErrorCode.unsupported_version, f"{peer} knows no topic ids")
            new = versions.request(ApiKey.METADATA, version)
            topic_requests = [new.topics(topic_id=id, name=None) for id in topic_ids]
            response = await peer.call(new(topics=topic_requests, allow_auto_topic_creation=False))
            return {topic.topic_id: topics.description_or_error(topic) for topic in response.topics}

        if not topic_ids:
            return {}
        descriptions = await self._retry("describeTopics", attempt)
        unknown = KafkaError(ErrorCode.unknown_topic_id)
        return {id: descriptions.get(id) or unknown for id in topic_ids}

    async def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False
    ) -> dict[str, CreatedTopic | KafkaError]:
        new_topics = {topic.name: topic for topic in arguments.all_of(NewTopic, "topics", topics)}

        async def ask(peer: Peer, names: list[str]) -> dict[str, CreatedTopic | KafkaError]:
            new = versions.request(ApiKey.CREATE_TOPICS, peer.version(ApiKey.CREATE_TOPICS))
            response = await peer.call(
                new(
                    topics=[new_topic(new, new_topics[name]) for name in names],
                    timeout=self._timeout,
                    validate_only=validate_only,
                )
            )
            return {t.name: refusal_of(t) or created_topic(t) for t in response.topics}

        return await self._by_controller("createTopics", new_topics, ask)

    async def delete_topics(self, names: Iterable[str]) -> dict[str, KafkaError | None]:
        async def ask(peer: Peer, names: list[str]) -> dict[str, KafkaError | None]:
            new = versions.request(ApiKey.DELETE_TOPICS, peer.version(ApiKey.DELETE_TOPICS))
            response = await peer.call(
                new(
                    topics=[new.topics(name=name) for name in names],
                    topic_names=names,
                    timeout=self._timeout,
                )
            )
            return {topic.name: refusal_of(topic) for topic in response.responses}

        return await self._by_controller("deleteTopics", arguments.names("names", names), ask)

    async def delete_topics_by_id(self, ids: Iterable[UUID]) -> dict[UUID, KafkaError | None]:
        """Delete topics by id; the result is a KafkaError if the broker is older than topic ids."""

        async def ask(peer: Peer, ids: list[UUID]) -> dict[UUID, KafkaError | None]:
            version = peer.version(ApiKey.DELETE_TOPICS)
            if version < DELETE_BY_ID:
                raise KafkaError(ErrorCode.unsupported_version, f"{peer} knows no topic ids")
            new = versions.request(ApiKey.DELETE_TOPICS, version)
            topic_requests = [new.topics(name=None, topic_id=id) for id in ids]
            response = await peer.call(new(topics=topic_requests, timeout=self._timeout))
            return {topic.topic_id: refusal_of(topic) for topic in response.responses}

        return await self._by_controller("deleteTopics", arguments.all_of(UUID, "ids", ids), ask)

    async def create_partitions(
        self, topics: Mapping[str, NewPartitions], *, validate_only: bool = False
    ) -> dict[str, KafkaError | None]:
        async def ask(peer: Peer, names: list[str]) -> dict[str, KafkaError | None]:
            new = versions.request(ApiKey.CREATE_PARTITIONS, peer.version(ApiKey.CREATE_PARTITIONS))
            response = await peer.call(
                new(
                    topics=[more_partitions(new, name, topics[name]) for name in names],
                    timeout=self._timeout,
                    validate_only=validate_only,
                )
            )
            return {topic.name: refusal_of(topic) for topic in response.results}

        arguments.by_kind(str, "topics", topics)
        arguments.all_of(NewPartitions, "the values of topics", topics.values())
        return await self._by_controller("createPartitions", topics, ask)

    async def list_reassignments(
        self, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """Return ongoing reassignments, of `partitions` or all; none if the broker cannot
        list any.
        """
        partitions = arguments.some_partitions(partitions)
        return await self._retry(
            "listPartitionReassignments",
            lambda: reassignments.list_ongoing(self.cluster, partitions, self._timeout),
        )

    async def alter_reassignments(
        self,
        wanted: Mapping[TopicPartition, Sequence[BrokerId] | None],
        *,
        allow_replication_factor_change: bool = True,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Begin to move partitions to these replicas, preferred leader first; None cancels a
        move.
        """
        arguments.by_partition("wanted", wanted)
        change = reassignments.Change(wanted, allow_replication_factor_change, self._timeout)
        return await self._by_controller("alterPartitionReassignments", wanted, change.ask)

    async def elect_leaders(
        self, election: ElectionType, partitions: Iterable[TopicPartition] | None
    ) -> dict[TopicPartition, KafkaError | None]:
        """Elect leaders; for None, all partitions, the result has those that needed an election."""
        partitions = arguments.some_partitions(partitions)
        return await elections.elect(self.cluster, election, partitions, self._deadline())

    async def list_offsets(
        self,
        specs: Mapping[TopicPartition, int],
        *,
        isolation: int = offsets.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, ListedOffset | KafkaError]:
        """Spec: -1 latest, -2 earliest, -3 that of the greatest timestamp, -4 earliest on local
        disk, -5 latest in tiered storage, else epoch ms.
        """
        arguments.by_partition("specs", specs)
        return await offsets.list_offsets(
            self.cluster, specs, self._deadline(), isolation=isolation
        )

    async def delete_records(
        self, before: Mapping[TopicPartition, Offset]
    ) -> dict[TopicPartition, Offset | KafkaError]:
        """Delete records before these offsets (-1: all) and return the new log start offsets."""
        arguments.by_partition("before", before)
        return await offsets.delete_records(self.cluster, before, self._deadline(), self._timeout)

    async def record_times(
        self, offsets: Mapping[TopicPartition, Offset]
    ) -> dict[TopicPartition, int | KafkaError | None]:
        """Return ms since 1970 of the first record at or after each offset; None if unknown."""
        arguments.by_partition("offsets", offsets)
        return await record_times(self.cluster, offsets, self._deadline())

    # Configurations

    async def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        keys: Collection[str] | None = None,
        include_synonyms: bool = False,
        *,
        include_documentation: bool = False,
    ) -> dict[ConfigResource, list[ConfigEntry] | KafkaError]:
        """Return the configuration of each (type, name), or only some `keys` of it.

        A broker is asked about itself; any broker knows the name "", the default of all.
        """
        query = configs.Query(keys, include_synonyms, include_documentation)

        async def ask(
            peer: Peer, of: list[ConfigResource]
        ) -> dict[ConfigResource, list[ConfigEntry] | KafkaError]:
            return await configs.describe(peer, of, query)

        return await self._ask_each_broker("describeConfigs", resources, ask)

    async def incremental_alter_configs(
        self,
        changes: Mapping[ConfigResource, Sequence[ConfigChange]],
        *,
        validate_only: bool = False,
    ) -> dict[ConfigResource, KafkaError | None]:
        """Change some keys of each resource, all of them or none; others stay (KIP-339)."""

        async def ask(
            peer: Peer, of: list[ConfigResource]
        ) -> dict[ConfigResource, KafkaError | None]:
            part = {resource: changes[resource] for resource in of}
            return await configs.alter_incrementally(peer, part, validate_only=validate_only)

        return await self._ask_each_broker("incrementalAlterConfigs", changes, ask)

    async def alter_configs(
        self,
        overrides: Mapping[ConfigResource, Mapping[str, str]],
        *,
        validate_only: bool = False,
    ) -> dict[ConfigResource, KafkaError | None]:
        """Set each resource's overrides to exactly these; omitted keys fall back to the default."""

        async def ask(
            peer: Peer, of: list[ConfigResource]
        ) -> dict[ConfigResource, KafkaError | None]:
            part = {resource: overrides[resource] for resource in of}
            return await configs.alter(peer, part, validate_only=validate_only)

        return await self._ask_each_broker("alterConfigs", overrides, ask)

    async def list_config_resources(
        self, types: Sequence[ResourceType] = ()
    ) -> list[ConfigResource]:
        """Return the existing resources, of these types or of all (KIP-1142)."""

        async def attempt() -> list[ConfigResource]:
            return await configs.list_resources(await self.cluster.peer(), types)

        return await self._retry("listConfigResources", attempt)

    async def _ask_each_broker(
        self,
        call: str,
        resources: Iterable[ConfigResource],
        ask: Callable[[Peer, list[ConfigResource]], Awaitable[dict[ConfigResource, T]]],
    ) -> dict[ConfigResource, T | KafkaError]:
        """Ask each resource's broker about it, all brokers at the same time."""

        async def of_one(
            to: BrokerId | To, of: list[ConfigResource]
        ) -> dict[ConfigResource, T | KafkaError]:
            async def attempt() -> dict[ConfigResource, T]:
                return await ask(await self.cluster.peer(to), of)

            try:
                return {**await self._retry(call, attempt)}
            except KafkaError as error:
                return dict.fromkeys(of, error)

        resources = arguments.config_resources(resources)
        targets = configs.by_target(resources)
        if self.asks_controllers:
            targets = {To.ANY: [resource for of in targets.values() for resource in of]}
        responses = await asyncio.gather(*(of_one(to, of) for to, of in targets.items()))
        return {resource: result for response in responses for resource, result in response.items()}

    # Quotas

    async def describe_client_quotas(
        self, components: Iterable[QuotaComponent] = (), *, strict: bool = False
    ) -> dict[QuotaEntity, dict[str, float]]:
        """Return quotas of entities that match every component; `strict`: and have no other."""
        filters = quotas.filter_of(components)

        async def attempt() -> dict[QuotaEntity, dict[str, float]]:
            return await quotas.describe(await self.cluster.peer(), filters, strict=strict)

        return await self._retry("describeClientQuotas", attempt)

    async def alter_client_quotas(
        self,
        changes: Mapping[QuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
    ) -> dict[QuotaEntity, KafkaError | None]:
        """Set quotas by key; None removes one."""

        async def ask(
            peer: Peer, entities: list[QuotaEntity]
        ) -> dict[QuotaEntity, KafkaError | None]:
            part = {entity: changes[entity] for entity in entities}
            return await quotas.alter(peer, part, validate_only=validate_only)

        return await self._by_controller("alterClientQuotas", quotas.validate(changes), ask)

    # Users

    async def describe_user_scram_credentials(
        self, users: Collection[str] = ()
    ) -> dict[str, dict[ScramMechanism, int] | KafkaError]:
        """Return iterations by mechanism of these users or of all, except users with none."""

        async def attempt() -> dict[str, dict[ScramMechanism, int] | KafkaError]:
            return await scram.describe(await self.cluster.peer(), users)

        users = arguments.names("users", users)
        return await self._retry("describeUserScramCredentials", attempt)

    async def alter_user_scram_credentials(
        self,
        credentials: Sequence[NewCredential] = (),
        deletions: Sequence[tuple[str, ScramMechanism]] = (),
    ) -> dict[str, KafkaError | None]:
        """Change SCRAM credentials; return the outcome by user."""

        async def ask(peer: Peer, users: list[str]) -> dict[str, KafkaError | None]:
            of_users = [credential for credential in credentials if credential.user in users]
            return await scram.alter(
                peer, of_users, [deletion for deletion in deletions if deletion[0] in users]
            )

        users = scram.users_of(credentials, deletions)
        return await self._by_controller("alterUserScramCredentials", users, ask)

    # Brokers

    async def describe_cluster(
        self, *, controllers: bool = False, include_fenced: bool = False
    ) -> ClusterDescription:
        """Describe brokers, or KRaft's controllers, which bootstrap.servers must name then."""

        async def attempt() -> ClusterDescription:
            peer = await self.cluster.peer()
            if controllers and peer.version(ApiKey.DESCRIBE_CLUSTER) < DESCRIBE_CONTROLLERS:
                raise KafkaError(ErrorCode.unsupported_version, f"{peer} describes brokers only")
            if ApiKey.DESCRIBE_CLUSTER not in peer.versions:
                await self.cluster.refresh(())
                return ClusterDescription(
                    self.cluster.cluster_id, self.cluster.controller, self._known_nodes()
                )
            version = peer.version(ApiKey.DESCRIBE_CLUSTER)
            new = versions.request(ApiKey.DESCRIBE_CLUSTER, version)
            request = new(endpoint_type=1 + controllers, include_fenced_brokers=include_fenced)
            response = await peer.call(request)
            if response.error_code != ErrorCode.none:
                raise KafkaError(response.error_code, response.error_message or "")
            return ClusterDescription(
                response.cluster_id,
                response.controller_id if response.controller_id >= 0 else None,
                sorted(
                    (node_of(b.broker_id, b.host, b.port, b.rack) for b in response.brokers),
                    key=lambda node: node.id,
                ),
                None
                if version < DESCRIBE_FENCED
                else frozenset(b.broker_id for b in response.brokers if b.is_fenced),
            )

        return await self._retry("describeCluster", attempt)

    async def unregister_broker(self, id: BrokerId) -> None:
        """Unregister a broker that has left for good from a KRaft cluster (KIP-631)."""

        async def attempt() -> None:
            peer = await self.cluster.peer()
            new = versions.request(UNREGISTER_BROKER, peer.version(UNREGISTER_BROKER))
            if refusal := refusal_of(await peer.call(new(broker_id=id))):
                raise refusal

        await self._retry("unregisterBroker", attempt)

    async def nodes(self) -> list[Node]:
        """Return the brokers sorted by id."""
        await self._retry("listNodes", lambda: self.cluster.refresh(()))
        return self._known_nodes()

    async def describe_log_dirs(
        self, brokers: Iterable[BrokerId]
    ) -> dict[BrokerId, list[LogDirDescription] | KafkaError]:
        """Return the log directories of each broker with their replicas."""
        return await log_dirs.describe(self.cluster, brokers, self._deadline())

    async def alter_replica_log_dirs(
        self, broker: BrokerId, paths: Mapping[TopicPartition, str]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Begin to move replicas of a broker between its log directories."""
        return await log_dirs.alter(self.cluster, broker, paths, self._deadline())

    async def find_coordinators(
        self, keys: Iterable[str], kind: CoordinatorType = CoordinatorType.GROUP
    ) -> dict[str, Node | KafkaError]:
        """Return the present coordinator of each group or transactional id, or a KafkaError."""
        key_list = list(dict.fromkeys(arguments.names("keys", keys)))
        return await self._retry(
            "findCoordinator", lambda: coordinators.find(self.cluster, key_list, kind)
        )

    async def api_versions(self, node: Node | BrokerId) -> dict[int, tuple[int, int]]:
        """Return the lowest and highest version of each API key of one broker."""
        id = node.id if isinstance(node, Node) else node
        peer = await self._retry("apiVersions", lambda: self.cluster.peer(id))
        return dict(peer.versions)

    def _known_nodes(self) -> list[Node]:
        return [node for _, node in sorted(self.cluster.nodes.items())]

    # Asking

    def _deadline(self) -> float:
        return self.cluster.deadline(self._config.default_api_timeout_ms)

    @property
    def _timeout(self) -> datetime.timedelta:
        """How long the broker may take over a change before it responds REQUEST_TIMED_OUT."""
        return datetime.timedelta(milliseconds=self._config.request_timeout_ms)

    async def _retry(self, call: str, attempt: Callable[[], Awaitable[T]]) -> T:
        return await self.cluster.retry(
            call, self._deadline(), attempt, retries=self._config.retries
        )

    async def _by_controller(
        self,
        call: str,
        names: Collection[K],
        ask: Callable[[Peer, list[K]], Awaitable[dict[K, T | KafkaError]]],
    ) -> dict[K, T | KafkaError]:
        return await of_controller(
            self.cluster, call, names, self._deadline(), ask, retries=self._config.retries
        )
