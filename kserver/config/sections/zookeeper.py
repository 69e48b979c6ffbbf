"""Where the cluster is coordinated."""

from __future__ import annotations

from dataclasses import dataclass

from kserver.config.setting import INT, LIST, PASSWORD, STRING, Acts, at_least, setting


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class ZooKeeperSettings:
    """ZooKeeper."""

    zookeeper_connect: str | None = setting(
        "zookeeper.connect",
        None,
        type=STRING,
        doc="host:port list with optional chroot; required in ZooKeeper mode",
    )
    zookeeper_session_timeout_ms: int = setting(
        "zookeeper.session.timeout.ms", 18_000, doc="session timeout"
    )
    zookeeper_connection_timeout_ms: int | None = setting(
        "zookeeper.connection.timeout.ms",
        None,
        type=INT,
        doc="connect timeout; null uses the session timeout",
    )
    zookeeper_max_in_flight_requests: int = setting(
        "zookeeper.max.in.flight.requests",
        10,
        at_least(1),
        acts=Acts.ABSENT,
        doc="pipelined requests",
    )
    zookeeper_set_acl: bool = setting(
        "zookeeper.set.acl", False, acts=Acts.SECURITY, doc="create nodes with secure ACLs"
    )
    zookeeper_metadata_migration_enable: bool = setting(
        "zookeeper.metadata.migration.enable", False, acts=Acts.KRAFT, doc="migrate to KRaft"
    )
    zookeeper_clientCnxnSocket: str | None = setting(
        "zookeeper.clientCnxnSocket",
        None,
        type=STRING,
        acts=Acts.JAVA,
        doc="socket class, Netty for TLS",
    )
    zookeeper_ssl_client_enable: bool = setting(
        "zookeeper.ssl.client.enable", False, acts=Acts.SECURITY, doc="TLS to ZooKeeper"
    )
    zookeeper_ssl_protocol: str = setting(
        "zookeeper.ssl.protocol", "TLSv1.2", acts=Acts.SECURITY, doc="TLS version"
    )
    zookeeper_ssl_enabled_protocols: tuple[str, ...] | None = setting(
        "zookeeper.ssl.enabled.protocols", None, type=LIST, acts=Acts.SECURITY, doc="TLS versions"
    )
    zookeeper_ssl_cipher_suites: tuple[str, ...] | None = setting(
        "zookeeper.ssl.cipher.suites", None, type=LIST, acts=Acts.SECURITY, doc="suites"
    )
    zookeeper_ssl_endpoint_identification_algorithm: str = setting(
        "zookeeper.ssl.endpoint.identification.algorithm",
        "HTTPS",
        acts=Acts.SECURITY,
        doc="host name check",
    )
    zookeeper_ssl_keystore_location: str | None = setting(
        "zookeeper.ssl.keystore.location", None, type=STRING, acts=Acts.SECURITY, doc="key store"
    )
    zookeeper_ssl_keystore_password: str | None = setting(
        "zookeeper.ssl.keystore.password",
        None,
        type=PASSWORD,
        acts=Acts.SECURITY,
        doc="its password",
    )
    zookeeper_ssl_keystore_type: str | None = setting(
        "zookeeper.ssl.keystore.type", None, type=STRING, acts=Acts.SECURITY, doc="its type"
    )
    zookeeper_ssl_truststore_location: str | None = setting(
        "zookeeper.ssl.truststore.location",
        None,
        type=STRING,
        acts=Acts.SECURITY,
        doc="trust store",
    )
    zookeeper_ssl_truststore_password: str | None = setting(
        "zookeeper.ssl.truststore.password",
        None,
        type=PASSWORD,
        acts=Acts.SECURITY,
        doc="its password",
    )
    zookeeper_ssl_truststore_type: str | None = setting(
        "zookeeper.ssl.truststore.type", None, type=STRING, acts=Acts.SECURITY, doc="its type"
    )
    zookeeper_ssl_crl_enable: bool = setting(
        "zookeeper.ssl.crl.enable", False, acts=Acts.SECURITY, doc="revocation lists"
    )
    zookeeper_ssl_ocsp_enable: bool = setting(
        "zookeeper.ssl.ocsp.enable", False, acts=Acts.SECURITY, doc="OCSP"
    )
