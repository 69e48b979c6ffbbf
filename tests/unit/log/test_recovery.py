"""What counts after a stop, a crash, or damage.

The random test keeps a model of what the log must hold: a log that was stopped or killed holds all,
one that lost power holds a prefix of it, not shorter than what was flushed.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from random import Random

import pytest

from kserver.config.topic import TopicConfig
from kserver.log.checkpoint import LEADER_EPOCHS, PARTITION_METADATA
from kserver.log.log import Log, Origin
from kserver.log.recovery import DamagedLog, StoredOffsets
from kserver.wire.batch import HEADER_SIZE
from tests.support.clock import DAY_ONE_MS, SimClock, StillClock
from tests.support.disk import SimDisk
from tests.support.logs import DIRECTORY, Keeper, batch, marker, open_log, read_all
from tests.support.loop import SimLoop, simulate

FIRST = f"{DIRECTORY}/{0:020d}.log"


def make_disk() -> SimDisk:
    disk = SimDisk(Random(0), StillClock())
    disk.make_directories("/data")
    disk.sync_directory("/")
    return disk


def append(log: Log, *counts: int, epoch: int = 0) -> None:
    for count in counts:
        log.append_as_leader(batch(count), epoch, DAY_ONE_MS)


def written(disk: SimDisk, path: str, data: bytes) -> None:
    file = disk.open(path)
    file.truncate(0)
    file.write_at(0, data)


# A torn tail


def test_a_tail_torn_at_any_byte_costs_the_torn_batch_alone() -> None:
    disk = make_disk()
    append(open_log(disk), 2, 3, 1)
    whole = disk.read_file(FIRST)
    last = len(batch(1))
    for torn in range(last):
        written(disk, FIRST, whole[: len(whole) - last + torn])
        log = open_log(disk)
        log.check()
        assert log.log_end_offset == 5, torn
        assert len(disk.read_file(FIRST)) == len(whole) - last or not torn


def test_indexes_that_are_rebuilt_are_logged_once_with_the_path(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "kserver.log.recovery")
    disk = make_disk()
    log = open_log(disk, TopicConfig(segment_bytes=len(batch(3))))
    assert not caplog.messages
    append(log, 2, 3, 1)
    open_log(disk)
    assert caplog.messages == [
        f"{DIRECTORY}: rebuilding the indexes of 3 segment(s), starting at offset 0"
    ]


@pytest.mark.parametrize("at", [*range(8, 12), *range(16, len(batch(2)))])
def test_a_byte_that_was_never_written_ends_the_log_there(at: int) -> None:
    disk = make_disk()
    append(open_log(disk), 2, 2, 2)
    whole = bytearray(disk.read_file(FIRST))
    position = len(batch(2)) + at
    whole[position] ^= 0xFF
    written(disk, FIRST, whole)
    log = open_log(disk)
    log.check()
    assert log.log_end_offset == 2


def test_zeros_behind_the_records_are_cut() -> None:
    disk = make_disk()
    log = open_log(disk, TopicConfig(preallocate=True, segment_bytes=100_000))
    append(log, 2, 2)
    size = log.size_bytes
    log = open_log(disk.kill(), TopicConfig(preallocate=True, segment_bytes=100_000))
    assert (log.log_end_offset, log.size_bytes) == (4, size)
    append(log, 1)
    log.check()


def test_old_batches_that_show_again_behind_newer_ones_are_cut() -> None:
    disk = make_disk()
    log = open_log(disk)
    append(log, 1, 1, 1, epoch=3)
    old = disk.read_file(FIRST)
    written(disk, FIRST, b"")
    log = open_log(disk)
    append(log, 1, epoch=4)
    new = disk.read_file(FIRST)
    written(disk, FIRST, new + old[len(new) :])
    assert open_log(disk).log_end_offset == 1


def test_what_follows_a_torn_segment_goes_with_it() -> None:
    disk = make_disk()
    config = TopicConfig(segment_bytes=300)
    append(open_log(disk, config), *[1] * 10)
    second = f"{DIRECTORY}/{3:020d}.log"
    disk.open(second).write_at(HEADER_SIZE, b"torn")
    log = open_log(disk, config)
    assert log.log_end_offset == 3
    assert [segment.base_offset for segment in log.segments] == [0, 3]
    append(log, 1, 1)
    log.check()


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_a_segment_that_does_not_follow_on_is_removed(policy: str) -> None:
    """Above the recovery point a gap may be what the machine lost as it went down."""
    disk = make_disk()
    config = TopicConfig(segment_bytes=300, cleanup_policy=(policy,))
    append(open_log(disk, config), *[1] * 10)
    # The first segment's size had not reached the disk: it ends with a whole batch, too early.
    disk.open(FIRST).truncate(len(batch()))
    log = open_log(disk, config, StoredOffsets(recovery_point=1))
    assert log.log_end_offset == 1
    assert len(log.segments) == 1
    log.check()


@pytest.mark.parametrize(
    ("policy", "stored"),
    [
        ("compact", StoredOffsets(recovery_point=3)),
        # A follower has the gaps of its leader, and its machine has stayed up.
        ("compact", StoredOffsets(recovery_point=1, is_same_boot=True)),
        ("delete", StoredOffsets(recovery_point=3, cleaned_to=3)),
        ("delete", StoredOffsets()),
    ],
)
def test_a_gap_that_may_be_from_compaction_is_kept(policy: str, stored: StoredOffsets) -> None:
    disk = make_disk()
    config = TopicConfig(segment_bytes=300, cleanup_policy=(policy,))
    append(open_log(disk, config), *[1] * 10)
    disk.open(FIRST).truncate(len(batch()))
    log = open_log(disk, config, stored)
    log.check()
    assert [record.offset for record in read_all(log)] == [0, 3, 4, 5, 6, 7, 8, 9]


# Damage


@pytest.mark.parametrize(
    ("stored", "offset"), [(StoredOffsets(recovery_point=10), 3), (StoredOffsets(clean=True), 9)]
)
def test_damage_below_the_recovery_point_ends_the_start_and_names_the_place(
    stored: StoredOffsets, offset: int
) -> None:
    async def scenario(loop: SimLoop) -> None:
        disk = SimDisk(loop.random, SimClock(loop))
        disk.make_directories("/data")
        log = open_log(disk)
        append(log, *[1] * 10)
        await log.close()
        size = len(batch())
        position = offset * size
        disk.open(FIRST).write_at(position + 16, b"\x07")
        place = rf"{FIRST} is damaged at position {position}: .*before offset {offset} and lose"
        with pytest.raises(DamagedLog, match=place):
            open_log(disk, None, stored)
        remedy = StoredOffsets(recovery_point=offset)
        assert open_log(disk, None, remedy).log_end_offset == offset

    simulate(scenario, seed=1)


def test_records_that_were_flushed_and_are_gone_are_damage() -> None:
    disk = make_disk()
    append(open_log(disk), 1, 1, 1)
    disk.open(FIRST).truncate(len(batch()))
    with pytest.raises(DamagedLog, match="recovery point 3"):
        open_log(disk, None, StoredOffsets(recovery_point=3))
    assert open_log(disk, None, StoredOffsets(recovery_point=1)).log_end_offset == 1


def test_a_trusted_segment_that_lost_its_tail_is_damage() -> None:
    disk = make_disk()
    config = TopicConfig(segment_bytes=300)
    append(open_log(disk, config), *[1] * 10)
    disk.open(FIRST).truncate(len(batch()) + 10)
    with pytest.raises(DamagedLog, match=f"{FIRST} is damaged at position {len(batch())}"):
        open_log(disk, config, StoredOffsets(recovery_point=9))


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("clean", [True, False])
def test_an_index_that_is_missing_cut_or_empty_is_written_anew(suffix: str, clean: bool) -> None:
    async def scenario(loop: SimLoop) -> None:
        disk = SimDisk(loop.random, SimClock(loop))
        config = TopicConfig(segment_bytes=1000, index_interval_bytes=100)
        log = open_log(disk, config)
        append(log, *[1] * 50)
        await log.close()
        path = f"{DIRECTORY}/{0:020d}{suffix}"
        before = disk.read_file(path)
        # Without entries in its offset index a segment is only read more slowly.
        for left in (None, len(before) - 3, 0 if suffix == ".timeindex" else 5):
            if left is None:
                disk.remove(path)
            else:
                disk.open(path).truncate(left)
            again = open_log(disk, config, StoredOffsets(clean, 50))
            again.check()
            assert disk.read_file(path) == before
            await again.close()

    simulate(scenario, seed=1)


def test_a_rebuild_that_was_interrupted_is_done_again() -> None:
    disk = make_disk()
    config = TopicConfig(segment_bytes=1000, index_interval_bytes=100)
    append(open_log(disk, config), *[1] * 50)
    path = f"{DIRECTORY}/{0:020d}.index"
    whole = disk.read_file(path)
    disk.open(path).truncate(8)
    disk.open(path).truncate(10_000)
    open_log(disk, config, StoredOffsets(recovery_point=50)).check()
    assert disk.read_file(path) == whole


def test_a_start_that_ends_with_damage_leaves_no_half_index() -> None:
    disk = make_disk()
    config = TopicConfig(segment_bytes=1000, index_interval_bytes=100)
    append(open_log(disk, config), *[1] * 50)
    disk.remove(f"{DIRECTORY}/{0:020d}.index")
    disk.open(FIRST).write_at(5 * len(batch()) + 20, b"damage")
    for stored in (StoredOffsets(clean=True, recovery_point=50), StoredOffsets(recovery_point=50)):
        with pytest.raises(DamagedLog, match=f"position {5 * len(batch())}"):
            open_log(disk, config, stored)


@pytest.mark.parametrize("content", [None, b"0\n2\n0 0\n", b"0\n1\n3 1", b""])
def test_epochs_come_from_the_batches_where_their_file_is_torn_or_missing(
    content: bytes | None,
) -> None:
    async def scenario(loop: SimLoop) -> None:
        disk = SimDisk(loop.random, SimClock(loop))
        disk.make_directories("/data")
        log = open_log(disk)
        append(log, 1, 1, epoch=3)
        append(log, 1, epoch=5)
        path = f"{DIRECTORY}/{LEADER_EPOCHS}"
        if content is not None:
            disk.open(path, create=True).write_at(0, content)
        for _ in range(2):  # A crash before the first flush leaves the file as it was.
            log = open_log(disk, None, StoredOffsets(recovery_point=3))
            assert log.epochs.entries == ((3, 0), (5, 2))
        await log.flush()
        assert disk.read_file(path) == b"0\n2\n3 0\n5 2\n"

    simulate(scenario, seed=1)


def test_a_torn_topic_id_is_forgotten_after_a_crash_and_damage_after_a_clean_stop() -> None:
    disk = make_disk()
    append(open_log(disk), 1)
    path = f"{DIRECTORY}/{PARTITION_METADATA}"
    disk.open(path, create=True).write_at(0, b"version: 0\ntopic")
    with pytest.raises(DamagedLog, match=PARTITION_METADATA):
        open_log(disk, None, StoredOffsets(clean=True, recovery_point=1))
    assert open_log(disk).topic_id is None
    assert not disk.exists(path)


# Producers


def test_a_torn_snapshot_is_passed_over() -> None:
    disk = make_disk()
    log = open_log(disk)
    for sequence in range(6):
        records = batch(producer_id=7, producer_epoch=0, base_sequence=sequence)
        log.append_as_leader(records, 0, DAY_ONE_MS)
        if sequence in (1, 3):
            log.roll(DAY_ONE_MS)
    newest = f"{DIRECTORY}/{4:020d}.snapshot"
    disk.open(newest).truncate(20)
    log = open_log(disk, None, StoredOffsets(recovery_point=5))
    assert log.producers.producers[7].next_sequence == 6
    assert len(disk.read_file(newest)) > 20


def test_only_snapshots_of_segments_and_the_last_are_kept() -> None:
    async def scenario(loop: SimLoop) -> None:
        disk = SimDisk(loop.random, SimClock(loop))
        for _ in range(3):
            log = open_log(disk, None, StoredOffsets(clean=True))
            append(log, 1)
            await log.close()
        log = open_log(disk, None, StoredOffsets(clean=True))
        log.roll(DAY_ONE_MS)
        append(log, 1)
        await log.close()
        open_log(disk, None, StoredOffsets(clean=True))
        names = [name for name in disk.list(DIRECTORY) if name.endswith(".snapshot")]
        assert names == [f"{3:020d}.snapshot", f"{4:020d}.snapshot"]

    simulate(scenario, seed=1)


def test_a_log_that_ends_below_its_start_begins_anew_there() -> None:
    disk = make_disk()
    append(open_log(disk), 1, 1)
    log = open_log(disk, None, StoredOffsets(log_start_offset=7))
    assert (log.log_start_offset, log.log_end_offset) == (7, 7)
    append(log, 1)
    log.check()
    assert [record.offset for record in read_all(log)] == [7]


# Anything, in any order


@dataclass
class Written:
    """One record of the model; `ended` is the offset of its transaction's marker."""

    value: bytes | None
    producer_id: int = -1
    transactional: bool = False
    ended: int | None = None
    committed: bool = False


@dataclass
class Model:
    loop: SimLoop
    disk: SimDisk
    log: Log
    config: TopicConfig
    keeper: Keeper
    records: dict[int, Written] = field(default_factory=dict)
    batches: list[int] = field(default_factory=lambda: [0])
    """Where batches begin; the log's end last."""
    stored: StoredOffsets = field(default_factory=lambda: StoredOffsets(recovery_point=0))
    epoch: int = 0
    tag: int = 0

    async def step(self) -> None:
        steps = {
            self.append: 11,
            self.end_transaction: 2,
            self.roll: 1,
            self.flush: 2,
            self.write_checkpoints: 1,
            self.begin_epoch: 1,
            self.delete_records: 1,
            self.truncate: 1,
            self.stop: 1,
            self.kill: 1,
            self.lose_power: 2,
        }
        chosen = self.loop.random.choices(list(steps), list(steps.values()))[0]
        await chosen()

    async def append(self) -> None:
        random, log = self.loop.random, self.log
        producer_id = random.choice([-1, -1, 7, 8])
        known = log.producers.producers.get(producer_id)
        is_open = known is not None and known.transaction_start >= 0
        transactional = producer_id >= 0 and (is_open or random.random() < 0.5)
        count = random.randrange(1, 5)
        self.tag += 1
        records = batch(
            count,
            timestamp=DAY_ONE_MS + random.randrange(1000),
            size=random.randrange(1, 60),
            tag=b"%d-" % self.tag,
            producer_id=producer_id,
            producer_epoch=-1 if producer_id < 0 else 0,
            base_sequence=-1 if producer_id < 0 else known.next_sequence if known else 0,
            transactional=transactional,
        )
        done = log.append_as_leader(records, self.epoch, DAY_ONE_MS)
        assert done.first_offset == self.batches[-1]
        for number in range(count):
            value = b"%d-%d/" % (self.tag, number)
            self.records[done.first_offset + number] = Written(value, producer_id, transactional)
        self.batches.append(log.log_end_offset)

    async def end_transaction(self) -> None:
        is_open = [id for id, p in self.log.producers.producers.items() if p.transaction_start >= 0]
        if not is_open:
            return
        producer_id = self.loop.random.choice(is_open)
        commit = self.loop.random.random() < 0.5
        at = self.log.log_end_offset
        ending = marker(producer_id, 0, commit=commit)
        self.log.append_as_leader(ending, self.epoch, DAY_ONE_MS, origin=Origin.coordinator)
        for record in self.records.values():
            if record.producer_id == producer_id and record.ended is None:
                record.ended, record.committed = at, commit
        self.records[at] = Written(None)
        self.batches.append(at + 1)

    async def roll(self) -> None:
        self.log.roll(DAY_ONE_MS)

    async def flush(self) -> None:
        end = self.log.log_end_offset
        assert await self.log.flush() == end

    async def write_checkpoints(self) -> None:
        log = self.log
        self.stored = StoredOffsets(
            False, log.recovery_point, log.log_start_offset, log.high_watermark
        )

    async def begin_epoch(self) -> None:
        self.epoch += 1
        self.log.assign_epoch(self.epoch, self.log.log_end_offset)

    async def delete_records(self) -> None:
        self.log.update_high_watermark(self.log.log_end_offset)
        self.log.increment_log_start_offset(self.loop.random.choice(self.batches[-5:]))
        self.log.delete_old_segments(DAY_ONE_MS)

    async def truncate(self) -> None:
        offset = max(self.loop.random.choice(self.batches[-6:]), self.log.log_start_offset)
        self.keeper.lowered.clear()
        await self.log.truncate_to(offset)
        for lowered in self.keeper.lowered:
            least = min(self.stored.recovery_point, lowered)
            self.stored = self.stored._replace(recovery_point=least)
        assert self.log.log_end_offset == offset
        self.forget_from(offset)

    async def stop(self) -> None:
        log, end, producers = self.log, self.log.log_end_offset, self.producers()
        log.update_high_watermark(end)
        await log.close()
        self.stored = StoredOffsets(True, end, log.log_start_offset, end)
        next_disk = self.disk.crash() if self.loop.random.random() < 0.5 else self.disk.kill()
        self.open(next_disk)
        self.stored = self.stored._replace(clean=False)
        assert self.log.log_end_offset == self.log.recovery_point == end
        assert self.producers() == producers

    async def kill(self) -> None:
        end, producers = self.log.log_end_offset, self.producers()
        self.open(self.disk.kill())
        assert self.log.log_end_offset == end
        if self.log.log_start_offset == 0:
            assert self.producers() == producers

    async def lose_power(self) -> None:
        log = self.log
        if self.loop.random.random() < 0.3:
            flush = self.loop.create_task(log.flush())
            await asyncio.sleep(self.loop.random.random() * 0.003)
            if flush.done():
                assert flush.result() == log.log_end_offset
        end, flushed = log.log_end_offset, log.recovery_point
        self.open(self.disk.crash())
        assert flushed <= self.log.log_end_offset <= max(end, self.log.log_start_offset)
        self.forget_from(self.log.log_end_offset)

    def open(self, disk: SimDisk) -> None:
        self.disk = disk
        self.log = open_log(disk, self.config, self.stored, keeper=self.keeper)
        self.log.update_high_watermark(self.log.log_end_offset)
        self.epoch += 1
        self.log.assign_epoch(self.epoch, self.log.log_end_offset)

    def forget_from(self, end: int) -> None:
        self.batches = [start for start in self.batches if start < end] + [end]
        self.records = {o: record for o, record in self.records.items() if o < end}
        for record in self.records.values():
            if record.ended is not None and record.ended >= end:
                record.ended = None

    def producers(self) -> dict[int, tuple[int, int]]:
        return {
            id: (producer.next_sequence, producer.transaction_start)
            for id, producer in self.log.producers.producers.items()
        }

    def check(self) -> None:
        log = self.log
        log.check()
        start, end = log.log_start_offset, log.log_end_offset
        expected = {o: record for o, record in self.records.items() if o >= start}
        found = read_all(log, max_bytes=self.loop.random.choice([1, 200, 1 << 20]))
        assert [record.offset for record in found] == list(expected)
        aborted = log.aborted(start, end)
        for record in found:
            model = expected[record.offset]
            assert model.value is None or (record.value or b"").startswith(model.value)
            is_aborted = any(
                one.producer_id == model.producer_id
                and one.first_offset <= record.offset <= one.last_offset
                for one in aborted
            )
            decided = model.transactional and model.ended is not None
            assert is_aborted == (decided and not model.committed), record
            if model.transactional and model.ended is None:
                assert log.last_stable_offset <= record.offset


async def anything(loop: SimLoop) -> None:
    random = loop.random
    disk = SimDisk(random, SimClock(loop))
    disk.make_directories("/data")
    disk.sync_directory("/")
    config = TopicConfig(
        segment_bytes=random.choice([400, 1000, 3000]),
        index_interval_bytes=random.choice([0, 50, 300]),
        segment_index_bytes=random.choice([24, 60, 10 << 20]),
        preallocate=random.random() < 0.2,
        retention_ms=-1,
    )
    keeper = Keeper()
    model = Model(loop, disk, open_log(disk, config, keeper=keeper), config, keeper)
    for _ in range(random.randrange(5, 60)):
        await model.step()
        model.check()


@pytest.mark.parametrize("seed", range(40))
def test_no_record_that_must_be_there_is_lost_and_none_shows_twice(seed: int) -> None:
    simulate(anything, seed)
