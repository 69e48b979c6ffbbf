"""Test that all connection shells send the same responses to the same bytes.

    plain       network/connection over a socket, as the broker listens
    stream      network/stream over an asyncio transport of a socket
    simulated   network/stream over the simulated network, as simulations listen

A script defines the response to each frame. Frames arrive in arbitrary pieces, and the client reads
at its own pace.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import itertools
import os
import random
import socket
import struct
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kserver.errors import ProtocolError
from kserver.network.connection import (
    COPY_BELOW_BYTES,
    JOIN_BELOW_BYTES,
    SENDFILE_BYTES,
    Connection,
)
from kserver.network.conversation import BUFFER_BYTES, OUT_LIMIT_BYTES, Buffers, Pending
from kserver.network.stream import StreamConnection
from kserver.world.disk import FileRange, OsDisk
from tests.support.clock import SimClock
from tests.support.disk import SimDisk
from tests.support.loop import host, simulate

PATIENCE_S = 20
MAX_FRAME_BYTES = 8 << 20
FILE_BYTES = 3 * SENDFILE_BYTES
CONTENT = random.Random(0).randbytes(FILE_BYTES)
REASON = "on purpose"
NEVER = -1
"""Number of turns of the loop after which a response is never sent."""


# Responses to frames


@dataclass(frozen=True)
class Head:
    """`size` bytes of the response's own."""

    size: int


@dataclass(frozen=True)
class Range:
    """Bytes of a file; a cold one is never reported as cached."""

    position: int
    size: int
    cold: bool = False


@dataclass(frozen=True)
class Now:
    parts: tuple[Head | Range, ...]


@dataclass(frozen=True)
class Later:
    turns: int
    exclusive: bool
    answer: Now | None


Answer = Now | Later | None


def content_of(answer: Answer, number: int) -> bytes:
    if isinstance(answer, Later):
        answer = answer.answer
    if answer is None:
        return b""
    return b"".join(
        bytes((number % 251,)) * part.size
        if isinstance(part, Head)
        else CONTENT[part.position : part.position + part.size]
        for part in answer.parts
    )


# Server side


class ColdFile:
    """A file whose bytes are never reported as cached."""

    def __init__(self, file):
        self._file = file

    def read_cached(self, position, size):
        return None

    def read_cached_into(self, position, buffer):
        return False

    def __getattr__(self, name):
        return getattr(self._file, name)


class UnreadableFile(ColdFile):
    def read_at(self, position, size):
        raise OSError(errno.EIO, os.strerror(errno.EIO))


@dataclass
class Server:
    """The arguments of a shell: disk, handlers of frames and of the close, and a record of the
    calls."""

    disk: object
    file: object
    script: Sequence[Answer]
    frames: list[bytes] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)
    later: list[Pending] = field(default_factory=list)
    connection: object = None

    def open(self, connection):
        self.connection = connection
        return self.dispatch

    def dispatch(self, frame):
        assert all(pending.ready or not pending.exclusive for pending in self.later)
        number = len(self.frames)
        self.frames.append(bytes(frame))
        answer = self.script[number]
        if answer is ProtocolError:
            raise ProtocolError(REASON)
        if not isinstance(answer, Later):
            return self.made(answer, number)
        pending = Pending(exclusive=answer.exclusive)
        self.later.append(pending)
        complete = lambda: pending.complete(self.made(answer.answer, number))  # noqa: E731
        after_turns(answer.turns, complete)
        return pending

    def made(self, answer, number):
        if answer is None:
            return None
        parts = []
        for part in answer.parts:
            if isinstance(part, Head):
                parts.append(bytes((number % 251,)) * part.size)
            else:
                file = ColdFile(self.file) if part.cold else self.file
                parts.append(FileRange(file, part.position, part.size))
        return parts[0] if len(parts) == 1 and isinstance(parts[0], bytes) else parts

    def on_close(self, connection, reason):
        assert connection is self.connection
        self.closed.append(reason)


def after_turns(turns, callback):
    if turns == NEVER:
        return
    if turns:
        asyncio.get_running_loop().call_soon(after_turns, turns - 1, callback)
    else:
        callback()


class Plain:
    """network/connection over a socket."""

    def __init__(self, directory):
        self._directory = directory

    def run(self, main):
        return asyncio.run(self._guarded(main))

    async def _guarded(self, main):
        errors = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: errors.append(context))
        async with asyncio.timeout(PATIENCE_S):
            await main(self)
        await turns(5)
        gc.collect()
        assert not errors

    def disk(self):
        disk = OsDisk()
        path = f"{self._directory}/file"
        if not disk.exists(path):
            disk.open(path, create=True).write_at(0, CONTENT)
        return disk, path

    async def connect(self, server, buffer_bytes=None):
        near, far = socket.socketpair()
        for sock in (near, far):
            sock.setblocking(False)
            if buffer_bytes:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer_bytes)
        await self._serve(far, server)
        return await asyncio.open_connection(sock=near)

    async def _serve(self, sock, server):
        Connection(
            asyncio.get_running_loop(),
            sock,
            "client",
            server.open,
            max_frame_bytes=MAX_FRAME_BYTES,
            buffers=Buffers(),
            disk=server.disk,
            on_close=server.on_close,
        )


def stream(server):
    return StreamConnection(
        asyncio.get_running_loop(),
        server.open,
        max_frame_bytes=MAX_FRAME_BYTES,
        buffers=Buffers(),
        disk=server.disk,
        on_open=lambda connection: True,
        on_close=server.on_close,
    )


class Stream(Plain):
    """network/stream over an asyncio transport of a socket."""

    async def _serve(self, sock, server):
        loop = asyncio.get_running_loop()
        await loop.connect_accepted_socket(lambda: stream(server), sock)


class Simulated:
    """network/stream over the simulated network."""

    def __init__(self, _):
        self._ports = itertools.count(1000)

    def run(self, main):
        async def scenario(loop):
            self._loop = loop
            async with asyncio.timeout(PATIENCE_S):
                await main(self)

        return simulate(scenario, seed=0)

    def disk(self):
        disk = SimDisk(self._loop.random, SimClock(self._loop))
        disk.open("/file", create=True).write_at(0, CONTENT)
        return disk, "/file"

    async def connect(self, server, buffer_bytes=None):
        port = next(self._ports)
        with host("server"):
            await self._loop.create_server(lambda: stream(server), port=port)
        return await asyncio.open_connection("server", port)


@pytest.fixture(params=[Plain, Stream, Simulated], ids=lambda shell: shell.__name__.lower())
def shell(request, tmp_path):
    return request.param(tmp_path)


def served(shell, script):
    disk, path = shell.disk()
    return Server(disk, disk.open(path), script)


async def turns(number):
    for _ in range(number):
        await asyncio.sleep(0)


async def until(condition):
    while not condition():
        await asyncio.sleep(0)


def framed(bodies):
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


# Scripts

BOUNDS = (
    *(1, 100, JOIN_BELOW_BYTES, JOIN_BELOW_BYTES + 1),
    *(COPY_BELOW_BYTES - 30, COPY_BELOW_BYTES, SENDFILE_BYTES + 1, FILE_BYTES),
)
HEADS = st.sampled_from((1, 30, 5000, 70_000)).map(Head)
RANGES = st.builds(
    lambda size, position, cold: Range(position % (FILE_BYTES - size + 1), size, cold),
    st.sampled_from(BOUNDS),
    st.integers(0, FILE_BYTES),
    st.booleans(),
)
NOW = st.builds(lambda head, rest: Now((head, *rest)), HEADS, st.lists(HEADS | RANGES, max_size=3))
LATER = st.builds(Later, st.integers(0, 3), st.booleans(), NOW | st.none())
ANSWERS = st.lists(NOW | LATER | st.none(), min_size=1, max_size=8)
FRAME_BYTES = st.sampled_from((0, 1, 30, 30, 30, BUFFER_BYTES - 4, BUFFER_BYTES, 5 << 20))
COLD = Now((Head(10), Range(0, FILE_BYTES, cold=True), Head(5)))
SMALL_COLD = Now((Head(10), Range(7, 100, cold=True), Head(5)))


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    script=ANSWERS,
    sizes=st.lists(FRAME_BYTES, min_size=8, max_size=8),
    cuts=st.lists(st.sampled_from((1, 3, 34, 1000, 1 << 20)), min_size=1, max_size=4),
    buffer_bytes=st.sampled_from((None, 1, 20_000)),
)
@example(script=[COLD, SMALL_COLD, COLD], sizes=[5] * 8, cuts=[1 << 20], buffer_bytes=None)
@example(script=[Later(1, True, COLD), None], sizes=[5] * 8, cuts=[3], buffer_bytes=1)
@example(script=[None, Later(2, False, None), COLD], sizes=[5] * 8, cuts=[9], buffer_bytes=None)
def test_the_same_bytes_get_the_same_answers_in_order(shell, script, sizes, cuts, buffer_bytes):
    bodies = [bytes((n,)) * size for n, size in zip(range(len(script)), sizes, strict=False)]
    expected = b"".join(content_of(answer, n) for n, answer in enumerate(script))

    async def main(shell):
        server = served(shell, script)
        reader, writer = await shell.connect(server, buffer_bytes)

        async def send():
            data, at = framed(bodies), 0
            for size in itertools.cycle(cuts):
                # Large frames are cut finely only at the start; otherwise it would take minutes.
                size = size if at < 1000 else max(size, len(data) // 20)
                writer.write(data[at : at + size])
                await writer.drain()
                await asyncio.sleep(0)
                at += size
                if at >= len(data):
                    return

        sending = asyncio.create_task(send())
        assert await reader.readexactly(len(expected)) == expected
        await sending
        await until(lambda: len(server.frames) == len(bodies))
        assert server.frames == bodies
        await until(lambda: all(pending.ready for pending in server.later))
        assert not server.closed
        writer.close()
        await until(lambda: server.closed)
        assert server.closed == [""]
        assert await reader.read() == b""

    shell.run(main)


def test_a_reader_that_does_not_read_is_not_served_on_and_loses_nothing(shell):
    """Unsent bytes stay within the limit plus one response; further requests are not read."""
    large = Now((Head(100), Range(0, FILE_BYTES), Head(7)))
    script = [large, Later(1, True, large), None, Now((Head(70_000),))] * 25
    expected = b"".join(content_of(answer, n) for n, answer in enumerate(script))
    bodies = [b"x" * 1000] * len(script)

    async def main(shell):
        server = served(shell, script)
        reader, writer = await shell.connect(server, 20_000)
        sending = asyncio.create_task(write_slowly(writer, framed(bodies)))
        unread_from = -1
        while len(server.frames) > unread_from:
            unread_from = len(server.frames)
            await asyncio.sleep(0.05)
        # The client's side and the transports buffer some of the bytes.
        in_transit = 2 << 20
        answered = sum(len(content_of(a, n)) for n, a in enumerate(script[:unread_from]))
        assert answered <= OUT_LIMIT_BYTES + 2 * FILE_BYTES + in_transit
        assert not sending.done() or unread_from < len(script)
        received = bytearray()
        while len(received) < len(expected):
            received += await reader.readexactly(min(100_000, len(expected) - len(received)))
        assert received == expected
        await sending
        writer.close()
        await until(lambda: server.closed)
        assert len(server.frames) == len(script)

    shell.run(main)


async def write_slowly(writer, data):
    for at in range(0, len(data), 5000):
        writer.write(data[at : at + 5000])
        await writer.drain()


@pytest.mark.parametrize("turns_first", [0, 1, 2, 5, 20])
@pytest.mark.parametrize(
    "script",
    [
        [COLD] * 3,
        [Now((Head(10), Range(0, FILE_BYTES)))] * 3,
        [Later(10, True, COLD), COLD],
        [Later(10, False, COLD), None, Later(3, False, None), COLD],
        [Now((Head(3 << 20),))],
    ],
    ids=["cold", "hot", "parked", "in line", "bytes"],
)
def test_a_client_may_leave_at_any_time(shell, script, turns_first):
    """The connection closes once, and releases the files that it would have sent."""

    async def main(shell):
        server = served(shell, script)
        _, writer = await shell.connect(server, 5_000)
        writer.write(framed([b"x"] * len(script)))
        await turns(turns_first)
        writer.transport.abort()
        await until(lambda: server.closed)
        await turns(20)
        assert len(server.closed) == 1
        await let_go(server)

    shell.run(main)


def test_a_client_that_leaves_while_an_answer_is_awaited_is_noticed(shell):
    """A connection whose response may never be ready still notices that its client has left."""

    async def main(shell):
        abandoned = []
        server = served(shell, [Later(NEVER, True, None)])
        _, writer = await shell.connect(server)
        writer.write(framed([b"x", b"held back"]))
        await until(lambda: server.later)
        server.later[0].on_abandoned = lambda: abandoned.append(1)
        writer.close()
        await until(lambda: server.closed)
        assert abandoned == [1]
        assert server.frames == [b"x"]

    shell.run(main)


async def let_go(server):
    """Wait until the connection no longer holds the file."""
    file = weakref.ref(server.file) if isinstance(server.disk, SimDisk) else None
    descriptor = server.file.fileno()
    server.file = server.connection = None
    server.later.clear()
    while file is not None and file() is not None:
        gc.collect()
        await asyncio.sleep(0.001)
    while descriptor >= 0 and is_open(descriptor):
        gc.collect()
        await asyncio.sleep(0.001)


def is_open(descriptor):
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def test_the_broker_may_close_at_any_time(shell):
    async def main(shell):
        for wait in (0, 1, 3, 10):
            server = served(shell, [COLD, Later(5, True, COLD), COLD])
            reader, writer = await shell.connect(server, 5_000)
            writer.write(framed([b"x"] * 3))
            await until(lambda server=server: server.connection is not None)
            await turns(wait)
            server.connection.close(REASON)
            server.connection.close("again")
            await until(lambda server=server: server.closed)
            await turns(20)
            assert server.closed == [REASON]
            received = await read_rest(reader)
            expected = content_of(COLD, 0) + content_of(COLD, 1) + content_of(COLD, 2)
            assert expected.startswith(received)
            await let_go(server)
            writer.close()

    shell.run(main)


def test_a_broker_that_stops_answers_what_it_has_taken(shell):
    """It does not respond to requests that are held back, and does not wait for an exclusive
    response."""

    async def main(shell):
        script = [Later(40, False, COLD), COLD, Later(20, False, None), Later(NEVER, True, COLD)]
        server = served(shell, script)
        reader, writer = await shell.connect(server, 5_000)
        writer.write(framed([b"taken"] * 4 + [b"held back"] * 3))
        await until(lambda: len(server.frames) == 4)
        server.connection.finish()
        writer.write(framed([b"late"]))
        assert await read_rest(reader) == content_of(COLD, 0) + content_of(COLD, 1)
        await until(lambda: server.closed)
        assert server.closed == ["shutdown"]
        assert server.frames == [b"taken"] * 4
        writer.close()

    shell.run(main)


async def read_rest(reader):
    received = bytearray()
    try:
        while data := await reader.read(1 << 16):
            received += data
    except ConnectionError:
        pass
    return bytes(received)


def test_bad_bytes_end_the_connection_behind_the_answers_before_them(shell):
    async def main(shell):
        answers = [Now((Head(40), Range(0, 9000, cold=True))), Later(1, True, Now((Head(5),)))]
        server = served(shell, [*answers, ProtocolError])
        reader, writer = await shell.connect(server)
        expected = b"".join(content_of(answer, n) for n, answer in enumerate(answers))
        writer.write(framed([b"good", b"good"]))
        assert await reader.readexactly(len(expected)) == expected
        writer.write(framed([b"bad", b"never seen"]))
        assert await read_rest(reader) == b""
        await until(lambda: server.closed)
        assert server.closed == [REASON]
        assert server.frames == [b"good", b"good", b"bad"]
        writer.close()

    shell.run(main)


@pytest.mark.parametrize("size", [-1, MAX_FRAME_BYTES + 1, 2**31 - 1])
def test_a_length_that_no_frame_may_have_ends_the_connection(shell, size):
    async def main(shell):
        server = served(shell, [Now((Head(3),))])
        reader, writer = await shell.connect(server)
        writer.write(framed([b"good"]))
        assert len(await reader.readexactly(3)) == 3
        writer.write(struct.pack(">i", size))
        assert await read_rest(reader) == b""
        await until(lambda: server.closed)
        assert "socket.request.max.bytes" in server.closed[0]
        writer.close()

    shell.run(main)


@pytest.mark.parametrize("size", [100, 20_000, SENDFILE_BYTES, 2 * SENDFILE_BYTES])
@pytest.mark.parametrize("cold", [False, True])
def test_a_file_that_is_shorter_than_the_answer_ends_the_connection(shell, size, cold):
    """The response's length was already sent, so the next response would be read as the file's
    bytes."""

    async def main(shell):
        answer = Now((Head(10), Range(FILE_BYTES - size // 2, size, cold)))
        server = served(shell, [answer])
        reader, writer = await shell.connect(server)
        writer.write(framed([b"x"]))
        received = await read_rest(reader)
        assert content_of(answer, 0).startswith(received)
        await until(lambda: server.closed)
        assert "shorter" in server.closed[0]
        writer.close()

    shell.run(main)


@pytest.mark.parametrize("size", [100, FILE_BYTES])
def test_a_disk_that_fails_ends_the_connection(shell, size):
    async def main(shell):
        server = served(shell, [Now((Head(10), Range(0, size, cold=True)))])
        server.file = UnreadableFile(server.file)
        reader, writer = await shell.connect(server)
        writer.write(framed([b"x"]))
        assert len(await read_rest(reader)) <= 10
        await until(lambda: server.closed)
        assert os.strerror(errno.EIO) in server.closed[0]
        writer.close()

    shell.run(main)
