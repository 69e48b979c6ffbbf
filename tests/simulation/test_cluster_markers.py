"""A transaction is decided and a partition of it cannot be told: whoever comes next tells it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from random import Random
from typing import Any

import pytest

from kcli.client.admin.admin import Admin, NewTopic
from kcli.client.admin.elections import ElectionType
from kcli.client.admin.features import FeatureUpdate, UpgradeType
from kcli.client.config import AdminConfig, ConsumerConfig, ProducerConfig
from kcli.client.consumer.consumer import Consumer
from kcli.client.producer.producer import Producer
from kserver.model import CONSUMER_OFFSETS, TRANSACTION_STATE, TopicPartition
from kserver.txn.markers import MarkerSender
from kserver.txn.shard import TransactionShard
from kserver.txn.transaction import TransactionState
from tests.simulation.test_groups import planted
from tests.support.loop import SimLoop, simulate
from tests.support.simulated import PORT
from tests.support.simulated_cluster import SimulatedCluster

IDS = (1, 2, 3)
SETTINGS = {
    "transaction.state.log.num.partitions": 1,
    "offsets.topic.num.partitions": 1,
    "request.timeout.ms": 5000,
}
ALONE = SETTINGS | {
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
}
"""No other broker can become coordinator."""
PATIENCE_S, LIMIT_S = 30, 120
SEEDS = range(3)


class Scene:
    """Each broker leads a partition of topic `t`."""

    def __init__(self, loop: SimLoop, cluster: SimulatedCluster, admin: Admin) -> None:
        self.loop = loop
        self.cluster = cluster
        self.admin = admin
        self.producer: Producer
        self.committing: asyncio.Task[None]
        self.coordinator = self.leader(TRANSACTION_STATE, 0)
        spare = {self.coordinator, self.controller}
        self.other = next(id_ for id_ in IDS if id_ not in spare)
        """Neither coordinates nor controls."""
        self.partition = TopicPartition("t", self.other - 1)
        """Which the other leads."""

    def leader(self, topic: str, number: int) -> int:
        found = self.cluster.leader(topic, number)
        assert found is not None
        return found.leader_id

    @property
    def controller(self) -> int:
        brokers = {id_: self.cluster.brokers[id_].broker for id_ in IDS}
        (active,) = [i for i, b in brokers.items() if b and b._parts.controller.is_active]
        return active

    def cut(self) -> None:
        self.loop.network.cut(f"b{self.coordinator}", f"b{self.other}")

    def heal(self) -> None:
        self.loop.network.heal(f"b{self.coordinator}", f"b{self.other}")

    async def commit(self) -> None:
        """A record to each partition, in a transaction that is decided when this returns."""
        await self.producer.begin_transaction()
        for id_ in IDS:
            await self.producer.send("t", b"v", partition=id_ - 1)
        await self.producer.flush()
        self.cut()
        await self.decided(TopicPartition("t", self.coordinator - 1))

    async def decided(self, partition: TopicPartition) -> None:
        """Once there is a marker in a partition that the coordinator leads itself."""
        self.committing = self.loop.create_task(self.producer.commit_transaction())
        while await self.stable(partition) < 2:  # the record and its marker
            await asyncio.sleep(0.2)

    async def stable(self, partition: TopicPartition) -> int:
        """How far a reader of committed records gets, who asks those that know who leads."""
        hosts = [f"b{id_}:{PORT}" for id_ in IDS if id_ != self.other]
        config = ConsumerConfig.of(
            {"bootstrap.servers": ",".join(hosts), "isolation.level": "read_committed"}
        )
        async with Consumer(config, random=chance(self.loop)) as consumer:
            return (await consumer.end_offsets([partition]))[partition]

    async def until_ended(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while await self.stable(self.partition) < 2:
                await asyncio.sleep(0.2)
        await self.committing


def chance(loop: SimLoop) -> Random:
    return Random(loop.random.random())


def run(
    scenario: Callable[[Scene], Coroutine[Any, Any, None]],
    seed: int,
    settings: Mapping[str, object] = SETTINGS,
) -> None:
    async def main(loop: SimLoop) -> None:
        cluster = SimulatedCluster(loop, len(IDS), settings)
        await cluster.start()
        admin = Admin(AdminConfig.of(cluster.bootstrap), random=chance(loop))
        config = ProducerConfig.of(
            cluster.bootstrap
            | {"transactional.id": "x", "transaction.timeout.ms": "20000", "linger.ms": "0"}
        )
        producer = Producer(config, now_ms=cluster.brokers[1].clock.now_ms, random=chance(loop))
        async with admin, producer:
            placed = {id_ - 1: (id_, *(o for o in IDS if o != id_)) for id_ in IDS}
            await admin.create_topics([NewTopic("t", assignments=placed)])
            await producer.init_transactions()
            await cluster.until_in_sync("t", len(IDS))
            await cluster.until_in_sync(TRANSACTION_STATE, 1)
            scene = Scene(loop, cluster, admin)
            scene.producer = producer
            async with asyncio.timeout(LIMIT_S):
                await scenario(scene)
        cluster.check()
        async with asyncio.timeout(LIMIT_S):
            for id_ in sorted(cluster.up):
                await cluster.stop(id_)
        assert not [bug for broker in cluster.brokers.values() for bug in broker.bugs]

    simulate(main, seed)


async def waits(scene: Scene) -> None:
    await scene.commit()
    await asyncio.sleep(5)
    assert await scene.stable(scene.partition) == 0
    for id_ in IDS:
        if id_ != scene.other:
            assert await scene.stable(TopicPartition("t", id_ - 1)) == 2
    scene.heal()
    await scene.until_ended()


async def outlives_its_coordinator(scene: Scene) -> None:
    await scene.commit()
    await scene.cluster.kill(scene.coordinator)
    await scene.until_ended()
    scene.heal()
    await scene.cluster.start(scene.coordinator)


async def follows_its_partition(scene: Scene) -> None:
    await scene.commit()
    scene.cluster.expire(scene.other)
    await scene.until_ended()
    assert scene.leader(*scene.partition) != scene.other
    scene.heal()


async def ends_before_roles_are_known(scene: Scene) -> None:
    """The markers are written after the coordinator's session was lost, and before the controller
    has told it that it still coordinates."""
    coordinator, controller = f"b{scene.coordinator}", f"b{scene.controller}"
    if coordinator == controller:
        return  # by this seed they are not placed so
    await scene.commit()
    scene.loop.network.cut(coordinator, controller)
    scene.cluster.expire(scene.coordinator)
    await asyncio.sleep(1)  # until it has another session
    scene.heal()
    await asyncio.sleep(10)  # until all markers are written
    scene.loop.network.heal(coordinator, controller)
    async with asyncio.timeout(PATIENCE_S):
        await scene.committing
        await scene.producer.begin_transaction()
        await scene.producer.send("t", b"v", partition=0)
        await scene.producer.commit_transaction()
    assert scene.leader(TRANSACTION_STATE, 0) == scene.coordinator


async def outlives_its_topic(scene: Scene) -> None:
    await scene.admin.create_topics([NewTopic("u", assignments={0: (scene.coordinator,)})])
    await scene.commit()
    await scene.admin.delete_topics(["t"])
    async with asyncio.timeout(PATIENCE_S):
        await scene.committing
        await scene.producer.begin_transaction()
        await scene.producer.send("u", b"v", partition=0)
        await scene.producer.commit_transaction()
    scene.heal()


async def has_offsets(scene: Scene) -> None:
    """The group is coordinated by a broker that the transaction's coordinator does not reach."""
    group, at = "g", TopicPartition("t", 0)
    await scene.admin.groups.offsets([group])
    await scene.cluster.until_in_sync(CONSUMER_OFFSETS, 1)
    scene.other = scene.leader(CONSUMER_OFFSETS, 0)
    if scene.other in (scene.coordinator, scene.controller):
        return  # by this seed they are not placed so
    await scene.producer.begin_transaction()
    told = TopicPartition("t", scene.coordinator - 1)
    await scene.producer.send("t", b"v", partition=told.partition)
    config = ConsumerConfig.of(scene.cluster.bootstrap | {"group.id": group})
    async with Consumer(config, random=chance(scene.loop)) as consumer:
        metadata = consumer.group_metadata()
        await scene.producer.send_offsets_to_transaction({at: 7}, metadata)
    scene.cut()
    await scene.decided(told)
    assert at not in (await scene.admin.groups.offsets([group]))[group]
    scene.heal()
    async with asyncio.timeout(PATIENCE_S):
        while at not in (found := (await scene.admin.groups.offsets([group]))[group]):
            await asyncio.sleep(0.2)
    assert found[at].offset == 7
    await scene.committing


async def until_state(scene: Scene, id_: int, state: TransactionState) -> None:
    """Wait until broker `id_` coordinates, and its transaction has this state."""
    broker = scene.cluster.brokers[id_].broker
    assert broker is not None
    transactions = broker._parts.transactions
    while [one.transactions["x"].state for one in transactions.shards()] != [state]:
        await asyncio.sleep(0.1)


async def coordinates_again(scene: Scene) -> None:
    """A broker coordinates again, and its request from before, with a marker, is in flight still.

    In transaction version 1, the next transaction of the producer has the same producer epoch.
    """
    assert scene.coordinator != scene.controller
    downgrade = FeatureUpdate(1, UpgradeType.UNSAFE_DOWNGRADE)
    await scene.admin.features.update({"transaction.version": downgrade})
    await scene.admin.create_topics([NewTopic("u", assignments={0: (scene.other,)})])
    scene.loop.network.reset("client", f"b{scene.coordinator}")  # the producer learns the version
    producer = scene.producer

    async def begin() -> None:
        await producer.begin_transaction()
        await producer.send("u", b"v", partition=0)
        await producer.flush()

    await begin()
    await producer.commit_transaction()  # opens the connection for the next marker
    await begin()
    scene.cut()
    committing = scene.loop.create_task(producer.commit_transaction())
    await until_state(scene, scene.coordinator, TransactionState.PREPARE_COMMIT)
    await asyncio.sleep(10)  # until the partition of the coordinator is committed without the other
    scene.cluster.expire(scene.coordinator)
    await committing
    coordinator = scene.cluster.leader(TRANSACTION_STATE, 0)
    while coordinator is None or coordinator.leader_id == scene.coordinator:
        coordinator = scene.cluster.leader(TRANSACTION_STATE, 0)
        await asyncio.sleep(0.1)
    await begin()
    await scene.cluster.until_in_sync(TRANSACTION_STATE, 1)
    await scene.admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(TRANSACTION_STATE, 0)])
    await until_state(scene, scene.coordinator, TransactionState.ONGOING)
    scene.loop.network.reset(f"b{scene.coordinator}", f"b{scene.other}")
    scene.heal()
    await asyncio.sleep(5)
    log = scene.cluster.replicas("u", 0)[scene.other].log
    assert (log.last_stable_offset, log.log_end_offset) == (4, 5), "the transaction is still open"
    await producer.abort_transaction()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_marker_waits_for_a_broker_that_cannot_be_reached(seed: int) -> None:
    run(waits, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_next_coordinator_ends_what_the_one_before_had_decided(seed: int) -> None:
    run(outlives_its_coordinator, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_marker_goes_to_whoever_leads_the_partition_by_then(seed: int) -> None:
    run(follows_its_partition, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_topic_that_is_deleted_keeps_no_transaction_open(seed: int) -> None:
    run(outlives_its_topic, seed)


@pytest.mark.parametrize("seed", range(5))
def test_offsets_count_once_the_broker_that_keeps_them_is_told(seed: int) -> None:
    run(has_offsets, seed)


def test_a_marker_of_an_earlier_term_of_the_coordinator_does_not_end_the_next_transaction() -> None:
    run(coordinates_again, 1, SETTINGS | {"request.timeout.ms": 60_000})


@pytest.mark.parametrize("seed", range(5))
def test_a_coordinator_ends_a_transaction_once_it_knows_that_it_still_leads(seed: int) -> None:
    run(ends_before_roles_are_known, seed, ALONE)


PLANTED: dict[str, tuple[Any, str, Any, Any]] = {
    "a marker is sent once": (
        MarkerSender,
        "_send_later",
        lambda *_: None,
        follows_its_partition,
    ),
    "what was decided is not looked for": (
        TransactionShard,
        "loaded",
        lambda self, now: TransactionShard.expire(self, now),
        outlives_its_coordinator,
    ),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_leaves_the_transaction_open(bug: str) -> None:
    owner, decision, wrong, scenario = PLANTED[bug]
    with planted(owner, decision, wrong), pytest.raises(TimeoutError):
        run(scenario, 0)
