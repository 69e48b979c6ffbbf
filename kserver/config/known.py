"""Keys that are known but unused: they are read, validated and listed.

`known_keys.txt` has a row for each, in blocks that sections name:

    acts | both | key | type | default | range | dynamic | doc

`acts` is one of `Acts`, `both` means that clients have the key too, `range` is in Kafka's
notation. A key that is implemented moves from the table to an attribute of its section.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files
from typing import Any, TypeVar

from kserver.config.setting import (
    ANYTHING,
    NON_EMPTY,
    READ_ONLY,
    Acts,
    Dynamic,
    Setting,
    SettingCheck,
    Type,
    at_least,
    attribute,
    between,
    field_of,
    one_of,
)

T = TypeVar("T")

TABLE = files(__package__) / "known_keys.txt"
"""Found in any installation of the package, also in a zip file for Spark's executors."""
BOTH = "both"
DYNAMIC = {"": READ_ONLY, "per broker": Dynamic.PER_BROKER, "cluster": Dynamic.CLUSTER}
_NUMBERS = re.compile(r"\[(-?[0-9.]+),\.\.\.(?:,(-?[0-9.]+))?\]")


def known_keys(*blocks: str, clients: bool = False) -> Callable[[type[T]], type[T]]:
    """Return a decorator that appends the configs of these blocks to a class before it becomes a
    section; with `clients`, only those that clients have too."""

    def with_settings(cls: type[T]) -> type[T]:
        for block in blocks:
            for row in _blocks()[block]:
                acts, side, *described = (cell.strip() for cell in row.split("|"))
                if not clients or side == BOTH:
                    setting = _setting(Acts[acts], *described)
                    cls.__annotations__[attribute(setting.name)] = "Any"
                    setattr(cls, attribute(setting.name), field_of(setting))
        return cls

    return with_settings


@functools.cache
def _blocks() -> dict[str, list[str]]:
    """Return the rows of each block."""
    blocks: dict[str, list[str]] = {}
    for line in TABLE.read_text().splitlines():
        if line.startswith("["):
            rows = blocks.setdefault(line.strip("[]"), [])
        elif line and not line.startswith("#"):
            rows.append(line)
    return blocks


def _setting(
    acts: Acts, key: str, type: str, default: str, range: str, dynamic: str, doc: str
) -> Setting:
    described = Setting(key, Type[type], None, _check(range), DYNAMIC[dynamic], acts, (), None, doc)
    value = None if default == "null" else described.parse(default.strip('"'))
    return replace(described, default=value)


def _check(range: str) -> SettingCheck:
    if range == "":
        return ANYTHING
    if range == NON_EMPTY.range:
        return NON_EMPTY
    if match := _NUMBERS.fullmatch(range):
        low, high = match.groups()
        return at_least(_number(low)) if high is None else between(_number(low), _number(high))
    return one_of(*range.strip("[]").split(", "))


def _number(text: str) -> Any:
    return float(text) if "." in text else int(text)
