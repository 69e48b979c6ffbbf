"""Standard output that does not block the event loop, and counts the bytes written.

A member of a group must send heartbeats while a slow reader, such as `less`, keeps its end of the
pipe full; and it may commit only records that were written without an error.
"""

from __future__ import annotations

import asyncio
import os
import select
import stat
import sys
from collections.abc import Callable

from kcli.command.output import print_bytes, transient, visible

PIECE_BYTES = select.PIPE_BUF
"""A pipe that is writable by poll(2) takes at least this many bytes without blocking."""


class StandardOutput:
    """`written` is the number of bytes written since the last `write` began; a terminal, which gets
    other bytes, takes all or nothing.
    """

    def __init__(self) -> None:
        self.written = 0

    async def write(self, data: bytes) -> None:
        """Write all of the bytes. Raises OSError; `written` is then the number of bytes written."""
        self.written = 0
        sys.stdout.flush()
        if sys.stdout.isatty():
            transient("")
            await self._write(visible(data.decode(errors="replace")).encode(), lambda _: None)
            self.written = len(data)
        else:
            await self._write(data, self._took)

    def _took(self, count: int) -> None:
        self.written += count

    async def _write(self, data: bytes, took: Callable[[int], None]) -> None:
        try:
            descriptor = sys.stdout.fileno()
            never_blocks = stat.S_ISREG(os.fstat(descriptor).st_mode)
        except (OSError, ValueError):  # a test's buffer
            print_bytes(data)
            took(len(data))
            return
        rest = memoryview(data)
        poll = select.poll()
        poll.register(descriptor, select.POLLOUT)
        while rest:
            if never_blocks or poll.poll(0):
                count = os.write(descriptor, rest if never_blocks else rest[:PIECE_BYTES])
                took(count)
                rest = rest[count:]
            else:
                await _writable(descriptor)


async def _writable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    writable = asyncio.Event()
    loop.add_writer(descriptor, writable.set)
    try:
        await writable.wait()
    finally:
        loop.remove_writer(descriptor)
