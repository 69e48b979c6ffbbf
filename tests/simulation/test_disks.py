"""Several log directories of an unchanged broker: disks fail and fill, replicas move; by seed."""

from __future__ import annotations

import asyncio
import datetime
import errno
import itertools
from random import Random
from typing import Any

import pytest

from kserver.errors import ErrorCode
from kserver.peer import Peer
from kserver.wire.api_key import ApiKey
from kserver.wire.batch import batches, encode_batch
from kserver.wire.special_offsets import EARLIEST, LATEST
from kserver.wire.versions import request
from tests.simulation.test_broker import batch, create, fetch, produce
from tests.support.loop import SimLoop, simulate
from tests.support.seeds import seeds
from tests.support.simulated import DATA, SimulatedBroker

PARTITIONS = 6
DIRECTORIES = ("/a", "/b", "/c")
SETTINGS: dict[str, object] = {
    "log.dirs": ",".join(DIRECTORIES),
    "log.retention.check.interval.ms": 300,
    "log.flush.offset.checkpoint.interval.ms": 200,
    "log.flush.start.offset.checkpoint.interval.ms": 200,
    "replica.high.watermark.checkpoint.interval.ms": 200,
}
SMALL = {"segment_bytes": 1000, "segment_index_bytes": 4096, "index_interval_bytes": 100}
OK, FAILED = ErrorCode.none, ErrorCode.kafka_storage_error


async def started(
    loop: SimLoop, settings: dict[str, object] | None = None, **topic: object
) -> tuple[SimulatedBroker, Peer]:
    broker = SimulatedBroker(loop, SETTINGS | (settings or {}))
    # Coordination has a disk of its own here.
    broker.disk.make_directories(DATA)
    broker.disk.sync_directory("/")
    await broker.start()
    peer = await broker.connect()
    await create(peer, "t", PARTITIONS, **SMALL, **topic)
    return broker, peer


def place_of(broker: SimulatedBroker, partition: int) -> str:
    """The directory that holds it, by its own name."""
    found = [d for d in DIRECTORIES if broker.disk.exists(f"{d}/t-{partition}")]
    assert len(found) == 1, (partition, found)
    return found[0]


async def values_from(peer: Peer, partition: int, offset: int = 0) -> dict[int, bytes]:
    """By offset."""
    found: dict[int, bytes] = {}
    while True:
        answer = await fetch(peer, "t", partition, offset)
        if answer.error_code is ErrorCode.offset_out_of_range:
            offset = (await listed(peer, partition, EARLIEST)).offset
            continue
        assert answer.error_code is OK, answer
        if not answer.records:
            return found
        for one in batches(answer.records):
            found |= {r.offset: r.value for r in one.records() if r.offset >= offset}
            offset = one.next_offset


async def listed(peer: Peer, partition: int, timestamp: int) -> Any:
    build = request(ApiKey.LIST_OFFSETS, 5)
    asked = build.topics.partitions(partition_index=partition, timestamp=timestamp)
    topics = [build.topics(name="t", partitions=[asked])]
    answer = await peer.call(build(topics=topics, replica_id=-1))
    return answer.topics[0].partitions[0]


async def move(peer: Peer, partition: int, path: str) -> ErrorCode:
    build = request(ApiKey.ALTER_REPLICA_LOG_DIRS, 2)
    topics = [build.dirs.topics(name="t", partitions=(partition,))]
    answer = await peer.call(build(dirs=[build.dirs(path=path, topics=topics)]))
    return answer.results[0].partitions[0].error_code


async def delete_before(peer: Peer, partition: int, offset: int) -> ErrorCode:
    build = request(ApiKey.DELETE_RECORDS, 2)
    asked = build.topics.partitions(partition_index=partition, offset=offset)
    answer = await peer.call(build(topics=[build.topics(name="t", partitions=[asked])]))
    return answer.topics[0].partitions[0].error_code


async def described(peer: Peer) -> dict[str, tuple[ErrorCode, dict[int, tuple[int, bool]]]]:
    """Of each directory its error, and lag and future of the topic's replicas."""
    answer = await peer.call(request(ApiKey.DESCRIBE_LOG_DIRS, 4)(topics=None))
    return {
        found.log_dir: (
            found.error_code,
            {
                p.partition_index: (p.offset_lag, p.is_future_key)
                for topic in found.topics
                for p in topic.partitions
            },
        )
        for found in answer.results
    }


class Writers:
    """A producer to each partition; what was acknowledged, and the codes of what was not."""

    def __init__(self, broker: SimulatedBroker, peer: Peer) -> None:
        self.broker = broker
        self.peer = peer
        self.acked: dict[int, dict[int, bytes]] = {p: {} for p in range(PARTITIONS)}
        self.refused: dict[int, set[ErrorCode]] = {p: set() for p in range(PARTITIONS)}
        self.count = 0

    async def write(self, partition: int) -> ErrorCode:
        self.count += 1
        value = b"%d." % self.count * self.broker.loop.random.randrange(1, 30)
        sent = batch(self.broker.clock.now_ms(), value)
        answer = await produce(self.peer, "t", partition, sent)
        if answer.error_code is OK:
            self.acked[partition][answer.base_offset] = value
        else:
            self.refused[partition].add(answer.error_code)
        return answer.error_code

    async def some(self, partition: int, times: int) -> None:
        for _ in range(times):
            await self.write(partition)
            await asyncio.sleep(self.broker.loop.random.random() / 50)

    async def all(self, times: int) -> None:
        async with asyncio.TaskGroup() as tasks:
            for partition in range(PARTITIONS):
                tasks.create_task(self.some(partition, times))

    async def check(self, peer: Peer, partitions: range | set[int] = range(PARTITIONS)) -> None:
        """What was acknowledged and not deleted is there, under its offset."""
        for partition in partitions:
            found = await values_from(peer, partition)
            first = min(found, default=1 << 62)
            expected = {o: v for o, v in self.acked[partition].items() if o >= first}
            assert expected.items() <= found.items(), (partition, expected.keys() - found.keys())


FAULTS = {
    "write_at": (errno.EIO, errno.EROFS, errno.ENOSPC),
    "sync": (errno.EIO, errno.ENOSPC),
    "open": (errno.EIO, errno.EROFS, errno.ENOSPC),
    "rename": (errno.EIO, errno.EROFS),
    "truncate": (errno.EIO, errno.EROFS),
    "replace_file": (errno.EIO, errno.EROFS, errno.ENOSPC),
    "sync_directory": (errno.EIO,),
    "read_at": (errno.EIO,),
    "remove": (errno.EIO, errno.EROFS),
}


async def one_directory_fails(loop: SimLoop) -> None:
    random: Random = loop.random
    flushes = random.random() < 0.5
    broker, peer = await started(loop, flush_before_ack=str(flushes).lower())
    writers = Writers(broker, peer)
    await writers.all(random.randrange(10))
    bad = random.choice(DIRECTORIES)
    there = {p for p in range(PARTITIONS) if place_of(broker, p) == bad}
    well = set(range(PARTITIONS)) - there
    operation = random.choice(list(FAULTS))
    code = random.choice(FAULTS[operation])
    times = random.choice([None, None, 1, 3])
    broker.disk.cold_chance = random.choice([0.0, 0.5])
    fault = broker.disk.fail(operation, code, path=f"{bad}/*", times=times)
    loop.trace.add("fails", bad, operation, errno.errorcode[code], times)
    await writers.all(20)
    assert all(not writers.refused[p] for p in well), writers.refused
    assert set().union(*writers.refused.values()) <= {FAILED, ErrorCode.request_timed_out}
    await writers.check(peer, well)

    error, replicas = (await described(peer))[bad]
    assert (error is OK) == (replicas.keys() == there)
    if error is OK:
        fault.clear()
        await asyncio.sleep(5)
        assert [await writers.write(p) for p in range(PARTITIONS)] == [OK] * PARTITIONS
        await writers.check(peer)
    assert not broker.bugs
    if random.random() < 0.5:
        await broker.kill()
    elif flushes:
        await broker.cut_power()
    else:
        await broker.stop()
    fault.clear()
    await broker.start()
    peer = await broker.connect()
    await writers.check(peer)
    writers.peer = peer
    assert [await writers.write(p) for p in range(PARTITIONS)] == [OK] * PARTITIONS
    await broker.stop()


@pytest.mark.parametrize("seed", seeds(12))
def test_a_directory_that_fails_takes_nothing_with_it_but_its_own(seed):
    simulate(one_directory_fails, seed)


async def it_is_told(loop: SimLoop) -> None:
    broker, peer = await started(loop)
    writers = Writers(broker, peer)
    await writers.all(3)
    reader = await broker.connect("reader")
    waiting = asyncio.ensure_future(fetch(reader, "t", 0, 3, max_wait_ms=20_000))
    bad = place_of(broker, 0)
    there = {p for p in range(PARTITIONS) if place_of(broker, p) == bad}
    await asyncio.sleep(1)
    broker.disk.fail("*", errno.EIO, path=f"{bad}/*")
    assert await writers.write(max(there)) is FAILED
    # Nobody waits for a partition that is gone.
    asked_s = loop.time()
    assert (await waiting).error_code is FAILED
    assert loop.time() - asked_s < 1

    async def told(peer: Peer) -> None:
        build = request(ApiKey.METADATA, 9)
        topic = (await peer.call(build(topics=[build.topics(name="t")]))).topics[0]
        build = request(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0)
        page = (await peer.call(build(topics=[], response_partition_limit=99))).topics[0]
        for partitions in (topic.partitions, page.partitions):
            for p in partitions:
                lost = p.partition_index in there
                assert p.error_code is (ErrorCode.leader_not_available if lost else OK)
                assert (p.leader_id, p.offline_replicas) == ((-1, (0,)) if lost else (0, ()))
                assert (p.replica_nodes, p.isr_nodes) == ((0,), (0,))
        for p in range(PARTITIONS):
            code = FAILED if p in there else OK
            assert await writers.write(p) is code
            assert (await fetch(peer, "t", p, 0)).error_code is code
            assert (await listed(peer, p, LATEST)).error_code is code
            assert await delete_before(peer, p, 0) is code
            assert await move(peer, p, bad) is FAILED
        for path, (error, replicas) in (await described(peer)).items():
            assert error is (FAILED if path == bad else OK)
            assert replicas.keys().isdisjoint(there)

    await told(peer)
    # A start with that disk makes no empty logs for what lies on it.
    await broker.stop()
    broker.disk = broker.disk.kill()
    broker.disk.fail("*", errno.EIO, path=f"{bad}*")
    await broker.start()
    peer = writers.peer = await broker.connect()
    await told(peer)
    await create(peer, "new", 4)
    assert (await produce(peer, "new", 3, batch(broker.clock.now_ms(), b"x"))).error_code is OK
    # It is back with the disk.
    await broker.kill()
    await broker.start()
    peer = await broker.connect()
    await writers.check(peer)
    await broker.stop()


def test_what_is_on_a_failed_disk_is_told_everywhere():
    simulate(it_is_told, 1)


async def all_are_full(loop: SimLoop) -> None:
    random = loop.random
    broker, peer = await started(loop)
    writers = Writers(broker, peer)
    await writers.all(5)
    # Nothing that is written now finds room, until it does.
    for _ in range(3):
        disk = broker.disk
        disk.capacity_bytes = disk.used_bytes() + random.randrange(5000)
        await writers.all(30)
        assert any(writers.refused.values())
        assert set().union(*writers.refused.values()) == {FAILED}
        for refused in writers.refused.values():
            refused.clear()
        await writers.check(peer)
        if random.random() < 0.3:
            await broker.kill()
            broker.disk.capacity_bytes = 1 << 40
            await broker.start()
            peer = writers.peer = await broker.connect()
        disk = broker.disk
        disk.capacity_bytes = 1 << 40
        assert [await writers.write(p) for p in range(PARTITIONS)] == [OK] * PARTITIONS
        await asyncio.sleep(10)
    assert all(error is OK for error, _ in (await described(peer)).values())
    assert not broker.bugs
    await (broker.stop() if random.random() < 0.5 else broker.kill())
    await broker.start()
    await writers.check(await broker.connect())
    await broker.stop()


@pytest.mark.parametrize("seed", seeds(6))
def test_a_full_disk_refuses_and_loses_nothing_and_goes_on(seed):
    simulate(all_are_full, seed)


async def replicas_move(loop: SimLoop) -> None:
    """Anywhere, while they are written to, cut at their start, killed and cut from power."""
    random = loop.random
    flushes = random.random() < 0.5
    broker, peer = await started(loop, flush_before_ack=str(flushes).lower(), retention_ms=-1)
    writers = Writers(broker, peer)
    starts = dict.fromkeys(range(PARTITIONS), 0)

    async def meddle() -> None:
        for _ in range(random.randrange(1, 12)):
            partition = random.randrange(PARTITIONS)
            if random.random() < 0.3 and writers.acked[partition]:
                offset = random.choice(list(writers.acked[partition]))
                if await delete_before(peer, partition, offset) is OK:
                    starts[partition] = max(starts[partition], offset)
            else:
                assert await move(peer, partition, random.choice(DIRECTORIES)) is OK
            await asyncio.sleep(random.random() / 10)

    for _ in range(3):
        writing = asyncio.ensure_future(writers.all(random.randrange(5, 25)))
        await meddle()
        await writing
        assert not any(writers.refused.values()), writers.refused
        ending = random.randrange(3)
        if ending == 0:
            await asyncio.sleep(2)
            found = await described(peer)
            assert not any(future for _, of in found.values() for _, future in of.values())
            await broker.stop()
        elif ending == 1 and flushes:
            await broker.cut_power()
        else:
            await broker.kill()
        assert not broker.bugs
        await broker.start()
        peer = writers.peer = await broker.connect()
        for partition in range(PARTITIONS):
            place_of(broker, partition)
            found = await values_from(peer, partition)
            assert min(found, default=starts[partition]) >= starts[partition]
        await writers.check(peer)
        await asyncio.sleep(100)
        for directory in DIRECTORIES:
            left = [n for n in broker.disk.list(directory) if n.endswith(("-future", "-delete"))]
            assert not left
    await broker.stop()


@pytest.mark.parametrize("seed", seeds(12))
def test_replicas_move_and_nothing_is_lost_or_comes_back(seed):
    simulate(replicas_move, seed)


async def cleaned_while_it_moves(loop: SimLoop) -> None:
    """What was copied before its log was cleaned is not taken for clean."""
    slow = {"log.cleaner.backoff.ms": 50, "replica.alter.log.dirs.io.max.bytes.per.second": 1500}
    broker = SimulatedBroker(loop, SETTINGS | slow)
    broker.disk.make_directories(DATA)
    broker.disk.sync_directory("/")
    await broker.start()
    peer = await broker.connect()
    compacted = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0.01}
    await create(peer, "t", 1, min_compaction_lag_ms=10_000, **compacted, **SMALL)
    old = place_of(broker, 0)
    new = next(path for path in DIRECTORIES if path != old)
    rounds = itertools.count(1)
    last = b""

    async def put(key: bytes, value: bytes) -> None:
        row = (broker.clock.now_ms(), key, value, ())
        assert (await produce(peer, "t", 0, encode_batch([row]))).error_code is OK

    async def write(times: int, pause_s: float) -> None:
        nonlocal last
        for number in itertools.islice(rounds, times):
            last = b"%d" % number * 20
            for key in range(5):
                await put(b"%d" % key, last)
            await asyncio.sleep(loop.random.random() * pause_s)

    await put(b"twice", b"old")
    await put(b"twice", b"new")
    await write(40, 0.01)
    assert await move(peer, 0, new) is OK
    moving_since_s = loop.time()
    while broker.disk.exists(f"{old}/t-0"):
        await write(1, 4)
    assert loop.time() - moving_since_s > 11, "it was not cleaned before it had moved"
    await write(5, 1)
    await asyncio.sleep(60)
    names = broker.disk.list(f"{new}/t-0")
    active = max(int(name.removesuffix(".log")) for name in names if name.endswith(".log"))
    values = await values_from(peer, 0)
    assert len([offset for offset in values if offset < active]) <= 6, "one of each key"
    assert b"new" in values.values()
    assert b"old" not in values.values()
    assert list(values.values())[-1] == last
    await broker.stop()


@pytest.mark.parametrize("seed", seeds(6))
def test_what_was_copied_before_it_was_cleaned_is_cleaned_again(seed):
    simulate(cleaned_while_it_moves, seed)


async def elsewhere(broker: SimulatedBroker, peer: Peer, partition: int = 0) -> tuple[str, str]:
    """Where a replica is, and the first other directory."""
    old = place_of(broker, partition)
    return old, next(path for path in DIRECTORIES if path != old)


def leftovers(broker: SimulatedBroker) -> list[str]:
    names = (name for directory in DIRECTORIES for name in broker.disk.list(directory))
    return [name for name in names if name.endswith("-future")]


async def slowly(loop: SimLoop) -> None:
    """At 1,000 bytes a second; as it is told meanwhile, and until somebody thinks better of it."""
    settings = {"replica.alter.log.dirs.io.max.bytes.per.second": 1000}
    broker, peer = await started(loop, settings)
    writers = Writers(broker, peer)
    await writers.some(0, 100)
    old, new = await elsewhere(broker, peer)
    size = sum(
        broker.disk.open(f"{old}/t-0/{name}").size()
        for name in broker.disk.list(f"{old}/t-0")
        if name.endswith(".log")
    )
    began_s = loop.time()
    assert await move(peer, 0, new) is OK
    await asyncio.sleep(size / 1000 / 2)
    found = await described(peer)
    assert found[old][1][0] == (0, False)
    lag, is_future = found[new][1][0]
    assert is_future
    assert 30 <= lag <= 70
    while place_of(broker, 0) == old:
        await asyncio.sleep(0.5)
    assert size / 1000 * 0.9 <= loop.time() - began_s <= size / 1000 * 1.2 + 2

    third = next(path for path in DIRECTORIES if path not in (old, new))
    for path in (old, third, third):
        assert await move(peer, 0, path) is OK
        await asyncio.sleep(1)
        assert len(leftovers(broker)) == 1
        found = await described(peer)
        assert {d for d, (_, of) in found.items() if 0 in of} == {new, path}
    assert await move(peer, 0, new) is OK
    assert not leftovers(broker)
    assert await move(peer, 0, old) is OK
    build = request(ApiKey.DELETE_TOPICS, 5)
    await peer.call(build(topic_names=["t"], timeout=datetime.timedelta(seconds=5)))
    assert not leftovers(broker)
    assert not broker.bugs
    await broker.stop()


def test_a_move_is_as_slow_as_it_is_told_to_be_and_can_be_given_up():
    simulate(slowly, 1)


async def into_a_bad_disk(loop: SimLoop) -> None:
    broker, peer = await started(loop)
    writers = Writers(broker, peer)
    await writers.some(0, 50)
    old, new = await elsewhere(broker, peer)
    fault = broker.disk.fail("write_at", errno.ENOSPC, path=f"{new}/t-0.*.log")
    assert await move(peer, 0, new) is OK
    await writers.some(0, 20)
    await asyncio.sleep(10)
    assert place_of(broker, 0) == old
    fault.clear()
    await asyncio.sleep(5)
    assert place_of(broker, 0) == new
    await writers.some(0, 5)
    fault = broker.disk.fail("write_at", errno.EIO, path=f"{old}/t-0.*.log")
    assert await move(peer, 0, old) is OK
    await asyncio.sleep(1)
    found = await described(peer)
    assert (found[old][0], found[new][0]) == (FAILED, OK)
    assert await writers.write(0) is OK
    assert not writers.refused[0]
    await writers.check(peer, {0})
    assert not broker.bugs
    fault.clear()
    await broker.kill()
    await broker.start()
    await writers.check(await broker.connect(), {0})
    await broker.stop()


def test_a_move_waits_for_room_and_a_failing_disk_takes_only_the_copy():
    simulate(into_a_bad_disk, 1)
