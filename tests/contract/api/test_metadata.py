"""Test Metadata requests, in every served version, against our broker or Apache's."""

import uuid

import pytest

from kserver.api import metadata as module
from kserver.errors import ErrorCode
from tests.support import brokers
from tests.support.wire_client import WireClient

KEY, VERSIONS = module.KEY, module.VERSIONS
every_version = pytest.mark.parametrize("version", VERSIONS)
FIRST_THAT_FORBIDS_CREATION = 4
INVALID_NAMES = ("", ".", "..", "no/slash", "no space", "ü", "x" * 250)
NO_ID = uuid.UUID(int=0)


def ask(client, version, *names, create=False):
    """Return the topics of the response, by name; before v4 a client cannot forbid their
    creation."""
    topics = [{"name": name} for name in names]
    answer = client.call(KEY, version, topics=topics, allow_auto_topic_creation=create)
    assert answer.brokers
    return {topic.name: topic for topic in answer.topics}


def all_names(client):
    answer = client.call(KEY, 1, topics=None)
    return {topic.name for topic in answer.topics}


@every_version
def test_names_the_broker_at_the_address_that_the_client_used(broker, client, version):
    answer = client.call(KEY, version, topics=[])
    (node,) = answer.brokers
    assert f"{node.host}:{node.port}" == broker.address
    if version >= 1:
        assert answer.controller_id == node.node_id
        assert node.rack is None
    if version >= 2:
        assert answer.cluster_id


@every_version
def test_tells_of_each_partition_leader_replicas_and_isr(client, make_topic, version):
    topic = make_topic(partitions=3)
    node = client.call(KEY, version, topics=[]).brokers[0].node_id
    found = ask(client, version, topic.name)[topic.name]
    assert found.error_code is ErrorCode.none
    assert sorted(p.partition_index for p in found.partitions) == [0, 1, 2]
    for partition in found.partitions:
        assert partition.error_code is ErrorCode.none
        assert partition.leader_id == node
        assert tuple(partition.replica_nodes) == tuple(partition.isr_nodes) == (node,)
        if version >= 5:
            assert tuple(partition.offline_replicas) == ()
        if version >= 7:
            assert partition.leader_epoch == 0
    if version >= 1:
        assert not found.is_internal
    if version >= 10:
        assert found.topic_id == topic.id != NO_ID


@every_version
def test_no_list_of_topics_means_all_of_them(client, topic, version):
    answer = client.call(KEY, version, topics=[] if version == 0 else None)
    assert topic.name in {t.name for t in answer.topics}
    assert answer.brokers


@pytest.mark.parametrize("version", VERSIONS[1:])
def test_an_empty_list_of_topics_means_none_and_yet_brokers(client, topic, version):
    answer = client.call(KEY, version, topics=[])
    assert list(answer.topics) == []
    assert answer.brokers


@pytest.mark.parametrize("version", [v for v in VERSIONS if v >= FIRST_THAT_FORBIDS_CREATION])
def test_a_missing_topic_that_the_client_does_not_want_is_not_made(client, name, version):
    missing = ask(client, version, name)[name]
    assert missing.error_code is ErrorCode.unknown_topic_or_partition
    assert list(missing.partitions) == []
    assert name not in all_names(client)


@every_version
def test_a_missing_topic_is_made_with_the_brokers_default_of_partitions(client, name, version):
    def made():
        return ask(client, version, name, create=True)[name]

    brokers.until(lambda: made().error_code is ErrorCode.none)
    assert len(made().partitions) == 2


@every_version
@pytest.mark.parametrize("invalid", INVALID_NAMES)
def test_an_invalid_name_is_named_so_and_never_made(client, topic, version, invalid):
    found = ask(client, version, invalid, topic.name, create=True)
    assert found[invalid].error_code is ErrorCode.invalid_topic_exception
    assert found[topic.name].error_code is ErrorCode.none
    assert invalid not in all_names(client)


@pytest.mark.parametrize("version", [v for v in VERSIONS if v >= 12])
def test_a_topic_is_found_by_its_id(client, topic, version):
    def by_id(topic_id):
        answer = client.call(
            KEY,
            version,
            topics=[{"topic_id": topic_id, "name": None}],
            allow_auto_topic_creation=True,
        )
        (found,) = answer.topics
        return found

    assert (by_id(topic.id).error_code, by_id(topic.id).name) == (ErrorCode.none, topic.name)
    other = uuid.uuid4()
    assert (by_id(other).error_code, by_id(other).topic_id) == (ErrorCode.unknown_topic_id, other)


@pytest.mark.parametrize("version", [8, 9, 10, 11, 12, 13])
def test_authorized_operations_are_told_when_asked(client, topic, version):
    def operations(wanted):
        answer = client.call(
            KEY,
            version,
            topics=[{"name": topic.name}],
            include_topic_authorized_operations=wanted,
            include_cluster_authorized_operations=wanted,
        )
        told = [answer.topics[0].topic_authorized_operations]
        if version <= 10:
            told.append(answer.cluster_authorized_operations)
        return told

    assert all(bits == -(2**31) for bits in operations(False))
    assert all(bits > 0 for bits in operations(True))


@pytest.fixture(scope="module")
def strict_broker(kind, tmp_path_factory):
    settings = {"auto.create.topics.enable": "false"}
    with brokers.running(kind, tmp_path_factory.mktemp("strict"), settings) as broker:
        yield broker


@every_version
def test_nothing_is_made_where_the_broker_forbids_it(strict_broker, name, version):
    with WireClient(strict_broker.address) as client:
        for _ in range(2):
            missing = ask(client, version, name, create=True)[name]
            assert missing.error_code is ErrorCode.unknown_topic_or_partition
        assert name not in all_names(client)
