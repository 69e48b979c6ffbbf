"""The simulated ZooKeeper under faults that a real one is not put through on demand."""

from __future__ import annotations

import asyncio

import pytest

from kserver.world.zookeeper import ConnectionLost, SessionEvent
from tests.support.clock import SimClock
from tests.support.loop import simulate
from tests.support.zookeeper import SimEnsemble


def in_simulation(test):
    def run():
        async def main(loop):
            await test(SimEnsemble(loop, SimClock(loop)))

        for seed in range(5):
            simulate(main, seed)

    return run


async def started(ensemble):
    zookeeper = ensemble.client(session_timeout_ms=6_000)
    await zookeeper.start()
    return zookeeper


@in_simulation
async def test_a_session_outlives_a_short_cut(ensemble):
    zookeeper, events = await started(ensemble), []
    await zookeeper.create("/passing", ephemeral=True)
    session = zookeeper.session_id
    zookeeper.on_session(events.append)
    zookeeper.cut()
    await asyncio.sleep(5)
    with pytest.raises(ConnectionLost):
        await zookeeper.get("/passing")
    zookeeper.heal()
    await asyncio.sleep(10)
    assert (await zookeeper.exists("/passing")).ephemeral_owner == zookeeper.session_id == session
    assert events == [SessionEvent.DISCONNECTED, SessionEvent.CONNECTED]


@in_simulation
async def test_a_session_ends_in_a_long_cut(ensemble):
    zookeeper, other, events = await started(ensemble), await started(ensemble), []
    await zookeeper.create("/passing", ephemeral=True)
    gone = asyncio.get_running_loop().create_future()
    await other.exists("/passing", gone.set_result)
    zookeeper.on_session(events.append)
    zookeeper.cut()
    await asyncio.sleep(5)
    assert not gone.done()
    await asyncio.sleep(2)
    assert gone.done()
    assert events == [SessionEvent.DISCONNECTED], "a client that is cut off cannot know"
    zookeeper.heal()
    await asyncio.sleep(1)
    assert events[1:] == [SessionEvent.EXPIRED, SessionEvent.CONNECTED]
    assert await zookeeper.exists("/passing") is None


@in_simulation
async def test_a_dead_process_is_missed_after_its_timeout(ensemble):
    zookeeper, other, events = await started(ensemble), await started(ensemble), []
    await zookeeper.create("/passing", ephemeral=True)
    zookeeper.on_session(events.append)
    zookeeper.kill()
    await asyncio.sleep(5)
    assert await other.exists("/passing")
    await asyncio.sleep(2)
    assert await other.exists("/passing") is None
    assert events == []


def test_a_write_under_way_when_the_connection_is_cut_happens_or_not():
    async def main(loop):
        ensemble = SimEnsemble(loop, SimClock(loop))
        zookeeper, other = await started(ensemble), await started(ensemble)
        write = asyncio.create_task(zookeeper.create("/a"))
        await asyncio.sleep(0.001)
        zookeeper.cut()
        try:
            await write
        except ConnectionLost:
            outcome = "lost"
        else:
            outcome = "answered"
        return outcome, await other.exists("/a") is not None

    outcomes = {simulate(main, seed) for seed in range(50)}
    assert outcomes == {("lost", False), ("lost", True), ("answered", True)}
