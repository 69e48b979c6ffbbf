"""Connection to ZooKeeper."""

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
            "host:port of each ZooKeeper server, comma-separated, followed by a path if the "
            "cluster uses one; when unset, a single broker stores the metadata itself, in its log "
            "directory"
        ),
    )
    zookeeper_session_timeout_ms: int = setting(
        "zookeeper.session.timeout.ms",
        18_000,
        doc="ZooKeeper session timeout: the broker is unregistered if ZooKeeper receives nothing "
        "from it for this long",
    )
    zookeeper_connection_timeout_ms: int | None = setting(
        "zookeeper.connection.timeout.ms",
        None,
        type=INT,
        doc=(
            "how long the broker waits for the first connection to ZooKeeper; "
            "zookeeper.session.timeout.ms when unset"
        ),
    )
    zookeeper_sasl_jaas_config: str | None = setting(
        "zookeeper.sasl.jaas.config",
        None,
        SettingCheck("a DigestLoginModule", _login_refusal),
        type=PASSWORD,
        doc=(
            "login to ZooKeeper with SASL DIGEST-MD5, as one entry of the section Client in the "
            "file that Kafka's brokers read with -Djava.security.auth.login.config: "
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
            "login to ZooKeeper with the scheme digest, as addauth of zookeeper-shell expects it: "
            "digest USER:PASSWORD; it needs no configuration of the server, and replaces "
            "zookeeper.sasl.jaas.config if the cluster has no Apache Kafka brokers"
        ),
    )
    zookeeper_set_acl: bool = setting(
        "zookeeper.set.acl",
        False,
        doc=(
            "create znodes that only brokers may change; those that contain passwords are also "
            "readable by brokers only; needs zookeeper.sasl.jaas.config or zookeeper.auth, with "
            "the same value on all brokers"
        ),
    )
