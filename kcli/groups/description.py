"""--list and --describe: groups as Kafka's text or as rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any

from kcli.command.options import Refused
from kcli.command.output import complain, print_output
from kcli.command.statuses import DONE, FAILED
from kcli.groups import group_text
from kcli.groups.group_queries import (
    DEAD,
    EMPTY,
    REBALANCING,
    Ages,
    describe_groups,
    failure,
    list_groups,
    readings,
)
from kcli.groups.group_text import GroupPosition, assignment_words
from kcli.rows.listing import Rows
from kserver.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kcli.client.admin.admin import Admin
    from kcli.client.group.group_descriptions import GroupDescription
    from kcli.command.command import Options


async def print_list(
    admin: Admin,
    options: Options,
    states: Sequence[str],
    types: Sequence[str],
    out: Rows | None,
) -> None:
    """Print the groups of these states and types, or all; --state and --type add columns to the
    text.
    """
    groups = await list_groups(admin, states, types)
    if out is not None:
        for listing in groups:
            protocol = listing.protocol_type or None
            out.row(group=listing.group, type=listing.type, state=listing.state, protocol=protocol)
        return
    columns = {"types": options.type is not None, "states": options.state is not None}
    _print(group_text.list_lines(groups, **columns))


async def print_description(
    admin: Admin, options: Options, names: Iterable[str], out: Rows | None
) -> int:
    """Print the view that --members, --state or neither selects; return the exit status."""
    groups = await existing(admin, names, out)
    if options.members:
        for group in groups:
            if out is None:
                _is_there(group)
                _print(group_text.member_lines(group, verbose=options.verbose))
            else:
                _add(out, member_rows(group))
    elif options.state is not None:
        for group in groups:
            if out is not None:
                out.row(**state_row(group))
            elif _is_there(group):
                _print(group_text.state_lines(group, verbose=options.verbose))
    else:
        positions = await readings(admin, groups)
        for group in groups:
            of_group = positions[group.group]
            if out is not None:
                ages = await Ages().seconds(admin, of_group)
                _add(out, map(offset_row, repeat(group.group), of_group, ages))
            elif _is_there(group) and of_group:
                _print(group_text.offset_lines(group.group, of_group, verbose=options.verbose))
    dead = any(group.state == DEAD for group in groups)
    return FAILED if dead or (out is not None and out.status) else DONE


async def existing(
    admin: Admin, names: Iterable[str], out: Rows | None = None
) -> list[GroupDescription]:
    """Return the groups, sorted by name. Raises Refused, with the text of Kafka's tool, for the
    first that cannot be described; with rows, each such group gets a row instead.
    """
    groups = []
    for name, group in (await describe_groups(admin, names)).items():
        if not isinstance(group, KafkaError | Refused):
            if out is not None and group.state == DEAD:
                out.refused(name, KafkaError(ErrorCode.group_id_not_found))
            else:
                groups.append(group)
        elif out is None:
            raise Refused(failure(group))
        else:
            out.refused(name, group)
    return groups


def offset_row(group: str, reading: GroupPosition, age_seconds: float | None) -> dict[str, Any]:
    member = reading.member
    return {
        "group": group,
        "topic": reading.partition.topic,
        "partition": reading.partition.partition,
        "leader_epoch": reading.leader_epoch,
        "current_offset": reading.committed,
        "log_end_offset": reading.end,
        "lag": reading.lag,
        "lag_seconds": age_seconds,
        "consumer_id": member and member.id,
        "host": member and member.host,
        "client_id": member and member.client_id,
    }


def member_rows(group: GroupDescription) -> Iterator[dict[str, Any]]:
    for member in group.members:
        yield {
            "group": group.group,
            "consumer_id": member.id,
            "group_instance_id": member.instance_id,
            "host": member.host,
            "client_id": member.client_id,
            "partitions": len(member.assignment),
            "assignment": assignment_words(member.assignment),
            "epoch": member.epoch,
            "target_assignment": assignment_words(member.target or ()),
            "target_epoch": group.target_epoch,
            "upgraded": member.is_upgraded,
        }


def state_row(group: GroupDescription) -> dict[str, Any]:
    return {
        "group": group.group,
        "type": group.type,
        "state": group.state,
        "coordinator": f"{group.coordinator.host}:{group.coordinator.port}",
        "coordinator_id": group.coordinator.id,
        "assignment_strategy": group.assignor or None,
        "epoch": group.epoch,
        "target_epoch": group.target_epoch,
        "members": len(group.members),
    }


def _is_there(group: GroupDescription) -> bool:
    """Print what precedes the group's table; return False for a group that does not exist, which
    has no table.
    """
    if group.state == DEAD:
        print_output(f"\nError: Consumer group '{group.group}' does not exist.")
    elif group.state == EMPTY:
        complain(f"\nConsumer group '{group.group}' has no active members.")
    elif group.state in REBALANCING:
        complain(f"\nWarning: Consumer group '{group.group}' is rebalancing.")
    return group.state != DEAD


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        print_output(line)


def _add(out: Rows, rows: Iterable[dict[str, Any]]) -> None:
    for row in rows:
        out.row(**row)
