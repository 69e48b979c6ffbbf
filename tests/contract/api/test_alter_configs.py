"""Test AlterConfigs requests, in every served version, against our broker or Apache's."""

import pytest

from kserver.api import alter_configs as module
from kserver.errors import ErrorCode
from tests.contract.api.calls import node_id, told
from tests.support import brokers

KEY, VERSIONS = module.KEY, module.VERSIONS
every_version = pytest.mark.parametrize("version", VERSIONS)

TOPIC, BROKER, LOGGER = 2, 4, 8
DYNAMIC_TOPIC, DEFAULT = 1, 5


def alter(client, version, kind, name, configs, *, validate_only=False):
    """Return the error code of the only resource, or None."""
    resource = {
        "resource_type": kind,
        "resource_name": name,
        "configs": [{"name": key, "value": value} for key, value in configs],
    }
    answer = client.call(KEY, version, resources=[resource], validate_only=validate_only)
    (result,) = answer.responses
    assert (result.resource_type, result.resource_name) == (kind, name)
    return None if result.error_code is ErrorCode.none else result.error_code


@every_version
def test_what_is_left_out_falls_back(client, make_topic, version):
    topic = make_topic(retention_ms=5000, segment_bytes=1048576)
    assert alter(client, version, TOPIC, topic.name, [("retention.ms", "777")]) is None
    brokers.until(lambda: told(client, TOPIC, topic.name, "retention.ms").value == "777")
    assert told(client, TOPIC, topic.name, "segment.bytes").config_source == DEFAULT
    assert alter(client, version, TOPIC, topic.name, []) is None
    brokers.until(lambda: told(client, TOPIC, topic.name, "retention.ms").config_source == DEFAULT)


@every_version
def test_nothing_is_changed_where_it_is_only_to_be_validated(client, make_topic, version):
    topic = make_topic(retention_ms=5000)
    assert alter(client, version, TOPIC, topic.name, [], validate_only=True) is None
    assert told(client, TOPIC, topic.name, "retention.ms").config_source == DYNAMIC_TOPIC


@every_version
@pytest.mark.parametrize(
    ("sort", "name", "configs", "code"),
    [
        (TOPIC, "OF", [("no.such", "1")], "invalid_config"),
        (TOPIC, "OF", [("retention.ms", "x")], "invalid_config"),
        (TOPIC, "OF", [("retention.ms", "1"), ("retention.ms", "2")], "invalid_request"),
        (TOPIC, "OF", [("retention.ms", None)], "invalid_request"),
        (TOPIC, "missing", [], "unknown_topic_or_partition"),
        (TOPIC, "no/slash", [], "invalid_topic_exception"),
        (BROKER, "77", [], "invalid_request"),
        (BROKER, "OWN", [("num.partitions", "7")], "invalid_request"),
        (LOGGER, "OWN", [("root", "INFO")], "invalid_request"),
        (99, "x", [], "invalid_request"),
    ],
)
def test_what_cannot_be_is_refused(client, topic, version, sort, name, configs, code):
    name = {"OF": topic.name, "OWN": node_id(client)}.get(name, name)
    assert alter(client, version, sort, name, configs) is ErrorCode[code]


@every_version
def test_a_broker_s_settings_are_replaced(client, version):
    own = node_id(client)
    assert alter(client, version, BROKER, own, [("message.max.bytes", "2000000")]) is None
    brokers.until(lambda: told(client, BROKER, own, "message.max.bytes").value == "2000000")
    assert alter(client, version, BROKER, own, [("log.segment.bytes", "2000000")]) is None
    brokers.until(lambda: told(client, BROKER, own, "log.segment.bytes").value == "2000000")
    assert told(client, BROKER, own, "message.max.bytes").config_source == DEFAULT
    assert alter(client, version, BROKER, own, []) is None
    brokers.until(lambda: told(client, BROKER, own, "log.segment.bytes").config_source == DEFAULT)
