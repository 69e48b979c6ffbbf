"""Dependencies of the handlers, besides the request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from kserver.cluster_config.config_manager import ConfigManager
from kserver.config.broker import BrokerConfig
from kserver.controller.controller import Controller
from kserver.controller.sender_check import SenderCheck
from kserver.coordinator.runtime import CoordinatorRuntime
from kserver.errors import NotReady
from kserver.group.shard import GroupShard
from kserver.log.manager import LogManager
from kserver.metadata import ClusterMetadata, MetadataCache
from kserver.model import ANONYMOUS, NO_BROKER, BrokerId, Endpoint
from kserver.network.quota import Quotas
from kserver.peers.node_to_controller import NodeToControllerChannel
from kserver.publisher import MetadataPublisher
from kserver.replica.fetch_session import FetchSessions
from kserver.replica.leadership import Leadership
from kserver.replica.manager import ReplicaManager
from kserver.replica.move import Moves
from kserver.replica.purgatory import Purgatory
from kserver.txn.markers import MarkerLog
from kserver.txn.producer_ids import ProducerIds
from kserver.txn.shard import TransactionShard
from kserver.txn.verification import Verification
from kserver.world import World

METADATA_S = 1.0
"""A controller that can reach a broker which has registered sends it the metadata within 0.1 s."""


class Spawn(Protocol):
    """Runs a request that cannot be answered at once, as a task of the broker's task group."""

    def __call__(self, work: Coroutine[Any, Any, None], /) -> object: ...


@dataclass(slots=True)
class Parts:
    """The components of the broker that some handler uses, and no others."""

    broker_id: BrokerId
    config: Callable[[], BrokerConfig]
    """Current broker config, which each change replaces."""
    world: World
    loop: asyncio.AbstractEventLoop
    metadata: MetadataCache
    logs: LogManager
    moves: Moves
    replicas: ReplicaManager
    leadership: Leadership
    purgatory: Purgatory
    fetch_sessions: FetchSessions
    configs: ConfigManager
    controller: Controller
    to_controller: NodeToControllerChannel
    producer_ids: ProducerIds
    publisher: MetadataPublisher
    groups: CoordinatorRuntime[GroupShard]
    transactions: CoordinatorRuntime[TransactionShard]
    marker_log: MarkerLog
    verification: Verification
    quotas: Quotas
    senders: SenderCheck
    spawn: Spawn


@dataclass(slots=True)
class Session:
    """One connection, as the handlers see it."""

    endpoint: Endpoint
    """Listener of the connection; responses contain the addresses of that listener."""
    address: str
    throttle: Callable[[int], None]
    """Dispatch no requests of this connection for this many milliseconds."""
    served: Mapping[int, range]
    """Versions by API key, as ApiVersions lists them; passed in, since the table of handlers
    imports that handler."""
    client_software: tuple[str, str] = ("unknown", "unknown")
    """Client software name and version from ApiVersions v3 (KIP-511)."""
    user: str = ANONYMOUS


@dataclass(frozen=True, slots=True)
class Context:
    parts: Parts
    session: Session
    version: int
    client_id: str | None

    async def cluster_metadata(self) -> ClusterMetadata:
        """Return the current metadata of the cluster.

        Waits up to METADATA_S for the controller's first UpdateMetadata, then raises NotReady: this
        broker knows itself alone until then, and librdkafka forgets brokers that are not listed.
        """
        publisher = self.parts.publisher
        if not publisher.knows_cluster.is_set():
            try:
                async with asyncio.timeout(METADATA_S):
                    await publisher.knows_cluster.wait()
            except TimeoutError as error:
                raise NotReady("the controller has not sent the metadata yet") from error
        return self.parts.metadata.current

    async def from_broker(self, request: str) -> bool:
        """Whether the connection is a registered broker's; `request` is the API name to log."""
        return await self.parts.senders.is_broker(self.session.address, request)


def is_broker(replica_id: BrokerId, session: Session, parts: Parts) -> bool:
    """Whether replica_id is another live broker, connected on the inter-broker listener."""
    return (
        replica_id not in (NO_BROKER, parts.broker_id)
        and replica_id in parts.metadata.current.brokers
        and session.endpoint.listener == parts.config().inter_broker_listener
    )
