"""A partition on its way: what is begun, given up and done, and that nobody is lost on it."""

from __future__ import annotations

from random import Random

import pytest

from kserver.controller import reassignment
from kserver.controller.partitions import with_state
from kserver.errors import ErrorCode, KafkaError
from kserver.metadata import PartitionInfo
from kserver.model import LeaderAndIsr

AT_REST = PartitionInfo(0, 1, 5, (1, 2, 3), (1, 2, 3), 7)
LIVE = {1, 2, 3, 4, 5}


def placed(partition):
    return partition.replicas, partition.adding, partition.removing


def begun(partition, *wanted):
    return reassignment.begun(partition, wanted, LIVE, 9)[0]


def in_sync(partition, *isr):
    state = LeaderAndIsr(
        partition.leader, partition.leader_epoch, isr, 9, partition.partition_epoch + 1
    )
    return with_state(partition, state)


def test_a_partition_moves_once_all_of_its_target_are_in_sync():
    moving = begun(AT_REST, 4, 2)
    assert placed(moving) == ((4, 2, 1, 3), (4,), (1, 3))
    assert (moving.leader, moving.leader_epoch, moving.isr) == (1, 6, (1, 2, 3))
    assert reassignment.done(moving, LIVE, 9) is None
    there, state = reassignment.done(in_sync(moving, 1, 2, 3, 4), LIVE, 9)
    assert placed(there) == ((4, 2), (), ())
    # Its leader goes, so the preferred one of the target leads.
    assert (state.leader, state.leader_epoch, state.isr) == (4, 7, (2, 4))


def test_a_leader_that_stays_leads_on():
    moving = in_sync(begun(AT_REST, 4, 1, 2), 1, 2, 3, 4)
    _, state = reassignment.done(moving, LIVE, 9)
    assert (state.leader, state.isr) == (1, (1, 2, 4))


def test_what_is_given_up_is_as_it_was():
    moving = begun(AT_REST, 4, 5)
    back = reassignment.checked(moving, None, LIVE)
    assert back == (1, 2, 3)
    again = begun(moving, *back)
    assert placed(again) == ((1, 2, 3), (), ())


def test_another_target_takes_the_place_of_the_one_under_way():
    again = begun(begun(AT_REST, 4, 2, 3), 1, 2, 5)
    assert placed(again) == ((1, 2, 5, 3), (5,), (3,))


@pytest.mark.parametrize("wanted", [(), (1, 1), (-1,), (1, 9), None])
def test_what_cannot_be_is_refused(wanted):
    with pytest.raises(KafkaError):
        reassignment.checked(AT_REST, wanted, LIVE)


@pytest.mark.parametrize("partition", [AT_REST, begun(AT_REST, 4, 5), begun(AT_REST, 1, 2, 3, 4)])
def test_where_the_factor_may_not_change_it_is_the_one_that_is_on_its_way(partition):
    factor = len(reassignment.target(partition))
    for wanted in ((2,), (3, 4), (5, 4, 3), (2, 3, 4, 5)):
        if len(wanted) == factor:
            assert checked_as_wide(partition, wanted) == wanted
        else:
            with pytest.raises(KafkaError) as refused:
                checked_as_wide(partition, wanted)
            assert refused.value.code is ErrorCode.invalid_replication_factor
            assert reassignment.checked(partition, wanted, LIVE) == wanted


def test_what_is_wrong_besides_is_told_before_the_factor():
    with pytest.raises(KafkaError) as refused:
        checked_as_wide(AT_REST, (1, 1))
    assert refused.value.code is ErrorCode.invalid_replica_assignment


def test_what_changes_the_factor_is_given_up_though_it_may_not_change():
    assert checked_as_wide(begun(AT_REST, 4, 5), None) == AT_REST.replicas


def checked_as_wide(partition, wanted):
    return reassignment.checked(partition, wanted, LIVE, allow_replication_factor_change=False)


def test_those_who_alone_are_in_sync_are_not_dropped():
    moving = in_sync(begun(AT_REST, 4, 2, 3), 4)
    with pytest.raises(KafkaError, match="in-sync replicas"):
        begun(moving, 1, 2, 3)


@pytest.mark.parametrize("seed", range(100))
def test_the_isr_is_never_empty_and_always_placed(seed):
    random = Random(seed)
    partition = AT_REST
    for _ in range(40):
        match random.randrange(3):
            case 0:
                wanted = random.sample(sorted(LIVE), random.randint(1, 3))
                try:
                    partition = begun(partition, *wanted)
                except KafkaError:
                    continue
                assert set(reassignment.target(partition)) == set(wanted)
            case 1:
                members = {partition.leader} if partition.leader >= 0 else set()
                isr = {b for b in partition.replicas if random.random() < 0.7} | members
                partition = in_sync(partition, *sorted(isr or set(partition.isr)))
            case 2:
                there = reassignment.done(partition, LIVE, 9)
                if there is not None:
                    partition = there[0]
                    assert not reassignment.is_moving(partition)
        assert partition.isr
        assert set(partition.isr) <= set(partition.replicas)
        assert partition.leader == -1 or partition.leader in partition.isr
