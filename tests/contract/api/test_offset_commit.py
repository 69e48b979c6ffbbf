"""Test OffsetCommit requests, in every served version, against our broker or Apache's."""

import uuid

import pytest

from kserver.api import offset_commit as module
from kserver.errors import ErrorCode
from kserver.wire.api_key import ApiKey
from tests.contract.api.calls import Topic
from tests.contract.api.group_calls import (
    FIRST_WITH_TOPIC_IDS,
    commit,
    commit_fields,
    fetch,
    heartbeat,
    join,
    leave,
    offsets,
    stable,
)
from tests.support.brokers import until
from tests.support.wire_client import WireClient, milliseconds

KEY, VERSIONS = module.KEY, module.VERSIONS
every_version = pytest.mark.parametrize("version", VERSIONS)
FIRST_WITHOUT_RETENTION, FIRST_WITH_LEADER_EPOCH = 5, 6
FIRST_WITH_INSTANCE_ID, FIRST_WITH_NOT_FOUND = 7, 9
NO_METADATA_PAST = 4096
TOPIC = 2


@every_version
def test_a_member_commits_what_it_has_read(client, group, make_topic, version):
    topic = make_topic(2)
    joined = stable(client, group, topic.name)
    done = {0: ErrorCode.none, 1: ErrorCode.none}
    assert commit(client, group, topic, {0: 5, 1: 7}, joined, version) == done
    assert offsets(client, group, topic, 0, 1) == {0: 5, 1: 7}


@every_version
def test_who_takes_no_part_in_groups_commits_as_well(client, group, topic, version):
    assert commit(client, group, topic, {0: 5}, version=version) == {0: ErrorCode.none}
    assert commit(client, group, topic, {0: 3}, version=version) == {0: ErrorCode.none}
    assert offsets(client, group, topic, 0) == {0: 3}


@every_version
def test_the_last_commit_says_more_than_an_offset(client, group, topic, version):
    (fields,) = commit_fields(version, topic, {0: 5})["partitions"]
    asked = commit_fields(version, topic, {})
    asked["partitions"] = [fields | {"committed_leader_epoch": 0, "committed_metadata": "this"}]
    commit(client, group, topic, {}, version=version, topics=[asked])
    ((found,),) = (t.partitions for t in fetch(client, group, topic, 0).topics)
    assert found.metadata == "this"
    assert found.committed_leader_epoch == (0 if version >= FIRST_WITH_LEADER_EPOCH else -1)


@every_version
def test_partitions_that_do_not_exist_are_refused_and_the_others_not(client, group, topic, version):
    codes = commit(client, group, topic, {0: 5, 1: 5, -1: 5}, version=version)
    unknown = ErrorCode.unknown_topic_or_partition
    assert codes == {0: ErrorCode.none, 1: unknown, -1: unknown}
    missing = Topic("no-such-topic", uuid.uuid4())
    expected = ErrorCode.unknown_topic_id if version >= FIRST_WITH_TOPIC_IDS else unknown
    assert commit(client, group, missing, {0: 5}, version=version) == {0: expected}


@every_version
def test_too_long_a_text_is_refused(client, group, topic, version):
    asked = commit_fields(version, topic, {0: 5})
    asked["partitions"][0]["committed_metadata"] = "m" * (NO_METADATA_PAST + 1)
    codes = commit(client, group, topic, {}, version=version, topics=[asked])
    assert codes == {0: ErrorCode.offset_metadata_too_large}


@every_version
@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"generation_id_or_member_epoch": 7}, ErrorCode.illegal_generation),
        ({"member_id": "wire-1"}, ErrorCode.unknown_member_id),
        ({"member_id": "", "generation_id_or_member_epoch": -1}, ErrorCode.unknown_member_id),
    ],
)
def test_while_there_are_members_nobody_else_commits(client, group, topic, version, fields, error):
    joined = stable(client, group)
    assert commit(client, group, topic, {0: 5}, joined, version, **fields) == {0: error}


@every_version
def test_before_it_has_its_part_a_member_does_not_commit(client, group, topic, version):
    joined = join(client, group)
    codes = commit(client, group, topic, {0: 5}, joined, version)
    assert codes == {0: ErrorCode.rebalance_in_progress}


@every_version
def test_no_member_commits_for_a_group_that_there_is_not(kind, client, group, topic, version):
    member = {"generation_id_or_member_epoch": 1, "member_id": "wire-1"}
    not_found = version >= FIRST_WITH_NOT_FOUND and not kind.startswith("3.")
    error = ErrorCode.group_id_not_found if not_found else ErrorCode.illegal_generation
    assert commit(client, group, topic, {0: 5}, version=version, **member) == {0: error}


@pytest.mark.parametrize("version", [v for v in VERSIONS if v >= FIRST_WITH_INSTANCE_ID])
def test_a_static_member_that_was_replaced_is_fenced(client, group, topic, version):
    joined = stable(client, group, group_instance_id="i")
    join(client, group, group_instance_id="i")
    codes = commit(client, group, topic, {0: 5}, joined, version, group_instance_id="i")
    assert codes == {0: ErrorCode.fenced_instance_id}


@pytest.mark.parametrize("version", [v for v in VERSIONS if v < FIRST_WITHOUT_RETENTION])
def test_a_commit_may_say_how_long_it_is_kept(client, group, topic, version):
    kept = {"retention_time": milliseconds(60_000)}
    assert commit(client, group, topic, {0: 5}, version=version, **kept) == {0: ErrorCode.none}
    assert offsets(client, group, topic, 0) == {0: 5}


def test_what_was_committed_outlives_the_broker(broker, client, group, topic):
    joined = stable(client, group, topic.name)
    commit(client, group, topic, {0: 5}, joined)
    leave(client, group, joined.member_id)
    broker.restart()
    with WireClient(broker.address) as again:
        until(lambda: fetch(again, group, topic, 0).error_code is ErrorCode.none)
        assert offsets(again, group, topic, 0) == {0: 5}


@pytest.fixture
def _flushed(only_ours, client, group):
    """Flush __consumer_offsets before each response."""

    def set_to(value):
        change = {"name": "flush.before.ack", "config_operation": 0, "value": value}
        offsets = {"resource_type": TOPIC, "resource_name": "__consumer_offsets"}
        resources = [offsets | {"configs": [change]}]
        (answer,) = client.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=resources).responses
        assert answer.error_code is ErrorCode.none

    set_to("true")
    yield
    set_to("false")


@every_version
@pytest.mark.usefixtures("_flushed")
def test_an_answer_that_waits_for_the_disk_is_the_same(broker, client, group, topic, version):
    joined = stable(client, group)
    with WireClient(broker.address) as other:
        named = {"group_id": group, "member_id": joined.member_id}
        named |= {"generation_id_or_member_epoch": joined.generation_id}
        other.send(KEY, version, topics=[commit_fields(version, topic, {0: 7})], **named)
        assert offsets(client, group, topic, 0)[0] in (-1, 7)
    done = {0: ErrorCode.none, 9: ErrorCode.unknown_topic_or_partition}
    assert commit(client, group, topic, {0: 5, 9: 5}, joined, version) == done
    assert heartbeat(client, group, joined) is ErrorCode.none
    assert offsets(client, group, topic, 0)[0] in (5, 7), "the other may come later"
    refused = {"generation_id_or_member_epoch": 7}
    codes = commit(client, group, topic, {0: 5}, joined, version, **refused)
    assert codes == {0: ErrorCode.illegal_generation}
