"""Security configs that all clients share: SASL and TLS.

Pure: a table. All are parsed and none has an effect yet: a client that asks for more than PLAINTEXT
is refused (`cluster.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from kcli.client.settings import Settings, any_case_of
from kserver.config.known import known_keys
from kserver.config.setting import Acts, Type, between, setting


@dataclass(frozen=True, init=False, repr=False, eq=False)
@known_keys("security", "sasl", "tls", clients=True)
class SecurityConfig(Settings):
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
    sasl_oauthbearer_header_urlencode: bool = setting(
        "sasl.oauthbearer.header.urlencode",
        False,
        acts=Acts.SECURITY,
        doc="URL-encode id and secret",
    )
    security_protocol: str = setting(
        "security.protocol",
        "PLAINTEXT",
        any_case_of("SASL_SSL", "PLAINTEXT", "SSL", "SASL_PLAINTEXT"),
        acts=Acts.SECURITY,
        doc="PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL; only PLAINTEXT connects so far",
    )
