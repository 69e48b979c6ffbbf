"""What the embedded ZooKeeper keeps through crashes and failures of the disk."""

from __future__ import annotations

import asyncio
import errno
from itertools import count
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kserver.errors import StorageError
from kserver.world.embedded import EmbeddedZooKeeper
from kserver.world.zookeeper import Create, Delete, SetData
from tests.support.clock import SimClock
from tests.support.disk import SimDisk
from tests.support.loop import simulate

PATH = "/data/coordination.msgpack"
FAILURES = ["write_at", "sync", "rename", "sync_directory", "open"]


def new_disk(loop) -> SimDisk:
    disk = SimDisk(loop.random, SimClock(loop))
    disk.make_directories("/data")
    disk.sync_directory("/")
    return disk


async def started(disk) -> EmbeddedZooKeeper:
    zookeeper = EmbeddedZooKeeper(disk, PATH, disk.clock)
    await zookeeper.start()
    zookeeper.require_disk()
    return zookeeper


async def content(zookeeper, path="/"):
    """Every node below with its data and Stat."""
    nodes = {path: await zookeeper.get(path)}
    for name in await zookeeper.children(path):
        nodes |= await content(zookeeper, f"{path.rstrip('/')}/{name}")
    return nodes


def written(disk: SimDisk) -> bytes:
    """The journal up to the zeros of its reserve."""
    data = disk.read_file(PATH)
    end = 0
    while size := int.from_bytes(data[end : end + 4]):
        end += 8 + size
    return data[:end]


async def disk_with(loop, data: bytes) -> SimDisk:
    disk = new_disk(loop)
    disk.replace_file(PATH, data)
    return disk


def in_simulation(test):
    def run():
        simulate(test, seed=0)

    return run


async def some_writes(zookeeper):
    """Writes one after the other, and yields after each has been acknowledged."""
    yield await zookeeper.create("/a", b"1")
    yield await zookeeper.set("/a", b"22")
    yield await zookeeper.create("/a/b/c", b"333", make_parents=True)
    yield await zookeeper.multi([Create("/x"), Create("/x/y", b"4" * 40), SetData("/a", b"5")])
    yield await zookeeper.create("/a/n-", sequence=True)
    yield await zookeeper.multi([Create("/a/gone"), Delete("/a/gone")])
    yield await zookeeper.delete("/a/b/c")


@in_simulation
async def test_a_journal_cut_anywhere_holds_the_acknowledged_writes_before_the_cut(loop):
    disk = new_disk(loop)
    zookeeper = await started(disk)
    states = [(len(written(disk)), await content(zookeeper))]
    async for _ in some_writes(zookeeper):
        states.append((len(written(disk)), await content(zookeeper)))
    journal = written(disk)
    assert len({size for size, _ in states}) == len(states), "each write is a frame"
    for cut in range(states[0][0], len(journal) + 1):
        after = await started(await disk_with(loop, journal[:cut]))
        expected = [state for size, state in states if size <= cut][-1]
        assert await content(after) == expected
        await after.create("/next")


@in_simulation
async def test_zeros_that_a_crash_left_are_no_writes(loop):
    disk = new_disk(loop)
    zookeeper = await started(disk)
    await zookeeper.create("/a")
    before = await content(zookeeper)
    after = await started(await disk_with(loop, disk.read_file(PATH) + bytes(5000)))
    assert await content(after) == before


@in_simulation
async def test_damage_before_a_good_write_refuses_the_start(loop):
    disk = new_disk(loop)
    zookeeper = await started(disk)
    sizes = [len(written(disk))]
    async for _ in some_writes(zookeeper):
        sizes.append(len(written(disk)))
    journal = written(disk)
    for at in (0, 9, sizes[0] + 8, sizes[2] + 4, sizes[-2] - 1):
        damaged = bytearray(journal)
        damaged[at] ^= 1
        with pytest.raises(StorageError, match=r"coordination\.msgpack is damaged at byte"):
            await started(await disk_with(loop, bytes(damaged)))
    with pytest.raises(StorageError, match="is empty"):
        await started(await disk_with(loop, b""))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_a_power_cut_loses_nothing_that_was_acknowledged(seed):
    """While the disk now and then fails or is full, and loses what was not synced."""

    async def main(loop):
        disk = new_disk(loop)
        for _ in range(4):
            acknowledged, issued, disk = await run_until_crash(loop, disk)
            zookeeper = await started(disk)
            found = set(await zookeeper.children("/"))
            assert acknowledged <= found <= acknowledged | issued
            for name in found:
                assert (await zookeeper.get(f"/{name}"))[0] == name.encode()
            await zookeeper.close()
            zookeeper = await started(disk)
            assert set(await zookeeper.children("/")) == found
            await zookeeper.close()

    async def run_until_crash(loop, disk):
        zookeeper = await started(disk)
        acknowledged, issued = set(await zookeeper.children("/")), set()
        random = Random(loop.random.random())

        async def write(number):
            while True:
                name = f"{number}-{random.getrandbits(60):x}"
                issued.add(name)
                try:
                    await zookeeper.create(f"/{name}", name.encode())
                except StorageError:
                    continue
                acknowledged.add(name)

        async with asyncio.TaskGroup() as group:
            writers = [group.create_task(write(number)) for number in range(3)]
            for _ in range(5):
                disk.fail(random.choice(FAILURES), times=1)
                disk.fail("write_at", errno.ENOSPC, times=1)
                await asyncio.sleep(random.random() * 0.01)
            held = set(acknowledged)
            disk = disk.crash()
            for writer in writers:
                writer.cancel()
        return held, issued, disk

    simulate(main, seed)


@in_simulation
async def test_what_the_disk_refused_is_not_seen_and_the_next_write_is(loop):
    for operation in ("write_at", "sync"):
        disk = new_disk(loop)
        zookeeper = await started(disk)
        await zookeeper.create("/a", b"1")
        disk.fail(operation, errno.ENOSPC, path=PATH, times=1)
        with pytest.raises(StorageError, match=r"cannot be written.*No space left"):
            await zookeeper.set("/a", b"2")
        assert (await zookeeper.get("/a"))[0] == b"1"
        stat = await zookeeper.set("/a", b"3")
        assert stat.version == 1
        after = await started(disk.crash(keep=1.0))
        assert await after.get("/a") == (b"3", stat)


@in_simulation
async def test_a_directory_that_cannot_be_written_refuses_the_start(loop):
    disk = new_disk(loop)
    disk.fail("replace_file", errno.EROFS)
    with pytest.raises(StorageError, match="Read-only"):
        await started(disk)


@in_simulation
async def test_a_write_costs_one_sync(loop):
    disk = new_disk(loop)
    zookeeper = await started(disk)
    before = disk.counts.copy()
    await zookeeper.multi([Create(f"/{n}", b"x" * 100) for n in range(50)])
    assert disk.counts - before == {"write_at": 1, "sync": 1}


@in_simulation
async def test_many_writes_at_once_cost_few_syncs(loop):
    disk = new_disk(loop)
    zookeeper = await started(disk)
    before = disk.counts["sync"]
    async with asyncio.TaskGroup() as group:
        for number in range(100):
            group.create_task(zookeeper.create(f"/{number}"))
    assert disk.counts["sync"] - before == 1
    assert len(await zookeeper.children("/")) == 100


@in_simulation
async def test_a_refused_write_costs_no_sync(loop):
    disk = new_disk(loop)
    zookeeper = await started(disk)
    before = disk.counts.copy()
    with pytest.raises(Exception, match="NoNode"):
        await zookeeper.set("/a", b"")
    assert disk.counts == before


@in_simulation
async def test_the_file_stays_in_proportion_to_the_tree(loop):
    disk = new_disk(loop)
    zookeeper = await started(disk)
    await zookeeper.create("/a")
    for number in range(100):
        await zookeeper.set("/a", bytes([number]) * 100_000)
    assert len(disk.read_file(PATH)) < 2_000_000
    before = await content(zookeeper)
    await zookeeper.close()
    assert await content(await started(disk)) == before


@in_simulation
async def test_numbers_rise_over_starts_that_wrote_nothing(loop):
    disk = new_disk(loop)
    zxids, sessions = [], []
    for _ in range(3):
        zookeeper = await started(disk)
        await zookeeper.create("/passing", ephemeral=True)
        zxids.append((await zookeeper.exists("/passing")).czxid)
        sessions.append(zookeeper.session_id)
        disk = disk.crash(keep=0.0)
    assert zxids == sorted(set(zxids))
    assert sessions == sorted(set(sessions))


@in_simulation
async def test_closing_waits_for_the_writes_under_way(loop):
    disk = new_disk(loop)
    zookeeper = await started(disk)
    write = asyncio.create_task(zookeeper.create("/a"))
    await asyncio.sleep(0)
    await zookeeper.close()
    assert await write == "/a"
    assert await (await started(disk)).children("/") == ["a"]


@in_simulation
async def test_what_a_start_writes_waits_for_room_and_what_is_asked_for_later_is_refused(loop):
    disk = new_disk(loop)
    zookeeper = await started(disk)
    await zookeeper.create("/before")
    await zookeeper.close()

    full = disk.fail("write_at", errno.ENOSPC, path=f"{PATH}*")
    zookeeper = EmbeddedZooKeeper(disk, PATH, disk.clock)
    await zookeeper.start()
    await zookeeper.create("/of-the-start", ephemeral=True)
    zookeeper.require_disk()
    assert await zookeeper.exists("/of-the-start")
    with pytest.raises(StorageError, match="No space left"):
        await zookeeper.create("/later")
    assert await zookeeper.exists("/later") is None
    full.clear()
    await zookeeper.create("/with-room")

    zookeeper = await started(disk.kill())
    assert await zookeeper.children("/") == ["before", "with-room"]


@in_simulation
async def test_a_new_store_is_not_begun_on_a_full_disk(loop):
    disk = new_disk(loop)
    disk.fail("write_at", errno.ENOSPC, path=f"{PATH}*")
    with pytest.raises(StorageError, match="No space left"):
        await EmbeddedZooKeeper(disk, PATH, disk.clock).start()


async def create_many(zookeeper, names):
    for _ in range(100):
        await zookeeper.create(f"/more{next(names)}", b"x" * 50_000)


@in_simulation
async def test_a_full_disk_takes_the_deletion_of_topics_and_no_other_change(loop):
    for restarts in (False, True):
        disk = new_disk(loop)
        zookeeper = await started(disk)
        await zookeeper.create("/admin/delete_topics", make_parents=True)
        for number in range(20):
            await zookeeper.create(f"/t{number}", b"x" * 1000)
        if restarts:
            await zookeeper.close()
            zookeeper = EmbeddedZooKeeper(disk, PATH, disk.clock)
        disk.capacity_bytes = disk.used_bytes()
        if restarts:
            await zookeeper.start()
            await zookeeper.create("/of-the-start", ephemeral=True)
            zookeeper.require_disk()
        names = count()
        for number in range(20):
            await zookeeper.create(f"/admin/delete_topics/t{number}")
            with pytest.raises(StorageError, match="No space left"):
                await create_many(zookeeper, names)
            noted = Delete(f"/admin/delete_topics/t{number}")
            await zookeeper.multi([Delete(f"/t{number}"), noted])
        before = set(await zookeeper.children("/")) - {"of-the-start"}
        after = await started(disk.crash(keep=0.0))
        assert set(await after.children("/")) == before
