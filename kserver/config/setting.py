"""Setting: one config with its key, type, default, range and effect; parses text to a value.

Pure: no I/O, no clock, no await.

A configuration is a frozen dataclass with one `setting(...)` per attribute.  The attribute is the
key with `_` for `.`, so that grep leads from server.properties to the code.  All code that lists
configs (DescribeConfigs, the man page, the errors at the start) uses the same table,
`settings_of(cls)`.

    text     as in a file or a request                "true", "1048576", "a, b"
    value    as used in the code                      True, 1048576, ("a", "b"); None is null

Types, names and error texts are those of Kafka's ConfigDef.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from enum import Enum, IntEnum
from itertools import dropwhile
from typing import Any, NamedTuple, Protocol, TypeVar, dataclass_transform

from kserver.errors import ConfigError

T = TypeVar("T")

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
DOUBLE_MAX = 1.7976931348623157e308

DAY_MS = 86_400_000
HOUR_MS = 3_600_000
MINUTE_MS = 60_000


class Type(IntEnum):
    """Type of a config; the numbers are those of the DescribeConfigs response."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE, LIST, CLASS, PASSWORD = Type

BITS = {Type.SHORT: 16, Type.INT: 32, Type.LONG: 64}


class Source(IntEnum):
    """Source of a value; the numbers are those of the DescribeConfigs response."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_GROUP_CONFIG = 8


class Dynamic(Enum):
    """How a config of a broker can be changed."""

    READ_ONLY = "a restart"
    PER_BROKER = "at run time, per broker"
    CLUSTER = "at run time, per broker or for the cluster"


READ_ONLY, PER_BROKER, CLUSTER = Dynamic


class Acts(Enum):
    """Whether a config has an effect, or the reason why it is only accepted."""

    NOW = "acts"
    SHARE_GROUPS = "not used yet: needs share groups"
    TRANSACTIONS = "not used yet: needs two-phase commit of transactions"
    SECURITY = "not used yet: needs TLS, SASL and authorization"
    METRICS = "not used yet: needs metrics reporters"
    TIERED = "not used yet: needs tiered storage"
    KRAFT = "ignored: the cluster uses ZooKeeper, not KRaft"
    ABSENT = "ignored: configures a part of Kafka's broker that k does not have"
    JAVA = "ignored: names classes or properties of a Java process"
    RETIRED = "ignored: selects a format or protocol that is no longer in use"


class SettingCheck(NamedTuple):
    """Constraint on a parsed value."""

    range: str
    """Range in Kafka's notation: `[0,...]`."""
    refusal: Callable[[Any], str | None]
    """Returns the reason why a value is invalid, or None."""
    words: tuple[str, ...] = ()
    """All allowed values, if they can be listed."""


ANYTHING = SettingCheck("", lambda value: None)


def between(low: float, high: float) -> SettingCheck:
    def refusal(value: float) -> str | None:
        if value < low:
            return f"Value must be at least {low}"
        if value > high:
            return f"Value must be no more than {high}"
        return None

    return SettingCheck(f"[{low},...,{high}]", refusal)


def at_least(low: float) -> SettingCheck:
    return SettingCheck(
        f"[{low},...]",
        lambda value: f"Value must be at least {low}" if value < low else None,
    )


def one_of(*allowed: str) -> SettingCheck:
    """Return a check of a string, or of each entry of a list."""
    listed = ", ".join(allowed)

    def refusal(value: str | tuple[str, ...]) -> str | None:
        values = (value,) if isinstance(value, str) else value
        return None if set(values) <= set(allowed) else f"String must be one of: {listed}"

    return SettingCheck(f"[{listed}]", refusal, allowed)


NON_EMPTY = SettingCheck("not empty", lambda value: None if value else "Value must not be empty")
GZIP_LEVEL = SettingCheck(
    "[1,...,9] or -1",
    lambda level: (
        None if level in (-1, *range(1, 10)) else "Value must be between 1 and 9 or equal to -1"
    ),
)


class Synonym(NamedTuple):
    """A key that is used if this one is unset; its value times `times` is this one's."""

    name: str
    times: int = 1


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    name: str
    type: Type
    default: Any
    check: SettingCheck
    dynamic: Dynamic
    acts: Acts
    synonyms: tuple[Synonym, ...]
    """Keys of the same configuration that define the value if this key is unset."""
    broker_key: str | None
    """Key of the broker that a topic's or group's config falls back to."""
    doc: str

    @property
    def attribute(self) -> str:
        return attribute(self.name)

    @property
    def sensitive(self) -> bool:
        return self.type is Type.PASSWORD

    @property
    def range(self) -> str:
        """Allowed values in a few words; empty if any value of the type is allowed."""
        return self.check.range or ("true or false" if self.type is Type.BOOLEAN else "")

    def parse(self, text: str) -> Any:
        """Parse a text.  Raises ConfigError, with Kafka's text, if it is invalid."""
        if reason := self.refusal(text):
            raise ConfigError(self.explain(text, reason))
        return self._value(text)

    def refusal(self, text: str) -> str | None:
        """Return why `text` is invalid, or None if it is valid."""
        try:
            value = self._value(text)
        except ValueError as error:
            return str(error)
        return self.check.refusal(value)

    def explain(self, text: str, reason: str) -> str:
        value = "[hidden]" if self.sensitive else text
        return f"Invalid value {value} for configuration {self.name}: {reason}"

    def _value(self, text: str) -> Any:
        text = text.strip()
        match self.type:
            case Type.BOOLEAN:
                if text.lower() not in ("true", "false"):
                    raise ValueError("Expected value to be either true or false")
                return text.lower() == "true"
            case Type.SHORT | Type.INT | Type.LONG:
                return _integer(text, self.type)
            case Type.DOUBLE:
                if not DECIMAL.fullmatch(text):
                    raise ValueError("Not a number of type DOUBLE")
                return float(text)
            case Type.LIST:
                return _entries(text)
            case _:
                return text

    def render(self, value: Any) -> str | None:
        """Return `value` as text, like Kafka's ConfigDef; None for null and for passwords."""
        if value is None or self.sensitive:
            return None
        match self.type:
            case Type.BOOLEAN:
                return "true" if value else "false"
            case Type.DOUBLE:
                return java_double(value)
            case Type.LIST:
                return ",".join(value)
            case _:
                return str(value)


INTEGER = re.compile(r"[+-]?[0-9]+")
DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def attribute(name: str) -> str:
    return name.replace(".", "_")


def _integer(text: str, type: Type) -> int:
    value = int(text) if INTEGER.fullmatch(text) else None
    limit = 1 << BITS[type] - 1
    if value is None or not -limit <= value < limit:
        raise ValueError(f"Not a number of type {type.name}")
    return value


def _entries(text: str) -> tuple[str, ...]:
    """Split at commas; repeated entries are dropped (Kafka 4: ConfigDef.ValidList)."""
    if not text:
        return ()
    entries = tuple(dict.fromkeys(entry.strip() for entry in text.split(",")))
    if "" in entries:
        raise ValueError("values must not be empty")
    return entries


def java_double(value: float) -> str:
    """Return the result of Java's Double.toString: 0.5, 1.0E7, 1.7976931348623157E308."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(float(value))
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    head, tail = str(digits[0]), "".join(map(str, digits[1:])) or "0"
    return f"{'-' * sign}{head}.{tail}E{int(exponent) + len(digits) - 1}"


def setting(
    name: str,
    default: Any,
    check: SettingCheck = ANYTHING,
    *,
    type: Type | None = None,
    dynamic: Dynamic = READ_ONLY,
    acts: Acts = Acts.NOW,
    synonyms: Iterable[str | Synonym] = (),
    broker_key: str | None = None,
    doc: str,
) -> Any:
    """Return a dataclass field for a config.

    `type` is needed only if the default does not imply it: LONG, SHORT, CLASS, PASSWORD, or a
    default of None.
    """
    kind = type or DEFAULT_TYPES[default.__class__]
    synonym_keys = tuple(Synonym(s) if isinstance(s, str) else s for s in synonyms)
    return field_of(
        Setting(name, kind, default, check, dynamic, acts, synonym_keys, broker_key, doc)
    )


def field_of(setting: Setting) -> Any:
    return dataclasses.field(default=setting.default, metadata={"setting": setting})


DEFAULT_TYPES: dict[type, Type] = {
    bool: Type.BOOLEAN,
    int: Type.INT,
    float: Type.DOUBLE,
    str: Type.STRING,
    tuple: Type.LIST,
}


@dataclass_transform(kw_only_default=True, frozen_default=True)
def section(cls: type[T]) -> type[T]:
    """Decorate a part of a large configuration, or a configuration composed of such parts.

    It is a dataclass without generated methods, which for 350 configs would cost a tenth of the
    start; the whole class has its own __init__ and rejects changes.
    """
    return dataclasses.dataclass(kw_only=True, init=False, repr=False, eq=False)(cls)


def settings_of(config: type) -> Mapping[str, Setting]:
    """Return all configs of a configuration class by key, in the order of declaration."""
    return _table(config)


@functools.cache
def _table(config: type) -> Mapping[str, Setting]:
    # dataclasses.fields() starts with the last base; the table has the order of declaration.
    fields = (f for part in (*sections_of(config), config) for f in dataclasses.fields(part))
    return {f.metadata["setting"].name: f.metadata["setting"] for f in fields if f.metadata}


def sections_of(config: type) -> list[type]:
    """Return the base classes with configs of a configuration class."""
    return [base for base in config.__bases__ if dataclasses.is_dataclass(base)]


def effective(config: object, setting: Setting) -> Any:
    """Return the config's value, or that of the first synonym that is set, in the config's own
    unit."""
    for name, times in (Synonym(setting.name), *setting.synonyms):
        value = getattr(config, attribute(name))
        if value is not None:
            # Negative numbers mean "none" or "use another key", in any unit.
            return value if times == 1 or value < 0 else value * times
    return None


class Layer(NamedTuple):
    """Configs as text from one source."""

    source: Source
    values: Mapping[str, str | None]


class GivenValue(NamedTuple):
    """A value of a config from one source, under its own name or a synonym's."""

    name: str
    value: str | None
    source: Source


class DescribedConfig(NamedTuple):
    """One config in the response of DescribeConfigs."""

    setting: Setting
    value: str | None
    source: Source
    synonyms: tuple[GivenValue, ...]
    """All values, the highest precedence first."""

    @property
    def name(self) -> str:
        return self.setting.name

    @property
    def is_default(self) -> bool:
        return self.source is Source.DEFAULT_CONFIG


class Config(Protocol):
    def given(self, setting: Setting) -> list[GivenValue]:
        """Return all values of `setting`, the highest precedence first."""


def describe(config: Config) -> list[DescribedConfig]:
    """Return every config with its value and source."""
    described = []
    for setting in settings_of(type(config)).values():
        values = tuple(config.given(setting))
        source = values[0].source if values else Source.DEFAULT_CONFIG
        value = setting.render(getattr(config, setting.attribute))
        described.append(DescribedConfig(setting, value, source, values))
    return described


def given_in(layers: Iterable[Layer], setting: Setting) -> list[GivenValue]:
    """Return the values of a config and its synonyms in `layers`, the highest precedence first.

    Kafka omits all that precede the config's own name (ConfigHelper.configSynonyms).
    """
    names = (setting.name, *(s.name for s in setting.synonyms))
    found = [
        GivenValue(name, None if setting.sensitive else value, source)
        for source, values in layers
        for name in names
        if (value := values.get(name)) is not None
    ]
    return list(dropwhile(lambda entry: entry.name != setting.name, found))
