"""The controller: makes, grows and deletes topics, decides who leads their partitions, keeps
features; tells the brokers what it decided.

One queue: what clients ask, what ZooKeeper's watches tell and what a new session needs are
operations, and one is carried out after the other (`run`): plan it (`topics`, `features`,
`context`), write the znodes, change the context, tell the brokers, answer.

    claimed   /controller is this session's, /controller_epoch was raised: operations are served
    lost      the session expired: they are refused with NOT_CONTROLLER until it is claimed again

Every write is conditional on the version of /controller_epoch, so a controller that was replaced
without knowing it writes nothing.  A topic is made in one atomic write, and only when that would
grow beyond what ZooKeeper takes at once in several: the first of them decides, and a start
completes the rest.  A deletion is first noted under /admin/delete_topics, and a start completes it.
(Kafka: KafkaController, TopicDeletionManager, PartitionStateMachine.)
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TypeAlias, TypeVar
from uuid import UUID

from kserver import znodes
from kserver.config.broker import BrokerConfig
from kserver.config.topic import TopicConfig
from kserver.controller import features
from kserver.controller import topics as rules
from kserver.controller.channel import BrokerChannel, ControlRequest, RequestBatch
from kserver.controller.claim import ControllerClaim
from kserver.controller.config_manager import ConfigManager
from kserver.controller.context import (
    ControllerContext,
    live_broker,
    next_state,
    returned_since,
)
from kserver.controller.event_queue import EventQueue
from kserver.controller.partitions import IsrChange, judge, state_of
from kserver.controller.store import ClaimedStore, not_controller, refusal, together
from kserver.controller.topic_znodes import TopicZnodes
from kserver.controller.topics import CreatablePartitions, CreatableTopic
from kserver.errors import ErrorCode, KafkaError
from kserver.metadata import Features, PartitionInfo, TopicInfo
from kserver.model import NO_BROKER, BrokerId, LeaderAndIsr
from kserver.peer import PeerOptions
from kserver.world import World
from kserver.world.running import RunningParts
from kserver.world.session import until_connected
from kserver.world.zookeeper import (
    BadVersion,
    Create,
    NoNode,
    Op,
    SessionEvent,
    SessionExpired,
    SetData,
    Stat,
    WatchEvent,
)

log = logging.getLogger(__name__)

T = TypeVar("T")

FOR_ALL = frozenset({ErrorCode.not_controller, ErrorCode.stale_broker_epoch})
NO_OVERRIDES: Mapping[str, str] = MappingProxyType({})

Charge: TypeAlias = Callable[[int], None]
"""Told how many partitions each item is about to change; raises KafkaError to refuse it."""


def _nothing(_partitions: int) -> None:
    pass


class Controller:
    """`publish` brings a message to this broker's own parts; `registered` waits until this session
    has registered this broker."""

    def __init__(
        self,
        world: World,
        configs: ConfigManager,
        config: Callable[[], BrokerConfig],
        broker_id: BrokerId,
        publish: Callable[[ControlRequest], Awaitable[object]],
        registered: Callable[[], Awaitable[object]],
    ) -> None:
        self._zookeeper = world.zookeeper
        self._random = world.random
        self._disk = world.disk
        self._configs = configs
        self._config = config
        self._id = broker_id
        self._publish = publish
        self._registered = registered
        self._context = ControllerContext()
        self._store = ClaimedStore(world.zookeeper)
        self._znodes = TopicZnodes(world.zookeeper, self._store)
        self._claim = ControllerClaim(
            world.zookeeper,
            world.clock,
            broker_id,
            self._store,
            lambda: self._queue.put(self._elect),
        )
        self._channels: dict[BrokerId, BrokerChannel] = {}
        """To the live brokers but this one."""
        self.senders = RunningParts[BrokerChannel]()
        """To run beside this."""
        self._claimed = False
        self._queue = EventQueue()

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller, as far as it knows."""
        return self._claimed

    async def start(self) -> None:
        """Become the controller and tell every broker what there is, or follow the one that is.

        StorageError for a znode that makes no sense.
        """
        self._zookeeper.on_session(self._session_changed)
        await self._elect()

    async def run(self) -> None:
        """Serve what is asked and what happens, one after the other."""
        await self._queue.run()

    async def create_topics(
        self, topics: Sequence[CreatableTopic], *, validate_only: bool, charge: Charge = _nothing
    ) -> list[TopicInfo | KafkaError]:
        """One result for each, in order: the topic as it is now, or would be; or why not."""
        return await self._queue.in_turn(
            topics, partial(self._create_topics, topics, validate_only, charge)
        )

    async def delete_topics(
        self, names: Sequence[str], charge: Charge = _nothing
    ) -> list[KafkaError | None]:
        return await self._queue.in_turn(names, partial(self._delete_topics, names, charge))

    async def create_partitions(
        self,
        requests: Sequence[CreatablePartitions],
        *,
        validate_only: bool,
        charge: Charge = _nothing,
    ) -> list[KafkaError | None]:
        return await self._queue.in_turn(
            requests, partial(self._create_partitions, requests, validate_only, charge)
        )

    async def update_features(
        self, updates: Sequence[features.Update], *, validate_only: bool
    ) -> list[KafkaError | None]:
        """All of them or none; what is changed is in force when this returns."""
        return await self._queue.in_turn(
            updates, partial(self._update_features, updates, validate_only)
        )

    async def alter_partitions(
        self, broker: BrokerId, broker_epoch: int, changes: Sequence[IsrChange]
    ) -> list[LeaderAndIsr | KafkaError]:
        """Who is in sync, as the leader `broker` proposes it: each partition's state from now on,
        or why it was refused.  NOT_CONTROLLER, STALE_BROKER_EPOCH for all of them."""

        async def run() -> list[LeaderAndIsr | KafkaError]:
            return await self._alter_partitions(broker, broker_epoch, changes)

        decided = await self._queue.in_turn(changes, run)
        if decided and isinstance(decided[0], KafkaError) and decided[0].code in FOR_ALL:
            raise decided[0]
        return decided

    async def _create_topics(
        self, requests: Sequence[CreatableTopic], validate_only: bool, charge: Charge
    ) -> list[TopicInfo | KafkaError]:
        partitions = sum(rules.requested_partitions(r, self._config()) for r in requests)
        refused = rules.refused([r.name for r in requests], partitions)
        racks = self._context.racks
        names = set(self._context.topics)
        files = rules.FilesLeft(self._id, self._disk.files_left())

        def plan(request: CreatableTopic) -> TopicInfo:
            topic = rules.create(
                request,
                names,
                racks,
                self._config(),
                topic_id=self._new_topic_id(),
                start=self._random.randrange(max(len(racks), 1)),
                shift=self._random.randrange(max(len(racks), 1)),
            )
            files.take(topic.name, topic.partitions)
            charge(len(topic.partitions))
            names.add(topic.name)
            return topic

        plans = [self._plan(refused, r.name, partial(plan, r)) for r in requests]
        if validate_only:
            return plans
        made = await self._apply(plans, self._znodes.create)
        batch = RequestBatch(self._context, self._id)
        for topic in made:
            if isinstance(topic, TopicInfo):
                self._context.topics[topic.name] = replace(topic, config=NO_OVERRIDES)
                self._configs.created(topic.name, topic.config)
                batch.leads(topic, topic.partitions, is_new=True)
        await self._tell_of_topics(batch)
        return made

    async def _delete_topics(self, names: Sequence[str], charge: Charge) -> list[KafkaError | None]:
        topics = self._context.topics
        refused = rules.refused(names)

        def plan(name: str) -> TopicInfo:
            topic = rules.delete(topics.get(name), self._config())
            charge(len(topic.partitions))
            return topic

        plans = [self._plan(refused, name, partial(plan, name)) for name in names]
        gone = await self._apply(plans, lambda topic: self._znodes.delete(topic.name))
        batch = RequestBatch(self._context, self._id)
        for topic in gone:
            if isinstance(topic, TopicInfo):
                del topics[topic.name]
                batch.deletes(topic)
        await self._tell_of_topics(batch)
        return [t if isinstance(t, KafkaError) else None for t in gone]

    async def _create_partitions(
        self, requests: Sequence[CreatablePartitions], validate_only: bool, charge: Charge
    ) -> list[KafkaError | None]:
        topics, racks = self._context.topics, self._context.racks
        added = sum(rules.added_partitions(r, topics.get(r.name)) for r in requests)
        refused = rules.refused([r.name for r in requests], added)
        files = rules.FilesLeft(self._id, self._disk.files_left())

        def plan(request: CreatablePartitions) -> TopicInfo:
            before = topics.get(request.name)
            topic = rules.grow(request, before, racks)
            added = rules.added_partitions(request, before)
            files.take(topic.name, topic.partitions[-added:])
            charge(added)
            return topic

        grown = [self._plan(refused, r.name, partial(plan, r)) for r in requests]
        if not validate_only:
            grown = await self._apply(grown, self._znodes.grow)
            batch = RequestBatch(self._context, self._id)
            for topic in grown:
                if isinstance(topic, TopicInfo):
                    first = len(topics[topic.name].partitions)
                    topics[topic.name] = topic
                    batch.leads(topic, topic.partitions[first:], is_new=True)
            await self._tell_of_topics(batch)
        return [t if isinstance(t, KafkaError) else None for t in grown]

    async def _update_features(
        self, updates: Sequence[features.Update], validate_only: bool
    ) -> list[KafkaError | None]:
        before = self._configs.features
        levels, errors = features.plan(updates, before.levels, self._id)
        if not self._claimed:
            return [not_controller() for _ in updates]
        if validate_only or any(errors) or levels == before.levels:
            return errors

        async def write(levels: Mapping[str, int]) -> None:
            data = znodes.encode_features(levels)
            await self._store.write([SetData(znodes.FEATURES, data, before.epoch)])

        (written,) = await self._apply([levels], write)
        if isinstance(written, KafkaError):
            return [written for _ in updates]
        log.info("features: %s", levels or "none")
        after = Features(MappingProxyType(levels), before.epoch + 1)
        self._configs.features_changed(after)
        return errors

    async def _alter_partitions(
        self, broker: BrokerId, broker_epoch: int, changes: Sequence[IsrChange]
    ) -> list[LeaderAndIsr | KafkaError]:
        if not self._claimed:
            return [not_controller() for _ in changes]
        context = self._context
        live = context.brokers.get(broker)
        if live is None or live.epoch != broker_epoch:
            return [KafkaError(ErrorCode.stale_broker_epoch) for _ in changes]
        by_id = {topic.id: topic for topic in context.topics.values()}
        batch = RequestBatch(context, self._id)
        decided: list[LeaderAndIsr | KafkaError] = []
        for change in changes:
            topic = by_id.get(change.topic_id)
            state = self._plan({}, "", partial(judge, change, broker, topic, context))
            decided.append(state)
            if isinstance(state, KafkaError) or topic is None:
                continue
            now = topic.partitions[change.partition]
            if state.partition_epoch == now.partition_epoch:
                continue
            path = znodes.state_path(topic.name, change.partition)
            write = SetData(path, znodes.encode_state(state), now.partition_epoch)
            error = await refusal(self._store.write([write]))
            if error is not None:
                decided[-1] = error
                continue
            info = rules.info_of(change.partition, now.replicas, state)
            self._context.set_partitions(topic.name, [info])
            by_id[change.topic_id] = context.topics[topic.name]
            batch.tells(context.topics[topic.name], [info])
        await self._tell_of_topics(batch)
        return decided

    def _plan(
        self, refused: Mapping[str, KafkaError], name: str, plan: Callable[[], T]
    ) -> T | KafkaError:
        if not self._claimed:
            return not_controller()
        if name in refused:
            return refused[name]
        try:
            return plan()
        except KafkaError as error:
            return error

    async def _apply(
        self, plans: Sequence[T | KafkaError], write: Callable[[T], Awaitable[None]]
    ) -> list[T | KafkaError]:
        """The plans that were written, and why the others were not."""

        async def apply(plan: T | KafkaError) -> T | KafkaError:
            return plan if isinstance(plan, KafkaError) else await refusal(write(plan)) or plan

        return await together([partial(apply, plan) for plan in plans])

    async def tell_all(self) -> None:
        """Every broker learns all that there is for it."""
        await self._tell(self._everything(), self._context.brokers, full=True)

    def _everything(self) -> RequestBatch:
        batch = RequestBatch(self._context, self._id)
        for topic in self._context.topics.values():
            batch.leads(topic, topic.partitions)
        return batch

    async def _tell_of_topics(self, batch: RequestBatch) -> None:
        if batch.has_topics:
            await self._tell(batch, self._context.brokers)

    async def _tell(
        self, batch: RequestBatch, brokers: Collection[BrokerId], *, full: bool = False
    ) -> None:
        listener = self._config().inter_broker_listener
        for broker in brokers:
            # Who has lost the claim meanwhile leaves the others to the next controller.
            if broker != self._id and self._claimed:
                channel = self._channel(broker, listener)
                for request in batch.requests(broker, listener, full=full):
                    channel.send(request)
        if self._id in brokers:
            for request in batch.requests(self._id, listener, full=full):
                await self._publish(request)

    def _channel(self, broker: BrokerId, listener: str) -> BrokerChannel:
        live = self._context.brokers[broker]
        channel = self._channels.get(broker)
        if channel is None or channel.broker != live:
            if channel is not None:
                self.senders.stop(channel)
            options = PeerOptions(client_id=str(self._id))
            channel = self._channels[broker] = BrokerChannel(live, listener, options)
            self.senders.start(channel)
        return channel

    # Brokers that come and go

    def _brokers_changed(self, _event: WatchEvent) -> None:
        self._queue.put(self._take_note_of_brokers)

    async def _take_note_of_brokers(self) -> None:
        if not self._claimed:
            return
        before = self._context.brokers
        try:
            await until_connected(self._load_brokers)
            now = self._context.brokers
            if now == before:
                return
            came = {
                id_ for id_, b in now.items() if id_ not in before or before[id_].epoch != b.epoch
            }
            gone = before.keys() - now.keys()
            for broker in gone & self._channels.keys():
                self.senders.stop(self._channels.pop(broker))
            log.info("brokers: %s came, %s went", sorted(came) or "none", sorted(gone) or "none")
            changed = await self._reconsider(came | gone, came)
        except (SessionExpired, BadVersion):
            return  # whoever is the controller next reads it all
        batch = RequestBatch(self._context, self._id)
        for topic, partitions in changed:
            batch.leads(topic, partitions)
        await self._tell(batch, now.keys() - came)
        if came:
            await self._tell(self._everything(), came, full=True)

    async def _reconsider(
        self, touched: Collection[BrokerId], returned: Collection[BrokerId]
    ) -> list[tuple[TopicInfo, list[PartitionInfo]]]:
        """Who leads the partitions for which these brokers may matter; those that changed."""
        context = self._context
        changed: list[tuple[TopicInfo, list[PartitionInfo]]] = []
        ops: list[Op] = []
        for topic in context.topics.values():
            partitions = []
            for p in topic.partitions:
                if not any(replica in touched for replica in p.replicas):
                    continue
                last = state_of(p, context.epoch)
                is_unled = p.leader == NO_BROKER or p.leader in touched
                unclean = is_unled and await self._may_elect_uncleanly(topic.name)
                state = next_state(
                    p.replicas, last, context.brokers, returned, context.epoch, unclean=unclean
                )
                if state is not None:
                    path = znodes.state_path(topic.name, p.partition)
                    ops.append(SetData(path, znodes.encode_state(state), p.partition_epoch))
                    partitions.append(rules.info_of(p.partition, p.replicas, state))
            if partitions:
                changed.append((topic, partitions))
        await self._store.write(ops)
        for topic, partitions in changed:
            context.set_partitions(topic.name, partitions)
        return changed

    # Who is the controller

    def _session_changed(self, event: SessionEvent) -> None:
        if event is SessionEvent.EXPIRED:
            self._resign()
        elif event is SessionEvent.CONNECTED:
            # The watches are lost.
            self._queue.put(self._elect)
            self._queue.put(self._take_note_of_brokers)

    def _resign(self) -> None:
        if self._claimed:
            log.info("no longer the controller of the cluster")
        self._claimed = False
        for broker in list(self._channels):
            self.senders.stop(self._channels.pop(broker))

    async def _elect(self) -> None:
        try:
            await self._registered()
            if self._claimed:
                if await self._claim.is_held():
                    return
                self._resign()
            if not await self._claim.attempt():
                return
            self._context.epoch = self._store.epoch
            await until_connected(self._load)
            if self._zookeeper.session_id != self._store.session:
                return  # the new session tries again
            self._claimed = True
            log.info("controller of the cluster in epoch %d", self._context.epoch)
            await self.tell_all()
        except (SessionExpired, BadVersion):
            pass  # the next session tries again, or the next change of /controller

    async def _load(self) -> None:
        """Finish what was begun before, and have whatever can be led be led."""
        await self._load_brokers()
        if self._id not in self._context.brokers:
            # The session is another one since; what it brings is waiting in the queue.
            raise SessionExpired(znodes.broker_path(self._id))
        for name in await self._zookeeper.children(znodes.DELETE_TOPICS):
            await self._znodes.remove(name)
        names = await self._zookeeper.children(znodes.TOPICS)
        restored = await together([partial(self._restore, name) for name in names])
        changes: list[Op] = []
        for _, ops in restored:
            for op in ops:
                if isinstance(op, Create):
                    # A partition that was never led: its parents may be missing as well.
                    data = op.data or b""
                    await self._zookeeper.create(op.path, data, make_parents=True)
                else:
                    changes.append(op)
        await self._store.write(changes)
        self._context.topics = {topic.name: topic for topic, _ in restored}
        if await self._store.find(znodes.FEATURES) is None:
            await self._finalize_newest()

    async def _finalize_newest(self) -> None:
        """Those of a new cluster."""
        await self._zookeeper.create(znodes.FEATURES, znodes.encode_features(features.NEWEST))
        self._configs.features_changed(Features(MappingProxyType(features.NEWEST), 0))

    async def _load_brokers(self) -> None:
        watch = self._brokers_changed
        ids = await self._zookeeper.children(znodes.BROKER_IDS, watch)

        async def read(id_: str) -> tuple[bytes, Stat] | None:
            try:
                return await self._zookeeper.get(f"{znodes.BROKER_IDS}/{id_}", watch)
            except NoNode:
                return None  # and the first watch tells of it

        found = await together([partial(read, id_) for id_ in ids])
        self._context.brokers = {
            int(id_): live_broker(znodes.decode_broker(int(id_), znode[0]), znode[1].czxid)
            for id_, znode in zip(ids, found, strict=True)
            if znode is not None
        }

    async def _restore(self, name: str) -> tuple[TopicInfo, list[Op]]:
        data, stat = await self._zookeeper.get(znodes.topic_path(name))
        assignment = znodes.decode_topic(name, data)
        ops: list[Op] = []
        if assignment.topic_id is None:
            assignment = replace(assignment, topic_id=self._new_topic_id())
            data = znodes.encode_topic(assignment)
            ops.append(SetData(znodes.topic_path(name), data, stat.version))
        paths = [partial(self._store.find, znodes.state_path(name, p)) for p in assignment.replicas]
        found = dict(zip(assignment.replicas, await together(paths), strict=True))
        states = {
            p: znodes.decode_state(name, p, state[0], state[1].version)
            for p, state in found.items()
            if state is not None
        }
        unclean = await self._may_elect_uncleanly(name)
        brokers = self._context.brokers

        def state(replicas: Sequence[BrokerId], partition: int) -> LeaderAndIsr | None:
            znode = found[partition]
            return next_state(
                replicas,
                states.get(partition),
                brokers,
                returned_since(brokers, znode[1].mzxid) if znode else (),
                self._context.epoch,
                unclean=unclean,
            )

        topic, writes = rules.restore(name, assignment, states, state)
        return topic, ops + writes

    async def _may_elect_uncleanly(self, topic: str) -> bool:
        await self._configs.learn([topic])
        config = TopicConfig.stored(self._configs.topics[topic], self._config())
        return config.unclean_leader_election_enable

    def _new_topic_id(self) -> UUID:
        while True:
            topic_id = UUID(int=self._random.getrandbits(128), version=4)
            # As an argument of a command it must not look like an option.
            if not znodes.uuid_to_text(topic_id).startswith("-"):
                return topic_id
