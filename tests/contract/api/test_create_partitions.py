"""Test CreatePartitions requests, in every served version, against our broker or Apache's."""

import pytest

from kserver.api import create_partitions as module
from kserver.errors import ErrorCode
from tests.contract.api.calls import batch, fetch, partition_count, produce
from tests.support.brokers import until
from tests.support.wire_client import milliseconds

KEY, VERSIONS = module.KEY, module.VERSIONS
every_version = pytest.mark.parametrize("version", VERSIONS)
TIMEOUT = milliseconds(30_000)


def grow(client, version, name, count, assignments=None, validate_only=False):
    answer = client.call(
        KEY,
        version,
        topics=[{"name": name, "count": count, "assignments": assignments}],
        timeout=TIMEOUT,
        validate_only=validate_only,
    )
    (grown,) = answer.results
    assert grown.name == name
    return grown.error_code


@every_version
def test_new_partitions_are_there_and_the_old_keep_their_records(client, topic, version):
    produce(client, 9, topic, batch(b"a"))
    assert grow(client, version, topic.name, 3, validate_only=True) is ErrorCode.none
    assert partition_count(client, topic.name) == 1
    assert grow(client, version, topic.name, 3) is ErrorCode.none
    until(lambda: partition_count(client, topic.name) == 3)
    assert fetch(client, 12, topic, 0).high_watermark == 1


@every_version
def test_a_topic_neither_shrinks_nor_stays(client, make_topic, version):
    topic = make_topic(partitions=3)
    for count in (3, 2, 0, -1):
        assert grow(client, version, topic.name, count) is ErrorCode.invalid_partitions, count
    assert grow(client, version, "missing", 3) is ErrorCode.unknown_topic_or_partition
    unknown_broker = [{"broker_ids": (77,)}]
    refused = grow(client, version, topic.name, 4, assignments=unknown_broker)
    assert refused is ErrorCode.invalid_replica_assignment
    assert partition_count(client, topic.name) == 3
