"""`k server-start`: starts a broker, in the foreground or the background."""

from __future__ import annotations

import os

import click

from kcli.command.command import Manual, Options, command
from kcli.command.options import option, option_group, refuse
from kcli.command.output import discard_unwritable

CONSOLE = "kafkaServer.out"

MANUAL = Manual(
    kafka="kafka-server-start.sh",
    examples=(
        ("k server-start", "A broker on 127.0.0.1:9092, with its data in ~/.local/share/k."),
        ("k server-start server.properties", "A broker with the configs of a file."),
        (
            "k server-start -daemon server.properties --override log.dirs=/data/k",
            "In the background, with a config on the command line.",
        ),
        (
            "for n in 1 2 3; do k server-start -daemon server-$n.properties; done",
            "Three brokers on this machine, each with its own id, listeners and log.dirs, and "
            "all with the same zookeeper.connect.",
        ),
    ),
    environment=(
        (
            "LOG_DIR",
            "Directory of the console file of -daemon, kafkaServer.out; a second broker with the "
            "same directory writes kafkaServer-2.out, and so on.  Default: logs, next to the "
            "default data directory.",
        ),
        ("XDG_DATA_HOME", "Parent of the data directory, k, if no file is given."),
    ),
    statuses=(
        (
            0,
            "The broker was stopped by SIGTERM, SIGHUP or Ctrl-C and all data is written; with "
            "-daemon, it runs and answers.",
        ),
        (1, "The broker could not start, or failed; the reason is on standard error."),
    ),
    differences=(
        "Without a file the broker starts with its defaults; Kafka's script prints its usage.",
        "-daemon returns when the broker answers, with exit status 0, or when it could not start, "
        "with the reason and exit status 1; Kafka's script returns 0 at once.",
        "-daemon need not be the first word.",
        "After SIGTERM or Ctrl-C the exit status is 0, once all data is written; Kafka's are 143 "
        "and 130.",
        "A file for a node of a KRaft quorum (process.roles=broker, or other nodes among "
        "controller.quorum.voters) is refused, with what to set instead; one for a combined node "
        "that is its own quorum starts a broker by itself.",
        "The limit on open files is raised as far as permitted. A part is reserved for the logs: "
        "beyond it, new connections are refused, and so is a topic whose partitions could not be "
        "opened (three files each; POLICY_VIOLATION).",
        "Requests for delegation tokens, SCRAM credentials, KRaft (DescribeQuorum, "
        "UnregisterBroker, AddRaftVoter, RemoveRaftVoter), share groups and streams groups are not "
        "listed in ApiVersions. A client that sends one is disconnected, as by Kafka for requests "
        "that it does not list.",
        "-name and -loggc of Kafka's launcher are not supported.",
    ),
    see_also=(
        "k-server-stop",
        "k-cluster-start",
        "k-storage",
        "k-metrics(7)",
        "k-replace-brokers(7)",
        "kserver.properties(5)",
    ),
)


@command(manual=MANUAL)
@option_group(
    click.argument("properties", nargs=-1, metavar="[server.properties]"),
    option("-daemon", "Run in the background; return when the broker answers."),
    option(
        "--override",
        "A config that overrides the file.  Repeatable.",
        "KEY=VALUE",
        multiple=True,
    ),
)
def server_start(options: Options) -> int:
    """Starts a broker, and runs until it is stopped.

    The file is Kafka's server.properties.  Without a file, the broker listens on 127.0.0.1:9092 and
    is a cluster by itself, with its data in $XDG_DATA_HOME/k or ~/.local/share/k.

    The broker logs to standard output; with -daemon, to the file kafkaServer.out in $LOG_DIR.
    """
    from kserver.broker import process

    if len(options.properties) > 1:
        refuse(f"Found non argument parameters: {','.join(options.properties[1:])}")
    config = process.load(options.properties[0] if options.properties else None, options.override)
    # A broker that fails by a bug logs the place: its log is read later.
    os.environ.setdefault("K_DEBUG", "1")
    if not options.daemon:
        discard_unwritable()
        return process.run(config)

    from kcli.servers import background
    from kserver.config.broker import user_data_directory

    logs = os.environ.get("LOG_DIR") or f"{user_data_directory(os.environ)}/logs"
    return background.start(
        f"{os.path.abspath(logs)}/{CONSOLE}",
        lambda ready: process.run(config, lambda endpoints: ready()),
    )
