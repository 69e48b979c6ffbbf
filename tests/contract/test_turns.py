"""Test how much one connection may send in one turn of the event loop, and partial sends."""

from __future__ import annotations

import asyncio
import socket

import pytest

from kserver.network.connection import SENDFILE_BYTES, TURN_BYTES
from tests.contract.test_shells import (
    Head,
    Now,
    Plain,
    Range,
    content_of,
    framed,
    served,
    until,
)


class Bottomless(socket.socket):
    """A socket that accepts any amount at once, and counts the bytes sent in each turn of the
    loop."""

    def __init__(self, sock):
        super().__init__(sock.family, sock.type, sock.proto, sock.detach())
        self.taken = [0]

    def send(self, data, flags=0):
        self.taken[-1] += len(data)
        return len(data)


def test_one_turn_sends_so_much_and_the_next_is_anothers(tmp_path):
    """A large response does not block other connections, however fast its client reads."""
    parts = 40
    script = [Now((Head(100_000),) * parts)]

    async def main(shell):
        near, far = socket.socketpair()
        far.setblocking(False)
        sock = Bottomless(far)
        server = served(shell, script)
        await shell._serve(sock, server)
        near.sendall(framed([b"x"]))
        while sum(sock.taken) < parts * 100_000:
            sock.taken.append(0)
            await asyncio.sleep(0)
        assert max(sock.taken) <= TURN_BYTES + SENDFILE_BYTES + 100_000
        near.close()
        await until(lambda: server.closed)

    shell = Plain(tmp_path)
    shell.run(main)


class Stingy(socket.socket):
    """A socket that accepts at most `most` bytes per send, as with a slow reader."""

    def __init__(self, sock, most):
        super().__init__(sock.family, sock.type, sock.proto, sock.detach())
        self.most = most

    def send(self, data, flags=0):
        return super().send(data[: self.most], flags)


@pytest.mark.parametrize("most", [1, 29, 30, 31, 15_000, 20_029])
def test_what_was_sent_in_part_goes_on_from_there(tmp_path, most):
    """Head and file bytes are sent together; a partial send may end in either or between them."""
    script = [Now((Head(30), Range(5, 20_000))), Now((Head(30), Range(9, 20_000), Head(4)))]
    expected = b"".join(content_of(answer, n) for n, answer in enumerate(script))

    async def main(shell):
        near, far = socket.socketpair()
        for sock in (near, far):
            sock.setblocking(False)
        server = served(shell, script)
        await shell._serve(Stingy(far, most), server)
        reader, writer = await asyncio.open_connection(sock=near)
        writer.write(framed([b"x", b"y"]))
        assert await reader.readexactly(len(expected)) == expected
        writer.close()
        await until(lambda: server.closed)

    Plain(tmp_path).run(main)
