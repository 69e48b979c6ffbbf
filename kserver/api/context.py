"""What a handler is given beside its request."""

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
from kserver.group.shard import GroupShard
from kserver.log.manager import LogManager
from kserver.metadata import MetadataCache
from kserver.model import ANONYMOUS, NO_BROKER, BrokerId, Endpoint
from kserver.network.quota import Quotas
from kserver.node_to_controller import NodeToControllerChannel
from kserver.publisher import MetadataPublisher
from kserver.replica.fetch_session import FetchSessions
from kserver.replica.manager import ReplicaManager
from kserver.replica.move import Moves
from kserver.replica.purgatory import Purgatory
from kserver.txn.markers import MarkerLog
from kserver.txn.producer_ids import ProducerIds
from kserver.txn.shard import TransactionShard
from kserver.txn.verification import Verification
from kserver.world import World


class Spawn(Protocol):
    """Runs a request that cannot be answered at once, as a task of the broker's own group."""

    def __call__(self, work: Coroutine[Any, Any, None], /) -> object: ...


@dataclass(slots=True)
class Parts:
    """The broker's parts that some handler takes, and nothing else."""

    broker_id: BrokerId
    config: Callable[[], BrokerConfig]
    """Another one after each change of the broker's settings."""
    world: World
    loop: asyncio.AbstractEventLoop
    metadata: MetadataCache
    logs: LogManager
    moves: Moves
    replicas: ReplicaManager
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
    """The listener it came through; clients are told the addresses of that listener."""
    address: str
    throttle: Callable[[int], None]
    """Take no request of this connection for so many milliseconds."""
    served: Mapping[int, range]
    """Versions by API key, as ApiVersions tells them; given here since the table of handlers
    imports that handler."""
    client_software: tuple[str, str] = ("unknown", "unknown")
    """Name and version, as ApiVersions v3 told them (KIP-511)."""
    user: str = ANONYMOUS


@dataclass(frozen=True, slots=True)
class Context:
    parts: Parts
    session: Session
    version: int
    client_id: str | None

    async def from_broker(self, request: str) -> bool:
        """Whether the connection is a registered broker's; `request` is its name, for the log."""
        return await self.parts.senders.is_broker(self.session.address, request)


def is_broker(replica_id: BrokerId, session: Session, parts: Parts) -> bool:
    """Whether whoever calls himself that may be another broker: a live one, on the listener between
    brokers."""
    return (
        replica_id not in (NO_BROKER, parts.broker_id)
        and replica_id in parts.metadata.current.brokers
        and session.endpoint.listener == parts.config().inter_broker_listener
    )
