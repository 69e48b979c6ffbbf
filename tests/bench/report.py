"""Pure: results as a table, as JSON and between the markers of README.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tests.bench.figures import Line, shown

BEGIN = "<!-- results: written by `python -m tests.bench --write` -->"
END = "<!-- end of results -->"


def table(lines: Sequence[Line], ours: str, compiled: str, rival: str) -> str:
    """Markdown, aligned so that it reads well as plain text too."""
    head = ("row", "figure", ours, compiled, rival, "ratio", "compiled", "aim", "")
    body = []
    previous = ""
    for line in lines:
        name, previous = "" if line.row == previous else line.row, line.row
        body.append(
            (
                name,
                line.figure,
                shown(line.ours),
                shown(line.compiled),
                shown(line.rival),
                _ratio(line.ratio),
                _ratio(line.ratio_compiled),
                "" if line.aim is None else str(line.aim),
                _verdict(line),
            )
        )
    widths = [max(len(row[i]) for row in (head, *body)) for i in range(len(head))]
    is_number = (False, False, True, True, True, True, True, False, False)
    rule = [
        "-" * (width - 1) + (":" if number else "-")
        for width, number in zip(widths, is_number, strict=True)
    ]

    def row(cells: Iterable[str]) -> str:
        aligned = (
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(cells, widths, is_number, strict=True)
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


def between_markers(text: str, section: str) -> str:
    """`text` with what stands between its markers replaced; ValueError without markers."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError("no markers for the results")
    return f"{before}{BEGIN}\n\n{section}\n\n{END}{after}"
