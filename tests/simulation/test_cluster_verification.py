"""Before a partition takes the first batch of a transaction, its leader asks the coordinator of
that, who is another broker (KIP-890)."""

from __future__ import annotations

import asyncio
import datetime
from typing import Any

import pytest

from kcli.client.admin.admin import Admin, NewTopic
from kcli.client.config import AdminConfig
from kserver.errors import ErrorCode
from kserver.model import TRANSACTION_STATE
from kserver.peer import Peer
from kserver.replica.partition import Partition
from kserver.txn.verification import Verification
from kserver.wire.api_key import ApiKey
from kserver.wire.batch import batches, encode_batch
from kserver.wire.versions import request
from tests.simulation.test_groups import planted
from tests.support.loop import SimLoop, simulate
from tests.support.simulated_cluster import SimulatedCluster

IDS = (1, 2, 3)
SETTINGS = {"transaction.state.log.num.partitions": 1, "request.timeout.ms": 5000}
FIRST_WITH_ABORTABLE, FIRST_TO_ADD = 11, 12


class Scene:
    def __init__(self, loop: SimLoop, cluster: SimulatedCluster, coordinator: int) -> None:
        self.loop = loop
        self.cluster = cluster
        self.coordinator = coordinator
        self.leader = next(id_ for id_ in IDS if id_ != coordinator)
        """It leads the partition that is written to."""
        self.producer = (-1, -1)

    async def call(self, id_: int, api: int, version: int, **fields: Any) -> Any:
        peer: Peer = await self.cluster.brokers[id_].connect()
        try:
            return await peer.call(request(api, version)(**fields))
        finally:
            peer.close()

    async def begin(self, version: int = 4) -> None:
        answer = await self.call(
            self.coordinator,
            ApiKey.INIT_PRODUCER_ID,
            version,
            transactional_id="x",
            transaction_timeout=datetime.timedelta(seconds=60),
            producer_id=-1,
            producer_epoch=-1,
        )
        assert answer.error_code is ErrorCode.none
        self.producer = (answer.producer_id, answer.producer_epoch)

    async def add(self) -> ErrorCode:
        new = request(ApiKey.ADD_PARTITIONS_TO_TXN, 3)
        producer_id, epoch = self.producer
        answer = await self.call(
            self.coordinator,
            ApiKey.ADD_PARTITIONS_TO_TXN,
            3,
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[new.v3_and_below_topics(name="t", partitions=[self.leader - 1])],
        )
        (topic,) = answer.results_by_topic_v3_and_below
        return topic.results_by_partition[0].partition_error_code

    async def produce(
        self, version: int = FIRST_WITH_ABORTABLE, *, sequence: int = 0, to: int | None = None
    ) -> ErrorCode:
        """Send a batch with this base sequence, which is its value as well, to broker `to`."""
        producer_id, epoch = self.producer
        batch = encode_batch(
            [(1, None, b"%d" % sequence, ())],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=True,
        )
        new = request(ApiKey.PRODUCE, version)
        partition = new.topic_data.partition_data(index=self.leader - 1, records=batch)
        answer = await self.call(
            self.leader if to is None else to,
            ApiKey.PRODUCE,
            version,
            transactional_id="x",
            acks=-1,
            timeout=datetime.timedelta(seconds=5),
            topic_data=[new.topic_data(name="t", partition_data=[partition])],
        )
        return answer.responses[0].partition_responses[0].error_code

    async def end(self, version: int = 4) -> ErrorCode:
        producer_id, epoch = self.producer
        answer = await self.call(
            self.coordinator,
            ApiKey.END_TXN,
            version,
            transactional_id="x",
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=True,
        )
        return answer.error_code

    @property
    def written(self) -> int:
        leader = self.cluster.leader("t", self.leader - 1)
        assert leader is not None
        return leader.log.log_end_offset


def run(scenario: Any, seed: int = 1) -> None:
    async def main(loop: SimLoop) -> None:
        cluster = SimulatedCluster(loop, len(IDS), SETTINGS)
        await cluster.start()
        async with Admin(AdminConfig.of(cluster.bootstrap), random=loop.random) as admin:
            placed = {id_ - 1: (id_, *(o for o in IDS if o != id_)) for id_ in IDS}
            await admin.create_topics([NewTopic("t", assignments=placed)])
        await Scene(loop, cluster, 1).call(
            1, ApiKey.FIND_COORDINATOR, 4, key_type=1, coordinator_keys=["x"]
        )
        await cluster.until_in_sync(TRANSACTION_STATE, 1)
        await cluster.until_in_sync("t", len(IDS))
        leader = cluster.leader(TRANSACTION_STATE, 0)
        assert leader is not None
        await scenario(Scene(loop, cluster, leader.leader_id))
        for id_ in sorted(cluster.up):
            await cluster.stop(id_)
        assert not [bug for broker in cluster.brokers.values() for bug in broker.bugs]

    simulate(main, seed)


async def refused(scene: Scene) -> None:
    await scene.begin()
    assert await scene.produce() is ErrorCode.transaction_abortable
    assert await scene.produce(FIRST_WITH_ABORTABLE - 1) is ErrorCode.invalid_txn_state
    assert scene.written == 0
    assert await scene.add() is ErrorCode.none
    assert await scene.produce() is ErrorCode.none
    assert scene.written == 1


def test_what_was_not_added_is_refused() -> None:
    run(refused)


def test_the_check_finds_a_leader_that_asks_nobody() -> None:
    async def believes(_: Verification, question: Any) -> Any:
        return question.all(ErrorCode.none)

    with planted(Verification, "_ask", believes), pytest.raises(AssertionError):
        run(refused)


def test_a_leader_adds_what_the_producer_leaves_to_it() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.begin(version=5)
        assert await scene.produce(FIRST_TO_ADD) is ErrorCode.none
        assert await scene.end(version=5) is ErrorCode.none
        while scene.written < 2:  # the marker
            await asyncio.sleep(0.1)

    run(scenario)


def test_a_producer_that_was_replaced_is_fenced_by_a_leader_that_never_heard_of_it() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.begin()
        replaced = scene.producer
        await scene.begin()
        scene.producer = replaced
        assert await scene.produce() is ErrorCode.invalid_producer_epoch

    run(scenario)


@pytest.mark.parametrize("how", ["cut", "kill"])
def test_while_the_coordinator_is_away_the_producer_is_told_to_try_again(how: str) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.begin()
        assert await scene.add() is ErrorCode.none
        hosts = f"b{scene.coordinator}", f"b{scene.leader}"
        if how == "cut":
            scene.loop.network.cut(*hosts)
        else:
            await scene.cluster.kill(scene.coordinator)
        assert await scene.produce() is ErrorCode.not_enough_replicas
        if how == "cut":
            scene.loop.network.heal(*hosts)
        async with asyncio.timeout(60):
            while await scene.produce() is not ErrorCode.none:
                await asyncio.sleep(0.1)
        assert scene.written == 1

    run(scenario)


async def leader_moves(scene: Scene) -> None:
    """The leader moves while two batches await their verification by the old leader."""
    await scene.begin(version=5)
    cluster, index = scene.cluster, scene.leader - 1
    hosts = f"b{scene.coordinator}", f"b{scene.leader}"
    scene.loop.network.cut(*hosts)
    pending = []
    for sequence in (0, 1):
        task = scene.loop.create_task(scene.produce(FIRST_TO_ADD, sequence=sequence))
        pending.append(task)
        await asyncio.sleep(0.1)
    cluster.expire(scene.leader)
    while (new := cluster.leader("t", index)) is None or new.leader_id == scene.leader:
        await asyncio.sleep(0.01)

    async def retry(sequence: int) -> None:
        async with asyncio.timeout(30):
            while (
                await scene.produce(FIRST_TO_ADD, sequence=sequence, to=new.leader_id)
                is not ErrorCode.none
            ):
                await asyncio.sleep(0.1)

    assert not any(task.done() for task in pending)
    moved = scene.loop.create_task(retry(0))
    scene.loop.network.heal(*hosts)
    assert ErrorCode.none not in await asyncio.gather(*pending)
    await moved
    await retry(0)  # a duplicate
    await retry(1)
    assert await scene.end(version=5) is ErrorCode.none
    while new.log.log_end_offset < 3:  # two batches and the marker
        await asyncio.sleep(0.1)
    await cluster.until_in_sync("t", len(IDS))
    for replica in cluster.replicas("t", index).values():
        data = [one for one in batches(cluster.whole(replica)) if not one.is_control]
        assert [record.value for one in data for record in one.records()] == [b"0", b"1"]


@pytest.mark.parametrize("seed", range(3))
def test_batches_are_appended_once_if_the_leader_moves_during_their_verification(
    seed: int,
) -> None:
    run(leader_moves, seed)


def test_that_test_finds_a_batch_that_a_broker_acknowledges_though_it_no_longer_leads() -> None:
    append = Partition.append_as_leader

    def acknowledge(self: Partition, *args: Any, **kwargs: Any) -> Any:
        return append(self, *args, **kwargs) if self.is_leader else (-1, -1, -1, 0, None)

    with planted(Partition, "append_as_leader", acknowledge), pytest.raises(AssertionError):
        run(leader_moves, 0)
