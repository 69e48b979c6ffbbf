"""Standard input as a stream of chunks, read without blocking the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import stat
from collections.abc import AsyncIterator

READ_BYTES = 1 << 20


async def chunks(fd: int) -> AsyncIterator[bytes]:
    """Yield the available input until the end.

    Nothing is read ahead of the caller: while it does not ask, a pipe fills and its writer waits.
    """
    with contextlib.suppress(OSError):
        # A pipe of 64 KB gives at most that much at once; with 1 MB the writer can run ahead.
        fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, READ_BYTES)
    while data := await _read(fd):
        yield data


def bytes_left(fd: int) -> int:
    """Return the remaining bytes of a file; 0 if unknown, as for a pipe."""
    file_stat = os.fstat(fd)
    if not stat.S_ISREG(file_stat.st_mode):
        return 0
    return max(0, file_stat.st_size - os.lseek(fd, 0, os.SEEK_CUR))


async def _read(fd: int) -> bytes:
    loop = asyncio.get_running_loop()
    readable = loop.create_future()

    def arrived() -> None:
        loop.remove_reader(fd)
        if not readable.done():
            readable.set_result(None)

    try:
        loop.add_reader(fd, arrived)
    except PermissionError:
        # Files cannot be polled, and need not be; yield to the loop instead.
        await asyncio.sleep(0)
        return os.read(fd, READ_BYTES)
    try:
        await readable
    finally:
        loop.remove_reader(fd)
    return os.read(fd, READ_BYTES)
