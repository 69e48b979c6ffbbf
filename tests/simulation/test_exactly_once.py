"""Exactly once, on an unchanged broker that is killed and loses its power, with clients that die,
fall silent and are replaced: what groups and transactions promise together, by seed.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from kcli.client.admin import Admin, NewTopic
from kcli.client.completed_fetch import CompletedFetch, FetchedBatch
from kcli.client.config import AdminConfig, ProducerConfig
from kcli.client.features import FeatureUpdate, UpgradeType
from kcli.client.producer import Producer
from kserver.log.producer_state import ProducerStateManager
from kserver.log.validator import Origin, ValidBatch
from kserver.model import TopicPartition
from tests.simulation.test_groups import found_alone, names_found, planted
from tests.support.exactly_once import (
    BOOTSTRAP,
    GROUP,
    INPUT,
    OUTPUT,
    Reader,
    Scene,
    Transferer,
    Transformer,
    look,
    read,
)
from tests.support.history import Fetched, Polled, verify
from tests.support.loop import SimLoop, simulate
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
CLASSIC = {"heartbeat.interval.ms": "500", "session.timeout.ms": "4000"}
PROTOCOLS = [
    CLASSIC,
    CLASSIC | {"partition.assignment.strategy": "cooperative-sticky"},
    {"group.protocol": "consumer"},
]
OPEN_S = 15
"""Longer than a transaction may be open, and to find out that it has been for too long."""
INPUTS, RECORDS = 2, 30
LIMIT_S = 300


async def set_up(loop: SimLoop, *topics: NewTopic) -> Scene:
    broker = SimulatedBroker(loop, BROKER)
    await broker.start()
    version = loop.random.choice([0, 1, 2])
    async with Admin(AdminConfig.of(BOOTSTRAP), random=loop.random) as admin:
        await admin.create_topics(topics)
        current = (await admin.features.describe()).finalized.get("transaction.version", 0)
        if current != version:
            kind = UpgradeType.UPGRADE if version > current else UpgradeType.UNSAFE_DOWNGRADE
            update = {"transaction.version": FeatureUpdate(version, kind)}
            await admin.features.update(update)
    return Scene(loop, broker, topics[-1].partitions)


async def trouble(scene: Scene, until: asyncio.Event) -> None:
    """Of the broker and its network, until told."""
    random, broker, network = scene.random, scene.broker, scene.loop.network
    while not until.is_set():
        await asyncio.sleep(random.expovariate(2))
        name = random.choice(list(scene.clients))
        match random.randrange(6):
            case 0 | 1:
                network.reset(name, "broker")
            case 2:
                network.cut(name, "broker")
                await asyncio.sleep(random.expovariate(0.5))
                network.heal(name, "broker")
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


async def offsets(scene: Scene) -> dict[TopicPartition, int]:
    """What the group has committed, of each partition of the input."""
    since = len(scene.history)
    config = AdminConfig.of(BOOTSTRAP)
    async with Admin(config, random=scene.new_chance()) as admin:
        found = await admin.groups.offsets([GROUP])
    partitions = [TopicPartition(INPUT, n) for n in range(INPUTS)]
    committed = {}
    for one in partitions:
        known = found[GROUP].get(one)
        committed[one] = -1 if known is None else known.offset
        scene.note(Fetched(scene.loop.time(), since, GROUP, tuple(one), committed[one]))
    return committed


async def transformed(loop: SimLoop) -> tuple[str, list[object]]:
    """Each record of the input is in the output once, and each offset is committed."""
    scene = await set_up(loop, NewTopic(INPUT, INPUTS), NewTopic(OUTPUT, 2))
    random = scene.random
    now_ms = scene.broker.clock.now_ms
    producer = Producer(ProducerConfig.of(BOOTSTRAP), now_ms=now_ms, random=scene.new_chance())
    async with producer:
        for partition, number in itertools.product(range(INPUTS), range(RECORDS)):
            value = f"{partition}:{number}".encode()
            await producer.send(INPUT, value, partition=partition)
        await producer.flush()
    settings = random.choice(PROTOCOLS)
    workers = {f"x{n}": scene.run(Transformer(f"x{n}", settings), "w") for n in range(2)}
    scene.run(Reader(), "r")
    calm = asyncio.Event()
    breaking = loop.create_task(trouble(scene, calm))
    for _ in range(random.randint(1, 4)):
        await asyncio.sleep(random.expovariate(0.2))
        name = random.choice(list(workers))
        before, silent = workers[name], random.random() < 0.5
        if silent:
            # It goes on where it was when it is heard of again, while another has its place.
            scene.replaced.add(before)
            loop.network.cut(before, "broker")
        else:
            scene.kill(before)
        await asyncio.sleep(random.expovariate(0.5))
        workers[name] = scene.run(Transformer(name, settings), "w")
        if silent:
            await asyncio.sleep(random.expovariate(0.2))
            loop.network.heal(before, "broker")
    calm.set()
    await breaking
    async with asyncio.timeout(LIMIT_S):
        while set((await offsets(scene)).values()) != {RECORDS}:
            await asyncio.sleep(1)
    await finish(scene)
    found = [e.value.partition("#")[0] for e in scene.history if isinstance(e, Polled)]
    assert set(found) == {f"{p}:{n}" for p in range(INPUTS) for n in range(RECORDS)}
    return loop.trace.digest, scene.history


async def finish(scene: Scene) -> None:
    await scene.stop()
    await asyncio.sleep(OPEN_S)
    await read(scene, "last")
    await look(scene)
    await scene.broker.stop()
    assert not scene.broker.bugs
    verify(scene.history)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_transformed_is_there_once(seed):
    simulate(transformed, seed)


async def transferred(loop: SimLoop) -> None:
    """Nobody ever sees that money came from nowhere, or went there."""
    accounts = loop.random.randint(2, 4)
    scene = await set_up(loop, NewTopic(OUTPUT, accounts))
    tellers = [scene.run(Transferer(f"x{n}", 20), "t") for n in range(2)]
    scene.run(Reader(), "r")
    calm = asyncio.Event()
    breaking = loop.create_task(trouble(scene, calm))
    async with asyncio.timeout(LIMIT_S):
        await asyncio.wait([scene.clients[name] for name in tellers])
    calm.set()
    await breaking
    await finish(scene)
    by_transfer: dict[str, int] = {}
    for event in scene.history:
        if isinstance(event, Polled) and event.reader == "last":
            transfer, _, amount = event.value.partition("#")[0].partition(":")
            by_transfer[transfer] = by_transfer.get(transfer, 0) + int(amount)
    assert by_transfer
    assert not any(by_transfer.values()), by_transfer


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
    "a reader goes back": ({"nonmonotonic-poll"}, CompletedFetch, "take", goes_back),
    "what is aborted is seen": (
        {"aborted-read"},
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
