"""The controller: makes, grows and deletes topics, decides who leads their partitions, keeps
features; tells the brokers what it decided.

One queue: what clients ask, what ZooKeeper's watches tell and what a new session needs are
operations, and one is carried out after the other (`run`): plan it, write the znodes, change the
context, tell the brokers, answer.  What they do stands elsewhere; here is who is the controller,
and which event is whose.

    asked by clients    topic_operations, leader_elections, reassignments, feature_operations
    asked by brokers    broker_operations
    what happens        broker_changes, offline_replicas, topic_deletion, partition_states, and, as
                        others write it for the controller to act on, notices

    claimed   /controller is this session's, /controller_epoch was raised: operations are served
    lost      the session expired: they are refused with NOT_CONTROLLER until it is claimed again

Every write is conditional on the version of /controller_epoch, so a controller that was replaced
without knowing it writes nothing.  A topic is made in one atomic write, and only when that would
grow beyond what ZooKeeper takes at once in several: the first of them decides, and a start
completes the rest.  A deletion is first noted under /admin/delete_topics, and ends once every
replica has answered (`topic_deletion`).
(Kafka: KafkaController, TopicDeletionManager, PartitionStateMachine.)
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
"""A broker that has deposed the controller lets others, if there are any, come first."""
READ_AGAIN_S = 0.1


def _nothing(_partitions: int) -> None:
    pass


class Controller:
    """`publish` brings a message to this broker's own parts; `registered` waits until this session
    has registered this broker; `known` is called with NO_BROKER once this broker is the controller
    no longer, and with the one that is as soon as /controller tells; `epoch_heard` gives the
    latest epoch of a controller that this broker has heard of.
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
        epoch_heard: Callable[[], int],
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
            world.zookeeper, world.clock, broker_id, store, self._controller_changed, epoch_heard
        )
        unreadable = UnreadableZnodes(world.zookeeper, lambda: self._notices.read(znodes.TOPICS))
        self._queue = EventQueue(self.meters.queue_times_ms)
        self._channels = ChannelManager(context, broker_id, config, publish, self._answered)
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
        """To be read only."""
        return self._context

    @property
    def fenced_brokers(self) -> int:
        """How many are registered whose process is gone."""
        return self._broker_failures.fenced

    @property
    def queue(self) -> EventQueue:
        """To be read only."""
        return self._queue

    @property
    def channels(self) -> ChannelManager:
        """To be read only."""
        return self._channels

    async def start(self) -> None:
        """Become the controller and tell every broker what there is, or follow the one that is."""
        self._zookeeper.on_session(self._session_changed)
        await self._elect()

    async def run(self) -> None:
        """Serve what is asked and what happens, one after the other."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._channels.senders.run())
            group.create_task(self._broker_failures.watches.run())
            group.create_task(self._controller_failures.watches.run())
            group.create_task(self._elections.run())
            await self._queue.run()

    def settings_changed(self, topics: Collection[str]) -> None:
        """Of these topics, or of brokers where there are none."""
        self._elections.settings_changed(topics)

    async def create_topics(
        self, topics: Sequence[CreatableTopic], *, validate_only: bool, charge: Charge = _nothing
    ) -> list[TopicInfo | KafkaError]:
        """One result for each, in order: the topic as it is now, or would be; or why not."""
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
        """All of them or none; what is changed is in force when this returns."""
        return await self._queue.in_turn(
            ControllerState.UPDATE_FEATURES,
            updates,
            partial(self._features.update, updates, validate_only),
        )

    async def elect_leaders(
        self, election: ElectionType, wanted: Collection[TopicPartition] | None
    ) -> dict[TopicPartition, KafkaError | None]:
        """As `LeaderElections.elect`."""
        run = partial(self._elections.elect, election, wanted)
        return await self._queue.one_in_turn(ControllerState.MANUAL_LEADER_BALANCE, run)

    async def alter_reassignments(
        self,
        wanted: Mapping[TopicPartition, Sequence[BrokerId] | None],
        *,
        allow_replication_factor_change: bool = True,
    ) -> dict[TopicPartition, KafkaError | None]:
        """As `Reassignments.alter`."""
        run = partial(
            self._reassignments.alter,
            wanted,
            allow_replication_factor_change=allow_replication_factor_change,
        )
        return await self._queue.one_in_turn(ControllerState.ALTER_PARTITION_REASSIGNMENT, run)

    def list_reassignments(
        self, wanted: Collection[TopicPartition] | None
    ) -> dict[TopicPartition, PartitionInfo]:
        """Those of these, or of all partitions, that move.  NOT_CONTROLLER."""
        if not self.is_active:
            raise not_controller()
        return self._reassignments.list(wanted)

    async def alter_partitions(
        self, broker: BrokerId, broker_epoch: int, changes: Sequence[IsrChange]
    ) -> list[LeaderAndIsr | KafkaError]:
        """As `BrokerOperations.alter_partitions`."""
        run = partial(self._brokers.alter_partitions, broker, broker_epoch, changes)
        return await self._queue.one_in_turn(ControllerState.ISR_CHANGE, run)

    async def allocate_producer_ids(self, broker: BrokerId, broker_epoch: int) -> ProducerIdBlock:
        """As `BrokerOperations.allocate_producer_ids`."""
        run = partial(self._brokers.allocate_producer_ids, broker, broker_epoch)
        return await self._queue.one_in_turn(ControllerState.IDLE, run)

    async def shut_down(self, broker: BrokerId, broker_epoch: int) -> list[TopicPartition]:
        """As `BrokerOperations.shut_down`."""
        run = partial(self._brokers.shut_down, broker, broker_epoch)
        return await self._queue.one_in_turn(ControllerState.CONTROLLED_SHUTDOWN, run)

    # What happens

    def _put(self, state: ControllerState, event: Callable[[], Awaitable[None]]) -> None:
        """It is acted on in its turn, if this is the controller then."""
        self._queue.put(state, partial(self._act_on, event))

    async def _act_on(self, event: Callable[[], Awaitable[None]]) -> None:
        if not self.is_active:
            return
        try:
            await event()
        except SessionExpired:
            pass  # whoever is the controller next reads it all
        except (ZooKeeperError, UnreadableZnode) as error:
            await self._read_all_again(error)

    def _conflict(self, error: ZooKeeperError) -> None:
        """A write has failed.  Where a client asked for it, nobody else acts on that."""
        self._put(ControllerState.CONTROLLER_CHANGE, partial(self._read_all_again, error))

    async def _read_all_again(self, error: ZooKeeperError | UnreadableZnode) -> None:
        """Another controller was elected, or somebody has written what only it should."""
        log.warning("%s; the controller reloads all state", error)
        self._resign()
        if isinstance(error, NoNode):
            with suppress(SessionExpired):
                await make_persistent(self._zookeeper)
        asyncio.get_running_loop().call_later(READ_AGAIN_S, self._controller_changed)

    def _answered(
        self, broker: LiveBroker, request: ControlRequest, answer: ControlMessage
    ) -> None:
        id_ = broker.info.id
        now = self._context.brokers.get(id_)
        if not self.is_active or now is None or now.epoch != broker.epoch:
            return
        if isinstance(request, StopReplicaRequest) and isinstance(answer, StopReplicaResponse):
            if self._deletions.answered(id_, request, answer) and id_ != self._id:
                self._put(ControllerState.TOPIC_DELETION, self._deletions.advance)
            if self._reassignments.answered(id_, request) and id_ != self._id:
                self._put(ControllerState.ALTER_PARTITION_REASSIGNMENT, self._reassignments.advance)
        elif isinstance(request, LeaderAndIsrRequest) and isinstance(answer, LeaderAndIsrResponse):
            self._offline.answered(broker, request, answer)

    async def _topics_found(self, names: list[str]) -> None:
        batch = self._channels.new_batch()
        await until_connected(partial(self._partitions.adopt, names, batch))
        await self._channels.tell_of_topics(batch)

    async def _disks_failed(self, names: list[str]) -> None:
        """The brokers' answers tell which of their replicas are offline now."""
        brokers = set(
            await self._notices.take(znodes.LOG_DIR_EVENTS, names, znodes.decode_log_dir_event)
        )
        for broker in sorted(brokers & self._context.brokers.keys()):
            await self._offline.ask(broker)

    async def _isrs_changed(self, names: list[str]) -> None:
        noted = await self._notices.take(znodes.ISR_CHANGES, names, znodes.decode_isr_change)
        batch = self._channels.new_batch()
        await self._partitions.reread({key for partitions in noted for key in partitions}, batch)
        await self._channels.tell_of_topics(batch)
        await self._reassignments.advance()

    async def _deletions_noted(self, names: list[str]) -> None:
        await self._deletions.read_notes(names)
        await self._deletions.advance()

    # Who is the controller

    def _session_changed(self, event: SessionEvent) -> None:
        if event is SessionEvent.EXPIRED:
            self._resign()
        elif event is SessionEvent.CONNECTED:
            # The watches are lost.
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
            if self.is_active:
                if await self._claim.is_held():
                    return
                self._resign()
            if self._controller_failures.gives_way:
                self._controller_failures.gives_way = False
                await asyncio.sleep(GIVE_WAY_S)
            if not await self._claim.attempt():
                await self._follow_controller()
                return
            self._controller_failures.stop()
            self._broker_failures.gone = self._controller_failures.gone
            self._context.epoch = self._store.epoch
            await until_connected(self._load)
            if self._zookeeper.session_id != self._store.session:
                return  # the new session tries again
            self._context.is_active = True
            log.info("controller of the cluster in epoch %d", self._context.epoch)
            await self._channels.tell_all(self._context.brokers)
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
        if holder.broker != self._id:  # its session before this one
            self._known(holder.broker)
        path = znodes.broker_path(holder.broker)
        registered = await until_connected(partial(self._store.find, path))
        if registered is None:
            return
        try:
            endpoints = znodes.decode_broker(holder.broker, registered[0]).endpoints
        except UnreadableZnode:
            return  # the controller tells of it; its session alone says whether it lives
        listener = self._config().inter_broker_listener
        for endpoint in endpoints:
            if endpoint.listener == listener:
                self._controller_failures.follow(*holder, endpoint)

    async def _load(self) -> None:
        """Finish what was begun before, and have whatever can be led be led."""
        await self._broker_changes.load()
        await self._broker_failures.looked()
        self._broker_changes.forget_who_is_gone()
        if self._id not in self._context.brokers:
            # The session is another one since; what it brings is waiting in the queue.
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
            # As an argument of a command it must not look like an option.
            if not znodes.uuid_to_text(topic_id).startswith("-"):
                return topic_id
