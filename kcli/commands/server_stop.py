"""`k server-stop`: sends a signal to the brokers of this machine."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from typing import NamedTuple

from kcli.command.command import Manual, Options, command
from kcli.command.options import Refused, key_values, option, option_group, read_properties
from kcli.command.output import complain, print_output

MANUAL = Manual(
    kafka="kafka-server-stop.sh",
    examples=(
        ("k server-stop", "Stop all brokers of this user on this machine."),
        ("k server-stop --node-id=2", "Stop the one whose broker.id or node.id is 2."),
    ),
    environment=(("SIGNAL", "Name of the signal to send.  Default: TERM."),),
    differences=(
        "Only brokers of k are found (k server-start and python -m kserver), and only those of "
        "the same user.",
        "--node-id also matches broker.id, and --override on a broker's command line counts.",
        "Brokers of k cluster-start are not found: they are stopped with their cluster.",
        "The path of a broker's file is relative to the broker's own working directory.",
    ),
    see_also=("k-server-start", "k-cluster-start"),
)


class RunningServer(NamedTuple):
    """A running server: its process, the words of its command line after the command, its
    directory.
    """

    pid: int
    words: list[str]
    directory: str


@command(manual=MANUAL)
@option_group(
    option("--node-id", "Only the broker with this id; takes precedence over --process-role.", "N"),
    option("--process-role", "Only brokers with exactly these process.roles.", "ROLES"),
)
def server_stop(options: Options) -> int:
    """Stops the brokers of this user on this machine, and does not wait until they have ended.

    A stopping broker hands over its leaderships, writes all data, and ends.
    """
    number = signal_named()
    servers = list(running(after_start))
    if options.node_id and options.process_role:
        print_output(
            "When both node-id and process-role are provided, the value for node-id will take "
            "precedence"
        )
    if not servers:
        print_output("No kafka server to stop")
        return 1
    for server in servers:
        if is_selected(server, options.node_id, options.process_role):
            with suppress(ProcessLookupError):  # it ended meanwhile
                os.kill(server.pid, number)
    return 0


def running(after: Callable[[list[str]], list[str] | None]) -> Iterator[RunningServer]:
    """Yield the servers of this user; `after` returns the words after the command in a command
    line.
    """
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if entry.stat().st_uid != os.getuid():
                continue
            with open(f"{entry.path}/cmdline", "rb") as file:
                words = file.read().decode(errors="replace").split("\0")[:-1]
            configs = after(words)
            if configs is not None:
                yield RunningServer(int(entry.name), configs, os.readlink(f"{entry.path}/cwd"))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue


def after_start(words: list[str]) -> list[str] | None:
    """Return the words after `k server-start` or `python -m kserver` in a command line, if it is
    one.
    """
    for at, (word, following) in enumerate(pairwise(words)):
        if (word, following) == ("-m", "kserver"):
            return words[at + 2 :]
        if os.path.basename(word) == "k" and following == "server-start":
            return words[at + 2 :]
    return None


def is_selected(server: RunningServer, node_id: str | None, process_role: str | None) -> bool:
    if not node_id and not process_role:
        return True
    settings = _settings(server)
    if node_id:
        return node_id in (settings.get("node.id"), settings.get("broker.id"))
    return settings.get("process.roles") == process_role


def _settings(server: RunningServer) -> dict[str, str]:
    """Return the settings of its file and its command line."""
    overrides = []
    path = None
    words = iter(server.words)
    for word in words:
        name, _, value = word.lstrip("-").partition("=")
        if word.startswith("-") and name == "override":
            overrides.append(value or next(words, ""))
        elif not word.startswith("-"):
            path = word
    settings = {}
    if path is not None:
        try:
            settings = read_properties(os.path.join(server.directory, path))
        except Refused as error:
            complain(f"k server-stop: process {server.pid}: {error}")
    return settings | key_values(overrides)


def signal_named() -> int:
    """Return the signal that the environment specifies."""
    name = os.environ.get("SIGNAL") or "TERM"
    if name.isdigit():
        return int(name)
    number = getattr(signal, f"SIG{name.upper().removeprefix('SIG')}", None)
    if not isinstance(number, signal.Signals):
        raise Refused(f"{name} is not a signal")
    return number
