"""Test IncrementalAlterConfigs requests, in every version, against our broker or Apache's."""

import pytest

from kserver.api import incremental_alter_configs as module
from kserver.errors import ErrorCode
from tests.contract.api.calls import consumer_heartbeat, coordinated, node_id, told
from tests.support import brokers
from tests.support.brokers import until

KEY, VERSIONS = module.KEY, module.VERSIONS
every_version = pytest.mark.parametrize("version", VERSIONS)
NEWEST = VERSIONS[-1]

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
DYNAMIC_TOPIC, DYNAMIC_BROKER, DYNAMIC_DEFAULT, STATIC, DEFAULT = 1, 2, 3, 4, 5


def resource(kind, name, *ops):
    configs = [{"name": k, "config_operation": op, "value": v} for k, op, v in ops]
    return {"resource_type": kind, "resource_name": name, "configs": configs}


def alter_all(client, version, *resources, validate_only=False):
    answer = client.call(KEY, version, resources=resources, validate_only=validate_only)
    return [(r.error_code, r.error_message) for r in answer.responses]


def alter(client, version, kind, name, *ops, **fields):
    """Return the error of the only resource, or None."""
    ((code, text),) = alter_all(client, version, resource(kind, name, *ops), **fields)
    return None if code is ErrorCode.none else (code, text)


@pytest.fixture
def own(client):
    return node_id(client)


@pytest.fixture
def restored(client, own):
    """Delete the broker configs that these tests set."""
    yield
    for name in (own, ""):
        assert alter(client, NEWEST, BROKER, name, ("message.max.bytes", DELETE, None)) is None
    brokers.until(lambda: told(client, BROKER, own, "message.max.bytes").config_source == DEFAULT)


@every_version
def test_a_topics_override_is_set_and_taken_away(client, topic, version):
    assert alter(client, version, TOPIC, topic.name, ("retention.ms", SET, "777")) is None
    brokers.until(lambda: told(client, TOPIC, topic.name, "retention.ms").value == "777")
    assert told(client, TOPIC, topic.name, "retention.ms").config_source == DYNAMIC_TOPIC
    assert alter(client, version, TOPIC, topic.name, ("retention.ms", DELETE, None)) is None
    brokers.until(lambda: told(client, TOPIC, topic.name, "retention.ms").config_source == DEFAULT)


@every_version
def test_what_is_not_named_stays(client, make_topic, version):
    topic = make_topic(retention_ms=5000)
    assert alter(client, version, TOPIC, topic.name, ("segment.bytes", SET, "1048576")) is None
    brokers.until(lambda: told(client, TOPIC, topic.name, "segment.bytes").value == "1048576")
    assert told(client, TOPIC, topic.name, "retention.ms").value == "5000"


@every_version
def test_a_list_grows_and_shrinks(client, topic, version):
    def policy():
        return told(client, TOPIC, topic.name, "cleanup.policy").value

    assert alter(client, version, TOPIC, topic.name, ("cleanup.policy", APPEND, "compact")) is None
    brokers.until(lambda: policy() == "delete,compact")
    assert alter(client, version, TOPIC, topic.name, ("cleanup.policy", APPEND, "compact")) is None
    assert policy() == "delete,compact"
    assert alter(client, version, TOPIC, topic.name, ("cleanup.policy", SUBTRACT, "delete")) is None
    brokers.until(lambda: policy() == "compact")


@every_version
def test_nothing_is_changed_where_it_is_only_to_be_validated(client, topic, version):
    change = ("retention.ms", SET, "777")
    assert alter(client, version, TOPIC, topic.name, change, validate_only=True) is None
    assert told(client, TOPIC, topic.name, "retention.ms").config_source == DEFAULT
    wrong = ("retention.ms", SET, "never")
    code, _ = alter(client, version, TOPIC, topic.name, wrong, validate_only=True)
    assert code is ErrorCode.invalid_config


@every_version
def test_a_resource_is_changed_as_a_whole_or_not_at_all_and_alone(client, make_topic, version):
    good, bad = make_topic(), make_topic()
    results = alter_all(
        client,
        version,
        resource(TOPIC, bad.name, ("retention.ms", SET, "1"), ("segment.bytes", SET, "x")),
        resource(TOPIC, good.name, ("retention.ms", SET, "1")),
    )
    assert [code for code, _ in results] == [ErrorCode.invalid_config, ErrorCode.none]
    brokers.until(lambda: told(client, TOPIC, good.name, "retention.ms").value == "1")
    assert told(client, TOPIC, bad.name, "retention.ms").config_source == DEFAULT


@every_version
@pytest.mark.parametrize(
    ("ops", "code", "text"),
    [
        ([("no.such", SET, "1")], "invalid_config", "Unknown topic config name: no.such"),
        (
            [("retention.ms", SET, "x")],
            "invalid_config",
            "Invalid value x for configuration retention.ms: Not a number of type LONG",
        ),
        (
            [("retention.ms", APPEND, "1")],
            "invalid_config",
            "Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        (
            [("retention.ms", SUBTRACT, "1")],
            "invalid_config",
            "Can't SUBTRACT to key retention.ms because its type is not LIST.",
        ),
        (
            [("retention.ms", SET, "1"), ("retention.ms", DELETE, None)],
            "invalid_request",
            "Error due to duplicate config keys",
        ),
        (
            [("retention.ms", SET, None)],
            "invalid_request",
            "Null value not supported for : retention.ms",
        ),
    ],
)
def test_what_cannot_be_set_of_a_topic_is_refused_in_kafkas_words(
    client, topic, version, ops, code, text
):
    assert alter(client, version, TOPIC, topic.name, *ops) == (ErrorCode[code], text)


@every_version
def test_a_long_value_is_refused_in_a_text_that_fits_the_answer(client, only_ours, topic, version):
    long = "é" * 16_000
    for change in (("retention.ms", SET, long), ("x" * 32_767, SET, "1")):
        code, text = alter(client, version, TOPIC, topic.name, change)
        assert code in (ErrorCode.invalid_config, ErrorCode.invalid_request)
        assert 0 < len(text.encode()) < 1 << 15


@every_version
def test_values_that_zookeeper_could_not_keep_are_refused(client, only_ours, own, version):
    many = [(f"key.{n}", SET, "x" * 30_000) for n in range(20)]
    code, text = alter(client, version, BROKER, own, *many)
    assert (code, text) == (
        ErrorCode.invalid_config,
        "The overrides of one resource take at most 500000 bytes.",
    )


@every_version
@pytest.mark.parametrize(
    "key",
    [
        "metric.reporters",
        "listener.name.plaintext.ssl.keystore.location",
        "listener.name.plaintext.sasl.jaas.config",
        "listener.name.plaintext.ssl.engine.factory.class",
        "listener.name.plaintext.ssl.key.password",
    ],
)
def test_classes_files_and_passwords_are_taken_from_nobody(client, only_ours, own, version, key):
    code, text = alter(client, version, BROKER, own, (key, SET, "hunter2"))
    assert code is ErrorCode.invalid_request
    assert text.startswith(
        "Classes, files, commands and passwords are taken from server.properties"
    )
    assert "hunter2" not in text


@every_version
def test_an_unknown_key_of_a_broker_is_kept_and_its_value_shown_nowhere(
    client, broker, only_ours, own, version
):
    for name in (own, ""):
        assert alter(client, version, BROKER, name, ("my.plugin.key", SET, "hunter2")) is None
        found = told(client, BROKER, name, "my.plugin.key")
        assert (found.value, found.is_sensitive) == (None, True)
        assert [s.value for s in found.synonyms] == [None]
        assert alter(client, version, BROKER, name, ("my.plugin.key", DELETE, None)) is None
        assert told(client, BROKER, name, "my.plugin.key") is None
    assert not any("hunter2" in line for line in broker.output)


@every_version
def test_what_has_no_settings_here_is_refused_with_the_reason(client, only_ours, version):
    code, text = alter(client, version, CLIENT_METRICS, "x", ("interval.ms", SET, "1000"))
    assert code is ErrorCode.invalid_request
    assert "takes no metrics" in text


@every_version
@pytest.mark.usefixtures("since_4")
def test_a_group_has_settings_of_its_own_whether_it_exists_or_not(client, broker, version):
    key, name = "consumer.heartbeat.interval.ms", f"a/b {version}"
    assert alter(client, version, GROUP, name, (key, SET, "6000")) is None
    until(lambda: told(client, GROUP, name, key).value == "6000")
    assert [s.value for s in told(client, GROUP, name, key).synonyms] == ["6000", "5000"]
    coordinated(client, name)
    answer = consumer_heartbeat(client, 1, name, "m", 0, subscribed_topic_names=["no-such-topic"])
    assert answer.heartbeat_interval.total_seconds() == 6
    assert alter(client, version, GROUP, name, (key, DELETE, None)) is None
    until(lambda: told(client, GROUP, name, key).value == "5000")


@every_version
@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("consumer.heartbeat.interval.ms", "4999", "group.consumer.min.heartbeat.interval.ms"),
        ("consumer.heartbeat.interval.ms", "15001", "group.consumer.max.heartbeat.interval.ms"),
        ("consumer.session.timeout.ms", "60001", "group.consumer.max.session.timeout.ms"),
        ("no.such.key", "1", "Unknown group config name: no.such.key"),
        ("consumer.session.timeout.ms", "x", "x"),
    ],
)
@pytest.mark.usefixtures("since_4")
def test_what_a_group_cannot_have_is_refused(client, version, key, value, said):
    code, text = alter(client, version, GROUP, "g", (key, SET, value))
    assert code is ErrorCode.invalid_config
    assert said in text


@every_version
def test_there_is_no_default_of_groups(client, version):
    key = "consumer.session.timeout.ms"
    code, _ = alter(client, version, GROUP, "", (key, SET, "50000"))
    assert code is ErrorCode.invalid_request


@every_version
def test_loggers_have_levels(client, only_ours, own, version):
    def level(name):
        return told(client, LOGGER, own, name).value

    room, logger = "kserver.log", "kserver.log.manager"
    assert (level("root"), level(logger)) == ("INFO", "INFO")
    change = (room, SET, "TRACE")
    assert alter(client, version, LOGGER, own, change, validate_only=True) is None
    assert level(logger) == "INFO"
    assert alter(client, version, LOGGER, own, change) is None
    assert (level(room), level(logger), level("root")) == ("TRACE", "TRACE", "INFO")
    assert alter(client, version, LOGGER, own, (logger, SET, "FATAL")) is None
    assert (level(room), level(logger)) == ("TRACE", "FATAL")
    assert alter(client, version, LOGGER, own, (logger, DELETE, None), (room, DELETE, "")) is None
    assert (level(room), level(logger)) == ("INFO", "INFO")


@every_version
@pytest.mark.parametrize(
    ("ops", "code", "said"),
    [
        ([("no.such", SET, "INFO")], "invalid_config", "Logger no.such does not exist!"),
        (
            [("kserver", SET, "LOUD")],
            "invalid_config",
            "Cannot set the log level of kserver to LOUD as it is not a supported log level. "
            "Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN",
        ),
        (
            [("root", DELETE, None)],
            "invalid_request",
            "Removing the log level of the root logger is not allowed",
        ),
        (
            [("kserver", APPEND, "INFO")],
            "invalid_request",
            "APPEND operation is not allowed for the BROKER_LOGGER resource",
        ),
    ],
)
def test_what_is_no_level_is_refused_and_no_logger_changed(
    client, only_ours, own, version, ops, code, said
):
    both = [("kserver.broker.broker", SET, "DEBUG"), *ops]
    assert alter(client, version, LOGGER, own, *both) == (ErrorCode[code], said)
    assert told(client, LOGGER, own, "kserver.broker.broker").value == "INFO"


@every_version
@pytest.mark.parametrize("name", ["", "77", "x"])
def test_loggers_are_those_of_this_broker(client, version, name):
    code, _ = alter(client, version, LOGGER, name, ("root", SET, "INFO"))
    assert code is ErrorCode.invalid_request


@every_version
@pytest.mark.parametrize(
    ("sort", "name", "code"),
    [
        (TOPIC, "missing", "unknown_topic_or_partition"),
        (TOPIC, "no/slash", "invalid_topic_exception"),
        (TOPIC, "", "invalid_request"),
        (BROKER, "77", "invalid_request"),
        (BROKER, "one", "invalid_request"),
        (99, "x", "invalid_request"),
    ],
)
def test_what_does_not_exist_is_refused(client, version, sort, name, code):
    found, _ = alter(client, version, sort, name, ("retention.ms", DELETE, None))
    assert found is ErrorCode[code]


@every_version
def test_a_resource_named_twice_is_refused_both_times(client, topic, version):
    twice = [resource(TOPIC, topic.name, ("retention.ms", SET, v)) for v in "12"]
    text = "Each resource must appear at most once."
    assert alter_all(client, version, *twice) == [(ErrorCode.invalid_request, text)] * 2


@every_version
def test_a_brokers_own_setting_stands_above_the_default_of_all(client, own, restored, version):
    def message_size():
        return told(client, BROKER, own, "message.max.bytes")

    assert alter(client, version, BROKER, "", ("message.max.bytes", SET, "2000000")) is None
    brokers.until(lambda: message_size().value == "2000000")
    assert message_size().config_source == DYNAMIC_DEFAULT
    assert told(client, BROKER, "", "message.max.bytes").value == "2000000"
    assert alter(client, version, BROKER, own, ("message.max.bytes", SET, "3000000")) is None
    brokers.until(lambda: message_size().value == "3000000")
    assert [(s.name, s.value, s.source) for s in message_size().synonyms] == [
        ("message.max.bytes", "3000000", DYNAMIC_BROKER),
        ("message.max.bytes", "2000000", DYNAMIC_DEFAULT),
        ("message.max.bytes", "1048588", DEFAULT),
    ]
    assert alter(client, version, BROKER, own, ("message.max.bytes", DELETE, None)) is None
    brokers.until(lambda: message_size().value == "2000000")


@every_version
@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("num.partitions", "3", "Cannot update these configs dynamically"),
        ("log.retention.ms", "x", "Invalid value x for configuration log.retention.ms"),
        ("message.max.bytes", "-1", "Value must be at least 0"),
        ("ssl.keystore.type", "PEM", "only per-listener using the listener prefix"),
        ("background.threads", "100", ""),
    ],
)
def test_what_cannot_be_set_of_a_broker_is_refused(
    client, own, restored, version, key, value, said
):
    for name in (own, ""):
        code, text = alter(client, version, BROKER, name, (key, SET, value))
        assert code is ErrorCode.invalid_request
        assert said in text


OF_ALL_LISTENERS = {
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.kerberos.min.time.before.relogin": "60001",
    "sasl.login.refresh.buffer.seconds": "301",
    "ssl.cipher.suites": "TLS_AES_128_GCM_SHA256",
    "ssl.client.auth": "requested",
    "ssl.endpoint.identification.algorithm": "",
    "ssl.protocol": "TLSv1.2",
}


@every_version
@pytest.mark.parametrize("key", OF_ALL_LISTENERS)
def test_security_settings_but_stores_are_set_of_all_listeners(client, own, restored, version, key):
    value = OF_ALL_LISTENERS[key]
    assert alter(client, version, BROKER, own, (key, SET, value)) is None
    brokers.until(lambda: told(client, BROKER, own, key).value == value)
    assert told(client, BROKER, own, key).config_source == DYNAMIC_BROKER
    assert not told(client, BROKER, own, key).read_only
    assert alter(client, version, BROKER, own, (key, DELETE, None)) is None
    brokers.until(lambda: told(client, BROKER, own, key).config_source == DEFAULT)


@every_version
@pytest.mark.parametrize("key", ["listener.name.plaintext.ssl.client.auth", "ssl.client.auth"])
def test_what_is_of_one_broker_is_not_set_for_all(client, restored, version, key):
    change = (key, SET, "none")
    code, text = alter(client, version, BROKER, "", change)
    assert code is ErrorCode.invalid_request
    assert "Cannot update these configs at default cluster level, broker id must be" in text
