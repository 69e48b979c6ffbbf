"""A log whose disk has no room, at any of its writes: what is refused, and what is there later."""

from __future__ import annotations

import asyncio
import errno
from random import Random

import pytest

from kserver.config.topic import TopicConfig
from kserver.errors import NoRoom, StorageError
from kserver.log.checkpoint import LEADER_EPOCHS
from kserver.log.log import Log, Origin
from kserver.log.recovery import StoredOffsets
from tests.support.clock import DAY_ONE_MS, SimClock, StillClock
from tests.support.disk import SimDisk
from tests.support.logs import DIRECTORY, Keeper, batch, marker, open_log, read_all
from tests.support.loop import SimLoop, simulate

CONFIG = TopicConfig(segment_bytes=700, segment_index_bytes=8192, index_interval_bytes=50)
FIRST = f"{DIRECTORY}/00000000000000000000"


def make_disk(random: Random | None = None) -> SimDisk:
    disk = SimDisk(random or Random(0), StillClock())
    disk.make_directories("/data")
    disk.sync_directory("/")
    return disk


def append(log: Log, **fields: int) -> None:
    log.append_as_leader(batch(**fields), 0, DAY_ONE_MS)


def test_what_was_written_in_part_is_cut_off_and_the_next_append_stands_in_its_place() -> None:
    disk, keeper = make_disk(), Keeper()
    log = open_log(disk, CONFIG, keeper=keeper)
    append(log)
    size = disk.open(f"{FIRST}.log").size()
    disk.capacity_bytes = disk.used_bytes() + 30
    for _ in range(5):
        with pytest.raises(NoRoom, match="No space left on device"):
            append(log, size=200)
        assert disk.open(f"{FIRST}.log").size() == size
    assert len(keeper.refusals) == 5
    assert not keeper.failures
    disk.capacity_bytes = 1 << 20
    append(log)
    assert [r.offset for r in read_all(log)] == [0, 1]
    log.check()


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_a_flush_without_a_descriptor_can_be_repeated(suffix: str) -> None:
    async def main(loop: SimLoop) -> None:
        disk, keeper = make_disk(loop.random), Keeper()
        log = open_log(disk, CONFIG, keeper=keeper)
        for _ in range(12):
            append(log, size=200)
        assert len(log.segments) > 2
        disk.fail("open", errno.EMFILE, path=f"*.{suffix}", times=1)
        with pytest.raises(NoRoom, match="raise the limit on open files"):
            await log.flush()
        assert await log.flush() == log.log_end_offset
        assert not keeper.failures

    simulate(main, 0)


def test_a_read_without_a_descriptor_can_be_repeated() -> None:
    async def main(loop: SimLoop) -> None:
        disk, keeper = make_disk(loop.random), Keeper()
        log = open_log(disk, CONFIG, keeper=keeper)
        for _ in range(12):
            append(log, size=200)
        disk.fail("open", errno.EMFILE, path="*.index", times=1)
        with pytest.raises(NoRoom, match="raise the limit on open files"):
            log.read(1, 1000, up_to=log.log_end_offset)
        log.read(1, 1000, up_to=log.log_end_offset)
        assert not keeper.failures

    simulate(main, 0)


def test_a_truncation_without_a_descriptor_is_a_failure() -> None:
    """Half of a truncation must not look like a log that is still being truncated."""

    async def main(loop: SimLoop) -> None:
        disk, keeper = make_disk(loop.random), Keeper()
        log = open_log(disk, CONFIG, keeper=keeper)
        for _ in range(12):
            append(log, size=200)
        disk.fail("open", errno.EMFILE, path="*.index", times=1)
        with pytest.raises(StorageError) as raised:
            await log.truncate_to(4)
        assert not isinstance(raised.value, NoRoom)
        assert log.failure is raised.value
        assert keeper.failures

    simulate(main, 0)


def test_a_part_that_cannot_be_cut_off_is_a_failure() -> None:
    disk, keeper = make_disk(), Keeper()
    log = open_log(disk, CONFIG, keeper=keeper)
    append(log)
    disk.fail("write_at", errno.ENOSPC, path="*.log")
    disk.fail("truncate", errno.ENOSPC, path="*.log")
    with pytest.raises(StorageError) as raised:
        append(log)
    assert not isinstance(raised.value, NoRoom)
    assert keeper.failures == [log.failure]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_without_room_is_sparser(suffix: str) -> None:
    disk = make_disk()
    log = open_log(disk, CONFIG)
    fault = disk.fail("write_at", errno.ENOSPC, path=f"*{suffix}")
    for _ in range(3):
        append(log, size=100)
    fault.clear()
    append(log, size=20)
    segment = log.segments[0]
    assert segment.offsets.file.count > 0
    assert segment.times.file.count > 0
    log.check()


@pytest.mark.parametrize(
    ("operation", "path"),
    [
        ("write_at", f"{FIRST}.timeindex"),
        ("open", "*2.log"),
        ("open", "*2.index"),
        ("map", "*2.timeindex"),
    ],
)
def test_a_roll_without_room_leaves_the_segment_as_it_was(operation: str, path: str) -> None:
    disk, keeper = make_disk(), Keeper()
    # Its first entry of time is that of the seal.
    config = TopicConfig(segment_index_bytes=8192)
    log = open_log(disk, config, keeper=keeper)
    append(log, size=20)
    append(log, size=100)
    fault = disk.fail(operation, errno.ENOSPC, path=path)
    for _ in range(2):
        with pytest.raises(NoRoom):
            log.roll(DAY_ONE_MS)
        assert [s.base_offset for s in log.segments] == [0]
        assert not any(name.startswith("0" * 19 + "2") for name in disk.list(DIRECTORY))
    append(log, size=20)
    log.check()
    fault.clear()
    log.roll(DAY_ONE_MS)
    assert [s.base_offset for s in log.segments] == [0, 3]
    append(log)
    log.check()
    log = open_log(disk.kill(), config)
    assert len(read_all(log)) == 4
    assert not keeper.failures


def test_a_roll_does_without_a_snapshot() -> None:
    disk = make_disk()
    log = open_log(disk, CONFIG)
    append(log, producer_id=1, producer_epoch=0, base_sequence=0)
    fault = disk.fail("write_at", errno.ENOSPC, path="*.snapshot")
    log.roll(DAY_ONE_MS)
    fault.clear()
    append(log, producer_id=1, producer_epoch=0, base_sequence=1)
    log = open_log(disk.kill(), CONFIG)
    append(log, producer_id=1, producer_epoch=0, base_sequence=2)
    log.check()


def test_a_flush_without_room_for_the_epochs_is_tried_again() -> None:
    async def scenario(loop: SimLoop) -> None:
        disk = SimDisk(loop.random, SimClock(loop))
        disk.make_directories("/data")
        keeper = Keeper()
        log = open_log(disk, CONFIG, keeper=keeper)
        await log.flush()
        append(log)
        log.assign_epoch(3, 1)
        fault = disk.fail("replace_file", errno.ENOSPC, path=f"*{LEADER_EPOCHS}")
        for _ in range(2):
            with pytest.raises(NoRoom):
                await log.flush()
            assert log.recovery_point == 0
        fault.clear()
        assert await log.flush() == 1
        assert b"3 1\n" in disk.read_file(f"{DIRECTORY}/{LEADER_EPOCHS}")
        assert not keeper.failures

    simulate(scenario, seed=1)


def test_a_sync_that_fails_is_a_failure_whatever_its_reason() -> None:
    async def scenario(loop: SimLoop) -> None:
        disk = SimDisk(loop.random, SimClock(loop))
        disk.make_directories("/data")
        keeper = Keeper()
        log = open_log(disk, CONFIG, keeper=keeper)
        append(log)
        disk.fail("sync", errno.ENOSPC, path="*.log")
        with pytest.raises(StorageError) as raised:
            await log.flush()
        assert not isinstance(raised.value, NoRoom)
        assert keeper.failures

    simulate(scenario, seed=1)


@pytest.mark.parametrize("seed", range(20))
def test_room_comes_and_goes_and_what_was_appended_is_there(seed: int) -> None:
    """Transactions too: which were aborted is known, though it may wait for room in memory."""
    random = Random(seed)
    disk, keeper = make_disk(random), Keeper()
    log = open_log(disk, CONFIG, keeper=keeper)
    values: dict[int, bytes | None] = {}
    aborted: dict[int, tuple[int, int]] = {}
    begun: dict[int, int] = {}
    sequences = dict.fromkeys(range(3), 0)
    for _ in range(150):
        disk.capacity_bytes = disk.used_bytes() + random.choice([0, 10, 40, 100, 5000, 1 << 20])
        producer = random.randrange(3)
        commit = random.random() < 0.5
        ends = producer in begun and random.random() < 0.4
        data = (
            marker(producer, 0, commit=commit)
            if ends
            else batch(
                size=random.randrange(60),
                producer_id=producer,
                producer_epoch=0,
                base_sequence=sequences[producer],
                transactional=True,
            )
        )
        origin = Origin.coordinator if ends else Origin.client
        try:
            done = log.append_as_leader(data, 0, DAY_ONE_MS, origin=origin)
        except NoRoom:
            assert log.log_end_offset == len(values)
            continue
        values[done.first_offset] = bytes(data)
        if not ends:
            begun.setdefault(producer, done.first_offset)
            sequences[producer] += 1
            continue
        first = begun.pop(producer)
        if not commit:
            aborted[done.first_offset] = (producer, first)

    def check(log: Log) -> None:
        log.check()
        log.update_high_watermark(log.log_end_offset)
        assert [r.offset for r in read_all(log)] == list(values)
        found = {a.last_offset: (a.producer_id, a.first_offset) for a in log.aborted(0, 1 << 60)}
        assert found == aborted

    assert not keeper.failures
    check(log)
    disk.capacity_bytes = 1 << 30

    async def flush(log: Log) -> None:
        await log.flush()

    if random.random() < 0.5:
        asyncio.run(flush(log))
        disk = disk.crash(keep=0.0)
    else:
        disk = disk.kill()
    check(open_log(disk, CONFIG, StoredOffsets(recovery_point=log.recovery_point)))
