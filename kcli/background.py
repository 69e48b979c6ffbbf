"""Starts a server in the background, and stays until it answers or has failed."""

from __future__ import annotations

import asyncio
import os
import re
import select
import sys
from collections.abc import Callable

from kcli.output import complain
from kserver.errors import ProtocolError
from kserver.peer import Peer, PeerOptions

LISTENING = re.compile(r"listening on (\w+)://\[?(\S*?)\]?:(\d+)")
STARTED = re.compile(r"\[KafkaServer id=\d+\] started")
LOOK_AGAIN_S = 0.05
PATIENCE_S = 10
ANSWER_MS = 5000
EVERY_ADDRESS = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}


def broker_is_up(said: str) -> bool:
    """Whether a broker that said so far has started, and answers."""
    return STARTED.search(said) is not None and _answers(said)


def start(
    console: str,
    serve: Callable[[], int],
    command: str = "k server-start",
    is_up: Callable[[str], bool] = broker_is_up,
) -> int:
    """Run `serve` in a process of its own session, its output in the file `console`.

    Returns twice: in the new process what `serve` returned; here 0 once the server has answered,
    or 1 when it ended before, with its reason on standard error.
    """
    os.makedirs(os.path.dirname(console), exist_ok=True)
    # Emptied here, before the new process is there: what an earlier server said there would else
    # be taken for its word.
    os.close(os.open(console, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644))
    sys.stdout.flush()
    sys.stderr.flush()
    alive, held = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(alive)
        os.setsid()
        if os.fork() != 0:
            # The session's leader goes, so that no terminal can become the server's.
            os._exit(0)
        _redirect(console)
        return serve()
    os.close(held)
    os.waitpid(child, 0)
    try:
        return _wait(console, alive, command, is_up)
    finally:
        os.close(alive)


def _redirect(console: str) -> None:
    """Input from nowhere, output into the file."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    file = os.open(console, os.O_WRONLY | os.O_APPEND, 0o644)
    for target, source in ((0, nothing), (1, file), (2, file)):
        os.dup2(source, target)


def _wait(console: str, alive: int, command: str, is_up: Callable[[str], bool]) -> int:
    """`alive` is the end of a pipe that closes with the server."""
    waited_s = 0.0
    while True:
        ended, _, _ = select.select([alive], [], [], LOOK_AGAIN_S)
        said = _read(console)
        if ended:
            complain(_why(said, command))
            return 1
        if is_up(said):
            return 0
        waited_s += LOOK_AGAIN_S
        if waited_s >= PATIENCE_S > waited_s - LOOK_AGAIN_S:
            complain(f"{command}: still starting; {console} says how far it is")


def _read(console: str) -> str:
    try:
        with open(console, encoding="utf-8", errors="replace") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def _why(said: str, command: str) -> str:
    """The reasons among a server's last words."""
    lines = said.splitlines()
    reasons = [line for line in lines if line.startswith(f"{command}:")]
    return "\n".join(reasons or lines[-1:] or [f"{command}: the server ended without a word"])


def _answers(said: str) -> bool:
    """Whether the first listener that speaks without TLS agrees on versions with a client."""
    for protocol, host, port in LISTENING.findall(said):
        if protocol == "PLAINTEXT":
            return asyncio.run(_connects(EVERY_ADDRESS.get(host, host), int(port)))
    return True


async def _connects(host: str, port: int) -> bool:
    try:
        peer = await Peer.connect(host, port, PeerOptions(setup_timeout_ms=ANSWER_MS))
    except (OSError, ProtocolError):
        return False
    peer.close()
    await peer.closed
    return True
