"""What the clients' configurations have in common: a table of settings, and the values given."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

from kcli.client.errors import ClientError
from kcli.client.old_names import CLIENT_NAMES, Names, modern
from kserver.config.setting import SettingCheck, settings_of
from kserver.errors import ConfigError

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Settings:
    """An instance holds what it was given; the rest are the class's defaults.

    The tables are long and a command reads few values, so they have no generated methods: those
    would cost every start 30 ms.
    """

    warnings: tuple[str, ...] = ()
    """What was given and is not known, or has another name today, a line each."""
    _old_names: ClassVar[Names] = CLIENT_NAMES

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
    def of(cls, given: Mapping[str, object]) -> Self:
        """Read values by key: texts as in a file of properties, or what `str` makes such texts of.

        ConfigError for a value that cannot be taken; unknown keys and Kafka 0.8's warn.
        """
        table: type = cls
        known = settings_of(table)
        for key in given:
            if not isinstance(key, str):
                raise ConfigError(f"the key of a setting is a str, not {key!r}")
        now, warnings = modern({key: str(value) for key, value in given.items()}, cls._old_names)
        values = {s.attribute: s.parse(now[k]) for k, s in known.items() if k in now}
        warnings += (_unknown(key, list(known)) for key in now if key not in known)
        return cls(**cls._derived(values), warnings=tuple(warnings))

    @classmethod
    def taken(cls, given: Self | Mapping[str, object]) -> Self:
        """What is ready as it is, anything else read, its warnings logged.  ClientError for what is
        neither settings nor a mapping of them."""
        if not isinstance(given, Mapping):
            if not isinstance(given, Settings):
                raise ClientError(
                    "config is a mapping of settings such as"
                    f" {{'bootstrap.servers': 'localhost:9092'}}, not {given!r}"
                )
            return given
        config = cls.of(given)
        for warning in config.warnings:
            _logger.warning(warning)
        return config

    @classmethod
    def _derived(cls, values: dict[str, Any]) -> dict[str, Any]:
        """The given values by attribute, with those that follow from them, or ConfigError."""
        return values


def _unknown(key: str, known: list[str]) -> str:
    import difflib  # 5 ms that only a misspelt name costs

    near = difflib.get_close_matches(key, known, n=1)
    return f"{key} is not a known setting" + (f"; did you mean {near[0]}?" if near else "")


def any_case_of(*allowed: str) -> SettingCheck:
    listed = ", ".join(allowed)
    known = {name.upper() for name in allowed}
    return SettingCheck(
        f"(case insensitive) [{listed}]",
        lambda value: None if value.upper() in known else f"String must be one of: {listed}",
    )
