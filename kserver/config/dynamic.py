"""Dynamic configs of a broker: which may be changed, and the resulting configuration.

Pure: no I/O, no clock, no await.

    highest     config of one broker                  DYNAMIC_BROKER_CONFIG
                cluster-wide default                  DYNAMIC_DEFAULT_BROKER_CONFIG
                server.properties                     STATIC_BROKER_CONFIG
    lowest      default of the key                    DEFAULT_CONFIG

`check` validates a requested change, `merged` creates the configuration, `check_step` compares it
with the previous one.  `merged_as_stored` accepts whatever is stored, as a start must not fail
because of it.  Rules and error texts are those of Kafka's DynamicBrokerConfig, with one more rule:
clients cannot set a key that names a class, a file, a command or a password.  The value of an
unknown key is stored but never shown, as in Kafka, whose plug-ins may know it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from kserver.config.broker import BrokerConfig
from kserver.config.setting import Dynamic, Layer, Setting, Source, Type, settings_of
from kserver.errors import ConfigError

Overrides = Mapping[str, str]

_OF_ONE_LISTENER = re.compile(r"listener\.name\.[^.]*\.(.*)")
_OF_ALL_LISTENERS = frozenset(
    {"max.connections", "max.connection.creation.rate", "num.network.threads"}
)
"""Keys that may be set cluster-wide even with the prefix of one listener."""

_STORES = frozenset(
    {
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)
"""Keys that can be changed only for a single listener (Kafka:
SslConfigs.RECONFIGURABLE_CONFIGS)."""
_UNSAFE_TYPES = (Type.CLASS, Type.PASSWORD)
_UNSAFE = frozenset(
    {
        "config.providers",
        "metric.reporters",
        "sasl.kerberos.kinit.cmd",
        "sasl.oauthbearer.jwks.endpoint.url",
        "sasl.oauthbearer.token.endpoint.url",
        "ssl.keystore.location",
        "ssl.truststore.location",
    }
)
_THREADS = frozenset(
    {
        "background.threads",
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "num.replica.fetchers",
    }
)


class BrokerOverrides(NamedTuple):
    """Dynamic configs of one broker: the cluster-wide defaults, and its own."""

    cluster: Overrides
    broker: Overrides

    def layers(self) -> tuple[Layer, ...]:
        """Return the layers, the highest precedence first."""
        return (
            Layer(Source.DYNAMIC_BROKER_CONFIG, self.broker),
            Layer(Source.DYNAMIC_DEFAULT_BROKER_CONFIG, self.cluster),
        )


def is_unsafe(name: str) -> bool:
    """Return whether clients must not set a key, as the broker would load, run or store what it
    names."""
    settings = settings_of(BrokerConfig)
    base = _base(name)
    # Keys of one SASL mechanism are prefixed with its name.
    ends = [base] + [base[at + 1 :] for at, c in enumerate(base) if c == "."]
    return any(
        end in _UNSAFE or (end in settings and settings[end].type in _UNSAFE_TYPES) for end in ends
    )


def is_sensitive(name: str) -> bool:
    """Return whether the value of a key is never shown: passwords and unknown keys."""
    setting = settings_of(BrokerConfig).get(_base(name))
    return setting is None or setting.sensitive


def changes_at(setting: Setting) -> Dynamic:
    """Return how a config of all listeners can be changed: only by a restart if clients must not
    set it, or if it is dynamic only for a single listener."""
    is_fixed = is_unsafe(setting.name) or setting.name in _STORES
    return Dynamic.READ_ONLY if is_fixed else setting.dynamic


def type_of(name: str) -> Type | None:
    """Return the type of a key; None if it is unknown."""
    setting = settings_of(BrokerConfig).get(_base(name))
    return None if setting is None else setting.type


def check(overrides: Overrides, *, per_broker: bool) -> None:
    """Raises ConfigError if these cannot be set for one broker, or cluster-wide."""
    table = settings_of(BrokerConfig)
    sorted_names = sorted(overrides)
    _refuse(
        "Cannot update these configs dynamically",
        (n for n in sorted_names if n in table and table[n].dynamic is Dynamic.READ_ONLY),
    )
    _refuse(
        "Classes, files, commands and passwords are taken from server.properties alone; cannot "
        "update these configs dynamically",
        filter(is_unsafe, sorted_names),
    )
    _refuse(
        "These security configs can be dynamically updated only per-listener using the listener "
        "prefix",
        (n for n in sorted_names if n in _STORES),
    )
    for name in sorted_names:
        _parsed(name, overrides[name])
    if not per_broker:
        _refuse(
            "Cannot update these configs at default cluster level, broker id must be specified",
            filter(_is_per_broker, sorted_names),
        )


def merged(static: BrokerConfig, overrides: BrokerOverrides) -> BrokerConfig:
    """Return a new config of `static` and the overrides.  Raises ConfigError if values conflict."""
    table = settings_of(BrokerConfig)
    # Attributes other than fields are cached values derived from the old config.
    values = {k: v for k, v in vars(static).items() if k in BrokerConfig.__dataclass_fields__}
    for layer in reversed(overrides.layers()):
        for name, text in layer.values.items():
            if name in table and text is not None:
                values[table[name].attribute] = table[name].parse(text)
    config = BrokerConfig(**values | {"overrides": overrides.layers()})
    if conflicts := [text for _, text in config.conflicts()]:
        raise ConfigError("Invalid dynamic configuration: " + "; ".join(conflicts))
    return config


def merged_as_stored(
    static: BrokerConfig, overrides: BrokerOverrides
) -> tuple[BrokerConfig, list[str]]:
    """Return the result of `merged` without invalid overrides, and the errors of those, one line
    each."""
    cluster, of_cluster = usable(overrides.cluster, per_broker=False)
    broker, of_broker = usable(overrides.broker, per_broker=True)
    problems = of_cluster + of_broker
    try:
        return merged(static, BrokerOverrides(cluster, broker)), problems
    except ConfigError as error:
        return static, [*problems, f"{error}; none of what was set dynamically is used"]


def usable_of(overrides: BrokerOverrides) -> BrokerOverrides:
    return BrokerOverrides(
        usable(overrides.cluster, per_broker=False)[0],
        usable(overrides.broker, per_broker=True)[0],
    )


def check_step(old: BrokerConfig, new: BrokerConfig) -> None:
    """Raises ConfigError if the change is too large: threads may at most double or halve, and
    existing listeners must keep their protocol and be advertised between brokers."""
    table = settings_of(BrokerConfig)
    for name in sorted(_THREADS):
        before, after = (getattr(config, table[name].attribute) for config in (old, new))
        if before == after:
            continue
        text = f"Dynamic thread count update validation failed for {name}={after}, value should "
        if after < before // 2:
            raise ConfigError(f"{text}be at least half the current value {before}")
        if after > before * 2:
            raise ConfigError(f"{text}not be greater than double the current value {before}")
    _check_listeners(old, new)
    before, after = old.log_cleaner_threads, new.log_cleaner_threads
    if after < before // 2:
        raise ConfigError(
            f"Log cleaner threads cannot be reduced to less than half the current value {before}"
        )
    if after > before * 2:
        raise ConfigError(
            "Log cleaner threads cannot be increased to more than double the current value "
            f"{before}"
        )


def usable(overrides: Overrides, *, per_broker: bool) -> tuple[dict[str, str], list[str]]:
    """Return the overrides that `check` accepts, and the errors of the others."""
    valid, problems = {}, []
    for name, text in overrides.items():
        try:
            check({name: text}, per_broker=per_broker)
        except ConfigError as error:
            problems.append(str(error))
        else:
            valid[name] = text
    return valid, problems


def _check_listeners(old: BrokerConfig, new: BrokerConfig) -> None:
    protocols = {endpoint.listener: endpoint.protocol for endpoint in old.endpoints}
    for endpoint in new.endpoints:
        if protocols.get(endpoint.listener, endpoint.protocol) != endpoint.protocol:
            raise ConfigError(
                f"Security protocol cannot be updated for existing listener {endpoint.listener}"
            )
    between = old.inter_broker_listener
    old_advertised, advertised = (
        {endpoint.listener for endpoint in config.advertised_endpoints} for config in (old, new)
    )
    if between in old_advertised - advertised:
        raise ConfigError(
            f"Advertised listener must be specified for inter-broker listener {between}"
        )


def _refuse(reason: str, names: Iterable[str]) -> None:
    if refused_names := list(names):
        raise ConfigError(f"{reason}: [{', '.join(refused_names)}]")


def _parsed(name: str, text: str) -> Any:
    setting = settings_of(BrokerConfig).get(_base(name))
    return text if setting is None else setting.parse(text)


def _is_per_broker(name: str) -> bool:
    base = _base(name)
    if base != name:
        return base not in _OF_ALL_LISTENERS
    setting: Setting | None = settings_of(BrokerConfig).get(name)
    return setting is not None and setting.dynamic is Dynamic.PER_BROKER


def _base(name: str) -> str:
    """Return `max.connections` for `listener.name.internal.max.connections`."""
    match = _OF_ONE_LISTENER.fullmatch(name)
    return match[1] if match else name
