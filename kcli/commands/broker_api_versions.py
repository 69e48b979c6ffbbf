"""`k broker-api-versions`: which requests each broker answers, in which versions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import SimpleNamespace

from kcli.command import Manual, command
from kcli.options import cluster
from kcli.output import answer
from kcli.running import EXPECTED, admin_config, reason, run

MANUAL = Manual(
    kafka="kafka-broker-api-versions.sh",
    examples=(("k broker-api-versions", "What each broker of the cluster answers."),),
    differences=(
        "usable: is the highest version that both the broker and k know; Kafka's tool names what "
        "Java's client knows.",
        "A broker that does not answer makes the exit status 1.",
        "Brokers are shown in the order of their ids.",
    ),
)

PATIENCE_MS = "5000"
# Requests that brokers and controllers send each other; a client asks for none of them.
NOT_FOR_CLIENTS = frozenset({4, 5, 6, 7, 52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 82})
# What Kafka 4 took out of its protocol: brokers up to 3.9 in ZooKeeper mode still offer them.
GONE = {4: "LeaderAndIsr", 5: "StopReplica", 6: "UpdateMetadata", 7: "ControlledShutdown"}


@command(manual=MANUAL)
@cluster
def broker_api_versions(given: SimpleNamespace) -> int:
    """Prints, for each broker, the requests that it answers and their versions.

    usable: is the version that a client would use; UNSUPPORTED is a request that the broker does
    not answer, and UNKNOWN one that k does not know.
    """
    return run(_print_versions(given), given.timeout)


async def _print_versions(given: SimpleNamespace) -> int:
    from kcli.client.admin import Admin

    limits = {"request_timeout_ms": PATIENCE_MS, "default_api_timeout_ms": PATIENCE_MS}
    status = 0
    async with Admin(admin_config(given, **limits)) as admin:
        for node in await admin.nodes():
            name = (
                f"{node.host}:{node.port} (id: {node.id} rack: {node.rack or 'null'} "
                "isFenced: false)"
            )
            try:
                offered = await admin.api_versions(node)
            except EXPECTED as error:
                answer(f"{name} -> ERROR: {reason(error)}")
                status = 1
                continue
            answer(f"{name} -> (")
            answer(",\n".join(versions_lines(offered)))
            answer(")")
    return status


def versions_lines(offered: Mapping[int, tuple[int, int]]) -> Iterator[str]:
    """A line for each request that the broker offers or a client knows, by key."""
    from kio.schema.index import api_key_map

    from kserver.wire import codec

    for_clients = api_key_map.keys() - NOT_FOR_CLIENTS
    for key in sorted(for_clients | offered.keys()):
        if key not in offered:
            yield f"\t{codec.api_name(key)}({key}): UNSUPPORTED"
            continue
        first, last = offered[key]
        versions = str(first) if first == last else f"{first} to {last}"
        if key in GONE:
            yield f"\t{GONE[key]}({key}): {versions} [unusable: node too new]"
        elif key not in api_key_map:
            yield f"\tUNKNOWN({key}): {versions}"
        else:
            ours = codec.versions_of(key)
            yield f"\t{codec.api_name(key)}({key}): {versions} [{_use(first, last, *ours)}]"


def _use(first: int, last: int, our_first: int, our_last: int) -> str:
    if last < our_first:
        return "unusable: node too old"
    if first > our_last:
        return "unusable: node too new"
    return f"usable: {min(last, our_last)}"
