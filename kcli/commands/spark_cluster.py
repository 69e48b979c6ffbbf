"""`k spark-cluster`: starts a master and workers of Spark on this machine."""

from __future__ import annotations

import os

import click

from kcli.command.command import Duration, Manual, Options, command
from kcli.command.options import INT, Refused, is_set, option, option_group, refuse
from kcli.command.output import complain, print_output
from kcli.command.statuses import DONE, FAILED
from kcli.rows.listing import formatted, rows_if_asked
from kcli.rows.shapes import RowField, RowShape

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
        ("k spark-cluster status", "Print its URL, and the state of its processes."),
        ("k spark-cluster stop", "Stop the cluster."),
    ),
    environment=(
        ("JAVA_HOME", "The Java that Spark runs on.  Default: the one on PATH."),
        ("SPARK_DAEMON_MEMORY", "Heap of the master and of each worker.  Default: 512m."),
        (
            "SPARK_DAEMON_JAVA_OPTS",
            "Java options of the master and the workers.  Default: -XX:+UseSerialGC.",
        ),
        ("XDG_DATA_HOME", "Parent of the default directory, k/spark-cluster."),
    ),
    statuses=(
        (0, "The cluster runs, with all its workers; for stop, all its processes have ended."),
        (
            1,
            "The cluster could not start, and no process of it is left; for status and stop, "
            "there is no cluster; or, for status, one of its processes has ended.",
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
        RowField("pid", "integer or null", "Its process id; null if the process has ended."),
        RowField("address", "string", "Its address."),
        RowField(
            "state",
            "string",
            "State as reported by the master; STARTING if it is not registered yet.",
        ),
        RowField("cores", "integer", "Number of cores; 0 for the master."),
        RowField("cores_used", "integer", "Number of cores in use."),
        RowField("memory_mb", "integer", "Memory in MiB; 0 for the master."),
    ),
)
OF_START = ("workers", "cores", "memory", "host", "port", "ui-port", "timeout")
ACTIONS = ("start", "stop", "status")


@command(manual=MANUAL)
@click.argument("action", nargs=-1, metavar="|".join(ACTIONS))
@option_group(
    option("--workers", f"start: number of workers.  Default: {WORKERS}.", "N", type=INT),
    option(
        "--cores",
        "start: number of cores of each worker.  Default: the cores of this machine, divided "
        "among the workers.",
        "N",
        type=INT,
    ),
    option(
        "--memory",
        "start: memory of each worker for executors; each executor uses spark.executor.memory, "
        f"by default 1g.  Default: {MEMORY}.",
        "SIZE",
    ),
    option(
        "--dir",
        "Directory of the logs and of files of applications.  Default: spark-cluster, next to "
        "the broker's data.",
        "DIR",
    ),
    option("--host", f"start: address to listen on.  Default: {HOST}.", "HOST"),
    option("--port", f"start: port of the master, 0 for any.  Default: {PORT}.", "PORT", type=INT),
    option("--ui-port", "start: port of the master's page.  Default: any.", "PORT", type=INT),
    option(
        "--timeout",
        "start: give up after this long, with exit status 124: seconds, or with a unit: 500ms, "
        f"2s, 5m.  Default: {TIMEOUT_S:g}.",
        "TIME",
        type=Duration(),
    ),
    formatted(STATUS),
)
def spark_cluster(options: Options) -> int:
    """Starts a master and workers of Spark on this machine, describes them, and stops them.

    They are a standalone cluster, with the PySpark of this environment, to try out applications for
    a larger cluster.  start returns when all workers are registered with the master, and prints the
    master's URL; each process writes a log in the directory.  One directory holds one cluster.

    Any client that can connect to the master can run programs on this machine.  If --host is
    reachable from other machines, restrict access to it.
    """
    action = _action(options)
    directory = os.path.abspath(options.dir or _directory())
    if action == "start":
        return _start(options, directory)
    if action == "stop":
        return _stop(directory)
    return _status(options, directory)


def _action(options: Options) -> str:
    if len(options.action) != 1 or options.action[0] not in ACTIONS:
        refuse(f"name exactly one action: {', '.join(ACTIONS)}")
    action: str = options.action[0]
    unfit = () if action == "start" else OF_START
    for name in (*unfit, *(() if action == "status" else ("output",))):
        if is_set(options, name):
            refuse(f"--{name} is not allowed with {action}")
    return action


def _start(options: Options, directory: str) -> int:
    from kcli.spark import cluster
    from kcli.spark.standalone import MEMORY as AMOUNT

    workers = WORKERS if options.workers is None else options.workers
    cores = (
        max(1, (os.cpu_count() or 1) // max(workers, 1)) if options.cores is None else options.cores
    )
    memory = MEMORY if options.memory is None else options.memory
    for name, number in (("workers", workers), ("cores", cores)):
        if number < 1:
            refuse(f"--{name} must be at least 1")
    for name, port in (("port", options.port), ("ui-port", options.ui_port)):
        if port is not None and not 0 <= port < 1 << 16:
            refuse(f"--{name} must be from 0 to 65535")
    if AMOUNT.fullmatch(memory) is None:
        refuse(f"--memory {memory} is invalid: use a number with k, m or g, such as 512m")
    plan = cluster.start(
        directory,
        host=options.host or HOST,
        port=PORT if options.port is None else options.port,
        ui_port=options.ui_port or 0,
        workers=workers,
        cores=cores,
        memory=memory,
        timeout_s=options.timeout or TIMEOUT_S,
    )
    print_output(plan.url)
    complain(f"{workers} workers; logs in {directory}, page at http://{plan.host}:{plan.ui_port}")
    return DONE


def _stop(directory: str) -> int:
    from kcli.spark import cluster

    if cluster.stop(directory):
        return DONE
    print_output(f"No cluster runs in {directory}")
    return FAILED


def _status(options: Options, directory: str) -> int:
    from kcli.spark import cluster
    from kcli.spark.standalone import ALIVE

    members = cluster.members(directory)
    with rows_if_asked(options, STATUS) as out:
        if not members:
            raise Refused(f"no cluster runs in {directory}")
        for member in members:
            if out is not None:
                out.row(**vars(member))
            elif member.name == "master":
                print_output(f"spark://{member.address} {member.state} pid {member.pid}")
            else:
                pid = "ended" if member.pid is None else f"pid {member.pid}"
                used = f"{member.cores_used} of {member.cores} cores used, {member.memory_mb} MiB"
                print_output(f"{member.name} {member.address} {member.state} {pid}, {used}")
    whole = members[0].name == "master" and all(member.state == ALIVE for member in members)
    return DONE if whole else FAILED


def _directory() -> str:
    from kserver.config.broker import user_data_directory

    return f"{user_data_directory(os.environ)}/spark-cluster"
