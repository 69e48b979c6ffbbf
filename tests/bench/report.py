"""Pure: results as a table, as JSON and between the markers of README.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tests.bench.figures import Line, shown

LONE, CLUSTERS = (
    f"<!-- results{whose}: written by `python -m tests.bench --write` -->"
    for whose in ("", " of clusters")
)
"""What the results of each kind of row begin with in README.md."""
END = "<!-- end of results -->"


def table(lines: Sequence[Line], ours: str, compiled: str, rival: str) -> str:
    """Markdown, aligned so that it reads well as plain text too."""
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
    """The same with two rivals."""
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
    """`sides` has a letter a column: l or r.  A row's name stands at its first figure."""
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
    """What stands between the markers; `runs` are their commands and dates."""
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
