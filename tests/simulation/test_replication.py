"""Followers on one loop: who is read from, how fast they follow, and what a new disk lacks."""

from __future__ import annotations

import asyncio
import errno
import logging
from contextlib import suppress
from random import Random
from typing import Any
from unittest.mock import patch

import pytest

from kcli.client.admin.admin import Admin, NewTopic
from kcli.client.config import AdminConfig, ConsumerConfig, ProducerConfig
from kcli.client.consumer.consumer import Consumer
from kcli.client.errors import ClientError
from kcli.client.producer.producer import Producer
from kserver.config.sections.replication import RACK_AWARE
from kserver.errors import ErrorCode, KafkaError
from kserver.model import ElectionType, TopicPartition
from kserver.replica.manager import ReplicaManager
from tests.support.disk import SimDisk
from tests.support.loop import SimLoop, simulate
from tests.support.seeds import seeds
from tests.support.simulated import DATA
from tests.support.simulated_cluster import SimulatedCluster

SEEDS = seeds(4)
PATIENCE_S = 60
T0 = TopicPartition("t", 0)


def random(loop: SimLoop) -> Random:
    return Random(loop.random.random())


async def started(
    loop: SimLoop, config: dict[str, str] | None = None, **settings: object
) -> SimulatedCluster:
    cluster = SimulatedCluster(loop, 3, settings)
    for id_, broker in cluster.brokers.items():
        broker.settings["broker.rack"] = f"r{id_}"
    await cluster.start()
    async with Admin(AdminConfig.of(cluster.bootstrap), random=random(loop)) as admin:
        await admin.create_topics([NewTopic("t", 1, 3, config=config or {})])
    await cluster.until_in_sync("t", 1)
    return cluster


async def stopped(cluster: SimulatedCluster) -> None:
    for id_ in sorted(cluster.up):
        await cluster.stop(id_)
    assert not [bug for broker in cluster.brokers.values() for bug in broker.bugs]


def producer(loop: SimLoop, cluster: SimulatedCluster, **settings: str) -> Producer:
    config = ProducerConfig.of(cluster.bootstrap | {"acks": "all"} | settings)
    return Producer(config, now_ms=cluster.brokers[1].clock.now_ms, random=random(loop))


def consumer(loop: SimLoop, cluster: SimulatedCluster, rack: str, **settings: str) -> Consumer:
    given = {"auto.offset.reset": "earliest", "client.rack": rack}
    config = ConsumerConfig.of(cluster.bootstrap | given | settings)
    return Consumer(config, random=random(loop))


def replicas(cluster: SimulatedCluster, id_: int) -> ReplicaManager:
    broker = cluster.brokers[id_].broker
    assert broker is not None
    return broker._parts.replicas


async def read(reader: Consumer, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        found += [record.value for record in await reader.poll(1000)]
    return found


def leader_and_follower(cluster: SimulatedCluster) -> tuple[int, int]:
    leader = cluster.leader("t", 0)
    assert leader is not None
    return leader.leader_id, next(id_ for id_ in sorted(cluster.up) if id_ != leader.leader_id)


async def read_from_near(loop: SimLoop) -> str:
    cluster = await started(loop, **{"replica.selector.class": RACK_AWARE})
    leader, near = leader_and_follower(cluster)
    values = [b"%d" % n for n in range(40)]
    async with (
        producer(loop, cluster) as sender,
        consumer(loop, cluster, f"r{near}") as reader,
    ):
        reader.assign([T0])
        for value in values[:20]:
            await (await sender.send("t", value, partition=0))
            acknowledged_s = loop.time()
            assert await read(reader, 1) == [value]
            assert loop.time() - acknowledged_s < 0.2, "a follower learns at once what is committed"
        assert replicas(cluster, leader).topics.of("t").bytes_out == 0
        assert replicas(cluster, near).topics.of("t").bytes_out > 0
        await cluster.kill(near)
        for value in values[20:]:
            await (await sender.send("t", value, partition=0))
        assert await read(reader, 20) == values[20:]
        assert replicas(cluster, leader).topics.of("t").bytes_out > 0
    await stopped(cluster)
    return loop.trace.digest


@pytest.mark.parametrize("seed", SEEDS)
def test_a_consumer_reads_from_its_rack_and_from_the_leader_when_that_is_gone(seed: int) -> None:
    simulate(read_from_near, seed)


async def read_committed_from_near(loop: SimLoop) -> str:
    cluster = await started(loop, **{"replica.selector.class": RACK_AWARE})
    leader, near = leader_and_follower(cluster)
    settings = {"transactional.id": "x", "enable.idempotence": "true"}
    async with (
        producer(loop, cluster, **settings) as sender,
        consumer(loop, cluster, f"r{near}", **{"isolation.level": "read_committed"}) as reader,
    ):
        reader.assign([T0])
        await sender.init_transactions()
        kept = []
        for n in range(6):
            await sender.begin_transaction()
            value = b"%d" % n
            await (await sender.send("t", value, partition=0))
            if loop.random.random() < 0.5:
                await sender.commit_transaction()
                kept.append(value)
            else:
                await sender.abort_transaction()
        await sender.begin_transaction()
        await (await sender.send("t", b"last", partition=0))
        await sender.commit_transaction()
        assert await read(reader, len(kept) + 1) == [*kept, b"last"]
    assert replicas(cluster, leader).topics.of("t").bytes_out == 0
    assert replicas(cluster, near).topics.of("t").bytes_out > 0
    await stopped(cluster)
    return loop.trace.digest


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_aborted_is_not_read_from_a_follower_either(seed: int) -> None:
    simulate(read_committed_from_near, seed)


async def followed_on_an_empty_disk(loop: SimLoop) -> str:
    cluster = await started(loop, **{"min.insync.replicas": 2})
    _, emptied = leader_and_follower(cluster)
    values = [b"%d" % n for n in range(30)]
    async with producer(loop, cluster) as sender:
        for value in values:
            await (await sender.send("t", value, partition=0))
    await cluster.kill(emptied)
    broker = cluster.brokers[emptied]
    broker.disk = SimDisk(loop.random, broker.clock)
    await asyncio.sleep(loop.random.expovariate(0.3))
    starting = loop.create_task(cluster.start(emptied))
    await asyncio.sleep(loop.random.expovariate(1))
    leader = cluster.leader("t", 0)
    if leader is not None and leader.leader_id != emptied:
        killed = leader.leader_id
        await cluster.kill(killed)
        await asyncio.sleep(loop.random.expovariate(0.3))
        await cluster.start(killed)
    await starting
    await cluster.until_in_sync("t", 1)
    async with consumer(loop, cluster, "") as reader:
        reader.assign([T0])
        assert await read(reader, len(values)) == values
    await stopped(cluster)
    return loop.trace.digest


@pytest.mark.parametrize("seed", SEEDS)
def test_a_broker_whose_disk_is_new_takes_nothing_from_the_others(seed: int) -> None:
    simulate(followed_on_an_empty_disk, seed)


async def led_by_the_last_in_sync(loop: SimLoop) -> str:
    cluster = await started(loop, **{"min.insync.replicas": 1})
    values = [b"%d" % n for n in range(30)]
    async with producer(loop, cluster) as sender:
        for value in values:
            await (await sender.send("t", value, partition=0))
    order = sorted(cluster.brokers)
    loop.random.shuffle(order)
    for id_ in order:
        await cluster.stop(id_)
    last = cluster.brokers[order[-1]]
    mounted = last.disk
    if loop.random.random() < 0.5:
        last.disk = SimDisk(loop.random, last.clock)
    else:
        last.disk.remove_tree(f"{DATA}/t-0")
        mounted = None
    await cluster.start()
    refused = replicas(cluster, order[-1])
    async with asyncio.timeout(60):
        while not refused.has_missing:
            await asyncio.sleep(0.1)
    await asyncio.sleep(20)
    assert cluster.leader("t", 0) is None, "an empty log took the place of the records"
    with pytest.raises(KafkaError, match="kafka_storage_error"):
        refused.get("t", 0)
    if mounted is not None:
        await cluster.stop(order[-1])
        last.disk = mounted
        await cluster.start(order[-1])
    else:
        # The operator lets a replica lead that may lack records.
        async with Admin(AdminConfig.of(cluster.bootstrap), random=random(loop)) as admin:
            await admin.elect_leaders(ElectionType.UNCLEAN, [T0])
    await cluster.until_in_sync("t", 1)
    async with consumer(loop, cluster, "") as reader:
        reader.assign([T0])
        assert await read(reader, len(values)) == values
    await stopped(cluster)
    return loop.trace.digest


@pytest.mark.parametrize("seed", seeds(8))
def test_the_last_in_sync_does_not_lead_without_its_records(seed: int) -> None:
    simulate(led_by_the_last_in_sync, seed)


RATE, SECONDS = 20_000, 10


async def throttled(loop: SimLoop, side: str) -> str:
    cluster = await started(
        loop,
        {f"{side}.replication.throttled.replicas": "*"},
        **{
            f"{side}.replication.throttled.rate": RATE,
            "replica.fetch.max.bytes": 2000,
            "replica.fetch.response.max.bytes": 2000,
            "min.insync.replicas": 1,
        },
    )
    leader, behind = leader_and_follower(cluster)
    await cluster.kill(behind)
    async with producer(loop, cluster, **{"batch.size": "1000"}) as sender:
        for _ in range(50):
            outcomes = [await sender.send("t", bytes(900), partition=0) for _ in range(10)]
            began_s = loop.time()
            for outcome in outcomes:
                await outcome
        assert loop.time() - began_s < 1, "who is in sync is not held back"
        # What was sent while all were in sync is counted too.
        await asyncio.sleep(15)
        await cluster.start(behind)
        while not (own := replicas(cluster, behind).meters).bytes_in:
            await asyncio.sleep(0.01)
        await asyncio.sleep(SECONDS)
        assert own.bytes_in == pytest.approx(RATE * SECONDS, rel=0.1)
        led = cluster.leader("t", 0)
        assert led is not None
        assert led.leader is not None
        assert behind not in led.leader.isr
    await cluster.until_in_sync("t", 1)
    assert replicas(cluster, leader).meters.bytes_out > RATE * SECONDS
    await stopped(cluster)
    return loop.trace.digest


@pytest.mark.parametrize("side", ["leader", "follower"])
@pytest.mark.parametrize("seed", SEEDS[:2])
def test_a_throttled_follower_catches_up_at_the_rate_that_is_set(seed: int, side: str) -> None:
    simulate(lambda loop: throttled(loop, side), seed)


DIRECTORIES = ("/a", "/b")


async def on_two_disks(loop: SimLoop, partitions: int, **settings: object) -> SimulatedCluster:
    cluster = SimulatedCluster(loop, 3, {"log.dirs": ",".join(DIRECTORIES)} | settings)
    await cluster.start()
    async with Admin(AdminConfig.of(cluster.bootstrap), random=random(loop)) as admin:
        await admin.create_topics([NewTopic("t", partitions, 3)])
    await cluster.until_in_sync("t", partitions)
    return cluster


async def on_a_failed_disk(loop: SimLoop) -> str:
    partitions = 4
    cluster = await on_two_disks(
        loop, partitions, **{"replica.lag.time.max.ms": 60_000, "min.insync.replicas": 2}
    )
    harmed = loop.random.choice(sorted(cluster.brokers))
    fault = cluster.brokers[harmed].disk.fail("*", errno.EIO, path=f"{DIRECTORIES[0]}*")
    settings = {"retry.backoff.ms": "50"}
    sent: dict[int, list[bytes]] = {n: [] for n in range(partitions)}
    async with producer(loop, cluster, **settings) as sender:
        for n in range(40):
            sent[n % partitions].append(b"%d" % n)
            await (await sender.send("t", b"%d" % n, partition=n % partitions))
        assert loop.time() < 50, "nobody waits until a follower lags that has no disk"
        kept = replicas(cluster, harmed)
        offline = [n for n in range(partitions) if kept.is_offline(TopicPartition("t", n))]
        assert 0 < len(offline) < partitions
        for number in offline:
            led = cluster.leader("t", number)
            assert led is not None
            assert led.leader is not None
            assert led.leader.isr == set(cluster.brokers) - {harmed}
        await cluster.stop(harmed)
        fault.clear()
        await cluster.start(harmed)
        await cluster.until_in_sync("t", partitions)
    async with consumer(loop, cluster, "") as reader:
        for number, values in sent.items():
            reader.assign([TopicPartition("t", number)])
            assert await read(reader, len(values)) == values
    await stopped(cluster)
    return loop.trace.digest


@pytest.mark.parametrize("seed", SEEDS)
def test_a_failed_disk_takes_its_replicas_out_at_once_until_it_is_repaired(seed: int) -> None:
    simulate(on_a_failed_disk, seed)


async def moved_while_they_follow(loop: SimLoop) -> str:
    cluster = await on_two_disks(
        loop,
        1,
        **{"min.insync.replicas": 2, "replica.alter.log.dirs.io.max.bytes.per.second": 5_000},
    )
    settings = {"request.timeout.ms": "2000", "delivery.timeout.ms": "600000", "batch.size": "2000"}
    calm = asyncio.Event()

    async def move() -> None:
        async with Admin(AdminConfig.of(cluster.bootstrap), random=random(loop)) as admin:
            while not calm.is_set():
                await asyncio.sleep(loop.random.expovariate(1))
                target = loop.random.choice(sorted(cluster.brokers))
                path = loop.random.choice(DIRECTORIES)
                with suppress(KafkaError, ClientError, OSError):
                    await admin.alter_replica_log_dirs(target, {T0: path})

    async def depose() -> None:
        """A leader dies, or goes on alone while another one is elected: then its log is cut."""
        while not calm.is_set():
            await asyncio.sleep(loop.random.expovariate(0.3))
            leader = cluster.leader("t", 0)
            if leader is None:
                continue
            deposed = leader.leader_id
            if loop.random.random() < 0.3:
                await cluster.kill(deposed)
                await asyncio.sleep(loop.random.expovariate(0.5))
                await cluster.start(deposed)
                continue
            others = [f"b{id_}" for id_ in cluster.brokers if id_ != deposed]
            for other in others:
                loop.network.cut(f"b{deposed}", other)
            cluster.expire(deposed)
            await asyncio.sleep(loop.random.expovariate(0.3))
            for other in others:
                loop.network.heal(f"b{deposed}", other)

    tasks = [loop.create_task(move()), loop.create_task(depose())]
    sent = []
    async with producer(loop, cluster, **settings) as sender:
        outcomes = []
        for n in range(150):
            sent.append(b"%d" % n + bytes(400))
            outcomes.append(await sender.send("t", sent[-1], partition=0))
            await asyncio.sleep(loop.random.expovariate(10))
        calm.set()
        for task in tasks:
            await task
        for outcome in outcomes:
            await outcome
    await cluster.until_in_sync("t", 1)
    async with consumer(loop, cluster, "") as reader:
        reader.assign([T0])
        assert await read(reader, len(sent)) == sent
    found = set()
    for replica in cluster.replicas("t", 0).values():
        replica.log.check()
        found.add(b"".join(s.file.read_at(0, s.size) for s in replica.log.segments))
    assert len(found) == 1, "replicas differ"
    await stopped(cluster)
    return loop.trace.digest


@pytest.mark.parametrize("seed", SEEDS)
def test_replicas_move_between_disks_while_they_follow_and_lead(seed: int) -> None:
    simulate(moved_while_they_follow, seed)


async def on_both(loop: SimLoop, cluster: SimulatedCluster) -> tuple[int, int]:
    """Create the topic u, on t's leader and one follower, which `acks=all` needs both; return
    these two."""
    leader, follower = leader_and_follower(cluster)
    topic = NewTopic("u", assignments={0: [leader, follower]}, config={"min.insync.replicas": "2"})
    async with Admin(AdminConfig.of(cluster.bootstrap), random=random(loop)) as admin:
        await admin.create_topics([topic])
    await cluster.until_in_sync("u", 1)
    return leader, follower


@pytest.mark.parametrize("where", ["append", "fetch"])
def test_a_bug_in_a_fetcher_is_reported_and_ends_neither_the_broker_nor_the_others(
    where: str,
) -> None:
    async def run(loop: SimLoop) -> None:
        cluster = await started(loop)
        reported: list[Any] = []
        loop.set_exception_handler(lambda _, context: reported.append(context))
        _, follower = await on_both(loop, cluster)
        broker = cluster.brokers[follower].broker
        assert broker is not None
        (fetcher,) = broker._parts.replicas.fetchers.running
        part = cluster.replicas("t", 0)[follower].log if where == "append" else fetcher._session

        def fails(*_: object) -> None:
            raise RuntimeError("planted")

        planted = "append_as_follower" if where == "append" else "responded"
        with patch.object(part, planted, fails):
            async with producer(loop, cluster, **{"linger.ms": "0"}) as sender:
                await (await sender.send("t", b"1", partition=0))
                async with asyncio.timeout(PATIENCE_S):
                    while len(reported) < 6:
                        await asyncio.sleep(0.1)
                    if where == "append":
                        # What the same fetcher fetches for another partition is appended.
                        before = len(reported)
                        for n in range(20):
                            await (await sender.send("u", b"%d" % n, partition=0))
                        assert len(reported) < before + 2
                await (await sender.send("t", b"2", partition=0))
        assert {str(one["exception"]) for one in reported} == {"planted"}
        assert all("a bug in this broker" in one["message"] for one in reported)
        assert loop.time() > 2, "it tries again after a pause, which grows to a second"
        await cluster.until_in_sync("t", 1)
        assert follower in cluster.up
        before = len(reported)
        await stopped(cluster)
        assert len(reported) == before

    simulate(run, 3)


def test_a_leader_that_cannot_be_reached_is_a_line_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)

    async def run(loop: SimLoop) -> None:
        cluster = await started(loop, **{"replica.socket.timeout.ms": 2000})
        leader, follower = leader_and_follower(cluster)

        def lines(text: str) -> int:
            fetcher = f"broker-{follower}-fetcher-0: "
            messages = (record.getMessage() for record in caplog.records)
            return sum(one.startswith(fetcher) and text in one for one in messages)

        loop.network.cut(f"b{follower}", f"b{leader}")
        await asyncio.sleep(130)
        assert 2 <= lines("failed") <= 6, caplog.text
        assert not lines("succeed again")
        loop.network.heal(f"b{follower}", f"b{leader}")
        async with asyncio.timeout(PATIENCE_S):
            while not lines("succeed again"):
                await asyncio.sleep(0.1)
        await asyncio.sleep(5)
        assert lines("succeed again") == 1
        await stopped(cluster)

    simulate(run, 3)


def test_a_producer_hears_at_once_that_its_batch_lost_the_replicas_that_it_needs() -> None:
    async def run(loop: SimLoop) -> None:
        cluster = await started(loop)
        leader, follower = await on_both(loop, cluster)
        loop.network.cut(f"b{leader}", f"b{follower}")
        settings = {"linger.ms": "0", "retries": "0", "enable.idempotence": "false"}
        async with producer(loop, cluster, **settings) as sender:
            sent = await sender.send("u", b"1", partition=0)
            await asyncio.sleep(0.5)
            await cluster.kill(follower)
            killed_s = loop.time()
            with pytest.raises(KafkaError) as refused:
                await sent
        assert refused.value.code is ErrorCode.not_enough_replicas_after_append
        assert loop.time() < killed_s + 10, "as soon as the ISR has shrunk, not after 30 s"
        # It stays in the log, and is committed once enough replicas have it.
        loop.network.heal(f"b{leader}", f"b{follower}")
        await cluster.start(follower)
        await cluster.until_in_sync("u", 1)
        assert cluster.replicas("u", 0)[follower].log.high_watermark == 1
        await stopped(cluster)

    simulate(run, 3)
