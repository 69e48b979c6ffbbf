"""Format results as a table, and as a section between the markers of README.md. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tests.bench.figures import Line, shown

LONE, CLUSTERS = (
    f"<!-- results{whose}: written by `python -m tests.bench --write` -->"
    for whose in ("", " of clusters")
)
"""Markers in README.md that begin the results of each kind of rows."""
END = "<!-- end of results -->"


def table(lines: Sequence[Line], ours: str, compiled: str, rival: str) -> str:
    """Return a Markdown table, aligned so that it is also readable as plain text."""
    head = ("row", "figure", ours, compiled, rival, "ratio", "compiled", "aim", "")
    body = [
        (
            line.figure,
            shown(line.ours),
            shown(line.compiled),
            shown(line.rival),
            _ratio(line.ratio),
            _ratio(line.ratio_compiled),
            "" if line.aim is None else str(line.aim),
            _verdict(line),
        )
        for line in lines
    ]
    return _aligned(head, "llrrrrrll", lines, body)


def cluster_table(lines: Sequence[Line], ours: str, rival: str, elder: str) -> str:
    """Return the same table with two rivals."""
    head = ("row", "figure", ours, rival, elder, "ratio", "ratio", "aim", "")
    body = [
        (
            line.figure,
            shown(line.ours),
            shown(line.rival),
            shown(line.elder),
            _ratio(line.ratio),
            _ratio(line.ratio_elder),
            "" if line.aim is None else str(line.aim),
            _verdict(line),
        )
        for line in lines
    ]
    return _aligned(head, "llrrrrrll", lines, body)


def _aligned(
    head: Sequence[str], sides: str, lines: Sequence[Line], cells: Sequence[Sequence[str]]
) -> str:
    """Align the cells; `sides` has l or r for each column. Only a row's first line shows its
    name."""
    body = []
    previous = ""
    for line, rest in zip(lines, cells, strict=True):
        name, previous = "" if line.row == previous else line.row, line.row
        body.append((name, *rest))
    widths = [max(len(row[i]) for row in (head, *body)) for i in range(len(head))]
    rule = [
        "-" * (width - 1) + (":" if side == "r" else "-")
        for width, side in zip(widths, sides, strict=True)
    ]

    def row(cells: Iterable[str]) -> str:
        aligned = (
            cell.rjust(width) if side == "r" else cell.ljust(width)
            for cell, width, side in zip(cells, widths, sides, strict=True)
        )
        return f"| {' | '.join(aligned)} |"

    return "\n".join([row(head), f"| {' | '.join(rule)} |", *map(row, body)])


def _ratio(ratio: float | None) -> str:
    return f"{shown(ratio)}x" if ratio is not None else ""


def _verdict(line: Line) -> str:
    if not line.is_short:
        return "**short** compiled" if line.is_short_compiled else ""
    reached = line.compiled is not None and not line.is_short_compiled
    return "**short**, compiled reached" if reached else "**short**"


def section(
    runs: Sequence[tuple[str, str]],
    machine: Mapping[str, str],
    warnings: Sequence[str],
    table: str,
    about: Mapping[str, str],
) -> str:
    """Return the text between the markers; `runs` are the runs' commands and dates."""
    parts = [
        "; ".join(f"`{command}`, {date}" for command, date in runs) + ".",
        "; ".join(f"{name}: {value}" for name, value in machine.items()) + ".",
    ]
    if warnings:
        parts.append("Not quiet: " + "; ".join(warnings) + ".")
    parts.append(table)
    parts.append("\n".join(f"- `{name}`: {text}" for name, text in about.items()))
    return "\n\n".join(parts)


def between_markers(text: str, begin: str, section: str) -> str:
    """`text` with what stands from LONE or CLUSTERS to END replaced; ValueError without them."""
    before, found, rest = text.partition(begin)
    _, end, after = rest.partition(END)
    if not (found and end):
        raise ValueError("no markers for the results")
    return f"{before}{begin}\n\n{section}\n\n{END}{after}"
