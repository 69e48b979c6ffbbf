"""Authorizer, principals, delegation tokens, secrets."""

from __future__ import annotations

from functools import partial

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
    section,
    setting,
)

later = partial(setting, acts=Acts.SECURITY)


@section
class SecuritySettings:
    """Security."""

    authorizer_class_name: str = later(
        "authorizer.class.name",
        "",
        doc="the authorizer: empty for none, else the class name of one of Kafka's",
    )
    principal_builder_class: str = setting(
        "principal.builder.class",
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        type=CLASS,
        dynamic=PER_BROKER,
        acts=Acts.JAVA,
        doc="plug-in that tells who is at the other end of a connection",
    )
    security_providers: str | None = setting(
        "security.providers",
        None,
        type=STRING,
        acts=Acts.JAVA,
        doc="further security providers of Java",
    )
    connections_max_reauth_ms: int = later(
        "connections.max.reauth.ms",
        0,
        type=LONG,
        doc="how long a login holds; 0 for as long as the connection",
    )
    delegation_token_secret_key: str | None = later(
        "delegation.token.secret.key",
        None,
        type=PASSWORD,
        doc="secret that delegation tokens are made with; without it there are none",
    )
    delegation_token_master_key: str | None = later(
        "delegation.token.master.key",
        None,
        type=PASSWORD,
        doc="older name of delegation.token.secret.key",
    )
    delegation_token_max_lifetime_ms: int = later(
        "delegation.token.max.lifetime.ms",
        7 * DAY_MS,
        at_least(1),
        type=LONG,
        doc="longest life of a token, renewals and all",
    )
    delegation_token_expiry_time_ms: int = later(
        "delegation.token.expiry.time.ms",
        DAY_MS,
        at_least(1),
        type=LONG,
        doc="life of a token from one renewal to the next",
    )
    delegation_token_expiry_check_interval_ms: int = later(
        "delegation.token.expiry.check.interval.ms",
        HOUR_MS,
        at_least(1),
        type=LONG,
        doc="how often tokens that ran out are removed",
    )
    password_encoder_secret: str | None = later(
        "password.encoder.secret",
        None,
        type=PASSWORD,
        doc="secret that passwords set at run time are kept under in ZooKeeper",
    )
    password_encoder_old_secret: str | None = later(
        "password.encoder.old.secret",
        None,
        type=PASSWORD,
        doc="the secret before, while it is being changed",
    )
    password_encoder_cipher_algorithm: str = later(
        "password.encoder.cipher.algorithm", "AES/CBC/PKCS5Padding", doc="cipher they are kept with"
    )
    password_encoder_key_length: int = later(
        "password.encoder.key.length", 128, at_least(8), doc="length of its key, in bits"
    )
    password_encoder_iterations: int = later(
        "password.encoder.iterations",
        4096,
        at_least(1024),
        doc="rounds in which the key is derived",
    )
    password_encoder_keyfactory_algorithm: str | None = later(
        "password.encoder.keyfactory.algorithm",
        None,
        type=STRING,
        doc="algorithm by which the key is derived",
    )
