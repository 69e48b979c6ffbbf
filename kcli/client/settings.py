"""What the clients' configurations have in common: a table of settings, and the values given.

Pure: no I/O, no clock, no await.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from kserver.config.setting import Check, settings_of


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Settings:
    """An instance holds what it was given; the rest are the class's defaults.

    The tables are long and a command reads few values, so they have no generated methods: those
    would cost every start 30 ms.
    """

    warnings: tuple[str, ...] = ()
    """What was given and is not known, a line each."""

    def __init__(self, **values: Any) -> None:
        for name, value in values.items():
            if name not in self.__dataclass_fields__:
                raise TypeError(f"{type(self).__name__} has no {name}")
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        given = (f.name for f in fields(self) if f.name in self.__dict__)
        return f"{type(self).__name__}({', '.join(f'{n}={getattr(self, n)!r}' for n in given)})"

    def given(self, name: str) -> bool:
        """Whether the attribute was set, be it to its default."""
        return name in self.__dict__

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Self:
        """Read texts by key.  ConfigError for a value that cannot be taken; unknown keys warn."""
        table: type = cls
        known = settings_of(table)
        values = {s.attribute: s.parse(given[k]) for k, s in known.items() if k in given}
        warnings = tuple(_unknown(key, list(known)) for key in given if key not in known)
        return cls(**cls._derived(values), warnings=warnings)

    @classmethod
    def _derived(cls, values: dict[str, Any]) -> dict[str, Any]:
        """The given values by attribute, with those that follow from them, or ConfigError."""
        return values


def _unknown(key: str, known: list[str]) -> str:
    near = difflib.get_close_matches(key, known, n=1)
    return f"{key} is not a known setting" + (f"; did you mean {near[0]}?" if near else "")


def any_case_of(*allowed: str) -> Check:
    listed = ", ".join(allowed)
    known = {name.upper() for name in allowed}
    return Check(
        f"(case insensitive) [{listed}]",
        lambda value: None if value.upper() in known else f"String must be one of: {listed}",
    )
