"""Formats of -o: json, jsonl, yaml, csv, tsv, table, template.

A format gets rows one at a time, so that only one page of a table is held in memory: `head()`,
`row(values)` for each, `tail(errors)`; each returns the text to print.

    json yaml   one document: schema, items, errors
    jsonl       a line for each row and each error, each with its schema
    the others  rows only

Pure: values in, text out.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from kcli.command.output import visible
from kcli.rows.shapes import ERROR, RowField, RowShape

Row = Mapping[str, Any]

NULL = "-"
"""Null in a table and a template."""
TABLE_PAGE_ROWS = 10_000
"""A table's columns are as wide as these rows need; the next ones begin a table of their own."""
GAP = 2
"""Columns of a terminal between two of a table."""

# Besides the characters that JSON must escape: terminal controls, and line breaks or invalid
# characters of YAML.
_UNSAFE = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
_TSV = {"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"}
_CELL = str.maketrans({"\n": r"\n", "\t": r"\t"})
_ESCAPES = {r"\t": "\t", r"\n": "\n", r"\\": "\\"}
_SPEC = re.compile(r"([<>^]?)([0-9]{0,3})(?:\.([0-9]{1,2})f)?")


class Writer(Protocol):
    def head(self) -> str: ...

    def row(self, values: Row) -> str: ...

    def tail(self, errors: Sequence[Row]) -> str: ...


class Json:
    """One document, a line for each item."""

    def __init__(self, shape: RowShape) -> None:
        self.shape = shape
        self.begun = False

    def head(self) -> str:
        return f'{{"schema": {json_text(self.shape.id)}, "items": ['

    def row(self, values: Row) -> str:
        before = ",\n  " if self.begun else "\n  "
        self.begun = True
        return before + json_text(values)

    def tail(self, errors: Sequence[Row]) -> str:
        after = "\n], " if self.begun else "], "
        items = ",".join("\n  " + json_text(error) for error in errors)
        return f'{after}"errors": [{items}' + ("\n]}\n" if errors else "]}\n")


class JsonLines:
    """A line is the row itself, with the shape's id; the lines of errors have theirs."""

    def __init__(self, shape: RowShape) -> None:
        self.schema = shape.id

    def head(self) -> str:
        return ""

    def row(self, values: Row) -> str:
        return json_text({"schema": self.schema, **values}) + "\n"

    def tail(self, errors: Sequence[Row]) -> str:
        return "".join(json_text({"schema": ERROR.id, **error}) + "\n" for error in errors)


class Yaml:
    """Block style for the document and its rows; each value in JSON, which is valid YAML."""

    def __init__(self, shape: RowShape) -> None:
        self.shape = shape
        self.begun = False

    def head(self) -> str:
        return f"schema: {json_text(self.shape.id)}\n"

    def row(self, values: Row) -> str:
        before = "" if self.begun else "items:\n"
        self.begun = True
        return before + _yaml_item(values)

    def tail(self, errors: Sequence[Row]) -> str:
        items = "" if self.begun else "items: []\n"
        if not errors:
            return f"{items}errors: []\n"
        return f"{items}errors:\n" + "".join(map(_yaml_item, errors))


class Csv:
    """RFC 4180 with a heading. Null is empty, an empty text is two quotes; lists and maps are
    JSON.
    """

    def __init__(self, shape: RowShape) -> None:
        self.shape = shape

    def head(self) -> str:
        return ",".join(self.shape.names) + "\n"

    def row(self, values: Row) -> str:
        return ",".join(_csv(values[name]) for name in self.shape.names) + "\n"

    def tail(self, errors: Sequence[Row]) -> str:
        return ""


class Tsv:
    """A line for each row, with a heading.  Tab, line feed, carriage return and backslash are
    written `\\t`, `\\n`, `\\r` and `\\\\`, null `\\N`; lists and maps are JSON."""

    def __init__(self, shape: RowShape) -> None:
        self.shape = shape

    def head(self) -> str:
        return "\t".join(self.shape.names) + "\n"

    def row(self, values: Row) -> str:
        return "\t".join(_tsv(values[name]) for name in self.shape.names) + "\n"

    def tail(self, errors: Sequence[Row]) -> str:
        return ""


class Table:
    """Aligned columns. On a terminal of `columns`, texts are wrapped between words, and columns
    that still do not fit are left out and named; with None there is no limit.
    """

    def __init__(self, shape: RowShape, columns: int | None) -> None:
        self.shape = shape
        self.columns = columns
        self.page: list[list[str]] = []
        self.shown = False

    def head(self) -> str:
        return ""

    def row(self, values: Row) -> str:
        self.page.append([cell(values[name]) for name in self.shape.names])
        return self._flushed() if len(self.page) == TABLE_PAGE_ROWS else ""

    def tail(self, errors: Sequence[Row]) -> str:
        return self._flushed() if self.page or not self.shown else ""

    def _flushed(self) -> str:
        import io

        from rich.console import Console
        from rich.table import Column
        from rich.table import Table as Grid
        from rich.text import Text

        headings = [name.upper() for name in self.shape.names]
        widths = _widths(list(zip(headings, *self.page, strict=True)), self.columns)
        grid = Grid(
            *(
                Column(headings[n], justify=_side(self.shape.fields[n]), width=width)
                for n, width in widths.items()
            ),
            box=None,
            pad_edge=False,
            padding=(0, GAP, 0, 0),
        )
        for cells in self.page:
            grid.add_row(*(Text(cells[n], no_wrap=self.columns is None) for n in widths))
        text = io.StringIO()
        width = sum(GAP + width for width in widths.values())
        Console(file=text, color_system=None, width=width).print(grid)
        self.page.clear()
        self.shown = True
        lines = [line.rstrip() for line in text.getvalue().split("\n")[:-1]]
        if missing := [heading for n, heading in enumerate(headings) if n not in widths]:
            lines.append(f"... too wide for this terminal: {', '.join(missing)}")
        return "".join(f"{line}\n" for line in lines)


def _widths(table: Sequence[Sequence[str]], available: int | None) -> dict[int, int]:
    """Return the width of each column that fits, by its index; the first one always does."""
    from rich.cells import cell_len

    whole = [max(map(cell_len, column)) for column in table]
    if available is None or sum(whole) + GAP * (len(whole) - 1) <= available:
        return dict(enumerate(whole))
    rest = available + GAP
    widths: dict[int, int] = {}
    for n, column in enumerate(table):
        # Words are not broken.
        least = max(cell_len(word) for cell in column for word in cell.split() or [""])
        if not widths or least + GAP <= rest:
            widths[n] = least
            rest -= least + GAP
    growing = sorted(widths, key=lambda n: whole[n] - widths[n])
    for at, n in enumerate(growing):
        more = min(whole[n] - widths[n], max(0, rest) // (len(growing) - at))
        widths[n] += more
        rest -= more
    return widths


class Template:
    """A line for each row: a text with names of fields in braces.

    `{topic}` is the value, `{topic:20}` in at least 20 columns, `{topic:>20}` at their right end,
    `{latency_ms:.1f}` a number with one decimal; `{{` and `}}` are braces; `\\t`, `\\n` and `\\\\`
    are a tab, a line feed and a backslash. Raises ValueError for any other text.
    """

    def __init__(self, shape: RowShape, text: str) -> None:
        self.parts = list(_parts(shape, text))

    def head(self) -> str:
        return ""

    def row(self, values: Row) -> str:
        shown = (
            before + ("" if field is None else _formatted(values[field.name], spec))
            for before, field, spec in self.parts
        )
        return "".join(shown) + "\n"

    def tail(self, errors: Sequence[Row]) -> str:
        return ""


def json_text(value: Any) -> str:
    """Return JSON that is valid YAML too, without characters that control a terminal."""
    return _with_numbers(json.dumps(_finite(value), ensure_ascii=False))


def cell(value: Any) -> str:
    """Return a value in a column: one line, lists with commas, maps as `key=value`."""
    if isinstance(value, str):
        return _with_numbers(visible(value).translate(_CELL))
    if isinstance(value, Mapping):
        return ",".join(f"{cell(key)}={cell(item)}" for key, item in value.items())
    if isinstance(value, Sequence):
        return ",".join(map(cell, value))
    finite = _finite(value)
    return NULL if finite is None else json.dumps(finite)


def _with_numbers(text: str) -> str:
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _finite(value: Any) -> Any:
    """Replace infinity and NaN, which JSON does not have, by null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def _yaml_item(values: Row) -> str:
    lines = (f"{name}: {_yaml(value)}\n" for name, value in values.items())
    return "  - " + "    ".join(lines)


def _yaml(value: Any) -> str:
    text = json_text(value)
    # YAML 1.1 reads 1e+16 as a text; 1.0e+16 is a number in all versions.
    return text.replace("e", ".0e") if isinstance(value, float) and "." not in text else text


def _csv(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json_text(value)
    if text and not re.search(r'[",\r\n]|^\s|\s$', text):
        return text
    return '"' + text.replace('"', '""') + '"'


def _tsv(value: Any) -> str:
    if value is None:
        return r"\N"
    text = value if isinstance(value, str) else json_text(value)
    return re.sub(r"[\\\t\n\r]", lambda match: _TSV[match[0]], text)


def _side(field: RowField) -> Any:
    return "right" if field.is_number else "left"


def _parts(shape: RowShape, text: str) -> Iterator[tuple[str, RowField | None, str]]:
    """Yield each literal text, and the field that follows it with its format."""
    import string

    fields = {field.name: field for field in shape.fields}
    plain = re.sub(r"\\[tn\\]", lambda match: _ESCAPES[match[0]], text)
    try:
        parsed = list(string.Formatter().parse(plain))
    except ValueError as error:
        raise ValueError(f"{error}; a brace that stands for itself is written twice") from None
    for literal, name, spec, conversion in parsed:
        if name is None:
            yield literal, None, ""
            continue
        if name not in fields:
            raise ValueError(f"there is no field '{name}'; known are {', '.join(fields)}")
        match = _SPEC.fullmatch(spec or "")
        if match is None or conversion or (match[3] and not fields[name].is_number):
            suffix = f"!{conversion}" if conversion else f":{spec}"
            raise ValueError(f"{{{name}{suffix}}} is not a format of {fields[name].type}")
        yield literal, fields[name], spec or ""


def _formatted(value: Any, spec: str) -> str:
    match = _SPEC.fullmatch(spec)
    assert match is not None
    side, width, decimals = match.groups()
    if isinstance(value, int | float) and decimals and math.isfinite(value):
        text = f"{value:.{decimals}f}"
    else:
        text = value if isinstance(value, str) else cell(value)
    return f"{text:{side}{width}}"
