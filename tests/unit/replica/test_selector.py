"""Which replica is near to a consumer (KIP-392)."""

from kserver.replica.selector import ReplicaView, nearest

VIEWS = [
    ReplicaView(2, "b", 10, 5),
    ReplicaView(3, "b", 12, 4),
    ReplicaView(4, "b", 12, 6),
    ReplicaView(5, None, 99, 9),
]


def test_the_leader_is_nearest_in_its_own_rack_and_where_nobody_is_near() -> None:
    assert nearest("a", 1, "a", VIEWS) == 1
    assert nearest("b", 1, "b", VIEWS) == 1
    assert nearest("c", 1, "a", VIEWS) == 1
    assert nearest("c", 1, None, []) == 1


def test_of_those_that_are_near_the_one_that_has_most_is_nearest() -> None:
    assert nearest("b", 1, "a", VIEWS) == 4
    assert nearest("b", 1, "a", VIEWS[:2]) == 3
    assert nearest("b", 1, "a", VIEWS[:1]) == 2
