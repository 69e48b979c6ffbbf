import datetime
import uuid

import pytest

from kserver.errors import ErrorCode, ProtocolError
from kserver.wire import codec
from kserver.wire.api_key import ApiKey
from kserver.wire.versions import ABSENT, reply_to, request
from tests.support.messages import VERSIONS, filled


def metadata_answer(version):
    reply = reply_to(request(ApiKey.METADATA, version)())
    return reply(
        throttle_time=datetime.timedelta(0),
        brokers=[reply.brokers(node_id=1, host="localhost", port=9092)],
        cluster_id="c",
        controller_id=1,
        topics=[
            reply.topics(
                name="orders",
                topic_id=uuid.UUID(int=7),
                partitions=[
                    reply.topics.partitions(partition_index=0, leader_id=1, leader_epoch=4)
                ],
            )
        ],
    )


def test_one_answer_is_built_in_every_version():
    for version in range(14):
        answer = metadata_answer(version)
        assert type(answer) is codec.response_type(ApiKey.METADATA, version)
        (topic,) = answer.topics
        (partition,) = topic.partitions
        assert (topic.name, partition.leader_id) == ("orders", 1)
        assert getattr(topic, "topic_id", None) == (uuid.UUID(int=7) if version >= 10 else None)
        assert getattr(partition, "leader_epoch", None) == (4 if version >= 7 else None)
        assert getattr(answer, "cluster_id", None) == ("c" if version >= 2 else None)


def test_what_is_left_out_is_the_schemas_default_or_the_types_zero():
    (topic,) = metadata_answer(12).topics
    assert topic.error_code is ErrorCode.none
    assert topic.is_internal is False
    assert topic.topic_authorized_operations == -(1 << 31)
    (partition,) = topic.partitions
    assert partition.replica_nodes == ()
    (broker,) = metadata_answer(12).brokers
    assert broker.rack is None


@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_every_message_can_be_built_of_nothing_and_written(key, version):
    asked = request(key, version)()
    assert type(asked) is codec.request_type(key, version)
    assert codec.write_request(asked, 1, None)
    answer = reply_to(asked)()
    assert type(answer) is codec.response_type(key, version)
    frame = memoryview(codec.write_response(key, version, 1, answer))[4:]
    assert codec.read_response(key, version, frame) == (1, answer)


def test_a_request_that_was_read_is_answered_in_its_version():
    frame = memoryview(codec.write_request(filled(codec.request_type(12, 3)), 1, None))[4:]
    header, at = codec.read_request_header(frame)
    asked = codec.read_request(header, frame, at)
    assert type(reply_to(asked)()) is codec.response_type(12, 3)


def test_parts_a_version_lacks_build_nothing_however_deep():
    reply = reply_to(request(ApiKey.METADATA, 1)())
    assert reply.not_there is ABSENT
    assert reply.not_there.nor_this(name="x") is None
    assert reply.topics.not_there(name="x") is None


def test_lists_become_the_tuples_that_kio_has():
    assert metadata_answer(1).brokers[0].host == "localhost"
    assert type(metadata_answer(1).brokers) is tuple


def test_a_version_that_does_not_exist_cannot_be_built():
    with pytest.raises(ProtocolError, match="Metadata has no version 99"):
        request(ApiKey.METADATA, 99)
