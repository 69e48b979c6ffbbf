"""Logins by SASL."""

from __future__ import annotations

from functools import partial

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
    section,
    setting,
)

later = partial(setting, acts=Acts.SECURITY)


@section
class SaslSettings:
    """SASL."""

    sasl_enabled_mechanisms: tuple[str, ...] = later(
        "sasl.enabled.mechanisms",
        ("GSSAPI",),
        dynamic=PER_BROKER,
        doc="mechanisms that clients may choose from",
    )
    sasl_mechanism_inter_broker_protocol: str = later(
        "sasl.mechanism.inter.broker.protocol",
        "GSSAPI",
        dynamic=PER_BROKER,
        doc="mechanism between brokers",
    )
    sasl_mechanism_controller_protocol: str = setting(
        "sasl.mechanism.controller.protocol",
        "GSSAPI",
        acts=Acts.KRAFT,
        doc="mechanism towards KRaft controllers",
    )
    sasl_jaas_config: str | None = later(
        "sasl.jaas.config",
        None,
        type=PASSWORD,
        dynamic=PER_BROKER,
        doc=(
            "login, as a line of JAAS; of a listener: "
            "listener.name.<listener>.<mechanism>.sasl.jaas.config"
        ),
    )
    sasl_server_callback_handler_class: str | None = setting(
        "sasl.server.callback.handler.class",
        None,
        type=CLASS,
        acts=Acts.JAVA,
        doc="plug-in that checks logins",
    )
    sasl_client_callback_handler_class: str | None = setting(
        "sasl.client.callback.handler.class",
        None,
        type=CLASS,
        acts=Acts.JAVA,
        doc="plug-in that answers for a login between brokers",
    )
    sasl_login_callback_handler_class: str | None = setting(
        "sasl.login.callback.handler.class",
        None,
        type=CLASS,
        acts=Acts.JAVA,
        doc="plug-in that answers while credentials are fetched",
    )
    sasl_login_class: str | None = setting(
        "sasl.login.class", None, type=CLASS, acts=Acts.JAVA, doc="plug-in that fetches credentials"
    )
    sasl_server_max_receive_size: int = later(
        "sasl.server.max.receive.size", 512 << 10, doc="largest message of a login, in bytes"
    )
    sasl_kerberos_service_name: str | None = later(
        "sasl.kerberos.service.name",
        None,
        type=STRING,
        dynamic=PER_BROKER,
        doc="name that brokers have in Kerberos",
    )
    sasl_kerberos_kinit_cmd: str = later(
        "sasl.kerberos.kinit.cmd", "/usr/bin/kinit", dynamic=PER_BROKER, doc="path of kinit"
    )
    sasl_kerberos_ticket_renew_window_factor: float = later(
        "sasl.kerberos.ticket.renew.window.factor",
        0.8,
        dynamic=PER_BROKER,
        doc="share of a ticket's life after which it is renewed",
    )
    sasl_kerberos_ticket_renew_jitter: float = later(
        "sasl.kerberos.ticket.renew.jitter",
        0.05,
        dynamic=PER_BROKER,
        doc="random share added to it",
    )
    sasl_kerberos_min_time_before_relogin: int = later(
        "sasl.kerberos.min.time.before.relogin",
        60_000,
        type=LONG,
        dynamic=PER_BROKER,
        doc="least time between two renewals, in milliseconds",
    )
    sasl_kerberos_principal_to_local_rules: tuple[str, ...] = later(
        "sasl.kerberos.principal.to.local.rules",
        ("DEFAULT",),
        dynamic=PER_BROKER,
        doc="rules that shorten a Kerberos principal to a name",
    )
    sasl_login_refresh_window_factor: float = later(
        "sasl.login.refresh.window.factor",
        0.8,
        dynamic=PER_BROKER,
        doc="share of a token's life after which it is renewed",
    )
    sasl_login_refresh_window_jitter: float = later(
        "sasl.login.refresh.window.jitter", 0.05, dynamic=PER_BROKER, doc="random share added to it"
    )
    sasl_login_refresh_min_period_seconds: int = later(
        "sasl.login.refresh.min.period.seconds",
        60,
        type=SHORT,
        dynamic=PER_BROKER,
        doc="least time between two renewals",
    )
    sasl_login_refresh_buffer_seconds: int = later(
        "sasl.login.refresh.buffer.seconds",
        300,
        type=SHORT,
        dynamic=PER_BROKER,
        doc="least time between a renewal and the end of the old token",
    )
    sasl_login_connect_timeout_ms: int | None = later(
        "sasl.login.connect.timeout.ms",
        None,
        type=INT,
        doc="how long a connection to the token endpoint may take to open",
    )
    sasl_login_read_timeout_ms: int | None = later(
        "sasl.login.read.timeout.ms",
        None,
        type=INT,
        doc="how long the token endpoint may take to answer",
    )
    sasl_login_retry_backoff_ms: int = later(
        "sasl.login.retry.backoff.ms",
        100,
        type=LONG,
        doc="pause before the token endpoint is asked again",
    )
    sasl_login_retry_backoff_max_ms: int = later(
        "sasl.login.retry.backoff.max.ms", 10_000, type=LONG, doc="the most that pause grows to"
    )
    sasl_oauthbearer_token_endpoint_url: str | None = later(
        "sasl.oauthbearer.token.endpoint.url", None, type=STRING, doc="where tokens are fetched"
    )
    sasl_oauthbearer_jwks_endpoint_url: str | None = later(
        "sasl.oauthbearer.jwks.endpoint.url",
        None,
        type=STRING,
        doc="where the keys that sign tokens are fetched",
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = later(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        HOUR_MS,
        type=LONG,
        doc="how often those keys are fetched anew",
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = later(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        100,
        type=LONG,
        doc="pause before they are asked for again",
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = later(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        10_000,
        type=LONG,
        doc="the most that pause grows to",
    )
    sasl_oauthbearer_scope_claim_name: str = later(
        "sasl.oauthbearer.scope.claim.name", "scope", doc="claim of a token that holds the scope"
    )
    sasl_oauthbearer_sub_claim_name: str = later(
        "sasl.oauthbearer.sub.claim.name", "sub", doc="claim of a token that holds the subject"
    )
    sasl_oauthbearer_clock_skew_seconds: int = later(
        "sasl.oauthbearer.clock.skew.seconds",
        30,
        doc="how far the clocks of broker and issuer may differ",
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] = later(
        "sasl.oauthbearer.expected.audience", (), doc="audiences one of which a token has to name"
    )
    sasl_oauthbearer_expected_issuer: str | None = later(
        "sasl.oauthbearer.expected.issuer", None, type=STRING, doc="issuer a token has to name"
    )
    sasl_oauthbearer_scope: str | None = later(
        "sasl.oauthbearer.scope", None, type=STRING, doc="scope asked of the token endpoint"
    )
    sasl_oauthbearer_client_credentials_client_id: str | None = later(
        "sasl.oauthbearer.client.credentials.client.id",
        None,
        type=STRING,
        doc="client id of the client-credentials grant",
    )
    sasl_oauthbearer_client_credentials_client_secret: str | None = later(
        "sasl.oauthbearer.client.credentials.client.secret",
        None,
        type=PASSWORD,
        doc="secret that goes with that client id",
    )
    sasl_oauthbearer_assertion_algorithm: str = later(
        "sasl.oauthbearer.assertion.algorithm",
        "RS256",
        doc="algorithm that signs an assertion: RS256 or ES256",
    )
    sasl_oauthbearer_assertion_claim_aud: str | None = later(
        "sasl.oauthbearer.assertion.claim.aud",
        None,
        type=STRING,
        doc="audience claim of an assertion",
    )
    sasl_oauthbearer_assertion_claim_iss: str | None = later(
        "sasl.oauthbearer.assertion.claim.iss",
        None,
        type=STRING,
        doc="issuer claim of an assertion",
    )
    sasl_oauthbearer_assertion_claim_sub: str | None = later(
        "sasl.oauthbearer.assertion.claim.sub",
        None,
        type=STRING,
        doc="subject claim of an assertion",
    )
    sasl_oauthbearer_assertion_claim_exp_seconds: int = later(
        "sasl.oauthbearer.assertion.claim.exp.seconds",
        300,
        between(0, 86400),
        doc="seconds until an assertion expires",
    )
    sasl_oauthbearer_assertion_claim_nbf_seconds: int = later(
        "sasl.oauthbearer.assertion.claim.nbf.seconds",
        60,
        between(0, 3600),
        doc="seconds before now from which an assertion holds",
    )
    sasl_oauthbearer_assertion_claim_jti_include: bool = later(
        "sasl.oauthbearer.assertion.claim.jti.include", False, doc="give each assertion an id"
    )
    sasl_oauthbearer_assertion_file: str | None = later(
        "sasl.oauthbearer.assertion.file", None, type=STRING, doc="file that holds an assertion"
    )
    sasl_oauthbearer_assertion_private_key_file: str | None = later(
        "sasl.oauthbearer.assertion.private.key.file",
        None,
        type=STRING,
        doc="key that signs assertions",
    )
    sasl_oauthbearer_assertion_private_key_passphrase: str | None = later(
        "sasl.oauthbearer.assertion.private.key.passphrase",
        None,
        type=PASSWORD,
        doc="passphrase of that key",
    )
    sasl_oauthbearer_assertion_template_file: str | None = later(
        "sasl.oauthbearer.assertion.template.file",
        None,
        type=STRING,
        doc="JSON file with further claims and header fields",
    )
    sasl_oauthbearer_jwt_retriever_class: str = setting(
        "sasl.oauthbearer.jwt.retriever.class",
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
        type=CLASS,
        acts=Acts.JAVA,
        doc="plug-in that fetches tokens",
    )
    sasl_oauthbearer_jwt_validator_class: str = setting(
        "sasl.oauthbearer.jwt.validator.class",
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
        type=CLASS,
        acts=Acts.JAVA,
        doc="plug-in that checks tokens",
    )
