"""Test DescribeCluster requests, in every served version, against our broker or Apache's."""

import pytest

from kserver.api import describe_cluster as module
from kserver.errors import ErrorCode
from kserver.wire.api_key import ApiKey

KEY, VERSIONS = module.KEY, module.VERSIONS
every_version = pytest.mark.parametrize("version", VERSIONS)
BROKERS, CONTROLLERS = 1, 2


@every_version
def test_tells_what_metadata_tells(broker, client, version):
    answer = client.call(KEY, version, endpoint_type=BROKERS)
    metadata = client.call(ApiKey.METADATA, 2, topics=[])
    assert answer.error_code is ErrorCode.none
    assert answer.cluster_id == metadata.cluster_id
    assert answer.controller_id == metadata.controller_id
    (node,) = answer.brokers
    assert f"{node.host}:{node.port}" == broker.address
    assert node.broker_id == metadata.brokers[0].node_id
    assert answer.cluster_authorized_operations == -(2**31)


@every_version
def test_authorized_operations_are_told_when_asked(client, version):
    answer = client.call(
        KEY, version, endpoint_type=BROKERS, include_cluster_authorized_operations=True
    )
    assert answer.cluster_authorized_operations > 0


@pytest.mark.parametrize("version", VERSIONS[1:])
def test_a_broker_does_not_describe_controllers(client, version):
    answer = client.call(KEY, version, endpoint_type=CONTROLLERS)
    assert answer.error_code in (
        ErrorCode.unsupported_endpoint_type,
        ErrorCode.mismatched_endpoint_type,
    )
