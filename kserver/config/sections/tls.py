"""Certificates and protocols of TLS."""

from __future__ import annotations

from functools import partial

from kserver.config.setting import (
    CLASS,
    PASSWORD,
    PER_BROKER,
    STRING,
    Acts,
    one_of,
    section,
    setting,
)

later = partial(setting, acts=Acts.SECURITY)


@section
class TlsSettings:
    """TLS."""

    ssl_client_auth: str = later(
        "ssl.client.auth",
        "none",
        one_of("required", "requested", "none"),
        dynamic=PER_BROKER,
        doc="whether clients show a certificate: none, requested or required",
    )
    ssl_protocol: str = later(
        "ssl.protocol", "TLSv1.3", dynamic=PER_BROKER, doc="TLS version that contexts are made for"
    )
    ssl_enabled_protocols: tuple[str, ...] = later(
        "ssl.enabled.protocols",
        ("TLSv1.2", "TLSv1.3"),
        dynamic=PER_BROKER,
        doc="TLS versions that a connection may use",
    )
    ssl_cipher_suites: tuple[str, ...] = later(
        "ssl.cipher.suites",
        (),
        dynamic=PER_BROKER,
        doc="cipher suites that a connection may use; empty for all",
    )
    ssl_provider: str | None = setting(
        "ssl.provider",
        None,
        type=STRING,
        dynamic=PER_BROKER,
        acts=Acts.JAVA,
        doc="security provider of Java",
    )
    ssl_keystore_type: str = later(
        "ssl.keystore.type",
        "JKS",
        dynamic=PER_BROKER,
        doc="what the key store is: JKS, PKCS12 or PEM",
    )
    ssl_keystore_location: str | None = later(
        "ssl.keystore.location", None, type=STRING, dynamic=PER_BROKER, doc="file of the key store"
    )
    ssl_keystore_password: str | None = later(
        "ssl.keystore.password",
        None,
        type=PASSWORD,
        dynamic=PER_BROKER,
        doc="password of the key store",
    )
    ssl_key_password: str | None = later(
        "ssl.key.password",
        None,
        type=PASSWORD,
        dynamic=PER_BROKER,
        doc="password of the private key",
    )
    ssl_keystore_key: str | None = later(
        "ssl.keystore.key",
        None,
        type=PASSWORD,
        dynamic=PER_BROKER,
        doc="private key in PEM, instead of a file",
    )
    ssl_keystore_certificate_chain: str | None = later(
        "ssl.keystore.certificate.chain",
        None,
        type=PASSWORD,
        dynamic=PER_BROKER,
        doc="certificate chain in PEM, instead of a file",
    )
    ssl_truststore_type: str = later(
        "ssl.truststore.type",
        "JKS",
        dynamic=PER_BROKER,
        doc="what the trust store is: JKS, PKCS12 or PEM",
    )
    ssl_truststore_location: str | None = later(
        "ssl.truststore.location",
        None,
        type=STRING,
        dynamic=PER_BROKER,
        doc="file of the trust store",
    )
    ssl_truststore_password: str | None = later(
        "ssl.truststore.password",
        None,
        type=PASSWORD,
        dynamic=PER_BROKER,
        doc="password of the trust store",
    )
    ssl_truststore_certificates: str | None = later(
        "ssl.truststore.certificates",
        None,
        type=PASSWORD,
        dynamic=PER_BROKER,
        doc="trusted certificates in PEM, instead of a file",
    )
    ssl_keymanager_algorithm: str = setting(
        "ssl.keymanager.algorithm",
        "SunX509",
        dynamic=PER_BROKER,
        acts=Acts.JAVA,
        doc="key manager of Java",
    )
    ssl_trustmanager_algorithm: str = setting(
        "ssl.trustmanager.algorithm",
        "PKIX",
        dynamic=PER_BROKER,
        acts=Acts.JAVA,
        doc="trust manager of Java",
    )
    ssl_endpoint_identification_algorithm: str = later(
        "ssl.endpoint.identification.algorithm",
        "https",
        dynamic=PER_BROKER,
        doc="https checks the host name in a certificate; empty does not",
    )
    ssl_secure_random_implementation: str | None = setting(
        "ssl.secure.random.implementation",
        None,
        type=STRING,
        dynamic=PER_BROKER,
        acts=Acts.JAVA,
        doc="source of randomness of Java",
    )
    ssl_engine_factory_class: str | None = setting(
        "ssl.engine.factory.class",
        None,
        type=CLASS,
        dynamic=PER_BROKER,
        acts=Acts.JAVA,
        doc="plug-in that makes TLS engines",
    )
    ssl_principal_mapping_rules: str = later(
        "ssl.principal.mapping.rules",
        "DEFAULT",
        doc="rules that shorten the name in a certificate to a principal",
    )
    ssl_allow_dn_changes: bool = later(
        "ssl.allow.dn.changes",
        False,
        doc="let a reloaded key store have another distinguished name",
    )
    ssl_allow_san_changes: bool = later(
        "ssl.allow.san.changes", False, doc="let a reloaded key store have other alternative names"
    )
