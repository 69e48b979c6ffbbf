"""The security settings that every client shares: SASL and TLS.

Pure: a table.  All are parsed and none acts yet: a client that asks for more than PLAINTEXT is
refused (`cluster.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from kcli.client.settings import Settings, any_case_of
from kserver.config.setting import Acts, Type, between, setting


@dataclass(frozen=True, init=False, repr=False, eq=False)
class SecurityConfig(Settings):
    sasl_client_callback_handler_class: str | None = setting(
        "sasl.client.callback.handler.class",
        None,
        type=Type.CLASS,
        acts=Acts.SECURITY,
        doc="answers the mechanism's questions",
    )
    sasl_jaas_config: str | None = setting(
        "sasl.jaas.config",
        None,
        type=Type.PASSWORD,
        acts=Acts.SECURITY,
        doc="login module and its options, as one JAAS line",
    )
    sasl_kerberos_kinit_cmd: str = setting(
        "sasl.kerberos.kinit.cmd", "/usr/bin/kinit", acts=Acts.SECURITY, doc="path of kinit"
    )
    sasl_kerberos_min_time_before_relogin: int = setting(
        "sasl.kerberos.min.time.before.relogin",
        60000,
        type=Type.LONG,
        acts=Acts.SECURITY,
        doc="ms between refresh attempts",
    )
    sasl_kerberos_service_name: str | None = setting(
        "sasl.kerberos.service.name",
        None,
        type=Type.STRING,
        acts=Acts.SECURITY,
        doc="the brokers' Kerberos principal",
    )
    sasl_kerberos_ticket_renew_jitter: float = setting(
        "sasl.kerberos.ticket.renew.jitter",
        0.05,
        acts=Acts.SECURITY,
        doc="random share of the renewal time",
    )
    sasl_kerberos_ticket_renew_window_factor: float = setting(
        "sasl.kerberos.ticket.renew.window.factor",
        0.8,
        acts=Acts.SECURITY,
        doc="share of a ticket's life before its renewal",
    )
    sasl_login_callback_handler_class: str | None = setting(
        "sasl.login.callback.handler.class",
        None,
        type=Type.CLASS,
        acts=Acts.SECURITY,
        doc="fetches credentials",
    )
    sasl_login_class: str | None = setting(
        "sasl.login.class", None, type=Type.CLASS, acts=Acts.SECURITY, doc="performs the login"
    )
    sasl_login_connect_timeout_ms: int | None = setting(
        "sasl.login.connect.timeout.ms",
        None,
        type=Type.INT,
        acts=Acts.SECURITY,
        doc="connect timeout to the identity provider",
    )
    sasl_login_read_timeout_ms: int | None = setting(
        "sasl.login.read.timeout.ms",
        None,
        type=Type.INT,
        acts=Acts.SECURITY,
        doc="read timeout of the identity provider",
    )
    sasl_login_refresh_buffer_seconds: int = setting(
        "sasl.login.refresh.buffer.seconds",
        300,
        between(0, 3600),
        type=Type.SHORT,
        acts=Acts.SECURITY,
        doc="least time to keep before a credential ends",
    )
    sasl_login_refresh_min_period_seconds: int = setting(
        "sasl.login.refresh.min.period.seconds",
        60,
        between(0, 900),
        type=Type.SHORT,
        acts=Acts.SECURITY,
        doc="least time between refreshes",
    )
    sasl_login_refresh_window_factor: float = setting(
        "sasl.login.refresh.window.factor",
        0.8,
        between(0.5, 1.0),
        acts=Acts.SECURITY,
        doc="share of a credential's life before its refresh",
    )
    sasl_login_refresh_window_jitter: float = setting(
        "sasl.login.refresh.window.jitter",
        0.05,
        between(0.0, 0.25),
        acts=Acts.SECURITY,
        doc="random share added to it",
    )
    sasl_login_retry_backoff_max_ms: int = setting(
        "sasl.login.retry.backoff.max.ms",
        10000,
        type=Type.LONG,
        acts=Acts.SECURITY,
        doc="upper bound of the pause between logins",
    )
    sasl_login_retry_backoff_ms: int = setting(
        "sasl.login.retry.backoff.ms",
        100,
        type=Type.LONG,
        acts=Acts.SECURITY,
        doc="first pause between logins",
    )
    sasl_mechanism: str = setting(
        "sasl.mechanism",
        "GSSAPI",
        acts=Acts.SECURITY,
        doc="PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, ...",
    )
    sasl_oauthbearer_assertion_algorithm: str = setting(
        "sasl.oauthbearer.assertion.algorithm",
        "RS256",
        any_case_of("ES256", "RS256"),
        acts=Acts.SECURITY,
        doc="signs the assertion",
    )
    sasl_oauthbearer_assertion_claim_aud: str | None = setting(
        "sasl.oauthbearer.assertion.claim.aud",
        None,
        type=Type.STRING,
        acts=Acts.SECURITY,
        doc="aud claim of the assertion",
    )
    sasl_oauthbearer_assertion_claim_exp_seconds: int = setting(
        "sasl.oauthbearer.assertion.claim.exp.seconds",
        300,
        between(0, 86400),
        acts=Acts.SECURITY,
        doc="how long the assertion is valid",
    )
    sasl_oauthbearer_assertion_claim_iss: str | None = setting(
        "sasl.oauthbearer.assertion.claim.iss",
        None,
        type=Type.STRING,
        acts=Acts.SECURITY,
        doc="iss claim of the assertion",
    )
    sasl_oauthbearer_assertion_claim_jti_include: bool = setting(
        "sasl.oauthbearer.assertion.claim.jti.include",
        False,
        acts=Acts.SECURITY,
        doc="put a unique id into the assertion",
    )
    sasl_oauthbearer_assertion_claim_nbf_seconds: int = setting(
        "sasl.oauthbearer.assertion.claim.nbf.seconds",
        60,
        between(0, 3600),
        acts=Acts.SECURITY,
        doc="how far back the assertion is valid",
    )
    sasl_oauthbearer_assertion_claim_sub: str | None = setting(
        "sasl.oauthbearer.assertion.claim.sub",
        None,
        type=Type.STRING,
        acts=Acts.SECURITY,
        doc="sub claim of the assertion",
    )
    sasl_oauthbearer_assertion_file: str | None = setting(
        "sasl.oauthbearer.assertion.file",
        None,
        type=Type.STRING,
        acts=Acts.SECURITY,
        doc="a ready assertion",
    )
    sasl_oauthbearer_assertion_private_key_file: str | None = setting(
        "sasl.oauthbearer.assertion.private.key.file",
        None,
        type=Type.STRING,
        acts=Acts.SECURITY,
        doc="PEM key that signs assertions",
    )
    sasl_oauthbearer_assertion_private_key_passphrase: str | None = setting(
        "sasl.oauthbearer.assertion.private.key.passphrase",
        None,
        type=Type.PASSWORD,
        acts=Acts.SECURITY,
        doc="opens that key",
    )
    sasl_oauthbearer_assertion_template_file: str | None = setting(
        "sasl.oauthbearer.assertion.template.file",
        None,
        type=Type.STRING,
        acts=Acts.SECURITY,
        doc="headers and claims of the assertion",
    )
    sasl_oauthbearer_client_credentials_client_id: str | None = setting(
        "sasl.oauthbearer.client.credentials.client.id",
        None,
        type=Type.STRING,
        acts=Acts.SECURITY,
        doc="client id at the identity provider",
    )
    sasl_oauthbearer_client_credentials_client_secret: str | None = setting(
        "sasl.oauthbearer.client.credentials.client.secret",
        None,
        type=Type.PASSWORD,
        acts=Acts.SECURITY,
        doc="its secret",
    )
    sasl_oauthbearer_clock_skew_seconds: int = setting(
        "sasl.oauthbearer.clock.skew.seconds",
        30,
        acts=Acts.SECURITY,
        doc="difference allowed between clocks",
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] = setting(
        "sasl.oauthbearer.expected.audience", (), acts=Acts.SECURITY, doc="aud claims to accept"
    )
    sasl_oauthbearer_expected_issuer: str | None = setting(
        "sasl.oauthbearer.expected.issuer",
        None,
        type=Type.STRING,
        acts=Acts.SECURITY,
        doc="iss claim to accept",
    )
    sasl_oauthbearer_header_urlencode: bool = setting(
        "sasl.oauthbearer.header.urlencode",
        False,
        acts=Acts.SECURITY,
        doc="URL-encode id and secret",
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = setting(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        3600000,
        type=Type.LONG,
        acts=Acts.SECURITY,
        doc="refresh of the key set",
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = setting(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        10000,
        type=Type.LONG,
        acts=Acts.SECURITY,
        doc="upper bound of the pause between fetches of it",
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = setting(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        100,
        type=Type.LONG,
        acts=Acts.SECURITY,
        doc="first pause",
    )
    sasl_oauthbearer_jwks_endpoint_url: str | None = setting(
        "sasl.oauthbearer.jwks.endpoint.url",
        None,
        type=Type.STRING,
        acts=Acts.SECURITY,
        doc="where the key set is",
    )
    sasl_oauthbearer_jwt_retriever_class: str = setting(
        "sasl.oauthbearer.jwt.retriever.class",
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
        type=Type.CLASS,
        acts=Acts.SECURITY,
        doc="asks for tokens",
    )
    sasl_oauthbearer_jwt_validator_class: str = setting(
        "sasl.oauthbearer.jwt.validator.class",
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
        type=Type.CLASS,
        acts=Acts.SECURITY,
        doc="checks tokens",
    )
    sasl_oauthbearer_scope: str | None = setting(
        "sasl.oauthbearer.scope", None, type=Type.STRING, acts=Acts.SECURITY, doc="scope to ask for"
    )
    sasl_oauthbearer_scope_claim_name: str = setting(
        "sasl.oauthbearer.scope.claim.name",
        "scope",
        acts=Acts.SECURITY,
        doc="claim that holds the scope",
    )
    sasl_oauthbearer_sub_claim_name: str = setting(
        "sasl.oauthbearer.sub.claim.name",
        "sub",
        acts=Acts.SECURITY,
        doc="claim that holds the subject",
    )
    sasl_oauthbearer_token_endpoint_url: str | None = setting(
        "sasl.oauthbearer.token.endpoint.url",
        None,
        type=Type.STRING,
        acts=Acts.SECURITY,
        doc="where tokens are given out",
    )
    security_protocol: str = setting(
        "security.protocol",
        "PLAINTEXT",
        any_case_of("SASL_SSL", "PLAINTEXT", "SSL", "SASL_PLAINTEXT"),
        acts=Acts.SECURITY,
        doc="PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL; only PLAINTEXT connects so far",
    )
    security_providers: str | None = setting(
        "security.providers", None, type=Type.STRING, acts=Acts.SECURITY, doc="extra Java providers"
    )
    ssl_cipher_suites: tuple[str, ...] = setting(
        "ssl.cipher.suites", (), acts=Acts.SECURITY, doc="allowed ciphers; none named allows all"
    )
    ssl_enabled_protocols: tuple[str, ...] = setting(
        "ssl.enabled.protocols",
        (
            "TLSv1.2",
            "TLSv1.3",
        ),
        acts=Acts.SECURITY,
        doc="allowed TLS versions",
    )
    ssl_endpoint_identification_algorithm: str = setting(
        "ssl.endpoint.identification.algorithm",
        "https",
        acts=Acts.SECURITY,
        doc="https checks the host's name, empty does not",
    )
    ssl_engine_factory_class: str | None = setting(
        "ssl.engine.factory.class",
        None,
        type=Type.CLASS,
        acts=Acts.SECURITY,
        doc="makes the TLS engine",
    )
    ssl_key_password: str | None = setting(
        "ssl.key.password",
        None,
        type=Type.PASSWORD,
        acts=Acts.SECURITY,
        doc="opens the private key",
    )
    ssl_keymanager_algorithm: str = setting(
        "ssl.keymanager.algorithm", "SunX509", acts=Acts.SECURITY, doc="reads the key store"
    )
    ssl_keystore_certificate_chain: str | None = setting(
        "ssl.keystore.certificate.chain",
        None,
        type=Type.PASSWORD,
        acts=Acts.SECURITY,
        doc="certificates, PEM",
    )
    ssl_keystore_key: str | None = setting(
        "ssl.keystore.key", None, type=Type.PASSWORD, acts=Acts.SECURITY, doc="private key, PEM"
    )
    ssl_keystore_location: str | None = setting(
        "ssl.keystore.location",
        None,
        type=Type.STRING,
        acts=Acts.SECURITY,
        doc="file with key and certificates",
    )
    ssl_keystore_password: str | None = setting(
        "ssl.keystore.password",
        None,
        type=Type.PASSWORD,
        acts=Acts.SECURITY,
        doc="opens the key store",
    )
    ssl_keystore_type: str = setting(
        "ssl.keystore.type", "JKS", acts=Acts.SECURITY, doc="JKS, PKCS12 or PEM"
    )
    ssl_protocol: str = setting(
        "ssl.protocol", "TLSv1.3", acts=Acts.SECURITY, doc="preferred TLS version"
    )
    ssl_provider: str | None = setting(
        "ssl.provider", None, type=Type.STRING, acts=Acts.SECURITY, doc="Java security provider"
    )
    ssl_secure_random_implementation: str | None = setting(
        "ssl.secure.random.implementation",
        None,
        type=Type.STRING,
        acts=Acts.SECURITY,
        doc="Java random source",
    )
    ssl_trustmanager_algorithm: str = setting(
        "ssl.trustmanager.algorithm", "PKIX", acts=Acts.SECURITY, doc="reads the trust store"
    )
    ssl_truststore_certificates: str | None = setting(
        "ssl.truststore.certificates",
        None,
        type=Type.PASSWORD,
        acts=Acts.SECURITY,
        doc="trusted certificates, PEM",
    )
    ssl_truststore_location: str | None = setting(
        "ssl.truststore.location",
        None,
        type=Type.STRING,
        acts=Acts.SECURITY,
        doc="file with trusted certificates",
    )
    ssl_truststore_password: str | None = setting(
        "ssl.truststore.password",
        None,
        type=Type.PASSWORD,
        acts=Acts.SECURITY,
        doc="opens the trust store",
    )
    ssl_truststore_type: str = setting(
        "ssl.truststore.type", "JKS", acts=Acts.SECURITY, doc="JKS, PKCS12 or PEM"
    )
