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
            "addresses to listen on, NAME://host:port, comma-separated; an empty host listens on "
            "all interfaces, port 0 selects a free port"
        ),
    )
    advertised_listeners: tuple[str, ...] | None = setting(
        "advertised.listeners",
        None,
        type=LIST,
        dynamic=PER_BROKER,
        doc=(
            "addresses that clients connect to, in the format of listeners; the value of "
            "listeners when unset"
        ),
    )
    listener_security_protocol_map: str = setting(
        "listener.security.protocol.map",
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        dynamic=PER_BROKER,
        doc="security protocol of each listener, as NAME:PROTOCOL pairs",
    )
    inter_broker_listener_name: str | None = setting(
        "inter.broker.listener.name",
        None,
        type=STRING,
        doc="listener for connections between brokers",
    )
    inter_broker_check_address: bool = setting(
        "inter.broker.check.address",
        True,
        doc=(
            "accept requests of the controller, and requests of brokers to the controller, only "
            "from addresses that registered brokers advertise on the inter-broker listener; set "
            "it to false if brokers connect from other addresses, for example through NAT"
        ),
    )
    security_inter_broker_protocol: str = setting(
        "security.inter.broker.protocol",
        "PLAINTEXT",
        one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        doc="security protocol between brokers if inter.broker.listener.name is unset",
    )
    socket_connection_setup_timeout_ms: int = setting(
        "socket.connection.setup.timeout.ms",
        10_000,
        type=LONG,
        doc="how long opening a connection to another broker may take",
    )
    queued_max_request_bytes: int = setting(
        "queued.max.request.bytes",
        -1,
        type=LONG,
        doc="maximum bytes of unanswered requests larger than 64 KiB; above it, the broker stops "
        "reading such requests; -1 for no limit",
    )
    socket_send_buffer_bytes: int = setting(
        "socket.send.buffer.bytes",
        -1,
        doc="SO_SNDBUF of a connection; -1 leaves it to the operating system, which grows it "
        "(Kafka: 102400, which makes large batches take 2.4 times the CPU)",
    )
    socket_receive_buffer_bytes: int = setting(
        "socket.receive.buffer.bytes",
        -1,
        doc="SO_RCVBUF of a connection; -1 leaves it to the operating system, which grows it "
        "(Kafka: 102400, which makes large batches take 2.4 times the CPU)",
    )
    socket_request_max_bytes: int = setting(
        "socket.request.max.bytes",
        100 << 20,
        at_least(1),
        doc="largest request accepted; a connection that sends a larger one is closed",
    )
    socket_listen_backlog_size: int = setting(
        "socket.listen.backlog.size",
        50,
        at_least(1),
        doc="maximum connections waiting to be accepted",
    )
    connections_max_idle_ms: int = setting(
        "connections.max.idle.ms",
        600_000,
        type=LONG,
        doc="close a connection that was idle, or did not read its responses, for this long; one "
        "that sends a request at less than 1 KiB per second is closed after a minute",
    )
    max_connections: int = setting(
        "max.connections",
        INT_MAX,
        at_least(0),
        dynamic=CLUSTER,
        doc="maximum number of open connections",
    )
    max_connections_per_ip: int = setting(
        "max.connections.per.ip",
        INT_MAX,
        at_least(0),
        dynamic=CLUSTER,
        doc="maximum number of open connections from one address",
    )
    max_connections_per_ip_overrides: str = setting(
        "max.connections.per.ip.overrides",
        "",
        dynamic=CLUSTER,
        doc="limits for single addresses, as host:limit pairs, comma-separated",
    )
    max_connection_creation_rate: int = setting(
        "max.connection.creation.rate",
        INT_MAX,
        at_least(0),
        dynamic=CLUSTER,
        doc="maximum new connections per second; above it, the broker delays accepting connections "
        "by up to a second",
    )
    fetch_max_bytes: int = setting(
        "fetch.max.bytes",
        55 << 20,
        at_least(1 << 10),
        doc="maximum size of a fetch response; a single larger batch is still sent",
    )
    max_incremental_fetch_session_cache_slots: int = setting(
        "max.incremental.fetch.session.cache.slots",
        1000,
        at_least(0),
        doc="maximum number of cached incremental fetch sessions (KIP-227)",
    )
