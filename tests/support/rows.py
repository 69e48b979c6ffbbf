"""The output of -o, read back by third-party readers as rows of a shape."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable
from typing import Any

import yaml

from kcli.rows.shapes import ERROR, RowShape

Row = dict[str, Any]

READ_BACK = ("json", "jsonl", "yaml", "csv", "tsv")
"""The lossless formats."""


def read(format: str, text: str, shape: RowShape) -> list[Row]:
    """Return the rows. In csv, empty texts are null, since Python's reader does not distinguish
    them.
    """
    match format:
        case "json":
            return document(json.loads(text), shape)
        case "yaml":
            return document(yaml.safe_load(text), shape)
        case "jsonl":
            rows = [json.loads(line) for line in text.split("\n")[:-1]]
            assert {row["schema"] for row in rows} <= {shape.id, ERROR.id}
            return [without_schema(row) for row in rows if row["schema"] == shape.id]
        case "csv":
            cells = csv.reader(io.StringIO(text, newline=""), strict=True)
            return _typed(([cell or None for cell in line] for line in cells), shape)
        case "tsv":
            lines = text.split("\n")[:-1]
            return _typed(([_tsv(cell) for cell in line.split("\t")] for line in lines), shape)
    raise AssertionError(format)


def document(found: Any, shape: RowShape) -> list[Row]:
    assert found["schema"] == shape.id
    items = found["items"]
    assert isinstance(items, list)
    return items


def without_schema(row: Row) -> Row:
    return {name: value for name, value in row.items() if name != "schema"}


def as_csv_tells(rows: Iterable[Row]) -> list[Row]:
    return [{name: None if value == "" else value for name, value in row.items()} for row in rows]


def _typed(lines: Iterable[list[str | None]], shape: RowShape) -> list[Row]:
    """Convert the cells to the types of their fields; the first line is the heading."""
    heading, *rest = lines
    assert heading == list(shape.names)
    return [
        {
            field.name: cell if cell is None or field.plain_type == "string" else json.loads(cell)
            for field, cell in zip(shape.fields, cells, strict=True)
        }
        for cells in rest
    ]


def _tsv(cell: str) -> str | None:
    back = {r"\\": "\\", r"\t": "\t", r"\n": "\n", r"\r": "\r"}
    return None if cell == r"\N" else re.sub(r"\\.", lambda match: back[match[0]], cell)
