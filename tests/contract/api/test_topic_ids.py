"""Test that the id of a deleted topic stays unknown, even after its name is used again."""

import itertools

import pytest

from kserver.errors import ErrorCode
from kserver.wire.api_key import ApiKey
from tests.contract.api import group_calls
from tests.contract.api.calls import (
    Topic,
    batch,
    consumer_heartbeat,
    coordinated,
    fetch,
    partition_count,
    produce,
    topic_id,
)
from tests.support import brokers
from tests.support.brokers import until
from tests.support.wire_client import milliseconds

pytestmark = pytest.mark.usefixtures("since_4")
OLDEST_METADATA, NEWEST_METADATA, NEWEST_DELETE = 12, 13, 6
PRODUCE_VERSION, OLDEST_FETCH, NEWEST_FETCH = 13, 13, 17
COMMIT_VERSION, HEARTBEAT_VERSION = 10, 1
UNKNOWN = ErrorCode.unknown_topic_id
GROUPS = (f"topic-ids-{n}" for n in itertools.count())


@pytest.fixture
def again(broker, client):
    """again(topic) deletes the topic and creates another one with its name."""

    def create(topic):
        named = {"topics": [{"name": topic.name, "topic_id": None}]}
        client.call(ApiKey.DELETE_TOPICS, NEWEST_DELETE, **named, timeout=milliseconds(30_000))
        until(lambda: partition_count(client, topic.name) is None)
        brokers.create_topic(broker.address, topic.name, 1)
        new = Topic(topic.name, topic_id(client, topic.name))
        assert new.id != topic.id
        return new

    return create


@pytest.mark.parametrize("metadata_version", [OLDEST_METADATA, NEWEST_METADATA])
def test_metadata_tells_nothing_of_the_next_topic(client, topic, again, metadata_version):
    new = again(topic)
    asked = [{"topic_id": one.id, "name": None} for one in (topic, new)]
    answer = client.call(
        ApiKey.METADATA, metadata_version, topics=asked, allow_auto_topic_creation=False
    )
    assert {(t.topic_id, t.name, t.error_code) for t in answer.topics} == {
        (topic.id, None, UNKNOWN),
        (new.id, new.name, ErrorCode.none),
    }


def test_the_next_topic_is_not_deleted(client, topic, again):
    new = again(topic)
    asked = {"topics": [{"name": None, "topic_id": topic.id}]}
    (answer,) = client.call(
        ApiKey.DELETE_TOPICS, NEWEST_DELETE, **asked, timeout=milliseconds(30_000)
    ).responses
    assert (answer.error_code, answer.topic_id, answer.name) == (UNKNOWN, topic.id, None)
    assert topic_id(client, topic.name) == new.id


@pytest.mark.parametrize("fetch_version", [OLDEST_FETCH, NEWEST_FETCH])
def test_nothing_is_written_to_the_next_topic_nor_read(client, topic, again, fetch_version):
    new = again(topic)
    assert produce(client, PRODUCE_VERSION, topic, batch(b"old")).error_code is UNKNOWN
    assert produce(client, PRODUCE_VERSION, new, batch(b"new")).base_offset == 0
    found = fetch(client, fetch_version, topic, 0)
    assert (found.error_code, bytes(found.records or b"")) == (UNKNOWN, b"")
    assert fetch(client, fetch_version, new, 0).error_code is ErrorCode.none


def test_nothing_is_committed_for_the_next_topic_nor_remembered_of_the_one_before(
    client, topic, group, again
):
    assert group_calls.commit(client, group, topic, {0: 7}, version=COMMIT_VERSION) == {
        0: ErrorCode.none
    }
    new = again(topic)
    refused = group_calls.commit(client, group, topic, {0: 8}, version=COMMIT_VERSION)
    assert refused == {0: UNKNOWN}

    def told(one):
        asked = {"topic_id": one.id, "partition_indexes": [0]}
        groups = [{"group_id": group, "member_id": None, "member_epoch": -1, "topics": [asked]}]
        (answer,) = client.call(
            ApiKey.OFFSET_FETCH, COMMIT_VERSION, groups=groups, require_stable=False
        ).groups
        (partition,) = answer.topics[0].partitions
        return partition.error_code, partition.committed_offset

    assert told(topic) == (UNKNOWN, -1)
    until(lambda: told(new) == (ErrorCode.none, -1))


def test_a_member_is_given_the_next_topic_and_may_still_name_the_one_before(client, topic, again):
    group = coordinated(client, next(GROUPS))

    def beat(epoch, **fields):
        answer = consumer_heartbeat(client, HEARTBEAT_VERSION, group, "m", epoch, **fields)
        assert answer.error_code is ErrorCode.none, answer.error_message
        return answer

    def assigned(answer):
        return (
            {t.topic_id for t in answer.assignment.topic_partitions} if answer.assignment else None
        )

    joined = beat(0, subscribed_topic_names=[topic.name])
    assert assigned(joined) == {topic.id}
    new = again(topic)
    epoch, given, held = joined.member_epoch, {topic.id}, topic

    def moves():
        nonlocal epoch, given
        owned = [{"topic_id": held.id, "partitions": [0]}] if held.id in given else []
        answer = beat(epoch, full=True, topic_partitions=owned, subscribed_topic_names=[topic.name])
        epoch = answer.member_epoch
        given = assigned(answer)
        return given == {new.id}

    until(moves)
    groups = client.call(
        ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=[group], include_authorized_operations=False
    ).groups
    (member,) = groups[0].members
    assert {t.topic_id for t in member.assignment.topic_partitions} <= {new.id}
    assert {t.topic_id for t in member.target_assignment.topic_partitions} == {new.id}
    beat(
        epoch,
        full=True,
        topic_partitions=[{"topic_id": topic.id, "partitions": [0]}],
        subscribed_topic_names=[topic.name],
    )
