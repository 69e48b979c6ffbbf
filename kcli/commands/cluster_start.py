"""`k cluster-start`: a ZooKeeper and several brokers on this machine, in the foreground."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from pathlib import Path

from kcli.command.command import Manual, Options, command
from kcli.command.options import INT, option, option_group, refuse
from kcli.command.output import complain

DEFAULT_BROKERS = 3
DEFAULT_PORT = 9092
MAX_BROKERS = 100
LAST_PORT = 65535

MANUAL = Manual(
    examples=(
        ("k cluster-start", "Three brokers at the ports 9092, 9093 and 9094, until Ctrl-C."),
        (
            "k cluster-start --brokers 5 --port 19092 --data ~/five --restart",
            "Five brokers; the next start uses the same data, and a server that dies is restarted.",
        ),
        (
            "k cluster-start --override min.insync.replicas=2 2> cluster.log",
            "With a config for all brokers, and their logs in a file.",
        ),
    ),
    statuses=(
        (0, "The cluster was stopped by Ctrl-C, SIGTERM or SIGHUP, and all data is written."),
        (
            1,
            "The cluster could not start, because a port is taken or the directory is in use, or "
            "no broker was left; the reason is on standard error.",
        ),
        (130, "Stopped at once by a second Ctrl-C; 143 by a second SIGTERM."),
    ),
    differences=("Kafka has no such script.",),
    see_also=("k-server-start", "k-zookeeper-server-start", "k-topics", "kserver.properties(5)"),
)


@command(manual=MANUAL)
@option_group(
    option(
        "--brokers",
        f"Number of brokers; their ids are 1, 2 and so on.  Default: {DEFAULT_BROKERS}.",
        "N",
        type=INT,
    ),
    option(
        "--port",
        "Port of broker 1; the other brokers use the next ports.  0 uses a free port for each "
        f"broker.  Default: {DEFAULT_PORT}.",
        "PORT",
        type=INT,
    ),
    option(
        "--data",
        "Directory of the data, which is kept.  Default: a temporary directory, removed at the "
        "end.",
        "DIRECTORY",
    ),
    option(
        "--override",
        "A config of server.properties for all brokers.  Repeatable.",
        "KEY=VALUE",
        multiple=True,
    ),
    option("--restart", "Restart a server that dies, with the same data and port."),
)
def cluster_start(options: Options) -> int:
    """Starts a cluster on this machine, a ZooKeeper and several brokers, and runs until it is
    stopped.

    Each server is a separate process that listens on 127.0.0.1; the ZooKeeper uses a free port.
    Standard output has a line for each event: "broker 1 ready on 127.0.0.1:9092, pid 4711" for each
    server, then "cluster ready: " and all addresses, in the form of bootstrap.servers; later
    "broker 2 (pid 4712) died: killed by SIGKILL". The servers' log lines go to standard error, each
    after the name of its server.

    A broker that dies stays down, unless --restart is given. Ctrl-C and SIGTERM stop the servers in
    order: first the brokers one after the other, each after handing over its leaderships, then the
    ZooKeeper. A second signal stops all servers at once. When k cluster-start is killed, its
    servers end with it.

    Topics have 3 replicas by default, and so have the internal topics, or as many as there are
    brokers. These configs differ from Kafka's defaults; --override takes precedence:
    default.replication.factor, offsets.topic.replication.factor,
    transaction.state.log.replication.factor, transaction.state.log.min.isr,
    group.initial.rebalance.delay.ms=0, zookeeper.session.timeout.ms=6000.
    """
    count = DEFAULT_BROKERS if options.brokers is None else options.brokers
    port = DEFAULT_PORT if options.port is None else options.port
    if not 1 <= count <= MAX_BROKERS:
        refuse(f"--brokers {count} is out of range: choose a number from 1 to {MAX_BROKERS}")
    if not 0 <= port <= LAST_PORT:
        refuse(f"--port {port} is not a port: choose a number from 0 (a free port) to {LAST_PORT}")
    for pair in options.override:
        if "=" not in pair:
            refuse(f"--override {pair} is not KEY=VALUE")
    if options.data == "":
        refuse("--data is empty: name a directory")
    if options.data is not None:
        return _run(options, count, port, os.path.abspath(options.data))
    directory = tempfile.mkdtemp(prefix="k-cluster-")
    try:
        return _run(options, count, port, directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _data_problem(directory: str) -> str | None:
    from kcli.local_cluster.plan import data_problem

    clusters: dict[int, str] = {}
    for path in Path(directory).glob("broker-*/meta.properties"):
        id = path.parent.name.removeprefix("broker-")
        with contextlib.suppress(OSError):
            match = re.search(r"^cluster\.id=(.+)$", path.read_text(errors="replace"), re.MULTILINE)
            if match and id.isdecimal():
                clusters[int(id)] = match[1].strip()
    return data_problem(
        directory, clusters, has_zookeeper=any(Path(directory, "zookeeper").glob("*"))
    )


def _run(options: Options, count: int, port: int, directory: str) -> int:
    from kcli.command.options import key_values
    from kcli.local_cluster.plan import LocalClusterPlan
    from kcli.local_cluster.supervisor import Supervisor
    from kserver.config.broker import BrokerConfig

    plan = LocalClusterPlan(count, port, directory, key_values(options.override))
    if (problem := plan.problem()) is not None:
        refuse(problem)
    if (problem := _data_problem(directory)) is not None:
        refuse(problem)
    # An invalid key is reported once, not by each broker.
    BrokerConfig.load(None, plan.broker(1, "127.0.0.1:0", "127.0.0.1:1"))
    complain(
        f"k cluster-start: data in {directory}{'' if options.data else ', removed at the end'}"
    )
    # A broker that fails by a bug logs the place: its log is read later.
    os.environ.setdefault("K_DEBUG", "1")
    return Supervisor(plan, restart=options.restart).run()
