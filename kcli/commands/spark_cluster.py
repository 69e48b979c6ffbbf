"""`k spark-cluster`: a master and workers of Spark on this machine."""

from __future__ import annotations

import os
from types import SimpleNamespace

import click

from kcli.command import Duration, Manual, command
from kcli.options import INT, Refused, is_given, option, refuse, together
from kcli.output import answer, complain
from kcli.rows.listing import formatted, rows_if_asked
from kcli.rows.shapes import RowField, RowShape
from kcli.statuses import DONE, FAILED

HOST = "127.0.0.1"
PORT = 7077
WORKERS = 2
MEMORY = "1g"
TIMEOUT_S = 120.0

MANUAL = Manual(
    examples=(
        (
            "k spark-cluster start --workers 2",
            "In the background; k spark-submit --master URL uses it.",
        ),
        ("k spark-cluster status", "Its URL, and how each of them is."),
        ("k spark-cluster stop", "End it all."),
    ),
    environment=(
        ("JAVA_HOME", "The Java that Spark runs on.  Default: the one on PATH."),
        ("SPARK_DAEMON_MEMORY", "Heap of the master and of each worker.  Default: 512m."),
        ("SPARK_DAEMON_JAVA_OPTS", "Options of their Java.  Default: -XX:+UseSerialGC."),
        ("XDG_DATA_HOME", "Where the directory lies without --dir: its k/spark-cluster."),
    ),
    statuses=(
        (0, "It runs, with all its workers; for stop, all of it has ended."),
        (
            1,
            "It could not start, and nothing of it is left; or, for status and stop, there is "
            "none; or, for status, a part of it is not alive.",
        ),
    ),
    differences=("Kafka's scripts have no such command.",),
    see_also=("k-spark-submit", "k-spark(7)"),
)

STATUS = RowShape(
    "k.spark-cluster.status",
    1,
    "The master, or a worker.",
    (
        RowField("name", "string", "master, or worker-1 and so on."),
        RowField("pid", "integer or null", "Its process; null of a worker that has ended."),
        RowField("address", "string", "Where it listens."),
        RowField("state", "string", "As the master says; STARTING where it does not know it yet."),
        RowField("cores", "integer", "How many it lends; 0 of the master."),
        RowField("cores_used", "integer", "And how many of them are lent."),
        RowField("memory_mb", "integer", "How many MiB it lends; 0 of the master."),
    ),
)
OF_START = ("workers", "cores", "memory", "host", "port", "ui-port", "timeout")
ACTIONS = ("start", "stop", "status")


@command(manual=MANUAL)
@click.argument("action", nargs=-1, metavar="|".join(ACTIONS))
@together(
    option("--workers", f"start: how many workers.  Default: {WORKERS}.", "N", type=INT),
    option(
        "--cores",
        "start: how many processors each worker lends.  Default: this machine's, shared out.",
        "N",
        type=INT,
    ),
    option(
        "--memory",
        "start: how much memory each worker lends to executors, of which each takes "
        f"spark.executor.memory, 1g unless it is set.  Default: {MEMORY}.",
        "SIZE",
    ),
    option(
        "--dir",
        "Directory of the logs and of what applications leave.  Default: spark-cluster, beside "
        "the broker's data.",
        "DIR",
    ),
    option("--host", f"start: address to listen on.  Default: {HOST}.", "HOST"),
    option("--port", f"start: port of the master, 0 for any.  Default: {PORT}.", "PORT", type=INT),
    option("--ui-port", "start: port of the master's page.  Default: any.", "PORT", type=INT),
    option(
        "--timeout",
        "start: give up after this long, with exit status 124: seconds, or as 500ms, 2s, 5m.  "
        f"Default: {TIMEOUT_S:g}.",
        "TIME",
        type=Duration(),
    ),
    formatted(STATUS),
)
def spark_cluster(given: SimpleNamespace) -> int:
    """Starts a master and workers of Spark on this machine, describes them, and stops them.

    They are a standalone cluster, of the PySpark of this environment, for trying out what is to run
    on a larger one.  start returns when all workers are with the master, and prints the master's
    URL; each process writes a log in the directory.  One directory holds one cluster.

    Whoever reaches the master can run programs here: with a --host that others reach, see to it
    that only those do who may.
    """
    action = _action(given)
    directory = os.path.abspath(given.dir or _directory())
    if action == "start":
        return _start(given, directory)
    if action == "stop":
        return _stop(directory)
    return _status(given, directory)


def _action(given: SimpleNamespace) -> str:
    if len(given.action) != 1 or given.action[0] not in ACTIONS:
        refuse(f"say what to do: {', '.join(ACTIONS)}")
    action: str = given.action[0]
    unfit = () if action == "start" else OF_START
    for name in (*unfit, *(() if action == "status" else ("output",))):
        if is_given(given, name):
            refuse(f"--{name} does not go with {action}")
    return action


def _start(given: SimpleNamespace, directory: str) -> int:
    from kcli.spark import cluster
    from kcli.spark.standalone import MEMORY as AMOUNT

    workers = WORKERS if given.workers is None else given.workers
    cores = max(1, (os.cpu_count() or 1) // max(workers, 1)) if given.cores is None else given.cores
    memory = MEMORY if given.memory is None else given.memory
    for name, number in (("workers", workers), ("cores", cores)):
        if number < 1:
            refuse(f"--{name} is at least 1")
    for name, port in (("port", given.port), ("ui-port", given.ui_port)):
        if port is not None and not 0 <= port < 1 << 16:
            refuse(f"--{name} is from 0 to 65535")
    if AMOUNT.fullmatch(memory) is None:
        refuse(f"--memory is a number with k, m or g, such as 512m: {memory}")
    plan = cluster.start(
        directory,
        host=given.host or HOST,
        port=PORT if given.port is None else given.port,
        ui_port=given.ui_port or 0,
        workers=workers,
        cores=cores,
        memory=memory,
        timeout_s=given.timeout or TIMEOUT_S,
    )
    answer(plan.url)
    complain(f"{workers} workers; logs in {directory}, page at http://{plan.host}:{plan.ui_port}")
    return DONE


def _stop(directory: str) -> int:
    from kcli.spark import cluster

    if cluster.stop(directory):
        return DONE
    answer(f"No cluster runs in {directory}")
    return FAILED


def _status(given: SimpleNamespace, directory: str) -> int:
    from kcli.spark import cluster
    from kcli.spark.standalone import ALIVE

    members = cluster.members(directory)
    with rows_if_asked(given, STATUS) as out:
        if not members:
            raise Refused(f"no cluster runs in {directory}")
        for one in members:
            if out is not None:
                out.row(**vars(one))
            elif one.name == "master":
                answer(f"spark://{one.address} {one.state} pid {one.pid}")
            else:
                pid = "ended" if one.pid is None else f"pid {one.pid}"
                used = f"{one.cores_used} of {one.cores} cores used, {one.memory_mb} MiB"
                answer(f"{one.name} {one.address} {one.state} {pid}, {used}")
    whole = members[0].name == "master" and all(one.state == ALIVE for one in members)
    return DONE if whole else FAILED


def _directory() -> str:
    from kserver.config.broker import user_data_directory

    return f"{user_data_directory(os.environ)}/spark-cluster"
