from __future__ import annotations

import pytest

from kcli.client.config import AdminConfig, ConsumerConfig, ProducerConfig
from kcli.client.old_config_names import CONSUMER_NAMES, PRODUCER_NAMES, CurrentName, RemovedName
from kserver.config.setting import settings_of

TABLES = {ProducerConfig: PRODUCER_NAMES, ConsumerConfig: CONSUMER_NAMES}


@pytest.mark.parametrize("config", TABLES)
def test_what_old_names_stand_for_exists_and_the_names_themselves_do_not(config):
    known = settings_of(config)
    for old, meaning in TABLES[config].items():
        assert old not in known
        if isinstance(meaning, CurrentName):
            for key in meaning.keys:
                for value in meaning.values.values():
                    assert known[key].refusal(value) is None


@pytest.mark.parametrize(
    ("old", "value", "attribute", "now"),
    [
        ("metadata.broker.list", "a:1,b:2", "bootstrap_servers", ("a:1", "b:2")),
        ("request.required.acks", "1", "acks", "1"),
        ("producer.type", "sync", "linger_ms", 0),
        ("producer.type", "async", "linger_ms", 5000),
        ("compression.codec", "gzip", "compression_type", "gzip"),
        ("compression.codec", "2", "compression_type", "snappy"),
        ("message.send.max.retries", "3", "retries", 3),
        ("topic.metadata.refresh.interval.ms", "600000", "metadata_max_age_ms", 600000),
        ("topic.metadata.refresh.interval.ms", "-1", "metadata_max_age_ms", 2**63 - 1),
        ("queue.buffering.max.ms", "7", "linger_ms", 7),
        ("queue.enqueue.timeout.ms", "-1", "max_block_ms", 2**63 - 1),
        ("queue.enqueue.timeout.ms", "0", "max_block_ms", 0),
        ("metadata.fetch.timeout.ms", "9", "max_block_ms", 9),
        ("timeout.ms", "9", "request_timeout_ms", 9),
    ],
)
def test_a_producers_old_name_acts_and_the_warning_says_todays(old, value, attribute, now):
    config = ProducerConfig.of({old: value})
    assert getattr(config, attribute) == now
    (warning,) = config.warnings
    assert warning.startswith(f"{old} is a config of Kafka 0.8; use {attribute.replace('_', '.')}=")


@pytest.mark.parametrize(
    ("old", "value", "attribute", "now"),
    [
        ("auto.commit.enable", "false", "enable_auto_commit", False),
        ("fetch.message.max.bytes", "7", "max_partition_fetch_bytes", 7),
        ("fetch.wait.max.ms", "7", "fetch_max_wait_ms", 7),
        ("refresh.leader.backoff.ms", "7", "retry_backoff_ms", 7),
        ("socket.receive.buffer.bytes", "7", "receive_buffer_bytes", 7),
        ("socket.timeout.ms", "7", "request_timeout_ms", 7),
        ("auto.offset.reset", "smallest", "auto_offset_reset", "earliest"),
        ("auto.offset.reset", "largest", "auto_offset_reset", "latest"),
    ],
)
def test_a_consumers_old_name_acts_and_the_warning_says_todays(old, value, attribute, now):
    config = ConsumerConfig.of({old: value})
    assert getattr(config, attribute) == now
    (warning,) = config.warnings
    assert warning.startswith(old)
    assert f"{attribute.replace('_', '.')}=" in warning


@pytest.mark.parametrize("config", TABLES)
def test_what_has_no_name_today_does_nothing_and_says_what_does(config):
    table = TABLES[config]
    gone = {old: meaning for old, meaning in table.items() if isinstance(meaning, RemovedName)}
    assert gone
    for old, meaning in gone.items():
        read = config.of({old: "7"})
        for setting in settings_of(config).values():
            assert getattr(read, setting.attribute) == setting.default
        assert meaning.instead in read.warnings[0]


def test_todays_name_holds_where_both_are_given():
    config = ProducerConfig.of({"request.required.acks": "0", "acks": "1"})
    assert config.acks == "1"
    assert config.warnings == (
        "request.required.acks is a config of Kafka 0.8 and is ignored because acks is set",
    )


def test_an_encoder_of_0_8_is_for_values_and_for_keys_unless_they_have_their_own():
    config = ProducerConfig.of(
        {
            "serializer.class": "kafka.serializer.StringEncoder",
            "key.serializer.class": "kafka.serializer.DefaultEncoder",
        }
    )
    assert config.value_serializer.endswith(".StringSerializer")
    assert config.key_serializer.endswith(".ByteArraySerializer")


def test_a_bad_value_is_refused_under_todays_name():
    with pytest.raises(Exception, match="for configuration acks: String must be one of"):
        ProducerConfig.of({"request.required.acks": "2"})


def test_every_client_knows_the_old_list_of_brokers():
    assert AdminConfig.of({"metadata.broker.list": "a:1"}).bootstrap_servers == ("a:1",)
