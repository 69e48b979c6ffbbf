"""What is not there any more after a clean stop, and indexes that lead astray."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from kserver.config.topic import TopicConfig
from kserver.log.log import Cold, Log
from kserver.log.recovery import DamagedLog, StoredOffsets
from kserver.log.segments import Slice
from tests.support.clock import DAY_ONE_MS, SimClock
from tests.support.disk import SimDisk
from tests.support.logs import DIRECTORY, batch, open_log, read_all
from tests.support.loop import SimLoop, simulate

CONFIG = TopicConfig(segment_bytes=2000, index_interval_bytes=200, segment_index_bytes=4096)
RECORDS = 100
SPACING_MS = 1000


def path(base: int, suffix: str = ".log") -> str:
    return f"{DIRECTORY}/{base:020d}{suffix}"


async def closed(loop: SimLoop, config: TopicConfig = CONFIG) -> tuple[SimDisk, list[int]]:
    """A disk with a log that was closed, and the bases of its segments."""
    disk = SimDisk(loop.random, SimClock(loop))
    disk.make_directories("/data")
    log = open_log(disk, config)
    for n in range(RECORDS):
        one = batch(timestamp=DAY_ONE_MS + n * SPACING_MS)
        log.append_as_leader(one, 0, DAY_ONE_MS + n * SPACING_MS)
    bases = [segment.base_offset for segment in log.segments]
    await log.close()
    assert len(bases) > 3
    return disk, bases


def reopened(disk: SimDisk, config: TopicConfig = CONFIG, **stored: int) -> Log:
    return open_log(
        disk,
        config,
        StoredOffsets(clean=True, recovery_point=RECORDS, log_start_offset=0)._replace(**stored),
    )


def last_is_removed(disk: SimDisk, bases: list[int]) -> tuple[int, int]:
    disk.remove(path(bases[-1]))
    return bases[-1], RECORDS - 1


def last_is_emptied(disk: SimDisk, bases: list[int]) -> tuple[int, int]:
    disk.open(path(bases[-1])).truncate(0)
    for suffix in (".index", ".timeindex"):
        disk.open(path(bases[-1], suffix)).truncate(0)
    return bases[-1], RECORDS - 1


def last_is_cut_between_batches(disk: SimDisk, bases: list[int]) -> tuple[int, int]:
    disk.open(path(bases[-1])).truncate(len(batch()))
    return bases[-1] + 1, RECORDS - 1


def middle_is_removed(disk: SimDisk, bases: list[int]) -> tuple[int, int]:
    disk.remove(path(bases[1]))
    return bases[1], bases[2] - 1


def middle_is_cut_between_batches(disk: SimDisk, bases: list[int]) -> tuple[int, int]:
    disk.open(path(bases[1])).truncate(2 * len(batch()))
    return bases[1] + 2, bases[2] - 1


def middle_is_emptied(disk: SimDisk, bases: list[int]) -> tuple[int, int]:
    disk.open(path(bases[1])).truncate(0)
    for suffix in (".index", ".timeindex"):
        disk.open(path(bases[1], suffix)).truncate(0)
    return bases[1], bases[2] - 1


def all_are_removed(disk: SimDisk, bases: list[int]) -> tuple[int, int]:
    for base in bases:
        disk.remove(path(base))
    return 0, RECORDS - 1


def first_is_removed(disk: SimDisk, bases: list[int]) -> tuple[int, int]:
    disk.remove(path(bases[0]))
    return 0, bases[1] - 1


WAYS = [
    first_is_removed,
    last_is_removed,
    last_is_emptied,
    last_is_cut_between_batches,
    middle_is_removed,
    middle_is_cut_between_batches,
    middle_is_emptied,
    all_are_removed,
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_records_that_are_missing_after_a_clean_stop_are_named(
    way: Callable[[SimDisk, list[int]], tuple[int, int]],
) -> None:
    async def scenario(loop: SimLoop) -> None:
        disk, bases = await closed(loop)
        first, last = way(disk, bases)
        with pytest.raises(DamagedLog) as refused:
            reopened(disk)
        text = str(refused.value)
        assert f"offsets {first} to {last}" in text or (
            f"no valid batch with offset {first} or above" in text
        )
        # The remedy that it names.
        if way in (first_is_removed, all_are_removed):
            assert "k storage accept-loss --topic topic --partition 0" in text
        else:
            assert f"-offset-checkpoint to {first} and remove" in text
        left = open_log(disk, CONFIG, StoredOffsets(recovery_point=first))
        left.check()
        found = [record.offset for record in read_all(left)]
        assert found == list(range(last + 1, RECORDS) if way is first_is_removed else range(first))

    simulate(scenario, seed=1)


@pytest.mark.parametrize("is_deleting", [False, True])
def test_after_a_crash_a_log_without_segments_was_being_deleted_from_or_is_refused(
    *, is_deleting: bool
) -> None:
    async def scenario(loop: SimLoop) -> None:
        disk, bases = await closed(loop)
        for base in bases:
            if is_deleting:
                disk.rename(path(base), f"{path(base)}.deleted")
            else:
                disk.remove(path(base))
        stored = StoredOffsets(recovery_point=RECORDS)
        if not is_deleting:
            with pytest.raises(DamagedLog, match="no segment is left"):
                open_log(disk, CONFIG, stored)
            return
        log = open_log(disk, CONFIG, stored)
        assert (log.log_end_offset, log.recovery_point) == (0, 0)
        assert not [name for name in disk.list(log.directory) if name.endswith(".deleted")]

    simulate(scenario, seed=1)


def test_after_a_crash_the_first_segments_may_have_been_deleted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(loop: SimLoop) -> None:
        disk, bases = await closed(loop)
        disk.remove(path(bases[0]))
        log = open_log(disk, CONFIG, StoredOffsets(recovery_point=RECORDS, log_start_offset=0))
        assert log.log_start_offset == bases[1]
        assert f"first segment starts at offset {bases[1]}" in caplog.text

    simulate(scenario, seed=1)


@pytest.mark.parametrize("way", [middle_is_removed, middle_is_cut_between_batches])
def test_a_gap_may_be_compactions(way: Callable[[SimDisk, list[int]], tuple[int, int]]) -> None:
    async def scenario(loop: SimLoop) -> None:
        disk, bases = await closed(loop)
        first, last = way(disk, bases)
        log = reopened(disk, cleaned_to=0)
        log.check()
        assert len(read_all(log)) == RECORDS - (last - first + 1)

    simulate(scenario, seed=1)


def test_a_stop_that_was_clean_is_whole() -> None:
    async def scenario(loop: SimLoop) -> None:
        disk, _ = await closed(loop)
        log = reopened(disk)
        log.check()
        assert len(read_all(log)) == RECORDS

    simulate(scenario, seed=1)


# Indexes


def shifted(data: bytes, _: Random) -> bytes:
    return data[7:] + data[:7]


def of_other_bytes(data: bytes, random: Random) -> bytes:
    return random.randbytes(len(data))


def of_small_numbers(data: bytes, random: Random) -> bytes:
    return b"".join(random.randrange(2000).to_bytes(4) for _ in range(len(data) // 4))


def with_one_other_byte(data: bytes, random: Random) -> bytes:
    at = random.randrange(len(data))
    return data[:at] + random.randbytes(1) + data[at + 1 :]


def of_zeros(data: bytes, _: Random) -> bytes:
    return bytes(len(data))


def of_later_positions(data: bytes, _: Random) -> bytes:
    """Each entry leads to the batch that the next one leads to."""
    positions = [data[at + 4 : at + 8] for at in range(0, len(data), 8)]
    late = [*positions[1:], positions[-1]]
    return b"".join(data[8 * n : 8 * n + 4] + late[n] for n in range(len(late)))


DAMAGES = [
    shifted,
    of_other_bytes,
    of_small_numbers,
    with_one_other_byte,
    of_zeros,
]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("which", [1, -1], ids=["middle", "last"])
@pytest.mark.parametrize(
    ("damage", "suffix"),
    [
        *((damage, suffix) for damage in DAMAGES for suffix in (".index", ".timeindex")),
        (of_later_positions, ".index"),  # a time index has none
    ],
)
def test_a_damaged_index_leads_nobody_astray(
    damage: Callable[[bytes, Random], bytes], suffix: str, which: int, seed: int
) -> None:
    async def scenario(loop: SimLoop) -> None:
        disk, bases = await closed(loop)
        spoilt = path(bases[which], suffix)
        data = disk.read_file(spoilt)
        file = disk.open(spoilt)
        file.write_at(0, damage(data, loop.random))
        log = reopened(disk)
        await finds_all(log, loop.random)
        await log.close()
        again = reopened(disk)
        await finds_all(again, loop.random)
        await again.close()

    simulate(scenario, seed=seed)


async def finds_all(log: Log, random: Random) -> None:
    for offset in sorted(range(RECORDS), key=lambda _: random.random()):
        found = log.read(offset, 1, up_to=RECORDS)
        if isinstance(found, Cold):
            await log.read_cold(offset, 1, up_to=RECORDS)
            found = log.read(offset, 1, up_to=RECORDS)
        assert isinstance(found, Slice)
        assert found.data is not None
        assert found.data.read()[:8] == offset.to_bytes(8)
    for n in range(RECORDS):
        wanted = DAY_ONE_MS + n * SPACING_MS
        at = await log.offset_for_timestamp(wanted)
        assert at is not None
        assert (at.offset, at.timestamp) == (n, wanted)
