"""A member's states, and what it makes of every answer."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kcli.client.group.member import (
    MEANINGS,
    VALID_PREVIOUS_STATES,
    ClassicMemberCore,
    ClassicMemberState,
    Generation,
    MemberAction,
)
from kserver.errors import ErrorCode, KafkaError
from kserver.wire.api_key import ApiKey

OK = ErrorCode.none
FIRST = Generation(1, "m")


def stable(instance_id: str | None = None) -> ClassicMemberCore:
    member = ClassicMemberCore(instance_id)
    member.prepare()
    member.on_join(*FIRST)
    member.on_sync()
    return member


def test_a_member_joins_and_is_told_of_the_next_rebalance():
    member = ClassicMemberCore()
    assert member.rejoin == ""
    member.prepare()
    assert (
        member.handle_response(ApiKey.JOIN_GROUP, ErrorCode.member_id_required, Generation())
        is MemberAction.NEW_ID
    )
    member.set_member_id("m")
    assert member.identity == Generation(-1, "m")
    assert member.handle_response(ApiKey.JOIN_GROUP, OK, member.identity) is MemberAction.DONE
    member.on_join(1, "m")
    assert member.sends_heartbeats
    assert member.handle_response(ApiKey.SYNC_GROUP, OK, FIRST) is MemberAction.DONE
    member.on_sync()
    assert (member.state, member.rejoin) == (ClassicMemberState.STABLE, None)
    assert (
        member.handle_response(ApiKey.HEARTBEAT, ErrorCode.rebalance_in_progress, FIRST)
        is MemberAction.REJOIN
    )
    assert (member.state, member.rejoin) == (
        ClassicMemberState.STABLE,
        "group is already rebalancing",
    )
    assert not member.is_lost


APIS = (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.OFFSET_COMMIT)


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(
    ("code", "means", "identity"),
    [
        (ErrorCode.coordinator_load_in_progress, MemberAction.AGAIN, FIRST),
        (ErrorCode.coordinator_not_available, MemberAction.MOVED, FIRST),
        (ErrorCode.not_coordinator, MemberAction.MOVED, FIRST),
        (ErrorCode.unknown_member_id, MemberAction.UNKNOWN, Generation()),
        (ErrorCode.illegal_generation, MemberAction.STALE, Generation(-1, "m")),
        (ErrorCode.rebalance_in_progress, MemberAction.REJOIN, FIRST),
    ],
)
def test_what_each_answer_means(api, code, means, identity):
    member = stable()
    assert member.handle_response(api, code, FIRST) is means
    assert member.identity == identity
    assert member.is_lost is (identity != FIRST)
    assert (member.rejoin is not None) is (
        means in {MemberAction.UNKNOWN, MemberAction.STALE, MemberAction.REJOIN}
    )


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.fenced_instance_id,
        ErrorCode.group_max_size_reached,
        ErrorCode.inconsistent_group_protocol,
        ErrorCode.group_authorization_failed,
        ErrorCode.invalid_session_timeout,
        ErrorCode.unsupported_version,
    ],
)
def test_what_cannot_be_mended_is_raised(api, code):
    with pytest.raises(KafkaError) as caught:
        stable().handle_response(api, code, FIRST)
    assert caught.value.code is code


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.unknown_member_id,
        ErrorCode.illegal_generation,
        ErrorCode.fenced_instance_id,
        ErrorCode.rebalance_in_progress,
    ],
)
def test_what_is_said_of_an_older_generation_is_dropped(code):
    member = stable()
    member.prepare()
    member.on_join(2, "m")
    member.on_sync()
    assert member.handle_response(ApiKey.HEARTBEAT, code, FIRST) is MemberAction.PAST
    assert member.identity == (2, "m")
    assert (member.state, member.rejoin, member.is_lost) == (ClassicMemberState.STABLE, None, False)


def test_a_heartbeat_while_the_leader_shares_out_asks_for_no_further_rebalance():
    member = ClassicMemberCore()
    member.prepare()
    member.on_join(1, "m")
    member.handle_response(ApiKey.HEARTBEAT, ErrorCode.rebalance_in_progress, FIRST)
    member.on_sync()
    assert member.rejoin is None


def test_a_state_follows_only_where_the_table_says():
    for state in (ClassicMemberState.COMPLETING, ClassicMemberState.STABLE):
        assert ClassicMemberState.UNJOINED not in VALID_PREVIOUS_STATES[state]
    with pytest.raises(AssertionError):
        ClassicMemberCore().on_sync()


class Life(RuleBasedStateMachine):
    """Whatever is answered in whatever order."""

    def __init__(self) -> None:
        super().__init__()
        self.member = ClassicMemberCore()
        self.generation = 0
        self.asked: Generation = self.member.identity

    @rule()
    def ask(self):
        self.asked = self.member.identity

    @precondition(lambda self: self.member.rejoin is not None)
    @rule()
    def prepare(self):
        self.member.prepare()

    @precondition(lambda self: self.member.state is ClassicMemberState.PREPARING)
    @rule()
    def join(self):
        self.generation += 1
        self.member.on_join(self.generation, "m")

    @precondition(lambda self: self.member.state is ClassicMemberState.COMPLETING)
    @rule()
    def sync(self):
        self.member.on_sync()

    @rule(
        api_and_code=st.sampled_from(
            [(api, code) for api in APIS for code in sorted(MEANINGS[api])]
        )
    )
    def answer(self, api_and_code):
        api, code = api_and_code
        before = self.member.identity
        means = self.member.handle_response(api, code, self.asked)
        if means in (MemberAction.UNKNOWN, MemberAction.STALE):
            assert self.asked == before
            assert self.member.is_lost or before.generation == -1

    @invariant()
    def what_always_holds(self):
        self.member.check()


Life.TestCase.settings = settings(max_examples=40, stateful_step_count=30)
TestLife = Life.TestCase
