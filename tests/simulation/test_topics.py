"""Topics come and go under an unchanged broker that is killed at any moment."""

from __future__ import annotations

import asyncio
import datetime

import pytest

from kserver import znodes
from kserver.errors import ErrorCode, StorageError
from kserver.metadata import ClusterMetadata
from kserver.peer import Peer
from kserver.wire.api_key import ApiKey
from kserver.wire.versions import request
from kserver.world.embedded import COORDINATION
from kserver.world.zookeeper import ANY_VERSION, NO_SESSION, Delete, SetData
from tests.simulation.test_broker import batch, create, fetch, produce, values_of
from tests.support.loop import SimLoop, simulate
from tests.support.seeds import seeds
from tests.support.simulated import DATA, SimulatedBroker
from tests.support.simulated_cluster import SimulatedCluster

SEEDS = seeds(8)


async def delete(peer: Peer, topic: str) -> ErrorCode:
    answer = await peer.call(
        request(ApiKey.DELETE_TOPICS, 5)(
            topic_names=[topic], timeout=datetime.timedelta(seconds=10)
        )
    )
    return answer.responses[0].error_code


async def delete_records(peer: Peer, topic: str, before: int) -> None:
    new = request(ApiKey.DELETE_RECORDS, 1)
    partition = new.topics.partitions(partition_index=0, offset=before)
    topics = [new.topics(name=topic, partitions=[partition])]
    answer = await peer.call(new(topics=topics, timeout=datetime.timedelta(seconds=10)))
    assert answer.topics[0].partitions[0].error_code is ErrorCode.none


async def made_anew(loop: SimLoop) -> None:
    """What was written to a topic that was deleted is not in the one made anew."""
    broker = SimulatedBroker(loop)
    await broker.start()
    peer = await broker.connect()
    for round_ in range(4):
        await create(peer, "t", 2)
        for n in range(3):
            await produce(peer, "t", n % 2, batch(broker.clock.now_ms(), b"%d" % round_))
        if loop.random.random() < 0.5:
            await (broker.kill() if loop.random.random() < 0.5 else broker.stop())
            await broker.start()
            peer = await broker.connect()
        assert await values_of(peer, "t", 0) == [b"%d" % round_] * 2
        assert await delete(peer, "t") is ErrorCode.none
        assert await delete(peer, "t") is ErrorCode.unknown_topic_or_partition
    await asyncio.sleep(120)
    assert [name for name in broker.disk.list(DATA) if name.startswith("t-")] == []
    await broker.stop()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_topic_made_anew_is_empty(seed):
    simulate(made_anew, seed)


async def made_anew_and_crashed(loop: SimLoop) -> None:
    """What was noted on disk of a topic that was deleted says nothing of the one made anew."""
    broker = SimulatedBroker(loop)
    await broker.start()
    peer = await broker.connect()
    await create(peer, "t", 1)
    for _ in range(5):
        await produce(peer, "t", 0, batch(broker.clock.now_ms(), b"old"))
    await delete_records(peer, "t", 3)
    await broker.stop()  # all of it is noted
    await broker.start()
    peer = await broker.connect()
    assert await delete(peer, "t") is ErrorCode.none
    await create(peer, "t", 1)
    writing = loop.create_task(produce(peer, "t", 0, batch(broker.clock.now_ms(), b"new")))
    await asyncio.sleep(loop.random.expovariate(100))
    is_acknowledged = writing.done()
    loses_power = loop.random.random() < 0.5
    await (broker.cut_power() if loses_power else broker.kill())
    writing.cancel()
    await broker.start()
    peer = await broker.connect()
    values = await values_of(peer, "t", 0)
    assert values == [b"new"] or (values == [] and (loses_power or not is_acknowledged))
    await produce(peer, "t", 0, batch(broker.clock.now_ms(), b"newer"))
    assert await values_of(peer, "t", 0) == [*values, b"newer"]
    await broker.stop()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_topic_made_anew_is_not_taken_for_the_former_after_a_crash(seed):
    simulate(made_anew_and_crashed, seed)


async def killed_while_deleting(loop: SimLoop) -> None:
    """Whole or gone: a topic is never half there after a kill."""
    broker = SimulatedBroker(loop)
    await broker.start()
    peer = await broker.connect()
    await create(peer, "t", 3)
    for n in range(3):
        await produce(peer, "t", n, batch(broker.clock.now_ms(), b"x"))
    deleting = loop.create_task(delete(peer, "t"))
    await asyncio.sleep(loop.random.expovariate(200))
    await broker.kill()
    await asyncio.wait((deleting,))
    await broker.start()
    peer = await broker.connect()
    again = await delete(peer, "t")
    answered = not deleting.exception()
    assert again is ErrorCode.unknown_topic_or_partition or not answered
    await create(peer, "t", 3)
    assert await values_of(peer, "t", 1) == []
    await broker.stop()
    assert not broker.bugs


@pytest.mark.parametrize("seed", seeds(20))
def test_a_kill_leaves_a_topic_whole_or_gone(seed):
    simulate(killed_while_deleting, seed)


async def waiting_when_deleted(loop: SimLoop) -> None:
    """Who waits for records of a topic that goes is told so, not left waiting."""

    broker = SimulatedBroker(loop)
    await broker.start()
    peer, reader = await broker.connect(), await broker.connect("reader")
    await create(peer, "t")
    waiting = loop.create_task(fetch(reader, "t", 0, 0, max_wait_ms=600_000))
    await asyncio.sleep(1)
    began = loop.time()
    await delete(peer, "t")
    answer = await waiting
    assert answer.error_code is ErrorCode.unknown_topic_or_partition
    assert loop.time() - began < 1
    await broker.stop()


def test_a_deleted_topic_ends_the_wait_for_its_records():
    simulate(waiting_when_deleted, 1)


async def lost_coordination(loop: SimLoop) -> None:
    """Records are not taken for another cluster's when the metadata store is lost."""
    broker = SimulatedBroker(loop)
    await broker.start()
    peer = await broker.connect()
    await create(peer, "t")
    await produce(peer, "t", 0, batch(broker.clock.now_ms(), b"x"))
    await broker.stop()
    broker.disk.remove(f"{DATA}/{COORDINATION}")
    with pytest.raises(StorageError, match="k storage rebuild"):
        await broker.start()
    assert broker.disk.exists(f"{DATA}/t-0/00000000000000000000.log")


def test_logs_of_another_cluster_are_refused_not_taken():
    simulate(lost_coordination, 1)


async def named_while_unreadable(loop: SimLoop) -> None:
    """A client that names a topic whose state cannot be read for now is asked to try again."""
    cluster = SimulatedCluster(loop, 2)
    await cluster.start()
    path = znodes.state_path("t", 0)
    nodes = cluster.ensemble.tree.nodes

    async def asked(id_: int) -> ErrorCode:
        peer = await cluster.brokers[id_].connect()
        new = request(ApiKey.METADATA, 12)
        answer = await peer.call(new(topics=[new.topics(name="t")], allow_auto_topic_creation=True))
        peer.close()
        return answer.topics[0].error_code

    assert await asked(1) is ErrorCode.none
    state = nodes[path].data
    cluster.ensemble.apply([SetData(path, b"{", ANY_VERSION)], NO_SESSION)
    cluster.ensemble.apply([Delete(znodes.CONTROLLER)], NO_SESSION)
    async with asyncio.timeout(60):
        while any("t" in image.topics for image in images(cluster)):
            await asyncio.sleep(0.1)
    retriable = {ErrorCode.leader_not_available, ErrorCode.unknown_topic_or_partition}
    for id_ in cluster.brokers:
        assert await asked(id_) in retriable
    cluster.ensemble.apply([SetData(path, state, ANY_VERSION)], NO_SESSION)
    async with asyncio.timeout(60):
        while not all("t" in image.topics for image in images(cluster)):
            await asyncio.sleep(0.1)
    for id_ in cluster.brokers:
        assert await asked(id_) is ErrorCode.none
        await cluster.stop(id_)
    assert not [bug for broker in cluster.brokers.values() for bug in broker.bugs]


def images(cluster: SimulatedCluster) -> list[ClusterMetadata]:
    running = [broker for one in cluster.brokers.values() if (broker := one.broker) is not None]
    return [broker._parts.metadata.current for broker in running]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_topic_that_cannot_be_read_is_not_taken_for_one_to_be_created(seed):
    simulate(named_while_unreadable, seed)
