"""What one connection may do in a turn of the loop."""

from __future__ import annotations

import asyncio
import socket

from kserver.network.connection import SENDFILE_BYTES, TURN_BYTES
from tests.contract.test_shells import Head, Now, Plain, framed, served, until


class Bottomless(socket.socket):
    """Takes whatever it is given at once; how much that was in each turn of the loop."""

    def __init__(self, sock):
        super().__init__(sock.family, sock.type, sock.proto, sock.detach())
        self.taken = [0]

    def send(self, data, flags=0):
        self.taken[-1] += len(data)
        return len(data)


def test_one_turn_sends_so_much_and_the_next_is_anothers(tmp_path):
    """However fast its client reads, a large answer does not keep the loop from the others."""
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
