"""The keys of zookeeper.properties that a single server has.

Pure: the file's text in, settings out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kserver.config import properties
from kserver.errors import ConfigError
from kserver.zookeeper_server.words import ALWAYS

DEFAULT_TICK_MS = 3000
DEFAULT_CONNECTIONS = 60
"""Per client address; 0 means no limit."""
_WHITELIST = "4lw.commands.whitelist"
_SILENT = frozenset(
    {
        *("initLimit", "syncLimit", "autopurge.snapRetainCount", "autopurge.purgeInterval"),
        *("admin.enableServer", "admin.serverPort", "preAllocSize", "snapCount", "dataLogDir"),
        *("standaloneEnabled", "reconfigEnabled", "syncEnabled"),
    }
)
"""Common keys that are ignored without a warning, since there is no ensemble, no transaction log to
purge, and no HTTP server.
"""


@dataclass(frozen=True, slots=True)
class Settings:
    data_dir: str
    port: int
    address: str | None = None
    """None: every address of the machine."""
    tick_ms: int = DEFAULT_TICK_MS
    max_connections: int = DEFAULT_CONNECTIONS
    min_timeout_ms: int = 2 * DEFAULT_TICK_MS
    max_timeout_ms: int = 20 * DEFAULT_TICK_MS
    words: frozenset[str] = frozenset({ALWAYS})
    warnings: tuple[str, ...] = ()

    def shown(self) -> dict[str, object]:
        """Return the settings as `conf` prints them."""
        return {
            "clientPort": self.port,
            "clientPortAddress": self.address or "0.0.0.0",
            "dataDir": self.data_dir,
            "tickTime": self.tick_ms,
            "maxClientCnxns": self.max_connections,
            "minSessionTimeout": self.min_timeout_ms,
            "maxSessionTimeout": self.max_timeout_ms,
            "serverId": 0,
        }


def parse(text: str, path: str) -> Settings:
    """Parse a file. Raises ConfigError, which names the file, if a value is invalid."""
    try:
        values = {entry.key: entry.value.strip() for entry in properties.parse(text)}
        return _settings(values)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _settings(values: Mapping[str, str]) -> Settings:
    remaining = dict(values)
    servers = [key for key in remaining if key.startswith("server.")]
    if servers:
        raise ConfigError(
            f"{servers[0]} configures an ensemble, which needs Apache's ZooKeeper: start"
            " that with this file, or remove the server lines to run a single server"
        )
    data_dir = remaining.pop("dataDir", "")
    if not data_dir:
        raise ConfigError("dataDir is missing: the directory where the znodes are kept")
    if "secureClientPort" in remaining:
        raise ConfigError("secureClientPort: clients are not served over TLS here; set clientPort")
    if "clientPort" not in remaining:
        raise ConfigError("clientPort is missing: the port for clients, mostly 2181")
    port = _number(remaining, "clientPort", 0, 0, 65535)
    tick_ms = _number(remaining, "tickTime", DEFAULT_TICK_MS, 1)
    least = _number(remaining, "minSessionTimeout", -1, -1)
    most = _number(remaining, "maxSessionTimeout", -1, -1)
    min_timeout_ms = 2 * tick_ms if least == -1 else least
    max_timeout_ms = 20 * tick_ms if most == -1 else most
    if min_timeout_ms > max_timeout_ms:
        raise ConfigError(
            f"minSessionTimeout={min_timeout_ms} is more than maxSessionTimeout={max_timeout_ms}"
        )
    whitelist = remaining.pop(_WHITELIST, "").split(",")
    return Settings(
        data_dir=data_dir,
        port=port,
        address=remaining.pop("clientPortAddress", "") or None,
        tick_ms=tick_ms,
        max_connections=_number(remaining, "maxClientCnxns", DEFAULT_CONNECTIONS, 0),
        min_timeout_ms=min_timeout_ms,
        max_timeout_ms=max_timeout_ms,
        words=frozenset({ALWAYS, *(word.strip() for word in whitelist if word.strip())}),
        warnings=tuple(
            f"{key} is not known here: ignored" for key in remaining if key not in _SILENT
        ),
    )


def _number(
    remaining: dict[str, str], key: str, default: int, least: int, most: int = 2**31 - 1
) -> int:
    text = remaining.pop(key, str(default))
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if not least <= number <= most:
        raise ConfigError(f"{key}={text} is not a number from {least} to {most}")
    return number
