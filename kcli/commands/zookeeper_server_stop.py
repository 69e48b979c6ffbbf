"""`k zookeeper-server-stop`: sends a signal to the ZooKeepers of this machine."""

from __future__ import annotations

import os
from contextlib import suppress
from itertools import pairwise

from kcli.command.command import Manual, Options, command
from kcli.command.output import print_output
from kcli.commands.server_stop import running, signal_named

START = "zookeeper-server-start"
MAIN = "quorumpeermain"
"""The end of the name of Apache's class, in lower case."""

MANUAL = Manual(
    kafka="zookeeper-server-stop.sh",
    examples=(("k zookeeper-server-stop", "Stop all ZooKeepers that this user runs here."),),
    environment=(("SIGNAL", "Name of the signal to send.  Default: TERM."),),
    differences=(
        "Only servers of the same user are found: those of k zookeeper-server-start, and "
        "Apache's (QuorumPeerMain), however they were started. The server of k cluster-start is "
        "stopped with its cluster.",
    ),
    see_also=("k-zookeeper-server-start",),
)


@command(manual=MANUAL)
def zookeeper_server_stop(_options: Options) -> int:
    """Stops the ZooKeepers of this user on this machine, and does not wait until they have ended.

    Acknowledged changes are on disk already, and clients keep their sessions until the next start.
    """
    number = signal_named()
    servers = list(running(after_start))
    if not servers:
        print_output("No zookeeper server to stop")
        return 1
    for server in servers:
        with suppress(ProcessLookupError):  # it ended meanwhile
            os.kill(server.pid, number)
    return 0


def after_start(words: list[str]) -> list[str] | None:
    """Return the words after `k zookeeper-server-start`, or after the class of Apache's server, in
    a command line, if it is one.
    """
    for at, (word, following) in enumerate(pairwise(words)):
        if os.path.basename(word) == "k" and following == START:
            return words[at + 2 :]
    if words and os.path.basename(words[0]) == "java":
        for at, word in enumerate(words):
            if word.lower().endswith(MAIN):
                return words[at + 1 :]
    return None
