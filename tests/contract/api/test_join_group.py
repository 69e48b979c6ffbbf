"""Test JoinGroup requests, in every served version, against our broker or Apache's."""

import pytest

from kserver.api import join_group as module
from kserver.errors import ErrorCode
from tests.contract.api.group_calls import (
    PROTOCOL,
    PROTOCOL_TYPE,
    heartbeat,
    join,
    join_both,
    join_fields,
    many,
    stable,
    subscription,
    sync,
)
from tests.support.wire_client import milliseconds

KEY, VERSIONS = module.KEY, module.VERSIONS
every_version = pytest.mark.parametrize("version", VERSIONS)
FIRST_WITH_REQUIRED_ID, FIRST_WITH_INSTANCE_ID = 4, 5
FIRST_WITH_PROTOCOL_TYPE, FIRST_WITH_SKIPPED_ASSIGNMENT = 7, 9


@every_version
def test_the_only_member_leads_the_first_generation(client, group, version):
    joined = join(client, group, version=version)
    assert joined.error_code is ErrorCode.none
    assert joined.generation_id == 1
    assert joined.protocol_name == PROTOCOL
    assert joined.leader == joined.member_id
    assert joined.member_id.startswith("wire-")
    ((member),) = joined.members
    assert (member.member_id, member.metadata) == (joined.member_id, subscription())
    if version >= FIRST_WITH_PROTOCOL_TYPE:
        assert joined.protocol_type == PROTOCOL_TYPE


@pytest.mark.parametrize("version", [v for v in VERSIONS if v >= FIRST_WITH_REQUIRED_ID])
def test_who_has_no_id_is_given_one_and_has_to_come_again(client, group, version):
    asked = client.call(KEY, version, **join_fields(group))
    assert asked.error_code is ErrorCode.member_id_required
    assert asked.generation_id == -1
    joined = client.call(KEY, version, **join_fields(group, asked.member_id))
    assert joined.member_id == asked.member_id
    assert joined.error_code is ErrorCode.none


def test_the_leader_alone_is_told_the_members(broker, group):
    with many(broker, 2) as (one, other):
        before = stable(one, group)
        first, second = join_both(one, before.member_id, other, group)
        assert first.generation_id == second.generation_id == 2
        assert first.leader == second.leader == before.member_id
        assert {m.member_id for m in first.members} == {first.member_id, second.member_id}
        assert second.members == ()


@every_version
def test_who_has_an_id_that_nobody_gave_is_refused(client, group, version):
    answer = client.call(KEY, version, **join_fields(group, "wire-1"))
    assert answer.error_code is ErrorCode.unknown_member_id
    assert answer.member_id == "wire-1"
    stable(client, group)
    answer = client.call(KEY, version, **join_fields(group, "wire-1"))
    assert answer.error_code is ErrorCode.unknown_member_id


@every_version
@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"group_id": ""}, ErrorCode.invalid_group_id),
        ({"session_timeout": milliseconds(1)}, ErrorCode.invalid_session_timeout),
        ({"session_timeout": milliseconds(2_000_000)}, ErrorCode.invalid_session_timeout),
        ({"protocols": ()}, ErrorCode.inconsistent_group_protocol),
        ({"protocol_type": ""}, ErrorCode.inconsistent_group_protocol),
    ],
)
def test_what_no_group_could_be_is_refused(client, group, version, fields, error):
    answer = client.call(KEY, version, **join_fields(group) | fields)
    assert answer.error_code is error


@every_version
def test_who_shares_no_protocol_with_the_members_is_refused(client, group, version):
    stable(client, group)
    protocols = [{"name": "mine", "metadata": b""}]
    for fields in ({"protocols": protocols}, {"protocol_type": "connect"}):
        answer = client.call(KEY, version, **join_fields(group) | fields)
        assert answer.error_code is ErrorCode.inconsistent_group_protocol


@every_version
def test_a_follower_that_joins_again_as_it_was_is_told_the_generation(broker, group, version):
    with many(broker, 2) as (one, other):
        before = stable(one, group)
        first, second = join_both(one, before.member_id, other, group)
        assert sync(one, group, first, {}).error_code is ErrorCode.none
        again = other.call(KEY, version, **join_fields(group, second.member_id))
        assert again.error_code is ErrorCode.none
        assert (again.generation_id, again.leader) == (2, before.member_id)
        assert heartbeat(one, group, first) is ErrorCode.none


@pytest.mark.parametrize("version", [v for v in VERSIONS if v >= FIRST_WITH_INSTANCE_ID])
def test_a_static_member_that_starts_again_goes_on_where_it_was(client, group, version):
    before = join(client, group, version=version, group_instance_id="i")
    assert before.error_code is ErrorCode.none
    assert before.member_id.startswith("i-")
    (member,) = before.members
    assert member.group_instance_id == "i"
    sync(client, group, before, {before.member_id: b"mine"})
    again = join(client, group, version=version, group_instance_id="i")
    assert again.error_code is ErrorCode.none
    assert again.generation_id == 1
    assert again.member_id != before.member_id
    if version >= FIRST_WITH_SKIPPED_ASSIGNMENT:
        assert again.skip_assignment
        assert again.leader == again.member_id
        assert [m.member_id for m in again.members] == [again.member_id]
    else:
        assert again.leader == before.member_id
        assert again.members == ()
    assert sync(client, group, again, {}).assignment == b"mine"
    fenced = join_fields(group, before.member_id, group_instance_id="i")
    assert client.call(KEY, version, **fenced).error_code is ErrorCode.fenced_instance_id
