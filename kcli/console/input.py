"""Standard input as a stream of chunks, read without holding up the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import stat
from collections.abc import AsyncIterator

READ_BYTES = 1 << 20


async def chunks(fd: int) -> AsyncIterator[bytes]:
    """What can be read, as it comes, until the end.

    Nothing is read ahead of the caller: while it does not ask, a pipe fills and its writer waits.
    """
    with contextlib.suppress(OSError):
        # A pipe holds 64 KB, and so gives no more at once; with 1 MB the writer runs ahead.
        fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, READ_BYTES)
    while data := await _read(fd):
        yield data


def bytes_left(fd: int) -> int:
    """How many bytes a file still has; 0 where that cannot be known, as of a pipe."""
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode):
        return 0
    return max(0, found.st_size - os.lseek(fd, 0, os.SEEK_CUR))


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
        # Files cannot be waited for, and need not be; the loop still gets its turn.
        await asyncio.sleep(0)
        return os.read(fd, READ_BYTES)
    try:
        await readable
    finally:
        loop.remove_reader(fd)
    return os.read(fd, READ_BYTES)
