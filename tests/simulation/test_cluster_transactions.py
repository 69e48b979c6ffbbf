"""Exactly once on three brokers: partitions, groups and transactions are led by each of them, while
they are killed, stopped, cut off each other and lose their sessions.
"""

from __future__ import annotations

import asyncio

import pytest

from kcli.client.admin.admin import Admin, NewTopic
from kcli.client.admin.features import FeatureUpdate, UpgradeType
from kcli.client.config import AdminConfig
from kserver.errors import ErrorCode
from kserver.replica.committed import Uncommitted
from kserver.wire.api_key import ApiKey
from kserver.wire.versions import request
from tests.simulation.test_exactly_once import BROKER
from tests.simulation.test_groups import names_found, planted
from tests.support.exactly_once import INPUT, INPUTS, OUTPUT, Trouble, transfer, transform
from tests.support.loop import SimLoop, simulate
from tests.support.scene import Scene, partitions_of
from tests.support.seeds import seeds
from tests.support.simulated_cluster import SimulatedCluster

SEEDS = seeds(4)
FOUND_BY_TRANSFERS = {
    1033: "a broker never stopped: a marker whose commit it waited for was never answered",
    6039: "a broker that stopped while it cut a log had not closed it cleanly",
}
BROKERS = 3


async def set_up(loop: SimLoop, *topics: NewTopic) -> tuple[SimulatedCluster, Scene]:
    settings = BROKER | {
        "min.insync.replicas": loop.random.choice(["1", "2"]),
        "log.flush.before.ack": loop.random.choice(["true", "false"]),
        "request.timeout.ms": "5000",
    }
    cluster = SimulatedCluster(loop, BROKERS, settings)
    await cluster.start()
    version = loop.random.choice([0, 1, 2])
    async with Admin(AdminConfig.of(cluster.bootstrap), random=loop.random) as admin:
        await admin.create_topics(topics)
        current = (await admin.features.describe()).finalized.get("transaction.version", 0)
        if current != version:
            kind = UpgradeType.UPGRADE if version > current else UpgradeType.UNSAFE_DOWNGRADE
            update = {"transaction.version": FeatureUpdate(version, kind)}
            await admin.features.update(update)
    return cluster, Scene(
        loop, tuple(cluster.brokers.values()), partitions_of(OUTPUT, topics[-1].partitions)
    )


def trouble_of(cluster: SimulatedCluster) -> Trouble:
    """Processes and network have theirs at once: one that was cut off loses its session, too."""

    async def trouble(scene: Scene, until: asyncio.Event) -> None:
        await asyncio.gather(of_processes(cluster, until), of_network(cluster, scene, until))

    return trouble


async def of_processes(cluster: SimulatedCluster, until: asyncio.Event) -> None:
    random = cluster.loop.random
    while not until.is_set():
        await asyncio.sleep(random.expovariate(0.7))
        cluster.check()
        one = random.choice(sorted(cluster.brokers))
        if random.random() < 0.4:
            cluster.expire(one)
            continue
        await (cluster.kill(one) if random.random() < 0.7 else cluster.stop(one))
        await asyncio.sleep(random.expovariate(0.3))
        await cluster.start(one)


async def of_network(cluster: SimulatedCluster, scene: Scene, until: asyncio.Event) -> None:
    random, network = scene.random, scene.loop.network
    while not until.is_set():
        await asyncio.sleep(random.expovariate(0.7))
        hosts = [broker.name for broker in cluster.brokers.values()]
        one, *others = random.sample(hosts, len(hosts))
        client = random.choice(list(scene.clients))
        match random.randrange(5):
            case 0:
                network.reset(client, one)
            case 1:
                network.reset(one, others[0])
            case 2:
                await cut(scene, one, client)
            case 3:
                await cut(scene, one, others[0])
            case 4:  # clients still reach it
                await cut(scene, one, *others)


async def cut(scene: Scene, one: str, *others: str) -> None:
    for other in others:
        scene.loop.network.cut(one, other)
    await asyncio.sleep(scene.random.expovariate(0.3))
    for other in others:
        scene.loop.network.heal(one, other)


async def stop(cluster: SimulatedCluster) -> None:
    cluster.check()
    for id_ in sorted(cluster.up):
        await cluster.stop(id_)
    assert not [bug for broker in cluster.brokers.values() for bug in broker.bugs]


async def transformed(loop: SimLoop) -> str:
    topics = NewTopic(INPUT, INPUTS, BROKERS), NewTopic(OUTPUT, 3, BROKERS)
    cluster, scene = await set_up(loop, *topics)
    await transform(scene, trouble_of(cluster))
    await stop(cluster)
    return loop.trace.digest


async def transferred(loop: SimLoop) -> None:
    accounts = NewTopic(OUTPUT, loop.random.randint(2, 4), BROKERS)
    cluster, scene = await set_up(loop, accounts)
    await transfer(scene, trouble_of(cluster))
    await stop(cluster)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_transformed_is_there_once(seed: int) -> None:
    simulate(transformed, seed)


@pytest.mark.parametrize("seed", [*SEEDS, *FOUND_BY_TRANSFERS])
def test_the_sum_of_all_accounts_is_zero(seed: int) -> None:
    simulate(transferred, seed)


def test_one_seed_is_one_trace() -> None:
    assert simulate(transformed, 3) == simulate(transformed, 3)


def test_an_answer_before_the_commit_is_found_out() -> None:
    """The bug is planted: whoever waits for in-sync replicas waits no more."""
    with planted(Uncommitted, "outcome", lambda _: ErrorCode.none):
        found = (names_found(simulate, transferred, seed) for seed in range(30))
        assert any("torn-txn" in names for names in found)


async def stopped(loop: SimLoop) -> None:
    cluster = SimulatedCluster(loop, BROKERS, {"request.timeout.ms": 600_000})
    await cluster.start()
    async with Admin(AdminConfig.of(cluster.bootstrap), random=loop.random) as admin:
        # Led by the controller, which need not ask another for leave to stop.
        stopping = (await admin.describe_cluster()).controller_id
        replicas = sorted(cluster.brokers, key=lambda id_: id_ != stopping)
        await admin.create_topics([NewTopic("t", assignments={0: replicas})])
    await cluster.until_in_sync("t", 1)
    leader = cluster.leader("t", 0)
    assert leader is not None
    assert leader.leader_id == stopping
    for other in cluster.brokers.keys() - {stopping}:
        loop.network.cut(f"b{stopping}", f"b{other}")
    peer = await cluster.brokers[stopping].connect()
    new = request(ApiKey.WRITE_TXN_MARKERS, peer.version(ApiKey.WRITE_TXN_MARKERS))
    marker = new.markers(
        producer_id=1, topics=[new.markers.topics(name="t", partition_indexes=(0,))]
    )
    asked = loop.create_task(peer.call(new(markers=[marker])))
    await asyncio.sleep(0.1)
    assert leader.log.high_watermark < leader.log.log_end_offset
    async with asyncio.timeout(300):
        await cluster.stop(stopping)
    (answered,) = (await asked).markers[0].topics[0].partitions
    assert answered.error_code is ErrorCode.not_leader_or_follower  # another one is asked again


def test_a_broker_stops_while_a_marker_that_it_wrote_is_not_committed() -> None:
    simulate(stopped, 1)
