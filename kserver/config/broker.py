"""The broker's configuration: server.properties, validated, and values derived from it.

Pure: except `load`, which reads a file.

Every key is declared in `sections/`, one module per section, or in the table of keys that are
known but unused.

Invalid values prevent the start; one ConfigError lists all of them, one per line.  Unknown keys
are accepted with a warning, as plug-ins may read them, and releases remove keys.

    server.properties:7: Invalid value 'x' for configuration log.segment.bytes: Not a number of type
        INT (allowed: [14,...])
    server.properties:9: unknown key 'log.retention.hour': did you mean 'log.retention.hours'?
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import FrozenInstanceError, field
from typing import Any, NamedTuple, Self

from kserver.config import listeners, properties
from kserver.config.sections.cleaner import CleanerSettings
from kserver.config.sections.general import GeneralSettings
from kserver.config.sections.groups import GroupSettings
from kserver.config.sections.kraft import KRaftSettings
from kserver.config.sections.log import LogSettings
from kserver.config.sections.metrics import MetricsSettings
from kserver.config.sections.network import NetworkSettings
from kserver.config.sections.observability import ObservabilitySettings
from kserver.config.sections.only_known import (
    SaslSettings,
    SecuritySettings,
    ShareGroupSettings,
    TieredSettings,
    TlsSettings,
)
from kserver.config.sections.quotas import QuotaSettings
from kserver.config.sections.replication import ReplicationSettings
from kserver.config.sections.transactions import TransactionSettings
from kserver.config.sections.zookeeper import ZooKeeperSettings
from kserver.config.setting import (
    GivenValue,
    Layer,
    Setting,
    Source,
    given_in,
    section,
    settings_of,
)
from kserver.errors import ConfigError
from kserver.model import Endpoint


class ConfigEntry(NamedTuple):
    """One key and value as set by the user."""

    key: str
    text: str
    where: str
    """Where it was set, such as `server.properties:7`."""


# A broker with an embedded store is a cluster of its own: it needs no id from ZooKeeper, and could
# never create internal topics with three replicas.
WITHOUT_ZOOKEEPER = {
    "broker.id": "0",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}

# Prefixes of the configs of a single listener and of plug-ins, whose names are not listed.
OPEN_ENDED = ("listener.name.", "config.providers.", "rsm.config.", "rlmm.config.")


@section
class BrokerConfig(
    GeneralSettings,
    NetworkSettings,
    LogSettings,
    CleanerSettings,
    ReplicationSettings,
    GroupSettings,
    ShareGroupSettings,
    TransactionSettings,
    QuotaSettings,
    SecuritySettings,
    SaslSettings,
    TlsSettings,
    ZooKeeperSettings,
    KRaftSettings,
    MetricsSettings,
    ObservabilitySettings,
    TieredSettings,
):
    """All configs of server.properties.  A change creates a new object (dataclasses.replace)."""

    explicit: Mapping[str, str] = field(default_factory=dict)
    """Text of the known keys that were set."""
    warnings: tuple[str, ...] = ()
    """Warnings about unknown keys, one line each."""
    overrides: tuple[Layer, ...] = ()
    """Dynamic configs, the highest precedence first; see kserver.config.dynamic."""

    def __init__(self, **values: Any) -> None:
        # A default is an attribute of the class, where dataclasses put it.
        if strangers := values.keys() - self.__dataclass_fields__.keys():
            raise TypeError(f"no such setting: {', '.join(sorted(strangers))}")
        vars(self).update({"explicit": {}} | values)

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    @classmethod
    def load(cls, path: str | None = None, overrides: Sequence[str] = ()) -> Self:
        """Load a file, overridden by texts `key=value`.  Raises ConfigError with all errors."""
        return cls.of([*_read(path), *_split(overrides)])

    @classmethod
    def embedded(cls, data_directory: str, overrides: Sequence[str] = ()) -> Self:
        """Return the config of a broker without a file, which accepts connections only from this
        machine."""
        here = "default"
        return cls.of(
            [
                ConfigEntry("listeners", "PLAINTEXT://127.0.0.1:9092", here),
                ConfigEntry("log.dirs", data_directory, here),
                *_split(overrides),
            ]
        )

    @classmethod
    def of(cls, all_entries: Iterable[ConfigEntry]) -> Self:
        """Create a config.  Of several values of a key, the last one is used."""
        table = settings_of(cls)
        by_key = {entry.key: entry for entry in all_entries}
        _complete(by_key)
        entries = [entry for entry in by_key.values() if entry.key in table]
        errors = {
            entry.key: text for entry in entries if (text := _refusal(table[entry.key], entry))
        }
        values = {
            table[entry.key].attribute: table[entry.key].parse(entry.text)
            for entry in entries
            if entry.key not in errors
        }
        config = cls(
            **values,
            explicit={entry.key: entry.text for entry in entries},
            warnings=tuple(
                _unknown(entry, table) for entry in by_key.values() if _is_unknown(entry, table)
            ),
        )
        conflicts = [_place(by_key.get(key)) + text for key, text in config.conflicts()]
        if problems := [*errors.values(), *conflicts]:
            raise ConfigError("\n".join(problems))
        return config

    @functools.cached_property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """Endpoints to bind.  An empty host means every interface, port 0 a free port."""
        return listeners.bound(self.listeners, self._protocols, self._controller_listeners)

    @property
    def inter_broker_listener(self) -> str:
        """Name of the listener for connections between brokers."""
        return self.inter_broker_listener_name or self.security_inter_broker_protocol

    @functools.cached_property
    def advertised_endpoints(self) -> tuple[Endpoint, ...]:
        """Advertised endpoints; empty host and port 0 as in `endpoints`."""
        return listeners.advertised(
            self.advertised_listeners, self.endpoints, self._protocols, self._controller_listeners
        )

    @functools.cached_property
    def connection_limits(self) -> Mapping[str, int]:
        """`max.connections.per.ip.overrides`: maximum number of simultaneous connections, by
        host."""
        return listeners.connection_limits(self.max_connections_per_ip_overrides)

    @property
    def log_directories(self) -> tuple[str, ...]:
        return self.log_dir if self.log_dirs is None else self.log_dirs

    @property
    def _protocols(self) -> Mapping[str, str]:
        return listeners.protocol_map(self.listener_security_protocol_map)

    @property
    def _controller_listeners(self) -> frozenset[str]:
        return frozenset(name.upper() for name in self.controller_listener_names)

    def conflicts(self) -> Iterator[tuple[str, str]]:
        """Yield pairs of a key and an error, for values that conflict with others or are invalid
        as a whole."""
        yield from self._listener_conflicts()
        yield from self._connection_conflicts()
        yield from self.group_conflicts()
        if not self.log_directories:
            yield "log.dirs", "At least one log directory must be defined via log.dirs or log.dir."
        if strangers := sorted(set(self.cordoned_log_dirs) - set(self.log_directories)):
            yield (
                "cordoned.log.dirs",
                f"cordoned.log.dirs names what is not in log.dirs: {', '.join(strangers)}",
            )
        yield from self._kraft_conflicts()
        if self.node_id not in (-1, self.broker_id):
            yield "node.id", "You must set `node.id` to the same value as `broker.id`."
        if self.zookeeper_connect is not None:
            yield from self._id_conflicts()
        yield from self._login_conflicts()
        if self.log_cleaner_min_compaction_lag_ms > self.log_cleaner_max_compaction_lag_ms:
            yield (
                "log.cleaner.min.compaction.lag.ms",
                "log.cleaner.min.compaction.lag.ms "
                f"({self.log_cleaner_min_compaction_lag_ms}) > log.cleaner.max.compaction.lag.ms "
                f"({self.log_cleaner_max_compaction_lag_ms})",
            )

    def _login_conflicts(self) -> Iterator[tuple[str, str]]:
        sasl, digest = self.zookeeper_sasl_jaas_config, self.zookeeper_auth
        if sasl is not None and digest is not None:
            yield (
                "zookeeper.auth",
                "zookeeper.auth and zookeeper.sasl.jaas.config are both set, but a broker logs in"
                " to ZooKeeper as one user: remove one of them",
            )
        if self.zookeeper_set_acl and sasl is None and digest is None:
            yield (
                "zookeeper.set.acl",
                "zookeeper.set.acl=true creates znodes that only their creator may change, but"
                " no login is set: set zookeeper.sasl.jaas.config or zookeeper.auth",
            )

    def _kraft_conflicts(self) -> Iterator[tuple[str, str]]:
        """Reject configs of a KRaft quorum.  A combined node that is its own quorum is accepted,
        as it is a cluster of one like this broker; one with other controllers would silently be
        alone."""
        roles = self.process_roles
        if roles and "broker" not in roles:
            yield "process.roles", "process.roles names no broker, and controllers are not served"
        elif roles and "controller" not in roles:
            yield (
                "process.roles",
                "process.roles=broker has its controllers in a KRaft quorum, which is not served:"
                " for a cluster set zookeeper.connect, for a broker by itself leave process.roles"
                " and controller.quorum.* out",
            )
        for key, servers in (
            ("controller.quorum.voters", self.controller_quorum_voters),
            ("controller.quorum.bootstrap.servers", self.controller_quorum_bootstrap_servers),
        ):
            if len(servers) > 1 or any(
                "@" in server and server.partition("@")[0] != str(self.broker_id)
                for server in servers
            ):
                yield (
                    key,
                    f"{key} names other nodes than this one ({','.join(servers)}), and a KRaft"
                    " quorum is not served: for a cluster set zookeeper.connect",
                )

    def _listener_conflicts(self) -> Iterator[tuple[str, str]]:
        key = "listener.security.protocol.map"
        try:
            _ = self._protocols
            key = "listeners"
            endpoints = self.endpoints
            key = "advertised.listeners"
            _ = self.advertised_endpoints
        except ConfigError as error:
            # Each needs the one before.
            yield key, str(error)
            return
        for endpoint in endpoints:
            if endpoint.protocol != "PLAINTEXT":
                yield (
                    "listeners",
                    f"listener {endpoint} speaks {endpoint.protocol}, which is not served yet: "
                    "name PLAINTEXT listeners alone",
                )

    def _connection_conflicts(self) -> Iterator[tuple[str, str]]:
        try:
            limits = self.connection_limits
        except ConfigError as error:
            yield "max.connections.per.ip.overrides", str(error)
            return
        if self.max_connections_per_ip == 0 and not limits:
            yield (
                "max.connections.per.ip",
                "max.connections.per.ip can be set to zero only if "
                "max.connections.per.ip.overrides property is set.",
            )

    def _id_conflicts(self) -> Iterator[tuple[str, str]]:
        if not self.broker_id_generation_enable:
            if self.broker_id < 0:
                yield "broker.id", "broker.id must be greater than or equal to 0"
        elif not -1 <= self.broker_id <= self.reserved_broker_max_id:
            yield (
                "broker.id",
                "broker.id must be greater than or equal to -1 and not greater than "
                "reserved.broker.max.id",
            )

    @property
    def layers(self) -> tuple[Layer, ...]:
        """Sources of values, the highest precedence first."""
        return (
            *self.overrides,
            Layer(Source.STATIC_BROKER_CONFIG, self.explicit),
            Layer(Source.DEFAULT_CONFIG, _defaults()),
        )

    def given(self, setting: Setting) -> list[GivenValue]:
        return given_in(self.layers, setting)


def user_data_directory(environment: Mapping[str, str]) -> str:
    """Return the data directory of an embedded broker: `k` in the user's data directory."""
    base = environment.get("XDG_DATA_HOME") or f"{environment.get('HOME', '')}/.local/share"
    return f"{base}/k"


@functools.cache
def _defaults() -> Mapping[str, str | None]:
    return {s.name: s.render(s.default) for s in settings_of(BrokerConfig).values()}


def _read(path: str | None) -> list[ConfigEntry]:
    if path is None:
        return []
    try:
        with open(path, "rb") as file:
            text = properties.decode(file.read())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    try:
        return [ConfigEntry(e.key, e.value, f"{path}:{e.line}") for e in properties.parse(text)]
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _split(overrides: Iterable[str]) -> list[ConfigEntry]:
    entries = []
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals:
            raise ConfigError(f"--override {override}: expected key=value")
        entries.append(ConfigEntry(key.strip(), text, f"--override {key.strip()}"))
    return entries


def _complete(entries: dict[str, ConfigEntry]) -> None:
    """Add values that follow from other keys, as if they had been set."""
    if "broker.id" in entries and entries["broker.id"].text.strip() == "-1":
        del entries["broker.id"]
    if "node.id" in entries and "broker.id" not in entries:
        entries["broker.id"] = entries["node.id"]._replace(key="broker.id")
    if "zookeeper.connect" not in entries:
        for key, text in WITHOUT_ZOOKEEPER.items():
            entries.setdefault(key, ConfigEntry(key, text, "default without zookeeper.connect"))


def _place(entry: ConfigEntry | None) -> str:
    return "" if entry is None else f"{entry.where}: "


def _refusal(setting: Setting, entry: ConfigEntry) -> str | None:
    reason = setting.refusal(entry.text)
    if reason is None:
        return None
    text = "[hidden]" if setting.sensitive else f"'{entry.text}'"
    allowed = f" (allowed: {setting.range})" if setting.range else ""
    return f"{_place(entry)}Invalid value {text} for configuration {entry.key}: {reason}{allowed}"


def _is_unknown(entry: ConfigEntry, table: Mapping[str, Setting]) -> bool:
    return entry.key not in table and not entry.key.startswith(OPEN_ENDED)


def _unknown(entry: ConfigEntry, table: Mapping[str, Setting]) -> str:
    import difflib  # takes 5 ms, so imported only for a misspelt key

    near = difflib.get_close_matches(entry.key, table, n=1, cutoff=0.8)
    hint = f": did you mean '{near[0]}'?" if near else ""
    return f"{_place(entry)}unknown key '{entry.key}'{hint}"
