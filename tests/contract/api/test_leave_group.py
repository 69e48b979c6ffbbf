"""Test LeaveGroup requests, in every served version, against our broker or Apache's."""

import pytest

from kserver.api import leave_group as module
from kserver.errors import ErrorCode
from tests.contract.api.group_calls import heartbeat, join_both, many, stable

KEY, VERSIONS = module.KEY, module.VERSIONS
every_version = pytest.mark.parametrize("version", VERSIONS)
FIRST_WITH_MANY_MEMBERS = 3


def leave(client, version, group, *members):
    """Return the error codes of the members, given by member id and instance id."""
    if version < FIRST_WITH_MANY_MEMBERS:
        ((member_id, _),) = members
        return [client.call(KEY, version, group_id=group, member_id=member_id).error_code]
    named = [{"member_id": id, "group_instance_id": instance_id} for id, instance_id in members]
    answer = client.call(KEY, version, group_id=group, members=named)
    assert answer.error_code is ErrorCode.none
    assert [(m.member_id, m.group_instance_id) for m in answer.members] == list(members)
    return [member.error_code for member in answer.members]


@every_version
def test_who_has_left_is_no_member_any_more(client, group, version):
    joined = stable(client, group)
    assert leave(client, version, group, (joined.member_id, None)) == [ErrorCode.none]
    unknown = ErrorCode.unknown_member_id
    assert heartbeat(client, group, joined) is unknown
    assert leave(client, version, group, (joined.member_id, None)) == [unknown]


@every_version
def test_the_others_rebalance_at_once(broker, group, version):
    with many(broker, 2) as (one, other):
        before = stable(one, group)
        first, second = join_both(one, before.member_id, other, group)
        assert leave(other, version, group, (second.member_id, None)) == [ErrorCode.none]
        assert heartbeat(one, group, first) is ErrorCode.rebalance_in_progress


@every_version
def test_nobody_leaves_a_group_that_there_is_not(client, group, version):
    assert leave(client, version, group, ("m", None)) == [ErrorCode.unknown_member_id]


@every_version
def test_a_group_has_a_name(client, version):
    answer = client.call(KEY, version, group_id="", member_id="m", members=[{"member_id": "m"}])
    assert answer.error_code is ErrorCode.invalid_group_id


@pytest.mark.parametrize("version", [v for v in VERSIONS if v >= FIRST_WITH_MANY_MEMBERS])
def test_static_members_are_removed_by_their_instance_ids(client, group, version):
    joined = stable(client, group, group_instance_id="i")
    named = [("", "j"), ("wire-1", "i"), ("", "i")]
    codes = [ErrorCode.unknown_member_id, ErrorCode.fenced_instance_id, ErrorCode.none]
    assert leave(client, version, group, *named) == codes
    gone = heartbeat(client, group, joined, group_instance_id="i")
    assert gone is ErrorCode.unknown_member_id
