"""Starts a server in the background, and waits until it serves or has failed."""

from __future__ import annotations

import fcntl
import os
import select
import sys
from collections.abc import Callable

from kcli.command.options import Refused
from kcli.command.output import complain

LOOK_AGAIN_S = 0.05
PATIENCE_S = 10
MAX_CONSOLES = 100


def start(
    console: str,
    serve: Callable[[Callable[[], None]], int],
    command: str = "k server-start",
    is_up: Callable[[], bool] | None = None,
) -> int:
    """Run `serve` in a process of its own session, with its output in the file `console`. `serve`
    gets a function to call once it serves; if it becomes another program, which cannot call it,
    `is_up` is polled.

    If another server writes to that file, `console` with a number is used, from 2 on.

    Returns twice: in the new process the result of `serve`; here 0 once the server serves, or 1 if
    it ended before, with its reason on standard error.
    """
    console, file = _open(console)
    sys.stdout.flush()
    sys.stderr.flush()
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read_end)
        os.setsid()
        if os.fork() != 0:
            # The session's leader exits, so that no terminal can become the server's.
            os._exit(0)
        _redirect(file)
        # The pipe closes with the server, whatever program it becomes.
        os.set_inheritable(write_end, True)
        return serve(lambda: _signal_ready(write_end))
    os.close(write_end)
    os.close(file)
    os.waitpid(child, 0)
    try:
        return _wait(console, read_end, command, is_up)
    finally:
        os.close(read_end)


def _signal_ready(write_end: int) -> None:
    try:
        os.write(write_end, b"r")
    except BrokenPipeError:
        pass  # the starter did not wait


def _open(console: str) -> tuple[str, int]:
    """Return the first of the file names that no running server writes to, and its descriptor. The
    file is emptied, and locked as long as a process has it open.
    """
    os.makedirs(os.path.dirname(console), exist_ok=True)
    stem, ending = os.path.splitext(console)
    for number in range(1, MAX_CONSOLES + 1):
        path = console if number == 1 else f"{stem}-{number}{ending}"
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            continue
        os.ftruncate(file, 0)
        return path, file
    raise Refused(
        f"{MAX_CONSOLES} servers write to files like {console} already: set LOG_DIR to another"
        " directory"
    )


def _redirect(file: int) -> None:
    """Redirect input from /dev/null, output into the file."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    for target, source in ((0, nothing), (1, file), (2, file)):
        os.dup2(source, target)
    os.close(file)


def _wait(console: str, read_end: int, command: str, is_up: Callable[[], bool] | None) -> int:
    """Wait until the server serves or ends; `read_end` is the end of a pipe that closes with the
    server.
    """
    waited_s = 0.0
    while True:
        readable, _, _ = select.select([read_end], [], [], LOOK_AGAIN_S)
        if readable:
            if os.read(read_end, 1):
                return 0
            complain(_why(_read(console), command))
            return 1
        if is_up is not None and is_up():
            return 0
        waited_s += LOOK_AGAIN_S
        if waited_s >= PATIENCE_S > waited_s - LOOK_AGAIN_S:
            complain(f"{command}: still starting; see {console} for its progress")


def _read(console: str) -> str:
    try:
        with open(console, encoding="utf-8", errors="replace") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def _why(text: str, command: str) -> str:
    """Return the reasons in the last lines of a server."""
    lines = text.splitlines()
    reasons = [line for line in lines if line.startswith(f"{command}:")]
    return "\n".join(
        reasons or lines[-1:] or [f"{command}: the server ended without an error message"]
    )
