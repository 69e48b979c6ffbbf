"""What may be set of a broker while it runs, and the configuration that comes of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kserver.config import dynamic
from kserver.config.broker import BrokerConfig
from kserver.config.dynamic import BrokerOverrides
from kserver.config.setting import Dynamic, Source, Type, describe, settings_of
from kserver.config.topic import TopicConfig
from kserver.errors import ConfigError

STATIC = BrokerConfig.load(None, ["message.max.bytes=100", "log.retention.hours=1"])
SETTINGS = settings_of(BrokerConfig)
NONE = BrokerOverrides({}, {})


def told(config: BrokerConfig, name: str):
    return next(one for one in describe(config) if one.name == name)


def test_the_broker_s_own_stands_above_all_brokers_above_the_file_above_the_default() -> None:
    key = "message.max.bytes"
    cluster = dynamic.merged(STATIC, BrokerOverrides({key: "200"}, {}))
    both = dynamic.merged(STATIC, BrokerOverrides({key: "200"}, {key: "300"}))
    assert [c.message_max_bytes for c in (STATIC, cluster, both)] == [100, 200, 300]
    assert told(both, key).synonyms == (
        (key, "300", Source.DYNAMIC_BROKER_CONFIG),
        (key, "200", Source.DYNAMIC_DEFAULT_BROKER_CONFIG),
        (key, "100", Source.STATIC_BROKER_CONFIG),
        (key, "1048588", Source.DEFAULT_CONFIG),
    )
    assert told(cluster, key).source is Source.DYNAMIC_DEFAULT_BROKER_CONFIG


def test_nothing_set_is_the_file_s_configuration() -> None:
    merged = dynamic.merged(STATIC, NONE)
    assert describe(merged) == describe(STATIC)


def test_what_was_made_of_former_values_is_made_anew() -> None:
    assert STATIC.connection_limits == {}
    merged = dynamic.merged(
        STATIC, BrokerOverrides({}, {"max.connections.per.ip.overrides": "h:5"})
    )
    assert merged.connection_limits == {"h": 5}
    assert dynamic.merged(merged, NONE).max_connections_per_ip_overrides == "h:5"
    assert STATIC.connection_limits == {}


def test_milliseconds_set_dynamically_win_over_hours_of_the_file_and_give_them_back() -> None:
    assert TopicConfig.of({}, STATIC).retention_ms == 3_600_000
    merged = dynamic.merged(STATIC, BrokerOverrides({"log.retention.ms": "5"}, {}))
    topic = TopicConfig.of({}, STATIC)
    assert topic.upon(merged).retention_ms == 5
    assert topic.upon(merged).upon(STATIC).retention_ms == 3_600_000


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (
            {"num.partitions": "3", "log.dirs": "/x"},
            r"^Cannot update these configs dynamically: \[log.dirs, num.partitions\]$",
        ),
        ({"log.retention.hours": "3"}, "Cannot update these configs dynamically"),
        (
            {"log.retention.ms": "x"},
            "^Invalid value x for configuration log.retention.ms: Not a number of type LONG$",
        ),
        (
            {"listener.name.lan.max.connections": "x"},
            "^Invalid value x for configuration max.connections: Not a number of type INT$",
        ),
        (
            {"ssl.keystore.type": "PEM"},
            r"^These security configs can be dynamically updated only per-listener using the "
            r"listener prefix: \[ssl.keystore.type\]$",
        ),
    ],
)
@pytest.mark.parametrize("per_broker", [True, False])
def test_what_cannot_be_set_is_refused_in_kafka_s_words(overrides, said, per_broker) -> None:
    with pytest.raises(ConfigError, match=said):
        dynamic.check(overrides, per_broker=per_broker)


@pytest.mark.parametrize(
    "name", ["listeners", "cordoned.log.dirs", "listener.name.lan.ssl.client.auth"]
)
def test_what_is_one_broker_s_is_not_set_for_all(name) -> None:
    value = {"listeners": "PLAINTEXT://:1"}.get(name, "none")
    dynamic.check({name: value}, per_broker=True)
    with pytest.raises(ConfigError, match="at default cluster level, broker id must be specified"):
        dynamic.check({name: value}, per_broker=False)


def test_limits_of_a_listener_s_connections_are_set_for_all_too() -> None:
    dynamic.check({"listener.name.lan.max.connections": "5"}, per_broker=False)


UNSAFE = [
    one.name
    for one in SETTINGS.values()
    if one.dynamic is not Dynamic.READ_ONLY and one.type in (Type.CLASS, Type.PASSWORD)
] + [
    "metric.reporters",
    "config.providers",
    "sasl.kerberos.kinit.cmd",
    "ssl.keystore.location",
    "ssl.truststore.location",
]


@pytest.mark.parametrize("prefix", ["", "listener.name.lan.", "listener.name.lan.scram-sha-256."])
@pytest.mark.parametrize("name", UNSAFE)
@pytest.mark.parametrize("per_broker", [True, False])
def test_nothing_that_names_a_class_a_file_a_command_or_a_password_is_taken(
    prefix, name, per_broker
) -> None:
    with pytest.raises(ConfigError, match="Classes, files, commands and passwords") as refused:
        dynamic.check({prefix + name: "hunter2"}, per_broker=per_broker)
    assert "hunter2" not in str(refused.value)


def test_every_dynamic_key_that_names_a_path_or_code_is_among_those() -> None:
    """A key that 4.4 adds is looked at by somebody."""
    suspect = ("location", "class", "cmd", "file", "path", "plugin", "reporters", "providers")
    named = {
        one.name
        for one in SETTINGS.values()
        if one.dynamic is not Dynamic.READ_ONLY and any(part in one.name for part in suspect)
    }
    harmless = {"remote.log.index.file.cache.total.size.bytes"}
    assert {name for name in named if not dynamic.is_unsafe(name)} == harmless


def test_what_nobody_knows_is_taken_and_never_shown() -> None:
    dynamic.check({"my.plugin.key": "hunter2"}, per_broker=False)
    merged = dynamic.merged(STATIC, BrokerOverrides({"my.plugin.key": "hunter2"}, {}))
    assert dynamic.is_sensitive("my.plugin.key")
    assert "hunter2" not in repr(merged)
    assert describe(merged) == describe(STATIC)


def test_settings_that_cannot_be_together_are_refused_when_set_and_passed_over_when_stored() -> (
    None
):
    lags = {"log.cleaner.min.compaction.lag.ms": "9", "log.cleaner.max.compaction.lag.ms": "5"}
    with pytest.raises(ConfigError, match="Invalid dynamic configuration: "):
        dynamic.merged(STATIC, BrokerOverrides(lags, {}))
    config, problems = dynamic.merged_as_stored(STATIC, BrokerOverrides(lags, {}))
    assert config is STATIC
    assert "none of what was set dynamically is used" in problems[0]


def test_what_is_stored_and_makes_no_sense_is_named_and_the_rest_is_used() -> None:
    stored = BrokerOverrides(
        {"num.partitions": "9", "message.max.bytes": "x", "log.retention.ms": "7"},
        {"ssl.key.password": "hunter2", "max.connections": "6"},
    )
    config, problems = dynamic.merged_as_stored(STATIC, stored)
    assert (config.num_partitions, config.message_max_bytes) == (1, 100)
    assert (config.log_retention_ms, config.max_connections) == (7, 6)
    assert config.ssl_key_password is None
    assert len(problems) == 3
    assert not any("hunter2" in problem for problem in problems)


@pytest.mark.parametrize(
    ("key", "values", "said"),
    [
        ("num.io.threads", (3, 4, 16, 17), "value should .* the current value 8"),
        ("background.threads", (4, 5, 20, 21), "value should .* the current value 10"),
        ("log.cleaner.threads", (None, 1, 2, 3), "more than double the current value 1"),
    ],
)
def test_threads_are_at_most_doubled_and_halved_at_once(key, values, said) -> None:
    too_few, least, most, too_many = values
    for value in (least, most):
        dynamic.check_step(STATIC, dynamic.merged(STATIC, BrokerOverrides({key: str(value)}, {})))
    for value in filter(None, (too_few, too_many)):
        new = dynamic.merged(STATIC, BrokerOverrides({key: str(value)}, {}))
        with pytest.raises(ConfigError, match=said):
            dynamic.check_step(STATIC, new)


NAMES = st.sampled_from([*SETTINGS, "listener.name.a.max.connections", "unknown.key", "x"])
TEXTS = st.one_of(st.integers(-9, 1 << 40).map(str), st.sampled_from(["", "true", "lz4", "a,b"]))
OVERRIDES = st.dictionaries(NAMES, TEXTS, max_size=6)


@given(OVERRIDES, OVERRIDES)
def test_whatever_is_stored_a_broker_gets_a_configuration(cluster, broker) -> None:
    config, problems = dynamic.merged_as_stored(STATIC, BrokerOverrides(cluster, broker))
    assert not list(config.conflicts())
    if not problems:
        dynamic.check(cluster, per_broker=False)
        dynamic.check(broker, per_broker=True)
        for name, text in {**cluster, **broker}.items():
            if name in SETTINGS:
                assert getattr(config, SETTINGS[name].attribute) == SETTINGS[name].parse(text)
    assert describe(STATIC) == describe(dynamic.merged(config, NONE)) or config is not STATIC
