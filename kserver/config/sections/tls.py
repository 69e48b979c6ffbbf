"""Certificates and protocols of TLS."""

from __future__ import annotations

from dataclasses import dataclass

from kserver.config.setting import CLASS, PASSWORD, PER_BROKER, STRING, Acts, one_of, setting


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class TlsSettings:
    """TLS."""

    ssl_client_auth: str = setting(
        "ssl.client.auth",
        "none",
        one_of("required", "requested", "none"),
        dynamic=PER_BROKER,
        acts=Acts.SECURITY,
        doc="none, requested or required",
    )
    ssl_protocol: str = setting(
        "ssl.protocol",
        "TLSv1.3",
        dynamic=PER_BROKER,
        acts=Acts.SECURITY,
        doc="TLS version to create contexts with",
    )
    ssl_enabled_protocols: tuple[str, ...] = setting(
        "ssl.enabled.protocols",
        ("TLSv1.2", "TLSv1.3"),
        dynamic=PER_BROKER,
        acts=Acts.SECURITY,
        doc="TLS versions allowed",
    )
    ssl_cipher_suites: tuple[str, ...] = setting(
        "ssl.cipher.suites",
        (),
        dynamic=PER_BROKER,
        acts=Acts.SECURITY,
        doc="allowed suites; empty means all",
    )
    ssl_provider: str | None = setting(
        "ssl.provider", None, type=STRING, dynamic=PER_BROKER, acts=Acts.JAVA, doc="JSSE provider"
    )
    ssl_keystore_type: str = setting(
        "ssl.keystore.type", "JKS", dynamic=PER_BROKER, acts=Acts.SECURITY, doc="JKS, PKCS12 or PEM"
    )
    ssl_keystore_location: str | None = setting(
        "ssl.keystore.location",
        None,
        type=STRING,
        dynamic=PER_BROKER,
        acts=Acts.SECURITY,
        doc="key store file",
    )
    ssl_keystore_password: str | None = setting(
        "ssl.keystore.password",
        None,
        type=PASSWORD,
        dynamic=PER_BROKER,
        acts=Acts.SECURITY,
        doc="its password",
    )
    ssl_key_password: str | None = setting(
        "ssl.key.password",
        None,
        type=PASSWORD,
        dynamic=PER_BROKER,
        acts=Acts.SECURITY,
        doc="private key password",
    )
    ssl_keystore_key: str | None = setting(
        "ssl.keystore.key",
        None,
        type=PASSWORD,
        dynamic=PER_BROKER,
        acts=Acts.SECURITY,
        doc="PEM private key inline",
    )
    ssl_keystore_certificate_chain: str | None = setting(
        "ssl.keystore.certificate.chain",
        None,
        type=PASSWORD,
        dynamic=PER_BROKER,
        acts=Acts.SECURITY,
        doc="PEM chain inline",
    )
    ssl_truststore_type: str = setting(
        "ssl.truststore.type",
        "JKS",
        dynamic=PER_BROKER,
        acts=Acts.SECURITY,
        doc="type of the trust store",
    )
    ssl_truststore_location: str | None = setting(
        "ssl.truststore.location",
        None,
        type=STRING,
        dynamic=PER_BROKER,
        acts=Acts.SECURITY,
        doc="trust store file",
    )
    ssl_truststore_password: str | None = setting(
        "ssl.truststore.password",
        None,
        type=PASSWORD,
        dynamic=PER_BROKER,
        acts=Acts.SECURITY,
        doc="its password",
    )
    ssl_truststore_certificates: str | None = setting(
        "ssl.truststore.certificates",
        None,
        type=PASSWORD,
        dynamic=PER_BROKER,
        acts=Acts.SECURITY,
        doc="PEM certificates inline",
    )
    ssl_keymanager_algorithm: str = setting(
        "ssl.keymanager.algorithm", "SunX509", dynamic=PER_BROKER, acts=Acts.JAVA, doc="key manager"
    )
    ssl_trustmanager_algorithm: str = setting(
        "ssl.trustmanager.algorithm",
        "PKIX",
        dynamic=PER_BROKER,
        acts=Acts.JAVA,
        doc="trust manager",
    )
    ssl_endpoint_identification_algorithm: str = setting(
        "ssl.endpoint.identification.algorithm",
        "https",
        dynamic=PER_BROKER,
        acts=Acts.SECURITY,
        doc="host name check; empty turns it off",
    )
    ssl_secure_random_implementation: str | None = setting(
        "ssl.secure.random.implementation",
        None,
        type=STRING,
        dynamic=PER_BROKER,
        acts=Acts.JAVA,
        doc="random source",
    )
    ssl_engine_factory_class: str | None = setting(
        "ssl.engine.factory.class",
        None,
        type=CLASS,
        dynamic=PER_BROKER,
        acts=Acts.JAVA,
        doc="custom engine factory",
    )
    ssl_principal_mapping_rules: str = setting(
        "ssl.principal.mapping.rules",
        "DEFAULT",
        acts=Acts.SECURITY,
        doc="certificate name to principal rules",
    )
    ssl_allow_dn_changes: bool = setting(
        "ssl.allow.dn.changes",
        False,
        acts=Acts.SECURITY,
        doc="allow another subject on key store reload",
    )
    ssl_allow_san_changes: bool = setting(
        "ssl.allow.san.changes",
        False,
        acts=Acts.SECURITY,
        doc="allow other alternative names on reload",
    )
