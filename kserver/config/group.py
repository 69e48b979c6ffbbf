"""A consumer group's configuration: its own overrides, else the broker's configs (KIP-848).

Pure: no I/O, no clock, no await.

An override has to be within the broker's bounds.  If those change later, the stored value is
limited to them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from kserver.config.broker import BrokerConfig
from kserver.config.setting import (
    CLUSTER,
    GivenValue,
    Setting,
    Source,
    at_least,
    effective,
    setting,
    settings_of,
)
from kserver.errors import ConfigError

group_setting = partial(setting, dynamic=CLUSTER)


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupConfig:
    """Config of one group.  Attributes are its keys with `_` for `.`; times in ms."""

    consumer_session_timeout_ms: int = group_setting(
        "consumer.session.timeout.ms",
        45_000,
        at_least(1),
        broker_key="group.consumer.session.timeout.ms",
        doc="how long a member may send no heartbeat before it is removed from the group",
    )
    consumer_heartbeat_interval_ms: int = group_setting(
        "consumer.heartbeat.interval.ms",
        5000,
        at_least(1),
        broker_key="group.consumer.heartbeat.interval.ms",
        doc="time between two heartbeats of a member",
    )
    consumer_assignment_interval_ms: int = group_setting(
        "consumer.assignment.interval.ms",
        1000,
        at_least(0),
        broker_key="group.consumer.assignment.interval.ms",
        doc="minimum time between two assignments of the group",
    )
    explicit: Mapping[str, str] = field(default_factory=dict, compare=False)
    """The group's own overrides, as text."""
    broker: BrokerConfig = field(default_factory=BrokerConfig, compare=False, repr=False)

    @classmethod
    def of(cls, overrides: Mapping[str, str], broker: BrokerConfig) -> GroupConfig:
        """Apply `overrides` to the broker's configs.  Raises ConfigError, with Kafka's text, if
        one is invalid."""
        table = settings_of(cls)
        for name, text in overrides.items():
            if name not in table:
                raise ConfigError(f"Unknown group config name: {name}")
            value = table[name].parse(text)
            low, high = _bounds(name, broker)
            if value < low[1]:
                raise ConfigError(f"{name} must be greater than or equal to {low[0]}")
            if value > high[1]:
                raise ConfigError(f"{name} must be less than or equal to {high[0]}")
        config = cls._build(overrides, broker)
        if config.consumer_session_timeout_ms <= config.consumer_heartbeat_interval_ms:
            raise ConfigError(
                "consumer.session.timeout.ms must be greater than consumer.heartbeat.interval.ms"
            )
        return config

    @classmethod
    def stored(cls, overrides: Mapping[str, str], broker: BrokerConfig) -> GroupConfig:
        """Apply stored overrides, which this or another release accepted: invalid ones
        are ignored, and values outside the bounds are limited to them."""
        table = settings_of(cls)
        usable = {}
        for name, text in overrides.items():
            if name in table and not table[name].refusal(text):
                (_, low), (_, high) = _bounds(name, broker)
                usable[name] = str(max(low, min(high, table[name].parse(text))))
        return cls._build(usable, broker)

    @classmethod
    def _build(cls, overrides: Mapping[str, str], broker: BrokerConfig) -> GroupConfig:
        values = {
            s.attribute: s.parse(overrides[s.name])
            if s.name in overrides
            else effective(broker, settings_of(BrokerConfig)[s.broker_key or ""])
            for s in settings_of(cls).values()
        }
        return cls(**values, explicit=dict(overrides), broker=broker)

    def given(self, setting: Setting) -> list[GivenValue]:
        own = self.explicit.get(setting.name)
        group = [] if own is None else [GivenValue(setting.name, own, Source.DYNAMIC_GROUP_CONFIG)]
        return group + self.broker.given(settings_of(BrokerConfig)[setting.broker_key or ""])


def _bounds(name: str, broker: BrokerConfig) -> Iterator[tuple[str, int]]:
    """Yield minimum and maximum, each with the broker's key that defines it."""
    key = name.removeprefix("consumer.")
    for which in ("min", "max"):
        bound = settings_of(BrokerConfig)[f"group.consumer.{which}.{key}"]
        yield bound.name, getattr(broker, bound.attribute)
