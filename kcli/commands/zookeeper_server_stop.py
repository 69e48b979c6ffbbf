"""`k zookeeper-server-stop`: a signal for the ZooKeepers of this machine."""

from __future__ import annotations

import os
from contextlib import suppress
from itertools import pairwise
from types import SimpleNamespace

from kcli.command import Manual, command
from kcli.commands.server_stop import running, signal_named
from kcli.output import answer

START = "zookeeper-server-start"

MANUAL = Manual(
    kafka="zookeeper-server-stop.sh",
    examples=(("k zookeeper-server-stop", "Stop all ZooKeepers that this user runs here."),),
    environment=(("SIGNAL", "Name of the signal to send.  Default: TERM."),),
    differences=(
        "Only servers of k are found (k zookeeper-server-start), and only those of the same user.",
    ),
    see_also=("k-zookeeper-server-start",),
)


@command(manual=MANUAL)
def zookeeper_server_stop(_given: SimpleNamespace) -> int:
    """Tells the ZooKeepers that this user runs on this machine to stop, and does not wait.

    What was answered is on disk already, and clients keep their sessions until the next start.
    """
    number = signal_named()
    servers = list(running(after_start))
    if not servers:
        answer("No zookeeper server to stop")
        return 1
    for server in servers:
        with suppress(ProcessLookupError):  # it ended meanwhile
            os.kill(server.pid, number)
    return 0


def after_start(words: list[str]) -> list[str] | None:
    """What follows `k zookeeper-server-start` in a command line, if it is one."""
    for at, (word, following) in enumerate(pairwise(words)):
        if os.path.basename(word) == "k" and following == START:
            return words[at + 2 :]
    return None
