from __future__ import annotations

import pytest

from kcli.client.config import AdminConfig, ConsumerConfig, ProducerConfig
from kcli.client.settings import Settings
from kserver.config.setting import settings_of
from kserver.errors import ConfigError

CONFIGS = [AdminConfig, ConsumerConfig, ProducerConfig]


@pytest.mark.parametrize("config", CONFIGS)
def test_every_default_is_a_value_that_could_be_given(config):
    for setting in settings_of(config).values():
        text = setting.render(setting.default)
        if text is not None:
            assert setting.refusal(text) is None, setting.name
            assert setting.parse(text) == setting.default, setting.name


@pytest.mark.parametrize("config", CONFIGS)
def test_every_attribute_is_its_key(config):
    for name, setting in settings_of(config).items():
        assert getattr(config(), name.replace(".", "_")) == setting.default


def test_texts_become_values():
    config = ConsumerConfig.of(
        {"bootstrap.servers": "a:1, b:2", "check.crcs": "FALSE", "fetch.max.bytes": "7"}
    )
    assert config.bootstrap_servers == ("a:1", "b:2")
    assert config.check_crcs is False
    assert config.fetch_max_bytes == 7
    assert config.max_poll_records == 500
    assert config.warnings == ()


def test_unknown_keys_are_named_with_the_nearest_known_one():
    config = ProducerConfig.of({"linger.mss": "5", "xyzzy": "1"})
    assert config.warnings == (
        "linger.mss is not a known setting; did you mean linger.ms?",
        "xyzzy is not a known setting",
    )


@pytest.mark.parametrize(
    ("config", "key", "value", "text"),
    [
        (ProducerConfig, "linger.ms", "x", "Not a number of type LONG"),
        (ProducerConfig, "acks", "2", "String must be one of: all, -1, 0, 1"),
        (ProducerConfig, "compression.gzip.level", "0", "Value must be in"),
        (ConsumerConfig, "auto.offset.reset", "yesterday", "Invalid value"),
        (AdminConfig, "request.timeout.ms", "-1", "Value must be at least 0"),
        (AdminConfig, "security.protocol", "TELNET", "String must be one of"),
    ],
)
def test_a_value_that_cannot_be_taken_is_named_with_its_key(config, key, value, text):
    with pytest.raises(ConfigError, match=f"Invalid value {value} for configuration {key}: {text}"):
        config.of({key: value})


def test_what_is_given_is_told_from_what_is_default():
    config = AdminConfig.of({"retries": "3"})
    assert config.is_set("retries")
    assert not config.is_set("client_id")
    assert repr(config) == "AdminConfig(warnings=(), retries=3)"


def test_an_attribute_that_is_not_there_cannot_be_set():
    with pytest.raises(TypeError, match="AdminConfig has no linger_ms"):
        AdminConfig(linger_ms=5)
    with pytest.raises(AttributeError):
        AdminConfig().retries = 5


@pytest.mark.parametrize(
    ("given", "acks"), [({}, -1), ({"acks": "1"}, 1), ({"acks": "0"}, 0), ({"acks": "-1"}, -1)]
)
def test_acks_as_the_protocol_has_them(given, acks):
    assert ProducerConfig.of(given).required_acks == acks


CONFLICTS = [
    {"acks": "1"},
    {"retries": "0"},
    {"max.in.flight.requests.per.connection": "6"},
]


@pytest.mark.parametrize("given", CONFLICTS)
def test_idempotence_gives_way_to_what_was_asked_for(given):
    assert ProducerConfig.of({}).enable_idempotence
    assert not ProducerConfig.of(given).enable_idempotence


@pytest.mark.parametrize("given", CONFLICTS)
def test_idempotence_that_was_asked_for_refuses_what_contradicts_it(given):
    with pytest.raises(ConfigError, match="idempotent"):
        ProducerConfig.of(given | {"enable.idempotence": "true"})


@pytest.mark.parametrize("given", [{"enable.idempotence": "false"}, {"acks": "1"}, {"retries": 0}])
def test_transactions_need_idempotence_and_have_one_phase(given):
    name = {"transactional.id": "x"}
    assert ProducerConfig.of(name).enable_idempotence
    with pytest.raises(ConfigError, match=r"Cannot set a transactional\.id without"):
        ProducerConfig.of(name | given)
    two = "transaction.two.phase.commit.enable"
    assert ProducerConfig.of(name | {two: "false"}).transactional_id == "x"
    with pytest.raises(ConfigError, match=f"{two}: two-phase commit .* is not supported"):
        ProducerConfig.of(name | {two: "true"})


def test_the_delivery_timeout_leaves_room_for_a_linger_and_a_request():
    config = ProducerConfig.of({"linger.ms": "100000", "request.timeout.ms": "50000"})
    assert config.delivery_timeout_ms == 150_000
    with pytest.raises(ConfigError, match=r"delivery\.timeout\.ms should be equal to or larger"):
        ProducerConfig.of({"delivery.timeout.ms": "1000"})


def test_settings_without_a_table_are_empty():
    assert not settings_of(Settings)


def test_values_need_not_be_texts():
    config = ConsumerConfig.of({"check.crcs": False, "max.poll.records": 7})
    assert (config.check_crcs, config.max_poll_records) == (False, 7)


def test_a_mapping_is_taken_for_a_configuration_and_its_warnings_are_logged(caplog):
    ready = AdminConfig.of({"retries": "3", "xyzzy": "1"})
    assert AdminConfig.resolve(ready) is ready
    assert not caplog.text
    assert AdminConfig.resolve({"retries": 3, "xyzzy": 1}).retries == 3
    assert "xyzzy is not a known setting" in caplog.text


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"group.remote.assignor": "range"}, "cannot be set when group.protocol=CLASSIC"),
        (
            {"group.protocol": "consumer", "session.timeout.ms": "9"},
            "session.timeout.ms cannot be set when group.protocol=CONSUMER",
        ),
        ({"heartbeat.interval.ms": "45000"}, "45000 is not lower than 45000"),
        ({"group.id": " "}, "should not be an empty string"),
        ({"enable.auto.commit": "true"}, r"when default group id \(null\) is used"),
    ],
)
def test_what_cannot_go_together_in_a_group_is_refused(given, reason):
    with pytest.raises(ConfigError, match=reason):
        ConsumerConfig.of(given)
