"""Listeners, sockets, and the limits of connections and requests."""

from __future__ import annotations

from kserver.config.known import known_keys
from kserver.config.setting import (
    CLUSTER,
    INT_MAX,
    LIST,
    LONG,
    PER_BROKER,
    STRING,
    at_least,
    one_of,
    section,
    setting,
)


@section
@known_keys("network")
class NetworkSettings:
    """Network."""

    listeners: tuple[str, ...] = setting(
        "listeners",
        ("PLAINTEXT://:9092",),
        dynamic=PER_BROKER,
        doc=(
            "addresses to listen on, NAME://host:port, comma-separated; no host listens on "
            "all interfaces, port 0 takes a free one"
        ),
    )
    advertised_listeners: tuple[str, ...] | None = setting(
        "advertised.listeners",
        None,
        type=LIST,
        dynamic=PER_BROKER,
        doc=(
            "addresses that clients are told, in the form of listeners, whose value it takes "
            "when unset"
        ),
    )
    listener_security_protocol_map: str = setting(
        "listener.security.protocol.map",
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        dynamic=PER_BROKER,
        doc="NAME:PROTOCOL pairs; the protocol of each listener",
    )
    inter_broker_listener_name: str | None = setting(
        "inter.broker.listener.name",
        None,
        type=STRING,
        doc="listener that brokers reach each other on",
    )
    inter_broker_check_address: bool = setting(
        "inter.broker.check.address",
        True,
        doc=(
            "take messages of the controller, and of brokers to it, only from addresses that "
            "registered brokers advertise on the listener between brokers; false where brokers "
            "come from other addresses, through NAT for instance"
        ),
    )
    security_inter_broker_protocol: str = setting(
        "security.inter.broker.protocol",
        "PLAINTEXT",
        one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        doc="protocol brokers reach each other with when no listener is named for it",
    )
    socket_connection_setup_timeout_ms: int = setting(
        "socket.connection.setup.timeout.ms",
        10_000,
        type=LONG,
        doc="how long a connection to another broker may take to open",
    )
    queued_max_request_bytes: int = setting(
        "queued.max.request.bytes",
        -1,
        type=LONG,
        doc="bytes of requests, of those larger than 64 KiB, that may have come without being "
        "answered before such are read no more; -1 for no limit",
    )
    socket_send_buffer_bytes: int = setting(
        "socket.send.buffer.bytes",
        -1,
        doc="SO_SNDBUF of a connection; -1 leaves it to the system, which lets it grow "
        "(Kafka: 102400, with which large batches take 2.4 times the CPU)",
    )
    socket_receive_buffer_bytes: int = setting(
        "socket.receive.buffer.bytes",
        -1,
        doc="SO_RCVBUF of a connection; -1 leaves it to the system, which lets it grow "
        "(Kafka: 102400, with which large batches take 2.4 times the CPU)",
    )
    socket_request_max_bytes: int = setting(
        "socket.request.max.bytes",
        100 << 20,
        at_least(1),
        doc="largest request taken; the connection of a larger one is closed",
    )
    socket_listen_backlog_size: int = setting(
        "socket.listen.backlog.size",
        50,
        at_least(1),
        doc="connections that may wait to be accepted",
    )
    connections_max_idle_ms: int = setting(
        "connections.max.idle.ms",
        600_000,
        type=LONG,
        doc="close a connection that was silent for this long, or took none of its answers; one "
        "whose request comes at less than 1 KiB a second is closed after a minute",
    )
    max_connections: int = setting(
        "max.connections", INT_MAX, at_least(0), dynamic=CLUSTER, doc="connections at the same time"
    )
    max_connections_per_ip: int = setting(
        "max.connections.per.ip",
        INT_MAX,
        at_least(0),
        dynamic=CLUSTER,
        doc="connections at the same time from one address",
    )
    max_connections_per_ip_overrides: str = setting(
        "max.connections.per.ip.overrides",
        "",
        dynamic=CLUSTER,
        doc="host:limit pairs, comma-separated: other limits for some addresses",
    )
    max_connection_creation_rate: int = setting(
        "max.connection.creation.rate",
        INT_MAX,
        at_least(0),
        dynamic=CLUSTER,
        doc="new connections a second; above it none is accepted for up to a second",
    )
    fetch_max_bytes: int = setting(
        "fetch.max.bytes",
        55 << 20,
        at_least(1 << 10),
        doc="largest answer to a fetch; a single larger batch is still sent",
    )
    max_incremental_fetch_session_cache_slots: int = setting(
        "max.incremental.fetch.session.cache.slots",
        1000,
        at_least(0),
        doc="incremental fetch sessions that are kept (KIP-227)",
    )
