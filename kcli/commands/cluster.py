"""`k cluster`: the cluster's id, the addresses of its brokers, removing a broker, and restarting
the brokers one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kcli.command.command import Duration, Manual, Options, command
from kcli.command.command_runner import CLUSTER, admin_config, run
from kcli.command.options import (
    CONNECTION,
    INT,
    Refused,
    bootstrap_server,
    dry_run,
    exclude,
    is_set,
    older_config,
    option,
    option_group,
    refuse,
    require,
    timeout,
)
from kcli.command.output import print_output, would
from kcli.command.statuses import DONE
from kcli.rows.listing import Rows, formatted, rows_if_asked
from kcli.rows.shapes import RowField, RowShape

if TYPE_CHECKING:
    from kcli.client.admin.admin import Admin, ClusterDescription
    from kcli.client.cluster import Node

MANUAL = Manual(
    kafka="kafka-cluster.sh",
    examples=(
        ("k cluster cluster-id", "Print the cluster id."),
        ("k cluster list-endpoints", "The address of each broker."),
        (
            "k cluster list-endpoints -o template='{host}:{port}'",
            "What a client's bootstrap.servers may hold.",
        ),
        ("k cluster unregister --id 3 --dry-run", "Check whether a broker could be unregistered."),
        (
            "k cluster roll --restart 'ssh {host} systemctl restart k-broker'",
            "Restart all brokers, one after the other, under load.",
        ),
    ),
    differences=(
        "Without --bootstrap-server and --bootstrap-controller, the usual default is used.",
        "If the cluster does not support unregister, an error is printed to standard error, and "
        "the exit status is 1.",
        "If the brokers do not report fenced brokers, --include-fenced-brokers is refused on "
        "standard error, with exit status 1.",
        "Endpoints are listed in the order of their ids.",
        "roll is an addition of k.",
        "Names of options are not abbreviated.",
    ),
    see_also=("k-broker-api-versions", "k-topics"),
)

ID = RowShape(
    "k.cluster.cluster-id",
    1,
    "The cluster.",
    (RowField("cluster_id", "string or null", "The cluster id; null before Kafka 0.10.1."),),
)
ENDPOINTS = RowShape(
    "k.cluster.list-endpoints",
    1,
    "A broker, or with --bootstrap-controller a controller.",
    (
        RowField("id", "integer", "Its id."),
        RowField("host", "string", "Host of its address."),
        RowField("port", "integer", "Port of its address."),
        RowField("rack", "string or null", "Its rack."),
        RowField("state", "string or null", "unfenced or fenced; null for a controller."),
        RowField("endpoint_type", "string", "broker or controller."),
    ),
)

RESTARTED = RowShape(
    "k.cluster.roll",
    1,
    "A broker that was restarted.",
    (
        RowField("broker", "integer", "Its id."),
        RowField("away_s", "number", "Seconds from the command until the broker answered again."),
        RowField(
            "in_sync_s", "number", "Seconds from the command until every partition was in sync."
        ),
    ),
)

WAIT_S = 300.0
ACTIONS = ("cluster-id", "list-endpoints", "unregister", "roll")
TOO_OLD = "No cluster ID found. The Kafka version is probably too old."
NO_FENCED = (
    "These brokers are older than Kafka 4.0 and do not report fenced brokers: leave out "
    "--include-fenced-brokers"
)
NO_UNREGISTRATION = "The target cluster does not support the broker unregistration API."


@command(manual=MANUAL)
@click.argument("action", nargs=-1, metavar="|".join(ACTIONS))
@option_group(
    option("--id", "The broker to unregister.", "ID", type=INT, short="-i"),
    option("--include-fenced-brokers", "Also list fenced brokers."),
    option(
        "--restart",
        "With roll: the shell command that restarts a broker.  {broker}, {host} and {port} are "
        "replaced by the broker's id and address.",
        "COMMAND",
    ),
    option("--broker-list", "With roll: only these brokers.", "ID,..."),
    option(
        "--wait",
        "With roll: time limit for a broker to stop, to come back, and to be in sync: seconds, or "
        f"with a unit: 500ms, 2s, 5m.  Default: {WAIT_S:g}s.",
        "TIME",
        type=Duration(),
    ),
    dry_run,
    formatted(ID, ENDPOINTS, RESTARTED),
    bootstrap_server,
    option(
        "--bootstrap-controller",
        "KRaft controllers to connect to instead.",
        "HOST:PORT,...",
        short="-C",
        section=CONNECTION,
    ),
    option(
        "--command-config",
        "A file of client properties: security, timeouts, client.id.",
        "FILE",
        short="-c",
        section=CONNECTION,
    ),
    timeout,
    option(
        "-b",
        "The same as --bootstrap-server.",
        "HOST:PORT,...",
        instead="--bootstrap-server",
        section=CONNECTION,
    ),
    older_config("--config"),
)
def cluster(options: Options) -> int:
    """Prints the id of a cluster or the endpoints of its brokers, unregisters a broker, or restarts
    the brokers.

    cluster-id prints the id that all brokers of a cluster share.  list-endpoints prints the address
    of each broker.  unregister removes a broker that has left for good from the metadata of a KRaft
    cluster.  roll runs a command for one broker after the other, the controller last.  After each
    command it waits until the broker has stopped, answers again, and every partition is in sync.
    It stops at the first broker that fails, with exit status 1, and leaves the others untouched.
    """
    action = _action(options)
    if options.bootstrap_controller is not None:
        options.bootstrap_server = options.bootstrap_controller
    if action == "unregister":
        return run(_unregister(options), options.timeout, CLUSTER)
    if action == "roll":
        with rows_if_asked(options, RESTARTED) as out:
            return run(_restart_brokers(options, out), options.timeout, CLUSTER)
    shape, show = (ID, _show_id) if action == "cluster-id" else (ENDPOINTS, _show_endpoints)
    with rows_if_asked(options, shape) as out:
        return run(show(options, out), options.timeout, CLUSTER)


def _action(options: Options) -> str:
    if len(options.action) != 1 or options.action[0] not in ACTIONS:
        refuse(f"name exactly one action: {', '.join(ACTIONS)}")
    action: str = options.action[0]
    exclude(options, "bootstrap-controller", ("bootstrap-server",))
    if action == "unregister":
        require(options, "id")
    if action == "roll":
        require(options, "restart")
        exclude(options, "bootstrap-controller", ("restart",))
        _check_command(options.restart)
    for name, of in (
        ("id", ("unregister",)),
        ("dry-run", ("unregister", "roll")),
        ("include-fenced-brokers", ("list-endpoints",)),
        ("restart", ("roll",)),
        ("broker-list", ("roll",)),
        ("wait", ("roll",)),
        ("output", ("cluster-id", "list-endpoints", "roll")),
    ):
        if is_set(options, name) and action not in of:
            refuse(f"--{name} is only allowed with {' and '.join(of)}")
    return action


def _check_command(template: str) -> None:
    try:
        template.format(broker=0, host="", port=0)
    except (KeyError, IndexError, ValueError, AttributeError) as error:
        refuse(
            f"--restart {template!r}: {error}; in it {{broker}}, {{host}} and {{port}} stand for "
            "the broker's, and other braces are doubled: {{ }}"
        )


def _ids(text: str | None) -> list[int]:
    words = [] if text is None else text.split(",")
    for word in words:
        if not word.strip().isdecimal():
            refuse(f"--broker-list {text}: {word!r} is not a broker id")
    return [int(word) for word in words]


async def _restart_brokers(options: Options, out: Rows | None) -> int:
    from kcli.servers import rolling_restart

    wait_s = WAIT_S if options.wait is None else options.wait
    async with _admin(options) as admin:
        nodes = await rolling_restart.order(admin, _ids(options.broker_list))
        if options.dry_run:
            would(*(f"run {rolling_restart.command_for(options.restart, node)}" for node in nodes))
            return DONE
        async for restart in rolling_restart.restart(admin, nodes, options.restart, wait_s):
            if out is None:
                print_output(
                    f"broker {restart.broker}: answered again after {restart.away_s:.1f} s, "
                    f"everything in sync after {restart.in_sync_s:.1f} s"
                )
            else:
                out.row(**restart._asdict())
    return DONE


async def _show_id(options: Options, out: Rows | None) -> int:
    described = await _describe_cluster(options)
    if out is not None:
        out.row(cluster_id=described.cluster_id)
    elif described.cluster_id is None:
        print_output(TOO_OLD)
    else:
        print_output(f"Cluster ID: {described.cluster_id}")
    return DONE


async def _show_endpoints(options: Options, out: Rows | None) -> int:
    controllers = options.bootstrap_controller is not None
    if controllers and options.include_fenced_brokers:
        raise Refused(
            "The option --include-fenced-brokers is only supported with --bootstrap-server option"
        )
    described = await _describe_cluster(options)
    kind = "controller" if controllers else "broker"
    fenced = described.fenced or ()
    states = {n.id: "fenced" if n.id in fenced else "unfenced" for n in described.brokers}
    if out is None:
        print_output("\n".join(_columns(described.brokers, None if controllers else states, kind)))
        return DONE
    for node in described.brokers:
        state = None if controllers else states[node.id]
        out.row(**node._asdict(), state=state, endpoint_type=kind)
    return DONE


def _columns(nodes: list[Node], states: dict[int, str] | None, kind: str) -> list[str]:
    """Return the lines of Kafka's table; the columns of hosts and racks are as wide as the widest
    cell.
    """
    host = max((len(node.host) for node in nodes), default=100)
    rack = max((len(node.rack) for node in nodes if node.rack), default=10)

    def line(id: object, name: str, port: object, where: str, state: str, type: str) -> str:
        shown = "" if states is None else f"{state:<10} "
        return f"{id:<10} {name:<{host}} {port:<10} {where:<{rack}} {shown}{type:<15}"

    of = states or {}
    return [
        line("ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE"),
        *(line(n.id, n.host, n.port, n.rack or "null", of.get(n.id, ""), kind) for n in nodes),
    ]


async def _describe_cluster(options: Options) -> ClusterDescription:
    async with _admin(options) as admin:
        described = await admin.describe_cluster(
            controllers=options.bootstrap_controller is not None,
            include_fenced=options.include_fenced_brokers,
        )
    if options.include_fenced_brokers and described.fenced is None:
        raise Refused(NO_FENCED)
    return described


async def _unregister(options: Options) -> int:
    from kserver.errors import ErrorCode, KafkaError

    async with _admin(options) as admin:
        if options.dry_run:
            if options.bootstrap_controller is not None:
                raise Refused("--dry-run needs a broker: use it with --bootstrap-server")
            described = await admin.describe_cluster(include_fenced=True)
            if options.id not in {node.id for node in described.brokers}:
                raise Refused(f"Broker ID {options.id} is not currently registered")
            would(f"unregister broker {options.id}")
            return DONE
        try:
            await admin.unregister_broker(options.id)
        except KafkaError as error:
            if error.code != ErrorCode.unsupported_version:
                raise
            raise Refused(NO_UNREGISTRATION) from None
    print_output(f"Broker {options.id} is no longer registered.")
    return DONE


def _admin(options: Options) -> Admin:
    from kcli.client.admin.admin import Admin

    return Admin(admin_config(options))
