"""Where the cluster is coordinated."""

from __future__ import annotations

from kserver.config.jaas import parse_jaas
from kserver.config.known import known_keys
from kserver.config.setting import (
    INT,
    NON_EMPTY,
    PASSWORD,
    STRING,
    SettingCheck,
    section,
    setting,
)

DIGEST_SCHEME = "digest "


def _login_refusal(text: str | None) -> str | None:
    if text is None:
        return None
    try:
        module, options = parse_jaas(text)
    except ValueError as error:
        return f"It is {error}"
    if module != "DigestLoginModule" or not {"username", "password"} <= options.keys():
        return "It must name DigestLoginModule, with username and password"
    return None


def _auth_refusal(text: str | None) -> str | None:
    if text is None or (text.startswith(DIGEST_SCHEME) and ":" in text):
        return None
    return "It must be: digest USER:PASSWORD"


@section
@known_keys("zookeeper")
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
    zookeeper_sasl_jaas_config: str | None = setting(
        "zookeeper.sasl.jaas.config",
        None,
        SettingCheck("a DigestLoginModule", _login_refusal),
        type=PASSWORD,
        doc=(
            "who the broker is to ZooKeeper, by SASL with DIGEST-MD5, as one entry of the section "
            "Client in the file that Kafka's brokers are given with "
            "-Djava.security.auth.login.config: "
            "org.apache.zookeeper.server.auth.DigestLoginModule required "
            'username="NAME" password="PASSWORD";'
        ),
    )
    zookeeper_auth: str | None = setting(
        "zookeeper.auth",
        None,
        SettingCheck("digest USER:PASSWORD", _auth_refusal),
        type=PASSWORD,
        doc=(
            "who the broker is to ZooKeeper, in its scheme digest, as addauth of zookeeper-shell "
            "takes it: digest USER:PASSWORD; it needs no setting of the server, and stands in for "
            "zookeeper.sasl.jaas.config where brokers of Kafka's are not in the cluster"
        ),
    )
    zookeeper_set_acl: bool = setting(
        "zookeeper.set.acl",
        False,
        doc=(
            "make znodes that only the brokers may change, those with passwords in them readable "
            "to brokers alone; needs zookeeper.sasl.jaas.config or zookeeper.auth, the same of all "
            "brokers"
        ),
    )
