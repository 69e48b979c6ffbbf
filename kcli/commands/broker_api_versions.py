"""`k broker-api-versions`: the requests each broker supports, with their versions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from kcli.command.command import Manual, Options, command
from kcli.command.command_runner import CLUSTER, EXPECTED, admin_config, reason, run
from kcli.command.options import cluster, option_group
from kcli.command.output import print_output
from kcli.rows.listing import Rows, formatted, rows
from kcli.rows.shapes import RowField, RowShape

if TYPE_CHECKING:
    from kcli.client.cluster import Node

MANUAL = Manual(
    kafka="kafka-broker-api-versions.sh",
    examples=(
        ("k broker-api-versions", "The requests that each broker of the cluster supports."),
        (
            "k broker-api-versions -o jsonl | jq 'select(.api == \"Fetch\") | .max_version'",
            "The newest supported version of one request, for each broker.",
        ),
    ),
    differences=(
        "usable: is the highest version that both the broker and k know; Kafka's tool names what "
        "Java's client knows.",
        "If a broker does not answer, the exit status is 1.",
        "Brokers are shown in the order of their ids.",
    ),
)

PATIENCE_MS = "5000"
# Requests that brokers and controllers send each other; no client sends them.
NOT_FOR_CLIENTS = frozenset({4, 5, 6, 7, 52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 82})
# Requests that Kafka 4 removed from its protocol; brokers up to 3.9 in ZooKeeper mode still offer
# them.
GONE = frozenset({4, 5, 6, 7})


VERSIONS = RowShape(
    "k.broker-api-versions",
    1,
    "A request that a broker supports, or that a client knows.",
    (
        RowField("broker", "integer", "The broker's id."),
        RowField("host", "string", "Host of its address."),
        RowField("port", "integer", "Port of its address."),
        RowField("rack", "string or null", "Its rack."),
        RowField("api_key", "integer", "The API key of the request."),
        RowField("api", "string or null", "Its name; null if k does not know it."),
        RowField("min_version", "integer or null", "The lowest version that the broker supports."),
        RowField(
            "max_version",
            "integer or null",
            "The highest version; both are null if it supports none.",
        ),
        RowField(
            "usable_version", "integer or null", "The highest version that k can use, if any."
        ),
        RowField(
            "status",
            "string",
            "usable, unsupported (by the broker), unknown (to k), too-new or too-old (the broker).",
        ),
    ),
)


class Api(NamedTuple):
    """A request: the versions that the broker offers, and the one that k uses (`status` of
    VERSIONS).
    """

    key: int
    name: str | None
    offered: tuple[int, int] | None
    usable: int | None
    status: str


@command(manual=MANUAL)
@option_group(formatted(VERSIONS), cluster)
def broker_api_versions(options: Options) -> int:
    """Prints the requests that each broker supports, and their versions.

    usable: is the version that a client would use; UNSUPPORTED is a request that the broker does
    not support, and UNKNOWN a request that k does not know.
    """
    if options.output is not None:
        with rows(options, VERSIONS) as out:
            run(_list_versions(options, out), options.timeout, CLUSTER)
        return out.status
    return run(_print_versions(options), options.timeout, CLUSTER)


async def _print_versions(options: Options) -> int:
    status = 0
    async for node, offered in _brokers(options):
        name = (
            f"{node.host}:{node.port} (id: {node.id} rack: {node.rack or 'null'} isFenced: false)"
        )
        if isinstance(offered, Exception):
            print_output(f"{name} -> ERROR: {reason(offered)}")
            status = 1
            continue
        print_output(f"{name} -> (")
        print_output(",\n".join(versions_lines(offered)))
        print_output(")")
    return status


async def _list_versions(options: Options, out: Rows) -> None:
    async for node, offered in _brokers(options):
        if isinstance(offered, Exception):
            out.refused(str(node), offered)
            continue
        for api in apis(offered):
            first, last = api.offered or (None, None)
            out.row(
                broker=node.id,
                host=node.host,
                port=node.port,
                rack=node.rack,
                api_key=api.key,
                api=api.name,
                min_version=first,
                max_version=last,
                usable_version=api.usable,
                status=api.status,
            )


async def _brokers(
    options: Options,
) -> AsyncIterator[tuple[Node, Mapping[int, tuple[int, int]] | Exception]]:
    """Yield each broker with its requests, or the error."""
    from kcli.client.admin.admin import Admin

    limits = {"request_timeout_ms": PATIENCE_MS, "default_api_timeout_ms": PATIENCE_MS}
    async with Admin(admin_config(options, **limits)) as admin:
        for node in await admin.nodes():
            try:
                offered = await admin.api_versions(node)
            except EXPECTED as error:
                yield node, error
            else:
                yield node, offered


def versions_lines(offered: Mapping[int, tuple[int, int]]) -> Iterator[str]:
    """Yield a line for each request that the broker offers or a client knows, by key."""
    for api in apis(offered):
        if api.offered is None:
            yield f"\t{api.name}({api.key}): UNSUPPORTED"
            continue
        first, last = api.offered
        versions = str(first) if first == last else f"{first} to {last}"
        if api.name is None:
            yield f"\tUNKNOWN({api.key}): {versions}"
        elif api.usable is None:
            why = api.status.replace("-", " ")
            yield f"\t{api.name}({api.key}): {versions} [unusable: node {why}]"
        else:
            yield f"\t{api.name}({api.key}): {versions} [usable: {api.usable}]"


def apis(offered: Mapping[int, tuple[int, int]]) -> Iterator[Api]:
    """Yield each request that the broker offers or a client knows, by key."""
    from kio.schema.index import api_key_map

    from kserver.wire import codec

    for_clients = api_key_map.keys() - NOT_FOR_CLIENTS
    for key in sorted(for_clients | offered.keys()):
        if key not in offered:
            yield Api(key, codec.api_name(key), None, None, "unsupported")
        elif key in GONE:
            yield Api(key, codec.api_name(key), offered[key], None, "too-new")
        elif key not in api_key_map:
            yield Api(key, None, offered[key], None, "unknown")
        else:
            usable, status = _usable_version(*offered[key], *codec.versions_of(key))
            yield Api(key, codec.api_name(key), offered[key], usable, status)


def _usable_version(first: int, last: int, our_first: int, our_last: int) -> tuple[int | None, str]:
    """Return the version to use, and the status."""
    if last < our_first:
        return None, "too-old"
    if first > our_last:
        return None, "too-new"
    return min(last, our_last), "usable"
