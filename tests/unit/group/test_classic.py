import pytest

from kserver.errors import ErrorCode, KafkaError
from kserver.group.classic import GATHER_MS, MAX_GATHER_MS, NEW_MEMBER_JOIN_TIMEOUT_MS
from kserver.group.events import ClassicGroupMetadata
from kserver.group.group import (
    COMPLETING_REBALANCE,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
)
from kserver.group.requests import DescribeGroup, JoinedMember, JoinGroupResult
from tests.support.classic_groups import (
    DELAY_MS,
    GROUP,
    REBALANCE_MS,
    SESSION_MS,
    Groups,
    commit,
    heartbeat,
    join,
    leave,
    stable,
    subscription,
    sync,
)

RANGE = ("range", subscription("t"))
STICKY = ("sticky", b"s")


def code(call, *arguments):
    with pytest.raises(KafkaError) as caught:
        call(*arguments)
    return caught.value.code


# The first rebalance


def test_a_first_rebalance_waits_for_more_members_and_the_leader_alone_is_told_all():
    groups = Groups()
    first, second = groups.send(join()), groups.send(join(client_id="d"))
    assert groups.group.state is PREPARING_REBALANCE
    groups.advance(2 * DELAY_MS - 1)
    assert not groups.answers
    groups.advance(1)
    metadata = subscription("t")
    members = (JoinedMember("c-1", None, metadata), JoinedMember("d-2", None, metadata))
    told = JoinGroupResult("c-1", ErrorCode.none, 1, "consumer", "range", "c-1", False, members)
    assert groups.answers == {first: told, second: told._replace(member_id="d-2", members=())}
    assert groups.group.state is COMPLETING_REBALANCE


def test_whoever_comes_late_puts_it_off_by_the_delay_up_to_the_rebalance_timeout():
    groups = Groups()
    tickets = []
    while groups.now_ms < 4 * DELAY_MS:
        tickets.append(groups.send(join(rebalance_ms=3 * DELAY_MS + 500)))
        groups.advance(1000)
    assert groups.answers[tickets[0]].generation == 1
    assert len(groups.answers) == 3 * 3 + 1, "all that came within 3 delays and 500 ms"


def test_without_a_delay_it_waits_for_those_alone_that_are_on_their_way():
    groups = Groups(group_initial_rebalance_delay_ms=0)
    ticket = groups.send(join())
    groups.advance(GATHER_MS - 1)
    assert not groups.answers
    groups.advance(1)
    assert groups.answers[ticket].generation == 1


def test_without_a_delay_members_that_start_together_join_together():
    groups = Groups(group_initial_rebalance_delay_ms=0)
    first = groups.send(join())
    groups.advance(GATHER_MS - 1)
    pending = groups.ask(join(must_know_id=True)).member_id
    groups.advance(GATHER_MS)
    assert first not in groups.answers, "one has an id and did not come yet"
    second = groups.send(join(pending, must_know_id=True))
    groups.advance(2 * GATHER_MS)
    assert groups.answers[first].generation == groups.answers[second].generation == 1


def test_without_a_delay_nobody_waits_long_for_one_that_does_not_come():
    groups = Groups(group_initial_rebalance_delay_ms=0)
    first = groups.send(join())
    groups.ask(join(must_know_id=True))
    groups.advance(MAX_GATHER_MS - 1)
    assert first not in groups.answers
    groups.advance(1)
    assert groups.answers[first].generation == 1


def test_a_rebalance_of_a_group_that_had_members_waits_for_these():
    groups = Groups()
    one, other = stable(groups, join(), join())
    ticket = groups.send(join())
    assert groups.group.state is PREPARING_REBALANCE
    assert code(groups.ask, heartbeat(one)) is ErrorCode.rebalance_in_progress
    assert groups.ask(join(one.member_id)) is None
    assert groups.ask(join(other.member_id)).generation == 2
    assert groups.answers[ticket].leader == one.member_id


def test_who_does_not_join_again_in_time_is_none_any_more_and_another_leads():
    groups = Groups()
    one, other = stable(groups, join(), join(rebalance_ms=5000))
    ticket = groups.send(join(other.member_id, protocols=(RANGE, STICKY)))
    while ticket not in groups.answers:
        groups.advance(SESSION_MS - 1000)
        if ticket not in groups.answers:
            assert code(groups.ask, heartbeat(one)) is ErrorCode.rebalance_in_progress
    assert groups.now_ms >= REBALANCE_MS
    joined = groups.answers[ticket]
    assert (joined.leader, len(joined.members)) == (other.member_id, 1)
    assert code(groups.ask, heartbeat(one)) is ErrorCode.unknown_member_id


def test_members_that_wait_for_the_others_need_no_heartbeats():
    groups = Groups()
    one, other = stable(groups, join(), join())
    ticket = groups.send(join(one.member_id))
    for _ in range(5):
        groups.advance(SESSION_MS - 1)
        groups.send(heartbeat(other))
    assert list(groups.group.members) == [one.member_id, other.member_id]
    groups.send(join(other.member_id))
    assert groups.answers[ticket].generation == 2


def test_a_new_member_that_is_not_answered_for_five_minutes_is_forgotten():
    groups = Groups()
    (one,) = stable(groups, join(rebalance_ms=2 * NEW_MEMBER_JOIN_TIMEOUT_MS))
    ticket = groups.send(join())
    while ticket not in groups.answers:
        groups.advance(SESSION_MS - 1)
        groups.send(heartbeat(one))
    assert groups.answers[ticket] == JoinGroupResult("", ErrorCode.unknown_member_id)
    assert list(groups.group.members) == [one.member_id]


# Who may join


def test_who_joins_without_an_id_is_given_one_and_has_to_come_again():
    groups = Groups()
    asked = groups.ask(join(must_know_id=True))
    assert (asked.error, asked.member_id) == (ErrorCode.member_id_required, "c-1")
    assert groups.group.state is EMPTY
    ticket = groups.send(join(asked.member_id, must_know_id=True))
    groups.advance(DELAY_MS)
    assert groups.answers[ticket].member_id == asked.member_id


def test_an_id_that_was_given_out_is_waited_for_and_lapses_with_the_session():
    groups = Groups()
    (one,) = stable(groups, join())
    asked = groups.ask(join(must_know_id=True))
    ticket = groups.send(join(one.member_id))
    groups.advance(SESSION_MS - 1)
    assert ticket not in groups.answers
    groups.advance(1)
    assert groups.answers[ticket].generation == 2
    late = groups.ask(join(asked.member_id, must_know_id=True))
    assert late == JoinGroupResult(asked.member_id, ErrorCode.unknown_member_id)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"group_id": ""}, ErrorCode.invalid_group_id),
        ({"session_ms": 5999}, ErrorCode.invalid_session_timeout),
        ({"session_ms": 1_800_001}, ErrorCode.invalid_session_timeout),
        ({"member_id": "c-7"}, ErrorCode.unknown_member_id),
        ({"protocols": ()}, ErrorCode.inconsistent_group_protocol),
        ({"protocol_type": ""}, ErrorCode.inconsistent_group_protocol),
    ],
)
def test_who_is_not_let_into_a_new_group_leaves_none_behind(fields, error):
    groups = Groups()
    request = join()._replace(**fields)
    assert groups.ask(request) == JoinGroupResult(request.member_id, error)
    assert not groups.shard.groups


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"member_id": "c-7"}, ErrorCode.unknown_member_id),
        ({"member_id": "c-1", "instance_id": "i"}, ErrorCode.unknown_member_id),
        ({"protocols": (STICKY,)}, ErrorCode.inconsistent_group_protocol),
        ({"protocol_type": "connect"}, ErrorCode.inconsistent_group_protocol),
    ],
)
def test_who_does_not_fit_into_the_group_is_refused(fields, error):
    groups = Groups()
    (one,) = stable(groups, join())
    request = join()._replace(**fields)
    assert groups.ask(request) == JoinGroupResult(request.member_id, error)
    assert groups.ask(heartbeat(one)) is None


def test_a_group_has_no_more_members_than_are_allowed():
    groups = Groups(group_max_size=2)
    one, other = stable(groups, join(), join())
    full = JoinGroupResult("", ErrorCode.group_max_size_reached)
    assert groups.ask(join()) == full
    assert groups.ask(heartbeat(one)) is None
    groups.send(join(one.member_id))
    assert groups.ask(join(must_know_id=True)).error is ErrorCode.member_id_required, "one is left"
    groups.send(join(other.member_id))
    assert groups.ask(join()) == full
    assert groups.group.state is PREPARING_REBALANCE


def test_a_loaded_group_that_is_too_large_keeps_those_who_join_first():
    groups = Groups()
    one, other = stable(groups, join(), join())
    groups.config = Groups(group_max_size=1).config
    groups.reload()
    ticket = groups.send(join(other.member_id))
    assert groups.ask(join(one.member_id)) == JoinGroupResult("", ErrorCode.group_max_size_reached)
    assert groups.answers[ticket].generation == 2
    assert list(groups.group.members) == [other.member_id]


# Which protocol


@pytest.mark.parametrize(
    ("liked", "selected"),
    [
        ([(RANGE, STICKY), (STICKY, RANGE), (STICKY, RANGE)], "sticky"),
        ([(RANGE, STICKY), (RANGE, STICKY), (STICKY, RANGE)], "range"),
        ([(RANGE, STICKY), (STICKY,)], "sticky"),
        ([(("mine", b""), RANGE), (("mine", b""), RANGE), (RANGE, STICKY)], "range"),
    ],
)
def test_the_members_vote_for_a_protocol_that_all_of_them_have(liked, selected):
    groups = Groups()
    members = stable(groups, *(join(protocols=protocols) for protocols in liked))
    assert {one.protocol for one in members} == {selected}


# Syncing


def test_the_leader_tells_each_member_its_part_once_it_is_written():
    groups = Groups()
    tickets = [groups.send(join()), groups.send(join())]
    groups.advance(2 * DELAY_MS)
    one, other = (groups.answers[ticket] for ticket in tickets)
    ticket = groups.send(sync(other))
    assert ticket not in groups.answers
    synced = groups.ask(sync(one, {one.member_id: b"1", other.member_id: b"2"}))
    assert synced == ("consumer", "range", b"1")
    assert groups.answers[ticket].assignment == b"2"
    (kept,) = groups.values()
    assert isinstance(kept, ClassicGroupMetadata)
    assert [(m.id, m.assignment) for m in kept.members] == [
        (one.member_id, b"1"),
        (other.member_id, b"2"),
    ]
    assert groups.ask(sync(other)).assignment == b"2", "asked again"


def test_whom_the_leader_does_not_name_gets_nothing():
    groups = Groups()
    one, other = stable(groups, join(), join())
    groups.send(join(one.member_id, protocols=(RANGE, STICKY)))
    ticket = groups.send(join(other.member_id))
    again = groups.answers[ticket]
    groups.send(sync(again))
    led = again._replace(member_id=one.member_id)
    assert groups.ask(sync(led, {one.member_id: b"1", "stranger": b"3"})).assignment == b"1"
    assert groups.group.members[other.member_id].assignment == b""


def test_who_does_not_sync_in_the_rebalances_time_is_none_any_more():
    groups = Groups()
    tickets = [groups.send(join(rebalance_ms=8000)), groups.send(join(rebalance_ms=7000))]
    groups.advance(2 * DELAY_MS)
    one = groups.answers[tickets[0]]
    groups.ask(sync(one, {}))
    groups.advance(7999)
    assert groups.ask(heartbeat(one)) is None
    groups.advance(1)
    assert list(groups.group.members) == [one.member_id]
    assert code(groups.ask, heartbeat(one)) is ErrorCode.rebalance_in_progress
    assert groups.ask(join(one.member_id)).generation == 2


def test_a_leader_that_never_syncs_is_replaced():
    groups = Groups()
    tickets = [groups.send(join(rebalance_ms=8000)), groups.send(join(rebalance_ms=7000))]
    groups.advance(2 * DELAY_MS)
    one, other = (groups.answers[ticket] for ticket in tickets)
    waits = groups.send(sync(other))
    groups.advance(8000)
    assert groups.answers[waits].code is ErrorCode.rebalance_in_progress
    assert groups.ask(join(other.member_id)).leader == other.member_id
    assert code(groups.ask, heartbeat(one)) is ErrorCode.unknown_member_id


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"group_id": ""}, ErrorCode.invalid_group_id),
        ({"group_id": "other"}, ErrorCode.unknown_member_id),
        ({"member_id": "other"}, ErrorCode.unknown_member_id),
        ({"instance_id": "i"}, ErrorCode.unknown_member_id),
        ({"generation": 2}, ErrorCode.illegal_generation),
        ({"protocol_type": "connect"}, ErrorCode.inconsistent_group_protocol),
        ({"protocol": "sticky"}, ErrorCode.inconsistent_group_protocol),
    ],
)
def test_who_is_not_of_this_generation_is_told_nothing(fields, error):
    groups = Groups()
    (one,) = stable(groups, join())
    assert code(groups.ask, sync(one, None, **fields)) is error


def test_members_that_wait_for_their_part_are_called_back_when_another_comes():
    groups = Groups()
    tickets = [groups.send(join()), groups.send(join())]
    groups.advance(2 * DELAY_MS)
    one, other = (groups.answers[ticket] for ticket in tickets)
    ticket = groups.send(sync(other))
    groups.send(join())
    assert groups.answers[ticket].code is ErrorCode.rebalance_in_progress
    assert code(groups.ask, sync(one, {})) is ErrorCode.rebalance_in_progress


def test_the_session_of_who_waited_for_its_part_begins_when_it_is_called_back():
    groups = Groups()
    tickets = [groups.send(join()), groups.send(join())]
    groups.advance(2 * DELAY_MS)
    one, other = (groups.answers[ticket] for ticket in tickets)
    called_back = groups.send(sync(other))
    groups.advance(SESSION_MS - 1000)
    groups.send(heartbeat(one))
    groups.advance(2000)
    ticket = groups.send(join())
    assert groups.answers[called_back].code is ErrorCode.rebalance_in_progress
    groups.advance(SESSION_MS - 2001)
    assert len(groups.group.members) == 3
    groups.advance(1)
    assert one.member_id not in groups.group.members, "it did not wait"
    groups.advance(1999)
    assert other.member_id in groups.group.members
    assert ticket not in groups.answers
    groups.advance(1)
    assert groups.answers[ticket].generation == 2
    assert list(groups.group.members) == [groups.answers[ticket].member_id]


# Joining again


def test_a_follower_that_joins_again_as_it_was_is_told_the_generation():
    groups = Groups()
    one, other = stable(groups, join(), join())
    assert groups.ask(join(other.member_id)) == other
    assert groups.group.state is STABLE
    assert groups.ask(join(one.member_id)) is None, "the leader wants a rebalance"


def test_a_leader_whose_answer_was_lost_is_told_the_members_again():
    groups = Groups()
    ticket = groups.send(join())
    groups.advance(DELAY_MS)
    joined = groups.answers[ticket]
    assert groups.ask(join(joined.member_id)) == joined


def test_a_member_that_changes_what_it_says_begins_a_rebalance():
    groups = Groups()
    one, other = stable(groups, join(), join())
    ticket = groups.send(join(other.member_id, protocols=(("range", subscription("t", "u")),)))
    groups.send(join(one.member_id))
    assert groups.answers[ticket].generation == 2
    groups.send(sync(groups.answers[ticket]))
    groups.send(sync(groups.answers[ticket]._replace(member_id=one.member_id), {}))
    assert groups.group.subscribed == {"t", "u"}


def test_who_joins_twice_is_answered_at_the_request_it_sent_last():
    groups = Groups()
    asked = groups.ask(join(must_know_id=True)).member_id
    before, ticket = groups.send(join(asked)), groups.send(join(asked))
    groups.advance(DELAY_MS)
    assert groups.answers[before].error is ErrorCode.rebalance_in_progress
    assert groups.answers[ticket].generation == 1


# Being there


def test_who_is_silent_for_its_session_is_none_any_more():
    groups = Groups()
    one, other = stable(groups, join(), join())
    groups.advance(SESSION_MS - 1)
    assert groups.ask(heartbeat(one)) is None
    groups.advance(1)
    assert list(groups.group.members) == [one.member_id]
    assert code(groups.ask, heartbeat(one)) is ErrorCode.rebalance_in_progress
    assert code(groups.ask, heartbeat(other)) is ErrorCode.unknown_member_id


def test_who_commits_is_there():
    groups = Groups()
    (one,) = stable(groups, join())
    for _ in range(3):
        groups.advance(SESSION_MS - 1)
        assert groups.ask(commit(("t", 0, 1), joined=one)) == [ErrorCode.none]


def test_a_group_without_members_is_empty_and_goes_on_counting():
    groups = Groups()
    stable(groups, join())
    groups.advance(SESSION_MS)
    assert groups.group.state is EMPTY
    kept = groups.values()[-1]
    assert (kept.generation, kept.protocol, kept.leader, kept.members) == (2, None, None, ())
    assert kept.protocol_type == "consumer"
    (one,) = stable(groups, join())
    assert one.generation == 3


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"group_id": ""}, ErrorCode.invalid_group_id),
        ({"group_id": "other"}, ErrorCode.unknown_member_id),
        ({"member_id": "other"}, ErrorCode.unknown_member_id),
        ({"generation": 0}, ErrorCode.illegal_generation),
        ({"generation": 2}, ErrorCode.illegal_generation),
    ],
)
def test_a_heartbeat_of_nobody_is_refused(fields, error):
    groups = Groups()
    (one,) = stable(groups, join())
    assert code(groups.ask, heartbeat(one, **fields)) is error


# Leaving


def test_many_leave_at_once_and_each_is_told_how_it_went():
    groups = Groups()
    one, other, _ = stable(groups, join(), join(), join(instance_id="i"))
    pending = groups.ask(join(must_know_id=True)).member_id
    codes = groups.ask(
        leave(one.member_id, "stranger", pending, ("", "i"), ("", "j"), (other.member_id, "i"))
    )
    assert codes == [
        ErrorCode.none,
        ErrorCode.unknown_member_id,
        ErrorCode.none,
        ErrorCode.none,
        ErrorCode.unknown_member_id,
        ErrorCode.unknown_member_id,
    ]
    assert list(groups.group.members) == [other.member_id]
    assert groups.group.state is PREPARING_REBALANCE


def test_who_leaves_while_it_waits_is_answered():
    groups = Groups()
    one, other = stable(groups, join(), join())
    ticket = groups.send(join(one.member_id))
    assert groups.ask(leave(one.member_id)) == [ErrorCode.none]
    assert groups.answers[ticket] == JoinGroupResult("", ErrorCode.unknown_member_id)
    assert groups.ask(join(other.member_id)).generation == 2


def test_the_last_who_leaves_is_not_waited_for():
    groups = Groups()
    one, other = stable(groups, join(), join())
    ticket = groups.send(join(one.member_id))
    groups.send(leave(other.member_id))
    assert groups.answers[ticket].generation == 2
    groups.send(leave(one.member_id))
    assert groups.group.state is EMPTY


def test_nobody_leaves_a_group_that_there_is_not():
    assert Groups().ask(leave("a", "b")) == [ErrorCode.unknown_member_id] * 2
    assert code(Groups().ask, leave("a")._replace(group_id="")) is ErrorCode.invalid_group_id


# Again from what was kept


def test_members_go_on_after_a_reload_and_their_sessions_begin_anew():
    groups = Groups()
    one, other = stable(groups, join(), join())
    groups.advance(SESSION_MS - 1)
    groups.reload()
    groups.advance(SESSION_MS - 1)
    assert groups.ask(heartbeat(one)) is None
    assert groups.ask(sync(other)).assignment == b"of " + other.member_id.encode()
    groups.advance(1)
    assert list(groups.group.members) == [one.member_id]


def test_a_generation_that_was_not_yet_assigned_never_was():
    groups = Groups()
    one, _ = stable(groups, join(), join())
    groups.send(leave("c-2"))
    again = groups.ask(join(one.member_id))
    assert again.generation == 2
    groups.reload()
    assert code(groups.ask, heartbeat(again)) is ErrorCode.illegal_generation
    assert groups.ask(heartbeat(one)) is None


def test_a_stable_group_is_described_with_what_its_members_said_and_were_given():
    groups = Groups()
    (one,) = stable(groups, join())
    found = groups.ask(DescribeGroup(GROUP))
    assert (found.state, found.protocol_type, found.protocol) == ("Stable", "consumer", "range")
    (member,) = found.members
    assert member.metadata == subscription("t")
    assert member.assignment == b"of c-1"
    groups.send(join(must_know_id=False))
    found = groups.ask(DescribeGroup(GROUP))
    assert (found.state, found.protocol) == ("PreparingRebalance", "")
    assert [m.metadata for m in found.members] == [b"", b""]
    assert one.member_id == found.members[0].id
