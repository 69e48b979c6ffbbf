"""Test AlterReplicaLogDirs requests, in every served version, against our broker or Apache's."""

import pytest

from kserver.api import alter_replica_log_dirs as module
from kserver.errors import ErrorCode
from kserver.wire.api_key import ApiKey
from tests.contract.api.calls import Topic, batch, fetch, produce, topic_id
from tests.support import brokers
from tests.support.process import BrokerProcess
from tests.support.wire_client import WireClient

KEY, VERSIONS = module.KEY, module.VERSIONS
every_version = pytest.mark.parametrize("version", VERSIONS)


def move(client, version, path, topic, *partitions):
    """Return the error code of each partition."""
    topics = [{"name": topic, "partitions": partitions}]
    (found,) = client.call(KEY, version, dirs=[{"path": str(path), "topics": topics}]).results
    assert found.topic_name == topic
    return {p.partition_index: p.error_code for p in found.partitions}


@every_version
def test_a_replica_stays_where_it_is_asked_to_be(broker, client, topic, version):
    assert move(client, version, broker.data, topic.name, 0) == {0: ErrorCode.none}
    assert produce(client, 9, topic, batch(b"a")).error_code is ErrorCode.none


@every_version
def test_what_is_not_there_is_refused(broker, client, topic, version):
    unknown = {0: ErrorCode.log_dir_not_found}
    assert move(client, version, "/not/a/log/dir", topic.name, 0) == unknown
    absent = dict.fromkeys((1, 2), ErrorCode.unknown_topic_or_partition)
    assert move(client, version, broker.data, topic.name, 1, 2) == absent
    absent = {0: ErrorCode.unknown_topic_or_partition}
    assert move(client, version, broker.data, "missing", 0) == absent


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Our broker with two log directories."""
    root = tmp_path_factory.mktemp("two")
    directories = (root / "a", root / "b")
    settings = {"log.dirs": ",".join(map(str, directories))}
    with BrokerProcess(root, settings) as broker:
        yield broker, directories


@every_version
def test_a_replica_moves_with_its_records(only_ours, two, version):
    broker, directories = two
    name = brokers.create_topic(broker.address, f"moved-{version}", segment_bytes=5000)
    with WireClient(broker.address) as client:
        topic = Topic(name, topic_id(client, name))
        for n in range(20):
            assert produce(client, 9, topic, batch(b"%d" % n * 500)).base_offset == n
        (old,) = [d for d in directories if (d / f"{name}-0").exists()]
        (new,) = [d for d in directories if d != old]
        assert move(client, version, new, name, 0) == {0: ErrorCode.none}
        assert produce(client, 9, topic, batch(b"on")).base_offset == 20

        def replicas():
            answer = client.call(ApiKey.DESCRIBE_LOG_DIRS, 4, topics=None)
            return {
                (found.log_dir, p.is_future_key)
                for found in answer.results
                for of in found.topics
                if of.name == name
                for p in of.partitions
            }

        brokers.until(lambda: replicas() == {(str(new), False)})
        assert not (old / f"{name}-0").exists()
        assert fetch(client, 12, topic, 0).high_watermark == 21
        assert produce(client, 9, topic, batch(b"on")).base_offset == 21
