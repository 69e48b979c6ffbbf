"""Test Heartbeat requests, in every served version, against our broker or Apache's."""

import pytest

from kserver.api import heartbeat as module
from kserver.errors import ErrorCode
from kserver.wire.api_key import ApiKey
from tests.contract.api.group_calls import (
    NEWEST_JOIN,
    heartbeat,
    join,
    join_fields,
    many,
    stable,
    sync,
)
from tests.support.brokers import until

KEY, VERSIONS = module.KEY, module.VERSIONS
every_version = pytest.mark.parametrize("version", VERSIONS)
FIRST_WITH_INSTANCE_ID = 3


@every_version
def test_a_member_is_there(client, group, version):
    joined = join(client, group)
    assert heartbeat(client, group, joined, version) is ErrorCode.none, "before it has its part too"
    joined = stable(client, f"{group}-2")
    assert heartbeat(client, f"{group}-2", joined, version) is ErrorCode.none


@every_version
@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"group_id": ""}, ErrorCode.invalid_group_id),
        ({"group_id": "no such group"}, ErrorCode.unknown_member_id),
        ({"member_id": "wire-1"}, ErrorCode.unknown_member_id),
        ({"generation_id": 0}, ErrorCode.illegal_generation),
        ({"generation_id": 7}, ErrorCode.illegal_generation),
    ],
)
def test_who_is_not_of_this_generation_is_refused(client, group, version, fields, error):
    joined = stable(client, group)
    assert heartbeat(client, group, joined, version, **fields) is error


@every_version
def test_a_member_is_told_that_a_rebalance_waits_for_it(broker, group, version):
    with many(broker, 2) as (one, other):
        joined = stable(one, group)
        asked = other.call(ApiKey.JOIN_GROUP, NEWEST_JOIN, **join_fields(group))
        other.send(ApiKey.JOIN_GROUP, NEWEST_JOIN, **join_fields(group, asked.member_id))
        waits = ErrorCode.rebalance_in_progress
        until(lambda: heartbeat(one, group, joined, version) is waits)


@pytest.mark.parametrize("version", [v for v in VERSIONS if v >= FIRST_WITH_INSTANCE_ID])
def test_a_static_member_that_was_replaced_is_fenced(client, group, version):
    joined = stable(client, group, group_instance_id="i")
    again = join(client, group, group_instance_id="i")
    for one, code in ((joined, ErrorCode.fenced_instance_id), (again, ErrorCode.none)):
        assert heartbeat(client, group, one, version, group_instance_id="i") is code
    unknown = heartbeat(client, group, again, version, group_instance_id="j")
    assert unknown is ErrorCode.unknown_member_id


def test_members_go_on_when_the_coordinator_was_away(broker, client, group):
    joined = stable(client, group)
    broker.kill()
    broker.start()
    with many(broker, 1) as (again,):
        # While groups are loaded every heartbeat succeeds.
        until(lambda: sync(again, group, joined, {}).assignment == b"mine")
        assert heartbeat(again, group, joined) is ErrorCode.none
