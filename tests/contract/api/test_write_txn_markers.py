"""Test WriteTxnMarkers requests, in every served version, against our broker or Apache's."""

import pytest

from kserver.api import write_txn_markers as module
from kserver.errors import ErrorCode
from tests.contract.api.transaction_calls import add, begun, stable_offset, write

KEY, VERSIONS = module.KEY, module.VERSIONS
every_version = pytest.mark.parametrize("version", VERSIONS)
NONE = ErrorCode.none
COORDINATOR_EPOCH = 5


def marker(producer, topics, *, commit=True, epoch=COORDINATOR_EPOCH, version=0):
    return {
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "transaction_result": commit,
        "coordinator_epoch": epoch,
        "transaction_version": version,
        "topics": [{"name": n, "partition_indexes": indexes} for n, indexes in topics.items()],
    }


def end(client, version, *markers):
    """Return the error codes by producer id, topic and partition."""
    answer = client.call(KEY, version, markers=list(markers))
    return {
        (one.producer_id, topic.name, partition.partition_index): partition.error_code
        for one in answer.markers
        for topic in one.topics
        for partition in topic.partitions
    }


def begin(client, topic):
    producer = begun(client)
    add(client, 3, producer, {topic.name: (0,)})
    assert write(client, producer, topic, b"a").error_code is NONE
    return producer


@every_version
@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_ends_what_is_open_in_its_partition(client, topic, version, commit):
    producer = begin(client, topic)
    assert stable_offset(client, topic) == 0
    told = end(client, version, marker(producer, {topic.name: [0]}, commit=commit))
    assert told == {(producer.producer_id, topic.name, 0): NONE}
    assert stable_offset(client, topic) == 2


@every_version
def test_many_are_written_at_once_and_each_is_answered(client, make_topic, name, version):
    one, two = make_topic(2), make_topic(1)
    first, second = begin(client, one), begin(client, two)
    told = end(
        client,
        version,
        marker(first, {one.name: [0, 1], name: [0]}),
        marker(second, {two.name: [0, 3]}),
    )
    unknown = ErrorCode.unknown_topic_or_partition
    assert told == {
        (first.producer_id, one.name, 0): NONE,
        (first.producer_id, one.name, 1): NONE,
        (first.producer_id, name, 0): unknown,
        (second.producer_id, two.name, 0): NONE,
        (second.producer_id, two.name, 3): unknown,
    }


@every_version
def test_a_marker_of_an_earlier_epoch_or_coordinator_is_refused(client, topic, version):
    producer = begin(client, topic)
    newer = producer._replace(producer_epoch=producer.producer_epoch + 1)
    place = (producer.producer_id, topic.name, 0)
    assert end(client, version, marker(newer, {topic.name: [0]})) == {place: NONE}
    late = end(client, version, marker(producer, {topic.name: [0]}))
    assert late == {place: ErrorCode.invalid_producer_epoch}
    old = end(client, version, marker(newer, {topic.name: [0]}, epoch=COORDINATOR_EPOCH - 1))
    assert old == {place: ErrorCode.transaction_coordinator_fenced}


@pytest.mark.parametrize("version", [v for v in VERSIONS if v >= 2])
def test_a_marker_of_version_2_ends_nothing_that_began_under_its_own_epoch(client, topic, version):
    producer = begin(client, topic)
    place = (producer.producer_id, topic.name, 0)
    late = end(client, version, marker(producer, {topic.name: [0]}, version=2))
    assert late == {place: ErrorCode.invalid_producer_epoch}
    assert stable_offset(client, topic) == 0
    newer = producer._replace(producer_epoch=producer.producer_epoch + 1)
    assert end(client, version, marker(newer, {topic.name: [0]}, version=2)) == {place: NONE}
    assert end(client, version, marker(newer, {topic.name: [0]}, version=2)) == {place: NONE}
