"""Test ListPartitionReassignments requests, in every version, against our broker or Apache's."""

import pytest

from kserver.api import alter_partition_reassignments as alter
from kserver.api import list_partition_reassignments as module
from kserver.errors import ErrorCode
from tests.contract.api.calls import node_id
from tests.support.wire_client import milliseconds

KEY, VERSIONS = module.KEY, module.VERSIONS
every_version = pytest.mark.parametrize("version", VERSIONS)
TIMEOUT = milliseconds(30_000)


def reassign(client, topic, replicas, partition=0):
    partitions = [{"partition_index": partition, "replicas": replicas}]
    wanted = [{"name": topic, "partitions": partitions}]
    answer = client.call(alter.KEY, 0, topics=wanted, timeout=TIMEOUT)
    assert answer.error_code is ErrorCode.none
    ((found,),) = (topic.partitions for topic in answer.responses)
    return found.error_code


@every_version
def test_nothing_moves_that_nobody_has_moved(client, topic, version):
    for wanted in (None, [{"name": topic.name, "partition_indexes": (0, 7)}]):
        answer = client.call(KEY, version, topics=wanted, timeout=TIMEOUT)
        assert (answer.error_code, answer.topics) == (ErrorCode.none, ())


@every_version
def test_a_partition_stays_where_it_is_to_be(client, topic, version):
    own = int(node_id(client))
    assert reassign(client, topic.name, (own,)) is ErrorCode.none
    answer = client.call(KEY, version, topics=None, timeout=TIMEOUT)
    assert answer.topics == ()


def test_what_cannot_be_moved_is_told_why(client, topic):
    own = int(node_id(client))
    invalid = ErrorCode.invalid_replica_assignment
    assert reassign(client, topic.name, None) is ErrorCode.no_reassignment_in_progress
    assert reassign(client, topic.name, ()) is invalid
    assert reassign(client, topic.name, (own, own)) is invalid
    assert reassign(client, topic.name, (own, 77)) is invalid
    assert reassign(client, topic.name, (-1,)) is invalid
    assert reassign(client, "missing", (own,)) is ErrorCode.unknown_topic_or_partition
    assert reassign(client, topic.name, (own,), 7) is ErrorCode.unknown_topic_or_partition


@pytest.mark.parametrize("allowed", [False, True])
def test_what_does_not_change_the_replication_factor_is_taken_either_way(
    client, topic, served, allowed
):
    if 1 not in served[alter.KEY]:
        pytest.skip("version 1 is not served")
    own = int(node_id(client))
    invalid = ErrorCode.invalid_replica_assignment
    for replicas, code in (((own,), ErrorCode.none), ((), invalid), ((own, 77), invalid)):
        partitions = [{"partition_index": 0, "replicas": replicas}]
        answer = client.call(
            alter.KEY,
            1,
            topics=[{"name": topic.name, "partitions": partitions}],
            timeout=TIMEOUT,
            allow_replication_factor_change=allowed,
        )
        assert (answer.error_code, answer.allow_replication_factor_change) == (
            ErrorCode.none,
            allowed,
        )
        ((found,),) = (topic.partitions for topic in answer.responses)
        assert found.error_code is code
