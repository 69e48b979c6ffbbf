from hypothesis import given
from hypothesis import strategies as st

from kserver.controller.election import elect
from kserver.model import LeaderAndIsr

brokers = st.integers(0, 5)


def test_the_preferred_replica_leads_when_it_is_in_sync():
    state = elect((2, 1, 3), LeaderAndIsr(1, 7, (1, 2)), {1, 2, 3}, 4)
    assert state == LeaderAndIsr(2, 8, (1, 2), controller_epoch=4, partition_epoch=1)


def test_a_replica_that_lags_behind_does_not_lead():
    assert elect((1, 2), LeaderAndIsr(2, 7, (2,)), {1}, 4) is None


def test_a_partition_without_a_past_is_led_from_epoch_0_by_whoever_lives():
    assert elect((1, 2, 3), None, {2, 3}, 4) == LeaderAndIsr(2, 0, (2, 3), 4, 0)


@given(
    st.lists(brokers, min_size=1, unique=True),
    st.none()
    | st.builds(LeaderAndIsr, brokers, brokers, st.lists(brokers, unique=True).map(tuple)),
    st.sets(brokers),
)
def test_a_leader_is_a_live_replica_that_was_in_sync(replicas, last, live):
    state = elect(replicas, last, live, 1)
    in_sync = set(replicas if last is None else last.isr)
    assert (state is None) == (not in_sync & set(replicas) & live)
    if state is not None:
        assert state.leader in in_sync & set(replicas) & live
        assert state.leader in state.isr
        assert set(state.isr) <= in_sync & live
        assert state.leader_epoch == (0 if last is None else last.leader_epoch + 1)
