"""`k broker-api-versions`: one line for each request, by key."""

from kcli.commands.broker_api_versions import NOT_FOR_CLIENTS, versions_lines


def lines(offered):
    """The lines of the offered keys, and all others."""
    shown = list(versions_lines(offered))
    ours = [line for line in shown if any(f"({key}):" in line for key in offered)]
    return ours, [line for line in shown if line not in ours]


def test_the_highest_version_that_both_know_is_usable():
    assert lines({3: (0, 99), 46: (0, 0), 0: (3, 9)})[0] == [
        "\tProduce(0): 3 to 9 [usable: 9]",
        "\tMetadata(3): 0 to 99 [usable: 13]",
        "\tListPartitionReassignments(46): 0 [usable: 0]",
    ]


def test_versions_without_overlap_are_not_usable():
    assert lines({0: (98, 99), 1: (0, 3), 4: (0, 7)})[0] == [
        "\tProduce(0): 98 to 99 [unusable: node too new]",
        "\tFetch(1): 0 to 3 [unusable: node too old]",
        "\tLeaderAndIsr(4): 0 to 7 [unusable: node too new]",
    ]


def test_a_request_that_k_does_not_know_has_only_its_number():
    assert lines({999: (0, 1)})[0] == ["\tUNKNOWN(999): 0 to 1"]


def test_what_clients_ask_for_and_the_broker_lacks_is_unsupported():
    _, others = lines({0: (3, 9)})
    assert "\tFetch(1): UNSUPPORTED" in others
    assert all(line.endswith(": UNSUPPORTED") for line in others)
    assert not any(f"({key}):" in line for key in NOT_FOR_CLIENTS for line in others)


def test_a_request_between_brokers_is_shown_where_it_is_offered():
    assert lines({56: (2, 3)})[0] == ["\tAlterPartition(56): 2 to 3 [usable: 3]"]
