"""Test DeleteTopics requests, in every served version, against our broker or Apache's."""

import uuid

import pytest

from kserver.api import delete_topics as module
from kserver.errors import ErrorCode
from tests.contract.api.calls import batch, fetch, partition_count, produce, topic_id
from tests.support import brokers
from tests.support.wire_client import milliseconds

KEY, VERSIONS = module.KEY, module.VERSIONS
every_version = pytest.mark.parametrize("version", VERSIONS)
DELETES_BY_ID_FROM = 6
TIMEOUT = milliseconds(30_000)


def delete(client, version, *names):
    """Return the error code of each name."""
    if version >= DELETES_BY_ID_FROM:
        named = {"topics": [{"name": name, "topic_id": None} for name in names]}
    else:
        named = {"topic_names": list(names)}
    answer = client.call(KEY, version, timeout=TIMEOUT, **named)
    return {r.name: r.error_code for r in answer.responses}


@every_version
def test_a_deleted_topic_is_gone_and_its_name_free(broker, client, make_topic, version):
    topic = make_topic(partitions=2)
    produce(client, 9, topic, batch(b"a"))
    codes = delete(client, version, topic.name, "missing")
    assert codes == {
        topic.name: ErrorCode.none,
        "missing": ErrorCode.unknown_topic_or_partition,
    }
    brokers.until(lambda: partition_count(client, topic.name) is None)
    brokers.create_topic(broker.address, topic.name)
    assert topic_id(client, topic.name) != topic.id
    assert fetch(client, 12, topic, 0).high_watermark == 0


@every_version
def test_a_topic_that_is_named_twice_is_not_deleted(client, topic, version):
    if version >= DELETES_BY_ID_FROM:
        named = {"topics": [{"name": topic.name, "topic_id": None}] * 2}
    else:
        named = {"topic_names": [topic.name] * 2}
    answer = client.call(KEY, version, timeout=TIMEOUT, **named)
    assert [r.error_code for r in answer.responses] == [ErrorCode.invalid_request]
    assert partition_count(client, topic.name) == 1


@pytest.mark.parametrize("version", [v for v in VERSIONS if v >= DELETES_BY_ID_FROM])
def test_a_topic_is_deleted_by_its_id(client, topic, version):
    def by_id(topic_id, name=None):
        topics = [{"name": name, "topic_id": topic_id}]
        (answer,) = client.call(KEY, version, topics=topics, timeout=TIMEOUT).responses
        return answer

    assert by_id(uuid.uuid4()).error_code is ErrorCode.unknown_topic_id
    assert by_id(None).error_code is ErrorCode.invalid_request, "neither name nor id"
    assert by_id(topic.id, topic.name).error_code is ErrorCode.invalid_request
    deleted = by_id(topic.id)
    assert (deleted.error_code, deleted.name) == (ErrorCode.none, topic.name)
