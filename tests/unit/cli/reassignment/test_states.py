"""`k reassign-partitions --verify` and `--list`: what is said of each move."""

from __future__ import annotations

import pytest

from kcli.client.admin.descriptions import LogDirDescription, Reassignment, ReplicaInLogDirectory
from kcli.reassignment.plans import TopicPartitionReplica
from kcli.reassignment.states import (
    LogDirMove,
    log_dir_moves,
    partition_states,
    reassignment_line,
)
from kserver.errors import ErrorCode, KafkaError
from kserver.model import TopicPartition

FOO_0, FOO_1, FOO_2, FOO_3 = (TopicPartition("foo", number) for number in range(4))
REPLICA = TopicPartitionReplica(1, FOO_0)


def test_partitions_move_have_moved_or_are_elsewhere():
    states = partition_states(
        {FOO_3: (1, 2), FOO_2: (1, 2), FOO_1: (1, 2), FOO_0: (1, 2)},
        {FOO_1: Reassignment((1, 2), (2,), ())},
        {FOO_0: (1, 2), FOO_2: (0, 1)},
    )
    assert [state.line(partition) for partition, state in states.items()] == [
        "Reassignment of partition foo-0 is completed.",
        "Reassignment of partition foo-1 is still in progress.",
        "There is no active reassignment of partition foo-2, but replica set is 0,1 rather than "
        "1,2.",
        "There is no active reassignment of partition foo-3, but replica set is  rather than 1,2.",
    ]


@pytest.mark.parametrize(
    ("move", "line", "is_active", "is_done"),
    [
        (
            LogDirMove("/y", True, "/x", "/y"),
            "Reassignment of replica foo-0-1 is still in progress.",
            True,
            False,
        ),
        (
            LogDirMove("/y", True, "/y"),
            "Reassignment of replica foo-0-1 completed successfully.",
            False,
            True,
        ),
        (
            LogDirMove("/y", True, "/w", "/x"),
            "Partition foo-0 on broker 1 is being moved to log dir /x instead of /y.",
            True,
            False,
        ),
        (
            LogDirMove("/y", True, "/x"),
            "Partition foo-0 on broker 1 is not being moved from log dir /x to /y.",
            False,
            True,
        ),
        (
            LogDirMove("/y", True),
            "Partition foo-0 is not found in any live log dir on broker 1. There is likely an "
            "offline log directory on the broker.",
            False,
            False,
        ),
        (
            LogDirMove("/y", False),
            "Partition foo-0 cannot be found in any live log directory on broker 1.",
            False,
            False,
        ),
    ],
)
def test_replicas_move_between_directories(move, line, is_active, is_done):
    assert (move.line(REPLICA), move.is_active, move.is_done) == (line, is_active, is_done)


def test_directories_are_told_as_the_brokers_describe_them():
    def lies(is_future, partition=FOO_0):
        return ReplicaInLogDirectory(partition, 7, 0, is_future)

    failed = KafkaError(ErrorCode.kafka_storage_error)
    described = {
        1: [
            LogDirDescription("/x", None, [lies(False), lies(False, FOO_1)]),
            LogDirDescription("/y", None, [lies(True)]),
            LogDirDescription("/z", failed, [lies(False, FOO_2)]),
        ],
        2: [],
    }
    wanted = {
        TopicPartitionReplica(broker, partition): "/y"
        for broker, partition in ((3, FOO_0), (2, FOO_0), (1, FOO_2), (1, FOO_1), (1, FOO_0))
    }
    assert list(log_dir_moves(wanted, described).items()) == [
        ((1, FOO_0), ("/y", True, "/x", "/y")),
        ((1, FOO_1), ("/y", True, "/x", None)),
        ((1, FOO_2), ("/y", True, None, None)),
        ((2, FOO_0), ("/y", True, None, None)),
        ((3, FOO_0), ("/y", False, None, None)),
    ]


def test_what_is_on_the_move_is_listed_with_who_comes_and_who_goes():
    both = Reassignment((0, 1, 2), (2,), (0, 1))
    assert reassignment_line(FOO_0, both) == ("foo-0: replicas: 0,1,2. adding: 2. removing: 0,1.")
    assert reassignment_line(FOO_0, Reassignment((0, 1), (), ())) == "foo-0: replicas: 0,1."
