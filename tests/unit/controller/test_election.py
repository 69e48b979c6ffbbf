import pytest
from hypothesis import given
from hypothesis import strategies as st

from kserver.controller.election import (
    elect_for_reassignment,
    elect_for_shutdown,
    elect_offline,
    elect_preferred,
)
from kserver.model import LeaderAndIsr

brokers = st.integers(0, 5)
states = st.builds(
    LeaderAndIsr,
    leader=brokers,
    leader_epoch=st.integers(0, 9),
    isr=st.lists(brokers, unique=True).map(tuple),
    partition_epoch=st.integers(0, 9),
    is_recovering=st.booleans(),
)
replica_lists = st.lists(brokers, min_size=1, unique=True)
LAST = LeaderAndIsr(1, 7, (1, 2), controller_epoch=3, partition_epoch=5)


def led(leader, isr, **more):
    return LeaderAndIsr(leader, 8, isr, controller_epoch=4, partition_epoch=6, **more)


@pytest.mark.parametrize(
    ("replicas", "live", "unclean", "expected"),
    [
        ((2, 1, 3), {1, 2, 3}, False, led(2, (1, 2))),
        ((2, 1, 3), {1, 3}, False, led(1, (1,))),
        ((3, 1, 2), {3}, False, None),
        ((3, 1, 2), {3}, True, led(3, (3,), is_recovering=True)),
        ((3, 1, 2), {3, 2}, True, led(2, (2,))),
        ((3, 1, 2), (), True, None),
    ],
)
def test_an_offline_partition(replicas, live, unclean, expected):
    assert elect_offline(replicas, LAST, live, 4, unclean=unclean) == expected


def test_a_partition_without_a_past_is_led_from_epoch_0_by_whoever_lives():
    assert elect_offline((1, 2, 3), None, {2, 3}, 4) == LeaderAndIsr(2, 0, (2, 3), 4, 0)


@pytest.mark.parametrize(
    ("target", "live", "expected"),
    [((4, 2), {1, 2, 4}, led(2, (1, 2))), ((4, 5), {1, 4, 5}, None), ((2,), {1}, None)],
)
def test_a_reassigned_partition_is_led_by_one_that_stays(target, live, expected):
    assert elect_for_reassignment(target, LAST, live, 4) == expected


@pytest.mark.parametrize(
    ("replicas", "live", "expected"),
    [((2, 1), {1, 2}, led(2, (1, 2))), ((2, 1), {1}, None), ((3, 1), {1, 2, 3}, None)],
)
def test_the_preferred_replica_leads_or_nothing_changes(replicas, live, expected):
    assert elect_preferred(replicas, LAST, live, 4) == expected


@pytest.mark.parametrize(
    ("shutting_down", "expected"),
    [({1}, led(2, (2,))), ({2}, led(1, (1,))), ({1, 2}, None), ((), led(1, (1, 2)))],
)
def test_a_broker_that_shuts_down_leads_no_more(shutting_down, expected):
    assert elect_for_shutdown((1, 2, 3), LAST, {1, 2, 3}, shutting_down, 4) == expected


def test_only_an_unclean_election_makes_a_partition_recover_and_a_clean_one_keeps_it_so():
    recovering = led(1, (1, 2), is_recovering=True)
    assert elect_offline((1, 2), recovering, {2}, 4).is_recovering
    assert elect_preferred((2, 1), recovering, {1, 2}, 4).is_recovering


@given(replica_lists, st.none() | states, st.sets(brokers), st.booleans())
def test_a_leader_is_a_live_replica_that_was_in_sync(replicas, last, live, unclean):
    state = elect_offline(replicas, last, live, 1, unclean=unclean)
    in_sync = set(replicas if last is None else last.isr)
    electable = in_sync & set(replicas) & live
    assert (state is None) == (not (electable or (unclean and live & set(replicas))))
    if state is not None:
        is_clean = bool(electable)
        assert state.leader in (electable or set(replicas) & live)
        assert state.leader in state.isr
        assert set(state.isr) <= (in_sync & live if is_clean else {state.leader})
        assert state.leader_epoch == (0 if last is None else last.leader_epoch + 1)
        was_recovering = last is not None and last.is_recovering
        assert state.is_recovering == (was_recovering or not is_clean)


@given(replica_lists, states, st.sets(brokers), st.sets(brokers))
def test_no_other_election_takes_a_leader_out_of_sync(replicas, last, live, shutting_down):
    for state in (
        elect_for_reassignment(replicas, last, live, 1),
        elect_preferred(replicas, last, live, 1),
        elect_for_shutdown(replicas, last, live, shutting_down, 1),
    ):
        if state is not None:
            assert state.leader in set(replicas) & live & set(last.isr)
            assert state.leader in state.isr
            assert set(state.isr) <= set(last.isr)
            assert (state.leader_epoch, state.partition_epoch) == (
                last.leader_epoch + 1,
                last.partition_epoch + 1,
            )
