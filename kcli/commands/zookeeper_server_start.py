"""`k zookeeper-server-start`: a ZooKeeper of one machine, in the foreground or the background."""

from __future__ import annotations

import os
from types import SimpleNamespace

import click

from kcli.command import Manual, command
from kcli.options import option, refuse, together
from kcli.output import discard_unwritable

CONSOLE = "zookeeper.out"
SERVES = "ZooKeeper serves on "

MANUAL = Manual(
    kafka="zookeeper-server-start.sh",
    examples=(
        ("k zookeeper-server-start zookeeper.properties", "A ZooKeeper as the file says."),
        (
            "k zookeeper-server-start -daemon zookeeper.properties",
            "In the background.",
        ),
    ),
    environment=(
        (
            "LOG_DIR",
            "Directory of -daemon's console file.  Default: logs, beside the default data of "
            "k server-start.",
        ),
        ("XDG_DATA_HOME", "Where that default data lies: its directory k."),
    ),
    statuses=(
        (
            0,
            "The server was stopped by SIGTERM, SIGHUP or Ctrl-C; with -daemon, it runs and "
            "answers.",
        ),
        (1, "It could not start, or its disk failed; standard error says why."),
    ),
    differences=(
        "The server is not Java's: it speaks ZooKeeper's protocol and keeps its own file, "
        "znodes.msgpack in dataDir, of which Apache's ZooKeeper reads nothing, nor does this "
        "server read Apache's snapshots and logs.",
        "It is one server. A file with server.N lines, an ensemble's, is refused: that needs "
        "Apache's ZooKeeper.",
        "Keys that count: dataDir, clientPort, clientPortAddress, tickTime, maxClientCnxns, "
        "minSessionTimeout, maxSessionTimeout, 4lw.commands.whitelist. What else an ordinary file "
        "has (admin.enableServer, initLimit, autopurge.snapRetainCount and so on) needs nothing "
        "here; any other key is named in a warning. There is no admin server.",
        "Containers, TTL nodes, reconfig, quotas and SASL are not served: Unimplemented, and "
        "AuthFailed for SASL. ACLs are those of the schemes world, ip, digest and auth. Clients "
        "are not served over TLS.",
        "Four-letter words answered: conf, cons, envi, isro, mntr, ruok, srvr, stat, wchs. As in "
        "ZooKeeper, only srvr is without 4lw.commands.whitelist.",
        "A file that is missing or wrong ends it with exit status 1; Kafka's is 2.",
        "-daemon returns when the server answers, with exit status 0, or when it could not start, "
        "with the reason and exit status 1; Kafka's script returns 0 at once.",
        "After SIGTERM or Ctrl-C the exit status is 0; Kafka's are 143 and 130.",
        "-name and -loggc of Kafka's launcher are not taken.",
    ),
    see_also=("k-zookeeper-server-stop", "k-zookeeper-shell", "k-server-start"),
)


@command(manual=MANUAL)
@together(
    click.argument("properties", nargs=-1, metavar="zookeeper.properties"),
    option("-daemon", "Run in the background; return when the server answers."),
)
def zookeeper_server_start(given: SimpleNamespace) -> int:
    """Starts a ZooKeeper for this machine, and runs until it is told to stop.

    It needs no Java. The file is Kafka's zookeeper.properties. kazoo, Apache's zookeeper-shell and
    Apache's brokers are served as by ZooKeeper. Every change is on disk before it is answered, and
    clients keep their sessions when the server is started anew.

    What the server does is logged on standard output; with -daemon in the file zookeeper.out in
    $LOG_DIR.
    """
    from kserver.zookeeper import process

    if len(given.properties) != 1:
        refuse("one zookeeper.properties is needed: it says where the data is, and the port")
    settings = process.load(given.properties[0])
    if not given.daemon:
        discard_unwritable()
        return process.run(settings)

    from kcli import background
    from kserver.config.broker import user_data_directory

    logs = os.environ.get("LOG_DIR") or f"{user_data_directory(os.environ)}/logs"
    return background.start(
        f"{os.path.abspath(logs)}/{CONSOLE}",
        lambda: process.run(settings),
        "k zookeeper-server-start",
        lambda said: SERVES in said,
    )
