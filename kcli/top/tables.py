"""A snapshot for a person: a line about the cluster, and tables of brokers, topics and groups.

Pure: rows in, lines out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple, TypeAlias

from kcli.command.output import visible
from kcli.groups.group_text import NOTHING
from kcli.top.rates import AWAY, OFFLINE, UNDER_REPLICATED, UP, Dashboard, Row

Cells: TypeAlias = tuple[str, ...]

RATES = ("RECORDS-IN/S", "BYTES-IN/S", "RECORDS-OUT/S", "~BYTES-OUT/S")
"""The tilde marks an estimate."""
CHANGES = ("ISR", "ELECTIONS", "OUT-OF-SYNC", "SIZE")
HEADINGS = {
    "brokers": ("BROKER", "STATE", *RATES, "LEADS", *CHANGES),
    "topics": ("TOPIC", "STATE", *RATES, "PARTITIONS", *CHANGES),
    "groups": ("GROUP", "STATE", "LAG", "LAG/S", "TREND", *RATES[2:], "PARTITIONS"),
}
"""The most important columns are on the left: a narrow terminal shows as many as fit."""
VIEWS = tuple(HEADINGS)
ON_THE_LEFT = (0, 1)
"""Left-aligned columns."""
GAP = "  "
NAME_COLUMNS = 30
"""Maximum width of the name on a terminal that is too narrow."""

HEADING, WRONG = "heading", "wrong"


class TextLine(NamedTuple):
    text: str
    style: str = ""
    """HEADING, WRONG or "": style on a terminal."""


def summary(dashboard: Dashboard) -> str:
    """Return a line about the cluster."""
    partitions, under_replicated, offline = (
        sum(getattr(row, name) or 0 for row in dashboard.topics)
        for name in ("partitions", "under_replicated", "offline")
    )
    controller = NOTHING if dashboard.controller is None else str(dashboard.controller)
    line = (
        f"{clock(dashboard.time_ms)}  brokers {len(dashboard.brokers)}, away {dashboard.away}, "
        f"controller {controller}  topics {len(dashboard.topics):,}  partitions {partitions:,}, "
        f"under-replicated {under_replicated:,}, offline {offline:,}  "
        f"groups {len(dashboard.groups):,}"
    )
    return visible(line)


def notes(dashboard: Dashboard) -> list[str]:
    """Return the reasons why the tables are incomplete."""
    lines = [f"not available: {what}: {why}" for what, why in dashboard.refused.items()]
    if dashboard.missing:
        lines.append(
            f"no broker has answered since {clock(dashboard.time_ms)}: {dashboard.missing}"
        )
    return list(map(visible, lines))


def tables(
    dashboard: Dashboard,
    views: Sequence[str],
    *,
    height: int | None = None,
    width: int | None = None,
) -> list[list[TextLine]]:
    """Return the lines of each of `views`, cut to `height` lines in total, including a blank one
    before each, and to `width` columns.
    """
    rows = rows_of(dashboard)
    row_counts = [len(rows[view]) for view in views]
    rooms = row_counts if height is None else shared(row_counts, height - 2 * len(views))
    return [_table(view, rows[view], room, width) for view, room in zip(views, rooms, strict=True)]


def rows_of(dashboard: Dashboard) -> dict[str, list[Row]]:
    return {"brokers": dashboard.brokers, "topics": dashboard.topics, "groups": dashboard.groups}


def shared(row_counts: Sequence[int], lines: int) -> list[int]:
    """Return the lines of each table, of `lines` in all: tables that need few get them, the others
    share the rest evenly.
    """
    rooms = [0] * len(row_counts)
    rest = max(lines, 0)
    smallest_first = sorted(range(len(row_counts)), key=lambda index: row_counts[index])
    for done, index in enumerate(smallest_first):
        rooms[index] = min(row_counts[index], rest // (len(row_counts) - done))
        rest -= rooms[index]
    return rooms


def _table(view: str, rows: Sequence[Row], room: int, width: int | None) -> list[TextLine]:
    # One line has the number of the others.
    shown = rows if len(rows) <= room else rows[: max(0, room - 1)]
    cells = [HEADINGS[view], *(tuple(map(visible, _CELLS[view](row))) for row in shown)]
    heading, *lines = aligned(cells, width)
    table = [TextLine(heading, HEADING)]
    table += [
        TextLine(text, WRONG if row.state in (AWAY, OFFLINE, UNDER_REPLICATED) else "")
        for row, text in zip(shown, lines, strict=True)
    ]
    if len(shown) < len(rows) and room > 0:
        table.append(TextLine(f"... and {len(rows) - len(shown):,} more"))
    return table


def aligned(lines: Sequence[Cells], width: int | None) -> list[str]:
    """Align columns; to fit `width`, names are cut and then columns are left out."""
    from rich.cells import cell_len, set_cell_size

    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    if width is not None:
        if sum(widths) + len(GAP) * (len(widths) - 1) > width:
            widths[0] = min(widths[0], NAME_COLUMNS)
        while len(widths) > 1 and sum(widths) + len(GAP) * (len(widths) - 1) > width:
            widths.pop()

    def padded(index: int, cell: str) -> str:
        if cell_len(cell) > widths[index]:
            return set_cell_size(cell, widths[index] - 1) + "…"
        filling = " " * (widths[index] - cell_len(cell))
        return cell + filling if index in ON_THE_LEFT else filling + cell

    return [
        GAP.join(padded(index, cells[index]) for index in range(len(widths))).rstrip()
        for cells in lines
    ]


def _broker(row: Row) -> Cells:
    state = row.state or NOTHING
    if row.state == UP and row.is_controller:
        state = "controller"
    elif row.state == AWAY and row.away_since_ms is not None:
        state = f"{AWAY} since {clock(row.away_since_ms)}"
    name = f"{row.name} {row.address}" if row.address else row.name
    return (
        name,
        state,
        *_rates(row),
        number(row.partitions),
        *_changes(row),
    )


def _topic(row: Row) -> Cells:
    return (
        row.name,
        f"{OFFLINE} {row.offline}" if row.offline else row.state or NOTHING,
        *_rates(row),
        number(row.partitions),
        *_changes(row),
    )


def _group(row: Row) -> Cells:
    return (
        row.name,
        row.state or NOTHING,
        number(row.lag),
        NOTHING if row.lag_per_second is None else f"{row.lag_per_second:+,.1f}",
        row.lag_trend or NOTHING,
        rate(row.records_out_per_second),
        size(row.bytes_out_per_second),
        number(row.partitions),
    )


_CELLS: dict[str, Callable[[Row], Cells]] = {
    "brokers": _broker,
    "topics": _topic,
    "groups": _group,
}


def _rates(row: Row) -> Cells:
    return (
        rate(row.records_in_per_second),
        size(row.bytes_in_per_second),
        rate(row.records_out_per_second),
        size(row.bytes_out_per_second),
    )


def _changes(row: Row) -> Cells:
    return (
        f"-{row.isr_left} +{row.isr_joined}",
        number(row.leader_changes),
        number(row.under_replicated),
        size(row.size_bytes),
    )


def clock(time_ms: int) -> str:
    """Return the local time of day."""
    return datetime.fromtimestamp(time_ms / 1000).astimezone().strftime("%H:%M:%S")


def number(value: int | None) -> str:
    return NOTHING if value is None else f"{value:,}"


def rate(value: float | None) -> str:
    return NOTHING if value is None else f"{value:,.1f}"


def size(value: float | None) -> str:
    """Format a size, such as `1.5 MB`, in powers of 1000."""
    from rich.filesize import decimal

    return NOTHING if value is None else decimal(round(value))
