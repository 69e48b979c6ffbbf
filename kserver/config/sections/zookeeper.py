"""Where the cluster is coordinated."""

from __future__ import annotations

from functools import partial

from kserver.config.setting import (
    INT,
    LIST,
    NON_EMPTY,
    PASSWORD,
    STRING,
    Acts,
    at_least,
    section,
    setting,
)

later = partial(setting, acts=Acts.SECURITY)


@section
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
    zookeeper_max_in_flight_requests: int = setting(
        "zookeeper.max.in.flight.requests",
        10,
        at_least(1),
        acts=Acts.ABSENT,
        doc="requests to ZooKeeper that wait for an answer",
    )
    zookeeper_set_acl: bool = later(
        "zookeeper.set.acl", False, doc="make znodes that only brokers may change"
    )
    zookeeper_metadata_migration_enable: bool = setting(
        "zookeeper.metadata.migration.enable",
        False,
        acts=Acts.KRAFT,
        doc="move the cluster's data to KRaft",
    )
    zookeeper_clientCnxnSocket: str | None = setting(
        "zookeeper.clientCnxnSocket",
        None,
        type=STRING,
        acts=Acts.JAVA,
        doc="socket class of Java's client",
    )
    zookeeper_ssl_client_enable: bool = later(
        "zookeeper.ssl.client.enable", False, doc="speak TLS with ZooKeeper"
    )
    zookeeper_ssl_protocol: str = later(
        "zookeeper.ssl.protocol", "TLSv1.2", doc="TLS version that contexts are made for"
    )
    zookeeper_ssl_enabled_protocols: tuple[str, ...] | None = later(
        "zookeeper.ssl.enabled.protocols",
        None,
        type=LIST,
        doc="TLS versions that a connection may use",
    )
    zookeeper_ssl_cipher_suites: tuple[str, ...] | None = later(
        "zookeeper.ssl.cipher.suites",
        None,
        type=LIST,
        doc="cipher suites that a connection may use",
    )
    zookeeper_ssl_endpoint_identification_algorithm: str = later(
        "zookeeper.ssl.endpoint.identification.algorithm",
        "HTTPS",
        doc="HTTPS checks the host name in a certificate; empty does not",
    )
    zookeeper_ssl_keystore_location: str | None = later(
        "zookeeper.ssl.keystore.location", None, type=STRING, doc="file of the key store"
    )
    zookeeper_ssl_keystore_password: str | None = later(
        "zookeeper.ssl.keystore.password", None, type=PASSWORD, doc="password of the key store"
    )
    zookeeper_ssl_keystore_type: str | None = later(
        "zookeeper.ssl.keystore.type",
        None,
        type=STRING,
        doc="what the key store is: JKS, PKCS12 or PEM",
    )
    zookeeper_ssl_truststore_location: str | None = later(
        "zookeeper.ssl.truststore.location", None, type=STRING, doc="file of the trust store"
    )
    zookeeper_ssl_truststore_password: str | None = later(
        "zookeeper.ssl.truststore.password", None, type=PASSWORD, doc="password of the trust store"
    )
    zookeeper_ssl_truststore_type: str | None = later(
        "zookeeper.ssl.truststore.type",
        None,
        type=STRING,
        doc="what the trust store is: JKS, PKCS12 or PEM",
    )
    zookeeper_ssl_crl_enable: bool = later(
        "zookeeper.ssl.crl.enable", False, doc="look certificates up in revocation lists"
    )
    zookeeper_ssl_ocsp_enable: bool = later(
        "zookeeper.ssl.ocsp.enable", False, doc="ask the issuer whether a certificate was revoked"
    )
