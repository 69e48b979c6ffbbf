"""Test DescribeLogDirs requests, in every served version, against our broker or Apache's."""

import pytest

from kserver.api import describe_log_dirs as module
from kserver.errors import ErrorCode
from tests.contract.api.calls import batch, produce

KEY, VERSIONS = module.KEY, module.VERSIONS
every_version = pytest.mark.parametrize("version", VERSIONS)


def described(client, version, topics):
    """Return the directory, and (size, lag, is future) of its replicas."""
    answer = client.call(KEY, version, topics=topics)
    assert getattr(answer, "error_code", ErrorCode.none) is ErrorCode.none
    (directory,) = answer.results
    replicas = {
        (topic.name, p.partition_index): (p.partition_size, p.offset_lag, p.is_future_key)
        for topic in directory.topics
        for p in topic.partitions
    }
    return directory, replicas


@every_version
def test_replicas_are_told_with_their_sizes(broker, client, make_topic, version):
    topic = make_topic(partitions=2)
    sent = batch(b"a", b"b")
    produce(client, 9, topic, sent)
    directory, replicas = described(client, version, None)
    assert (directory.error_code, directory.log_dir) == (ErrorCode.none, str(broker.data))
    assert replicas[topic.name, 0] == (len(sent), 0, False)
    assert replicas[topic.name, 1] == (0, 0, False)


@every_version
def test_only_what_is_asked_for_is_told(client, make_topic, version):
    topic = make_topic(partitions=2)
    asked = [{"topic": topic.name, "partitions": [1, 2]}, {"topic": "missing", "partitions": [0]}]
    assert described(client, version, asked)[1] == {(topic.name, 1): (0, 0, False)}
    assert described(client, version, [])[1] == {}


@pytest.mark.parametrize("version", [v for v in VERSIONS if v >= 4])
def test_the_room_on_the_disk_is_told(client, version):
    directory, _ = described(client, version, [])
    assert 0 < directory.usable_bytes <= directory.total_bytes
    assert not getattr(directory, "is_cordoned", False)
