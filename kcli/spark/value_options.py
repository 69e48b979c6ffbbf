"""What a query was told of its keys and values: keyFormat, valueFormat and what goes with them.

Pure: texts in, values out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kserver.errors import ConfigError

FORMATS = ("raw", "string", "json", "msgpack")
_DECODED = ("key", "value")
_CORRUPT_RECORD = "_corrupt_record"


@dataclass(frozen=True)
class ValueOptions:
    formats: Mapping[str, str]
    """The formats of key and value."""
    schemas: Mapping[str, str | None]
    """The same: DDL or JSON."""
    fails: bool
    """At the first value that is not what it should be."""
    corrupt: str
    """The field that takes such a value, where a schema has it."""


def value_options(text: Callable[[str], str | None]) -> ValueOptions:
    """Out of the options by their names; ConfigError names one that cannot be taken."""
    formats = {name: (text(f"{name}Format") or "raw").strip().lower() for name in _DECODED}
    schemas = {name: text(f"{name}Schema") for name in _DECODED}
    for name, format in formats.items():
        if format not in FORMATS:
            raise ConfigError(
                f"option {name}Format must be one of {', '.join(FORMATS)}, not {format!r}"
            )
        if format in ("raw", "string") and schemas[name] is not None:
            raise ConfigError(f"option {name}Schema is for {name}Format json or msgpack")
    mode = (text("mode") or "PERMISSIVE").strip().upper()
    if mode not in ("PERMISSIVE", "FAILFAST"):
        raise ConfigError(
            f"option mode must be PERMISSIVE or FAILFAST, not {mode!r}; to drop bad values, read"
            " them as null and filter out nulls"
        )
    corrupt = text("columnNameOfCorruptRecord") or _CORRUPT_RECORD
    return ValueOptions(formats, schemas, mode == "FAILFAST", corrupt)
