"""Test ListConfigResources requests, in every served version, against our broker or Apache's."""

import pytest

from kserver.api import list_config_resources as module
from kserver.errors import ErrorCode
from kserver.wire.api_key import ApiKey
from tests.contract.api.calls import node_id
from tests.support.brokers import until

KEY, VERSIONS = module.KEY, module.VERSIONS
every_version = pytest.mark.parametrize("version", VERSIONS)
with_kinds = pytest.mark.parametrize("version", VERSIONS[1:])

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE = 0, 1


def listed(client, version, *kinds):
    answer = client.call(KEY, version, resource_types=kinds)
    assert answer.error_code is ErrorCode.none
    return [(r.resource_type, r.resource_name) for r in answer.config_resources]


@with_kinds
def test_topics_and_brokers_are_listed_and_brokers_again_for_their_loggers(client, topic, version):
    own = node_id(client)
    found = listed(client, version)
    assert (TOPIC, topic.name) in found
    assert {(BROKER, own), (LOGGER, own)} <= set(found)
    assert {kind for kind, _ in found} <= {TOPIC, BROKER, LOGGER, GROUP}


@with_kinds
def test_only_the_kinds_asked_are_listed(client, topic, version):
    own = node_id(client)
    assert listed(client, version, BROKER) == [(BROKER, own)]
    assert {kind for kind, _ in listed(client, version, TOPIC, LOGGER)} == {TOPIC, LOGGER}
    assert listed(client, version, CLIENT_METRICS) == []


@with_kinds
def test_groups_that_have_settings_are_listed(client, version):
    def alter(operation, value):
        change = {
            "name": "consumer.session.timeout.ms",
            "config_operation": operation,
            "value": value,
        }
        group = {"resource_type": GROUP, "resource_name": "listed", "configs": [change]}
        client.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[group], validate_only=False)

    alter(SET, "50000")
    until(lambda: (GROUP, "listed") in listed(client, version, GROUP))
    alter(DELETE, None)
    until(lambda: (GROUP, "listed") not in listed(client, version, GROUP))


@with_kinds
def test_a_kind_that_nobody_knows_is_refused(client, version):
    answer = client.call(KEY, version, resource_types=[99])
    assert answer.error_code is ErrorCode.unsupported_version
    assert not answer.config_resources


def test_the_first_version_lists_client_metrics_of_which_there_are_none(client, topic):
    answer = client.call(KEY, 0)
    assert answer.error_code is ErrorCode.none
    assert not answer.config_resources
