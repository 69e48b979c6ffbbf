"""One member's states, and how far it has come."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kcli.zookeeper_consumer.member import (
    GroupView,
    PaperMember,
    PaperProgress,
    PaperState,
    RebalanceFailed,
    share,
    threads,
)
from kserver.model import TopicPartition
from kserver.znodes import MemberRegistration

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
NAMES = st.lists(st.text("abc-_1", min_size=1, max_size=4), min_size=1, max_size=9, unique=True)
ALONE = GroupView({"t": ("me-0",)}, {"t": (0, 1)})
TWO = GroupView({"t": ("me-0", "other-0")}, {"t": (0, 1)})


@given(st.integers(0, 40), NAMES.map(sorted))
def test_shares_are_ranges_that_make_up_the_whole(partitions, names):
    numbers = range(partitions)
    shares = [list(share(numbers, names, name)) for name in names]
    assert [number for part in shares for number in part] == list(numbers)
    sizes = [len(part) for part in shares]
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True), "the first ones have one more"


def test_seven_of_three_are_shared_as_kafka_does():
    names = ["a-0", "b-0", "c-0"]
    assert [list(share(range(7), names, name)) for name in names] == [[0, 1, 2], [3, 4], [5, 6]]


@pytest.mark.parametrize(
    ("pattern", "subscription", "found"),
    [
        ("static", {"orders": 2, "others": 1}, ["c-0", "c-1"]),
        ("static", {"ord.*": 1}, []),
        ("white_list", {"ord.*,x": 1}, ["c-0"]),
        ("white_list", {"ord": 1}, []),
        ("black_list", {"x.*": 1}, ["c-0"]),
        ("black_list", {"ord.*": 1}, []),
    ],
)
def test_a_member_may_subscribe_as_kafka_0_8_does(pattern, subscription, found):
    told = MemberRegistration(subscription, 0, pattern)
    assert threads("c", told, "orders") == found


def member(view=ALONE):
    """One that owns what it can."""
    found = PaperMember("me-0", 2)
    found.registered()
    found.released()
    found.claim(view)
    found.claimed()
    return found


def test_a_member_owns_its_range_from_claim_to_release():
    me = member()
    assert me.owned == (A, B)
    me.looked(ALONE)
    assert me.state is PaperState.OWNING, "nothing has changed"
    me.looked(TWO)
    assert (me.state, me.owned, me.claims) == (PaperState.RELEASING, (), (A, B))
    me.released()
    assert me.claim(TWO) == (A,)


def test_brokers_that_come_and_go_change_nothing_until_the_last_one_does():
    me = member(GroupView(ALONE.threads, ALONE.partitions, has_brokers=False))
    assert me.owned == ()
    me.looked(ALONE)
    assert me.state is PaperState.RELEASING


def test_what_was_perhaps_claimed_is_held_until_it_is_released():
    me = PaperMember("me-0", 2)
    me.registered()
    me.released()
    me.claim(ALONE)
    me.on_connection_loss()
    assert (me.state, me.claims) == (PaperState.RELEASING, (A, B))


def test_who_is_registered_no_more_registers_again():
    me = PaperMember("me-0", 2)
    me.registered()
    me.released()
    assert me.claim(GroupView({"t": ("other-0",)}, {"t": (0,)})) is None
    assert me.state is PaperState.OUTSIDE


def test_only_waits_in_vain_are_counted():
    me = PaperMember("me-0", 2)
    me.registered()
    for in_vain in (True, True, False, True, True):
        me.released()
        me.claim(ALONE)
        me.refused()
        me.again(in_vain=in_vain)
    me.released()
    me.claim(ALONE)
    me.refused()
    with pytest.raises(RebalanceFailed, match="me-0 can't rebalance after 2 retries"):
        me.again(in_vain=True)


class AnyLife(RuleBasedStateMachine):
    """Whatever happens in whatever order, the member's invariants hold."""

    def __init__(self):
        super().__init__()
        self.member = PaperMember("me-0", 2)

    def at(*states):
        return precondition(lambda self: self.member.state in states)

    @at(PaperState.OUTSIDE)
    @rule()
    def registered(self):
        self.member.registered()

    @at(PaperState.RELEASING)
    @rule()
    def released(self):
        self.member.released()

    @at(PaperState.CLAIMING)
    @rule(view=st.sampled_from([ALONE, TWO]), ends=st.sampled_from(["claimed", "refused"]))
    def claim(self, view, ends):
        self.member.claim(view)
        self.member.check()
        getattr(self.member, ends)()

    @at(PaperState.CLAIMING)
    @rule()
    def on_connection_loss(self):
        self.member.claim(ALONE)
        self.member.on_connection_loss()

    @at(PaperState.WAITING)
    @rule(in_vain=st.booleans())
    def again(self, in_vain):
        try:
            self.member.again(in_vain=in_vain)
        except RebalanceFailed:
            self.member = PaperMember("me-0", 2)

    @at(PaperState.OWNING)
    @rule(view=st.sampled_from([ALONE, TWO]))
    def looked(self, view):
        self.member.looked(view)

    @rule()
    def given_up(self):
        self.member.give_up()

    @rule()
    def on_session_expiry(self):
        self.member.on_session_expiry()

    @invariant()
    def holds(self):
        self.member.check()


TestAnyLife = AnyLife.TestCase


def test_what_is_handed_out_is_written_once_it_is_done():
    progress = PaperProgress()
    progress.start(A, 5, is_written=True)
    progress.hand_out(A, 8)
    assert progress.unwritten() == {}
    progress.settle()
    progress.hand_out(A, 9)
    assert progress.unwritten() == {A: 8}
    progress.wrote({A: 8})
    assert progress.unwritten() == {}


def test_where_reading_starts_is_to_be_written_though_nothing_was_read():
    progress = PaperProgress()
    progress.start(A, 5, is_written=False)
    assert progress.unwritten() == {A: 5}
    assert not progress.is_written(A)


def test_what_was_handed_out_before_a_release_is_nobodys():
    progress = PaperProgress()
    progress.start(A, 5, is_written=True)
    progress.hand_out(A, 8)
    progress.clear()
    progress.settle()
    progress.wrote({A: 8})
    progress.check()
    assert not progress.is_written(A)
    progress.start(A, 5, is_written=True)
    assert progress.unwritten() == {}
