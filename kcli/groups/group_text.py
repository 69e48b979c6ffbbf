"""The tables that kafka-consumer-groups.sh and kafka-groups.sh print.

Pure: descriptions of groups in, lines out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from kcli.client.group.group_descriptions import GroupDescription, GroupListing, GroupMember
from kserver.model import LeaderEpoch, Offset, TopicPartition

NOTHING = "-"
UNKNOWN = "Unknown"


class GroupPosition(NamedTuple):
    """A group's position in a partition, and the member that reads there."""

    partition: TopicPartition
    committed: Offset | None
    leader_epoch: LeaderEpoch | None
    end: Offset | None
    member: GroupMember | None

    @property
    def lag(self) -> int | None:
        """In offsets. Below zero if the committed offset is past the end of the partition."""
        if self.committed is None or self.end is None:
            return None
        return self.end - self.committed


class _Column(NamedTuple):
    """`width` is the minimum; a column that `widens` is as wide as its longest cell."""

    heading: str
    width: int
    widens: bool = False


_OFFSETS = (
    _Column("GROUP", 15, True),
    _Column("TOPIC", 15, True),
    _Column("PARTITION", 10),
    _Column("LEADER-EPOCH", 15),
    _Column("CURRENT-OFFSET", 15),
    _Column("LOG-END-OFFSET", 15),
    _Column("LAG", 15),
    _Column("CONSUMER-ID", 15, True),
    _Column("HOST", 15, True),
    _Column("CLIENT-ID", 0),
)
_MEMBERS = (
    _Column("GROUP", 15, True),
    _Column("CONSUMER-ID", 15, True),
    _Column("GROUP-INSTANCE-ID", 17, True),
    _Column("HOST", 15, True),
    _Column("CLIENT-ID", 15, True),
    _Column("#PARTITIONS", 15),
)
_ASSIGNMENTS = (
    _Column("CURRENT-EPOCH", 15),
    _Column("CURRENT-ASSIGNMENT", 20, True),
    _Column("TARGET-EPOCH", 15),
    _Column("TARGET-ASSIGNMENT", 20, True),
    _Column("UPGRADED", 0),
)
_STATE = (
    _Column("GROUP", 15, True),
    _Column("COORDINATOR (ID)", 25, True),
    _Column("ASSIGNMENT-STRATEGY", 20),
    _Column("STATE", 20),
    _Column("GROUP-EPOCH", 15),
    _Column("TARGET-ASSIGNMENT-EPOCH", 25),
    _Column("#MEMBERS", 0),
)
_RESET = (
    _Column("GROUP", 15, True),
    _Column("TOPIC", 15, True),
    _Column("PARTITION", 10),
    _Column("NEW-OFFSET", 0),
)
_DELETED = (
    _Column("TOPIC", 15, True),
    _Column("PARTITION", 10),
    _Column("STATUS", 15),
)
_NO_COLUMN = _Column("", 0)


def list_lines(groups: Sequence[GroupListing], *, types: bool, states: bool) -> Iterator[str]:
    if not types and not states:
        yield from (group.group for group in groups)
        return
    width = max([15, *(len(group.group) for group in groups)]) + 10
    rows = [("GROUP", "TYPE", "STATE")]
    rows += [(group.group, group.type or UNKNOWN, group.state or UNKNOWN) for group in groups]
    for name, type, state in rows:
        yield f"{name:{width}}" + f" {type:20}" * types + f" {state:20}" * states


def any_lines(groups: Sequence[GroupListing]) -> Iterator[str]:
    """Yield the lines of kafka-groups.sh; only the heading does not end in a space."""
    rows = [(group.group, group.type or "", group.protocol_type) for group in groups]
    width = max([20, *(len(cell) for row in rows for cell in row)])
    yield " ".join(f"{cell:{width}}" for cell in ("GROUP", "TYPE", "PROTOCOL"))
    for row in rows:
        yield "".join(f"{cell:{width}} " for cell in row)


def offset_lines(group: str, readings: Iterable[GroupPosition], *, verbose: bool) -> Iterator[str]:
    columns = _OFFSETS if verbose else _without(_OFFSETS, "LEADER-EPOCH")
    rows = []
    for reading in readings:
        epoch = [_cell(reading.leader_epoch)] if verbose else []
        member = reading.member
        who = [member.id, member.host, member.client_id] if member else [NOTHING] * 3
        at = map(_cell, (reading.committed, reading.end, reading.lag))
        rows.append(
            [group, reading.partition.topic, str(reading.partition.partition), *epoch, *at, *who]
        )
    return _table(columns, rows)


def member_lines(group: GroupDescription, *, verbose: bool) -> Iterator[str]:
    is_static = any(member.instance_id for member in group.members)
    is_mixed = {member.is_upgraded for member in group.members} >= {False, True}
    columns = _MEMBERS if is_static else _without(_MEMBERS, "GROUP-INSTANCE-ID")
    if verbose:
        columns += _ASSIGNMENTS if is_mixed else _without(_ASSIGNMENTS, "UPGRADED")
    else:
        columns += (_NO_COLUMN,)
    rows = []
    for member in group.members:
        row = [group.group, member.id]
        row += [member.instance_id or ""] if is_static else []
        row += [member.host, member.client_id, str(len(member.assignment))]
        if not verbose:
            row.append("")
        else:
            row += [_cell(member.epoch), _assignment_cell(member.assignment)]
            row += [_cell(group.target_epoch), _assignment_cell(member.target or ())]
            row += [_cell(member.is_upgraded).lower()] if is_mixed else []
        rows.append(row)
    return _table(columns, rows)


def state_lines(group: GroupDescription, *, verbose: bool) -> Iterator[str]:
    columns = _STATE if verbose else _without(_STATE, "GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH")
    where = group.coordinator
    row = [group.group, f"{where.host}:{where.port}  ({where.id})", group.assignor or NOTHING]
    row.append(group.state)
    if verbose:
        row += [_cell(group.epoch), _cell(group.target_epoch)]
    return _table(columns, [[*row, str(len(group.members))]])


def reset_lines(plan: dict[str, dict[TopicPartition, Offset]]) -> Iterator[str]:
    """Yield the table of new offsets; one empty line if there is no group."""
    rows = [
        [group, partition.topic, str(partition.partition), str(offset)]
        for group, offsets in plan.items()
        for partition, offset in offsets.items()
    ]
    return _table(_RESET, rows) if plan else iter([""])


def deleted_lines(outcomes: Iterable[tuple[TopicPartition, str]]) -> Iterator[str]:
    """Yield the table of deletions; partition -1 stands for a topic without a known partition."""
    return _table(
        _DELETED,
        [
            [topic, str(partition) if partition >= 0 else NOTHING, outcome]
            for (topic, partition), outcome in outcomes
        ],
    )


def assignment_words(partitions: Iterable[TopicPartition]) -> list[str]:
    """Return `TOPIC:PARTITION,...` of each topic, by name."""
    topics: dict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(partitions):
        topics[topic].append(partition)
    return [f"{topic}:{','.join(map(str, of))}" for topic, of in topics.items()]


def _assignment_cell(partitions: Iterable[TopicPartition]) -> str:
    return ";".join(sorted(assignment_words(partitions))) or NOTHING


def _cell(value: object) -> str:
    return NOTHING if value is None else str(value)


def _without(columns: tuple[_Column, ...], *headings: str) -> tuple[_Column, ...]:
    return tuple(column for column in columns if column.heading not in headings)


def _table(columns: Sequence[_Column], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield an empty line, the headings, and the rows."""
    widths = [
        max([column.width, *(len(row[n]) for row in rows)]) if column.widens else column.width
        for n, column in enumerate(columns)
    ]
    yield ""
    for cells in ([column.heading for column in columns], *rows):
        yield " ".join(f"{cell:{width}}" for cell, width in zip(cells, widths, strict=True))
