"""Test SyncGroup requests, in every served version, against our broker or Apache's."""

import pytest

from kserver.api import sync_group as module
from kserver.errors import ErrorCode
from kserver.wire.api_key import ApiKey
from tests.contract.api.group_calls import (
    NEWEST_JOIN,
    PROTOCOL,
    PROTOCOL_TYPE,
    heartbeat,
    join,
    join_both,
    join_fields,
    many,
    stable,
    sync,
)
from tests.support.brokers import until

KEY, VERSIONS = module.KEY, module.VERSIONS
every_version = pytest.mark.parametrize("version", VERSIONS)
FIRST_WITH_INSTANCE_ID, FIRST_WITH_PROTOCOL = 3, 5
TOO_LARGE = 2 << 20


@every_version
def test_the_leader_gives_each_member_its_part(broker, group, version):
    with many(broker, 2) as (one, other):
        before = stable(one, group)
        first, second = join_both(one, before.member_id, other, group)
        named = {"group_id": group, "generation_id": 2, "member_id": second.member_id}
        named |= {"protocol_type": PROTOCOL_TYPE, "protocol_name": PROTOCOL, "assignments": ()}
        ticket = other.send(KEY, version, **named)
        parts = {first.member_id: b"first", second.member_id: b"second"}
        answers = sync(one, group, first, parts, version), other.receive(KEY, version, ticket)
    assert [answer.error_code for answer in answers] == [ErrorCode.none] * 2
    assert [answer.assignment for answer in answers] == [b"first", b"second"]
    if version >= FIRST_WITH_PROTOCOL:
        assert (answers[1].protocol_type, answers[1].protocol_name) == (PROTOCOL_TYPE, PROTOCOL)


@every_version
def test_in_a_stable_group_a_member_is_told_its_part_at_once(client, group, version):
    joined = stable(client, group)
    assert sync(client, group, joined, {}, version).assignment == b"mine"


@every_version
@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"group_id": ""}, ErrorCode.invalid_group_id),
        ({"group_id": "no such group"}, ErrorCode.unknown_member_id),
        ({"member_id": "wire-1"}, ErrorCode.unknown_member_id),
        ({"generation_id": 7}, ErrorCode.illegal_generation),
    ],
)
def test_who_is_not_of_this_generation_is_refused(client, group, version, fields, error):
    joined = join(client, group)
    assert sync(client, group, joined, {}, version, **fields).error_code is error


@pytest.mark.parametrize("version", [v for v in VERSIONS if v >= FIRST_WITH_INSTANCE_ID])
def test_a_static_member_that_was_replaced_is_fenced(client, group, version):
    joined = stable(client, group, group_instance_id="i")
    join(client, group, group_instance_id="i")
    answer = sync(client, group, joined, {}, version, group_instance_id="i")
    assert answer.error_code is ErrorCode.fenced_instance_id


@pytest.mark.parametrize("version", [v for v in VERSIONS if v >= FIRST_WITH_PROTOCOL])
@pytest.mark.parametrize(
    "fields",
    [
        {"protocol_type": None},
        {"protocol_name": None},
        {"protocol_type": "connect"},
        {"protocol_name": "sticky"},
    ],
)
def test_the_protocol_has_to_be_named_and_the_groups(client, group, version, fields):
    joined = join(client, group)
    answer = sync(client, group, joined, {}, version, **fields)
    assert answer.error_code is ErrorCode.inconsistent_group_protocol


@every_version
def test_while_others_are_waited_for_nobody_is_told_anything(broker, group, version):
    with many(broker, 2) as (one, other):
        joined = stable(one, group)
        asked = other.call(ApiKey.JOIN_GROUP, NEWEST_JOIN, **join_fields(group))
        other.send(ApiKey.JOIN_GROUP, NEWEST_JOIN, **join_fields(group, asked.member_id))
        until(lambda: heartbeat(one, group, joined) is ErrorCode.rebalance_in_progress)
        answer = sync(one, group, joined, {}, version)
        assert answer.error_code is ErrorCode.rebalance_in_progress


@every_version
def test_parts_that_no_record_can_hold_are_refused_and_the_group_goes_on(client, group, version):
    joined = join(client, group)
    too_large = {joined.member_id: bytes(TOO_LARGE)}
    refused = sync(client, group, joined, too_large, version)
    assert refused.error_code is ErrorCode.unknown_server_error
    again = join(client, group, joined.member_id)
    assert again.error_code is ErrorCode.none
    assert sync(client, group, again, {joined.member_id: b"mine"}).assignment == b"mine"
