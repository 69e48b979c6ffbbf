"""A broker that was cut off believes that it leads: a consumer must not believe its log's end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from kcli.client.admin.admin import Admin, NewTopic
from kcli.client.config import AdminConfig, ProducerConfig
from kcli.client.producer.producer import Producer
from kserver.errors import ErrorCode
from kserver.replica.leadership import ASK_AGAIN_S, Leadership, Question
from kserver.world.zookeeper import Op
from tests.simulation.test_broker import fetch
from tests.support.loop import SimLoop, simulate
from tests.support.seeds import seeds
from tests.support.simulated_cluster import SimulatedCluster
from tests.support.zookeeper import SimZooKeeper

FORMER = 2
PATIENCE_S = 30.0


async def started(loop: SimLoop) -> SimulatedCluster:
    cluster = SimulatedCluster(loop, 3)
    await cluster.start()
    async with Admin(AdminConfig.of(cluster.bootstrap), random=loop.random) as admin:
        await admin.create_topics([NewTopic("t", assignments={0: (FORMER, 3, 1)})])
    await cluster.until_in_sync("t", 1)
    return cluster


async def error_of(cluster: SimulatedCluster, id_: int, offset: int) -> ErrorCode:
    peer = await cluster.brokers[id_].connect()
    async with asyncio.timeout(PATIENCE_S):
        fetched = await fetch(peer, "t", 0, offset)
    peer.close()
    return ErrorCode(fetched.error_code)


async def produce(loop: SimLoop, cluster: SimulatedCluster, count: int) -> None:
    config = ProducerConfig.of(cluster.bootstrap)
    now_ms = cluster.brokers[1].clock.now_ms
    async with Producer(config, now_ms=now_ms, random=loop.random) as producer:
        for number in range(count):
            await (await producer.send("t", b"%d" % number, partition=0))


async def a_leader_that_is_cut_off(loop: SimLoop) -> None:
    """It has one record, its successor has six: offset 5 exists."""
    cluster = await started(loop)
    await produce(loop, cluster, 1)
    assert await error_of(cluster, FORMER, 5) is ErrorCode.offset_out_of_range
    for other in (1, 3):
        loop.network.cut(f"b{FORMER}", f"b{other}")
    cluster.zookeeper(FORMER).silence()
    async with asyncio.timeout(PATIENCE_S):
        while cluster.replicas("t", 0)[3].leader is None:
            await asyncio.sleep(0.1)
    await produce(loop, cluster, 5)
    assert cluster.replicas("t", 0)[FORMER].is_leader
    assert await error_of(cluster, FORMER, 5) is ErrorCode.not_leader_or_follower
    assert await error_of(cluster, 3, 5) is ErrorCode.none
    assert await error_of(cluster, 3, 7) is ErrorCode.offset_out_of_range
    for other in (1, 3):
        loop.network.heal(f"b{FORMER}", f"b{other}")
    cluster.zookeeper(FORMER).heal()
    await cluster.until_all_in_sync()
    cluster.check()


@pytest.mark.parametrize("seed", seeds(3))
def test_an_offset_beyond_the_log_of_a_former_leader_is_not_out_of_range(seed: int) -> None:
    simulate(a_leader_that_is_cut_off, seed)


def test_without_confirmation_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    async def confirm_all(self: Leadership, asked: Mapping[Question, asyncio.Future[bool]]) -> None:
        for future in asked.values():
            future.set_result(True)

    monkeypatch.setattr(Leadership, "_ask_all", confirm_all)
    with pytest.raises(AssertionError, match="offset_out_of_range"):
        simulate(a_leader_that_is_cut_off, 0)


async def many_consumers(loop: SimLoop) -> None:
    """Each sends its next fetch at once: ZooKeeper is asked for all of them together."""
    cluster = await started(loop)
    writes = 0
    on_write = cluster.ensemble.on_write

    def count(client: SimZooKeeper, ops: Sequence[Op]) -> None:
        nonlocal writes
        writes += client is cluster.zookeeper(FORMER)
        on_write(client, ops)

    cluster.ensemble.on_write = count
    fetches = 0
    until_s = loop.time() + 1

    async def consume() -> None:
        nonlocal fetches
        peer = await cluster.brokers[FORMER].connect()
        while loop.time() < until_s:
            fetched = await fetch(peer, "t", 0, 5)
            assert fetched.error_code == ErrorCode.offset_out_of_range
            fetches += 1
        peer.close()

    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as consumers:
        for _ in range(20):
            consumers.create_task(consume())
    assert fetches > 100
    assert 0 < writes <= 1 / ASK_AGAIN_S
    cluster.check()


def test_questions_are_shared() -> None:
    simulate(many_consumers, 0)
