"""Exactly once, on an unchanged broker that is killed and loses its power, with clients that die,
fall silent and are replaced: what groups and transactions promise together, by seed.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kcli.client.admin.admin import Admin, NewTopic
from kcli.client.admin.features import FeatureUpdate, UpgradeType
from kcli.client.config import AdminConfig
from kcli.client.consumer.completed_fetch import CompletedFetch, FetchedBatch
from kserver.log.producer_state import ProducerStateManager
from kserver.log.validator import Origin, ValidBatch
from tests.simulation.test_groups import found_alone, names_found, planted
from tests.support.exactly_once import (
    INPUT,
    INPUTS,
    OUTPUT,
    transfer,
    transform,
)
from tests.support.loop import SimLoop, simulate
from tests.support.scene import Scene, partitions_of
from tests.support.seeds import seeds
from tests.support.simulated import SimulatedBroker

SEEDS = seeds(8)
BROKER = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "4000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "500",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "log.index.size.max.bytes": "4096",
    "log.flush.before.ack": "true",
}


async def set_up(loop: SimLoop, *topics: NewTopic) -> Scene:
    broker = SimulatedBroker(loop, BROKER)
    await broker.start()
    version = loop.random.choice([0, 1, 2])
    scene = Scene(loop, [broker], partitions_of(OUTPUT, topics[-1].partitions))
    async with Admin(AdminConfig.of(scene.bootstrap), random=loop.random) as admin:
        await admin.create_topics(topics)
        current = (await admin.features.describe()).finalized.get("transaction.version", 0)
        if current != version:
            kind = UpgradeType.UPGRADE if version > current else UpgradeType.UNSAFE_DOWNGRADE
            update = {"transaction.version": FeatureUpdate(version, kind)}
            await admin.features.update(update)
    return scene


async def trouble(scene: Scene, until: asyncio.Event) -> None:
    """Of the broker and its network, until told."""
    random, (broker,), network = scene.random, scene.brokers, scene.loop.network
    while not until.is_set():
        await asyncio.sleep(random.expovariate(2))
        name = random.choice(list(scene.clients))
        match random.randrange(6):
            case 0 | 1:
                network.reset(name, "broker")
            case 2:
                scene.cut(name)
                await asyncio.sleep(random.expovariate(0.5))
                scene.heal(name)
            case 3:
                await broker.cut_power(random.choice([0.0, None]))
                await asyncio.sleep(random.expovariate(2))
                await broker.start()
            case 4:
                await (broker.kill() if random.random() < 0.5 else broker.stop())
                await asyncio.sleep(random.expovariate(2))
                await broker.start()
            case 5:
                broker.clock.jump(random)


async def transformed(loop: SimLoop) -> tuple[str, list[object]]:
    scene = await set_up(loop, NewTopic(INPUT, INPUTS), NewTopic(OUTPUT, 2))
    await transform(scene, trouble)
    await stop(scene)
    return loop.trace.digest, scene.history


async def transferred(loop: SimLoop) -> None:
    scene = await set_up(loop, NewTopic(OUTPUT, loop.random.randint(2, 4)))
    await transfer(scene, trouble)
    await stop(scene)


async def stop(scene: Scene) -> None:
    (broker,) = scene.brokers
    await broker.stop()
    assert not broker.bugs


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_transformed_is_there_once(seed):
    simulate(transformed, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_sum_of_all_accounts_is_zero(seed):
    simulate(transferred, seed)


# Planted bugs


def skips(self: CompletedFetch, most: int) -> FetchedBatch | None:
    """Now and then the first record."""
    batch = take(self, most)
    if batch is not None and self.size % 3 == 0:
        return batch._replace(rows=batch.rows[1:])
    return batch


def goes_back(self: CompletedFetch, most: int) -> FetchedBatch | None:
    """Now and then a record comes twice."""
    batch = take(self, most)
    if batch is not None and self.size % 3 == 0:
        return batch._replace(rows=[*batch.rows[:1], *batch.rows])
    return batch


def leaves_out(self: CompletedFetch, most: int) -> FetchedBatch | None:
    """The third transaction of each producer, as if it had been aborted."""
    batch = take(self, most)
    if batch is not None:
        return batch._replace(rows=[row for row in batch.rows if not row[3].endswith(b"/3")])
    return None


def takes_all(self: ProducerStateManager, batch: ValidBatch, origin: Origin) -> None:
    check(self, batch, origin)


take, check = CompletedFetch.take, ProducerStateManager.check

PLANTED: dict[str, tuple[set[str], Any, str, Any]] = {
    "a reader passes over records": ({"poll-skip"}, CompletedFetch, "take", skips),
    "a reader goes back": ({"int-nonmonotonic-poll"}, CompletedFetch, "take", goes_back),
    "what is aborted is seen": (
        {"G1a"},
        CompletedFetch,
        "_is_visible",
        lambda self, batch: not batch.is_control,
    ),
    "what comes again is written again": ({"duplicate"}, ProducerStateManager, "check", takes_all),
    "what is committed is left out": ({"lost-write"}, CompletedFetch, "take", leaves_out),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found_by_its_check(bug):
    names, owner, decision, wrong = PLANTED[bug]
    with planted(owner, decision, wrong):
        runs = (names_found(simulate, transferred, seed) for seed in range(100))
        assert found_alone(names, runs)


@pytest.mark.parametrize("seed", range(2))
def test_a_seed_gives_the_same_run_event_by_event(seed):
    assert simulate(transformed, seed) == simulate(transformed, seed)
