"""A ZooKeeper server may lag behind the leader of its ensemble: what a broker reads there is not
what another broker has just written, although it hears from that broker at once."""

from __future__ import annotations

import asyncio
from functools import partial
from random import Random

import pytest

from kcli.client.admin.admin import Admin, ConfigChange, ConfigOp, NewTopic, ResourceType
from kcli.client.config import AdminConfig
from kserver.cluster_config.znode_store import ZnodeStore
from tests.support.faults import FAULTS
from tests.support.loop import SimLoop, simulate
from tests.support.seeds import seeds
from tests.support.simulated import PORT
from tests.support.simulated_cluster import SETTINGS, SimulatedCluster
from tests.support.swarm import swarm

LAG_S = 5.0
SESSION_S = int(SETTINGS["zookeeper.session.timeout.ms"]) / 1000


def admin_at(loop: SimLoop, broker: int) -> Admin:
    config = AdminConfig.of({"bootstrap.servers": f"b{broker}:{PORT}"})
    return Admin(config, random=loop.random)


async def retention_of(admin: Admin, topic: str) -> str | None:
    resource = (ResourceType.TOPIC, topic)
    return (await admin.describe_configs([resource], ["retention.ms"]))[resource][0].value


async def a_new_topic(loop: SimLoop) -> None:
    """Its partitions' logs have its config, or records would be deleted too early."""
    cluster = SimulatedCluster(loop, 3)
    await cluster.start()
    for broker in (1, 2, 3):
        cluster.zookeeper(broker).lag(LAG_S)
        async with admin_at(loop, broker % 3 + 1) as admin:
            for days in (30, 60):
                retention_ms = days * 86_400_000
                config = {"retention.ms": str(retention_ms)}
                topic = NewTopic("t", assignments={0: (1, 2, 3)}, config=config)
                while isinstance((await admin.create_topics([topic]))["t"], Exception):
                    await asyncio.sleep(0.1)  # the one before is still being deleted
                await cluster.until_in_sync("t", 1)
                replica = cluster.replicas("t", 0)[broker]
                assert replica.log.config.retention_ms == retention_ms
                await admin.delete_topics(["t"])
        cluster.zookeeper(broker).catch_up()


async def a_change_back(loop: SimLoop) -> None:
    """A broker that does not know yet that the value was changed would take it for no change."""
    cluster = SimulatedCluster(loop, 3)
    await cluster.start()
    async with admin_at(loop, 1) as one, admin_at(loop, 2) as other:
        await one.create_topics([NewTopic("t", 1, config={"retention.ms": "1000"})])
        await cluster.until_in_sync("t", 1)
        assert await retention_of(other, "t") == "1000"
        cluster.zookeeper(2).lag(LAG_S)
        for admin, value in ((one, "2000"), (other, "1000")):
            change = ConfigChange("retention.ms", ConfigOp.SET, value)
            await admin.incremental_alter_configs({(ResourceType.TOPIC, "t"): [change]})
            assert await retention_of(admin, "t") == value
        assert b'"1000"' in cluster.ensemble.tree.node("/config/topics/t").data


@pytest.mark.parametrize("seed", seeds(3))
@pytest.mark.parametrize("scenario", [a_new_topic, a_change_back])
def test_nothing_is_decided_by_what_is_outdated(scenario, seed):
    simulate(scenario, seed)


@pytest.mark.parametrize("scenario", [a_new_topic, a_change_back])
def test_without_a_sync_it_is(monkeypatch, scenario):
    async def sync(self: ZnodeStore) -> None:
        pass

    monkeypatch.setattr(ZnodeStore, "sync", sync)
    with pytest.raises(AssertionError):
        simulate(scenario, 0)


@pytest.mark.parametrize("seed", seeds(2))
def test_whatever_breaks_besides_everything_promised_holds(seed):
    others = Random(seed).sample(sorted(FAULTS.keys() - {"lagging_zookeeper"}), 2)
    simulate(partial(swarm, faults=["lagging_zookeeper", *others]), seed)


async def an_alteration_that_waits(loop: SimLoop) -> None:
    """Its broker is cut off from ZooKeeper; meanwhile another broker makes a later one."""
    cluster = SimulatedCluster(loop, 3)
    await cluster.start()
    async with admin_at(loop, 1) as one, admin_at(loop, 2) as other:
        await one.create_topics([NewTopic("t", 1)])
        await cluster.until_in_sync("t", 1)
        cluster.zookeeper(2).silence()
        resource = (ResourceType.TOPIC, "t")
        changes = [
            {resource: [ConfigChange("retention.ms", ConfigOp.SET, value)]} for value in "12"
        ]
        waiting = loop.create_task(other.incremental_alter_configs(changes[0]))
        await asyncio.sleep(1)
        waiting.cancel()
        assert (await one.incremental_alter_configs(changes[1])) == {resource: None}
        await asyncio.sleep(SESSION_S + loop.random.uniform(0, 60))
        cluster.zookeeper(2).heal()
        await asyncio.sleep(30)
        for admin in (one, other):
            assert await retention_of(admin, "t") == "2"
    cluster.check()


@pytest.mark.parametrize("seed", seeds(5))
def test_an_alteration_is_not_made_long_after_its_client_has_given_it_up(seed):
    simulate(an_alteration_that_waits, seed)
