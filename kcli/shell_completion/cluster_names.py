"""Names in a cluster for the completion of a command line: topics, groups, ...

A completion has the time between two keystrokes, so results are cached for some seconds in the
user's cache directory, one file for a cluster and a kind of names. Failures are cached too: a
cluster out of reach costs one wait, not one at each key.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcli.command.options import SERVER_VARIABLE, Refused, client_properties

if TYPE_CHECKING:
    from kcli.client.admin.admin import Admin
    from kcli.command.command import Options

KEPT_S = 10
PATIENCE_S = 0.7

# Names with other characters are left out, since a shell could interpret them.
_NAME = re.compile(r"[A-Za-z0-9._:\[\]%-]+")


class ClusterNames:
    """Names in the cluster of --bootstrap-server and --command-config in a command line."""

    def __init__(self, options: Options, directory: Path) -> None:
        self._options = options
        self._directory = directory
        # Not by the file's contents: passwords must not affect a file's name.
        way = (options.bootstrap_server, os.environ.get(SERVER_VARIABLE), options.command_config)
        self._cluster = hashlib.sha256(repr((*way, os.getcwd())).encode()).hexdigest()[:16]

    def topics(self) -> dict[str, int]:
        """Return the number of partitions of each topic."""
        return dict(self._look_up("cluster").get("topics", {}))

    def brokers(self) -> dict[str, str]:
        """Return HOST:PORT by broker id."""
        return dict(self._look_up("cluster").get("brokers", {}))

    def topic_keys(self) -> list[str]:
        """Return the keys of a topic's configuration."""
        return list(self._look_up("topic-keys").get("keys", []))

    def groups(self) -> dict[str, str]:
        """Return the state of each group; "" if unknown."""
        return dict(self._look_up("groups").get("groups", {}))

    def _look_up(self, kind: str) -> dict[str, Any]:
        path = self._directory / f"{self._cluster}.{kind}.json"
        try:
            if 0 <= time.time() - path.stat().st_mtime < KEPT_S:
                return dict(json.loads(path.read_bytes()))
        except (OSError, ValueError):
            pass  # missing or damaged: it is written again
        names_by_kind = _ask(self._options, kind)
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            new = path.with_suffix(f".{os.getpid()}")
            new.write_text(json.dumps(names_by_kind))
            new.replace(path)
        except OSError:
            pass  # no cache then: the cluster is asked again next time
        return names_by_kind


def cache_directory() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "k")


def _ask(options: Options, kind: str) -> dict[str, Any]:
    """Return names; empty if the cluster cannot be reached in time, or refuses."""
    import asyncio

    from kcli.client.admin.admin import Admin
    from kcli.client.config import AdminConfig
    from kcli.client.errors import ClientError
    from kserver.errors import ConfigError, KafkaError, ProtocolError

    async def bounded() -> dict[str, Any]:
        config = AdminConfig.of(client_properties(options))
        async with asyncio.timeout(PATIENCE_S), Admin(config) as admin:
            return await _REQUESTS[kind](admin)

    # Not asyncio.run, which at its end waits for a name server that does not respond.
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(bounded())
    except (OSError, Refused, ClientError, ConfigError, KafkaError, ProtocolError):
        return {}


async def cluster(admin: Admin) -> dict[str, Any]:
    listed = await admin.list_topics()
    metadata = admin.cluster
    return {
        "topics": {
            topic.name: len(metadata.topics[topic.name].partitions)
            for topic in listed
            if _NAME.fullmatch(topic.name)
        },
        "brokers": {
            str(node.id): address
            for node in sorted(metadata.nodes.values())
            if _NAME.fullmatch(address := _address(node.host, node.port))
        },
    }


async def topic_keys(admin: Admin) -> dict[str, Any]:
    from kcli.client.admin.admin import ResourceType

    topics = await admin.list_topics()
    resources = [(ResourceType.TOPIC, topic.name) for topic in topics[:1]]
    for entries in (await admin.describe_configs(resources)).values():
        if isinstance(entries, list):
            return {"keys": sorted(e.name for e in entries if _NAME.fullmatch(e.name))}
    return {}


async def groups(admin: Admin) -> dict[str, Any]:
    listed = await admin.groups.listings()
    return {"groups": {g.group: g.state or "" for g in listed if _NAME.fullmatch(g.group)}}


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


_REQUESTS = {"cluster": cluster, "topic-keys": topic_keys, "groups": groups}
