"""Static members of classic groups."""

from collections.abc import Iterable

import pytest

from kcli.client.group.group_protocol import Subscription, write_assignment, write_subscription
from kserver.errors import ErrorCode
from kserver.group.group import (
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
)
from kserver.group.requests import JoinGroupResult
from kserver.model import TopicPartition
from tests.support.classic_groups import (
    DELAY_MS,
    Groups,
    heartbeat,
    join,
    leave,
    stable,
    sync,
)
from tests.unit.group.test_classic import RANGE, STICKY, code


def test_a_static_member_that_starts_again_goes_on_where_it_was_without_a_rebalance():
    groups = Groups()
    one, other = stable(groups, join(instance_id="i"), join(instance_id="j"))
    assert one.member_id == "i-1"
    again = groups.ask(join(instance_id="j"))
    assert (again.generation, again.leader) == (1, one.member_id)
    assert again.member_id not in (one.member_id, other.member_id)
    assert groups.ask(sync(again)).assignment == b"of " + other.member_id.encode()
    assert groups.group.state is STABLE
    groups.reload()
    assert groups.ask(heartbeat(again, instance_id="j")) is None
    for gone in (heartbeat(other, instance_id="j"), sync(other, None, instance_id="j")):
        assert code(groups.ask, gone) is ErrorCode.fenced_instance_id
    assert groups.ask(leave((other.member_id, "j"))) == [ErrorCode.fenced_instance_id]
    fenced = groups.ask(join(other.member_id, instance_id="j"))
    assert fenced == JoinGroupResult(other.member_id, ErrorCode.fenced_instance_id)


def of_consumer(owned: Iterable[int]) -> tuple[str, bytes]:
    subscribed = Subscription(("t",), tuple(TopicPartition("t", n) for n in owned), 1)
    return "cooperative-sticky", write_subscription(subscribed)


@pytest.mark.parametrize(
    ("owned", "assigned", "owes"),
    [
        ([0, 1, 2], [2], True),
        ([0, 1], [], True),
        ([0], [0, 1], False),
        ([], [0], False),
        ([0, 1], [0, 1], False),
    ],
)
def test_a_static_member_that_starts_again_before_it_has_revoked_begins_the_rebalance_it_owed(
    owned: list[int], assigned: list[int], owes: bool
) -> None:
    groups = Groups()
    requests = [
        join(instance_id="i", protocols=(of_consumer(owned),)),
        join(instance_id="j", protocols=(of_consumer([]),)),
    ]
    tickets = [groups.send(request) for request in requests]
    groups.advance(2 * DELAY_MS)
    one, other = (groups.answers[ticket] for ticket in tickets)
    given = write_assignment([TopicPartition("t", n) for n in assigned])
    for member in (one, other):
        is_leader = member.member_id == member.leader
        groups.send(sync(member, {one.member_id: given} if is_leader else None))
    groups.reload()
    ticket = groups.send(join(instance_id="i", protocols=(of_consumer([]),)))
    assert (groups.group.state is PREPARING_REBALANCE) == owes
    assert (ticket in groups.answers) != owes
    if owes:
        # The new one owes nothing.
        waits = groups.send(join(other.member_id, instance_id="j", protocols=(of_consumer([]),)))
        assert groups.answers[ticket].generation == groups.answers[waits].generation == 2
        leader, follower = groups.answers[ticket], groups.answers[waits]
        groups.send(sync(leader, {leader.member_id: given}))
        groups.send(sync(follower))
        again = groups.send(join(instance_id="i", protocols=(of_consumer([]),)))
        assert groups.answers[again].generation == 2


def test_a_static_leader_that_starts_again_is_told_that_there_is_nothing_to_assign():
    groups = Groups()
    one, _ = stable(groups, join(instance_id="i"), join())
    again = groups.ask(join(instance_id="i"))
    assert again.skips_assignment
    assert again.leader == again.member_id
    assert len(again.members) == 2
    old = groups.ask(join(instance_id="i", may_skip_assignment=False))
    assert (old.leader, old.members) == (again.member_id, ())
    assert old.member_id != again.member_id, "it takes itself for a follower"
    assert one.member_id not in groups.group.members


def test_a_static_member_that_brings_another_protocol_begins_a_rebalance():
    groups = Groups()
    stable(groups, join(instance_id="i", protocols=(RANGE, STICKY)))
    ticket = groups.send(join(instance_id="i", protocols=(STICKY,)))
    assert groups.answers[ticket].generation == 2
    assert groups.answers[ticket].protocol == "sticky"


def test_a_static_member_that_waits_is_fenced_by_the_one_that_starts_again():
    groups = Groups()
    tickets = [groups.send(join(instance_id="i")), groups.send(join())]
    replaced = groups.send(join(instance_id="i"))
    groups.advance(2 * DELAY_MS)
    assert groups.answers[tickets[0]] == JoinGroupResult("i-1", ErrorCode.fenced_instance_id)
    joined = groups.answers[replaced]
    waits = groups.send(sync(groups.answers[tickets[1]]))
    again = groups.send(join(instance_id="i"))
    assert groups.answers[waits].code is ErrorCode.rebalance_in_progress
    groups.send(join(groups.answers[tickets[1]].member_id))
    assert groups.answers[again].generation == 2
    assert joined.member_id not in groups.group.members


def test_static_members_that_do_not_come_again_keep_their_place_for_their_session():
    groups = Groups()
    long = {"session_ms": 600_000, "rebalance_ms": 10_000}
    one, other = stable(groups, join(instance_id="i", **long), join(instance_id="j", **long))
    ticket = groups.send(join(one.member_id, instance_id="i", **long))
    groups.advance(10_000)
    joined = groups.answers[ticket]
    assert [m.id for m in joined.members] == [one.member_id, other.member_id]


def test_a_group_of_static_members_of_whom_none_comes_waits_until_their_sessions_end():
    groups = Groups()
    short = {"session_ms": 25_000, "rebalance_ms": 10_000}
    _, two, three = stable(groups, *(join(instance_id=i, **short) for i in "ijk"))
    groups.send(leave(("", "i")))
    groups.advance(20_000)
    assert groups.group.state is PREPARING_REBALANCE
    assert list(groups.group.members) == [two.member_id, three.member_id]
    groups.advance(10_000)
    assert groups.group.state is EMPTY
