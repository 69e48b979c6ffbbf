"""Who leads, and who is in sync, when brokers come and go."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kserver.controller.context import Returned, next_state
from kserver.model import NO_BROKER, LeaderAndIsr

REPLICAS = (1, 2, 3)


@pytest.mark.parametrize(
    ("last", "live", "returned", "unclean", "expected"),
    [
        # its leader lives
        ((1, (1, 2, 3)), {1, 2, 3}, set(), False, None),
        ((1, (1, 2, 3)), {1, 3}, set(), False, (1, (1, 3))),
        ((1, (1, 2, 3)), {1, 2, 3}, {3}, False, (1, (1, 2))),
        # somebody else in sync can lead
        ((1, (1, 2, 3)), {2, 3}, set(), False, (2, (2, 3))),
        ((1, (1, 2, 3)), {1, 2, 3}, {1}, False, (2, (2, 3))),
        ((2, (2, 3)), {1, 3}, set(), False, (3, (3,))),
        # nobody else: it leads again, having returned
        ((1, (1,)), {1, 2, 3}, {1}, False, (1, (1,))),
        ((1, (1, 2)), {1, 2}, {1, 2}, False, (1, (1, 2))),
        # nobody
        ((1, (1,)), {2, 3}, set(), False, (NO_BROKER, (1,))),
        ((NO_BROKER, (1,)), {2, 3}, set(), False, None),
        ((NO_BROKER, (1,)), {2, 3}, set(), True, (2, (2,))),
        ((1, (1,)), {3}, set(), True, (3, (3,))),
        ((NO_BROKER, (1,)), {1, 2}, {1}, False, (1, (1,))),
    ],
)
def test_each_line_of_the_table(last, live, returned, unclean, expected):
    state = LeaderAndIsr(*last[:1], 4, last[1], 8, 6)
    found = next_state(REPLICAS, state, live, Returned(frozenset(returned)), 9, unclean=unclean)
    if expected is None:
        assert found is None
    else:
        leader, isr = expected
        assert (found.leader, found.isr) == (leader, isr)
        assert (found.leader_epoch, found.partition_epoch, found.controller_epoch) == (5, 7, 9)


@pytest.mark.parametrize(
    ("last", "live", "returned", "lacking", "expected"),
    [
        # somebody who has it all leads, though others stand before
        ((1, (1, 2, 3)), {1, 2, 3}, {1, 2, 3}, {1}, (2, (2, 3))),
        ((1, (1, 2, 3)), {1, 2, 3}, {1, 2, 3}, {1, 2}, (3, (3,))),
        # who may have it all is waited for
        ((1, (1, 2)), {1, 3}, {1}, {1}, (NO_BROKER, (2,))),
        ((NO_BROKER, (1, 2)), {1, 3}, {1}, {1}, (NO_BROKER, (2,))),
        ((NO_BROKER, (2,)), {1, 2}, {2}, set(), (2, (2,))),
        # who was killed alone stays in sync, also with a leader that only seems to live
        ((1, (1, 2, 3)), {1, 2, 3}, {2, 3}, set(), (1, (1, 2, 3))),
        ((1, (1, 2, 3)), {1, 2, 3}, {1, 2}, {1}, (3, (2, 3))),
        ((1, (1, 2, 3)), {1, 2}, {2}, set(), (1, (1, 2))),
        # nobody else may
        ((1, (1,)), {1, 2, 3}, {1}, {1}, (1, (1,))),
        ((NO_BROKER, (2,)), {1, 2}, {2}, {2}, (2, (2,))),
        # each of them may lack what the others have
        ((1, (1, 2)), {1, 2}, {1, 2}, {1, 2}, (1, (1,))),
    ],
)
def test_who_may_lack_records_leads_only_where_nobody_else_can(
    last, live, returned, lacking, expected
):
    state = LeaderAndIsr(last[0], 4, last[1], 8, 6)
    has_returned = Returned(frozenset(returned), frozenset(returned) - lacking, frozenset(lacking))
    found = next_state(REPLICAS, state, live, has_returned, 9, unclean=False)
    assert (found.leader, found.isr) == expected


def test_an_unclean_election_takes_who_was_in_sync_before_others():
    state = LeaderAndIsr(NO_BROKER, 4, (2, 3), 8, 6)
    two = frozenset({2})
    found = next_state(REPLICAS, state, {1, 2}, Returned(two, lacking=two), 9, unclean=True)
    assert (found.leader, found.isr) == (2, (2,))


SOME = st.sets(st.sampled_from(REPLICAS))


@given(SOME.filter(bool), SOME, SOME, st.booleans())
def test_only_who_was_in_sync_and_lives_leads_cleanly(isr, live, returned, was_led):
    members = tuple(sorted(isr))
    last = LeaderAndIsr(members[0] if was_led else NO_BROKER, 4, members, 8, 6)
    has_returned = Returned(frozenset(returned & live))
    found = next_state(REPLICAS, last, live, has_returned, 9, unclean=False)
    if found is None:
        assert (last.leader in live - returned) or (not was_led and not isr & live)
        return
    assert set(found.isr) <= isr
    assert found.isr
    if found.leader == NO_BROKER:
        assert not isr & live
        assert found.isr == members
    else:
        assert found.leader in isr & live
        assert found.leader in found.isr
        assert set(found.isr) <= live
