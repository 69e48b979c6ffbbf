"""A member's states by KIP-848, whatever is answered in whatever order."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kcli.client.group.consumer_member import (
    MEANINGS,
    ConsumerMember,
    ConsumerMemberState,
    MemberDescription,
)
from kcli.client.group.member import MemberAction
from kserver.errors import ErrorCode, KafkaError

OK = ErrorCode.none
T = UUID(int=1)
ABOUT = MemberDescription(topics=("t",), instance_id="i", rebalance_timeout_ms=5)


def owned(*numbers: int):
    return frozenset((T, n) for n in numbers)


def member(*numbers: int) -> ConsumerMember:
    """One that has these."""
    one = ConsumerMember("m", ABOUT)
    said = one.heartbeat()
    one.apply_response(said, 1, "m", owned(*numbers))
    one.update_owned(owned(*numbers))
    said = one.heartbeat()
    one.on_heartbeat_sent(said)
    one.apply_response(said, 1, "m", None)
    return one


def test_what_is_said_is_what_has_changed():
    one = ConsumerMember("m", ABOUT)
    assert one.heartbeat() == {
        "member_id": "m",
        "member_epoch": 0,
        "instance_id": "i",
        "rack_id": None,
        "rebalance_timeout_ms": 5,
        "server_assignor": None,
        "topics": ("t",),
        "owned": owned(),
    }
    one.apply_response(one.heartbeat(), 1, "m", owned(0))
    assert one.heartbeat() == {"member_id": "m", "member_epoch": 1}
    assert one.state is ConsumerMemberState.RECONCILING
    one.update_owned(owned(0))
    assert one.has_news
    assert one.heartbeat() == {"member_id": "m", "member_epoch": 1, "owned": owned(0)}
    one.reset_sent_fields()
    assert one.heartbeat()["topics"] == ("t",)


def test_an_acknowledgement_is_over_when_it_is_on_its_way():
    one = member(0)
    assert (one.state, one.has_news) == (ConsumerMemberState.STABLE, False)
    one.apply_response(one.heartbeat(), 2, "m", owned(0, 1))
    one.update_owned(owned(0, 1))
    said = one.heartbeat()
    one.apply_response(one.heartbeat(), 3, "m", owned(1))
    assert one.state is ConsumerMemberState.ACKNOWLEDGING, "the reader's turn is after it is told"
    said = one.heartbeat()
    one.on_heartbeat_sent(said)
    assert one.state is ConsumerMemberState.RECONCILING


def test_a_subscription_that_changes_is_told_at_once():
    one = member(0)
    one.subscribe(MemberDescription(topics=("t", "u")))
    assert one.has_news
    assert one.heartbeat()["topics"] == ("t", "u")
    one.subscribe(MemberDescription(regex="u.*"))
    assert (one.heartbeat()["topics"], one.heartbeat()["regex"]) == ((), "u.*")


@pytest.mark.parametrize(("code", "means"), MEANINGS.items())
def test_what_each_answer_means(code, means):
    one = member(0)
    assert one.handle_response(code, one.heartbeat(), None) is means
    lost = means is MemberAction.UNKNOWN
    assert (one.state is ConsumerMemberState.LOST, one.epoch) == (lost, 0 if lost else 1)
    assert (
        one.handle_response(ErrorCode.unknown_member_id, {"member_epoch": 7}, None)
        is MemberAction.PAST
    )


def test_what_cannot_be_mended_is_raised_with_the_coordinators_words():
    with pytest.raises(KafkaError, match="no more room"):
        member().handle_response(
            ErrorCode.group_max_size_reached, {"member_epoch": 1}, "no more room"
        )


def test_a_static_member_leaves_for_a_while():
    assert member().leave() == {"member_id": "m", "member_epoch": -2, "instance_id": "i"}
    assert ConsumerMember("m", MemberDescription()).leave()["member_epoch"] == -1


class Life(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.member = ConsumerMember("m", ABOUT)
        self.said = self.member.heartbeat()
        self.epoch = 0

    @precondition(lambda self: self.member.state is not ConsumerMemberState.LOST)
    @rule()
    def beat(self):
        self.said = self.member.heartbeat()
        self.member.on_heartbeat_sent(self.said)

    @rule(code=st.sampled_from(sorted(MEANINGS)), wanted=st.none() | st.sets(st.integers(0, 3)))
    def answer(self, code, wanted):
        asked_as = self.said["member_epoch"]
        means = self.member.handle_response(code, self.said, None)
        assert (means is MemberAction.PAST) or asked_as == self.said["member_epoch"]
        if means is MemberAction.DONE and self.member.state is not ConsumerMemberState.LOST:
            self.epoch += 1
            found = None if wanted is None else owned(*wanted)
            self.member.apply_response(self.said, self.epoch, "m", found)
            self.said = self.member.heartbeat()

    @precondition(lambda self: self.member.state is ConsumerMemberState.RECONCILING)
    @rule(unknown=st.sets(st.integers(0, 3)))
    def reconcile(self, unknown):
        """As far as the names of topics are known."""
        self.member.update_owned(self.member.target - owned(*unknown))

    @precondition(lambda self: self.member.state is ConsumerMemberState.LOST)
    @rule()
    def tell(self):
        self.member.acknowledge_loss()
        self.said = self.member.heartbeat()

    @invariant()
    def what_always_holds(self):
        self.member.check()


Life.TestCase.settings = settings(max_examples=40, stateful_step_count=30)
TestLife = Life.TestCase
