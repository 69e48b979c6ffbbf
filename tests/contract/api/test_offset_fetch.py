"""Test OffsetFetch requests, in every served version, against our broker or Apache's."""

import uuid

import pytest

from kserver.api import offset_fetch as module
from kserver.errors import ErrorCode
from kserver.wire.api_key import ApiKey
from tests.contract.api.calls import Topic
from tests.contract.api.group_calls import (
    FIRST_FETCH_OF_MANY,
    FIRST_WITH_TOPIC_IDS,
    commit,
    fetch,
    named,
    offsets,
)
from tests.support import brokers
from tests.support.brokers import until
from tests.support.wire_client import WireClient, milliseconds

KEY, VERSIONS = module.KEY, module.VERSIONS
every_version = pytest.mark.parametrize("version", VERSIONS)
FIRST_OF_ALL, FIRST_WITH_LEADER_EPOCH, FIRST_WITH_STABLE = 2, 5, 7


@pytest.fixture(scope="module")
def fresh(kind, tmp_path_factory):
    """A connection to a broker that has not received a FindCoordinator request yet."""
    with (
        brokers.running(kind, tmp_path_factory.mktemp("fresh")) as broker,
        WireClient(broker.address) as client,
    ):
        yield client


@every_version
def test_what_was_committed_is_told_and_the_rest_is_minus_1(client, group, make_topic, version):
    topic = make_topic(2)
    commit(client, group, topic, {0: 5})
    found = fetch(client, group, topic, 0, 1, 99, version=version)
    first, second, third = found.topics[0].partitions
    assert (first.committed_offset, first.metadata) == (5, "why")
    for one in (second, third):
        assert (one.committed_offset, one.metadata) == (-1, "")
        assert one.error_code is ErrorCode.none
    if version >= FIRST_WITH_LEADER_EPOCH:
        assert first.committed_leader_epoch == -1


@every_version
def test_a_group_that_there_is_not_has_committed_nothing(client, group, topic, version):
    assert offsets(client, group, topic, 0, version=version) == {0: -1}


@every_version
def test_topics_that_do_not_exist_have_no_offsets(client, group, topic, version):
    missing = Topic("no-such-topic", uuid.uuid4())
    found = fetch(client, group, missing, 0, version=version).topics[0].partitions[0]
    assert found.committed_offset == -1
    has_ids = version >= FIRST_WITH_TOPIC_IDS
    assert found.error_code is (ErrorCode.unknown_topic_id if has_ids else ErrorCode.none)


@pytest.mark.parametrize("version", [v for v in VERSIONS if v >= FIRST_OF_ALL])
def test_all_that_a_group_has_committed_is_told(client, group, make_topic, version):
    topics = [make_topic(2), make_topic()]
    commit(client, group, topics[0], {0: 5, 1: 7})
    commit(client, group, topics[1], {0: 3})
    found = fetch(client, group, None, version=version)
    assert found.error_code is ErrorCode.none
    has_ids = version >= FIRST_WITH_TOPIC_IDS
    assert {
        (t.topic_id if has_ids else t.name, p.partition_index, p.committed_offset)
        for t in found.topics
        for p in t.partitions
    } == {
        (t.id if has_ids else t.name, partition, offset)
        for t, partition, offset in [(topics[0], 0, 5), (topics[0], 1, 7), (topics[1], 0, 3)]
    }


@pytest.mark.parametrize("version", [v for v in VERSIONS if v >= FIRST_FETCH_OF_MANY])
def test_many_groups_are_asked_at_once(client, group, topic, version):
    commit(client, group, topic, {0: 5})
    commit(client, f"{group}-2", topic, {0: 6})
    topics = [named(version, topic) | {"partition_indexes": [0]}]
    names = [group, f"{group}-2", f"{group}-3"]
    asked = [{"group_id": name, "topics": topics} for name in names]
    groups = client.call(KEY, version, groups=asked).groups
    found = {g.group_id: g.topics[0].partitions[0].committed_offset for g in groups}
    assert found == dict(zip(names, [5, 6, -1], strict=True))


@pytest.mark.parametrize("version", [v for v in VERSIONS if v >= FIRST_WITH_STABLE])
def test_without_transactions_what_was_committed_is_stable(client, group, topic, version):
    commit(client, group, topic, {0: 5})
    assert offsets(client, group, topic, 0, version=version, require_stable=True) == {0: 5}


@every_version
def test_offsets_go_with_their_topic(client, group, topic, make_topic, version):
    kept = make_topic()
    commit(client, group, topic, {0: 5})
    commit(client, group, kept, {0: 6})
    client.call(ApiKey.DELETE_TOPICS, 5, topic_names=[topic.name], timeout=milliseconds(10_000))
    until(lambda: offsets(client, group, topic, 0) == {0: -1})
    assert offsets(client, group, kept, 0, version=version) == {0: 6}


@every_version
def test_where_there_is_no_coordinator_it_is_to_be_looked_for(fresh, version):
    topic = Topic("t", uuid.uuid4())
    if version < FIRST_OF_ALL:
        found = fetch(fresh, "g", topic, 0, version=version).topics[0].partitions[0]
    else:
        found = fetch(fresh, "g", topic, 0, version=version)
    assert found.error_code is ErrorCode.not_coordinator


def test_a_connection_that_ends_while_it_asks_does_no_harm(broker, client, group, topic):
    commit(client, group, topic, {0: 5})
    with WireClient(broker.address) as other:
        topics = [{"name": topic.name, "partition_indexes": [0]}]
        other.send(KEY, 7, group_id=group, topics=topics, require_stable=True)
    assert offsets(client, group, topic, 0) == {0: 5}
