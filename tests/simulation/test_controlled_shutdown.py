"""A broker that stops: what its clients and the other brokers see, and when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kcli.client.admin.admin import Admin, NewTopic
from kcli.client.config import AdminConfig
from kserver import znodes
from kserver.broker.controlled_shutdown import LOST_S
from kserver.errors import ErrorCode
from kserver.log.recovery import CLEAN_SHUTDOWN
from kserver.network.listener import FINISH_LIMIT_S
from kserver.world.zookeeper import CLOSE_LIMIT_S
from tests.simulation.test_broker import batch, create, fetch, produce
from tests.support.loop import SimLoop, simulate
from tests.support.seeds import seeds
from tests.support.simulated import DATA, SimulatedBroker
from tests.support.simulated_cluster import SimulatedCluster

SEEDS = seeds(4)
SOON_S = 0.5
PATIENCE_S = 30
LEADER, FOLLOWER = 2, 3
MARKER = f"{DATA}/{CLEAN_SHUTDOWN}"


async def started(loop: SimLoop, **settings: object) -> SimulatedCluster:
    """Broker 1 is the controller; topic t has one partition, led by LEADER."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    cluster = SimulatedCluster(loop, 3, given)
    for id_ in cluster.brokers:
        await cluster.start(id_)
    async with Admin(AdminConfig.of(cluster.bootstrap), random=loop.random) as admin:
        topic = NewTopic(
            "t", assignments={0: [LEADER, FOLLOWER]}, config={"min.insync.replicas": "2"}
        )
        (error,) = (await admin.create_topics([topic])).values()
        assert not isinstance(error, Exception)
    await cluster.until_in_sync("t", 1)
    return cluster


def is_registered(cluster: SimulatedCluster, id_: int) -> bool:
    return znodes.broker_path(id_) in cluster.ensemble.tree.nodes


async def until(loop: SimLoop, holds: Callable[[], bool]) -> None:
    deadline = loop.time() + PATIENCE_S
    while not holds():
        await asyncio.sleep(0.01)
        assert loop.time() < deadline


async def parked(loop: SimLoop, cluster: SimulatedCluster) -> asyncio.Task[Any]:
    """An acks=all produce that waits for a follower which the leader does not reach."""
    loop.network.cut(f"b{LEADER}", f"b{FOLLOWER}")
    leader = cluster.leader("t", 0)
    assert leader is not None
    end = leader.log.log_end_offset
    peer = await cluster.brokers[LEADER].connect()
    records = batch(cluster.brokers[LEADER].clock.now_ms(), b"parked")
    request = loop.create_task(produce(peer, "t", 0, records))
    request.add_done_callback(lambda _: peer.close())
    await until(loop, lambda: leader.log.log_end_offset == end + 1)
    assert leader.log.high_watermark == end
    return request


async def unread_response(loop: SimLoop) -> str:
    """A client that does not read keeps its connection open for as long as it may."""
    cluster = await started(loop)
    broker = cluster.brokers[LEADER]
    peer = await broker.connect()
    records = batch(broker.clock.now_ms(), bytes(200_000))
    assert (await produce(peer, "t", 0, records)).error_code is ErrorCode.none
    loop.network.cut_one_way(f"b{LEADER}", "client")
    fetches = [loop.create_task(fetch(peer, "t", 0, 0)) for _ in range(2)]
    await asyncio.sleep(SOON_S)
    began_s = loop.time()
    stopping = loop.create_task(cluster.stop(LEADER))
    await until(loop, lambda: not is_registered(cluster, LEADER))
    assert loop.time() - began_s < SOON_S
    assert not stopping.done()
    await stopping
    assert FINISH_LIMIT_S <= loop.time() - began_s < FINISH_LIMIT_S + SOON_S
    assert broker.disk.exists(MARKER)
    peer.close()
    await asyncio.gather(*fetches, return_exceptions=True)
    loop.network.heal(f"b{LEADER}", "client")
    await cluster.start(LEADER)
    await cluster.until_in_sync("t", 1)
    assert not [bug for broker in cluster.brokers.values() for bug in broker.bugs]
    return loop.trace.digest


async def parked_produce(loop: SimLoop, *, moves_leaders: bool) -> str:
    cluster = await started(loop, controlled_shutdown_enable=str(moves_leaders).lower())
    request = await parked(loop, cluster)
    began_s = loop.time()
    await cluster.stop(LEADER)
    assert loop.time() - began_s < SOON_S
    assert (await request).error_code is ErrorCode.not_leader_or_follower
    assert cluster.brokers[LEADER].disk.exists(MARKER)
    # Until the follower leads, what it was sent before may still reach it.
    await until(loop, lambda: cluster.leader("t", 0) is not None)
    loop.network.heal(f"b{LEADER}", f"b{FOLLOWER}")
    await cluster.start(LEADER)
    await cluster.until_in_sync("t", 1)
    leader = cluster.leader("t", 0)
    assert leader is not None
    # The next leader did not have the refused record.
    assert (leader.leader_id, leader.log.log_end_offset) == (FOLLOWER, 0)
    assert not [bug for broker in cluster.brokers.values() for bug in broker.bugs]
    return loop.trace.digest


async def silent_zookeeper(loop: SimLoop) -> str:
    """ZooKeeper stops responding, which no broker knows yet, just before all of them stop."""
    cluster = await started(loop)
    for id_ in cluster.brokers:
        cluster.zookeeper(id_).silence()
    began_s = loop.time()
    await asyncio.gather(*(cluster.stop(id_) for id_ in cluster.brokers))
    assert loop.time() - began_s < LOST_S + CLOSE_LIMIT_S + SOON_S
    assert all(broker.disk.exists(MARKER) for broker in cluster.brokers.values())
    return loop.trace.digest


async def flushing_produce(loop: SimLoop) -> str:
    """A produce that waits only for the disk of a lone broker is acknowledged."""
    broker = SimulatedBroker(loop)
    await broker.start()
    peer = await broker.connect()
    await create(peer, "t", flush_before_ack="true")
    records = batch(broker.clock.now_ms(), b"x")
    request = loop.create_task(produce(peer, "t", 0, records))
    assert broker.broker is not None
    (partition,) = broker.broker._parts.replicas.partitions.values()
    while partition.log.log_end_offset == 0:
        await asyncio.sleep(0)
        assert not request.done()
    assert partition.log.high_watermark == 0
    await broker.stop()
    assert (await request).error_code is ErrorCode.none
    assert broker.disk.exists(MARKER)
    peer.close()
    return loop.trace.digest


@pytest.mark.parametrize("seed", SEEDS)
def test_the_session_ends_before_the_connections_do(seed: int) -> None:
    simulate(unread_response, seed)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("moves_leaders", [True, False], ids=["moved", "not moved"])
def test_a_produce_that_waits_for_a_follower_is_refused(seed: int, moves_leaders: bool) -> None:
    simulate(lambda loop: parked_produce(loop, moves_leaders=moves_leaders), seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_produce_that_waits_for_the_disk_of_a_lone_broker_is_acknowledged(seed: int) -> None:
    simulate(flushing_produce, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_stop_waits_only_briefly_for_a_zookeeper_that_has_just_become_silent(seed: int) -> None:
    simulate(silent_zookeeper, seed)
