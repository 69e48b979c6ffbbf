"""A broker that is paused keeps its connections open and answers nothing; clients wait for it no
longer than it takes the cluster to go on without it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from functools import partial

import pytest

from kcli.client import Consumer, Producer
from kcli.client.admin.admin import Admin, NewTopic
from kcli.client.admin.descriptions import CoordinatorType
from kcli.client.cluster import NEXT_ADDRESS_S, SLOW_S
from kcli.client.config import AdminConfig, ConsumerConfig, ProducerConfig
from kcli.client.coordinators import find
from kcli.client.errors import TransactionFailed
from kserver.coordinator import runtime
from kserver.errors import KafkaError
from kserver.model import TopicPartition
from tests.support.loop import SimLoop, simulate
from tests.support.seeds import seeds
from tests.support.simulated import PORT
from tests.support.simulated_cluster import SETTINGS, SimulatedCluster

SEEDS = seeds(3)
SESSION_S = int(SETTINGS["zookeeper.session.timeout.ms"]) / 1000
BOUND_S = SESSION_S + 3 * SLOW_S
"""Far below request.timeout.ms, which is 30 s."""


async def started(loop: SimLoop, **settings: int) -> SimulatedCluster:
    cluster = SimulatedCluster(loop, 3, {k.replace("_", "."): v for k, v in settings.items()})
    await cluster.start()
    async with Admin(AdminConfig.of(cluster.bootstrap), random=loop.random) as admin:
        topics = [NewTopic("t", assignments={0: (2, 3, 1)})]
        (created,) = (await admin.create_topics(topics)).values()
        assert not isinstance(created, Exception)
    await cluster.until_in_sync("t", 1)
    return cluster


def controls(cluster: SimulatedCluster, id_: int) -> bool:
    broker = cluster.brokers[id_].broker
    return broker is not None and broker._parts.controller.is_active


def producer_of(loop: SimLoop, cluster: SimulatedCluster, **settings: str) -> Producer:
    config = cluster.bootstrap | {k.replace("_", "."): v for k, v in settings.items()}
    clock = cluster.brokers[1].clock
    return Producer(ProducerConfig.of(config), now_ms=clock.now_ms, random=loop.random)


async def coordinator(
    loop: SimLoop, cluster: SimulatedCluster, kind: CoordinatorType, among: set[int]
) -> tuple[str, int]:
    """Return an id that one of these brokers coordinates, and that broker."""
    async with Admin(AdminConfig.of(cluster.bootstrap), random=loop.random) as admin:
        while True:
            for key in (f"x{number}" for number in range(20)):
                node = (await find(admin.cluster, [key], kind))[key]
                if not isinstance(node, Exception) and node.id in among:
                    return key, node.id
            await asyncio.sleep(0.5)


async def a_producer(loop: SimLoop) -> None:
    cluster = await started(loop)
    async with producer_of(loop, cluster) as producer:
        await (await producer.send("t", b"0", partition=0))
        cluster.brokers[2].pause()
        began_s = loop.time()
        await (await producer.send("t", b"1", partition=0))
        assert loop.time() - began_s < BOUND_S
        cluster.brokers[2].resume()
    await cluster.until_all_in_sync()
    cluster.check()


@contextlib.contextmanager
def isolated(loop: SimLoop, cluster: SimulatedCluster, id_: int) -> Iterator[None]:
    """A broker that clients reach, but neither the other brokers nor ZooKeeper."""
    others = [f"b{other}" for other in cluster.brokers if other != id_]
    for other in others:
        loop.network.cut(f"b{id_}", other)
    cluster.zookeeper(id_).silence()
    yield
    for other in others:
        loop.network.heal(f"b{id_}", other)
    cluster.zookeeper(id_).heal()


async def a_producer_of_restarted_brokers(loop: SimLoop, request_timeout_ms: str) -> None:
    """It could not reach the other brokers once, when they were stopped, and the isolated one
    reports itself as leader."""
    cluster = await started(loop)
    async with Admin(AdminConfig.of(cluster.bootstrap), random=loop.random) as admin:
        await admin.create_topics([NewTopic("u", assignments={0: (1, 2, 3), 1: (3, 2, 1)})])
    await cluster.until_in_sync("u", 2)
    async with producer_of(loop, cluster, request_timeout_ms=request_timeout_ms) as producer:
        for partition, stopped in ((0, 1), (1, 3)):
            await (await producer.send("u", b"0", partition=partition))
            await cluster.kill(stopped)
            await (await producer.send("u", b"1", partition=partition))
            await cluster.start(stopped)
            await cluster.until_all_in_sync()
        with isolated(loop, cluster, 2):
            began_s = loop.time()
            await (await producer.send("u", b"2", partition=0))
            assert loop.time() - began_s < BOUND_S
    await cluster.until_all_in_sync()
    cluster.check()


async def a_producer_that_waits_long(loop: SimLoop) -> None:
    await a_producer_of_restarted_brokers(loop, "30000")


async def a_producer_that_waits_briefly(loop: SimLoop) -> None:
    await a_producer_of_restarted_brokers(loop, "2000")


async def a_transaction(loop: SimLoop) -> None:
    cluster = await started(loop)
    id_, paused = await coordinator(loop, cluster, CoordinatorType.TRANSACTION, {1, 3})
    async with producer_of(loop, cluster, transactional_id=id_) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await (await producer.send("t", b"0", partition=0))
        cluster.brokers[paused].pause()
        began_s = loop.time()
        await producer.commit_transaction()
        assert loop.time() - began_s < BOUND_S
        cluster.brokers[paused].resume()
    await cluster.until_all_in_sync()
    cluster.check()


async def a_transaction_of_the_next_coordinator(loop: SimLoop) -> None:
    """The former coordinator, when it continues, does not know of the transaction; it must not
    refuse to end it."""
    cluster = await started(loop)
    id_, paused = await coordinator(loop, cluster, CoordinatorType.TRANSACTION, {1, 3})
    async with producer_of(loop, cluster, transactional_id=id_) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await (await producer.send("t", b"0", partition=0))
        await producer.commit_transaction()
        await asyncio.sleep(1)  # until its markers are written
        cluster.brokers[paused].pause()
        await producer.begin_transaction()
        await (await producer.send("t", b"1", partition=0))  # its leader asks the next coordinator
        commit = asyncio.create_task(producer.commit_transaction())
        await asyncio.sleep(0.1)  # until its request is there
        cluster.brokers[paused].resume()
        await commit
    await cluster.until_all_in_sync()
    cluster.check()


async def a_member_of_a_group(loop: SimLoop) -> None:
    cluster = await started(loop)
    group, paused = await coordinator(loop, cluster, CoordinatorType.GROUP, {1, 3})
    settings = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": "false"}
    config = ConsumerConfig.of(cluster.bootstrap | settings)
    async with (
        producer_of(loop, cluster) as producer,
        Consumer(config, random=loop.random) as consumer,
    ):
        await (await producer.send("t", b"0", partition=0))
        consumer.subscribe(["t"])
        while not await consumer.poll(1000):
            assert loop.time() < 60
        cluster.brokers[paused].pause()
        began_s = loop.time()
        await consumer.commit()
        assert loop.time() - began_s < BOUND_S
        cluster.brokers[paused].resume()
    await cluster.until_all_in_sync()
    cluster.check()


async def has_members(admin: Admin, group: str) -> bool:
    (described,) = (await admin.groups.describe([group])).values()
    return isinstance(described, Exception) or bool(described.members)


async def a_member_of_the_next_coordinator(loop: SimLoop) -> None:
    """The former coordinator, when it continues, does not know that the group has room again; it
    must not refuse the member for good."""
    cluster = await started(loop, group_max_size=1)
    group, paused = await coordinator(loop, cluster, CoordinatorType.GROUP, {1, 3})
    settings = {"group.id": group, "enable.auto.commit": "false"}
    config = ConsumerConfig.of(cluster.bootstrap | settings)
    async with Consumer(config, random=loop.random) as consumer:
        consumer.subscribe(["t"])
        while not consumer.assignment:
            await consumer.poll(100)
        async with Consumer(config, random=loop.random) as other:
            await other.end_offsets([TopicPartition("t", 0)])
            await other.committed([TopicPartition("t", 0)])  # finds the coordinator
            cluster.brokers[paused].pause()
            await consumer.commit()  # to the next coordinator
            await consumer.close()
            async with Admin(AdminConfig.of(cluster.bootstrap), random=loop.random) as admin:
                while await has_members(admin, group):
                    await asyncio.sleep(0.5)
            other.subscribe(["t"])
            joining = asyncio.create_task(other.poll(1000))
            await asyncio.sleep(0.1)  # until its request is there
            cluster.brokers[paused].resume()
            await joining
            while not other.assignment:
                await other.poll(100)
                assert loop.time() < 60
    await cluster.until_all_in_sync()
    cluster.check()


async def a_static_member_of_a_former_coordinator(loop: SimLoop) -> None:
    """It must not be given an id that the present coordinator does not know, and fences."""
    cluster = await started(loop)
    group, former = await coordinator(loop, cluster, CoordinatorType.GROUP, {1, 3})
    settings = cluster.bootstrap | {"group.id": group, "group.instance.id": "i"}
    settings["partition.assignment.strategy"] = "range,roundrobin"
    async with Consumer(ConsumerConfig.of(settings), random=loop.random) as consumer:
        consumer.subscribe(["t"])
        while not consumer.assignment:
            await consumer.poll(100)
    cluster.zookeeper(former).silence()
    async with Admin(AdminConfig.of(bootstrap_of(2)), random=loop.random) as admin:
        while (await find(admin.cluster, [group], CoordinatorType.GROUP))[group].id == former:
            await asyncio.sleep(0.5)
    # The group has to rebalance for it: its new id is in the log only once it has its assignment.
    settings |= bootstrap_of(former) | {"partition.assignment.strategy": "roundrobin,range"}
    async with Consumer(ConsumerConfig.of(settings), random=loop.random) as consumer:
        began_s = loop.time()
        consumer.subscribe(["t"])
        while not consumer.assignment:
            await consumer.poll(100)
        assert loop.time() - began_s < BOUND_S
    cluster.zookeeper(former).heal()
    await cluster.until_all_in_sync()
    cluster.check()


def bootstrap_of(id_: int) -> dict[str, str]:
    return {"bootstrap.servers": f"b{id_}:{PORT}"}


async def a_consumer_that_seeks(loop: SimLoop) -> None:
    """The next leader is paused, so that the consumer cannot check its position there yet."""
    cluster = await started(loop)
    controller, leader, next_leader = sorted(cluster.up, key=lambda id_: not controls(cluster, id_))
    partition = TopicPartition("u", 0)
    async with Admin(AdminConfig.of(cluster.bootstrap), random=loop.random) as admin:
        await admin.create_topics([NewTopic("u", assignments={0: (leader, next_leader)})])
    await cluster.until_in_sync("u", 1)
    config = ConsumerConfig.of(bootstrap_of(controller) | {"auto.offset.reset": "earliest"})
    async with (
        producer_of(loop, cluster) as producer,
        Consumer(config, random=loop.random) as consumer,
    ):
        for value in (b"0", b"1", b"2"):
            await (await producer.send("u", value, partition=0))
        consumer.assign([partition])
        while await consumer.position(partition) < 3:
            await consumer.poll(1000)
        cluster.brokers[next_leader].pause()
        await cluster.kill(leader)
        await asyncio.sleep(1)  # until the other one is leader, and the consumer connects to it
        await consumer.seek(partition, 1)
        await asyncio.sleep(0.1)
        cluster.brokers[next_leader].resume()
        while not (records := await consumer.poll(1000)):
            assert loop.time() < 60
        assert records[0].offset == 1
    await cluster.start(leader)
    await cluster.until_all_in_sync()
    cluster.check()


async def a_consumer_of_an_isolated_leader(loop: SimLoop) -> None:
    """It seeks where another member of its group has read, at the next leader: the former one has
    no such offset."""
    cluster = await started(loop)
    config = ConsumerConfig.of(bootstrap_of(2) | {"auto.offset.reset": "earliest"})
    async with (
        producer_of(loop, cluster) as producer,
        Consumer(config, random=loop.random) as consumer,
    ):
        await (await producer.send("t", b"0", partition=0))
        partition = TopicPartition("t", 0)
        consumer.assign([partition])
        while not await consumer.poll(100):
            assert loop.time() < 60
        with isolated(loop, cluster, 2):
            for _ in range(5):
                await (await producer.send("t", b"1", partition=0))
            await consumer.seek(partition, 5)
            while not (records := await consumer.poll(100)):
                assert loop.time() < 120
            assert records[0].offset == 5
    await cluster.until_all_in_sync()
    cluster.check()


async def a_new_client(loop: SimLoop) -> None:
    """The first address of bootstrap.servers is that of the paused broker."""
    cluster = await started(loop)
    cluster.brokers[1].pause()
    began_s = loop.time()
    async with Admin(AdminConfig.of(cluster.bootstrap), random=loop.random) as admin:
        assert [topic.name for topic in await admin.list_topics()] == ["t"]
    assert loop.time() - began_s < 2 * NEXT_ADDRESS_S
    cluster.brokers[1].resume()
    cluster.check()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "scenario",
    [
        a_producer,
        a_producer_that_waits_long,
        a_producer_that_waits_briefly,
        a_transaction,
        a_transaction_of_the_next_coordinator,
        a_member_of_a_group,
        a_member_of_the_next_coordinator,
        a_static_member_of_a_former_coordinator,
        a_consumer_that_seeks,
        a_consumer_of_an_isolated_leader,
        a_new_client,
    ],
)
def test_a_paused_broker_is_not_waited_for(scenario, seed):
    simulate(scenario, seed)


@pytest.mark.parametrize(
    ("scenario", "refusal"),
    [
        (a_transaction_of_the_next_coordinator, "invalid_txn_state"),
        (a_member_of_the_next_coordinator, "group_max_size_reached"),
    ],
)
def test_an_unconfirmed_refusal_is_believed(monkeypatch, scenario, refusal):
    """This plants the bug that the scenarios find."""
    monkeypatch.setattr(runtime, "FINAL", frozenset())
    with pytest.raises((TransactionFailed, KafkaError), match=refusal):
        list(map(partial(simulate, scenario), range(5)))
