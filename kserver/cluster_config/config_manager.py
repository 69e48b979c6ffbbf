"""ConfigManager: the contents of /config, read at the start, and changed by this broker or others.

    load      all of it is read: configs of topics, brokers and groups, quotas, features
    alter     planned from the znode's present data, written if that is unchanged, noted under
              /config/changes, and in effect here before the response
    a note    another broker, or an old tool, has changed an entity: it is read again

Any broker may change any of it, not only the controller.  A missed note, for example while this
broker was disconnected, is detected by a gap in the numbers; then everything is read again.  An
unreadable entity keeps its last known value, and is read again once it changes.

(Kafka: ZkAdminManager, ZkConfigManager, ZkNodeChangeNotificationListener.)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from uuid import UUID

from kserver import znodes
from kserver.cluster_config import configs, quotas, stored
from kserver.cluster_config.configs import ResourceType
from kserver.cluster_config.entity_names import quota_entity, quota_entity_name, unsanitized
from kserver.cluster_config.unreadable import UnreadableZnodes
from kserver.cluster_config.znode_store import ZnodeStore, error_of, gather, make_persistent
from kserver.config.broker import BrokerConfig
from kserver.errors import ErrorCode, KafkaError, UnreadableZnode
from kserver.metadata import NO_ID, ClusterMetadata, Features, MetadataCache, TopicInfo
from kserver.model import NO_BROKER, BrokerId
from kserver.world.session import in_any_session, until_connected
from kserver.world.zookeeper import (
    BadVersion,
    Check,
    Create,
    Delete,
    NodeExists,
    NoNode,
    Op,
    SessionEvent,
    SessionExpired,
    SetData,
    Stat,
    WatchEvent,
    ZooKeeper,
    ZooKeeperError,
)

log = logging.getLogger(__name__)

KEPT_NOTES = 100
"""Number of notes that are kept when old ones are deleted, which is at twice this number; by then
every broker has read the deleted ones."""


class ConfigManager:
    """Updates `metadata`, and then calls `on_change` with the image and the topics whose configs
    changed."""

    def __init__(
        self,
        zookeeper: ZooKeeper,
        metadata: MetadataCache,
        config: Callable[[], BrokerConfig],
        broker_id: BrokerId,
        on_change: Callable[[ClusterMetadata, Collection[str]], None],
    ) -> None:
        self._zookeeper = zookeeper
        self._metadata = metadata
        self._static = config()
        self._config = config
        self._id = broker_id
        self._on_change = on_change
        self._store = ZnodeStore(zookeeper)
        self._unread: dict[tuple[str, str], UnreadableZnode] = {}
        """Unreadable entities, by type and name."""
        self.on_readable: Callable[[], None] = lambda: None
        """Called once a topic's configs become readable; until then this broker hosted none of its
        partitions."""
        self._turn = asyncio.Lock()
        """Held by changes and by the reading of notes, so that an older state never replaces a
        newer one."""
        self._due = asyncio.Event()
        self._unreadable = UnreadableZnodes(zookeeper, self._due.set)
        self._last_note = -1
        self.topics: dict[str, Mapping[str, str]] = {}
        """Config overrides by topic name, of topics that existed when they were read."""
        self._topic_ids: dict[str, UUID] = {}
        """Ids of the topics in `topics`, by name: a topic may have been deleted and recreated
        while this broker was down.  Zero if unknown: read again once the controller sends it."""

    @property
    def features(self) -> Features:
        return self._metadata.current.features

    async def load(self) -> None:
        """Read everything into `metadata`, without calling `on_change`."""
        self._zookeeper.on_session(self._session_changed)
        await until_connected(self._load)

    async def run(self) -> None:
        """Read the changes made by other brokers, until cancelled."""
        while True:
            await self._due.wait()
            self._due.clear()
            async with self._turn:
                try:
                    await until_connected(self._read_notes)
                except SessionExpired:
                    pass  # the next session sets it due again
                except NoNode as error:
                    log.error("%s was deleted by another client; creating it again", error)
                    await in_any_session(partial(make_persistent, self._zookeeper))
                    self._due.set()

    async def learn(self, topics: Mapping[str, UUID]) -> None:
        """Read the overrides of these topics, unless they are known.  An old controller sends no
        topic ids, so a zero matches any.  Unreadable topics are not in `topics` afterwards."""
        unknown = [
            name
            for name, id in topics.items()
            if name not in self.topics or (id.int and self._topic_ids.get(name) != id)
        ]
        if unknown:
            # The controller, which knows them, reads from another server.
            await self._store.sync()
        reads = [partial(in_any_session, partial(self._topic_overrides, n)) for n in unknown]
        for name, overrides in zip(unknown, await gather(reads), strict=True):
            self.topics.pop(name, None)
            if overrides is not None:
                self.topics[name] = overrides
        self._topic_ids |= {name: id for name, id in topics.items() if id.int}

    def overrides_of(self, topic: str) -> Mapping[str, str]:
        """Return the overrides of a topic passed to `learn`.  Raises UnreadableZnode."""
        if topic not in self.topics:
            raise self._unread[znodes.TOPIC_CONFIGS, topic]
        return self.topics[topic]

    def created(self, topic: TopicInfo) -> None:
        """Store the overrides of a topic that this broker has written."""
        self.topics[topic.name] = topic.config
        self._topic_ids[topic.name] = topic.id

    def forget(self, names: Collection[str]) -> None:
        """Forget deleted topics."""
        for name in names:
            self.topics.pop(name, None)
            self._topic_ids.pop(name, None)
            self._unread.pop((znodes.TOPIC_CONFIGS, name), None)

    async def alter_configs(
        self, changes: Sequence[configs.Change], *, validate_only: bool
    ) -> list[KafkaError | None]:
        """Change configs; return an error or None for each.  They are in effect when this
        returns."""
        refused = configs.refused(changes)

        async def alter(at: int) -> KafkaError | None:
            return refused[at] or await error_of(self._alter_config(changes[at], validate_only))

        # One after the other: a broker's own configs are validated with those of the cluster.
        return await self._in_turn([partial(alter, at) for at in range(len(changes))])

    async def alter_quotas(
        self, alterations: Sequence[quotas.Alteration], *, validate_only: bool
    ) -> list[KafkaError | None]:
        twice = quotas.named_twice(alterations)

        async def alter(alteration: quotas.Alteration) -> KafkaError | None:
            return await error_of(self._alter_quota(alteration, twice, validate_only))

        # One after the other: two may need the same parent znode.
        return await self._in_turn([partial(alter, alteration) for alteration in alterations])

    async def _in_turn(
        self, alterations: Sequence[Callable[[], Awaitable[KafkaError | None]]]
    ) -> list[KafkaError | None]:
        """Make the alterations, one after the other; return an error or None for each.

        They are given up after the time that a session lasts without ZooKeeper.  By then the client
        may have sent them to another broker, and altered the same again: what is altered late, by a
        broker that was cut off, would undo that.
        """
        done: list[KafkaError | None] = []
        try:
            async with asyncio.timeout(self._config().zookeeper_session_timeout_ms / 1000):
                async with self._turn:
                    for alter in alterations:
                        done.append(await alter())
        except TimeoutError:
            error = KafkaError(ErrorCode.request_timed_out, "ZooKeeper did not respond in time.")
            done += [error] * (len(alterations) - len(done))
        return done

    def features_changed(self, features: Features) -> None:
        self._announce(replace(self._metadata.current, features=features))

    # Altering

    async def _alter_config(self, change: configs.Change, validate_only: bool) -> None:
        while True:
            image = self._metadata.current
            plan = configs.plan(change, image, self._id, self._static, self._config())
            if validate_only:
                return
            with suppress(BadVersion, NodeExists):
                if await self._write(plan):
                    break
            # Another broker was faster: plan again from the new state.
            await in_any_session(partial(self._read_entity, *plan.entity))
        changed = sorted(dict(plan.overrides.items() ^ plan.was.items()))
        if not changed:
            return
        self._publish(plan)
        log.info("config of %s changed: %s", "/".join(plan.entity), ", ".join(changed))

    async def _write(self, plan: configs.ConfigPlan) -> bool:
        """Write the plan if it changes anything; return False if the entity has changed since it
        was made."""
        entity_type, name = plan.entity
        path = znodes.config_path(entity_type, name)
        if plan.overrides == plan.was:
            # No write would fail if what this broker knows is outdated.
            await self._store.sync()
        znode = await in_any_session(partial(self._store.find, path))
        if znodes.decode_config(entity_type, name, znode[0] if znode else b"") != dict(plan.was):
            return False
        if plan.overrides == plan.was:
            return True
        data = znodes.encode_config(plan.overrides)
        ops: list[Op] = [SetData(path, data, znode[1].version) if znode else Create(path, data)]
        if plan.kind is ResourceType.TOPIC:
            # Fails if the topic was just deleted, so that no config is left behind.
            ops.append(Check(znodes.topic_path(plan.name)))
        try:
            await self._store.write([*ops, _note(entity_type, name)])
        except NoNode as error:
            text = f"The topic '{plan.name}' does not exist."
            raise KafkaError(ErrorCode.unknown_topic_or_partition, text) from error
        await self._drop_old_notes()
        return True

    def _publish(self, plan: configs.ConfigPlan) -> None:
        image = self._metadata.current
        if plan.kind is ResourceType.TOPIC:
            self._publish_topic(plan.name, plan.overrides)
        elif plan.kind is ResourceType.GROUP:
            self._announce(image.with_group_config(plan.name, plan.overrides))
        else:
            self._announce(image.with_broker_config(plan.broker, plan.overrides))

    def _publish_topic(self, name: str, overrides: Mapping[str, str]) -> None:
        image = self._metadata.current
        self.topics[name] = overrides
        topic_info = image.topics.get(name)
        if topic_info is not None:
            changed = {name: replace(topic_info, config=overrides)}
            self._announce(image.with_topics(changed), changed.keys())

    async def _alter_quota(
        self,
        alteration: quotas.Alteration,
        twice: Collection[frozenset[tuple[str, str | None]]],
        validate_only: bool,
    ) -> None:
        plan = quotas.plan(alteration, twice)
        if validate_only:
            return
        entity_type, name = quota_entity_name(plan.entity)
        while True:
            with suppress(BadVersion, NodeExists):
                overrides = await self._write_overrides(entity_type, name, plan.changes)
                break
        self._publish_quotas(entity_type, name, overrides)
        log.info("quotas of %s: %s", plan.entity, quotas.bounds(overrides) or "none")

    async def _write_overrides(
        self, entity_type: str, name: str, changes: Mapping[str, str | None]
    ) -> Mapping[str, str]:
        """Change the overrides of an entity; return the new ones."""
        path = znodes.config_path(entity_type, name)
        znode = await in_any_session(partial(self._store.find, path))
        before = znodes.decode_config(entity_type, name, znode[0] if znode else b"")
        after = {k: v for k, v in (before | dict(changes)).items() if v is not None}
        data, note = znodes.encode_config(after), _note(entity_type, name)
        if znode is not None:
            await self._store.write([SetData(path, data, znode[1].version), note])
        elif after:
            missing = [
                Create(parent)
                for parent in znodes.parents_of(path)
                if await in_any_session(partial(self._zookeeper.exists, parent)) is None
            ]
            await self._store.write([*missing, Create(path, data), note])
        await self._drop_old_notes()
        return after

    def _publish_quotas(self, entity_type: str, name: str, overrides: Mapping[str, str]) -> None:
        bounds = dict(self._metadata.current.quotas)
        bounds[quota_entity(entity_type, name)] = quotas.bounds(overrides)
        self._announce(replace(self._metadata.current, quotas=quotas.without_empty(bounds)))

    async def _drop_old_notes(self) -> None:
        # Another broker may delete them at the same time, and a failure is made up for by the next
        # write.
        with suppress(ZooKeeperError):
            notes = await self._zookeeper.children(znodes.CONFIG_CHANGES)
            if len(notes) >= 2 * KEPT_NOTES:
                await self._zookeeper.multi(
                    [Delete(f"{znodes.CONFIG_CHANGES}/{note}") for note in notes[:-KEPT_NOTES]]
                )

    def _announce(self, image: ClusterMetadata, topics: Collection[str] = ()) -> None:
        self._metadata.update(image)
        self._on_change(image, topics)

    # Reading

    async def _load(self) -> None:
        # The notes first: a change during the other reads is then noted after them.
        notes = _numbers(await self._zookeeper.children(znodes.CONFIG_CHANGES, self._noted))
        store = self._store
        await self._load_topics()
        quotas = await stored.read_quotas(store, self._overrides)
        broker_configs = await stored.read_broker_configs(self._overrides, [self._id])
        group_configs = await stored.read_group_configs(store, self._overrides)
        features = await self._read_features()
        # The current image: the controller may have sent updates during each await.
        image = replace(
            self._metadata.current,
            quotas=quotas,
            broker_configs=broker_configs,
            group_configs=group_configs,
            features=features,
        )
        changed = {
            name: replace(topic, config=self.topics[name])
            for name, topic in image.topics.items()
            if name in self.topics and topic.config != self.topics[name]
        }
        self._metadata.update(image.with_topics(changed))
        self._last_note = max(notes, default=-1)

    async def _load_topics(self) -> None:
        ids = dict(self._topic_ids)
        names = await self._zookeeper.children(znodes.TOPICS)
        topics = await gather([partial(self._topic, name) for name in names])
        # What is known of topics that were created during the reads is newer.
        kept = {name for name, id in self._topic_ids.items() if ids.get(name) != id}
        kept |= {name for name, (_, o) in zip(names, topics, strict=True) if o is None}
        for name in self.topics.keys() - kept:
            del self.topics[name]
        for name, (id, overrides) in zip(names, topics, strict=True):
            if name not in kept and overrides is not None:
                self.topics[name] = overrides
                self._topic_ids[name] = id

    async def _topic(self, name: str) -> tuple[UUID, Mapping[str, str] | None]:
        """Return the id of a topic, zero if unknown, and its overrides, None if they are
        unreadable.  The id is read first: if the topic is recreated in between, `learn` reads
        again."""
        id = NO_ID
        with suppress(UnreadableZnode):  # the controller reports it
            if (znode := await self._store.find(znodes.topic_path(name))) is not None:
                id = znodes.decode_topic(name, znode[0]).topic_id or NO_ID
        return id, await self._topic_overrides(name)

    async def _read_features(self) -> Features:
        await self._zookeeper.exists(znodes.FEATURES, self._noted)
        try:
            return await stored.read_features(self._store) or Features()
        except UnreadableZnode as error:
            await self._unreadable.leave_out(error, "features keep their previous values")
            return self.features

    async def _topic_overrides(self, name: str) -> Mapping[str, str] | None:
        """Return the overrides of a topic; None if they are unreadable."""
        entry = await self._find(znodes.TOPIC_CONFIGS, name)
        return None if entry is None else entry[0]

    async def _overrides(self, entity_type: str, name: str) -> Mapping[str, str] | None:
        """Return the overrides of an entity, or the last known ones if unreadable; None if it does
        not exist."""
        entry = await self._find(entity_type, name)
        if entry is None:
            return self._current_overrides(entity_type, name)
        return None if entry[1] is None else entry[0]

    def _current_overrides(self, entity_type: str, name: str) -> Mapping[str, str] | None:
        image = self._metadata.current
        if entity_type == znodes.GROUP_CONFIGS:
            return image.group_configs.get(unsanitized(name))
        if entity_type == znodes.BROKER_CONFIGS:
            broker = NO_BROKER if name == znodes.DEFAULT_ENTITY else int(name)
            return image.broker_configs.get(broker)
        bounds = image.quotas.get(quota_entity(entity_type, name), {})
        return {key: str(bound) for key, bound in bounds.items()}

    async def _find(
        self, entity_type: str, name: str
    ) -> tuple[Mapping[str, str], Stat | None] | None:
        """Read overrides; None if they are unreadable, in which case they are read again after a
        change."""
        entity = entity_type, name
        try:
            znode = await self._store.find(znodes.config_path(*entity))
            overrides = znodes.decode_config(*entity, znode[0] if znode else b"")
        except UnreadableZnode as error:
            self._unread[entity] = error
            await self._unreadable.leave_out(error, "its configs keep their previous values")
            return None
        self._unread.pop(entity, None)
        return overrides, znode[1] if znode else None

    async def _read_notes(self) -> None:
        notes = await self._zookeeper.children(znodes.CONFIG_CHANGES, self._noted)
        new = [number for number in _numbers(notes) if number > self._last_note]
        if new and new[0] > self._last_note + 1:
            before = self._metadata.current
            await self._load()
            self._on_change(self._metadata.current, before.topics.keys())
            return
        for number in new:
            znode = await self._store.find(f"{znodes.CONFIG_CHANGE_PREFIX}{number:010d}")
            if znode is not None:
                try:
                    entity = znodes.decode_config_change(znode[0])
                except UnreadableZnode as error:
                    log.error("ignoring invalid config change %d: %s", number, error)
                else:
                    await self._read_entity(*entity)
            self._last_note = number
        for entity in sorted(self._unread):
            await self._read_entity(*entity)
        features = await self._read_features()
        if features != self.features:
            self.features_changed(features)

    async def _read_entity(self, entity_type: str, name: str) -> None:
        """Read an entity again, and publish it if it has changed."""
        was_unread = (entity_type, name) in self._unread
        entry = await self._find(entity_type, name)
        if entry is None:
            return
        overrides = entry[0]
        # The current image: the controller may have sent updates during the await.
        image = self._metadata.current
        if entity_type == znodes.TOPIC_CONFIGS:
            if name not in self.topics:
                if was_unread and name in image.topics:
                    self._publish_topic(name, overrides)
                    self.on_readable()
            elif overrides != self.topics[name]:
                self._publish_topic(name, overrides)
        elif entity_type == znodes.GROUP_CONFIGS:
            group = unsanitized(name)
            if overrides != image.group_configs.get(group, {}):
                self._announce(image.with_group_config(group, overrides))
        elif entity_type == znodes.BROKER_CONFIGS:
            if name not in (znodes.DEFAULT_ENTITY, str(self._id)):
                return
            broker = NO_BROKER if name == znodes.DEFAULT_ENTITY else self._id
            if overrides != image.broker_configs.get(broker, {}):
                self._announce(image.with_broker_config(broker, overrides))
        elif quotas.bounds(overrides) != image.quotas.get(quota_entity(entity_type, name), {}):
            self._publish_quotas(entity_type, name, overrides)

    def _noted(self, _event: WatchEvent) -> None:
        self._due.set()

    def _session_changed(self, event: SessionEvent) -> None:
        if event is SessionEvent.CONNECTED:
            self._due.set()  # watches are lost with the connection


def _note(entity_type: str, name: str) -> Create:
    note = znodes.encode_config_change(entity_type, name)
    return Create(znodes.CONFIG_CHANGE_PREFIX, note, sequence=True)


def _numbers(notes: Sequence[str]) -> list[int]:
    """Return the sorted numbers of the notes; other clients may have created other znodes there."""
    prefix = znodes.CONFIG_CHANGE_PREFIX.rpartition("/")[2]
    numbers = [note.removeprefix(prefix) for note in notes if note.startswith(prefix)]
    return sorted(int(number) for number in numbers if number.isascii() and number.isdigit())
