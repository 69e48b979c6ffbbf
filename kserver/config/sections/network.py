"""Listeners, sockets, and the limits of connections and requests."""

from __future__ import annotations

from dataclasses import dataclass

from kserver.config.setting import (
    CLUSTER,
    INT_MAX,
    LIST,
    LONG,
    PER_BROKER,
    STRING,
    Acts,
    at_least,
    one_of,
    setting,
)


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class NetworkSettings:
    """Network."""

    listeners: tuple[str, ...] = setting(
        "listeners",
        ("PLAINTEXT://:9092",),
        dynamic=PER_BROKER,
        doc="addresses to bind, NAME://host:port list",
    )
    advertised_listeners: tuple[str, ...] | None = setting(
        "advertised.listeners",
        None,
        type=LIST,
        doc="addresses told to clients; null means same as listeners",
    )
    listener_security_protocol_map: str = setting(
        "listener.security.protocol.map",
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        dynamic=PER_BROKER,
        doc="listener name to protocol",
    )
    inter_broker_listener_name: str | None = setting(
        "inter.broker.listener.name",
        None,
        type=STRING,
        acts=Acts.REPLICATION,
        doc="listener for broker-to-broker traffic",
    )
    security_inter_broker_protocol: str = setting(
        "security.inter.broker.protocol",
        "PLAINTEXT",
        one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        acts=Acts.REPLICATION,
        doc="protocol for it when no listener name is given",
    )
    control_plane_listener_name: str | None = setting(
        "control.plane.listener.name",
        None,
        type=STRING,
        acts=Acts.REPLICATION,
        doc="separate controller-to-broker listener (ZooKeeper mode)",
    )
    early_start_listeners: tuple[str, ...] | None = setting(
        "early.start.listeners",
        None,
        type=LIST,
        acts=Acts.KRAFT,
        doc="listeners opened before the authorizer is ready",
    )
    num_network_threads: int = setting(
        "num.network.threads",
        3,
        at_least(1),
        dynamic=CLUSTER,
        acts=Acts.ABSENT,
        doc="network threads per listener",
    )
    queued_max_requests: int = setting(
        "queued.max.requests",
        500,
        at_least(1),
        acts=Acts.ABSENT,
        doc="requests queued before network threads block",
    )
    queued_max_request_bytes: int = setting(
        "queued.max.request.bytes",
        -1,
        type=LONG,
        acts=Acts.ABSENT,
        doc="bytes queued before reading stops; -1 off",
    )
    socket_send_buffer_bytes: int = setting(
        "socket.send.buffer.bytes", 100 << 10, doc="SO_SNDBUF, -1 for the OS default"
    )
    socket_receive_buffer_bytes: int = setting(
        "socket.receive.buffer.bytes", 100 << 10, doc="SO_RCVBUF, -1 for the OS default"
    )
    socket_request_max_bytes: int = setting(
        "socket.request.max.bytes", 100 << 20, at_least(1), doc="largest request accepted"
    )
    socket_listen_backlog_size: int = setting(
        "socket.listen.backlog.size", 50, at_least(1), doc="accept backlog"
    )
    socket_connection_setup_timeout_ms: int = setting(
        "socket.connection.setup.timeout.ms",
        10_000,
        type=LONG,
        acts=Acts.REPLICATION,
        doc="outgoing connect timeout",
    )
    socket_connection_setup_timeout_max_ms: int = setting(
        "socket.connection.setup.timeout.max.ms",
        30_000,
        type=LONG,
        acts=Acts.REPLICATION,
        doc="upper bound of its growth",
    )
    connections_max_idle_ms: int = setting(
        "connections.max.idle.ms", 600_000, type=LONG, doc="close idle connections after this"
    )
    connection_failed_authentication_delay_ms: int = setting(
        "connection.failed.authentication.delay.ms",
        100,
        at_least(0),
        acts=Acts.SECURITY,
        doc="delay of the answer to a failed login",
    )
    max_connections: int = setting(
        "max.connections", INT_MAX, at_least(0), dynamic=CLUSTER, doc="per-broker connection limit"
    )
    max_connections_per_ip: int = setting(
        "max.connections.per.ip", INT_MAX, at_least(0), dynamic=CLUSTER, doc="per-address limit"
    )
    max_connections_per_ip_overrides: str = setting(
        "max.connections.per.ip.overrides", "", dynamic=CLUSTER, doc="host:limit exceptions"
    )
    max_connection_creation_rate: int = setting(
        "max.connection.creation.rate",
        INT_MAX,
        at_least(0),
        dynamic=CLUSTER,
        acts=Acts.QUOTAS,
        doc="new connections per second",
    )
    fetch_max_bytes: int = setting(
        "fetch.max.bytes", 55 << 20, at_least(1 << 10), doc="cap of one fetch response"
    )
    max_incremental_fetch_session_cache_slots: int = setting(
        "max.incremental.fetch.session.cache.slots",
        1000,
        at_least(0),
        doc="incremental fetch sessions kept",
    )
