"""--watch and --until-lag: sample groups again and again."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from kcli.command.options import Refused
from kcli.command.output import is_redrawable, print_output, visible
from kcli.groups import lag
from kcli.groups.description import existing
from kcli.groups.group_queries import DEAD, Ages, readings
from kcli.groups.group_text import NOTHING, GroupPosition
from kcli.groups.lag import GroupLag, Look, PartitionLag, Trend
from kcli.rows.listing import Rows
from kserver.errors import KafkaError
from kserver.model import Offset, TopicPartition
from kserver.wire.special_offsets import EARLIEST

if TYPE_CHECKING:
    from kcli.client.admin.admin import Admin
    from kcli.command.command import Options

EVERY_S = 1.0
"""Seconds between samples with --until-lag, without --watch."""
ROOM_LINES = 3
"""Lines that a table leaves to its headings and the shell."""

Show: TypeAlias = Callable[[Sequence[GroupLag]], None]

Names: TypeAlias = Callable[[], Awaitable[Sequence[str]]]


async def watch(
    admin: Admin, options: Options, names: Names, out: Rows | None, last: list[Look]
) -> None:
    """Sample the groups that `names` returns each time, and show them with --watch, until their lag
    is at most --until-lag, or for ever. Raises Refused if a group does not exist.

    `last` gets the last samples, for the error when the time runs out.
    """
    every_s = options.watch or EVERY_S
    with ExitStack() as stack:
        show: Show
        if options.watch is None:
            show = _show_nothing
        elif out is not None:
            show = _as_rows(out)
        elif is_redrawable(sys.stdout):
            show = stack.enter_context(_on_a_terminal())
        else:
            show = _as_lines()
        await _until(admin, names, every_s, show, options.until_lag, last)


async def _until(
    admin: Admin,
    names: Names,
    every_s: float,
    show: Show,
    until_lag: int | None,
    last: list[Look],
) -> None:
    watcher = _Watcher(admin)
    loop = asyncio.get_running_loop()
    while True:
        began = loop.time()
        group_lags = await watcher.look(await names())
        last[:] = (group.look for group in group_lags)
        show(group_lags)
        sys.stdout.flush()
        if until_lag is not None and all(group.look.has_come_to(until_lag) for group in group_lags):
            return
        await asyncio.sleep(max(0, began + every_s - loop.time()))


class _Watcher:
    """Samples groups, and remembers earlier samples for trends and ages."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._trends: dict[str, Trend] = defaultdict(Trend)
        self._ages: dict[str, Ages] = defaultdict(Ages)

    async def look(self, names: Sequence[str]) -> list[GroupLag]:
        groups = await existing(self._admin, names)
        for group in groups:
            if group.state == DEAD:
                raise Refused(f"Consumer group '{group.group}' does not exist.")
        positions = await readings(self._admin, groups)
        now_s = time.time()
        starts = await self._starts(
            [reading for of_group in positions.values() for reading in of_group]
        )
        group_lags = []
        for group in groups:
            of_group = [lag.with_start(reading, starts) for reading in positions[group.group]]
            ages = await self._ages[group.group].seconds(self._admin, of_group)
            lags = [lag.lag_of(reading) for reading in of_group]
            in_all = lag.total(lags)
            look = Look(
                int(now_s * 1000),
                group.group,
                group.state,
                len(group.members),
                len(of_group),
                in_all,
                lag.oldest(ages),
                self._trends[group.group].per_second(now_s, in_all),
            )
            group_lags.append(GroupLag(look, list(map(PartitionLag, of_group, lags, ages))))
        return group_lags

    async def _starts(self, every: Sequence[GroupPosition]) -> dict[TopicPartition, Offset]:
        """Return the start offsets of partitions in which the groups have something to read."""
        unread = {
            reading.partition for reading in every if reading.end is not None and reading.lag != 0
        }
        results = await self._admin.list_offsets(dict.fromkeys(unread, EARLIEST))
        return {
            p: listed_offset.offset
            for p, listed_offset in results.items()
            if not isinstance(listed_offset, KafkaError)
        }


def _show_nothing(group_lags: Sequence[GroupLag]) -> None:
    """Show nothing: --until-lag alone prints when it has ended."""


def _as_rows(out: Rows) -> Show:
    def show(group_lags: Sequence[GroupLag]) -> None:
        for group in group_lags:
            out.row(**group.look._asdict())

    return show


def _as_lines() -> Show:
    print_output(lag.heading())

    def show(group_lags: Sequence[GroupLag]) -> None:
        for group in group_lags:
            print_output(lag.line(group.look))

    return show


@contextmanager
def _on_a_terminal() -> Iterator[Show]:
    """Yield a function that replaces the table on the terminal: groups, and the lag of their
    partitions.
    """
    from rich.console import Console
    from rich.live import Live

    console = Console()
    # Other output of the command is printed unchanged.
    with Live(
        console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
    ) as live:
        yield lambda group_lags: live.update(
            _table(group_lags, console.height - ROOM_LINES), refresh=True
        )


def _table(group_lags: Sequence[GroupLag], most: int) -> Any:
    """Return a table of each group, followed by its partitions, those with the most lag first; at
    most `most` lines.
    """
    from rich.table import Column, Table
    from rich.text import Text

    numbers = [Column(name, justify="right") for name in ("LAG", "LAG-SECONDS", "TREND")]
    table = Table(
        "GROUP",
        "TOPIC",
        Column("PARTITION", justify="right"),
        *numbers,
        "STATE, CLIENT-ID",
        box=None,
    )
    lines: list[tuple[str, ...]] = []
    for look, parts in group_lags:
        metrics = (
            _number(look.lag),
            lag.seconds(look.lag_seconds),
            lag.rate(look.records_per_second),
        )
        lines.append((look.group, "", "", *metrics, look.state))
        for part in sorted(parts, key=lambda part: -(part.lag or 0)):
            topic, number = part.reading.partition
            member = part.reading.member
            behind = (_number(part.lag), lag.seconds(part.lag_seconds), "")
            lines.append(("", topic, str(number), *behind, member.client_id if member else NOTHING))
    shown = lines if len(lines) <= most else lines[: max(1, most - 1)]
    for cells in shown:
        style = "bold" if cells[0] else None
        table.add_row(*(Text(visible(cell)) for cell in cells), style=style)
    if len(shown) < len(lines):
        table.add_row("", f"... and {len(lines) - len(shown):,} more")
    return table


def _number(value: int | None) -> str:
    return NOTHING if value is None else f"{value:,}"
