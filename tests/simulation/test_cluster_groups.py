"""Groups on three brokers: whichever coordinates one, it goes on elsewhere when that is killed,
stopped, cut off the others or loses its session, while members come, go, crash and sleep.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from kcli.client.admin.admin import Admin, NewTopic
from kcli.client.config import AdminConfig
from kserver.errors import ErrorCode
from kserver.model import CONSUMER_OFFSETS
from kserver.wire.api_key import ApiKey
from kserver.wire.versions import request
from tests.support.group_run import BROKER, CLASSIC, PROTOCOLS, GroupRun, read_by_a_group
from tests.support.loop import SimLoop, simulate
from tests.support.seeds import seeds
from tests.support.simulated_cluster import SimulatedCluster
from tests.support.zookeeper import SimZooKeeper

BROKERS = 3
SEEDS = seeds(len(PROTOCOLS))


async def group(loop: SimLoop, settings: Mapping[str, str]) -> str:
    random, network = loop.random, loop.network
    wanted = {
        "offsets.topic.replication.factor": "3",
        "min.insync.replicas": random.choice(["1", "2"]),
    }
    cluster = SimulatedCluster(loop, BROKERS, BROKER | wanted)
    await cluster.start()

    async def restart(run: GroupRun) -> None:
        one = random.choice(sorted(cluster.brokers))
        await (cluster.kill(one) if random.random() < 0.7 else cluster.stop(one))
        await asyncio.sleep(random.expovariate(0.2))
        await cluster.start(one)
        run.disturbed(f"broker {one} was restarted")

    async def cut(run: GroupRun) -> None:
        one, other = random.sample(sorted(cluster.brokers), 2)
        network.cut(f"b{one}", f"b{other}")
        await asyncio.sleep(random.expovariate(0.2))
        network.heal(f"b{one}", f"b{other}")
        run.disturbed(f"brokers {one} and {other} were cut off")

    async def expire(run: GroupRun) -> None:
        one = random.choice(sorted(cluster.brokers))
        cluster.expire(one)
        run.disturbed(f"broker {one} lost its session")

    async def expire_all(run: GroupRun) -> None:
        """ZooKeeper was away for long."""
        for one in sorted(cluster.brokers):
            cluster.expire(one)
        run.disturbed("all brokers lost their sessions")

    async def reset(run: GroupRun) -> None:
        one, other = random.sample(sorted(cluster.brokers), 2)
        network.reset(f"b{one}", f"b{other}")
        run.disturbed(f"brokers {one} and {other} lost their connections")

    run = GroupRun(loop, tuple(cluster.brokers.values()), settings)
    troubles = {
        "restart": restart,
        "again": restart,
        "cut": cut,
        "expire": expire,
        "expire all": expire_all,
        "reset": reset,
    }
    await read_by_a_group(run, BROKERS, troubles)
    cluster.check()
    for id_ in sorted(cluster.up):
        await cluster.stop(id_)
    assert not [bug for broker in cluster.brokers.values() for bug in broker.bugs]
    return loop.trace.digest


NOT_YET = (ErrorCode.coordinator_not_available, ErrorCode.coordinator_load_in_progress)


async def deposed(loop: SimLoop) -> None:
    """Its session has ended, another coordinates, and nobody can tell it."""
    cluster = SimulatedCluster(loop, BROKERS, {"offsets.topic.num.partitions": 1})
    await cluster.start()
    async with Admin(AdminConfig.of(cluster.bootstrap), random=loop.random) as admin:
        await admin.create_topics([NewTopic("t", 1, BROKERS)])
    await call(cluster, 1, ApiKey.FIND_COORDINATOR, 4, coordinator_keys=["g"])
    await cluster.until_in_sync(CONSUMER_OFFSETS, 1)
    coordinator = cluster.leader(CONSUMER_OFFSETS, 0)
    assert coordinator is not None
    before = coordinator.leader_id
    while (code := await commit(cluster, before, 1)) in NOT_YET:
        await asyncio.sleep(0.1)
    assert code is ErrorCode.none
    assert await committed(cluster, before) == (ErrorCode.none, 1)
    others = sorted(cluster.brokers.keys() - {before})
    for other in others:
        loop.network.cut(f"b{before}", f"b{other}")
    zookeeper = cluster.brokers[before].zookeeper
    assert isinstance(zookeeper, SimZooKeeper)
    zookeeper.cut()
    async with asyncio.timeout(60):
        while ErrorCode.none not in [await commit(cluster, other, 2) for other in others]:
            await asyncio.sleep(0.1)
    zookeeper.heal()
    await asyncio.sleep(2)  # it learns that its session has ended, and registers anew
    assert coordinator.is_leader
    assert await committed(cluster, before) == (ErrorCode.not_coordinator, -1)
    for other in others:
        loop.network.heal(f"b{before}", f"b{other}")
    await cluster.until_in_sync(CONSUMER_OFFSETS, 1)
    assert (ErrorCode.none, 2) in [await committed(cluster, id_) for id_ in cluster.brokers]


async def call(cluster: SimulatedCluster, id_: int, api: int, version: int, **fields: Any) -> Any:
    peer = await cluster.brokers[id_].connect()
    try:
        return await peer.call(request(api, version)(**fields))
    finally:
        peer.close()


async def commit(cluster: SimulatedCluster, id_: int, offset: int) -> ErrorCode:
    topic = request(ApiKey.OFFSET_COMMIT, 7).topics
    partition = topic.partitions(committed_offset=offset, committed_leader_epoch=-1)
    asked = {"group_id": "g", "generation_id_or_member_epoch": -1}
    topics = [topic(name="t", partitions=[partition])]
    answer = await call(cluster, id_, ApiKey.OFFSET_COMMIT, 7, topics=topics, **asked)
    return answer.topics[0].partitions[0].error_code


async def committed(cluster: SimulatedCluster, id_: int) -> tuple[ErrorCode, int]:
    topics = [request(ApiKey.OFFSET_FETCH, 5).topics(name="t", partition_indexes=[0])]
    answer = await call(cluster, id_, ApiKey.OFFSET_FETCH, 5, group_id="g", topics=topics)
    if answer.error_code is not ErrorCode.none:
        return answer.error_code, -1
    return answer.error_code, answer.topics[0].partitions[0].committed_offset


# 7095: it leads, and has not loaded yet.
@pytest.mark.parametrize("seed", [0, 1, 2, 7095])
def test_a_coordinator_whose_session_has_ended_answers_nothing(seed: int) -> None:
    simulate(deposed, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_group_reads_everything_whichever_broker_coordinates_it(seed: int) -> None:
    simulate(lambda loop: group(loop, PROTOCOLS[seed % len(PROTOCOLS)]), seed)


def test_one_seed_is_one_trace() -> None:
    first, second = (simulate(lambda loop: group(loop, CLASSIC), 1) for _ in range(2))
    assert first == second
