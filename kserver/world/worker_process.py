"""Runs long CPU-bound work in a process of its own, so that it does not block the event loop.

    parent                                    child, `python -m kserver.world.worker_process`
    function and arguments, pickled    ->     runs it, at a lower priority
                                       <-     result or exception, pickled
    ends, or no longer waits           ->     ends at once

The child ends with its parent, however that ended: its standard input is closed.
"""

from __future__ import annotations

import os
import pickle
import struct
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

_SIZE = struct.Struct(">q")
_NICENESS = 10


async def run(work: Callable[..., T], arguments: tuple[Any, ...]) -> T:
    """Run `work`, a module's function, and return its result. Raises its exception, or OSError if
    the process dies.
    """
    import asyncio

    request = pickle.dumps((work, arguments))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        __name__,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        # A Ctrl-C on the terminal is for the parent to handle.
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(_SIZE.pack(len(request)) + request)
        response = await process.stdout.read()
        status = await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if not response:
        raise OSError(f"a process for {work.__name__} ended early, with status {status}")
    has_succeeded, result = pickle.loads(response)
    if not has_succeeded:
        raise result
    return result  # type: ignore[no-any-return]


def _main() -> None:
    os.nice(_NICENESS)
    (size,) = _SIZE.unpack(sys.stdin.buffer.read(_SIZE.size))
    work, arguments = pickle.loads(sys.stdin.buffer.read(size))
    threading.Thread(target=_end_with_parent, daemon=True).start()
    response: tuple[bool, object]
    try:
        response = True, work(*arguments)
    except Exception as error:
        # Any exception is raised again in the parent.
        response = False, error
    sys.stdout.buffer.write(pickle.dumps(response))


def _end_with_parent() -> None:
    os.read(sys.stdin.fileno(), 1)
    os._exit(1)


if __name__ == "__main__":
    _main()
