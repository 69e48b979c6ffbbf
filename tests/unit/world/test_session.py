import asyncio
from types import NoneType

import pytest

from kserver.world.session import claim, until_connected
from kserver.world.zookeeper import NodeExists, NoNode
from tests.support.clock import SimClock
from tests.support.loop import simulate
from tests.support.zookeeper import SimEnsemble

TIMEOUT_MS = 6000


def scenario(test):
    """Run an `async def test(ensemble)` in a simulation."""

    def run():
        async def main(loop):
            await test(SimEnsemble(loop, SimClock(loop)))

        simulate(main, seed=1)

    run.__name__ = test.__name__
    return run


async def client_of(ensemble):
    zookeeper = ensemble.client(TIMEOUT_MS)
    await zookeeper.start()
    return zookeeper


async def claim_for(zookeeper, name):
    def attempt():
        return zookeeper.create("/held", name, ephemeral=True)

    await claim(zookeeper, "/held", attempt, TIMEOUT_MS)


@scenario
async def test_a_call_outlasts_lost_connections(ensemble):
    zookeeper = await client_of(ensemble)
    zookeeper.cut()
    ensemble.loop.call_later(5, zookeeper.heal)
    assert await until_connected(lambda: zookeeper.children("/")) == []
    assert ensemble.loop.time() > 5


@scenario
async def test_any_other_failure_is_told_at_once(ensemble):
    zookeeper = await client_of(ensemble)
    with pytest.raises(NoNode):
        await until_connected(lambda: zookeeper.get("/nowhere"))


@scenario
async def test_of_those_who_claim_at_once_one_holds(ensemble):
    clients = [await client_of(ensemble) for _ in range(3)]
    claims = [claim_for(zookeeper, b"%d" % n) for n, zookeeper in enumerate(clients)]
    results = await asyncio.gather(*claims, return_exceptions=True)
    assert sorted(map(type, results), key=str) == [NoneType, NodeExists, NodeExists]
    data, stat = await clients[0].get("/held")
    assert stat.ephemeral_owner == clients[int(data)].session_id
    assert results[int(data)] is None


@scenario
async def test_a_claim_waits_for_the_holders_session_to_end(ensemble):
    holder, waiter = await client_of(ensemble), await client_of(ensemble)
    await claim_for(holder, b"holder")
    holder.kill()
    await claim_for(waiter, b"waiter")
    assert (await waiter.get("/held"))[0] == b"waiter"
    assert TIMEOUT_MS / 1000 < ensemble.loop.time() < TIMEOUT_MS / 1000 + 1


@scenario
async def test_a_claim_made_before_stands(ensemble):
    zookeeper = await client_of(ensemble)
    await claim_for(zookeeper, b"first")
    await claim_for(zookeeper, b"again")
    assert (await zookeeper.get("/held"))[0] == b"first"
