"""The controller in the middle of something: killed, cut off, its brokers away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random

import pytest

from kcli.client.admin.admin import Admin, NewTopic
from kcli.client.admin.descriptions import ConfigChange, ConfigOp, ResourceType
from kcli.client.config import AdminConfig
from kserver import znodes
from kserver.errors import ErrorCode, KafkaError
from kserver.model import NO_BROKER
from tests.support.loop import SimLoop, simulate
from tests.support.seeds import seeds
from tests.support.simulated import DATA
from tests.support.simulated_cluster import SimulatedCluster

SEEDS = seeds(4)
PATIENCE_S = 120


@asynccontextmanager
async def admin_of(loop: SimLoop, cluster: SimulatedCluster) -> AsyncIterator[Admin]:
    config = AdminConfig.of(cluster.bootstrap)
    async with Admin(config, random=Random(loop.random.random())) as admin:
        yield admin


async def until(holds: Callable[[], bool], loop: SimLoop) -> None:
    deadline = loop.time() + PATIENCE_S
    while not holds():
        await asyncio.sleep(0.1)
        assert loop.time() < deadline, "it has never come true"


def controller(cluster: SimulatedCluster) -> int | None:
    for id_ in sorted(cluster.up):
        broker = cluster.brokers[id_].broker
        if broker is not None and broker._parts.controller.is_active:
            return id_
    return None


async def the_controller(cluster: SimulatedCluster, loop: SimLoop) -> int:
    await until(lambda: controller(cluster) is not None, loop)
    found = controller(cluster)
    assert found is not None
    return found


def known_brokers(cluster: SimulatedCluster) -> set[int]:
    """Those that have a znode."""
    nodes = cluster.ensemble.tree.nodes
    return {id_ for id_ in cluster.brokers if f"/brokers/ids/{id_}" in nodes}


def znodes_of(cluster: SimulatedCluster, topic: str) -> list[str]:
    return sorted(p for p in cluster.ensemble.tree.nodes if topic in p.split("/"))


def logs_of(cluster: SimulatedCluster, topic: str) -> set[int]:
    """The brokers on whose disks a log of it is."""
    return {
        id_
        for id_, broker in cluster.brokers.items()
        for name in broker.disk.list(DATA)
        if name.startswith(f"{topic}-") and not name.endswith("-delete")
    }


async def created(admin: Admin, topic: NewTopic) -> None:
    """Once there is a controller, and enough brokers."""
    while isinstance((await admin.create_topics([topic]))[topic.name], KafkaError):
        await asyncio.sleep(0.2)


async def ended(cluster: SimulatedCluster) -> None:
    for id_ in sorted(cluster.up):
        await cluster.stop(id_)
    assert not [bug for broker in cluster.brokers.values() for bug in broker.bugs]


async def overslept(loop: SimLoop) -> None:
    """Who slept while another was elected does not call itself the controller when it wakes."""
    cluster = SimulatedCluster(loop, 3)
    await cluster.start()
    slept = await the_controller(cluster, loop)
    broker = cluster.brokers[slept].broker
    assert broker is not None
    metadata = broker._parts.metadata
    epoch = broker._parts.controller.context.epoch
    cluster.brokers[slept].pause()
    await until(lambda: slept not in known_brokers(cluster), loop)
    cluster.brokers[slept].resume()
    await metadata.wait_for(lambda image: image.controller != slept, PATIENCE_S)
    assert slept not in known_brokers(cluster), "it named itself until it was told of another"
    await until(lambda: known_brokers(cluster) == {1, 2, 3}, loop)
    await metadata.wait_for(lambda image: image.controller != NO_BROKER, PATIENCE_S)
    brokers = [simulated.broker for simulated in cluster.brokers.values()]
    assert [b for b in brokers if b and b._parts.controller.context.epoch > epoch]
    await ended(cluster)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_controller_that_overslept_its_session_names_itself_no_longer(seed: int) -> None:
    simulate(overslept, seed)


async def not_told(loop: SimLoop) -> None:
    """Who lost its session names the next controller, though that one does not reach it."""
    cluster = SimulatedCluster(loop, 3)
    await cluster.start()
    first = await the_controller(cluster, loop)
    await until(lambda: known_brokers(cluster) == {1, 2, 3}, loop)
    broker = cluster.brokers[first].broker
    assert broker is not None
    metadata = broker._parts.metadata
    await metadata.wait_for(lambda image: len(image.brokers) == 3, PATIENCE_S)
    others = cluster.brokers.keys() - {first}
    for other in others:
        loop.network.cut(f"b{first}", f"b{other}")
    cluster.expire(first)
    await metadata.wait_for(lambda image: image.controller != first, PATIENCE_S)
    await until(lambda: controller(cluster) in others, loop)
    await metadata.wait_for(lambda image: image.controller in others, PATIENCE_S)
    for other in others:
        loop.network.heal(f"b{first}", f"b{other}")
    await until(lambda: metadata.current.controller == controller(cluster), loop)
    await ended(cluster)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_next_controller_is_named_before_it_has_made_itself_known(seed: int) -> None:
    simulate(not_told, seed)


async def deleted_while_one_is_away(loop: SimLoop) -> None:
    cluster = SimulatedCluster(loop, 3)
    await cluster.start()
    async with admin_of(loop, cluster) as admin:
        await admin.create_topics([NewTopic("t", 2, 3), NewTopic("u", 1, 3)])
        await cluster.until_in_sync("t", 2)
        first = await the_controller(cluster, loop)
        away = next(id_ for id_ in cluster.brokers if id_ != first)
        await cluster.kill(away)
        await until(lambda: away not in known_brokers(cluster), loop)
        await admin.delete_topics(["t"])
        await until(lambda: logs_of(cluster, "t") == {away}, loop)
        # It is gone for clients, and its name is not free yet.
        assert "t" not in (await admin.list_topics())
        assert "/admin/delete_topics/t" in znodes_of(cluster, "t")
        refused = (await admin.create_topics([NewTopic("t", 1, 2)]))["t"]
        assert isinstance(refused, KafkaError)
        assert refused.code is ErrorCode.topic_already_exists
        if loop.random.random() < 0.7:
            await cluster.kill(first)
            await cluster.start(away)
            await until(lambda: first not in known_brokers(cluster), loop)
            await the_controller(cluster, loop)
            await cluster.start(first)
        else:
            await cluster.start(away)
        await until(lambda: not znodes_of(cluster, "t"), loop)
        assert logs_of(cluster, "t") == set()
        await created(admin, NewTopic("t", 1, 3))
        await cluster.until_in_sync("t", 1)
        await cluster.until_in_sync("u", 1)
    await ended(cluster)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_topic_deleted_while_a_broker_is_away_is_gone_once_it_returns(seed: int) -> None:
    simulate(deleted_while_one_is_away, seed)


async def made_anew_while_one_is_away(loop: SimLoop) -> None:
    """What a topic of that name overrode, which is no more, is not the new one's."""
    cluster = SimulatedCluster(loop, 3)
    await cluster.start()
    async with admin_of(loop, cluster) as admin:
        first = await the_controller(cluster, loop)
        away, other = (id_ for id_ in cluster.brokers if id_ != first)
        where = {0: [first, other]}
        former = NewTopic("t", assignments=where, config={"retention.ms": "1000"})
        await created(admin, former)
        broker = cluster.brokers[away].broker
        assert broker is not None
        metadata = broker._parts.metadata
        await metadata.wait_for(lambda image: "t" in image.topics, PATIENCE_S)
        assert metadata.current.topics["t"].config == {"retention.ms": "1000"}
        was = metadata.current.topics["t"].id
        cluster.brokers[away].pause()
        await until(lambda: away not in known_brokers(cluster), loop)
        await admin.delete_topics(["t"])
        await until(lambda: not znodes_of(cluster, "t"), loop)
        await created(admin, NewTopic("t", assignments=where))
        cluster.brokers[away].resume()
        await metadata.wait_for(lambda image: image.topics["t"].id != was, PATIENCE_S)
        assert metadata.current.topics["t"].config == {}
    await ended(cluster)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_topic_made_anew_while_a_broker_is_away_has_its_own_settings_there(seed: int) -> None:
    simulate(made_anew_while_one_is_away, seed)


def led(cluster: SimulatedCluster, topic: str, partitions: int) -> list[tuple[int, int]]:
    """Leader and leader epoch of each partition, as its state znode has them."""
    found = []
    for number in range(partitions):
        node = cluster.ensemble.tree.nodes[znodes.state_path(topic, number)]
        state = znodes.decode_state(topic, number, node.data, 0)
        found.append((state.leader, state.leader_epoch))
    return found


async def preferred_leaders_return(loop: SimLoop) -> None:
    cluster = SimulatedCluster(loop, 3, {"leader.imbalance.check.interval.seconds": 10})
    await cluster.start()
    async with admin_of(loop, cluster) as admin:
        await admin.create_topics([NewTopic("t", 6, 3)])
        await cluster.until_in_sync("t", 6)
        preferred = [leader for leader, _ in led(cluster, "t", 6)]
        assert set(preferred) == {1, 2, 3}
        away = loop.random.choice([1, 2, 3])
        await cluster.kill(away)
        await until(lambda: away not in {leader for leader, _ in led(cluster, "t", 6)}, loop)
        await cluster.start(away)
        await cluster.until_in_sync("t", 6)
        await until(lambda: [leader for leader, _ in led(cluster, "t", 6)] == preferred, loop)
        # And there they stay.
        calm = led(cluster, "t", 6)
        await asyncio.sleep(100)
        assert led(cluster, "t", 6) == calm
    await ended(cluster)


@pytest.mark.parametrize("seed", SEEDS)
def test_leadership_comes_back_to_a_broker_that_was_away_and_stays(seed: int) -> None:
    simulate(preferred_leaders_return, seed)


async def led_uncleanly_at_once(loop: SimLoop) -> None:
    cluster = SimulatedCluster(loop, 3)
    await cluster.start()
    async with admin_of(loop, cluster) as admin:
        await admin.create_topics([NewTopic("t", 1, 2)])
        leader, follower = isr_of(cluster, "t", 0)
        await until(lambda: set(cluster.replicas("t", 0)) == {leader, follower}, loop)
        await cluster.kill(follower)
        await until(lambda: isr_of(cluster, "t", 0) == (leader,), loop)
        await cluster.kill(leader)
        await until(lambda: led(cluster, "t", 1)[0][0] == NO_BROKER, loop)
        await cluster.start(follower)
        await asyncio.sleep(20)
        assert led(cluster, "t", 1)[0][0] == NO_BROKER
        if loop.random.random() < 0.5:
            resource = (ResourceType.TOPIC, "t")
        else:
            resource = (ResourceType.BROKER, "")
        await admin.incremental_alter_configs(
            {resource: [ConfigChange("unclean.leader.election.enable", ConfigOp.SET, "true")]}
        )
        await until(lambda: led(cluster, "t", 1)[0][0] == follower, loop)
        assert isr_of(cluster, "t", 0) == (follower,)
    await ended(cluster)


def isr_of(cluster: SimulatedCluster, topic: str, number: int) -> tuple[int, ...]:
    node = cluster.ensemble.tree.nodes[znodes.state_path(topic, number)]
    return znodes.decode_state(topic, number, node.data, 0).isr


@pytest.mark.parametrize("seed", SEEDS)
def test_an_unclean_election_that_is_allowed_while_nobody_leads_is_held_at_once(seed: int) -> None:
    simulate(led_uncleanly_at_once, seed)


def placed(cluster: SimulatedCluster, topic: str) -> znodes.TopicAssignment:
    node = cluster.ensemble.tree.nodes[znodes.topic_path(topic)]
    return znodes.decode_topic(topic, node.data)


async def moved(loop: SimLoop) -> None:
    """Partitions move to the fourth broker while the controller, or one of the replicas, dies."""
    cluster = SimulatedCluster(loop, 4)
    await cluster.start()
    async with admin_of(loop, cluster) as admin:
        await admin.create_topics([NewTopic("t", assignments={0: [1, 2, 3], 1: [2, 3, 1]})])
        data = b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[4,2,3]}]}'
        zookeeper = cluster.brokers[2].zookeeper
        assert zookeeper is not None
        await zookeeper.create(znodes.REASSIGN_PARTITIONS, data)
        await asyncio.sleep(loop.random.random() / 20)
        controller = await the_controller(cluster, loop)
        victim = loop.random.choice([controller, 1, 4])
        if victim == 4:  # to one who is not alive nothing moves
            await until(lambda: 4 in placed(cluster, "t").replicas[0], loop)
        await cluster.kill(victim)
        await asyncio.sleep(loop.random.expovariate(0.3))
        await cluster.start(victim)
        await until(lambda: znodes.REASSIGN_PARTITIONS not in cluster.ensemble.tree.nodes, loop)
        assert placed(cluster, "t").replicas == {0: (4, 2, 3), 1: (2, 3, 1)}
        assert not placed(cluster, "t").adding
        assert not placed(cluster, "t").removing
        await until(lambda: set(cluster.replicas("t", 0)) == {2, 3, 4}, loop)
        await until(lambda: set(isr_of(cluster, "t", 0)) == {2, 3, 4}, loop)
        assert led(cluster, "t", 1)[0][0] in (2, 3, 4)
        # A broker that is away when its replica is removed keeps the log, and says so.
        if victim != 1:
            await until(lambda: "t-0" not in cluster.brokers[1].disk.list(DATA), loop)
    await ended(cluster)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_partition_moves_whoever_dies_meanwhile(seed: int) -> None:
    simulate(moved, seed)


async def its_port_is_refused(loop: SimLoop) -> None:
    """It lives and keeps its session, but nobody reaches it: another one must be elected, which
    elects other leaders."""
    cluster = SimulatedCluster(loop, 3)
    await cluster.start()
    former = await the_controller(cluster, loop)
    for _ in range(3):
        loop.network.refuse(f"b{former}")
        loop.network.close(f"b{former}")
        began_s = loop.time()
        while controller(cluster) in (None, former):
            await asyncio.sleep(0.1)
            assert loop.time() - began_s < 3, "it was elected again"
        loop.network.accept(f"b{former}")
        await cluster.until_all_in_sync()
        former = await the_controller(cluster, loop)
    cluster.check()


@pytest.mark.parametrize("seed", seeds(8))
def test_an_unreachable_controller_gives_way(seed):
    simulate(its_port_is_refused, seed)
