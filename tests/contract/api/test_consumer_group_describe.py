"""Test ConsumerGroupDescribe requests, in every served version, against our broker or Apache's."""

import itertools

import pytest

from kserver.api import consumer_group_describe as module
from kserver.errors import ErrorCode
from tests.contract.api.calls import consumer_heartbeat, coordinated

KEY, VERSIONS = module.KEY, module.VERSIONS
pytestmark = pytest.mark.usefixtures("since_4")
every_version = pytest.mark.parametrize("version", VERSIONS)
GROUPS = (f"described-{n}" for n in itertools.count())
FIRST_WITH_MEMBER_TYPE = 1
CONSUMER_MEMBER = 1


@pytest.fixture
def group(client):
    return coordinated(client, next(GROUPS))


def describe(client, version, *groups, **fields):
    return client.call(KEY, version, group_ids=groups, **fields).groups


@every_version
def test_a_group_is_told_with_what_its_members_have(client, topic, group, version):
    names = [topic.name]
    consumer_heartbeat(
        client, 1, group, "m", 0, instance_id="i", rack_id="r", subscribed_topic_names=names
    )
    (found,) = describe(client, version, group)
    assert found.error_code is ErrorCode.none
    assert (found.group_id, found.group_state, found.assignor_name) == (group, "Stable", "uniform")
    assert (found.group_epoch, found.assignment_epoch) == (2, 2)
    (member,) = found.members
    assert (member.member_id, member.instance_id, member.rack_id) == ("m", "i", "r")
    assert (member.member_epoch, member.client_host) == (2, "/127.0.0.1")
    assert list(member.subscribed_topic_names) == names
    for assignment in (member.assignment, member.target_assignment):
        (owned,) = assignment.topic_partitions
        assert (owned.topic_id, owned.topic_name, *owned.partitions) == (topic.id, topic.name, 0)
    if version >= FIRST_WITH_MEMBER_TYPE:
        assert member.member_type == CONSUMER_MEMBER


@every_version
def test_a_group_that_all_have_left_is_empty(client, topic, group, version):
    consumer_heartbeat(client, 1, group, "m", 0, subscribed_topic_names=[topic.name])
    consumer_heartbeat(client, 1, group, "m", -1)
    (found,) = describe(client, version, group)
    assert (found.group_state, found.members) == ("Empty", ())


@every_version
def test_each_group_is_answered_and_those_that_are_not_there_say_so(client, topic, group, version):
    consumer_heartbeat(client, 1, group, "m", 0, subscribed_topic_names=[topic.name])
    missing, there = describe(client, version, "no-such-group", group)
    assert (missing.group_id, missing.error_code) == ("no-such-group", ErrorCode.group_id_not_found)
    assert (there.group_id, there.error_code) == (group, ErrorCode.none)


@every_version
def test_operations_are_told_to_who_asks(client, topic, group, version):
    consumer_heartbeat(client, 1, group, "m", 0, subscribed_topic_names=[topic.name])
    (told,) = describe(client, version, group, include_authorized_operations=True)
    (untold,) = describe(client, version, group)
    assert told.authorized_operations > 0
    assert untold.authorized_operations == -(2**31)


@every_version
def test_a_group_without_a_name_is_invalid(client, version):
    (found,) = describe(client, version, "")
    assert found.error_code is ErrorCode.invalid_group_id
