"""Znodes of topics, written by the controller: in one step, or completed at the next start."""

from __future__ import annotations

import logging
from functools import partial

from kserver import znodes
from kserver.cluster_config.znode_store import gather
from kserver.controller import topics as rules
from kserver.controller.claimed_store import ClaimedStore
from kserver.errors import ErrorCode, KafkaError
from kserver.metadata import TopicInfo
from kserver.world.session import until_connected
from kserver.world.zookeeper import Create, Delete, NodeExists, ZooKeeper

log = logging.getLogger(__name__)


class TopicZnodes:
    """Each call may raise SessionExpired, or BadVersion if this is no longer the controller."""

    def __init__(self, zookeeper: ZooKeeper, store: ClaimedStore) -> None:
        self._zookeeper = zookeeper
        self._store = store

    async def create(self, topic: TopicInfo) -> None:
        """Raises TOPIC_ALREADY_EXISTS."""
        config_path = znodes.config_path(znodes.TOPIC_CONFIGS, topic.name)
        old_config = await until_connected(partial(self._zookeeper.exists, config_path))
        try:
            await self._store.write(
                rules.writes_to_create(
                    topic, self._store.epoch, has_config_znode=old_config is not None
                )
            )
        except NodeExists as error:
            text = f"Topic '{topic.name}' already exists."
            raise KafkaError(ErrorCode.topic_already_exists, text) from error
        log.info("created topic %s with %d partition(s)", topic.name, len(topic.partitions))

    async def grow(self, topic: TopicInfo) -> None:
        path = znodes.topic_path(topic.name)
        data, stat = await until_connected(partial(self._zookeeper.get, path))
        old = znodes.decode_topic(topic.name, data)
        await self._store.write(rules.writes_to_grow(topic, old, stat.version, self._store.epoch))
        log.info("extended topic %s to %d partition(s)", topic.name, len(topic.partitions))

    async def note_deletion(self, topic: str) -> None:
        try:
            await self._store.write([Create(znodes.delete_topic_path(topic))])
        except NodeExists:
            pass  # noted already, by an old tool

    async def remove(self, topic: str) -> None:
        """Delete all znodes of a topic that is noted for deletion, the note last.  Raises
        ConnectionLost."""
        level, paths = [znodes.topic_path(topic)], []
        config_path = znodes.config_path(znodes.TOPIC_CONFIGS, topic)
        for path in (znodes.delete_topic_path(topic), config_path):
            if await self._zookeeper.exists(path):
                paths.append(path)
        while level:
            names = await gather([partial(self._store.children, path) for path in level])
            below = [(p, n) for p, n in zip(level, names, strict=True) if n is not None]
            paths += [path for path, _ in below]
            level = [f"{path}/{name}" for path, names in below for name in names]
        await self._store.write([Delete(path) for path in reversed(paths)])
        log.info("deleted topic %s", topic)
