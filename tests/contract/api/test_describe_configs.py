"""Test DescribeConfigs requests, in every served version, against our broker or Apache's."""

import pytest

from kserver.api import describe_configs as module
from kserver.errors import ErrorCode
from kserver.wire.api_key import ApiKey
from tests.contract.api.calls import node_id
from tests.support import brokers

KEY, VERSIONS = module.KEY, module.VERSIONS
every_version = pytest.mark.parametrize("version", VERSIONS)

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
DYNAMIC_TOPIC, DYNAMIC_DEFAULT, STATIC_BROKER, DEFAULT, DYNAMIC_LOGGER = 1, 3, 4, 5, 6
SET, DELETE = 0, 1
BOOLEAN, STRING, INT, LONG, LIST = 1, 2, 3, 5, 7
FIRST_WITH_TYPES = 3


def describe(client, version, kind, name, *keys, **fields):
    resource = {
        "resource_type": kind,
        "resource_name": name,
        "configuration_keys": keys or None,
    }
    (result,) = client.call(KEY, version, resources=[resource], **fields).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


@every_version
def test_all_of_a_topics_configs_are_told_with_their_sources(client, make_topic, version):
    topic = make_topic(retention_ms=12345)
    result = describe(client, version, TOPIC, topic.name)
    assert result.error_code is ErrorCode.none
    told = {c.name: c for c in result.configs}
    assert {"cleanup.policy", "segment.bytes", "max.message.bytes", "compression.type"} < set(told)
    assert (told["retention.ms"].value, told["retention.ms"].config_source) == (
        "12345",
        DYNAMIC_TOPIC,
    )
    assert (told["cleanup.policy"].value, told["cleanup.policy"].config_source) == (
        "delete",
        DEFAULT,
    )
    assert not any(c.read_only or c.is_sensitive for c in result.configs)


@every_version
def test_only_the_requested_keys_are_told(client, topic, version):
    result = describe(client, version, TOPIC, topic.name, "retention.ms", "no.such.key")
    assert [c.name for c in result.configs] == ["retention.ms"]


@pytest.mark.parametrize("version", [v for v in VERSIONS if v >= FIRST_WITH_TYPES])
def test_types_are_told(client, topic, version):
    result = describe(client, version, TOPIC, topic.name)
    types = {c.name: c.config_type for c in result.configs}
    assert types["retention.ms"] == LONG
    assert types["segment.bytes"] == INT
    assert types["preallocate"] == BOOLEAN
    assert types["compression.type"] == STRING
    assert types["cleanup.policy"] == LIST
    assert 0 not in types.values()


@every_version
def test_synonyms_are_told_when_asked_in_the_order_that_they_count(client, make_topic, version):
    topic = make_topic(segment_bytes=1 << 20)
    result = describe(client, version, TOPIC, topic.name, "segment.bytes", include_synonyms=True)
    (told,) = result.configs
    assert [(s.name, s.value, s.source) for s in told.synonyms] == [
        ("segment.bytes", str(1 << 20), DYNAMIC_TOPIC),
        ("log.segment.bytes", str(1 << 30), DEFAULT),
    ]
    (unasked,) = describe(client, version, TOPIC, topic.name, "segment.bytes").configs
    assert not unasked.synonyms


@pytest.mark.parametrize("version", [v for v in VERSIONS if v >= FIRST_WITH_TYPES])
def test_documentation_is_told_when_asked(client, topic, version):
    for wanted in (True, False):
        result = describe(
            client, version, TOPIC, topic.name, "retention.ms", include_documentation=wanted
        )
        assert bool(result.configs[0].documentation) is wanted


@every_version
def test_the_brokers_own_configs_are_told(client, version):
    result = describe(client, version, BROKER, node_id(client))
    told = {c.name: c for c in result.configs}
    assert (told["num.partitions"].value, told["num.partitions"].config_source) == (
        "2",
        STATIC_BROKER,
    )
    assert told["message.max.bytes"].value == "1048588"
    assert told["num.partitions"].read_only
    assert not told["message.max.bytes"].read_only
    passwords = [c for c in result.configs if c.name.endswith(".password")]
    assert passwords
    assert all(c.is_sensitive and c.value is None for c in passwords)


@every_version
@pytest.mark.parametrize(
    ("resource", "name", "code"),
    [
        (TOPIC, "missing", ErrorCode.unknown_topic_or_partition),
        (TOPIC, "no/slash", ErrorCode.invalid_topic_exception),
        (BROKER, "77", ErrorCode.invalid_request),
        (BROKER, "one", ErrorCode.invalid_request),
    ],
)
def test_what_does_not_exist_is_refused_alone(client, topic, version, resource, name, code):
    resources = [
        {"resource_type": k, "resource_name": n, "configuration_keys": None}
        for k, n in ((resource, name), (TOPIC, topic.name))
    ]
    results = client.call(KEY, version, resources=resources).results
    codes = {(r.resource_type, r.resource_name): r.error_code for r in results}
    assert codes == {(resource, name): code, (TOPIC, topic.name): ErrorCode.none}


@every_version
def test_an_unknown_kind_of_resource_is_refused(client, version):
    assert describe(client, version, 99, "x").error_code is ErrorCode.invalid_request


@pytest.fixture
def segment_bytes_of_all(client):
    """Set `log.segment.bytes` for all brokers during a test."""

    def alter(operation, value):
        change = {"name": "log.segment.bytes", "config_operation": operation, "value": value}
        resource = {"resource_type": BROKER, "resource_name": "", "configs": [change]}
        (result,) = client.call(
            ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False
        ).responses
        assert result.error_code is ErrorCode.none

    def value():
        told = describe(client, 1, BROKER, node_id(client), "log.segment.bytes").configs
        return told[0].value

    alter(SET, "2000000")
    brokers.until(lambda: value() == "2000000")
    yield "2000000"
    alter(DELETE, None)
    brokers.until(lambda: value() != "2000000")


@every_version
def test_of_the_default_of_all_brokers_only_what_is_set_is_told(
    client, segment_bytes_of_all, version
):
    result = describe(client, version, BROKER, "", include_synonyms=True)
    told = {c.name: c for c in result.configs}
    assert told.keys() - {"min.insync.replicas"} == {"log.segment.bytes"}  # 4.3 sets that itself
    (synonym,) = told["log.segment.bytes"].synonyms
    assert (synonym.value, synonym.source) == (segment_bytes_of_all, DYNAMIC_DEFAULT)
    assert not told["log.segment.bytes"].read_only


@every_version
def test_a_topic_tells_what_is_set_of_brokers(client, topic, segment_bytes_of_all, version):
    result = describe(client, version, TOPIC, topic.name, "segment.bytes", include_synonyms=True)
    (told,) = result.configs
    assert (told.value, told.config_source) == (segment_bytes_of_all, DYNAMIC_DEFAULT)
    assert [(s.name, s.source) for s in told.synonyms] == [
        ("log.segment.bytes", DYNAMIC_DEFAULT),
        ("log.segment.bytes", DEFAULT),
    ]


@every_version
def test_a_brokers_loggers_are_told_with_their_levels(client, version):
    result = describe(client, version, LOGGER, node_id(client), include_synonyms=True)
    told = {c.name: c for c in result.configs}
    assert told["root"].value == "INFO"
    for one in told.values():
        assert one.value in ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL", "OFF")
        assert (one.config_source, one.is_sensitive, one.synonyms) == (DYNAMIC_LOGGER, False, ())
    for name in ("", "77", "x"):
        assert describe(client, version, LOGGER, name).error_code is ErrorCode.invalid_request


@every_version
@pytest.mark.usefixtures("since_4")
def test_a_group_has_the_brokers_settings(client, version):
    result = describe(client, version, GROUP, "no-such-group")
    assert result.error_code is ErrorCode.none
    found = {config.name: config.value for config in result.configs}
    assert found["consumer.session.timeout.ms"] == "45000"
    assert found["consumer.heartbeat.interval.ms"] == "5000"


@every_version
def test_what_has_no_settings_here_is_refused_with_the_reason(client, only_ours, version):
    result = describe(client, version, CLIENT_METRICS, "x")
    assert result.error_code is ErrorCode.invalid_request
    assert "This broker" in result.error_message


@pytest.mark.parametrize("resource", [TOPIC, BROKER, LOGGER, GROUP])
def test_settings_come_by_name(client, topic, only_ours, resource):
    name = {TOPIC: topic.name, GROUP: "g"}.get(resource, str(node_id(client)))
    names = [c.name for c in describe(client, VERSIONS[-1], resource, name).configs]
    assert names == sorted(names) != []
