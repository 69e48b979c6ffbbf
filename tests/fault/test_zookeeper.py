"""Test the ZooKeeper client against servers that are unreachable, killed and restarted.

The servers are Apache's ZooKeeper and this project's.
"""

from __future__ import annotations

import asyncio
import signal
import time

import pytest

from kserver.world.kazoo import KazooZooKeeper
from kserver.world.zookeeper import CLOSE_LIMIT_S, NO_SESSION, ConnectionLost, SessionEvent
from tests.support.zookeeper_server import OwnZooKeeperServer, ZooKeeperServer

PATIENCE_S = 60


@pytest.fixture(params=[ZooKeeperServer, OwnZooKeeperServer])
def server(request, tmp_path):
    """A server that has not been started yet."""
    server = request.param(tmp_path)
    yield server
    server.kill()


def in_time(test):
    def run(server):
        asyncio.run(asyncio.wait_for(test(server), PATIENCE_S))

    return run


async def off_the_loop(work):
    return await asyncio.get_running_loop().run_in_executor(None, work)


@in_time
async def test_a_session_outlives_its_server(server):
    await off_the_loop(server.start)
    zookeeper, events, forgotten = client(server), asyncio.Queue(), asyncio.Queue()
    await zookeeper.start()
    session = zookeeper.session_id
    zookeeper.on_session(events.put_nowait)
    await zookeeper.create("/passing", b"1", ephemeral=True)
    await zookeeper.get("/passing", forgotten.put_nowait)
    asked = asyncio.gather(*(zookeeper.get("/") for _ in range(100)), return_exceptions=True)
    server.kill()
    assert await events.get() is SessionEvent.DISCONNECTED
    for answer in await asked:
        assert isinstance(answer, tuple | ConnectionLost)
    with pytest.raises(ConnectionLost):
        await zookeeper.get("/")
    await off_the_loop(server.start)
    assert await events.get() is SessionEvent.CONNECTED
    assert zookeeper.session_id == session
    assert (await zookeeper.exists("/passing")).ephemeral_owner == session
    await zookeeper.set("/passing", b"2")
    await zookeeper.close()
    assert forgotten.empty()


@in_time
async def test_a_start_without_a_server_gives_up_in_time(server):
    zookeeper = client(server, connection_timeout_ms=300)
    with pytest.raises(ConnectionLost):
        await zookeeper.start()
    assert zookeeper.session_id == NO_SESSION


@in_time
async def test_a_start_waits_for_its_server(server):
    zookeeper = client(server)
    start = asyncio.create_task(zookeeper.start())
    await off_the_loop(server.start)
    await start
    await zookeeper.create("/a")
    await zookeeper.close()


@in_time
async def test_closing_without_a_server_is_quick(server):
    await off_the_loop(server.start)
    zookeeper, events = client(server), asyncio.Queue()
    await zookeeper.start()
    zookeeper.on_session(events.put_nowait)
    server.kill()
    assert await events.get() is SessionEvent.DISCONNECTED
    async with asyncio.timeout(5):
        await zookeeper.close()
    assert events.empty()


def test_closing_with_a_server_that_does_not_respond_is_quick(server):
    """Includes the end of the event loop, which waits for its threads, and kazoo's close()."""

    async def main():
        zookeeper = client(server)
        await zookeeper.start()
        server.process.send_signal(signal.SIGSTOP)
        began_s = time.monotonic()
        await zookeeper.close()
        return began_s

    server.start()
    began_s = asyncio.run(asyncio.wait_for(main(), PATIENCE_S))
    assert time.monotonic() - began_s < CLOSE_LIMIT_S + 3


def client(server, **options):
    """Apache's server may accept a connection while it starts and never read from it.  kazoo waits
    for the response for the session's timeout, divided by the number of addresses."""
    addresses = f"{server.address},{server.address}"
    return KazooZooKeeper(f"{addresses}/kafka", session_timeout_ms=60_000, **options)
