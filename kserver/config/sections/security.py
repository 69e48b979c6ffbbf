"""Authorizer, principals, delegation tokens, secrets."""

from __future__ import annotations

from dataclasses import dataclass

from kserver.config.setting import (
    CLASS,
    DAY_MS,
    HOUR_MS,
    LONG,
    PASSWORD,
    PER_BROKER,
    STRING,
    Acts,
    at_least,
    setting,
)


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class SecuritySettings:
    """Security."""

    authorizer_class_name: str = setting(
        "authorizer.class.name",
        "",
        acts=Acts.SECURITY,
        doc="the authorizer: empty for none, else the class name of one of Kafka's",
    )
    principal_builder_class: str = setting(
        "principal.builder.class",
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        type=CLASS,
        dynamic=PER_BROKER,
        acts=Acts.JAVA,
        doc="derives the principal from a connection",
    )
    security_providers: str | None = setting(
        "security.providers", None, type=STRING, acts=Acts.JAVA, doc="extra Java security providers"
    )
    connections_max_reauth_ms: int = setting(
        "connections.max.reauth.ms",
        0,
        type=LONG,
        acts=Acts.SECURITY,
        doc="force re-authentication; 0 off",
    )
    delegation_token_secret_key: str | None = setting(
        "delegation.token.secret.key",
        None,
        type=PASSWORD,
        acts=Acts.SECURITY,
        doc="secret for tokens; unset disables them",
    )
    delegation_token_master_key: str | None = setting(
        "delegation.token.master.key",
        None,
        type=PASSWORD,
        acts=Acts.SECURITY,
        doc="older name of delegation.token.secret.key",
    )
    delegation_token_max_lifetime_ms: int = setting(
        "delegation.token.max.lifetime.ms",
        7 * DAY_MS,
        at_least(1),
        type=LONG,
        acts=Acts.SECURITY,
        doc="longest life of a token",
    )
    delegation_token_expiry_time_ms: int = setting(
        "delegation.token.expiry.time.ms",
        DAY_MS,
        at_least(1),
        type=LONG,
        acts=Acts.SECURITY,
        doc="life before renewal is needed",
    )
    delegation_token_expiry_check_interval_ms: int = setting(
        "delegation.token.expiry.check.interval.ms",
        HOUR_MS,
        at_least(1),
        type=LONG,
        acts=Acts.SECURITY,
        doc="how often expired tokens are removed",
    )
    password_encoder_secret: str | None = setting(
        "password.encoder.secret",
        None,
        type=PASSWORD,
        acts=Acts.SECURITY,
        doc="secret for dynamic passwords kept in ZooKeeper",
    )
    password_encoder_old_secret: str | None = setting(
        "password.encoder.old.secret",
        None,
        type=PASSWORD,
        acts=Acts.SECURITY,
        doc="previous secret, for rotation",
    )
    password_encoder_cipher_algorithm: str = setting(
        "password.encoder.cipher.algorithm",
        "AES/CBC/PKCS5Padding",
        acts=Acts.SECURITY,
        doc="cipher",
    )
    password_encoder_key_length: int = setting(
        "password.encoder.key.length", 128, at_least(8), acts=Acts.SECURITY, doc="key length"
    )
    password_encoder_iterations: int = setting(
        "password.encoder.iterations",
        4096,
        at_least(1024),
        acts=Acts.SECURITY,
        doc="key derivation rounds",
    )
    password_encoder_keyfactory_algorithm: str | None = setting(
        "password.encoder.keyfactory.algorithm",
        None,
        type=STRING,
        acts=Acts.SECURITY,
        doc="key derivation; null picks PBKDF2 SHA-512 or SHA-1",
    )
