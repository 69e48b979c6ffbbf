"""Output of snapshots: in place on a terminal, as tables one after another, or as rows of -o."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from kcli.client.errors import ClusterUnreachable
from kcli.command.options import Refused
from kcli.command.output import complain, print_output
from kcli.rows.listing import Rows
from kcli.top import tables
from kcli.top.rates import Dashboard
from kcli.top.tables import HEADING, WRONG, TextLine

Show: TypeAlias = Callable[[Dashboard], None]

STYLES = {HEADING: "bold", WRONG: "red", "": ""}


def as_rows(out: Rows, views: Sequence[str]) -> Show:
    """Return a function that prints rows; each refused request is reported once."""
    old_refusals: set[str] = set()
    was_missing = False

    def show(dashboard: Dashboard) -> None:
        nonlocal was_missing
        rows = tables.rows_of(dashboard)
        for row in (row for view in views for row in rows[view]):
            out.row(time_ms=dashboard.time_ms, **row._asdict())
        for what, why in dashboard.refused.items():
            if what not in old_refusals:
                old_refusals.add(what)
                out.refused(what, Refused(why))
        if dashboard.missing and not was_missing:
            out.refused(None, ClusterUnreachable("listTopics"))
        was_missing = bool(dashboard.missing)

    return show


def as_text(views: Sequence[str]) -> Show:
    """Return a function that prints whole tables, and a blank line between snapshots."""
    old_notes: set[str] = set()
    is_first = True

    def show(dashboard: Dashboard) -> None:
        nonlocal is_first
        if not is_first:
            print_output()
        is_first = False
        print_output(tables.summary(dashboard))
        for table in tables.tables(dashboard, views):
            print_output()
            for line in table:
                print_output(line.text)
        for note in tables.notes(dashboard):
            if note not in old_notes:
                old_notes.add(note)
                complain(note)

    return show


@contextmanager
def on_a_terminal(views: Sequence[str]) -> Iterator[Show]:
    """Show each snapshot in place of the one before, cut to the terminal's size."""
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    console = Console()

    def drawn(dashboard: Dashboard) -> Group:
        lines = [TextLine(tables.summary(dashboard), HEADING)]
        lines += [TextLine(note, WRONG) for note in tables.notes(dashboard)]
        # One line less, for the cursor.
        height = console.height - 1 - len(lines)
        for table in tables.tables(dashboard, views, height=height, width=console.width):
            lines += [TextLine(""), *table]
        return Group(
            *(Text(line.text, STYLES[line.style], no_wrap=True, overflow="crop") for line in lines)
        )

    # Other output is printed as usual.
    with Live(
        console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
    ) as live:
        yield lambda dashboard: live.update(drawn(dashboard), refresh=True)
