"""Assignments worked out by Kafka's AdminUtils, and what must hold of any."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kserver.controller.placement import alternate_racks, place
from kserver.errors import ErrorCode, KafkaError

SIX_BROKERS = {0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"}


def no_racks(brokers):
    return dict.fromkeys(brokers)


def test_without_racks_replicas_go_round_with_a_growing_shift():
    assert place(no_racks(range(5)), 10, 3, start=0, shift=0) == [
        (0, 1, 2),
        (1, 2, 3),
        (2, 3, 4),
        (3, 4, 0),
        (4, 0, 1),
        (0, 2, 3),
        (1, 3, 4),
        (2, 4, 0),
        (3, 0, 1),
        (4, 1, 2),
    ]


def test_brokers_alternate_between_racks():
    assert alternate_racks(SIX_BROKERS)[0] == [0, 3, 1, 5, 4, 2]


def test_with_racks_every_partition_has_one_replica_a_rack():
    assert place(SIX_BROKERS, 7, 3, start=0, shift=0) == [
        (0, 3, 1),
        (3, 1, 5),
        (1, 5, 4),
        (5, 4, 2),
        (4, 2, 0),
        (2, 0, 3),
        (0, 4, 2),
    ]


def test_a_broker_without_a_rack_switches_racks_off():
    half = {0: "a", 1: "a", 2: None, 3: "b"}
    assert place(half, 4, 2, start=1, shift=1) == place(no_racks(half), 4, 2, start=1, shift=1)


def test_new_partitions_go_on_where_the_old_ones_ended():
    whole = place(no_racks(range(4)), 8, 3, start=0, shift=0)
    assert place(no_racks(range(4)), 5, 3, start=0, shift=0, first_partition=3) == whole[3:]


def test_one_broker_holds_everything():
    assert place(no_racks([7]), 3, 1, start=0, shift=0) == [(7,), (7,), (7,)]


def test_more_replicas_than_brokers_are_refused():
    with pytest.raises(KafkaError) as refused:
        place(no_racks([1]), 1, 3, start=0, shift=0)
    assert refused.value.code is ErrorCode.invalid_replication_factor
    assert refused.value.message == (
        "The target replication factor of 3 cannot be reached because only 1 broker(s) are "
        "registered."
    )


racks = st.dictionaries(
    st.integers(0, 30), st.sampled_from(["a", "b", "c"]), min_size=1, max_size=9
) | st.dictionaries(st.integers(0, 30), st.sampled_from([None, "a", "b"]), min_size=1, max_size=9)


@given(racks, st.integers(1, 40), st.data())
def test_replicas_are_distinct_and_on_as_many_racks_as_there_can_be(racks, partitions, data):
    factor = data.draw(st.integers(1, len(racks)))
    start = data.draw(st.integers(0, len(racks) - 1))
    shift = data.draw(st.integers(0, len(racks) - 1))
    placed = place(racks, partitions, factor, start=start, shift=shift)
    assert len(placed) == partitions
    for replicas in placed:
        assert len(set(replicas)) == factor
        assert set(replicas) <= set(racks)
        if None not in racks.values():
            on = {racks[b] for b in replicas}
            assert len(on) == min(factor, len(set(racks.values())))
    firsts = Counter(replicas[0] for replicas in placed)
    assert max(firsts.values()) - min(firsts[b] for b in racks) <= 1
