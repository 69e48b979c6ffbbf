"""Base class of the clients' configurations: a table of configs, and the values set."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

from kcli.client.errors import ClientError
from kcli.client.old_config_names import CLIENT_NAMES, Names, current_configs
from kserver.config.setting import SettingCheck, settings_of
from kserver.errors import ConfigError

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Settings:
    """An instance has only the values that were set; others are the class's defaults.

    The tables are long and a command reads few values, so they have no generated methods: those
    would add 30 ms to each start.
    """

    warnings: tuple[str, ...] = ()
    """A line for each unknown or renamed key."""
    _old_names: ClassVar[Names] = CLIENT_NAMES

    def __init__(self, **values: Any) -> None:
        for name, value in values.items():
            if name not in self.__dataclass_fields__:
                raise TypeError(f"{type(self).__name__} has no {name}")
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        names = (f.name for f in fields(self) if f.name in self.__dict__)
        return f"{type(self).__name__}({', '.join(f'{n}={getattr(self, n)!r}' for n in names)})"

    def is_set(self, name: str) -> bool:
        """Whether the attribute was set, even to its default."""
        return name in self.__dict__

    @classmethod
    def of(cls, configs: Mapping[str, object]) -> Self:
        """Return the configuration of values by key, as text or converted by `str`.

        Raises ConfigError if a value is invalid; unknown keys and Kafka 0.8's cause warnings.
        """
        table: type = cls
        table_settings = settings_of(table)
        for key in configs:
            if not isinstance(key, str):
                raise ConfigError(f"the key of a setting is a str, not {key!r}")
        now, warnings = current_configs(
            {key: str(value) for key, value in configs.items()}, cls._old_names
        )
        values = {s.attribute: s.parse(now[k]) for k, s in table_settings.items() if k in now}
        warnings += (
            _unknown(key, list(table_settings)) for key in now if key not in table_settings
        )
        return cls(**cls._derived(values), warnings=tuple(warnings))

    @classmethod
    def resolve(cls, configs: Self | Mapping[str, object]) -> Self:
        """Return a ready configuration as it is; read a mapping and log its warnings. Raises
        ClientError if the argument is neither.
        """
        if not isinstance(configs, Mapping):
            if not isinstance(configs, Settings):
                raise ClientError(
                    "config is a mapping of settings such as"
                    f" {{'bootstrap.servers': 'localhost:9092'}}, not {configs!r}"
                )
            return configs
        config = cls.of(configs)
        for warning in config.warnings:
            _logger.warning(warning)
        return config

    @classmethod
    def _derived(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Return the values by attribute, with derived ones; raises ConfigError if they
        contradict.
        """
        return values


def _unknown(key: str, names: list[str]) -> str:
    import difflib  # imported here: 5 ms that only a misspelt name costs

    near = difflib.get_close_matches(key, names, n=1)
    return f"{key} is not a known setting" + (f"; did you mean {near[0]}?" if near else "")


def any_case_of(*names: str) -> SettingCheck:
    listing = ", ".join(names)
    upper_names = {name.upper() for name in names}
    return SettingCheck(
        f"(case insensitive) [{listing}]",
        lambda value: None if value.upper() in upper_names else f"String must be one of: {listing}",
    )
