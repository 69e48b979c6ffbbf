"""A follower's log is cut on a slow disk, and meanwhile the controller gives roles."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from kcli.client.config import ProducerConfig
from kcli.client.producer.producer import Producer
from kserver.api.context import Parts
from kserver.errors import ErrorCode
from kserver.model import NO_BROKER
from kserver.replica.partition import Partition
from kserver.wire.control import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from tests.simulation.test_cluster import random, started
from tests.support.loop import SimLoop, simulate
from tests.support.simulated import SimulatedBroker
from tests.support.simulated_cluster import SimulatedCluster

SLOW_S = 0.2
"""The mean of each piece of work that waits for the disk."""
PATIENCE_S = 120
STEPS = range(0, 14)
"""Operations on the disk that a cut has done when the message comes; it does fewer in all."""


@dataclass
class Cut:
    """t-0 of a broker that came back with records which nobody else has."""

    cluster: SimulatedCluster
    broker: SimulatedBroker
    start: asyncio.Task[None]

    @property
    def partition(self) -> Partition | None:
        broker = self.broker.broker
        parts = getattr(broker, "_parts", None)
        return None if parts is None else parts.replicas.partitions.get(("t", 0))

    @property
    def operations(self) -> int:
        return sum(self.broker.disk.counts.values())

    def roles(self, follower: int, leader: int) -> LeaderAndIsrRequest:
        """t-0 follows as before, and t-1 is led from here in the next epoch: the same message."""
        assert self.broker.broker is not None
        parts = self.broker.broker._parts
        partitions = [parts.replicas.partitions["t", number] for number in (0, 1)]
        epoch = parts.publisher.controller_epoch
        leaders = partitions[0].leader_id, follower
        states = [
            LeaderAndIsrPartitionState(
                number, epoch, leaders[number], p.epoch + number, (leader, follower), 99, (1, 2, 3)
            )
            for number, p in enumerate(partitions)
        ]
        topic = LeaderAndIsrTopicState("t", partitions[0].topic_id, tuple(states))
        return LeaderAndIsrRequest(parts.publisher._sender, epoch, (topic,))

    def deletion(self) -> StopReplicaRequest:
        """t-0, which is being cut, is not to be hosted here any more."""
        assert self.broker.broker is not None
        publisher = self.broker.broker._parts.publisher
        stop = StopReplicaPartitionState(0, 99, delete_partition=True)
        topics = (StopReplicaTopicState("t", (stop,)),)
        return StopReplicaRequest(publisher._sender, publisher.controller_epoch, topics)


async def begun(loop: SimLoop, steps: int) -> tuple[Cut, Partition, Parts]:
    """Return once the log is being cut, `steps` operations on the disk later, or at its end."""
    cluster = await started(loop, **{"num.replica.fetchers": 2})
    before = cluster.leader("t", 0)
    assert before is not None
    own = before.leader_id
    others = [id_ for id_ in cluster.brokers if id_ != own]
    settings = ProducerConfig.of(cluster.bootstrap | {"acks": "1", "linger.ms": "0"})
    now_ms = cluster.brokers[own].clock.now_ms
    async with Producer(settings, now_ms=now_ms, random=random(loop)) as producer:
        for n in range(5):
            await (await producer.send("t", b"kept%d" % n, partition=0))
        await cluster.until_in_sync("t", 2)
        for other in others:
            loop.network.cut(f"b{own}", f"b{other}")
        for n in range(5):
            await (await producer.send("t", b"lost%d" % n, partition=0))
    await cluster.kill(own)
    async with asyncio.timeout(PATIENCE_S):
        while cluster.leader("t", 0) is None:
            await asyncio.sleep(0.1)
        for other in others:
            loop.network.heal(f"b{own}", f"b{other}")
        cut = Cut(cluster, cluster.brokers[own], loop.create_task(cluster.start(own)))
        while (partition := cut.partition) is None or not partition.log.is_being_cut:
            await asyncio.sleep(0.0001)
        cut.broker.disk.mean_offload_s = SLOW_S
        done = cut.operations + steps
        while cut.operations < done and partition.log.is_being_cut:
            await asyncio.sleep(0.0001)
    assert cut.broker.broker is not None
    return cut, partition, cut.broker.broker._parts


@pytest.mark.parametrize("steps", STEPS)
def test_a_role_that_comes_at_any_step_of_a_cut_waits_for_it_alone(steps: int) -> None:
    async def run(loop: SimLoop) -> None:
        cut, partition, parts = await begun(loop, steps)
        async with asyncio.timeout(PATIENCE_S):
            own, led_by = parts.broker_id, partition.leader_id
            assert led_by not in (own, NO_BROKER)
            other = parts.replicas.partitions["t", 1]
            was_being_cut = partition.log.is_being_cut
            publishing = loop.create_task(parts.publisher.publish(cut.roles(own, led_by)))
            while not other.is_leader:
                await asyncio.sleep(0.0001)
            # On a slow disk, a second later than what has nothing to do with it.
            assert partition.log.is_being_cut == was_being_cut
            answer = await publishing
        assert not partition.log.is_being_cut
        (topic,) = answer.topics  # type: ignore[union-attr]
        found = {e.partition_index: e.error_code for e in topic.partition_errors}
        assert found == {0: ErrorCode.none, 1: ErrorCode.none}
        cut.broker.disk.mean_offload_s = SLOW_S / 100
        await cut.start
        # The real controller knows nothing of t-1's leader: it elects one when this broker is gone.
        await cut.cluster.kill(own)
        await cut.cluster.start(own)
        await cut.cluster.until_in_sync("t", 2)
        for number in range(2):
            replicas = cut.cluster.replicas("t", number).values()
            for replica in replicas:
                replica.log.check()
            assert len({cut.cluster.whole(replica) for replica in replicas}) == 1
        for id_ in sorted(cut.cluster.up):
            await cut.cluster.stop(id_)
        assert not [bug for broker in cut.cluster.brokers.values() for bug in broker.bugs]

    simulate(run, 7)


@pytest.mark.parametrize("steps", STEPS)
def test_a_deletion_that_comes_at_any_step_of_a_cut_waits_for_it(steps: int) -> None:
    async def run(loop: SimLoop) -> None:
        cut, partition, parts = await begun(loop, steps)
        async with asyncio.timeout(PATIENCE_S):
            ends = parts.replicas.fetchers.truncating({partition.topic_partition}).values()
            deleting = loop.create_task(parts.publisher.publish(cut.deletion()))
            while cut.partition is not None:
                await asyncio.sleep(0.0001)
            assert all(end.done() for end in ends)
            answer = await deleting
        (error,) = answer.partition_errors  # type: ignore[union-attr]
        assert error.error_code is ErrorCode.none
        assert cut.partition is None
        assert ("t", 0) not in parts.logs.logs
        cut.broker.disk.mean_offload_s = SLOW_S / 100
        await cut.start
        for id_ in sorted(cut.cluster.up):
            await cut.cluster.stop(id_)
        assert not [bug for broker in cut.cluster.brokers.values() for bug in broker.bugs]

    simulate(run, 7)
