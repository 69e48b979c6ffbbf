"""Settings of a cluster, read from ZooKeeper while the controller tells of topics."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from uuid import UUID

import pytest

from kserver import znodes
from kserver.cluster_config.config_manager import ConfigManager
from kserver.cluster_config.znode_store import make_persistent
from kserver.config.broker import BrokerConfig
from kserver.metadata import ClusterMetadata, MetadataCache, TopicInfo
from kserver.world.zookeeper import Create, Delete, Op
from tests.support.clock import SimClock
from tests.support.loop import SimLoop, simulate
from tests.support.zookeeper import SimEnsemble

PATIENCE_S = 10


@pytest.mark.parametrize("seed", range(10))
def test_what_is_told_while_everything_is_read_again_stays(seed: int) -> None:
    async def main(loop: SimLoop) -> None:
        zookeeper = SimEnsemble(loop, SimClock(loop)).client()
        await zookeeper.start()
        await make_persistent(zookeeper)
        path = znodes.config_path(znodes.TOPIC_CONFIGS, "t0")
        await zookeeper.create(path, znodes.encode_config({"retention.ms": "5"}))
        metadata = MetadataCache(ClusterMetadata("cluster"))
        configs = ConfigManager(zookeeper, metadata, BrokerConfig, 1, lambda _image, _topics: None)
        loading = asyncio.create_task(configs.load())
        told = 0
        while not loading.done():
            topic = TopicInfo(f"t{told}", UUID(int=told + 1), ())
            metadata.update(metadata.current.with_topics({topic.name: topic}))
            metadata.update(replace(metadata.current, controller=told))
            told += 1
            await asyncio.sleep(loop.random.expovariate(2000))
        await loading
        image = metadata.current
        assert set(image.topics) == {f"t{number}" for number in range(told)}
        assert image.controller == told - 1

    simulate(main, seed)


ENTITIES = [
    (znodes.BROKER_CONFIGS, znodes.DEFAULT_ENTITY, {"log.retention.ms": "5"}),
    (znodes.GROUP_CONFIGS, "g", {"consumer.session.timeout.ms": "50000"}),
    (znodes.TOPIC_CONFIGS, "t", {"retention.ms": "5"}),
]


@pytest.mark.parametrize(("entity_type", "name", "overrides"), ENTITIES)
def test_an_update_during_the_read_of_one_changed_entity_is_kept(
    entity_type: str, name: str, overrides: dict[str, str]
) -> None:
    async def main(loop: SimLoop) -> None:
        zookeeper = SimEnsemble(loop, SimClock(loop)).client()
        await zookeeper.start()
        await make_persistent(zookeeper)
        path = znodes.config_path(entity_type, name)
        topic = TopicInfo("t", UUID(int=1), ())
        metadata = MetadataCache(ClusterMetadata("cluster").with_topics({"t": topic}))
        images: list[ClusterMetadata] = []
        configs = ConfigManager(
            zookeeper, metadata, BrokerConfig, 1, lambda image, _topics: images.append(image)
        )
        await configs.load()
        await configs.learn({"t": topic.id})
        running = asyncio.create_task(configs.run())
        await zookeeper.create(path, znodes.encode_config(overrides), make_parents=True)
        note = znodes.encode_config_change(entity_type, name)
        await zookeeper.create(znodes.CONFIG_CHANGE_PREFIX, note, sequence=True)
        controller = 0
        async with asyncio.timeout(PATIENCE_S):
            while not images:
                controller += 1
                metadata.update(replace(metadata.current, controller=controller))
                await asyncio.sleep(0.0001)
        assert metadata.current.controller == controller
        running.cancel()
        await asyncio.wait([running])

    simulate(main, 0)


@pytest.mark.parametrize("seed", range(20))
def test_a_topic_that_is_recreated_around_the_load_has_its_own_config(seed: int) -> None:
    async def main(loop: SimLoop) -> None:
        ensemble = SimEnsemble(loop, SimClock(loop))
        zookeeper, other = ensemble.client(), ensemble.client()
        await zookeeper.start()
        await other.start()
        await make_persistent(other)
        topic, config = znodes.topic_path("t"), znodes.config_path(znodes.TOPIC_CONFIGS, "t")

        def created(id: UUID, retention_ms: str) -> list[Op]:
            assignment = znodes.TopicAssignment(id, {0: (1,)})
            overrides = {"retention.ms": retention_ms}
            return [
                Create(config, znodes.encode_config(overrides)),
                Create(topic, znodes.encode_topic(assignment)),
            ]

        former, present = UUID(int=1), UUID(int=2)
        await other.multi(created(former, "5"))
        metadata = MetadataCache(ClusterMetadata("cluster"))
        configs = ConfigManager(zookeeper, metadata, BrokerConfig, 1, lambda _image, _topics: None)
        loading = asyncio.create_task(configs.load())
        await asyncio.sleep(loop.random.uniform(0, 0.02))
        await other.multi([Delete(topic), Delete(config), *created(present, "6")])
        if loop.random.random() < 0.5:
            await configs.learn({"t": present})
        await loading
        await configs.learn({"t": present})
        assert configs.overrides_of("t") == {"retention.ms": "6"}

    simulate(main, seed)
