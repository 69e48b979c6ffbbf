"""Options of keys and values: keyFormat, valueFormat and the options that go with them.

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
    """Schemas of key and value: DDL or JSON."""
    fails: bool
    """Whether to fail at the first invalid value."""
    corrupt: str
    """The field for an invalid value, if a schema has it."""


def value_options(text: Callable[[str], str | None]) -> ValueOptions:
    """Return the checked options. Raises ConfigError with the name of an invalid one."""
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
