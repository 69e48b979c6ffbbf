"""Shapes: the rows of a command's -o, declared once, versioned and documented.

    LIST = RowShape("k.topics.list", 1, "A topic.", (RowField("topic", "string", "Its name."),))

Fields may be added at a shape's end; removing a field or changing its meaning makes another
version. The manual pages, `k shapes` and the tests read the same declarations.

Pure: declarations, and their JSON Schema.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

OR_NULL = " or null"
_SCHEMAS: dict[str, dict[str, Any]] = {
    "string": {"type": "string"},
    "integer": {"type": "integer"},
    "number": {"type": "number"},
    "boolean": {"type": "boolean"},
    "list of integer": {"type": "array", "items": {"type": "integer"}},
    "list of string": {"type": "array", "items": {"type": "string"}},
    "map of string": {"type": "object", "additionalProperties": {"type": ["string", "null"]}},
}
TYPES = tuple(_SCHEMAS)
"""Types of a field; each also with ` or null`."""

# `schema` identifies lines of -o jsonl; a plain `y` or `no` is a boolean to some readers of YAML.
_RESERVED = {"schema", "y", "n", "yes", "no", "on", "off", "true", "false", "null"}


@dataclass(frozen=True, slots=True)
class RowField:
    """One value of a row: its name, one of TYPES, and a sentence about it."""

    name: str
    type: str
    doc: str

    def __post_init__(self) -> None:
        assert re.fullmatch(r"[a-z][a-z0-9_]*", self.name), self.name
        assert self.name not in _RESERVED, self.name
        assert self.plain_type in TYPES, self.type

    @property
    def plain_type(self) -> str:
        return self.type.removesuffix(OR_NULL)

    @property
    def is_nullable(self) -> bool:
        return self.type.endswith(OR_NULL)

    @property
    def is_number(self) -> bool:
        return self.plain_type in ("integer", "number")


@dataclass(frozen=True, slots=True)
class RowShape:
    """One kind of row; `doc` describes it."""

    name: str
    version: int
    doc: str
    fields: tuple[RowField, ...]

    @property
    def id(self) -> str:
        """The id in documents: `k.topics.list/1`."""
        return f"{self.name}/{self.version}"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.fields)


ERROR = RowShape(
    "k.error",
    1,
    "What was refused or failed.",
    (
        RowField(
            "subject", "string or null", "What it is about; null where it is the whole command."
        ),
        RowField(
            "code",
            "string",
            "The protocol's name of the error, such as UNKNOWN_TOPIC_OR_PARTITION; else TIMED_OUT, "
            "INTERRUPTED, INVALID, FILE, REFUSED, or a command's own.",
        ),
        RowField("message", "string", "Why, for a person."),
    ),
)


def schema(shape: RowShape) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of the document that -o json prints of such rows."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": shape.id,
        "type": "object",
        "properties": {
            "schema": {"const": shape.id},
            "items": {"type": "array", "items": _row(shape)},
            "errors": {"type": "array", "items": _row(ERROR)},
        },
        "required": ["schema", "items", "errors"],
    }


def _row(shape: RowShape) -> dict[str, Any]:
    return {
        "description": shape.doc,
        "type": "object",
        "properties": {f.name: _typed(f) | {"description": f.doc} for f in shape.fields},
        "required": list(shape.names),
    }


def _typed(field: RowField) -> dict[str, Any]:
    plain = _SCHEMAS[field.plain_type]
    return plain | {"type": [plain["type"], "null"]} if field.is_nullable else plain
