"""Words of `k configs` and the lines that it prints."""

import pytest

from kcli.client.admin.admin import ConfigEntry, ConfigSource, ConfigType
from kcli.client.admin.descriptions import ConfigSynonym
from kcli.client.admin.scram import ScramMechanism
from kcli.command.options import Refused
from kcli.rows import config_lines
from kcli.rows.config_lines import Entity
from kserver.errors import ErrorCode, KafkaError
from kserver.model import QuotaEntity

TOPIC, DEFAULT = ConfigSource.DYNAMIC_TOPIC_CONFIG, ConfigSource.DEFAULT_CONFIG


def entry(name, value, *fallbacks, sensitive=False):
    synonyms = [ConfigSynonym(name, one, DEFAULT) for one in (value, *fallbacks)]
    return ConfigEntry(name, value, TOPIC, sensitive, False, ConfigType.LONG, None, tuple(synonyms))


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("a=b", {"a": "b"}),
        ("a = b , c=d", {"a": "b", "c": "d"}),
        ("a=", {"a": ""}),
        ("a=[b,c],d=e", {"a": "b,c", "d": "e"}),
        ("a=[b=c,d=e]", {"a": "b=c,d=e"}),
        ("a=[b],a=c", {"a": "c"}),
    ],
)
def test_brackets_hold_a_value_with_commas_together(text, pairs):
    assert config_lines.additions(text) == pairs


@pytest.mark.parametrize("text", ["a", "a=b=c", "a=b,c", ""])
def test_what_is_no_pair_is_refused(text):
    with pytest.raises(Refused, match="all configs to be added must be in the format"):
        config_lines.additions(text)


def test_keys_are_letters_digits_and_what_joins_them():
    config_lines.check_keys(["a.b-c_D9", ""])
    with pytest.raises(Refused, match="Invalid character found for config key: a b"):
        config_lines.check_keys(["fine", "a b"])


def test_headings_are_kafkas():
    assert config_lines.heading(Entity("topics", "t"), False) == "Dynamic configs for topic t are:"
    assert config_lines.heading(Entity("brokers", "1"), True) == "All configs for broker 1 are:"
    for everything in (True, False):
        assert config_lines.heading(Entity("brokers", ""), everything) == (
            "Default configs for brokers in the cluster are:"
        )
    assert config_lines.absent(Entity("client-metrics", "m")) == (
        "The client-metric 'm' doesn't exist and doesn't have dynamic config."
    )


def test_what_is_not_shown_is_null():
    assert config_lines.line(entry("k", None, sensitive=True)) == (
        "  k=null sensitive=true synonyms={DEFAULT_CONFIG:k=null}"
    )


@pytest.mark.parametrize(
    ("entity", "who"),
    [
        (QuotaEntity(user="a"), "user-principal 'a'"),
        (QuotaEntity(user="", client_id="c"), "the default user-principal, client-id 'c'"),
        (QuotaEntity(ip=""), "the default ip"),
    ],
)
def test_a_quota_says_whose_it_is(entity, who):
    line = config_lines.quota_line(entity, {"b": 1e7, "a": 0.5})
    assert line == f"Quota configs for {who} are a=0.5, b=1.0E7"
    assert config_lines.quota_rows(entity, {"a": 0.5}) == [
        {"user": entity.user, "client_id": entity.client_id, "ip": entity.ip}
        | {"name": "a", "value": 0.5}
    ]


OLDER = "records that are older are deleted"
MORE = "records that are more are deleted"
COMPACTED = "only the newest record of each key is kept"
DELETED = "records beyond the retention are deleted"


@pytest.mark.parametrize(
    ("key", "now", "value", "lost"),
    [
        ("retention.ms", ["10"], "9", OLDER),
        ("retention.ms", ["10"], "10", None),
        ("retention.ms", ["10"], "11", None),
        ("retention.ms", ["10"], "-1", None),
        ("retention.ms", ["-1"], "10", OLDER),
        ("retention.ms", ["10"], "nonsense", None),
        ("retention.ms", None, "10", OLDER),
        ("log.retention.ms", ["10"], "9", OLDER),
        ("retention.bytes", ["-1"], "5", MORE),
        ("log.retention.bytes", ["5"], "-1", None),
        ("retention.ms", ["10", "9"], None, OLDER),
        ("retention.ms", ["9", "10"], None, None),
        ("cleanup.policy", ["delete"], "compact", COMPACTED),
        ("cleanup.policy", ["delete"], "compact,delete", COMPACTED),
        ("cleanup.policy", ["compact"], "compact, delete", DELETED),
        ("cleanup.policy", ["compact,delete"], "delete", None),
        ("log.cleanup.policy", ["", "delete"], None, DELETED),
        ("unclean.leader.election.enable", ["false"], "TRUE", "a leader that is behind may lose"),
        ("unclean.leader.election.enable", ["true"], "false", None),
        ("segment.ms", ["10"], "5", None),
    ],
)
def test_what_a_change_may_delete_is_known(key, now, value, lost):
    found = config_lines.loss(key, now and entry(key, *now), value)
    assert found == lost or (lost and found and found.startswith(lost))


def test_a_step_hides_what_is_sensitive():
    now = entry("k", None, sensitive=True)
    assert config_lines.step(Entity("brokers", "0"), "k", now, "hunter2") == (
        "set k=[hidden] for broker 0"
    )
    assert config_lines.step(Entity("brokers", ""), "k", entry("k", "1"), None) == (
        "take k away from all brokers by default, now 1"
    )


@pytest.mark.parametrize(
    ("text", "iterations", "password"),
    [
        ("password=x", 4096, "x"),
        ("iterations=8192,password=a,b=c", 8192, "a,b=c"),
        ("iterations=-1,password=", 4096, ""),
    ],
)
def test_a_credential_is_a_password_and_how_often_it_is_hashed(text, iterations, password):
    found = config_lines.credential("u", "SCRAM-SHA-512", text)
    assert (found.user, str(found.mechanism)) == ("u", "SCRAM-SHA-512")
    assert (found.iterations, found.password) == (iterations, password)


@pytest.mark.parametrize(
    "text", ["hunter2", "iterations=1,password=hunter2", "iterations=,password=hunter2"]
)
def test_a_credential_that_is_none_is_refused_and_not_repeated(text):
    with pytest.raises(Refused) as refused:
        config_lines.credential("u", "SCRAM-SHA-256", text)
    assert "SCRAM-SHA-256" in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_credentials_are_shown_without_what_is_secret():
    held = {ScramMechanism.SCRAM_SHA_256: 4096, ScramMechanism.SCRAM_SHA_512: 8192}
    start = "SCRAM credential configs for user-principal 'u' are "
    assert config_lines.credential_line("u", held) == (
        f"{start}SCRAM-SHA-256=iterations=4096, SCRAM-SHA-512=iterations=8192"
    )
    refused = KafkaError(ErrorCode.duplicate_resource, "twice")
    assert config_lines.credential_line("u", refused) == (
        "Error retrieving SCRAM credential configs for user-principal 'u': "
        "DuplicateResourceException: twice"
    )
