"""The server over a simulated network, in simulated time: what keeps a session, what ends it."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kserver.zookeeper_server.jute import (
    PING_XID,
    AclRecord,
    ConnectRequest,
    ConnectResponse,
    CreateRequest,
    Err,
    OpCode,
    Reader,
    ReadRequest,
    ReplyHeader,
    ZooKeeperRequestHeader,
    encode,
    frame,
)
from kserver.zookeeper_server.server import ZooKeeperServer
from kserver.zookeeper_server.settings import Settings
from tests.support.clock import SimClock
from tests.support.disk import SimDisk
from tests.support.loop import SimLoop, simulate
from tests.support.network import host

PORT = 2181
TIMEOUT_S = 6.0
"""Of every session here."""
TICK_S = 3.0
OPEN = (AclRecord(31, "world", "anyone"),)
PERSISTENT, EPHEMERAL = 0, 1


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.session = 0
        self.password = b""

    async def read(self) -> Reader:
        """Raises IncompleteReadError where the server closes first."""
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        return Reader(await self.reader.readexactly(size))

    def send(self, kind: int, *records: Any, xid: int = 1) -> None:
        self.writer.write(frame(ZooKeeperRequestHeader(xid, kind), *records))

    async def reply(self) -> ReplyHeader:
        return (await self.read()).record(ReplyHeader)

    async def call(self, kind: int, *records: Any) -> Err:
        self.send(kind, *records)
        return Err((await self.reply()).err)

    async def create(self, path: str, flags: int = PERSISTENT) -> None:
        assert await self.call(OpCode.CREATE, CreateRequest(path, b"", OPEN, flags)) is Err.OK

    async def exists(self, path: str, *, watch: bool = False) -> bool:
        return await self.call(OpCode.EXISTS, ReadRequest(path, watch)) is Err.OK

    async def ping(self) -> None:
        self.send(OpCode.PING, xid=PING_XID)
        assert (await self.reply()).xid == PING_XID

    async def is_cut_off(self) -> bool:
        """Whether the server closes within a session's timeout, and a tick for its bucket."""
        try:
            async with asyncio.timeout(TIMEOUT_S + 2 * TICK_S):
                return await self.reader.read() == b""
        except TimeoutError:
            return False


class Scene:
    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.clock = SimClock(loop)
        self.disk = SimDisk(loop.random, self.clock)

    async def start(self) -> None:
        settings = Settings("/zookeeper", PORT, "zookeeper", tick_ms=int(1000 * TICK_S))
        self.server = ZooKeeperServer(settings, self.disk, self.clock, self.loop.random, {})
        self.stop_event = asyncio.Event()
        ready = self.loop.create_future()
        with host("zookeeper"):
            run = self.server.run(self.stop_event, lambda *at: ready.set_result(at))
            self.running = asyncio.create_task(run)
        await ready

    async def stop(self) -> None:
        self.stop_event.set()
        await self.running

    async def connect(
        self, session: int = 0, password: bytes = bytes(16), last_zxid: int = 0
    ) -> Client:
        """Raises IncompleteReadError where the server refuses without a word."""
        client = Client(*await asyncio.open_connection("zookeeper", PORT))
        asked = ConnectRequest(0, last_zxid, int(1000 * TIMEOUT_S), session, password)
        body = encode(asked) + b"\0"
        client.writer.write(struct.pack(">i", len(body)) + body)
        answer = (await client.read()).record(ConnectResponse)
        client.session, client.password = answer.session_id, answer.password
        return client


def scenario(test: Callable[[Scene], Awaitable[None]]) -> Callable[[], None]:
    """Run `async def test(scene)` against a server that runs, in a simulation."""

    def run() -> None:
        async def main(loop: SimLoop) -> None:
            scene = Scene(loop)
            await scene.start()
            async with asyncio.timeout(1000):
                await test(scene)
            await scene.stop()

        simulate(main, seed=1)

    run.__name__ = test.__name__
    return run


@scenario
async def test_pings_keep_a_session_and_silence_ends_it_with_its_nodes(scene: Scene) -> None:
    talks, silent = await scene.connect(), await scene.connect()
    await talks.create("/talks", EPHEMERAL)
    await silent.create("/silent", EPHEMERAL)
    for _ in range(20):
        await asyncio.sleep(TIMEOUT_S / 3)
        await talks.ping()
    assert await talks.exists("/talks")
    assert not await talks.exists("/silent")
    assert await silent.is_cut_off()


@scenario
async def test_a_session_that_ends_takes_its_connection_with_it(scene: Scene) -> None:
    client = await scene.connect()
    began_s = scene.loop.time()
    assert await client.is_cut_off()
    assert TIMEOUT_S <= scene.loop.time() - began_s <= TIMEOUT_S + 2 * TICK_S


@scenario
async def test_a_session_speaks_by_its_last_connection(scene: Scene) -> None:
    before = await scene.connect()
    await before.create("/mine", EPHEMERAL)
    now = await scene.connect(before.session, before.password)
    assert now.session == before.session
    began_s = scene.loop.time()
    assert await before.is_cut_off()
    assert scene.loop.time() - began_s < 1
    assert await now.exists("/mine")


@scenario
async def test_a_session_comes_back_with_its_password_only(scene: Scene) -> None:
    client = await scene.connect()
    stranger = await scene.connect(client.session, b"x" * 16)
    assert stranger.session == 0
    assert await stranger.is_cut_off()
    await client.ping()


@scenario
async def test_who_has_seen_a_later_change_than_there_is_is_refused(scene: Scene) -> None:
    client = await scene.connect()
    await client.create("/a")
    zxid = scene.server.zxid
    await scene.connect(client.session, client.password, last_zxid=zxid)
    for session, password in ((0, bytes(16)), (client.session, client.password)):
        with pytest.raises(asyncio.IncompleteReadError):
            await scene.connect(session, password, last_zxid=zxid + 1)


@scenario
async def test_watches_go_with_their_connection(scene: Scene) -> None:
    client, other = await scene.connect(), await scene.connect()
    await client.exists("/a", watch=True)
    await other.exists("/a", watch=True)
    assert scene.server.watches.counts() == (2, 1, 2)
    client.writer.close()
    await client.is_cut_off()
    await other.ping()
    assert scene.server.watches.counts() == (1, 1, 1)


@scenario
async def test_nothing_is_answered_to_a_session_that_has_ended(scene: Scene) -> None:
    """Its requests may be read after it was closed, in the turn before the connection is."""
    client = await scene.connect()
    client.send(OpCode.CLOSE_SESSION)
    client.send(OpCode.EXISTS, ReadRequest("/", False), xid=2)
    client.send(OpCode.CREATE, CreateRequest("/late", b"", OPEN, PERSISTENT), xid=3)
    assert (await client.reply()).err == Err.OK
    with contextlib.suppress(asyncio.IncompleteReadError):
        while True:
            assert (await client.reply()).err == Err.SESSION_EXPIRED
    other = await scene.connect()
    assert not await other.exists("/late")


@scenario
async def test_a_session_comes_back_after_a_start_and_ends_if_it_does_not(scene: Scene) -> None:
    returns, stays_away = await scene.connect(), await scene.connect()
    await returns.create("/returns", EPHEMERAL)
    await stays_away.create("/stays-away", EPHEMERAL)
    await scene.stop()
    await scene.start()
    again = await scene.connect(returns.session, returns.password)
    assert again.session == returns.session
    assert await again.exists("/stays-away")
    for _ in range(20):
        await asyncio.sleep(TIMEOUT_S / 3)
        await again.ping()
    assert await again.exists("/returns")
    assert not await again.exists("/stays-away")
