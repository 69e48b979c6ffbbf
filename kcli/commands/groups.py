"""`k groups`: lists groups of all types."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcli.command.command import Manual, Options, command
from kcli.command.command_runner import CLUSTER, EXPECTED, admin_config, reason, run, status_of
from kcli.command.options import cluster, exclude, option, option_group, refuse
from kcli.command.output import print_output
from kcli.command.statuses import DONE
from kcli.groups.group_shapes import ANY, OTHER_TYPES, TYPES
from kcli.groups.group_text import any_lines
from kcli.rows.listing import formatted, rows

if TYPE_CHECKING:
    from kcli.client.group.group_descriptions import GroupListing

ANY_TYPES = TYPES + OTHER_TYPES
KINDS = ("consumer", "share", "streams")

MANUAL = Manual(
    kafka="kafka-groups.sh",
    examples=(
        ("k groups --list", "All groups."),
        ("k groups --list --consumer", "Groups of consumers, of either protocol."),
        ("k groups --list --protocol connect", "The workers of Kafka Connect."),
    ),
    differences=("An unknown --group-type is a usage error.",),
    see_also=("k-consumer-groups",),
)


@command(manual=MANUAL)
@option_group(
    option("--list", "Print groups; the only action."),
    option("--group-type", f"Only groups of this type: {', '.join(ANY_TYPES)}.", "TYPE"),
    option("--protocol", "Only groups of this protocol type, such as consumer.", "NAME"),
    option(
        "--consumer",
        "Only groups of consumers, and groups that have only committed offsets.",
    ),
    option("--share", "Only share groups."),
    option("--streams", "Only groups of Kafka Streams."),
    formatted(ANY),
    cluster,
)
def groups(options: Options) -> int:
    """Prints groups of all types: the name, the type and the protocol type."""
    _check(options)
    if options.output is not None:
        with rows(options, ANY) as out:
            for group in run(_list_groups(options), options.timeout, CLUSTER):
                protocol = group.protocol_type or None
                out.row(group=group.group, type=group.type, protocol=protocol, state=group.state)
        return out.status
    try:
        for line in any_lines(run(_list_groups(options), options.timeout, CLUSTER)):
            print_output(line)
    except EXPECTED as error:
        print_output(f"Error while executing groups command : {reason(error)}")
        return status_of(error)
    return DONE


async def _list_groups(options: Options) -> list[GroupListing]:
    from kcli.client.admin.admin import Admin

    async with Admin(admin_config(options)) as admin:
        return [group for group in await admin.groups.listings() if _is_selected(options, group)]


def _is_selected(options: Options, group: GroupListing) -> bool:
    if options.consumer:
        return group.protocol_type in ("", "consumer") or group.type == "Consumer"
    if options.share or options.streams:
        return group.type == ("Share" if options.share else "Streams")
    return (options.group_type is None or group.type == options.group_type.capitalize()) and (
        options.protocol is None or group.protocol_type == options.protocol
    )


def _check(options: Options) -> None:
    if not options.list:
        refuse("Command must include exactly one action: --list.")
    if options.group_type is not None and options.group_type.capitalize() not in ANY_TYPES:
        refuse("--group-type must be a valid group type.")
    for kind in KINDS:
        others = [other for other in ("group-type", "protocol", *KINDS) if other != kind]
        exclude(options, kind, others)
