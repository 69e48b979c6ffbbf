import pytest

from kserver.config.broker import BrokerConfig
from kserver.config.group import GroupConfig
from kserver.config.setting import Source, describe
from kserver.errors import ConfigError

SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


def test_what_is_not_set_for_the_group_is_the_brokers():
    broker = BrokerConfig(group_consumer_heartbeat_interval_ms=7000)
    config = GroupConfig.of({SESSION: "50000"}, broker)
    assert (config.consumer_session_timeout_ms, config.consumer_heartbeat_interval_ms) == (
        50_000,
        7000,
    )


def test_each_value_is_told_with_where_it_is_from():
    config = GroupConfig.of({SESSION: "50000"}, BrokerConfig())
    found = {one.name: one for one in describe(config)}
    assert found[SESSION].source is Source.DYNAMIC_GROUP_CONFIG
    assert [told.value for told in found[SESSION].synonyms] == ["50000", "45000"]
    assert found[HEARTBEAT].source is Source.DEFAULT_CONFIG


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({SESSION: "44999"}, "greater than or equal to group.consumer.min.session.timeout.ms"),
        ({SESSION: "60001"}, "less than or equal to group.consumer.max.session.timeout.ms"),
        ({HEARTBEAT: "4999"}, "group.consumer.min.heartbeat.interval.ms"),
        ({"consumer.assignment.interval.ms": "15001"}, "max.assignment.interval.ms"),
        ({SESSION: "x"}, "x"),
        ({"retention.ms": "1"}, "Unknown group config name: retention.ms"),
    ],
)
def test_what_a_group_cannot_have_is_refused(overrides, said):
    with pytest.raises(ConfigError, match=said):
        GroupConfig.of(overrides, BrokerConfig())


def test_a_session_is_longer_than_the_time_between_heartbeats():
    broker = BrokerConfig(group_consumer_min_session_timeout_ms=5000)
    with pytest.raises(ConfigError, match="must be greater than consumer"):
        GroupConfig.of({SESSION: "5000"}, broker)


def test_what_was_stored_is_brought_within_the_bounds_of_now():
    stored = {SESSION: "1", HEARTBEAT: "99999", "no.such.key": "1", "consumer.assignment.x": "y"}
    config = GroupConfig.stored(stored, BrokerConfig())
    assert config.consumer_session_timeout_ms == 45_000
    assert config.consumer_heartbeat_interval_ms == 15_000


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("group.consumer.session.timeout.ms=44999", "group.consumer.min.session.timeout.ms"),
        ("group.consumer.heartbeat.interval.ms=15001", "group.consumer.max.heartbeat.interval.ms"),
        ("group.consumer.max.session.timeout.ms=44999", "must be greater than or equal"),
        ("group.consumer.assignors=", "must not be empty"),
        ("group.consumer.assignors=uniform,org.example.Mine", "must be one of"),
        ("group.consumer.migration.policy=sideways", "must be one of"),
    ],
)
def test_a_broker_does_not_start_with_what_no_group_could_have(setting, said):
    with pytest.raises(ConfigError, match=said):
        BrokerConfig.load(None, [setting])


def test_heartbeats_come_more_often_than_sessions_last():
    given = [
        "group.consumer.min.session.timeout.ms=5000",
        "group.consumer.session.timeout.ms=5000",
    ]
    with pytest.raises(ConfigError, match="must be less than group"):
        BrokerConfig.load(None, given)
