"""Logins by SASL."""

from __future__ import annotations

from dataclasses import dataclass

from kserver.config.setting import (
    CLASS,
    HOUR_MS,
    INT,
    LONG,
    PASSWORD,
    PER_BROKER,
    SHORT,
    STRING,
    Acts,
    between,
    setting,
)


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class SaslSettings:
    """SASL."""

    sasl_enabled_mechanisms: tuple[str, ...] = setting(
        "sasl.enabled.mechanisms",
        ("GSSAPI",),
        dynamic=PER_BROKER,
        acts=Acts.SECURITY,
        doc="mechanisms offered",
    )
    sasl_mechanism_inter_broker_protocol: str = setting(
        "sasl.mechanism.inter.broker.protocol",
        "GSSAPI",
        dynamic=PER_BROKER,
        acts=Acts.SECURITY,
        doc="mechanism between brokers",
    )
    sasl_mechanism_controller_protocol: str = setting(
        "sasl.mechanism.controller.protocol",
        "GSSAPI",
        acts=Acts.KRAFT,
        doc="mechanism towards controllers",
    )
    sasl_jaas_config: str | None = setting(
        "sasl.jaas.config",
        None,
        type=PASSWORD,
        dynamic=PER_BROKER,
        acts=Acts.SECURITY,
        doc="JAAS line; brokers prefix it with listener.name.<listener>.<mechanism>.",
    )
    sasl_server_callback_handler_class: str | None = setting(
        "sasl.server.callback.handler.class",
        None,
        type=CLASS,
        acts=Acts.JAVA,
        doc="server-side verification hook (listener+mechanism prefixed)",
    )
    sasl_client_callback_handler_class: str | None = setting(
        "sasl.client.callback.handler.class",
        None,
        type=CLASS,
        acts=Acts.JAVA,
        doc="client-side hook",
    )
    sasl_login_callback_handler_class: str | None = setting(
        "sasl.login.callback.handler.class", None, type=CLASS, acts=Acts.JAVA, doc="login hook"
    )
    sasl_login_class: str | None = setting(
        "sasl.login.class", None, type=CLASS, acts=Acts.JAVA, doc="login implementation"
    )
    sasl_server_max_receive_size: int = setting(
        "sasl.server.max.receive.size", 512 << 10, acts=Acts.SECURITY, doc="largest SASL token"
    )
    sasl_kerberos_service_name: str | None = setting(
        "sasl.kerberos.service.name",
        None,
        type=STRING,
        dynamic=PER_BROKER,
        acts=Acts.SECURITY,
        doc="Kerberos service",
    )
    sasl_kerberos_kinit_cmd: str = setting(
        "sasl.kerberos.kinit.cmd",
        "/usr/bin/kinit",
        dynamic=PER_BROKER,
        acts=Acts.SECURITY,
        doc="kinit path",
    )
    sasl_kerberos_ticket_renew_window_factor: float = setting(
        "sasl.kerberos.ticket.renew.window.factor",
        0.8,
        dynamic=PER_BROKER,
        acts=Acts.SECURITY,
        doc="when to renew",
    )
    sasl_kerberos_ticket_renew_jitter: float = setting(
        "sasl.kerberos.ticket.renew.jitter",
        0.05,
        dynamic=PER_BROKER,
        acts=Acts.SECURITY,
        doc="randomness of it",
    )
    sasl_kerberos_min_time_before_relogin: int = setting(
        "sasl.kerberos.min.time.before.relogin",
        60_000,
        type=LONG,
        dynamic=PER_BROKER,
        acts=Acts.SECURITY,
        doc="pause between relogins",
    )
    sasl_kerberos_principal_to_local_rules: tuple[str, ...] = setting(
        "sasl.kerberos.principal.to.local.rules",
        ("DEFAULT",),
        dynamic=PER_BROKER,
        acts=Acts.SECURITY,
        doc="principal mapping rules",
    )
    sasl_login_refresh_window_factor: float = setting(
        "sasl.login.refresh.window.factor",
        0.8,
        dynamic=PER_BROKER,
        acts=Acts.SECURITY,
        doc="OAuth token refresh point",
    )
    sasl_login_refresh_window_jitter: float = setting(
        "sasl.login.refresh.window.jitter",
        0.05,
        dynamic=PER_BROKER,
        acts=Acts.SECURITY,
        doc="its randomness",
    )
    sasl_login_refresh_min_period_seconds: int = setting(
        "sasl.login.refresh.min.period.seconds",
        60,
        type=SHORT,
        dynamic=PER_BROKER,
        acts=Acts.SECURITY,
        doc="shortest refresh period",
    )
    sasl_login_refresh_buffer_seconds: int = setting(
        "sasl.login.refresh.buffer.seconds",
        300,
        type=SHORT,
        dynamic=PER_BROKER,
        acts=Acts.SECURITY,
        doc="refresh this long before expiry",
    )
    sasl_login_connect_timeout_ms: int | None = setting(
        "sasl.login.connect.timeout.ms",
        None,
        type=INT,
        acts=Acts.SECURITY,
        doc="OAuth endpoint connect timeout",
    )
    sasl_login_read_timeout_ms: int | None = setting(
        "sasl.login.read.timeout.ms",
        None,
        type=INT,
        acts=Acts.SECURITY,
        doc="OAuth endpoint read timeout",
    )
    sasl_login_retry_backoff_ms: int = setting(
        "sasl.login.retry.backoff.ms", 100, type=LONG, acts=Acts.SECURITY, doc="OAuth retry pause"
    )
    sasl_login_retry_backoff_max_ms: int = setting(
        "sasl.login.retry.backoff.max.ms",
        10_000,
        type=LONG,
        acts=Acts.SECURITY,
        doc="its upper bound",
    )
    sasl_oauthbearer_token_endpoint_url: str | None = setting(
        "sasl.oauthbearer.token.endpoint.url",
        None,
        type=STRING,
        acts=Acts.SECURITY,
        doc="token endpoint",
    )
    sasl_oauthbearer_jwks_endpoint_url: str | None = setting(
        "sasl.oauthbearer.jwks.endpoint.url",
        None,
        type=STRING,
        acts=Acts.SECURITY,
        doc="key endpoint",
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = setting(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        HOUR_MS,
        type=LONG,
        acts=Acts.SECURITY,
        doc="key refresh period",
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = setting(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        100,
        type=LONG,
        acts=Acts.SECURITY,
        doc="key retry pause",
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = setting(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        10_000,
        type=LONG,
        acts=Acts.SECURITY,
        doc="its upper bound",
    )
    sasl_oauthbearer_scope_claim_name: str = setting(
        "sasl.oauthbearer.scope.claim.name", "scope", acts=Acts.SECURITY, doc="scope claim"
    )
    sasl_oauthbearer_sub_claim_name: str = setting(
        "sasl.oauthbearer.sub.claim.name", "sub", acts=Acts.SECURITY, doc="subject claim"
    )
    sasl_oauthbearer_clock_skew_seconds: int = setting(
        "sasl.oauthbearer.clock.skew.seconds",
        30,
        acts=Acts.SECURITY,
        doc="tolerated clock difference",
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] = setting(
        "sasl.oauthbearer.expected.audience", (), acts=Acts.SECURITY, doc="accepted audiences"
    )
    sasl_oauthbearer_expected_issuer: str | None = setting(
        "sasl.oauthbearer.expected.issuer",
        None,
        type=STRING,
        acts=Acts.SECURITY,
        doc="accepted issuer",
    )
    sasl_oauthbearer_scope: str | None = setting(
        "sasl.oauthbearer.scope",
        None,
        type=STRING,
        acts=Acts.SECURITY,
        doc="scope asked of the token endpoint",
    )
    sasl_oauthbearer_client_credentials_client_id: str | None = setting(
        "sasl.oauthbearer.client.credentials.client.id",
        None,
        type=STRING,
        acts=Acts.SECURITY,
        doc="client id of the client-credentials grant",
    )
    sasl_oauthbearer_client_credentials_client_secret: str | None = setting(
        "sasl.oauthbearer.client.credentials.client.secret",
        None,
        type=PASSWORD,
        acts=Acts.SECURITY,
        doc="its secret",
    )
    sasl_oauthbearer_assertion_algorithm: str = setting(
        "sasl.oauthbearer.assertion.algorithm",
        "RS256",
        acts=Acts.SECURITY,
        doc="algorithm that signs an assertion: RS256 or ES256",
    )
    sasl_oauthbearer_assertion_claim_aud: str | None = setting(
        "sasl.oauthbearer.assertion.claim.aud",
        None,
        type=STRING,
        acts=Acts.SECURITY,
        doc="audience claim of an assertion",
    )
    sasl_oauthbearer_assertion_claim_iss: str | None = setting(
        "sasl.oauthbearer.assertion.claim.iss",
        None,
        type=STRING,
        acts=Acts.SECURITY,
        doc="issuer claim",
    )
    sasl_oauthbearer_assertion_claim_sub: str | None = setting(
        "sasl.oauthbearer.assertion.claim.sub",
        None,
        type=STRING,
        acts=Acts.SECURITY,
        doc="subject claim",
    )
    sasl_oauthbearer_assertion_claim_exp_seconds: int = setting(
        "sasl.oauthbearer.assertion.claim.exp.seconds",
        300,
        between(0, 86400),
        acts=Acts.SECURITY,
        doc="seconds until an assertion expires",
    )
    sasl_oauthbearer_assertion_claim_nbf_seconds: int = setting(
        "sasl.oauthbearer.assertion.claim.nbf.seconds",
        60,
        between(0, 3600),
        acts=Acts.SECURITY,
        doc="seconds before now from which it holds",
    )
    sasl_oauthbearer_assertion_claim_jti_include: bool = setting(
        "sasl.oauthbearer.assertion.claim.jti.include",
        False,
        acts=Acts.SECURITY,
        doc="give each assertion an id",
    )
    sasl_oauthbearer_assertion_file: str | None = setting(
        "sasl.oauthbearer.assertion.file",
        None,
        type=STRING,
        acts=Acts.SECURITY,
        doc="file that holds an assertion",
    )
    sasl_oauthbearer_assertion_private_key_file: str | None = setting(
        "sasl.oauthbearer.assertion.private.key.file",
        None,
        type=STRING,
        acts=Acts.SECURITY,
        doc="key that signs assertions",
    )
    sasl_oauthbearer_assertion_private_key_passphrase: str | None = setting(
        "sasl.oauthbearer.assertion.private.key.passphrase",
        None,
        type=PASSWORD,
        acts=Acts.SECURITY,
        doc="its passphrase",
    )
    sasl_oauthbearer_assertion_template_file: str | None = setting(
        "sasl.oauthbearer.assertion.template.file",
        None,
        type=STRING,
        acts=Acts.SECURITY,
        doc="JSON file with further claims and header fields",
    )
    sasl_oauthbearer_jwt_retriever_class: str = setting(
        "sasl.oauthbearer.jwt.retriever.class",
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
        type=CLASS,
        acts=Acts.JAVA,
        doc="fetches tokens",
    )
    sasl_oauthbearer_jwt_validator_class: str = setting(
        "sasl.oauthbearer.jwt.validator.class",
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
        type=CLASS,
        acts=Acts.JAVA,
        doc="checks tokens",
    )
