"""The controller: its election, and the dispatch of requests and events.

Requests of clients, ZooKeeper watches and new sessions are operations in one queue, carried out
one after the other (`run`).  An operation plans the change, writes the znodes, updates the
context, sends requests to the brokers, and responds.  Other modules implement them:

    requests of clients   topic_operations, leader_elections, reassignments, feature_operations
    requests of brokers   broker_operations
    events                broker_changes, offline_replicas, topic_deletion, partition_states, and
                          notices for znodes that others write for the controller

    claimed   this session holds /controller and raised /controller_epoch: operations are served
    lost      the session expired: operations fail with NOT_CONTROLLER until it is claimed again

Every write is conditional on the version of /controller_epoch, so a controller that was replaced
without noticing writes nothing.  A topic is created in one atomic write.  If that would exceed
ZooKeeper's size limit, there are several: the first one decides, and the next start completes the
rest.  A deletion is first noted under /admin/delete_topics, and is complete once every replica has
responded (`topic_deletion`). (Kafka: KafkaController, TopicDeletionManager,
PartitionStateMachine.)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from uuid import UUID

from kserver import znodes
from kserver.cluster_config.config_manager import ConfigManager
from kserver.cluster_config.unreadable import UnreadableZnodes
from kserver.cluster_config.znode_store import make_persistent, not_controller
from kserver.config.broker import BrokerConfig
from kserver.controller import features
from kserver.controller.broker_changes import BrokerChanges
from kserver.controller.broker_operations import BrokerOperations
from kserver.controller.channel import ChannelManager
from kserver.controller.claim import ControllerClaim
from kserver.controller.claimed_store import ClaimedStore
from kserver.controller.context import ControllerContext, LiveBroker
from kserver.controller.event_queue import ControllerState, EventQueue
from kserver.controller.failure_detector import BrokerFailureDetector, ControllerFailureDetector
from kserver.controller.feature_operations import FeatureOperations
from kserver.controller.leader_elections import LeaderElections
from kserver.controller.notices import Notices
from kserver.controller.offline_replicas import OfflineReplicas
from kserver.controller.partition_states import PartitionStates
from kserver.controller.partitions import IsrChange
from kserver.controller.reassignments import Reassignments
from kserver.controller.request_batch import ControlRequest
from kserver.controller.topic_deletion import TopicDeletionManager
from kserver.controller.topic_operations import Charge, TopicOperations
from kserver.controller.topic_znodes import TopicZnodes
from kserver.controller.topics import CreatablePartitions, CreatableTopic
from kserver.errors import KafkaError, UnreadableZnode
from kserver.metadata import PartitionInfo, TopicInfo
from kserver.metrics.meters import ControllerMeters
from kserver.model import NO_BROKER, BrokerId, ElectionType, LeaderAndIsr, TopicPartition
from kserver.wire.control import (
    ControlMessage,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
)
from kserver.world import World
from kserver.world.session import until_connected
from kserver.world.zookeeper import (
    BadVersion,
    NoAuth,
    NodeExists,
    NoNode,
    SessionEvent,
    SessionExpired,
    ZooKeeperError,
)
from kserver.znodes import ProducerIdBlock

log = logging.getLogger(__name__)

GIVE_WAY_S = 0.3
"""Delay before a broker that deposed the controller stands for election, so that others come
first."""
READ_AGAIN_S = 0.1


def _nothing(_partitions: int) -> None:
    pass


class Controller:
    """Elects the controller, and serves requests and events while this broker is the controller.

    `publish` delivers a message to this broker itself.  `registered` waits until this session has
    registered this broker.  `known` is called with NO_BROKER when this broker stops being the
    controller, and with the current controller once /controller is read.  `last_epoch` returns
    the latest controller epoch that this broker has received.
    """

    def __init__(
        self,
        world: World,
        configs: ConfigManager,
        config: Callable[[], BrokerConfig],
        broker_id: BrokerId,
        publish: Callable[[ControlRequest], Awaitable[ControlMessage]],
        registered: Callable[[], Awaitable[object]],
        known: Callable[[BrokerId], None],
        last_epoch: Callable[[], int],
    ) -> None:
        self._zookeeper = world.zookeeper
        self._random = world.random
        self._config = config
        self._id = broker_id
        self._registered = registered
        self._known = known
        self.meters = ControllerMeters()
        self._context = context = ControllerContext()
        self._store = store = ClaimedStore(world.zookeeper)
        store.on_conflict = self._conflict
        topic_znodes = TopicZnodes(world.zookeeper, store)
        self._claim = ControllerClaim(
            world.zookeeper, world.clock, broker_id, store, self._controller_changed, last_epoch
        )
        unreadable = UnreadableZnodes(world.zookeeper, lambda: self._notices.read(znodes.TOPICS))
        self._queue = EventQueue(self.meters.queue_times_ms)
        self._channels = ChannelManager(context, broker_id, config, publish, self._on_response)
        self._partitions = PartitionStates(
            world.zookeeper,
            store,
            context,
            configs,
            config,
            self._new_topic_id,
            self.meters,
            unreadable,
        )
        self._deletions = TopicDeletionManager(context, store, topic_znodes, self._channels, config)
        self._topics = TopicOperations(
            world,
            context,
            topic_znodes,
            self._channels,
            self._deletions,
            configs,
            config,
            broker_id,
            self._new_topic_id,
            self._act_on,
        )
        self._offline = OfflineReplicas(context, self._partitions, self._channels, self._put)
        self._elections = LeaderElections(
            context, store, self._partitions, self._channels, config, self._put
        )
        self._reassignments = Reassignments(world.zookeeper, context, store, self._channels)
        self._features = FeatureOperations(context, store, configs, broker_id)
        self._brokers = BrokerOperations(
            context, store, self._partitions, self._channels, self._reassignments, self._act_on
        )
        self._broker_failures = BrokerFailureDetector(
            broker_id, lambda: self._broker_changes.may_be_due()
        )
        self._broker_changes = BrokerChanges(
            world.zookeeper,
            context,
            self._partitions,
            self._channels,
            self._deletions,
            self._reassignments,
            self._features,
            self._broker_failures,
            config,
            self._put,
        )
        self._notices = Notices(
            world.zookeeper,
            store,
            self._put,
            of_children={
                znodes.TOPICS: self._topics_found,
                znodes.DELETE_TOPICS: self._deletions_noted,
                znodes.LOG_DIR_EVENTS: self._disks_failed,
                znodes.ISR_CHANGES: self._isrs_changed,
            },
            of_data={
                znodes.PREFERRED_ELECTION: self._elections.preferred_election_noted,
                znodes.REASSIGN_PARTITIONS: self._reassignments.noted,
            },
        )
        self._controller_failures = ControllerFailureDetector(
            broker_id, config().zookeeper_session_timeout_ms / 1000, self._claim.depose
        )

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller, as far as it knows."""
        return self._context.is_active

    @property
    def context(self) -> ControllerContext:
        """Read-only."""
        return self._context

    @property
    def fenced_brokers(self) -> int:
        """Number of registered brokers whose process is gone."""
        return self._broker_failures.fenced

    @property
    def queue(self) -> EventQueue:
        """Read-only."""
        return self._queue

    @property
    def channels(self) -> ChannelManager:
        """Read-only."""
        return self._channels

    async def start(self) -> None:
        """Become the controller and send the full state to every broker, or follow the current
        one."""
        self._zookeeper.on_session(self._session_changed)
        await self._elect()

    async def run(self) -> None:
        """Serve requests and events, one after the other."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._channels.senders.run())
            group.create_task(self._broker_failures.watches.run())
            group.create_task(self._controller_failures.watches.run())
            group.create_task(self._elections.run())
            await self._queue.run()

    def settings_changed(self, topics: Collection[str]) -> None:
        """React to changed configs of these topics, or of brokers if `topics` is empty."""
        self._elections.settings_changed(topics)

    async def create_topics(
        self, topics: Sequence[CreatableTopic], *, validate_only: bool, charge: Charge = _nothing
    ) -> list[TopicInfo | KafkaError]:
        """Return one result for each topic, in order: the topic as created or as it would be, or
        an error."""
        return await self._queue.in_turn(
            ControllerState.TOPIC_CHANGE,
            topics,
            partial(self._topics.create, topics, validate_only, charge),
        )

    async def delete_topics(
        self, names: Sequence[str], charge: Charge = _nothing
    ) -> list[KafkaError | None]:
        run = partial(self._topics.delete, names, charge)
        return await self._queue.in_turn(ControllerState.TOPIC_DELETION, names, run)

    async def create_partitions(
        self,
        requests: Sequence[CreatablePartitions],
        *,
        validate_only: bool,
        charge: Charge = _nothing,
    ) -> list[KafkaError | None]:
        return await self._queue.in_turn(
            ControllerState.TOPIC_CHANGE,
            requests,
            partial(self._topics.grow, requests, validate_only, charge),
        )

    async def update_features(
        self, updates: Sequence[features.Update], *, validate_only: bool
    ) -> list[KafkaError | None]:
        """Update all features or none.  The changes are in effect when this returns."""
        return await self._queue.in_turn(
            ControllerState.UPDATE_FEATURES,
            updates,
            partial(self._features.update, updates, validate_only),
        )

    async def elect_leaders(
        self, election: ElectionType, keys: Collection[TopicPartition] | None
    ) -> dict[TopicPartition, KafkaError | None]:
        """Run `LeaderElections.elect` in its turn."""
        run = partial(self._elections.elect, election, keys)
        return await self._queue.one_in_turn(ControllerState.MANUAL_LEADER_BALANCE, run)

    async def alter_reassignments(
        self,
        targets: Mapping[TopicPartition, Sequence[BrokerId] | None],
        *,
        allow_replication_factor_change: bool = True,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Run `Reassignments.alter` in its turn."""
        run = partial(
            self._reassignments.alter,
            targets,
            allow_replication_factor_change=allow_replication_factor_change,
        )
        return await self._queue.one_in_turn(ControllerState.ALTER_PARTITION_REASSIGNMENT, run)

    def list_reassignments(
        self, keys: Collection[TopicPartition] | None
    ) -> dict[TopicPartition, PartitionInfo]:
        """Return those of these, or of all, partitions that are being reassigned.  Raises
        NOT_CONTROLLER."""
        if not self.is_active:
            raise not_controller()
        return self._reassignments.list(keys)

    async def alter_partitions(
        self, broker: BrokerId, broker_epoch: int, changes: Sequence[IsrChange]
    ) -> list[LeaderAndIsr | KafkaError]:
        """Run `BrokerOperations.alter_partitions` in its turn."""
        run = partial(self._brokers.alter_partitions, broker, broker_epoch, changes)
        return await self._queue.one_in_turn(ControllerState.ISR_CHANGE, run)

    async def allocate_producer_ids(self, broker: BrokerId, broker_epoch: int) -> ProducerIdBlock:
        """Run `BrokerOperations.allocate_producer_ids` in its turn."""
        run = partial(self._brokers.allocate_producer_ids, broker, broker_epoch)
        return await self._queue.one_in_turn(ControllerState.IDLE, run)

    async def shut_down(self, broker: BrokerId, broker_epoch: int) -> list[TopicPartition]:
        """Run `BrokerOperations.shut_down` in its turn."""
        run = partial(self._brokers.shut_down, broker, broker_epoch)
        return await self._queue.one_in_turn(ControllerState.CONTROLLED_SHUTDOWN, run)

    # Events

    def _put(self, state: ControllerState, event: Callable[[], Awaitable[None]]) -> None:
        """Queue an event, which is dropped if this broker is not the controller by then."""
        self._queue.put(state, partial(self._act_on, event))

    async def _act_on(self, event: Callable[[], Awaitable[None]]) -> None:
        if not self.is_active:
            return
        try:
            await event()
        except SessionExpired:
            pass  # the next controller loads all state
        except (ZooKeeperError, UnreadableZnode) as error:
            await self._read_all_again(error)

    def _conflict(self, error: ZooKeeperError) -> None:
        """Reload all state after a failed write.  The error of a client's request is returned to
        that client, so nothing else would react to it."""
        self._put(ControllerState.CONTROLLER_CHANGE, partial(self._read_all_again, error))

    async def _read_all_again(self, error: ZooKeeperError | UnreadableZnode) -> None:
        """Resign and run for election again: another controller was elected, or another client
        changed a znode that only the controller should write."""
        log.warning("%s; the controller reloads all state", error)
        self._resign()
        if isinstance(error, NoNode):
            with suppress(SessionExpired):
                await make_persistent(self._zookeeper)
        asyncio.get_running_loop().call_later(READ_AGAIN_S, self._controller_changed)

    def _on_response(
        self, broker: LiveBroker, request: ControlRequest, response: ControlMessage
    ) -> None:
        id_ = broker.info.id
        now = self._context.brokers.get(id_)
        if not self.is_active or now is None or now.epoch != broker.epoch:
            return
        if isinstance(request, StopReplicaRequest) and isinstance(response, StopReplicaResponse):
            if self._deletions.on_response(id_, request, response) and id_ != self._id:
                self._put(ControllerState.TOPIC_DELETION, self._deletions.advance)
            if self._reassignments.on_response(id_, request) and id_ != self._id:
                self._put(ControllerState.ALTER_PARTITION_REASSIGNMENT, self._reassignments.advance)
        elif isinstance(request, LeaderAndIsrRequest) and isinstance(
            response, LeaderAndIsrResponse
        ):
            self._offline.on_response(broker, request, response)

    async def _topics_found(self, names: list[str]) -> None:
        batch = self._channels.new_batch()
        await until_connected(partial(self._partitions.adopt, names, batch))
        await self._channels.send_topics(batch)

    async def _disks_failed(self, names: list[str]) -> None:
        """Ask each broker for its offline replicas, which it returns in its LeaderAndIsr
        response."""
        brokers = set(
            await self._notices.take(znodes.LOG_DIR_EVENTS, names, znodes.decode_log_dir_event)
        )
        for broker in sorted(brokers & self._context.brokers.keys()):
            await self._offline.request_states(broker)

    async def _isrs_changed(self, names: list[str]) -> None:
        noted = await self._notices.take(znodes.ISR_CHANGES, names, znodes.decode_isr_change)
        batch = self._channels.new_batch()
        await self._partitions.reread({key for partitions in noted for key in partitions}, batch)
        await self._channels.send_topics(batch)
        await self._reassignments.advance()

    async def _deletions_noted(self, names: list[str]) -> None:
        await self._deletions.read_notes(names)
        await self._deletions.advance()

    # Election of the controller

    def _session_changed(self, event: SessionEvent) -> None:
        if event is SessionEvent.EXPIRED:
            self._resign()
        elif event is SessionEvent.CONNECTED:
            # Watches are lost with the connection.
            self._controller_changed()
            self._broker_changes.may_be_due()
            self._notices.read_all()

    def _controller_changed(self) -> None:
        self._queue.put(ControllerState.CONTROLLER_CHANGE, self._elect)

    def _resign(self) -> None:
        was_active = self.is_active
        self._context.is_active = False
        self._channels.close_all()
        self._broker_failures.follow({}, "")
        if was_active:
            log.info("no longer the controller of the cluster")
            self._known(NO_BROKER)

    async def _elect(self) -> None:
        try:
            await self._registered()
            # A queued event may find that this session is still the controller's.
            if self.is_active:
                if await self._claim.is_held():
                    return
                has_others = len(self._context.brokers) > 1
                self._resign()
                if has_others:
                    # It was deposed, although its session lives: others cannot reach it.
                    await asyncio.sleep(2 * GIVE_WAY_S)
            # Others stand first, as this broker alone may be unable to reach the deposed
            # controller.
            if await self._controller_failures.gives_way():
                await asyncio.sleep(GIVE_WAY_S)
            if not await self._claim.attempt():
                await self._follow_controller()
                return
            self._controller_failures.stop()
            self._broker_failures.gone = self._controller_failures.gone
            self._context.epoch = self._store.epoch
            # Load everything before being active, so that no operation sees a partial state.
            await until_connected(self._load)
            if self._zookeeper.session_id != self._store.session:
                return  # the new session tries again
            self._context.is_active = True
            log.info("controller of the cluster in epoch %d", self._context.epoch)
            await self._channels.send_full_state(self._context.brokers)
            await self._act_on(self._deletions.advance)
            await self._act_on(self._reassignments.resume)
            self._notices.read_all()
        except SessionExpired:
            pass  # the next session tries again
        except (BadVersion, NodeExists, NoNode, NoAuth, UnreadableZnode) as error:
            await self._read_all_again(error)

    async def _follow_controller(self) -> None:
        holder = await self._claim.holder()
        if holder is None:
            return
        if holder.broker != self._id:  # not an earlier session of this broker
            self._known(holder.broker)
        path = znodes.broker_path(holder.broker)
        registered = await until_connected(partial(self._store.find, path))
        if registered is None:
            return
        try:
            endpoints = znodes.decode_broker(holder.broker, registered[0]).endpoints
        except UnreadableZnode:
            return  # the controller logs it; only its session decides whether it is alive
        listener = self._config().inter_broker_listener
        for endpoint in endpoints:
            if endpoint.listener == listener:
                self._controller_failures.follow(*holder, endpoint)

    async def _load(self) -> None:
        """Load all state, complete what an earlier controller began, and elect missing leaders."""
        await self._broker_changes.load()
        await self._broker_failures.looked()
        self._broker_changes.forget_failed_brokers()
        if self._id not in self._context.brokers:
            # The session has been replaced; its events are in the queue.
            raise SessionExpired(znodes.broker_path(self._id))
        self._context.deletions.clear()
        self._context.offline.clear()
        self._context.shutting_down.clear()
        self._reassignments.reload()
        noted = await self._zookeeper.children(znodes.DELETE_TOPICS)
        await self._partitions.restore(noted if self._config().delete_topic_enable else ())
        await self._deletions.read_notes(noted)
        await self._features.agree()

    def _new_topic_id(self) -> UUID:
        while True:
            topic_id = UUID(int=self._random.getrandbits(128), version=4)
            # An id with a leading "-" would look like an option on a command line.
            if not znodes.uuid_to_text(topic_id).startswith("-"):
                return topic_id
