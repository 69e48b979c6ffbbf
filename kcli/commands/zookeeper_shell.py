"""`k zookeeper-shell`: ZooKeeper's shell, for one command or for many."""

from __future__ import annotations

import io
import logging
import sys
from typing import TYPE_CHECKING

import click

from kcli.command.command import Command, Manual, Options, command
from kcli.command.options import Refused, option, option_group, refuse
from kcli.command.output import print_output

if TYPE_CHECKING:
    from kcli.zookeeper_shell import ZooKeeperShell

MANUAL = Manual(
    kafka="zookeeper-shell.sh",
    examples=(
        ("k zookeeper-shell localhost:2181 ls /brokers/ids", "The registered brokers."),
        ("k zookeeper-shell localhost:2181/kafka get -s /controller", "The current controller."),
        ("echo 'ls /' | k zookeeper-shell localhost:2181", "Commands from a pipe."),
    ),
    statuses=(
        (0, "The last command did what it was asked."),
        (1, "The command failed, or no ZooKeeper answers; the reason is on standard error."),
        (127, "There is no such command."),
    ),
    differences=(
        "The commands are ls, get, set, create, delete, deleteall, stat, getAcl, setAcl, addauth, "
        "sync, getAllChildrenNumber, config, version, connect, close, history, redo, printwatches "
        "and quit. addWatch, removewatches, getEphemerals, whoami, reconfig and quotas are "
        "refused, and so are create -c and -t.",
        "The line that says that the session is connected always comes before the answers.",
        "On a terminal there is a prompt; from a pipe there is none.",
        "If no server listens at the address, the error is printed at once; if a server does not "
        "answer, after -timeout.",
        "-zk-tls-config-file is refused: TLS to ZooKeeper is not supported yet.",
    ),
    see_also=("k-zookeeper-server-start",),
)
USAGE = "USAGE: k zookeeper-shell zookeeper_host:port[/path] [-zk-tls-config-file file] [args...]"


class Shell(Command):
    """A command whose options precede the shell's command; the words after that are the shell's
    own.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        with_value = {
            name for option in self.options() if not option.is_flag for name in option.opts
        }
        hosts: list[str] = []
        own: list[str] = []
        rest = list(args)
        while rest and (not hosts or rest[0].startswith("-")):
            word = rest.pop(0)
            if not word.startswith("-"):
                hosts.append(word)
                continue
            own.append(word)
            if word in with_value and rest:
                own.append(rest.pop(0))
        super().parse_args(ctx, own)
        ctx.params["words"] = [*hosts, *rest]
        return []


@command(manual=MANUAL, cls=Shell)
@option_group(
    click.argument("words", nargs=-1, metavar="HOST:PORT,...[/CHROOT] [COMMAND [WORDS]]"),
    option("-timeout", "Session timeout in milliseconds.  Default: 30000.", "MS"),
    option("-r", "Accept a read-only server."),
    option("-zk-tls-config-file", "Refused.", "FILE"),
)
def zookeeper_shell(options: Options) -> int:
    """Runs one command of ZooKeeper's shell, or the commands on standard input.

    Any server that speaks ZooKeeper's protocol works: Apache's, or that of k
    zookeeper-server-start.
    """
    from kazoo.handlers.threading import KazooTimeoutError

    from kcli.zookeeper_shell import NOBODY, Ended, ZooKeeperShell, look

    if options.zk_tls_config_file is not None:
        raise Refused(
            "-zk-tls-config-file is not supported: leave it out, there is no TLS to ZooKeeper yet"
        )
    if not options.words:
        print_output(USAGE)
        return 1
    hosts, *words = options.words
    timeout = options.timeout or "30000"
    if not timeout.isdigit() or int(timeout) == 0:
        refuse(f"-timeout takes milliseconds, not {timeout}")
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    print_output(f"Connecting to {hosts}")
    sys.stdout.flush()
    look(hosts)
    shell = ZooKeeperShell(hosts, int(timeout) / 1000, read_only=options.r)
    try:
        shell.connect()
        if words:
            shell.run(words)
        else:
            print_output("Welcome to ZooKeeper!\nJLine support is disabled")
            _converse(shell)
    except Ended:
        pass
    except KazooTimeoutError as error:
        raise Refused(NOBODY.format(hosts)) from error
    finally:
        shell.leave()
    return shell.status


def _converse(shell: ZooKeeperShell) -> None:
    """Run lines until quit, or until the end of standard input."""
    if not sys.stdin.isatty():
        if isinstance(sys.stdin, io.TextIOWrapper):
            sys.stdin.reconfigure(errors="surrogateescape")
        for line in sys.stdin:
            shell.line(line.rstrip("\n"))
        return
    import readline  # noqa: F401  (its import gives `input` a history)

    while True:
        try:
            shell.line(input(shell.prompt))
        except EOFError:
            return
