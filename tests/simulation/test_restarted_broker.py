"""A broker that restarts so fast that the controller sees its registrations change but never
missing: what it was sent before is lost."""

from __future__ import annotations

import asyncio

import pytest

from kcli.client.admin.admin import Admin, NewTopic
from kcli.client.config import AdminConfig
from kserver import znodes
from kserver.controller.reassignments import Reassignments
from kserver.model import TopicPartition
from tests.support.loop import SimLoop, simulate
from tests.support.seeds import seeds
from tests.support.simulated_cluster import SimulatedCluster

PATIENCE_S = 60
M0 = TopicPartition("m", 0)


async def a_reassignment(loop: SimLoop) -> None:
    """Its last step waits for the broker whose replica is removed."""
    cluster = SimulatedCluster(loop, 4)
    await cluster.start()
    controller = next(id_ for id_ in cluster.up if controls(cluster, id_))
    first, second, third, fourth = sorted(cluster.up, key=lambda id_: id_ != controller)
    async with Admin(AdminConfig.of(cluster.bootstrap), random=loop.random) as admin:
        await admin.create_topics([NewTopic("m", assignments={0: (first, second, fourth)})])
        await cluster.until_in_sync("m", 1)
        await cluster.cut_power(fourth)
        await admin.alter_reassignments({M0: (first, second, third)})
        async with asyncio.timeout(PATIENCE_S):
            while not reassignments(cluster, controller)._stopping:
                await asyncio.sleep(0.01)
            await cluster.start(fourth)
            while is_moving(cluster):
                await asyncio.sleep(0.1)
    await cluster.until_all_in_sync()
    cluster.check()


def is_moving(cluster: SimulatedCluster) -> bool:
    data = cluster.ensemble.tree.node(znodes.topic_path("m")).data
    return bool(znodes.decode_topic("m", data).removing)


def controls(cluster: SimulatedCluster, id_: int) -> bool:
    broker = cluster.brokers[id_].broker
    return broker is not None and broker._parts.controller.is_active


def reassignments(cluster: SimulatedCluster, id_: int) -> Reassignments:
    broker = cluster.brokers[id_].broker
    assert broker is not None
    return broker._parts.controller._reassignments


@pytest.mark.parametrize("seed", seeds(4))
def test_what_waits_for_it_ends(seed: int) -> None:
    simulate(a_reassignment, seed)
