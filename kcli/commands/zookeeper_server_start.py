"""`k zookeeper-server-start`: starts a ZooKeeper on one machine, in the foreground or the
background.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import click

from kcli.apache_zookeeper import plan
from kcli.command.command import Manual, Options, command
from kcli.command.options import option, option_group, refuse
from kcli.command.output import discard_unwritable

CONSOLE = "zookeeper.out"

MANUAL = Manual(
    kafka="zookeeper-server-start.sh",
    examples=(
        (
            "k zookeeper-server-start zookeeper.properties",
            "A ZooKeeper with the configs of a file.",
        ),
        (
            "k zookeeper-server-start -daemon zookeeper.properties",
            "In the background.",
        ),
        (
            "k zookeeper-server-start --apache zookeeper.properties",
            "Apache's server, of PySpark's jars or of ZOOKEEPER_HOME.",
        ),
    ),
    environment=(
        (
            "LOG_DIR",
            "Directory of the console file of -daemon, zookeeper.out; a second server with the "
            "same directory writes zookeeper-2.out, and so on.  Default: logs, next to the "
            "default data directory of k server-start.",
        ),
        ("XDG_DATA_HOME", "Where that default data lies: its directory k."),
        (
            "ZOOKEEPER_HOME",
            "An unpacked release of Apache's ZooKeeper.  Default: the one in PySpark's jars.",
        ),
        ("JAVA_HOME", "The Java that Apache's ZooKeeper runs on.  Default: the one on PATH."),
        ("KAFKA_HEAP_OPTS", "Memory of that Java.  Default: -Xmx512M -Xms512M."),
        ("KAFKA_OPTS", "Further options of that Java."),
    ),
    statuses=(
        (
            0,
            "The server was stopped by SIGTERM, SIGHUP or Ctrl-C; with -daemon, it runs and "
            "answers.",
        ),
        (1, "The server could not start, or its disk failed; the reason is on standard error."),
        (143, "Apache's server was stopped by SIGTERM; 130 by Ctrl-C. Other ends are Java's too."),
    ),
    differences=(
        "A file with server.N lines, an ensemble's, starts Apache's ZooKeeper, as does --apache. "
        "What follows is of the other one, for which there is one server.",
        "The server is not Java's: it speaks ZooKeeper's protocol and keeps its own file, "
        "znodes.msgpack in dataDir, of which Apache's ZooKeeper reads nothing, nor does this "
        "server read Apache's snapshots and logs.",
        "Keys that count: dataDir, clientPort, clientPortAddress, tickTime, maxClientCnxns, "
        "minSessionTimeout, maxSessionTimeout, 4lw.commands.whitelist. What else an ordinary file "
        "has (admin.enableServer, initLimit, autopurge.snapRetainCount and so on) needs nothing "
        "here; any other key is named in a warning. There is no admin server.",
        "Containers, TTL nodes, reconfig, quotas and SASL are not served: Unimplemented, and "
        "AuthFailed for SASL. ACLs are those of the schemes world, ip, digest and auth. Clients "
        "are not served over TLS.",
        "Four-letter words answered: conf, cons, crst, dirs, dump, envi, isro, mntr, ruok, srst, "
        "srvr, stat, wchc, wchp, wchs. As in ZooKeeper, only srvr is without "
        "4lw.commands.whitelist. The last three also count the watches on children, which "
        "ZooKeeper's leave out.",
        "A file that is missing or wrong ends it with exit status 1; Kafka's is 2.",
        "-daemon returns when the server answers, with exit status 0, or when it could not start, "
        "with the reason and exit status 1; Kafka's script returns 0 at once.",
        "After SIGTERM or Ctrl-C the exit status is 0; Kafka's are 143 and 130.",
        "-name and -loggc of Kafka's launcher are not supported.",
    ),
    see_also=("k-zookeeper-server-stop", "k-zookeeper-shell", "k-server-start"),
)


@command(manual=MANUAL)
@option_group(
    click.argument("properties", nargs=-1, metavar="zookeeper.properties"),
    option("-daemon", "Run in the background; return when the server answers."),
    option("--apache", "Apache's ZooKeeper, on Java, also for one server by itself."),
)
def zookeeper_server_start(options: Options) -> int:
    """Starts a ZooKeeper on this machine, and runs until it is stopped.

    It needs no Java. The file is Kafka's zookeeper.properties. kazoo, Apache's zookeeper-shell and
    Apache's brokers are served as by ZooKeeper. Every change is on disk before its response is
    sent, and clients keep their sessions when the server is restarted.

    A file that names the servers of an ensemble (server.1=host:2888:3888 and so on) starts Apache's
    ZooKeeper, of which this machine is one server: the one whose number is in the file myid of
    dataDir. It is found in PySpark's jars, or in ZOOKEEPER_HOME, and needs Java.

    The server logs to standard output; with -daemon, to the file zookeeper.out in $LOG_DIR.
    """
    from kserver.config import properties
    from kserver.zookeeper_server import process

    if len(options.properties) != 1:
        refuse("name one zookeeper.properties, with dataDir and clientPort")
    (path,) = options.properties
    with open(path, "rb") as file:
        text = properties.decode(file.read())
    server = plan.read(text, path)
    if options.apache or server.members:
        return _apache(options, server, path)
    settings = process.load(path)
    if not options.daemon:
        discard_unwritable()
        return process.run(settings)
    return _in_background(lambda ready: process.run(settings, lambda host, port: ready()))


def _apache(options: Options, server: plan.ApacheServer, path: str) -> int:
    from kcli.apache_zookeeper import launch

    launched = launch.prepare(server, path, os.environ)

    def serve(_ready: object) -> int:
        os.execv(launched.command[0], launched.command)

    if not options.daemon:
        discard_unwritable()
        sys.stdout.flush()
        sys.stderr.flush()
        return serve(None)
    listens = launched.listens
    return _in_background(serve, lambda: listens is None or launch.accepts(*listens))


def _in_background(
    serve: Callable[[Callable[[], None]], int], is_up: Callable[[], bool] | None = None
) -> int:
    from kcli.servers import background
    from kserver.config.broker import user_data_directory

    logs = os.environ.get("LOG_DIR") or f"{user_data_directory(os.environ)}/logs"
    console = f"{os.path.abspath(logs)}/{CONSOLE}"
    return background.start(console, serve, "k zookeeper-server-start", is_up)
