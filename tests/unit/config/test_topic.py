import re
from pathlib import Path

import pytest

from kserver.config.broker import BrokerConfig, ConfigEntry
from kserver.config.setting import LONG_MAX, DescribedConfig, Source, describe, settings_of
from kserver.config.topic import TopicConfig
from kserver.errors import ConfigError


def broker(**given: str) -> BrokerConfig:
    return BrokerConfig.of(ConfigEntry(k.replace("_", "."), v, "here") for k, v in given.items())


def described(config: TopicConfig, name: str) -> DescribedConfig:
    return next(d for d in describe(config) if d.name == name)


def test_defaults_are_those_of_a_broker_that_was_told_nothing() -> None:
    assert TopicConfig() == TopicConfig.of({}, BrokerConfig())


def test_every_default_is_described_as_apache_describes_it() -> None:
    """Recorded from kafka-configs.sh --describe --all --topic of 4.3.1."""
    ours = {d.name: as_kafka_configs_prints(d) for d in describe(TopicConfig())}
    recorded = Path(__file__).with_name("apache-4.3.1-topic.txt").read_text().splitlines()
    assert len(recorded) > 30
    for line in recorded:
        assert ours[line.split("=")[0]] == line


def as_kafka_configs_prints(one: DescribedConfig) -> str:
    synonyms = ", ".join(f"{s.source.name}:{s.name}={s.value}" for s in one.synonyms)
    value = "null" if one.value is None else one.value
    sensitive = str(one.setting.sensitive).lower()
    return f"{one.name}={value} sensitive={sensitive} synonyms={{{synonyms}}}"


def test_an_override_wins_over_the_broker() -> None:
    config = TopicConfig.of({"segment.bytes": "100"}, broker(log_segment_bytes="200"))
    assert config.segment_bytes == 100
    assert described(config, "segment.bytes").synonyms == (
        ("segment.bytes", "100", Source.DYNAMIC_TOPIC_CONFIG),
        ("log.segment.bytes", "200", Source.STATIC_BROKER_CONFIG),
        ("log.segment.bytes", "1073741824", Source.DEFAULT_CONFIG),
    )


def test_a_topic_that_says_nothing_follows_the_broker() -> None:
    config = TopicConfig.of({}, broker(log_segment_bytes="200"))
    assert config.segment_bytes == 200
    assert described(config, "segment.bytes").source is Source.STATIC_BROKER_CONFIG
    assert not described(config, "segment.bytes").is_default


@pytest.mark.parametrize(
    ("given", "retention_ms"),
    [
        ({}, 7 * 86_400_000),
        ({"log_retention_hours": "2"}, 7_200_000),
        ({"log_retention_hours": "2", "log_retention_minutes": "3"}, 180_000),
        (
            {"log_retention_hours": "2", "log_retention_minutes": "3", "log_retention_ms": "4"},
            4,
        ),
        ({"log_retention_hours": "-1"}, -1),
    ],
)
def test_retention_is_ms_before_minutes_before_hours(
    given: dict[str, str], retention_ms: int
) -> None:
    assert TopicConfig.of({}, broker(**given)).retention_ms == retention_ms


def test_rolling_is_ms_before_hours() -> None:
    assert TopicConfig.of({}, broker(log_roll_hours="1")).segment_ms == 3_600_000
    assert TopicConfig.of({}, broker(log_roll_hours="1", log_roll_ms="5")).segment_ms == 5
    assert TopicConfig.of({}, broker(log_roll_jitter_hours="1")).segment_jitter_ms == 3_600_000


def test_flushing_is_the_interval_before_the_schedulers() -> None:
    assert TopicConfig().flush_ms == LONG_MAX
    scheduled = broker(log_flush_scheduler_interval_ms="9")
    assert TopicConfig.of({}, scheduled).flush_ms == 9
    both = broker(log_flush_scheduler_interval_ms="9", log_flush_interval_ms="5")
    assert TopicConfig.of({}, both).flush_ms == 5


def test_our_own_keys_fall_back_too() -> None:
    config = TopicConfig.of({}, broker(log_flush_before_ack="true", log_validate_records="header"))
    assert config.flush_before_ack
    assert config.validate_records == "header"
    assert not TopicConfig().flush_before_ack
    assert TopicConfig().validate_records == "full"


@pytest.mark.parametrize(
    ("key", "text", "said"),
    [
        ("foo", "1", "Unknown topic config name: foo"),
        ("log.segment.bytes", "1", "Unknown topic config name: log.segment.bytes"),
        (
            "retention.ms",
            "x",
            "Invalid value x for configuration retention.ms: Not a number of type LONG",
        ),
        (
            "segment.bytes",
            "13",
            "Invalid value 13 for configuration segment.bytes: Value must be at least 14",
        ),
        (
            "cleanup.policy",
            "x",
            "Invalid value x for configuration cleanup.policy: "
            "String must be one of: compact, delete",
        ),
        (
            "validate.records",
            "some",
            "Invalid value some for configuration validate.records: "
            "String must be one of: header, full",
        ),
    ],
)
def test_a_bad_override_is_refused_in_kafkas_words(key: str, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(said)}$"):
        TopicConfig.of({key: text}, BrokerConfig())


@pytest.mark.parametrize("text", ["", "*", "0:1", "0:1,12:3"])
def test_throttled_replicas_are_pairs_or_all(text: str) -> None:
    TopicConfig.of({"leader.replication.throttled.replicas": text}, BrokerConfig())


@pytest.mark.parametrize("text", ["x", "0:1,*", "0", "0:1:2", "a:1", "-1:0"])
def test_other_throttled_replicas_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="must be the literal"):
        TopicConfig.of({"leader.replication.throttled.replicas": text}, BrokerConfig())


def test_records_cannot_have_to_be_compacted_before_they_may() -> None:
    with pytest.raises(ConfigError, match=r"min.compaction.lag.ms \(9\) > max.compaction.lag.ms"):
        TopicConfig.of({"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "3"}, BrokerConfig())


def test_every_key_stands_on_a_broker_key_of_its_own_type() -> None:
    brokers = settings_of(BrokerConfig)
    for own in settings_of(TopicConfig).values():
        if own.broker_key is not None:
            assert brokers[own.broker_key].type is own.type, own.name
