"""Test OffsetDelete requests, in every served version, against our broker or Apache's."""

import pytest

from kserver.api import offset_delete as module
from kserver.errors import ErrorCode
from tests.contract.api.group_calls import commit, offsets, stable

KEY, VERSIONS = module.KEY, module.VERSIONS
every_version = pytest.mark.parametrize("version", VERSIONS)


def delete(client, version, group, *topics):
    """Return the error code of the group, and those of the partitions."""
    asked = [
        {"name": name, "partitions": [{"partition_index": p} for p in partitions]}
        for name, *partitions in topics
    ]
    answer = client.call(KEY, version, group_id=group, topics=asked)
    codes = {(t.name, p.partition_index): p.error_code for t in answer.topics for p in t.partitions}
    return answer.error_code, codes


@every_version
def test_offsets_are_deleted_and_what_never_was_is_no_error(client, group, make_topic, version):
    topic = make_topic(3)
    commit(client, group, topic, {0: 5, 1: 7})
    code, codes = delete(client, version, group, (topic.name, 0, 2, 9), ("no-such-topic", 0))
    assert code is ErrorCode.none
    unknown = ErrorCode.unknown_topic_or_partition
    assert codes == {
        (topic.name, 0): ErrorCode.none,
        (topic.name, 2): ErrorCode.none,
        (topic.name, 9): unknown,
        ("no-such-topic", 0): unknown,
    }
    assert offsets(client, group, topic, 0, 1) == {0: -1, 1: 7}


@every_version
def test_what_members_read_is_kept_while_they_are_there(client, group, make_topic, version):
    read, other = make_topic(), make_topic()
    joined = stable(client, group, read.name)
    commit(client, group, read, {0: 5}, joined)
    commit(client, group, other, {0: 6}, joined)
    code, codes = delete(client, version, group, (read.name, 0), (other.name, 0))
    assert code is ErrorCode.none
    assert codes[read.name, 0] is ErrorCode.group_subscribed_to_topic
    assert codes[other.name, 0] is ErrorCode.none
    assert offsets(client, group, read, 0) == {0: 5}
    assert offsets(client, group, other, 0) == {0: -1}


@every_version
def test_what_members_read_that_are_no_consumers_is_not_known(client, group, topic, version):
    stable(client, group, protocol_type="connect", protocols=[{"name": "range", "metadata": b""}])
    assert delete(client, version, group, (topic.name, 0)) == (ErrorCode.non_empty_group, {})


@every_version
def test_a_group_that_there_is_not_has_none(client, group, topic, version):
    assert delete(client, version, group, (topic.name, 0)) == (ErrorCode.group_id_not_found, {})
    assert delete(client, version, "", (topic.name, 0)) == (ErrorCode.invalid_group_id, {})
