"""Test DescribeGroups requests, in every served version, against our broker or Apache's."""

import pytest

from kserver.api import describe_groups as module
from kserver.api.response_fields import GROUP_OPERATIONS, NOT_REQUESTED
from kserver.errors import ErrorCode
from kserver.wire.api_key import ApiKey
from tests.contract.api.group_calls import (
    NEWEST_JOIN,
    PROTOCOL,
    commit,
    join,
    join_both,
    join_fields,
    many,
    stable,
    subscription,
)
from tests.support.brokers import until

KEY, VERSIONS = module.KEY, module.VERSIONS
every_version = pytest.mark.parametrize("version", VERSIONS)
FIRST_WITH_OPERATIONS, FIRST_WITH_INSTANCE_ID, FIRST_WITH_NOT_FOUND = 3, 4, 6


def described(client, version, *groups, **fields):
    """Return the described groups in the order of the request, whatever the order of the
    response."""
    found = {g.group_id: g for g in client.call(KEY, version, groups=groups, **fields).groups}
    return [found[group] for group in groups]


@every_version
def test_a_stable_group_is_described_with_what_members_said_and_were_given(client, group, version):
    joined = stable(client, group, "t", group_instance_id="i")
    (found,) = described(client, version, group)
    assert found.error_code is ErrorCode.none
    assert (found.group_state, found.protocol_type) == ("Stable", "consumer")
    assert found.protocol_data == PROTOCOL
    (member,) = found.members
    assert member.member_id == joined.member_id
    assert (member.client_id, member.client_host) == ("wire", "/127.0.0.1")
    assert member.member_metadata == subscription("t")
    assert member.member_assignment == b"mine"
    if version >= FIRST_WITH_INSTANCE_ID:
        assert member.group_instance_id == "i"


@every_version
def test_in_a_rebalance_it_is_not_said_what_members_said(client, group, version):
    joined = join(client, group)
    (found,) = described(client, version, group)
    assert (found.group_state, found.protocol_data) == ("CompletingRebalance", "")
    ((member),) = found.members
    assert (member.member_id, member.member_metadata) == (joined.member_id, b"")


@every_version
def test_what_was_to_be_assigned_anew_is_nobodys_once_that_is_called_off(
    broker, client, group, version
):
    """A rebalance begins while the leader of the previous one has not sent its assignments yet."""
    with many(broker, 2) as (one, other):
        member_id = stable(one, group).member_id
        join_both(one, member_id, other, group)
        (found,) = described(client, version, group)
        assert found.group_state == "CompletingRebalance"
        one.send(ApiKey.JOIN_GROUP, NEWEST_JOIN, **join_fields(group, member_id, "t"))

        def is_called_off():
            (found,) = described(client, version, group)
            assigned = {member.member_assignment for member in found.members}
            return found.group_state == "PreparingRebalance" and assigned == {b""}

        until(is_called_off)


@every_version
def test_a_group_without_members_is_described_and_one_that_there_is_not_is_dead(
    client, group, topic, version
):
    commit(client, group, topic, {0: 5})
    empty, missing = described(client, version, group, f"{group}-missing")
    assert (empty.group_state, empty.protocol_type, empty.members) == ("Empty", "", ())
    assert (missing.group_state, missing.members) == ("Dead", ())
    not_found = version >= FIRST_WITH_NOT_FOUND
    assert missing.error_code is (ErrorCode.group_id_not_found if not_found else ErrorCode.none)
    if not_found:
        assert missing.error_message == f"Group {group}-missing not found."


@pytest.mark.parametrize("version", [v for v in VERSIONS if v >= FIRST_WITH_OPERATIONS])
def test_what_one_may_do_with_a_group_is_told_when_asked_for(kind, client, group, version):
    if kind.startswith("3."):
        pytest.skip("groups have no configurations there")
    stable(client, group)
    (found,) = described(client, version, group, include_authorized_operations=True)
    assert found.authorized_operations == GROUP_OPERATIONS
    (found,) = described(client, version, group, include_authorized_operations=False)
    assert found.authorized_operations == NOT_REQUESTED
