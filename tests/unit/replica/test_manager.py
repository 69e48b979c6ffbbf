"""What a broker hosts, as the controller's messages say it."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from kserver.config.broker import BrokerConfig
from kserver.errors import ErrorCode
from kserver.log.log import Origin
from kserver.metadata import ClusterMetadata, MetadataCache
from kserver.model import NO_BROKER, NO_EPOCH, BrokerId, TopicPartition
from kserver.peers.node_to_controller import NodeToControllerChannel
from kserver.replica import fetch
from kserver.replica.fetch import FetchLimits
from kserver.replica.fetch_session import FetchPartition
from kserver.replica.manager import ReplicaManager
from kserver.replica.purgatory import Purgatory
from kserver.wire.control import (
    DELETED_EPOCH,
    LeaderAndIsrPartitionState,
    LeaderAndIsrTopicState,
    StopReplicaPartitionState,
    StopReplicaTopicState,
)
from tests.support.logs import batch, marker
from tests.unit.log.test_manager import Host, run

ME: BrokerId = 0
FIRST, SECOND = UUID(int=1), UUID(int=2)
CONFIGS: Mapping[str, Mapping[str, str]] = {name: {} for name in "abcde"}


async def started(host: Host) -> ReplicaManager:
    logs = await host.start()
    metadata = MetadataCache(ClusterMetadata("cluster"))
    to_controller = NodeToControllerChannel(ME, "test", lambda: host.config, metadata)
    return ReplicaManager(
        ME,
        lambda: host.config,
        logs,
        metadata,
        Purgatory(host.loop),
        host.loop,
        host.clock,
        to_controller,
        lambda: 0,
    )


def state(
    partition: int,
    leader: BrokerId = ME,
    epoch: int = 0,
    replicas: tuple[BrokerId, ...] = (ME, 1),
) -> LeaderAndIsrPartitionState:
    return LeaderAndIsrPartitionState(
        partition, 1, leader, epoch, replicas, 0, replicas, is_new=True
    )


def become(
    replicas: ReplicaManager,
    topic: str,
    *states: LeaderAndIsrPartitionState,
    topic_id: UUID = FIRST,
) -> list[ErrorCode]:
    topics = [LeaderAndIsrTopicState(topic, topic_id, states)]
    (errors,) = replicas.become_leader_or_follower(topics, CONFIGS)
    assert (errors.topic_name, errors.topic_id) == (topic, topic_id)
    assert [e.partition_index for e in errors.partition_errors] == [
        s.partition_index for s in states
    ]
    return [error.error_code for error in errors.partition_errors]


def stop(
    replicas: ReplicaManager, topic: str, partition: int, epoch: int, *, delete: bool
) -> ErrorCode:
    told = StopReplicaPartitionState(partition, epoch, delete)
    (error,) = replicas.stop_replicas([StopReplicaTopicState(topic, (told,))])
    assert (error.topic_name, error.partition_index) == (topic, partition)
    return error.error_code


def test_only_news_of_this_broker_s_replicas_counts() -> None:
    async def scenario(host: Host) -> None:
        replicas = await started(host)
        elsewhere = state(1, leader=1, replicas=(1, 2))
        assert become(replicas, "a", state(0, epoch=3), elsewhere) == [
            ErrorCode.none,
            ErrorCode.unknown_topic_or_partition,
        ]
        hosted = replicas.get("a", 0)
        assert (hosted.is_leader, hosted.epoch) == (True, 3)
        assert become(replicas, "a", state(0, leader=1, epoch=2)) == [
            ErrorCode.stale_controller_epoch
        ]
        assert become(replicas, "a", state(0, epoch=4), topic_id=SECOND) == [
            ErrorCode.inconsistent_topic_id
        ]
        assert (hosted.is_leader, hosted.epoch) == (True, 3)
        assert become(replicas, "a", state(0, leader=1, epoch=4)) == [ErrorCode.none]
        assert (hosted.is_leader, hosted.epoch) == (False, 4)
        assert replicas.partitions.keys() == {("a", 0)}

    run(scenario, seed=1)


def test_a_replica_is_stopped_in_its_epoch_and_deleted_by_order_only() -> None:
    async def scenario(host: Host) -> None:
        replicas = await started(host)
        become(replicas, "a", state(0, epoch=3), state(1, epoch=3))
        logs = host.manager.logs
        assert stop(replicas, "a", 0, 2, delete=True) is ErrorCode.fenced_leader_epoch
        assert stop(replicas, "a", 0, 3, delete=False) is ErrorCode.none
        assert replicas.partitions.keys() == {("a", 1)}
        assert logs.keys() == {("a", 0), ("a", 1)}
        for partition in (0, 1, 1):
            assert stop(replicas, "a", partition, DELETED_EPOCH, delete=True) is ErrorCode.none
        assert (replicas.partitions, logs) == ({}, {})

    run(scenario, seed=1)


def test_a_log_whose_disk_has_failed_is_not_taken_for_deleted() -> None:
    async def scenario(host: Host) -> None:
        replicas = await started(host)
        become(replicas, "a", *(state(n, epoch=3) for n in range(3)))
        waiting = replicas.get("a", 0)
        for partition in (0, 1):
            log = replicas.get("a", partition).log
            log.append_as_leader(batch(), 3, host.clock.now_ms())
        fault = host.disk.fail("rename", errno.EIO)
        # The first finds out; the directory is offline when the others, and it again, are stopped.
        for partition in (0, 1, 2, 0, 1):
            error = stop(replicas, "a", partition, DELETED_EPOCH, delete=True)
            assert error is ErrorCode.kafka_storage_error
        assert not waiting.is_hosted
        assert (replicas.partitions, host.manager.logs) == ({}, {})
        # Once the disk works, a broker that has started deletes them.
        await host.stop()
        fault.clear()
        replicas = await started(host)
        assert host.manager.logs.keys() == {("a", 0), ("a", 1), ("a", 2)}
        for partition in (0, 1, 2, 0):
            assert stop(replicas, "a", partition, DELETED_EPOCH, delete=True) is ErrorCode.none
        assert (replicas.partitions, host.manager.logs) == ({}, {})

    run(scenario, seed=1)


def test_a_fetch_that_cannot_read_which_transactions_were_aborted_is_a_storage_error() -> None:
    async def scenario(host: Host) -> None:
        replicas = await started(host)
        become(replicas, "a", state(0, epoch=3, replicas=(ME,)))
        partition = replicas.get("a", 0)
        fields: dict[str, Any] = {"producer_epoch": 0, "base_sequence": 0, "transactional": True}
        log, now_ms = partition.log, host.clock.now_ms()
        log.append_as_leader(batch(2, producer_id=7, **fields), 3, now_ms)
        log.append_as_leader(marker(7, 0, commit=False), 3, now_ms, origin=Origin.coordinator)
        partition.reconsider()
        wanted = [FetchPartition("a", None, 0, NO_EPOCH, 0, NO_EPOCH, 0, 1000)]
        (read,) = fetch.read(replicas, wanted, FetchLimits(1000, read_committed=True))
        assert isinstance(read, fetch.Read)
        assert [one.producer_id for one in read.aborted or ()] == [7]
        host.disk.fail("read_at", errno.EIO, path="*.txnindex")
        (read,) = fetch.read(replicas, wanted, FetchLimits(1000, read_committed=True))
        assert isinstance(read, fetch.Read)
        assert read.error is ErrorCode.kafka_storage_error
        assert host.manager.directories[0].failure is not None

    run(scenario, seed=1)


def test_the_log_of_a_former_topic_of_the_name_is_set_aside() -> None:
    async def scenario(host: Host) -> None:
        replicas = await started(host)
        become(replicas, "a", state(0, epoch=3))
        replicas.get("a", 0).log.append_as_leader(batch(), 3, host.clock.now_ms())
        stop(replicas, "a", 0, 3, delete=False)
        assert become(replicas, "a", state(0), topic_id=SECOND) == [ErrorCode.none]
        hosted = replicas.get("a", 0)
        assert (hosted.topic_id, hosted.log.log_end_offset) == (SECOND, 0)
        assert [name for name in host.disk.list("/logs") if name.endswith("-stray")]

    run(scenario, seed=1)


def test_followers_in_sync_are_not_throttled() -> None:
    async def scenario(host: Host) -> None:
        host.config = BrokerConfig.load(
            None, ["log.dirs=/logs", "leader.replication.throttled.rate=1000"]
        )
        replicas = await started(host)
        told = replace(state(0, replicas=(ME, 1, 2)), isr=(ME, 1))
        configs = {"a": {"leader.replication.throttled.replicas": "*"}}
        replicas.become_leader_or_follower([LeaderAndIsrTopicState("a", FIRST, (told,))], configs)
        replicas.reconfigure(ClusterMetadata("cluster"), ())
        partition = replicas.get("a", 0)
        assert not replicas.holds_back(partition, 2)
        replicas.sent(("a", 0), 1_000_000)
        assert replicas.holds_back(partition, 2)
        assert not replicas.holds_back(partition, 1)

    run(scenario, seed=1)


@pytest.mark.parametrize("seed", range(5))
def test_what_a_full_message_names_is_what_is_hosted(seed: int) -> None:
    async def scenario(host: Host) -> None:
        replicas = await started(host)
        random = host.loop.random
        most, ever = 0, set[TopicPartition]()
        for step in range(60):
            named = {
                name: (
                    UUID(int=10 * ord(name) + random.randint(1, 2)),
                    [state(p, random.choice([ME, 1]), step) for p in range(random.randint(1, 3))],
                )
                for name in random.sample("abcde", random.randint(0, 4))
            }
            topics = [
                LeaderAndIsrTopicState(name, topic_id, tuple(states))
                for name, (topic_id, states) in named.items()
            ]
            replicas.drop_unnamed(topics)
            replicas.become_leader_or_follower(topics, CONFIGS)
            hosted = {
                key: (p.topic_id, p.is_leader, p.epoch) for key, p in replicas.partitions.items()
            }
            assert hosted == {
                TopicPartition(name, s.partition_index): (topic_id, s.leader == ME, step)
                for name, (topic_id, states) in named.items()
                for s in states
            }
            ever |= hosted.keys()
            assert host.manager.logs.keys() == ever, "a full message deletes nothing"
            most = max(most, len(hosted))
        assert most > 5

    run(scenario, seed=seed)


def test_a_partition_whose_log_is_missing_waits_for_another_leader() -> None:
    async def scenario(host: Host) -> None:
        replicas = await started(host)
        become(replicas, "a", state(0), state(1))
        for partition in range(2):
            host.append(replicas.get("a", partition).log, 5)
        await host.stop()
        for partition in range(2):
            host.disk.remove_tree(f"/logs/a-{partition}")
        replicas = await started(host)
        refused = ErrorCode.kafka_storage_error
        for old in (state(0), state(0, leader=1), state(0, leader=NO_BROKER)):
            assert become(replicas, "a", replace(old, is_new=False)) == [refused]
            assert replicas.has_missing
        out_of_sync = replace(state(0, leader=1), is_new=False, isr=(1,))
        assert become(replicas, "a", out_of_sync) == [ErrorCode.none]
        assert replicas.get("a", 0).log.log_end_offset == 0
        assert not replicas.has_missing
        assert become(replicas, "a", replace(state(1), is_new=False)) == [refused]
        assert stop(replicas, "a", 1, DELETED_EPOCH, delete=True) is ErrorCode.none
        assert not replicas.has_missing
        assert become(replicas, "a", replace(state(1), is_new=False)) == [ErrorCode.none]

    run(scenario, seed=1)
