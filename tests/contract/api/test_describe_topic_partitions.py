"""Test DescribeTopicPartitions requests, in every version, against our broker or Apache's."""

import pytest

from kserver.api import describe_topic_partitions as module
from kserver.errors import ErrorCode

KEY, VERSIONS = module.KEY, module.VERSIONS
every_version = pytest.mark.parametrize("version", VERSIONS)


def ask(client, version, *names, limit=2000, cursor=None):
    topics = [{"name": name} for name in names]
    return client.call(KEY, version, topics=topics, response_partition_limit=limit, cursor=cursor)


@every_version
def test_tells_of_each_partition_leader_replicas_and_isr(client, make_topic, version):
    topic = make_topic(partitions=3)
    answer = ask(client, version, topic.name)
    (found,) = answer.topics
    assert (found.error_code, found.name, found.topic_id) == (
        ErrorCode.none,
        topic.name,
        topic.id,
    )
    assert [p.partition_index for p in found.partitions] == [0, 1, 2]
    for partition in found.partitions:
        assert tuple(partition.replica_nodes) == tuple(partition.isr_nodes)
        assert partition.leader_id == partition.replica_nodes[0]
        # Java's client dereferences them, so they must not be null.
        assert partition.eligible_leader_replicas is not None
        assert partition.last_known_elr is not None
    assert answer.next_cursor is None


@every_version
def test_the_cursor_leads_through_all_partitions_in_small_answers(client, make_topic, version):
    wanted = sorted(make_topic(partitions=n).name for n in (3, 1, 4))
    seen, cursor = [], None
    for _ in range(20):
        answer = ask(client, version, *wanted, limit=2, cursor=cursor)
        told = [(t.name, p.partition_index) for t in answer.topics for p in t.partitions]
        assert 0 < len(told) <= 2
        seen += told
        if answer.next_cursor is None:
            break
        cursor = {
            "topic_name": answer.next_cursor.topic_name,
            "partition_index": answer.next_cursor.partition_index,
        }
    assert len(seen) == len(set(seen)) == 8
    assert [name for name, _ in seen] == sorted(name for name, _ in seen)
    assert {name for name, _ in seen} == set(wanted)


@every_version
def test_missing_and_invalid_names_are_told_apart(client, topic, version):
    found = {t.name: t.error_code for t in ask(client, version, "missing", topic.name).topics}
    assert found == {
        "missing": ErrorCode.unknown_topic_or_partition,
        topic.name: ErrorCode.none,
    }
    (invalid,) = ask(client, version, "no/slash").topics
    assert invalid.error_code is ErrorCode.invalid_topic_exception


@every_version
@pytest.mark.parametrize("wrong", [{"topic_name": "not-asked"}, {"partition_index": -1}], ids=str)
def test_a_cursor_that_names_nothing_that_was_asked_for_is_refused(client, topic, version, wrong):
    cursor = {"topic_name": topic.name, "partition_index": 0} | wrong
    answer = ask(client, version, topic.name, cursor=cursor)
    (found,) = answer.topics
    assert (found.name, found.error_code) == (topic.name, ErrorCode.invalid_request)
