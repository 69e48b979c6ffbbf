"""Proposals of who is in sync, brought to a controller that answers as a test wants it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from kserver.config.broker import BrokerConfig
from kserver.errors import ErrorCode
from kserver.metadata import BrokerInfo, ClusterMetadata, MetadataCache, PartitionInfo
from kserver.metrics.meters import ReplicationMeters, TopicMeters
from kserver.model import Endpoint, TopicPartition
from kserver.peers.node_to_controller import NodeToControllerChannel
from kserver.replica.alter_partition import AlterPartitionManager
from kserver.replica.partition import Partition, PartitionContext
from kserver.wire.api_key import ApiKey
from kserver.wire.versions import reply_to
from tests.support.clock import SimClock
from tests.support.disk import SimDisk
from tests.support.logs import open_log
from tests.support.loop import SimLoop, simulate
from tests.support.scripted_broker import ScriptedBroker

ME, OTHER, THIRD, CONTROLLER = 1, 2, 3, 9
TOPIC_ID = UUID(int=5)
LAG_MAX_MS = 100
PATIENCE_S = 60
OK = ErrorCode.none


class Scene:
    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.clock = SimClock(loop)
        self.disk = SimDisk(loop.random, self.clock)
        self.controller = ScriptedBroker(loop, "controller", id=CONTROLLER)
        self.controller.on(ApiKey.ALTER_PARTITION, self._answer)
        self.codes: list[ErrorCode] = []
        """Of the next answers, for all that each request asks; none once they are used up."""
        self.code = OK
        """Of each response as a whole."""
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.decided: list[Partition] = []
        endpoint = Endpoint("PLAINTEXT", "PLAINTEXT", "controller", 9092)
        brokers = {CONTROLLER: BrokerInfo(CONTROLLER, {endpoint.listener: endpoint})}
        metadata = MetadataCache(ClusterMetadata("cluster", CONTROLLER, brokers))
        config = BrokerConfig.load(None, ["log.dirs=/logs"])
        channel = NodeToControllerChannel(ME, "test", lambda: config, metadata)
        self.meters = ReplicationMeters()
        self.manager = AlterPartitionManager(
            ME, lambda: 7, channel, self.decided.append, self.meters
        )

    async def _answer(self, request: Any) -> Any:
        await self.may_answer.wait()
        code = self.codes.pop(0) if self.codes else OK
        new = reply_to(request)
        return new(
            error_code=self.code,
            topics=[
                new.topics(
                    topic_id=topic.topic_id,
                    partitions=[
                        new.topics.partitions(
                            partition_index=p.partition_index,
                            error_code=code,
                            leader_id=ME,
                            leader_epoch=p.leader_epoch,
                            isr=[state.broker_id for state in p.new_isr_with_epochs],
                            partition_epoch=p.partition_epoch + 1,
                        )
                        for p in topic.partitions
                    ],
                )
                for topic in request.topics
            ],
        )

    def led(self, number: int) -> Partition:
        """Led here, by its replicas' first; both are in sync."""
        context = PartitionContext(
            ME, lambda: int(1000 * self.loop.time()), lambda _broker: True, LAG_MAX_MS
        )
        log = open_log(self.disk, directory=f"/logs/t-{number}")
        partition = Partition(TopicPartition("t", number), TOPIC_ID, log, context, TopicMeters())
        partition.take_role(PartitionInfo(number, ME, 3, (ME, OTHER), (ME, OTHER), 0))
        return partition

    def propose(self, partition: Partition) -> None:
        """That the other replica, which never fetched, leaves the ISR."""
        assert partition.leader is not None
        later_ms = int(1000 * self.loop.time()) + 2 * LAG_MAX_MS
        proposal = partition.leader.tick(partition.log.log_end_offset, 0, later_ms)
        assert proposal is not None
        self.manager.propose(partition, proposal)

    @property
    def asked(self) -> list[list[int]]:
        """The partitions of each request so far."""
        return [
            [p.partition_index for topic in request.topics for p in topic.partitions]
            for request in self.controller.asked(ApiKey.ALTER_PARTITION)
        ]

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not holds():
                await asyncio.sleep(0.01)


def run(scenario: Callable[[Scene], Awaitable[None]]) -> None:
    async def main(loop: SimLoop) -> None:
        scene = Scene(loop)
        await scene.controller.start()
        running = loop.create_task(scene.manager.run())
        await scenario(scene)
        running.cancel()
        await asyncio.wait([running])
        scene.controller.stop()

    simulate(main, seed=1)


def isr(partition: Partition) -> set[int]:
    assert partition.leader is not None
    return set(partition.leader.isr)


def test_a_proposal_names_the_life_in_which_each_member_was_in_sync():
    """By its broker epoch (KIP-903): the controller refuses a member that was started again."""

    async def scenario(scene):
        partition = scene.led(0)
        partition.take_role(PartitionInfo(0, ME, 4, (ME, OTHER), (ME,), 0))
        end = partition.log.log_end_offset
        proposal = partition.leader.fetched(OTHER, end, end, end, 0, broker_epoch=12)
        scene.manager.propose(partition, proposal)
        await scene.until(lambda: isr(partition) == {ME, OTHER})
        (asked,) = scene.controller.asked(ApiKey.ALTER_PARTITION)
        assert asked.broker_epoch == 7
        ((named,),) = (topic.partitions for topic in asked.topics)
        epochs = {one.broker_id: one.broker_epoch for one in named.new_isr_with_epochs}
        assert epochs == {ME: 7, OTHER: 12}

    run(scenario)


def test_what_the_controller_accepts_is_in_force() -> None:
    async def scenario(scene: Scene) -> None:
        partition = scene.led(0)
        scene.propose(partition)
        await scene.until(lambda: bool(scene.decided))
        assert isr(partition) == {ME}
        assert scene.decided == [partition]
        assert (scene.meters.isr_shrinks, scene.meters.failed_isr_updates) == (1, 0)
        assert scene.asked == [[0]]

    run(scenario)


def test_who_catches_up_meanwhile_is_proposed_as_soon_as_the_answer_is_there() -> None:
    async def scenario(scene: Scene) -> None:
        partition = scene.led(0)
        partition.take_role(PartitionInfo(0, ME, 4, (ME, OTHER, THIRD), (ME,), 0))
        now_ms = int(1000 * scene.loop.time())
        assert partition.leader is not None
        proposal = partition.leader.fetched(OTHER, 0, 0, 0, now_ms)
        assert proposal is not None
        assert partition.leader.fetched(THIRD, 0, 0, 0, now_ms) is None
        scene.manager.propose(partition, proposal)
        await scene.until(lambda: isr(partition) == {ME, OTHER, THIRD})
        assert scene.asked == [[0], [0]]

    run(scenario)


@pytest.mark.parametrize("code", [ErrorCode.ineligible_replica, ErrorCode.operation_not_attempted])
def test_what_it_refuses_was_not_written_and_may_be_proposed_again(code: ErrorCode) -> None:
    async def scenario(scene: Scene) -> None:
        partition = scene.led(0)
        scene.codes = [code]
        scene.propose(partition)
        await scene.until(lambda: bool(scene.decided))
        assert isr(partition) == {ME, OTHER}
        assert scene.meters.failed_isr_updates == 1
        scene.propose(partition)
        await scene.until(lambda: isr(partition) == {ME})

    run(scenario)


@pytest.mark.parametrize("fault", ["an error", "a broken connection"])
def test_what_may_have_been_written_is_proposed_again_by_itself(fault: str) -> None:
    async def scenario(scene: Scene) -> None:
        partition = scene.led(0)
        if fault == "an error":
            scene.codes = [ErrorCode.request_timed_out]
        else:
            scene.may_answer.clear()
        scene.propose(partition)
        await scene.until(lambda: len(scene.asked) == 1)
        if not scene.may_answer.is_set():
            scene.controller.drop()
            scene.may_answer.set()
        await scene.until(lambda: isr(partition) == {ME})
        assert scene.asked == [[0], [0]]
        # Kafka counts what the controller refuses, not that it could not be reached.
        assert scene.meters.failed_isr_updates == (fault == "an error")

    run(scenario)


def test_what_comes_while_a_request_is_out_goes_together_in_the_next() -> None:
    async def scenario(scene: Scene) -> None:
        partitions = [scene.led(number) for number in range(3)]
        scene.may_answer.clear()
        scene.propose(partitions[0])
        await scene.until(lambda: scene.asked == [[0]])
        scene.propose(partitions[1])
        scene.propose(partitions[2])
        scene.may_answer.set()
        await scene.until(lambda: len(scene.decided) == 3)
        assert scene.asked == [[0], [1, 2]]

    run(scenario)


def test_a_proposal_of_an_epoch_that_has_ended_is_not_sent() -> None:
    async def scenario(scene: Scene) -> None:
        partitions = [scene.led(number) for number in range(4)]
        scene.may_answer.clear()
        scene.propose(partitions[0])
        await scene.until(lambda: scene.asked == [[0]])
        for partition in partitions[1:]:
            scene.propose(partition)
        partitions[1].take_role(PartitionInfo(1, OTHER, 4, (ME, OTHER), (OTHER,), 1))
        partitions[2].take_role(PartitionInfo(2, ME, 4, (ME, OTHER), (ME, OTHER), 1))
        scene.may_answer.set()
        await scene.until(lambda: len(scene.decided) == 2)
        assert scene.asked == [[0], [3]]
        assert isr(partitions[2]) == {ME, OTHER}

    run(scenario)


@pytest.mark.parametrize("code", [OK, ErrorCode.ineligible_replica, ErrorCode.request_timed_out])
def test_the_answer_to_an_epoch_that_has_ended_decides_nothing(code: ErrorCode) -> None:
    async def scenario(scene: Scene) -> None:
        partition = scene.led(0)
        scene.codes = [code]
        scene.may_answer.clear()
        scene.propose(partition)
        await scene.until(lambda: scene.asked == [[0]])
        partition.take_role(PartitionInfo(0, ME, 4, (ME, OTHER), (ME, OTHER), 1))
        scene.may_answer.set()
        last = scene.led(1)
        scene.propose(last)
        await scene.until(lambda: scene.decided == [last])
        assert scene.asked == [[0], [1]]
        assert isr(partition) == {ME, OTHER}
        assert (scene.meters.isr_shrinks, scene.meters.failed_isr_updates) == (1, 0)

    run(scenario)


def test_a_failure_that_repeats_is_logged_once(caplog):
    async def scenario(scene):
        partition = scene.led(0)
        scene.code = ErrorCode.stale_broker_epoch
        scene.propose(partition)
        await scene.until(lambda: len(scene.asked) >= 5)
        scene.code = OK
        await scene.until(lambda: isr(partition) == {ME})

    run(scenario)
    warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 1
    assert "AlterPartition" in warnings[0]
