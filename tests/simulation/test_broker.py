"""The unchanged broker on a deterministic loop."""

from __future__ import annotations

import asyncio
import datetime
import gc
from uuid import UUID

import pytest

from kserver.api.fetch import DelayedFetch
from kserver.errors import ErrorCode
from kserver.peer import Peer
from kserver.wire.api_key import ApiKey
from kserver.wire.batch import batches, encode_batch
from kserver.wire.versions import request
from tests.support.loop import SimLoop, simulate
from tests.support.seeds import seeds
from tests.support.simulated import SimulatedBroker

SEEDS = seeds(8)


async def create(peer: Peer, topic: str, partitions: int = 1, **config: object) -> UUID:
    build = request(ApiKey.CREATE_TOPICS, 7)
    answer = await peer.call(
        build(
            topics=[
                build.topics(
                    name=topic,
                    num_partitions=partitions,
                    replication_factor=1,
                    configs=[
                        build.topics.configs(name=k.replace("_", "."), value=str(v))
                        for k, v in config.items()
                    ],
                )
            ],
            timeout=datetime.timedelta(seconds=10),
        )
    )
    assert answer.topics[0].error_code is ErrorCode.none, answer
    return answer.topics[0].topic_id


async def produce(peer: Peer, topic: str, partition: int, records: bytes, acks: int = -1):
    build = request(ApiKey.PRODUCE, 9)
    answer = await peer.call(
        build(
            acks=acks,
            timeout=datetime.timedelta(seconds=5),
            topic_data=[
                build.topic_data(
                    name=topic,
                    partition_data=[
                        build.topic_data.partition_data(index=partition, records=records)
                    ],
                )
            ],
        )
    )
    return answer.responses[0].partition_responses[0]


async def fetch(peer: Peer, topic: str, partition: int, offset: int, max_wait_ms: int = 0):
    build = request(ApiKey.FETCH, 12)
    answer = await peer.call(
        build(
            max_wait=datetime.timedelta(milliseconds=max_wait_ms),
            min_bytes=1,
            max_bytes=1 << 20,
            session_epoch=-1,
            topics=[
                build.topics(
                    topic=topic,
                    partitions=[
                        build.topics.partitions(
                            partition=partition,
                            current_leader_epoch=-1,
                            fetch_offset=offset,
                            last_fetched_epoch=-1,
                            log_start_offset=-1,
                            partition_max_bytes=1 << 20,
                        )
                    ],
                )
            ],
        )
    )
    return answer.responses[0].partitions[0]


def batch(clock_ms: int, *values: bytes, producer: tuple[int, int, int] = (-1, -1, -1)) -> bytes:
    producer_id, epoch, sequence = producer
    return encode_batch(
        [(clock_ms, None, value, ()) for value in values],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


async def values_of(peer: Peer, topic: str, partition: int = 0) -> list[bytes]:
    return list((await values_by_offset(peer, topic, partition)).values())


async def values_by_offset(peer: Peer, topic: str, partition: int = 0) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    offset = 0
    while True:
        answer = await fetch(peer, topic, partition, offset)
        assert answer.error_code is ErrorCode.none, answer
        if not answer.records:
            return found
        for one in batches(answer.records):
            found |= {r.offset: r.value for r in one.records() if r.offset >= offset}
            offset = one.next_offset


async def some_load(loop: SimLoop) -> tuple[str, float]:
    """Producers and a consumer that waits; a kill and a start in between."""
    broker = SimulatedBroker(loop)
    await broker.start()
    peer = await broker.connect()
    await create(peer, "t", 2)

    async def producer(number: int) -> None:
        mine = await broker.connect(f"producer-{number}")
        for n in range(20):
            answer = await produce(
                mine,
                "t",
                number,
                batch(broker.clock.now_ms(), b"%d" % n),
                loop.random.choice([1, -1]),
            )
            assert answer.error_code is ErrorCode.none
            loop.trace.add("acked", number, answer.base_offset)
        mine.close()

    async def consumer() -> None:
        mine = await broker.connect("consumer")
        offset = 0
        while offset < 20:
            answer = await fetch(mine, "t", 0, offset, max_wait_ms=500)
            for one in batches(answer.records):
                offset = one.next_offset
                loop.trace.add("read", offset)
        mine.close()

    async with asyncio.TaskGroup() as group:
        group.create_task(producer(0))
        group.create_task(producer(1))
        group.create_task(consumer())
    await broker.kill()
    await broker.start()
    again = await broker.connect()
    assert await values_of(again, "t", 0) == [b"%d" % n for n in range(20)]
    again.close()
    await broker.stop()
    return loop.trace.digest, loop.time()


@pytest.mark.parametrize("seed", SEEDS)
def test_one_seed_gives_one_trace(seed):
    assert simulate(some_load, seed) == simulate(some_load, seed)


def test_another_seed_gives_another_trace():
    assert len({simulate(some_load, seed) for seed in SEEDS}) == len(SEEDS)


async def power_cuts(loop: SimLoop) -> None:
    """With flush.before.ack an acknowledged record survives the loss of all that was unsynced."""
    broker = SimulatedBroker(loop, {"log.flush.before.ack": "true"})
    await broker.start()
    peer = await broker.connect()
    await create(peer, "t", segment_bytes=400)
    acked: list[bytes] = []
    sent = 0
    for _ in range(4):
        peer = await broker.connect()

        async def one(value: bytes, peer: Peer = peer) -> None:
            answer = await produce(peer, "t", 0, batch(broker.clock.now_ms(), value))
            if answer.error_code is ErrorCode.none:
                acked.append((answer.base_offset, value))

        tasks = []
        for _ in range(loop.random.randrange(1, 30)):
            tasks.append(loop.create_task(one(b"%d" % sent)))
            sent += 1
            await asyncio.sleep(loop.random.expovariate(2000))
        await asyncio.sleep(loop.random.expovariate(100))
        await broker.cut_power(keep=loop.random.choice([0.0, None]))
        await asyncio.gather(*tasks, return_exceptions=True)
        await broker.start()
        peer = await broker.connect()
        # What was not acknowledged may be lost from the middle, where the cut came before the log's
        # first checkpoint.
        found = await values_by_offset(peer, "t")
        for offset, value in acked:
            assert found.get(offset) == value, (offset, value, found)
        peer.close()
    await broker.stop()
    assert not broker.bugs


@pytest.mark.parametrize("seed", seeds(12))
def test_what_was_acknowledged_after_the_flush_survives_any_power_cut(seed):
    simulate(power_cuts, seed)


async def fetches_that_wait(loop: SimLoop) -> None:
    """Some get a record, others time out; a simulation collects no garbage meanwhile."""
    broker = SimulatedBroker(loop)
    await broker.start()
    peer, reader = await broker.connect(), await broker.connect("reader")
    await create(peer, "t")
    for n in range(10):
        fetching = loop.create_task(fetch(reader, "t", 0, n, max_wait_ms=100))
        await asyncio.sleep(0.05)
        await produce(peer, "t", 0, batch(broker.clock.now_ms(), b"%d" % n))
        assert (await fetching).records
        assert not (await fetch(reader, "t", 0, n + 1, max_wait_ms=100)).records
    assert sum(type(object) is DelayedFetch for object in gc.get_objects()) <= 1
    await broker.stop()


def test_fetches_that_have_waited_are_freed_without_garbage_collection():
    simulate(fetches_that_wait, 0)


async def unflushed_is_unseen(loop: SimLoop) -> None:
    """The first paper's rule: what is not on disk is not shown."""
    broker = SimulatedBroker(loop, {"log.flush.before.ack": "true"})
    await broker.start()
    peer, reader = await broker.connect(), await broker.connect("reader")
    await create(peer, "t")
    syncs = broker.disk.counts["sync"]
    sending = loop.create_task(produce(peer, "t", 0, batch(broker.clock.now_ms(), b"x"), acks=1))
    while True:
        answer = await fetch(reader, "t", 0, 0)
        if answer.records:
            break
        assert answer.high_watermark == 0
    assert broker.disk.counts["sync"] > syncs
    assert (await sending).error_code is ErrorCode.none
    await broker.stop()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_record_becomes_visible_only_once_it_is_on_disk(seed):
    simulate(unflushed_is_unseen, seed)


async def idempotence(loop: SimLoop) -> None:
    """A batch sent again after kill -9 is answered as it was, and written once."""
    broker = SimulatedBroker(loop)
    await broker.start()
    peer = await broker.connect()
    await create(peer, "t")
    answer = await peer.call(
        request(ApiKey.INIT_PRODUCER_ID, 4)(
            producer_id=-1, producer_epoch=-1, transaction_timeout=datetime.timedelta(0)
        )
    )
    producer_id = answer.producer_id
    expected = []
    sequence = 0
    for _ in range(12):
        values = [b"%d" % (sequence + n) for n in range(loop.random.randrange(1, 5))]
        data = batch(broker.clock.now_ms(), *values, producer=(producer_id, 0, sequence))
        first = await produce(peer, "t", 0, data)
        assert first.error_code is ErrorCode.none
        expected += values
        if loop.random.random() < 0.5:
            await (broker.kill() if loop.random.random() < 0.5 else broker.stop())
            await broker.start()
            peer = await broker.connect()
        again = await produce(peer, "t", 0, data)
        assert (again.error_code, again.base_offset) == (ErrorCode.none, first.base_offset)
        gap = batch(broker.clock.now_ms(), b"gap", producer=(producer_id, 0, sequence + 100))
        refused = await produce(peer, "t", 0, gap)
        assert refused.error_code is ErrorCode.out_of_order_sequence_number
        sequence += len(values)
    assert await values_of(peer, "t") == expected
    await broker.stop()


@pytest.mark.parametrize("seed", SEEDS)
def test_an_idempotent_batch_is_written_once_over_restarts(seed):
    simulate(idempotence, seed)


async def aged(loop: SimLoop) -> None:
    broker = SimulatedBroker(loop, {"log.retention.check.interval.ms": 1000})
    await broker.start()
    peer = await broker.connect()
    await create(peer, "t", retention_ms=60_000)
    for age_ms in (3_600_000, 0, 7_200_000):
        answer = await produce(peer, "t", 0, batch(broker.clock.now_ms() - age_ms, b"%d" % age_ms))
        assert answer.error_code is ErrorCode.none
    await asyncio.sleep(50)
    assert await values_of(peer, "t") == [b"3600000", b"0", b"7200000"]
    await asyncio.sleep(20)
    answer = await fetch(peer, "t", 0, 3)
    assert (answer.log_start_offset, answer.high_watermark) == (3, 3)
    await broker.stop()


def test_a_segment_goes_when_the_youngest_of_its_records_is_too_old():
    simulate(aged, 1)
