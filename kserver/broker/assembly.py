"""The parts of a broker between its log directories and its listeners, wired to each other.

created   nothing is read yet
configure configs are read
join      logs are open: the broker registers; the controller is elected and sends the roles
run       until the broker stops
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from contextlib import closing
from uuid import UUID

from kserver.api.context import Parts, Spawn
from kserver.broker import controlled_shutdown
from kserver.broker.registration import Registration
from kserver.cluster_config.config_manager import ConfigManager
from kserver.config.broker import BrokerConfig
from kserver.controller.controller import Controller
from kserver.controller.sender_check import SenderCheck
from kserver.coordinator.runtime import CoordinatorRuntime
from kserver.group.shard import GroupShard
from kserver.log.manager import LogManager
from kserver.metadata import BrokerInfo, ClusterMetadata, MetadataCache
from kserver.metrics.meters import GroupMeters
from kserver.model import CONSUMER_OFFSETS, TRANSACTION_STATE, BrokerId, TopicPartition
from kserver.network.quota import ConnectionRates, Quotas, RateWindow
from kserver.peers.node_to_controller import NodeToControllerChannel
from kserver.peers.peers import Peers
from kserver.publisher import MetadataPublisher
from kserver.replica.fetch_session import FetchSessions
from kserver.replica.leadership import Leadership
from kserver.replica.manager import ReplicaManager
from kserver.replica.move import Moves
from kserver.replica.purgatory import Purgatory
from kserver.txn.markers import MarkerLog, MarkerSender
from kserver.txn.producer_ids import ProducerIds
from kserver.txn.shard import TransactionShard
from kserver.txn.verification import Verification
from kserver.world import World
from kserver.world.embedded import EmbeddedZooKeeper
from kserver.znodes import ProducerIdBlock

log = logging.getLogger(__name__)

AWAITED_S = 30
"""Seconds between two log lines that name what a start waits for."""


class Assembly:
    """`config` returns the current config; `configure` applies the dynamic configs of an image."""

    def __init__(
        self,
        world: World,
        logs: LogManager,
        cluster_id: str,
        own: BrokerInfo,
        alive: Registration,
        rates: ConnectionRates,
        window: RateWindow,
        config: Callable[[], BrokerConfig],
        configure: Callable[[ClusterMetadata], None],
    ) -> None:
        loop = asyncio.get_running_loop()
        clock, now = world.clock, config()
        broker_id: BrokerId = own.id
        self._world = world
        self._loop = loop
        self._broker_id = broker_id
        self._alive = alive
        self._config = config
        self._configure = configure
        self._rates = rates
        # What most parts share: the cluster's metadata, delayed requests, quotas.
        self.logs = logs
        self.metadata = metadata = MetadataCache(
            ClusterMetadata(cluster_id, brokers={broker_id: own})
        )
        self.purgatory = purgatory = Purgatory(loop)
        self.quotas = Quotas(
            window,
            RateWindow(
                now.controller_quota_window_num, now.controller_quota_window_size_seconds * 1000
            ),
        )

        # Replicas.  AlterPartition has a channel of its own, so that it never waits for others.
        def to_controller(use: str) -> NodeToControllerChannel:
            return NodeToControllerChannel(broker_id, use, config, metadata)

        altering = to_controller("alter-partition")
        self._to_controller = to_controller("to-controller")
        self.replicas = replicas = ReplicaManager(
            broker_id,
            config,
            logs,
            metadata,
            purgatory,
            loop,
            clock,
            altering,
            lambda: alive.epoch,
        )
        self.moves = Moves(world, logs, replicas, config)

        # Coordinators of groups and of transactions.
        def new_id() -> str:
            return str(UUID(int=world.random.getrandbits(128), version=4))

        # Called only once the broker runs, when self.publisher exists.
        def knows_roles() -> bool:
            return alive.is_registered and self.publisher.knows_roles

        self.leadership = leadership = Leadership(
            world.zookeeper, broker_id, is_alone=config().zookeeper_connect is None
        )
        self.group_meters = group_meters = GroupMeters()
        self.groups = groups = CoordinatorRuntime(
            CONSUMER_OFFSETS,
            lambda _: GroupShard(config, new_id, group_meters),
            loop=loop,
            clock=clock,
            metadata=metadata,
            replicas=replicas,
            purgatory=purgatory,
            knows_roles=knows_roles,
            is_current=leadership.is_current,
            timeout_ms=lambda: config().offsets_commit_timeout_ms,
        )
        self.transactions = transactions = CoordinatorRuntime(
            TRANSACTION_STATE,
            lambda _: TransactionShard(config),
            loop=loop,
            clock=clock,
            metadata=metadata,
            replicas=replicas,
            purgatory=purgatory,
            knows_roles=knows_roles,
            is_current=leadership.is_current,
            timeout_ms=lambda: config().request_timeout_ms,
            perform=lambda effect: self.marker_sender.send(effect),
        )

        # Transactions between brokers: writes are verified, and markers sent.
        def peers(use: str) -> Peers:
            return Peers(f"broker-{broker_id}-{use}", config, metadata)

        verifying, marking = peers("verification"), peers("markers")
        self.verification = Verification(broker_id, loop, transactions, config, metadata, verifying)
        self.marker_log = MarkerLog(
            loop=loop,
            clock=clock,
            replicas=replicas,
            purgatory=purgatory,
            groups=groups,
            verification=self.verification,
            timeout_ms=lambda: config().request_timeout_ms,
        )
        self.marker_sender = MarkerSender(
            broker_id,
            loop=loop,
            metadata=metadata,
            replicas=replicas,
            marker_log=self.marker_log,
            transactions=transactions,
            peers=marking,
            knows_topics=lambda: self.publisher.knows_topics,
        )
        self.producer_ids = ProducerIds(self._allocate_producer_ids)
        # The cluster's state, as ZooKeeper and the controller tell it; the controller itself.
        self.configs = ConfigManager(
            world.zookeeper, metadata, config, broker_id, self._settings_changed
        )
        self._senders = SenderCheck(world.zookeeper, config)
        self.publisher = MetadataPublisher(
            metadata,
            self.configs,
            replicas,
            (
                altering,
                self._to_controller,
                verifying,
                marking,
                groups,
                transactions,
                replicas.fetchers,
            ),
            broker_id,
            lambda: alive.epoch,
        )
        self.controller = Controller(
            world,
            self.configs,
            config,
            broker_id,
            self.publisher.publish,
            alive.registered,
            self.publisher.controller_is,
            lambda: self.publisher.controller_epoch,
        )
        self.configs.on_readable = alive.report

    async def _allocate_producer_ids(self) -> ProducerIdBlock:
        """Allocate a block from the controller, which may be this broker."""
        epoch = self._alive.epoch
        if self.controller.is_active:
            return await self.controller.allocate_producer_ids(self._broker_id, epoch)
        return await self._to_controller.allocate_producer_ids(epoch)

    def _settings_changed(self, image: ClusterMetadata, topics: Collection[str]) -> None:
        """Apply changed configs of the broker first, as the other parts use them, and of
        `topics`."""
        self._configure(image)
        self.replicas.reconfigure(image, topics)
        self.groups.apply(image)
        self.transactions.apply(image)
        self._limit(image)
        self.controller.settings_changed(topics)

    def _limit(self, image: ClusterMetadata) -> None:
        self.quotas.update(image.quotas)
        self._rates.update(image.quotas)

    async def configure(self) -> None:
        """Read the cluster's configs and apply them.  Raises ConfigError, StorageError."""
        await self.configs.load()
        image = self.metadata.current
        self._configure(image)
        self.replicas.reconfigure(image, ())
        self._limit(image)

    async def join(self) -> None:
        """Register this broker, and become the controller or follow the current one, which sends
        the roles of its partitions.  Raises ConfigError, StorageError."""
        await self._alive.register()
        await self.controller.start()
        if isinstance(self._world.zookeeper, EmbeddedZooKeeper):
            self._world.zookeeper.require_disk()

    async def hand_over(self) -> None:
        """Move leadership of this broker's partitions to other brokers, if possible."""
        config = self._config()
        if not config.controlled_shutdown_enable:
            return

        async def request_shutdown() -> list[TopicPartition]:
            epoch = self._alive.epoch
            if self.controller.is_active:
                return await self.controller.shut_down(self._broker_id, epoch)
            return await self._to_controller.shut_down(epoch)

        handing_over = controlled_shutdown.hand_over(request_shutdown, self.metadata, config)
        await controlled_shutdown.while_connected(handing_over, self._world.zookeeper)

    def resign(self) -> None:
        """Give up the coordinators and every replica role that depends on another broker.

        An append that is not committed then fails with NOT_LEADER_OR_FOLLOWER.  A partition whose
        only in-sync replica is here keeps its leader, so that an append which waits for the disk
        is still acknowledged.
        """
        self.groups.close()
        self.transactions.close()
        for partition in list(self.replicas.partitions.values()):
            if not partition.is_led_alone:
                partition.resign()
                self.replicas.fetchers.assign(partition)
                self.purgatory.check(partition.topic_partition)

    async def wait_for_metadata(self) -> None:
        """Wait until the controller has sent what is hosted here, and that can be served.

        A cluster without a controller is waited for without a limit, with a line each AWAITED_S.
        """
        while not self.publisher.has_metadata.is_set():
            try:
                async with asyncio.timeout(AWAITED_S):
                    await self.publisher.has_metadata.wait()
            except TimeoutError:
                log.warning(
                    "broker %d: still waiting for the controller to send the metadata"
                    " (UpdateMetadata and LeaderAndIsr); the controller is %s",
                    self._broker_id,
                    self.metadata.current.controller,
                )
        # The controller has handled its registration, so a broker in sync since then lacks no
        # records.
        self.logs.may_lack_records = False
        await self.replicas.settle()
        if not self.replicas.has_missing:
            await self._alive.forget_lost_directories()

    def parts(self, spawn: Spawn) -> Parts:
        """Return the parts that request handlers use."""
        config = self._config()
        sessions = FetchSessions(config.max_incremental_fetch_session_cache_slots)
        self.purgatory.dependents = sessions.mark_active
        return Parts(
            broker_id=self._broker_id,
            config=self._config,
            world=self._world,
            loop=self._loop,
            metadata=self.metadata,
            logs=self.logs,
            moves=self.moves,
            replicas=self.replicas,
            leadership=self.leadership,
            purgatory=self.purgatory,
            fetch_sessions=sessions,
            configs=self.configs,
            controller=self.controller,
            to_controller=self._to_controller,
            producer_ids=self.producer_ids,
            publisher=self.publisher,
            groups=self.groups,
            transactions=self.transactions,
            marker_log=self.marker_log,
            verification=self.verification,
            quotas=self.quotas,
            senders=self._senders,
            spawn=spawn,
        )

    async def run(self) -> None:
        """Run all parts until cancelled.  If one fails, the others are cancelled and its error is
        raised."""
        with closing(self._to_controller):
            await self._run()

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as running:
            for part in (
                self.configs,
                self.controller,
                self.logs,
                self.replicas,
                self.leadership,
                self.moves,
                self.groups,
                self.transactions,
                self.marker_sender,
                self.verification,
                self.producer_ids,
            ):
                running.create_task(part.run())
