"""The controller: makes, grows and deletes topics, decides who leads their partitions, keeps
configurations, quotas and features.

Here it serves a broker that is alone and its own controller.  What to do is planned in `topics`,
`configs`, `quotas` and `features`; this module reads and writes the znodes, through `claimed_store`
and `stored`, one operation at a time (`run`), and tells the broker.

    claimed   /controller is this session's, /controller_epoch was raised: operations are served
    lost      the session expired: they are refused with NOT_CONTROLLER until it is claimed again

Every write is conditional on the version of /controller_epoch, so a controller that was replaced
without knowing it writes nothing.  A topic is made in one atomic write, and only when that would
grow beyond what ZooKeeper takes at once in several: the first of them decides, and a start
completes the rest.  A deletion is first noted under /admin/delete_topics, and a start completes it.
(Kafka: KafkaController, TopicDeletionManager, PartitionStateMachine.)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar
from uuid import UUID

from kserver import znodes
from kserver.config.broker import BrokerConfig
from kserver.config.topic import TopicConfig
from kserver.controller import configs, features, quotas, stored
from kserver.controller import topics as rules
from kserver.controller.claimed_store import ClaimedStore, together
from kserver.controller.topics import CreatablePartitions, CreatableTopic
from kserver.errors import ConfigError, ErrorCode, KafkaError, StorageError
from kserver.metadata import ClusterMetadata, Features, MetadataCache, TopicInfo
from kserver.model import BrokerId
from kserver.world import World
from kserver.world.session import claim, until_connected
from kserver.world.zookeeper import (
    BadVersion,
    Create,
    Delete,
    NodeExists,
    Op,
    SessionEvent,
    SessionExpired,
    SetData,
    ZooKeeperError,
)

log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_WAITING_OPERATIONS = 1000
KEPT_NOTES = 100
"""So many notes of changed configurations are kept; by then every broker has read the others."""


Charge: TypeAlias = Callable[[int], None]
"""Told how many partitions each item is about to change; raises KafkaError to refuse it."""


OnChange: TypeAlias = Callable[[ClusterMetadata, Collection[str] | None], None]


def _nothing(_partitions: int) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Operation:
    """Something to do in its turn, and who waits for it."""

    run: Callable[[], Awaitable[Any]]
    answer: asyncio.Future[Any]


class Controller:
    """`metadata` holds the cluster's id and this broker when `start` is called, which adds the
    topics; each later change is put there, and then `on_change` is told, before it is answered: the
    image, and in which topics it differs from the one before, None where that may be in any."""

    def __init__(
        self,
        world: World,
        metadata: MetadataCache,
        config: Callable[[], BrokerConfig],
        broker_id: BrokerId,
        on_change: OnChange,
    ) -> None:
        self._zookeeper = world.zookeeper
        self._clock = world.clock
        self._random = world.random
        self._disk = world.disk
        self._metadata = metadata
        self._static = config()
        self._config = config
        self._id = broker_id
        self._on_change = on_change
        self._epoch = 0
        self._store = ClaimedStore(world.zookeeper)
        self._claimed = False
        self._expired = False
        self._stopped = False
        # `_in_turn` keeps it within MAX_WAITING_OPERATIONS.
        self._operations: asyncio.Queue[Operation] = asyncio.Queue()

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller, as far as it knows."""
        return self._claimed

    async def start(self) -> None:
        """Become the controller and read the cluster into `metadata`, without telling `on_change`.

        ConfigError when another broker is the controller and stays it; StorageError for a znode
        that makes no sense.
        """
        self._zookeeper.on_session(self._session_changed)
        await self._take_over()

    async def run(self) -> None:
        """Serve operations, one after the other; whoever waits when this is cancelled is too."""
        try:
            while True:
                await self._serve(await self._operations.get())
        finally:
            self._stopped = True
            while not self._operations.empty():
                self._operations.get_nowait().answer.cancel()

    async def create_topics(
        self, topics: Sequence[CreatableTopic], *, validate_only: bool, charge: Charge = _nothing
    ) -> list[TopicInfo | KafkaError]:
        """One result for each, in order: the topic as it is now, or would be; or why not."""
        return await self._in_turn(
            topics, partial(self._create_topics, topics, validate_only, charge)
        )

    async def delete_topics(
        self, names: Sequence[str], charge: Charge = _nothing
    ) -> list[KafkaError | None]:
        return await self._in_turn(names, partial(self._delete_topics, names, charge))

    async def create_partitions(
        self,
        requests: Sequence[CreatablePartitions],
        *,
        validate_only: bool,
        charge: Charge = _nothing,
    ) -> list[KafkaError | None]:
        return await self._in_turn(
            requests, partial(self._create_partitions, requests, validate_only, charge)
        )

    async def alter_quotas(
        self, alterations: Sequence[quotas.Alteration], *, validate_only: bool
    ) -> list[KafkaError | None]:
        return await self._in_turn(
            alterations, partial(self._alter_quotas, alterations, validate_only)
        )

    async def alter_configs(
        self, changes: Sequence[configs.Change], *, validate_only: bool
    ) -> list[KafkaError | None]:
        """What is changed is in force when this returns."""
        return await self._in_turn(changes, partial(self._alter_configs, changes, validate_only))

    async def update_features(
        self, updates: Sequence[features.Update], *, validate_only: bool
    ) -> list[KafkaError | None]:
        """All of them or none; what is changed is in force when this returns."""
        return await self._in_turn(updates, partial(self._update_features, updates, validate_only))

    async def _in_turn(
        self, items: Sequence[object], run: Callable[[], Awaitable[list[T | KafkaError]]]
    ) -> list[T | KafkaError]:
        if self._stopped:
            return [_not_controller() for _ in items]
        if self._operations.qsize() >= MAX_WAITING_OPERATIONS:
            text = f"{MAX_WAITING_OPERATIONS} operations are waiting for the controller."
            return [KafkaError(ErrorCode.request_timed_out, text) for _ in items]
        answer: asyncio.Future[list[T | KafkaError]] = asyncio.get_running_loop().create_future()
        self._operations.put_nowait(Operation(run, answer))
        return await answer

    async def _serve(self, operation: Operation) -> None:
        if operation.answer.done():
            return  # who asked has gone
        try:
            result = await operation.run()
            if not operation.answer.done():
                operation.answer.set_result(result)
        finally:
            operation.answer.cancel()

    async def _create_topics(
        self, requests: Sequence[CreatableTopic], validate_only: bool, charge: Charge
    ) -> list[TopicInfo | KafkaError]:
        image = self._metadata.current
        partitions = sum(rules.requested_partitions(r, self._config()) for r in requests)
        refused = rules.refused([r.name for r in requests], partitions)
        racks = {broker.id: broker.rack for broker in image.brokers.values()}
        names = set(image.topics)
        files = rules.FilesLeft(self._id, self._disk.files_left())

        def plan(request: CreatableTopic) -> TopicInfo:
            topic = rules.create(
                request,
                names,
                racks,
                self._config(),
                topic_id=self._new_topic_id(),
                start=self._random.randrange(len(racks)),
                shift=self._random.randrange(len(racks)),
            )
            files.take(topic.name, topic.partitions)
            charge(len(topic.partitions))
            names.add(topic.name)
            return topic

        plans = [self._plan(refused, r.name, partial(plan, r)) for r in requests]
        if validate_only:
            return plans
        made = await self._apply(plans, self._write_topic)
        self._publish([topic for topic in made if isinstance(topic, TopicInfo)])
        return made

    async def _delete_topics(self, names: Sequence[str], charge: Charge) -> list[KafkaError | None]:
        topics = self._metadata.current.topics
        refused = rules.refused(names)

        def plan(name: str) -> TopicInfo:
            topic = rules.delete(topics.get(name), self._config())
            charge(len(topic.partitions))
            return topic

        plans = [self._plan(refused, name, partial(plan, name)) for name in names]
        gone = await self._apply(plans, self._write_deletion)
        self._publish([], frozenset(t.name for t in gone if isinstance(t, TopicInfo)))
        return [t if isinstance(t, KafkaError) else None for t in gone]

    async def _create_partitions(
        self, requests: Sequence[CreatablePartitions], validate_only: bool, charge: Charge
    ) -> list[KafkaError | None]:
        image = self._metadata.current
        added = sum(rules.added_partitions(r, image.topics.get(r.name)) for r in requests)
        refused = rules.refused([r.name for r in requests], added)
        racks = {broker.id: broker.rack for broker in image.brokers.values()}
        files = rules.FilesLeft(self._id, self._disk.files_left())

        def plan(request: CreatablePartitions) -> TopicInfo:
            before = image.topics.get(request.name)
            topic = rules.grow(request, before, racks)
            added = rules.added_partitions(request, before)
            files.take(topic.name, topic.partitions[-added:])
            charge(added)
            return topic

        grown = [self._plan(refused, r.name, partial(plan, r)) for r in requests]
        if not validate_only:
            grown = await self._apply(grown, self._write_growth)
            self._publish([topic for topic in grown if isinstance(topic, TopicInfo)])
        return [t if isinstance(t, KafkaError) else None for t in grown]

    async def _alter_quotas(
        self, alterations: Sequence[quotas.Alteration], validate_only: bool
    ) -> list[KafkaError | None]:
        twice = quotas.named_twice(alterations)
        plans = [
            self._plan({}, "", partial(quotas.plan, alteration, twice))
            for alteration in alterations
        ]
        if validate_only:
            return [plan if isinstance(plan, KafkaError) else None for plan in plans]
        bounds = dict(self._metadata.current.quotas)

        async def write(plan: quotas.QuotaPlan) -> None:
            overrides = await self._write_overrides(
                *znodes.quota_entity_name(plan.entity), plan.changes
            )
            bounds[plan.entity] = quotas.bounds(overrides)
            log.info("quotas of %s: %s", plan.entity, bounds[plan.entity] or "none")

        # One after the other: two may need the same parent.
        done = [(await self._apply([plan], write))[0] for plan in plans]
        self._announce(replace(self._metadata.current, quotas=quotas.held(bounds)))
        return [plan if isinstance(plan, KafkaError) else None for plan in done]

    async def _alter_configs(
        self, changes: Sequence[configs.Change], validate_only: bool
    ) -> list[KafkaError | None]:
        def planned(change: configs.Change) -> configs.ConfigPlan:
            image = self._metadata.current
            return configs.plan(change, image, self._id, self._static, self._config())

        done: list[KafkaError | None] = []
        # One after the other: a broker's own settings are judged upon those of the cluster.
        for change, error in zip(changes, configs.refused(changes), strict=True):
            if error is None:
                plan = self._plan({}, change.name, partial(planned, change))
                if not validate_only:
                    (plan,) = await self._apply([plan], self._write_config)
                if isinstance(plan, KafkaError):
                    error = plan
                elif not validate_only:
                    self._publish_config(plan)
            done.append(error)
        return done

    async def _update_features(
        self, updates: Sequence[features.Update], validate_only: bool
    ) -> list[KafkaError | None]:
        before = self._metadata.current.features
        levels, errors = features.plan(updates, before.levels, self._id)
        if not self._claimed:
            return [_not_controller() for _ in updates]
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
        self._announce(replace(self._metadata.current, features=after))
        return errors

    async def _write_config(self, plan: configs.ConfigPlan) -> None:
        if plan.overrides == plan.was:
            return
        path = znodes.config_path(*plan.entity)
        data = znodes.encode_config(plan.overrides)
        there = await until_connected(partial(self._zookeeper.exists, path))
        notes = await until_connected(partial(self._zookeeper.children, znodes.CONFIG_CHANGES))
        note = znodes.encode_config_change(*plan.entity)
        await self._store.write(
            [
                SetData(path, data) if there else Create(path, data),
                Create(znodes.CONFIG_CHANGE_PREFIX, note, sequence=True),
                *(Delete(f"{znodes.CONFIG_CHANGES}/{n}") for n in notes[:-KEPT_NOTES]),
            ]
        )
        changed = sorted(dict(plan.overrides.items() ^ plan.was.items()))
        log.info("config of %s changed: %s", "/".join(plan.entity), ", ".join(changed))

    def _publish_config(self, plan: configs.ConfigPlan) -> None:
        image = self._metadata.current
        if plan.overrides == plan.was:
            return
        if plan.kind is configs.ResourceType.TOPIC:
            self._publish([replace(image.topics[plan.name], config=plan.overrides)])
        elif plan.kind is configs.ResourceType.GROUP:
            self._announce(image.with_group_config(plan.name, plan.overrides))
        else:
            self._announce(image.with_broker_config(plan.broker, plan.overrides))

    async def _write_overrides(
        self, entity_type: str, name: str, changes: Mapping[str, str | None]
    ) -> Mapping[str, str]:
        """Change what an entity overrides; returns it as it is now."""
        path = znodes.config_path(entity_type, name)
        found = await until_connected(partial(self._store.find, path))
        before = znodes.decode_config(entity_type, name, found[0] if found else b"")
        after = {k: v for k, v in (before | dict(changes)).items() if v is not None}
        data = znodes.encode_config(after)
        if found is not None:
            await self._store.write([SetData(path, data, found[1].version)])
        elif after:
            missing = [
                Create(parent)
                for parent in znodes.parents_of(path)
                if await until_connected(partial(self._zookeeper.exists, parent)) is None
            ]
            await self._store.write([*missing, Create(path, data)])
        return after

    def _plan(
        self, refused: Mapping[str, KafkaError], name: str, plan: Callable[[], T]
    ) -> T | KafkaError:
        if not self._claimed:
            return _not_controller()
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
            if isinstance(plan, KafkaError):
                return plan
            try:
                await write(plan)
            except KafkaError as error:
                return error
            except StorageError as error:
                return KafkaError(ErrorCode.kafka_storage_error, str(error))
            except (BadVersion, SessionExpired):
                return _not_controller()
            except ZooKeeperError as error:
                log.warning("%s: written by somebody else than the controller", error)
                return KafkaError(ErrorCode.unknown_server_error, str(error))
            return plan

        return await together([partial(apply, plan) for plan in plans])

    async def _write_topic(self, topic: TopicInfo) -> None:
        config_path = znodes.config_path(znodes.TOPIC_CONFIGS, topic.name)
        old_config = await until_connected(partial(self._zookeeper.exists, config_path))
        try:
            await self._store.write(
                rules.writes_to_create(topic, self._epoch, has_config_znode=old_config is not None)
            )
        except NodeExists as error:
            text = f"Topic '{topic.name}' already exists."
            raise KafkaError(ErrorCode.topic_already_exists, text) from error
        log.info("created topic %s with %d partition(s)", topic.name, len(topic.partitions))

    async def _write_growth(self, topic: TopicInfo) -> None:
        path = znodes.topic_path(topic.name)
        data, stat = await until_connected(partial(self._zookeeper.get, path))
        old = znodes.decode_topic(topic.name, data)
        await self._store.write(rules.writes_to_grow(topic, old, stat.version, self._epoch))
        log.info("grew topic %s to %d partition(s)", topic.name, len(topic.partitions))

    async def _write_deletion(self, topic: TopicInfo) -> None:
        try:
            await self._store.write([Create(znodes.delete_topic_path(topic.name))])
        except NodeExists:
            pass  # noted already, by an old tool
        await until_connected(partial(self._remove, topic.name))

    async def _remove(self, topic: str) -> None:
        """Everything of a topic that is noted for deletion, the note last."""
        level, paths = [znodes.topic_path(topic)], [znodes.delete_topic_path(topic)]
        config_path = znodes.config_path(znodes.TOPIC_CONFIGS, topic)
        if await self._zookeeper.exists(config_path):
            paths.append(config_path)
        while level:
            names = await together([partial(self._store.children, path) for path in level])
            below = [(p, n) for p, n in zip(level, names, strict=True) if n is not None]
            paths += [path for path, _ in below]
            level = [f"{path}/{name}" for path, names in below for name in names]
        await self._store.write([Delete(path) for path in reversed(paths)])
        log.info("deleted topic %s", topic)

    def _publish(self, changed: Sequence[TopicInfo], deleted: frozenset[str] = frozenset()) -> None:
        if changed or deleted:
            topics = {topic.name: topic for topic in changed}
            image = self._metadata.current.with_topics(topics, deleted)
            self._announce(image, topics.keys() | deleted)

    def _announce(self, image: ClusterMetadata, topics: Collection[str] = ()) -> None:
        self._metadata.update(image)
        self._on_change(image, topics)

    def _session_changed(self, event: SessionEvent) -> None:
        if event is SessionEvent.EXPIRED:
            self._claimed = False
            self._expired = True
        elif event is SessionEvent.CONNECTED and self._expired:
            self._expired = False
            answer = asyncio.get_running_loop().create_future()
            self._operations.put_nowait(Operation(self._take_over_again, answer))

    async def _take_over_again(self) -> None:
        try:
            await self._take_over()
        except SessionExpired:
            return  # the next session tries again
        self._on_change(self._metadata.current, None)

    async def _take_over(self) -> None:
        self._store.session = self._zookeeper.session_id
        timeout_ms = self._config().zookeeper_session_timeout_ms
        try:
            await claim(self._zookeeper, znodes.CONTROLLER, self._try_to_claim, timeout_ms)
        except NodeExists as error:
            data, _ = await until_connected(partial(self._zookeeper.get, znodes.CONTROLLER))
            raise ConfigError(
                f"zookeeper.connect: broker {znodes.decode_controller(data)} is the controller of "
                f"that cluster (znode {znodes.CONTROLLER}), and this broker can only serve alone: "
                "stop that one, or name another chroot (host:port/path)"
            ) from error
        data, stat = await until_connected(partial(self._zookeeper.get, znodes.CONTROLLER_EPOCH))
        self._epoch = znodes.decode_controller_epoch(data)
        self._store.epoch_version = stat.version
        await until_connected(self._load)
        if self._zookeeper.session_id != self._store.session:
            raise SessionExpired(znodes.CONTROLLER)
        self._claimed = True
        log.info("controller of the cluster in epoch %d", self._epoch)

    async def _try_to_claim(self) -> None:
        found = await self._store.find(znodes.CONTROLLER_EPOCH)
        if found is None:
            await self._zookeeper.create(znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(0))
            epoch, version = 0, 0
        else:
            epoch, version = znodes.decode_controller_epoch(found[0]), found[1].version
        controller = znodes.encode_controller(self._id, self._clock.now_ms())
        await self._zookeeper.multi(
            [
                Create(znodes.CONTROLLER, controller, ephemeral=True),
                SetData(
                    znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(epoch + 1), version
                ),
            ]
        )

    async def _load(self) -> None:
        """Finish what was begun before, lead whatever can be led, and put it all in `metadata`."""
        for name in await self._zookeeper.children(znodes.DELETE_TOPICS):
            await self._remove(name)
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
        image = replace(
            self._metadata.current,
            controller=self._id,
            quotas=await stored.read_quotas(self._store),
            broker_configs=await stored.read_broker_configs(self._store, [self._id]),
            group_configs=await stored.read_group_configs(self._store),
            features=await stored.read_features(self._store) or await self._finalize_newest(),
            topics=MappingProxyType({}),
            topic_names=MappingProxyType({}),
        )
        self._metadata.update(image.with_topics({topic.name: topic for topic, _ in restored}))

    async def _finalize_newest(self) -> Features:
        """Those of a new cluster."""
        await self._zookeeper.create(znodes.FEATURES, znodes.encode_features(features.NEWEST))
        return Features(features.NEWEST, 0)

    async def _restore(self, name: str) -> tuple[TopicInfo, list[Op]]:
        data, stat = await self._zookeeper.get(znodes.topic_path(name))
        assignment = znodes.decode_topic(name, data)
        ops: list[Op] = []
        if assignment.topic_id is None:
            assignment = replace(assignment, topic_id=self._new_topic_id())
            data = znodes.encode_topic(assignment)
            ops.append(SetData(znodes.topic_path(name), data, stat.version))
        config = await self._store.find(znodes.config_path(znodes.TOPIC_CONFIGS, name))
        paths = [partial(self._store.find, znodes.state_path(name, p)) for p in assignment.replicas]
        found = zip(assignment.replicas, await together(paths), strict=True)
        states = {
            p: znodes.decode_state(name, p, state[0], state[1].version)
            for p, state in found
            if state is not None
        }
        overrides = znodes.decode_config(znodes.TOPIC_CONFIGS, name, config[0] if config else b"")
        topic, writes = rules.restore(
            name,
            assignment,
            overrides,
            states,
            self._id,
            self._epoch,
            unclean=TopicConfig.stored(overrides, self._config()).unclean_leader_election_enable,
        )
        return topic, ops + writes

    def _new_topic_id(self) -> UUID:
        while True:
            topic_id = UUID(int=self._random.getrandbits(128), version=4)
            # As an argument of a command it must not look like an option.
            if not znodes.uuid_to_text(topic_id).startswith("-"):
                return topic_id


def _not_controller() -> KafkaError:
    text = "This is not the correct controller for this cluster."
    return KafkaError(ErrorCode.not_controller, text)
