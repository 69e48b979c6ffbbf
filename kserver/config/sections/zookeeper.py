"""Where the cluster is coordinated."""

from __future__ import annotations

from kserver.config.known import known_keys
from kserver.config.setting import (
    INT,
    NON_EMPTY,
    STRING,
    section,
    setting,
)


@section
@known_keys("zookeeper")
class ZooKeeperSettings:
    """ZooKeeper."""

    zookeeper_connect: str | None = setting(
        "zookeeper.connect",
        None,
        NON_EMPTY,
        type=STRING,
        doc=(
            "host:port of each ZooKeeper server, comma-separated, then a path if the cluster "
            "has its own; without it a single broker keeps that data itself, in its log "
            "directory"
        ),
    )
    zookeeper_session_timeout_ms: int = setting(
        "zookeeper.session.timeout.ms",
        18_000,
        doc="how long ZooKeeper may not hear from the broker before it counts as gone",
    )
    zookeeper_connection_timeout_ms: int | None = setting(
        "zookeeper.connection.timeout.ms",
        None,
        type=INT,
        doc=(
            "how long the first connection to ZooKeeper may take; "
            "zookeeper.session.timeout.ms when unset"
        ),
    )
