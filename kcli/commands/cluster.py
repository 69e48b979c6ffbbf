"""`k cluster`: the cluster's id, where its brokers are reached, and taking a broker out of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import click

from kcli.command import OLDER, Manual, command
from kcli.options import (
    CONNECTION,
    INT,
    Refused,
    bootstrap_server,
    dry_run,
    exclude,
    is_given,
    option,
    refuse,
    require,
    timeout,
    together,
)
from kcli.output import answer, would
from kcli.rows.listing import Rows, formatted, rows_if_asked
from kcli.rows.shapes import RowField, RowShape
from kcli.running import CLUSTER, admin_config, run
from kcli.statuses import DONE

if TYPE_CHECKING:
    from kcli.client.admin import Admin, ClusterDescription
    from kcli.client.cluster import Node

MANUAL = Manual(
    kafka="kafka-cluster.sh",
    examples=(
        ("k cluster cluster-id", "Which cluster this is."),
        ("k cluster list-endpoints", "Where each broker is reached."),
        (
            "k cluster list-endpoints -o template='{host}:{port}'",
            "What a client's bootstrap.servers may hold.",
        ),
        ("k cluster unregister --id 3 --dry-run", "Whether a broker could be taken out."),
    ),
    differences=(
        "Without --bootstrap-server and --bootstrap-controller the usual default is asked.",
        "unregister, where the cluster has no such request, is told on standard error, and makes "
        "the exit status 1.",
        "Endpoints are listed in the order of their ids.",
        "Names of options are not abbreviated.",
    ),
    see_also=("k-broker-api-versions", "k-topics"),
)

ID = RowShape(
    "k.cluster.cluster-id",
    1,
    "The cluster.",
    (RowField("cluster_id", "string or null", "Its id; null before Kafka 0.10.1."),),
)
ENDPOINTS = RowShape(
    "k.cluster.list-endpoints",
    1,
    "A broker, or with --bootstrap-controller a controller.",
    (
        RowField("id", "integer", "Its id."),
        RowField("host", "string", "Where it is reached."),
        RowField("port", "integer", "And at which port."),
        RowField("rack", "string or null", "Its rack."),
        RowField("state", "string or null", "unfenced or fenced; null of a controller."),
        RowField("endpoint_type", "string", "broker or controller."),
    ),
)

ACTIONS = ("cluster-id", "list-endpoints", "unregister")
TOO_OLD = "No cluster ID found. The Kafka version is probably too old."
NO_UNREGISTRATION = "The target cluster does not support the broker unregistration API."


@command(manual=MANUAL)
@click.argument("action", nargs=-1, metavar="|".join(ACTIONS))
@together(
    option("--id", "The broker to unregister.", "ID", type=INT, short="-i"),
    option("--include-fenced-brokers", "List also the brokers that take no part now."),
    dry_run,
    formatted(ID, ENDPOINTS),
    bootstrap_server,
    option(
        "--bootstrap-controller",
        "Controllers of KRaft to connect to instead.",
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
    option(
        "--config",
        "The same as --command-config.",
        "FILE",
        instead="--command-config",
        section=OLDER,
    ),
)
def cluster(given: SimpleNamespace) -> int:
    """Prints the id of a cluster or the endpoints of its brokers, or unregisters a broker.

    cluster-id prints what all brokers of one cluster share.  list-endpoints prints where each
    broker is reached.  unregister takes a broker that has left for good out of the metadata of a
    KRaft cluster.
    """
    action = _action(given)
    if given.bootstrap_controller is not None:
        given.bootstrap_server = given.bootstrap_controller
    if action == "unregister":
        return run(_unregister(given), given.timeout, CLUSTER)
    shape, show = (ID, _show_id) if action == "cluster-id" else (ENDPOINTS, _show_endpoints)
    with rows_if_asked(given, shape) as out:
        return run(show(given, out), given.timeout, CLUSTER)


def _action(given: SimpleNamespace) -> str:
    if len(given.action) != 1 or given.action[0] not in ACTIONS:
        refuse(f"say what to do: {', '.join(ACTIONS)}")
    action: str = given.action[0]
    exclude(given, "bootstrap-controller", ("bootstrap-server",))
    if action == "unregister":
        require(given, "id")
    for name, of in (
        ("id", "unregister"),
        ("dry-run", "unregister"),
        ("include-fenced-brokers", "list-endpoints"),
    ):
        if is_given(given, name) and action != of:
            refuse(f"--{name} goes with {of}")
    if action == "unregister" and given.output is not None:
        refuse("--output goes with cluster-id and list-endpoints")
    return action


async def _show_id(given: SimpleNamespace, out: Rows | None) -> int:
    described = await _described(given)
    if out is not None:
        out.row(cluster_id=described.cluster_id)
    elif described.cluster_id is None:
        answer(TOO_OLD)
    else:
        answer(f"Cluster ID: {described.cluster_id}")
    return DONE


async def _show_endpoints(given: SimpleNamespace, out: Rows | None) -> int:
    controllers = given.bootstrap_controller is not None
    if controllers and given.include_fenced_brokers:
        raise Refused(
            "The option --include-fenced-brokers is only supported with --bootstrap-server option"
        )
    described = await _described(given)
    kind = "controller" if controllers else "broker"
    states = {n.id: "fenced" if n.id in described.fenced else "unfenced" for n in described.brokers}
    if out is None:
        answer("\n".join(_columns(described.brokers, None if controllers else states, kind)))
        return DONE
    for node in described.brokers:
        state = None if controllers else states[node.id]
        out.row(**node._asdict(), state=state, endpoint_type=kind)
    return DONE


def _columns(nodes: list[Node], states: dict[int, str] | None, kind: str) -> list[str]:
    """Kafka's table: the columns of hosts and racks are as wide as the widest of them."""
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


async def _described(given: SimpleNamespace) -> ClusterDescription:
    async with _admin(given) as admin:
        return await admin.describe_cluster(
            controllers=given.bootstrap_controller is not None,
            include_fenced=given.include_fenced_brokers,
        )


async def _unregister(given: SimpleNamespace) -> int:
    from kserver.errors import ErrorCode, KafkaError

    async with _admin(given) as admin:
        if given.dry_run:
            if given.bootstrap_controller is not None:
                raise Refused("--dry-run asks a broker: it goes with --bootstrap-server")
            described = await admin.describe_cluster(include_fenced=True)
            if given.id not in {node.id for node in described.brokers}:
                raise Refused(f"Broker ID {given.id} is not currently registered")
            would(f"unregister broker {given.id}")
            return DONE
        try:
            await admin.unregister_broker(given.id)
        except KafkaError as error:
            if error.code != ErrorCode.unsupported_version:
                raise
            raise Refused(NO_UNREGISTRATION) from None
    answer(f"Broker {given.id} is no longer registered.")
    return DONE


def _admin(given: SimpleNamespace) -> Admin:
    from kcli.client.admin import Admin

    return Admin(admin_config(given))
