import pytest

from kserver.api import describe_configs as module
from kserver.errors import ErrorCode
from tests.contract.api.calls import METADATA

KEY, VERSIONS = module.KEY, module.VERSIONS
every_version = pytest.mark.parametrize("version", VERSIONS)

TOPIC, BROKER = 2, 4
DYNAMIC_TOPIC, STATIC_BROKER, DEFAULT = 1, 4, 5
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


def node_id(client):
    return str(client.call(METADATA, 1, topics=[]).brokers[0].node_id)


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
