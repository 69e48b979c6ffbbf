"""Test ElectLeaders requests, in every served version, against our broker or Apache's."""

import pytest

from kserver.api import elect_leaders as module
from kserver.errors import ErrorCode
from tests.support.wire_client import milliseconds

KEY, VERSIONS = module.KEY, module.VERSIONS
every_version = pytest.mark.parametrize("version", VERSIONS)
PREFERRED, UNCLEAN = 0, 1


def elect(client, version, partitions, election=PREFERRED):
    """Return the error codes by topic and partition; `partitions` is None for all."""
    wanted = partitions and [{"topic": t, "partitions": tuple(p)} for t, p in partitions.items()]
    fields = {"election_type": election} if version >= 1 else {}
    answer = client.call(
        KEY, version, topic_partitions=wanted, timeout=milliseconds(30_000), **fields
    )
    if version >= 1:
        assert answer.error_code is ErrorCode.none
    return {
        (topic.topic, found.partition_id): found.error_code
        for topic in answer.replica_election_results
        for found in topic.partition_result
    }


@every_version
def test_a_partition_that_is_led_needs_no_election(client, make_topic, version):
    topic = make_topic(partitions=2)
    for election in (PREFERRED, UNCLEAN):
        assert elect(client, version, {topic.name: [0, 1]}, election) == {
            (topic.name, 0): ErrorCode.election_not_needed,
            (topic.name, 1): ErrorCode.election_not_needed,
        }


@every_version
def test_what_is_not_there_is_led_by_nobody(client, topic, version):
    assert elect(client, version, {topic.name: [7], "missing": [0]}) == {
        (topic.name, 7): ErrorCode.unknown_topic_or_partition,
        ("missing", 0): ErrorCode.unknown_topic_or_partition,
    }


@every_version
def test_of_all_partitions_those_without_an_election_are_not_named(client, topic, version):
    assert elect(client, version, None) == {}
