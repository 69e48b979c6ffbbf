"""Shaping: options of etl, and rows of any columns as the records of a topic.

Pure: texts and types in, values and texts of SQL out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from kserver.errors import ConfigError

TOPIC, CONSOLE = "topic", "console"
FILES = ("parquet", "json")
OWN = ("key", "topic", "partition", "headers", "timestamp")
"""Columns of a record besides its value."""

_WATERMARK = re.compile(r"\s*([\w.]+)(?:\s*:\s*|\s+)([0-9]{1,9})\s*([a-z]+)\s*")
_UNITS = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), "milliseconds"),
    **dict.fromkeys(("s", "second", "seconds"), "seconds"),
    **dict.fromkeys(("m", "min", "minute", "minutes"), "minutes"),
    **dict.fromkeys(("h", "hour", "hours"), "hours"),
    **dict.fromkeys(("d", "day", "days"), "days"),
}
_AS_THEY_ARE = ("string", "binary")
_PARTS = ("struct<", "array<", "map<", "variant")


@dataclass(frozen=True)
class Target:
    """The destination of rows: TOPIC, one of FILES, or CONSOLE; the topic or the path."""

    kind: str
    name: str = ""

    @property
    def is_topic(self) -> bool:
        return self.kind == TOPIC


def target(text: str) -> Target:
    if text == CONSOLE:
        return Target(CONSOLE)
    kind, _, name = text.partition(":")
    if kind not in (TOPIC, *FILES) or not name:
        raise ConfigError(
            f"--to must be topic:NAME, parquet:DIRECTORY, json:DIRECTORY or {CONSOLE}, not '{text}'"
        )
    return Target(kind, name)


def watermark(text: str) -> tuple[str, str]:
    """Return the column, and Spark's text of its delay: at:10m, or `at 10 minutes`."""
    match = _WATERMARK.fullmatch(text)
    if match is None or match[3] not in _UNITS:
        raise ConfigError(f"--watermark must be COLUMN:TIME, such as at:10m, not '{text}'")
    return match[1], f"{match[2]} {_UNITS[match[3]]}"


def packed(types: Mapping[str, str]) -> list[str]:
    """Return the expressions to select, of columns of these types, for a topic.

    A column value is the record's value, else all columns except OWN are, as JSON.
    """
    own = [name for name in OWN if name in types]
    if "value" in types:
        value = _as_bytes("value", types["value"])
    else:
        rest = [name for name in types if name not in OWN]
        if not rest:
            raise ConfigError(
                f"there is nothing to write: none of the columns {', '.join(types)} can be the"
                " value; add a column value"
            )
        value = f"to_json(struct({', '.join(map(quoted, rest))})) AS value"
    return [_as_bytes(name, types[name]) if name == "key" else quoted(name) for name in own] + [
        value
    ]


def _as_bytes(name: str, kind: str) -> str:
    if kind in _AS_THEY_ARE:
        return quoted(name)
    if kind.startswith(_PARTS):
        return f"to_json({quoted(name)}) AS {quoted(name)}"
    return f"CAST({quoted(name)} AS STRING) AS {quoted(name)}"


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
