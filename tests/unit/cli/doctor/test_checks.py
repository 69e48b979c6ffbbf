"""Each check finds what is wrong with a snapshot, and nothing in a healthy one."""

from __future__ import annotations

import pytest

from kcli.client.admin.descriptions import (
    ConfigEntry,
    ConfigSource,
    LogDirDescription,
    PartitionDescription,
    Reassignment,
    TopicDescription,
)
from kcli.client.cluster import Node
from kcli.doctor.checks import CHECKS
from kcli.doctor.snapshot import ClusterSnapshot, GroupProgress, TransactionSummary
from kserver.errors import ErrorCode, KafkaError
from kserver.model import TopicPartition

NOW_MS = 1_700_000_000_000
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
SETTINGS = {
    "zookeeper.session.timeout.ms": "18000",
    "replica.lag.time.max.ms": "30000",
    "default.replication.factor": "3",
    "min.insync.replicas": "1",
    "listeners": "PLAINTEXT://:9092",
}


def configs(settings):
    return {
        name: ConfigEntry(name, value, ConfigSource.DEFAULT_CONFIG, False, False)
        for name, value in settings.items()
    }


def topic(*partitions, name="t"):
    return TopicDescription(name, None, False, partitions)


def partition(number, leader=1, isr=(1, 2, 3), replicas=(1, 2, 3)):
    return PartitionDescription(number, leader, replicas, isr)


def healthy():
    return ClusterSnapshot(
        NOW_MS,
        {id: Node(id, f"h{id}", 9092) for id in (1, 2, 3)},
        api_versions={id: {0: (3, 12), 1: (4, 17)} for id in (1, 2, 3)},
        broker_configs={
            id: configs(SETTINGS | {"listeners": f"PLAINTEXT://h{id}:9092"}) for id in (1, 2, 3)
        },
        topic_configs={"t": configs({"min.insync.replicas": "2"})},
        topics={"t": topic(partition(0), partition(1, 2))},
        log_dirs={id: [LogDirDescription("/d", None, [], 1000, 500)] for id in (1, 2, 3)},
        ends={T0: 10, T1: 20},
        stable_ends={T0: 10, T1: 20},
        newest_ms={T0: NOW_MS, T1: NOW_MS + 59_000},
        groups={"g": GroupProgress("Stable", 1, {T0: 5}, {T0: 6}, "Stable")},
        transactions=(TransactionSummary("x", "Ongoing", 69_000, 60_000, (T0,)),),
    )


def found(seen):
    return [
        (name, finding.severity, finding.subject, finding.found)
        for name, check in CHECKS.items()
        for finding in check(seen)
    ]


def test_nothing_is_found_in_a_healthy_cluster():
    assert found(healthy()) == []


def without_broker_3(seen):
    del seen.brokers[3]
    seen.topics["t"] = topic(partition(0, 1, (1, 2)), partition(1, 2, (2, 1)))


def unled(seen):
    del seen.brokers[3]
    seen.topics["t"] = topic(partition(0, None, (3,), (3,)), partition(1, None, (3,), (3, 1)))


def below_min_isr(seen):
    seen.topics["t"] = topic(partition(0, 1, (1,)))
    seen.log_dirs[2] = [
        LogDirDescription("/d", KafkaError(ErrorCode.kafka_storage_error, "gone"), [])
    ]
    seen.reassignments = {T0: Reassignment((1, 2, 3), (3,), ())}


@pytest.mark.parametrize(
    ("harm", "expected"),
    [
        (
            lambda s: s.unreachable.update({2: "nothing answers at h2:9092"}),
            [("addresses", "error", "broker 2", "nothing answers at h2:9092")],
        ),
        (
            lambda s: s.brokers.update({3: Node(3, "localhost", 9092)}),
            [("addresses", "error", "broker 3", "advertises localhost")],
        ),
        (
            without_broker_3,
            [
                ("brokers", "error", "broker 3", "2 replicas"),
                ("partitions", "warning", "partitions t-0, t-1", "broker 3 is down"),
            ],
        ),
        (
            unled,
            [
                ("brokers", "error", "broker 3", "2 replicas"),
                ("partitions", "error", "partition t-0", "no leader; in sync: 3"),
                ("partitions", "error", "partition t-1", "broker 1 is up, but behind"),
                ("settings", "error", "topic t", "has 1 replica and min.insync.replicas=2"),
                ("settings", "warning", "topic t", "on one broker only"),
            ],
        ),
        (
            below_min_isr,
            [
                (
                    "partitions",
                    "error",
                    "partition t-0",
                    "min.insync.replicas=2: acks=all is refused; a disk of broker 2 failed (/d), "
                    "broker 3 is being added as a replica",
                ),
                ("disks", "error", "/d of broker 2", "gone"),
            ],
        ),
        (
            lambda s: s.log_dirs.update({1: [LogDirDescription("/d", None, [], 1000, 99)]}),
            [("disks", "warning", "/d of broker 1", "10% left")],
        ),
        (
            lambda s: s.broker_configs.update(
                {2: configs(SETTINGS | {"replica.lag.time.max.ms": "10000"})}
            ),
            [
                (
                    "settings",
                    "warning",
                    "replica.lag.time.max.ms",
                    "30000 at broker 1, 10000 at broker 2, 30000 at broker 3",
                ),
                (
                    "settings",
                    "warning",
                    "broker 2",
                    "zookeeper.session.timeout.ms=18000 is larger than",
                ),
            ],
        ),
        (
            lambda s: s.broker_configs.update(
                {id: configs(SETTINGS | {"min.insync.replicas": "4"}) for id in (1, 2, 3)}
            ),
            [("settings", "error", f"broker {id}", "default.replication") for id in (1, 2, 3)],
        ),
        (
            lambda s: s.topic_configs.update({"t": configs({"min.insync.replicas": "3"})}),
            [("settings", "warning", "topic t", "with one broker down")],
        ),
        (
            lambda s: s.newest_ms.update({T0: NOW_MS + 3_600_000}),
            [("clocks", "warning", "t-0", "3,600 s ahead")],
        ),
        (
            lambda s: s.groups.update(
                {"h": GroupProgress("Stable", 2, {T0: 5, T1: 20}, {T0: 5, T1: 20}, "Stable")}
            ),
            [("groups", "warning", "group h", "in 1 partition of 2: t-0 is 5 behind")],
        ),
        (
            lambda s: s.groups.update(
                {"h": GroupProgress("PreparingRebalance", 2, {}, {}, "CompletingRebalance")}
            ),
            [("groups", "warning", "group h", "stays in state CompletingRebalance")],
        ),
        (
            lambda s: setattr(
                s,
                "transactions",
                (TransactionSummary("x", "PrepareCommit", 70_001, 60_000, (T0,)),),
            ),
            [("transactions", "error", "transaction x", "is PrepareCommit after 70 s")],
        ),
        (
            lambda s: s.stable_ends.update({T0: 4, T1: 11}),
            # One of the two has a transaction that is known, and in its time.
            [("transactions", "error", "t-1", "back at 11 of 20")],
        ),
        (
            lambda s: s.api_versions.update({3: {0: (3, 12), 1: (4, 16)}}),
            [("versions", "warning", "versions", "brokers 1, 2 and broker 3")],
        ),
    ],
)
def test_what_is_wrong_is_found_and_nothing_else(harm, expected):
    seen = healthy()
    harm(seen)
    told = found(seen)
    assert [one[:3] for one in told] == [one[:3] for one in expected]
    for one, (*_, part) in zip(told, expected, strict=True):
        assert part in one[3]


def test_many_of_one_reason_are_one_finding():
    seen = healthy()
    del seen.brokers[3]
    seen.topics["t"] = topic(*(partition(number, 1, (1, 2)) for number in range(1000)))
    (_, finding) = [f for check in CHECKS.values() for f in check(seen)]
    assert finding.subject == "partitions t-0, t-1, t-2 and 997 more"


def test_a_setting_that_only_some_brokers_know_does_not_differ():
    seen = healthy()
    seen.broker_configs[2] = configs(SETTINGS | {"new.setting": "1"})
    assert found(seen) == []
