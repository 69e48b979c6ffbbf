"""Test DescribeProducers requests, in every served version, against our broker or Apache's."""

import pytest

from kserver.api import describe_producers as module
from kserver.errors import ErrorCode
from tests.contract.api.transaction_calls import add, begun, end, settled, write

KEY, VERSIONS = module.KEY, module.VERSIONS
every_version = pytest.mark.parametrize("version", VERSIONS)
NONE = -1


def described(client, version, topic, partition=0):
    asked = [{"name": topic, "partition_indexes": [partition]}]
    return client.call(KEY, version, topics=asked).topics[0].partitions[0]


@every_version
def test_the_producers_of_a_partition_are_told_and_where_their_transaction_began(
    client, topic, version
):
    producer = begun(client)
    assert described(client, version, topic.name).active_producers == ()
    add(client, 3, producer, {topic.name: (0,)})
    write(client, producer, topic, b"a", b"b")
    (told,) = described(client, version, topic.name).active_producers
    assert (told.producer_id, told.producer_epoch) == producer[1:]
    assert (told.last_sequence, told.last_timestamp) == (1, 1001)
    assert (told.coordinator_epoch, told.current_txn_start_offset) == (NONE, 0)
    end(client, producer, commit=True)
    settled(client, producer)
    (told,) = described(client, version, topic.name).active_producers
    assert told.current_txn_start_offset == NONE
    assert told.coordinator_epoch >= 0


@every_version
def test_what_is_not_there_has_none(client, topic, name, version):
    unknown = ErrorCode.unknown_topic_or_partition
    assert described(client, version, name).error_code is unknown
    assert described(client, version, topic.name, 7).error_code is unknown
    invalid = described(client, version, "a b").error_code
    assert invalid is ErrorCode.invalid_topic_exception
