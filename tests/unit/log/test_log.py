from __future__ import annotations

import asyncio
import errno
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kserver.config.topic import TopicConfig
from kserver.errors import ErrorCode, KafkaError, StorageError
from kserver.log.checkpoint import LEADER_EPOCHS
from kserver.log.log import Log, Origin
from kserver.log.recovery import StoredOffsets
from kserver.wire.batch import RecordBatch, batches
from tests.support.clock import DAY_ONE_MS, SimClock, StillClock
from tests.support.disk import SimDisk
from tests.support.logs import DIRECTORY, Keeper, batch, marker, open_log, read_all
from tests.support.loop import SimLoop, simulate


def make_disk() -> SimDisk:
    disk = SimDisk(random.Random(0), StillClock())
    disk.make_directories("/data")
    disk.sync_directory("/")
    return disk


def make_log(disk: SimDisk | None = None, keeper: Keeper | None = None, **config: Any) -> Log:
    config = {"segment_index_bytes": 4096} | config
    return open_log(disk or make_disk(), TopicConfig(**config), keeper=keeper)


def append(log: Log, *counts: int, epoch: int = 0, **fields: Any) -> None:
    for count in counts:
        log.append_as_leader(batch(count, **fields), epoch, DAY_ONE_MS)


def refused(log: Log, records: memoryview, **options: Any) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        log.append_as_leader(records, 0, DAY_ONE_MS, **options)
    return raised.value.code


# Append


def test_offsets_run_on_from_batch_to_batch() -> None:
    log = make_log()
    done = [log.append_as_leader(batch(n), 3, DAY_ONE_MS) for n in (2, 3, 1)]
    assert [(one.first_offset, one.last_offset) for one in done] == [(0, 1), (2, 4), (5, 5)]
    assert log.log_end_offset == 6
    assert [record.offset for record in read_all(log)] == [0, 1, 2, 3, 4, 5]
    log.check()


def test_an_append_is_one_write() -> None:
    disk = make_disk()
    log = make_log(disk)
    disk.counts.clear()
    append(log, 5)
    assert disk.counts == {"write_at": 1}


def test_log_append_time_is_answered_and_stamped() -> None:
    log = make_log(message_timestamp_type="LogAppendTime")
    done = log.append_as_leader(batch(2, timestamp=17), 0, DAY_ONE_MS + 5)
    assert done.log_append_time == DAY_ONE_MS + 5
    assert {record.timestamp for record in read_all(log)} == {DAY_ONE_MS + 5}


def test_a_batch_sent_again_is_answered_as_the_first_time_and_not_appended() -> None:
    log = make_log()
    fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    append(log, 1)
    first = log.append_as_leader(batch(3, **fields), 0, DAY_ONE_MS)
    append(log, 2)
    again = log.append_as_leader(batch(3, **fields), 0, DAY_ONE_MS)
    assert again == first._replace(log_append_time=DAY_ONE_MS + 2, duplicate=True)
    assert log.log_end_offset == 6


def test_a_gap_in_the_sequence_is_refused_and_changes_nothing() -> None:
    log = make_log()
    fields = {"producer_id": 7, "producer_epoch": 0}
    append(log, 2, base_sequence=0, **fields)
    gap = batch(1, base_sequence=3, **fields)
    assert refused(log, gap) is ErrorCode.out_of_order_sequence_number
    append(log, 1, base_sequence=2, **fields)
    assert log.log_end_offset == 3


def test_a_batch_that_no_segment_can_hold_is_refused() -> None:
    log = make_log(segment_bytes=300)
    assert refused(log, batch(1, size=400)) is ErrorCode.record_list_too_large
    assert log.size_bytes == 0


def test_a_batch_that_crosses_the_segment_size_goes_into_the_next() -> None:
    size = len(batch(1))
    log = make_log(segment_bytes=3 * size)
    append(log, *[1] * 7)
    assert [segment.base_offset for segment in log.segments] == [0, 3, 6]
    assert [segment.size for segment in log.segments] == [3 * size, 3 * size, size]


def test_a_segment_ends_when_its_first_record_is_old_by_the_timestamps_of_the_later() -> None:
    log = make_log(segment_ms=1000)
    append(log, 1, timestamp=DAY_ONE_MS - 5000)
    append(log, 1, timestamp=DAY_ONE_MS - 4000)
    assert len(log.segments) == 1
    append(log, 1, timestamp=DAY_ONE_MS - 3999)
    append(log, 1, timestamp=DAY_ONE_MS - 9000)
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_jitter_ends_segments_earlier_and_each_at_its_own_time() -> None:
    log = make_log(segment_ms=10_000, segment_jitter_ms=5_000, segment_bytes=100)
    append(log, *[1] * 20)
    ages = {segment.max_ms for segment in log.segments}
    assert all(5_000 < age <= 10_000 for age in ages)
    assert len(ages) > 10


def test_a_full_index_ends_its_segment() -> None:
    log = make_log(index_interval_bytes=0, segment_index_bytes=24)
    append(log, *[1] * 10)
    assert len(log.segments) > 2
    log.check()


def test_a_new_configuration_holds_for_the_active_segment() -> None:
    log = make_log()
    append(log, 1, 1)
    log.reconfigure(TopicConfig(segment_bytes=200, cleanup_policy=("compact",)))
    append(log, 1)
    assert [segment.base_offset for segment in log.segments] == [0, 2]


# A follower's


def fetched(log: Log, offset: int) -> memoryview:
    found = log.read(offset, 1 << 20, up_to=log.log_end_offset)
    assert found.data is not None  # type: ignore[union-attr]
    return memoryview(found.data.read())  # type: ignore[union-attr]


def test_a_follower_that_fetches_has_the_same_bytes_indexes_and_epochs() -> None:
    disk = make_disk()
    leader = make_log(disk, segment_bytes=900, index_interval_bytes=200)
    for epoch in (0, 3, 4):
        append(leader, *[1, 3, 2] * 4, epoch=epoch)
    follower = open_log(disk, leader.config, directory="/data/copy-0")
    while follower.log_end_offset < leader.log_end_offset:
        follower.append_as_follower(fetched(leader, follower.log_end_offset), DAY_ONE_MS)
        follower.check()
    assert read_all(follower) == read_all(leader)
    assert follower.epochs.entries == leader.epochs.entries
    for mine, its in zip(follower.segments, leader.segments, strict=True):
        for one in (mine, its):
            one.seal()
        for suffix in (".log", ".index", ".timeindex"):
            assert disk.read_file(mine.path(suffix)) == disk.read_file(its.path(suffix))


def test_a_batch_cut_by_the_fetch_is_left_for_the_next() -> None:
    leader, follower = make_log(), make_log()
    append(leader, 1, 1, 1)
    whole = fetched(leader, 0)
    assert follower.append_as_follower(whole[:40], DAY_ONE_MS) is None
    done = follower.append_as_follower(whole[:-1], DAY_ONE_MS)
    assert done is not None
    assert (done.first_offset, done.last_offset, follower.log_end_offset) == (0, 1, 2)
    done = follower.append_as_follower(fetched(leader, 2), DAY_ONE_MS)
    assert read_all(follower) == read_all(leader)


def test_a_follower_takes_more_than_a_segment_at_once() -> None:
    leader, follower = make_log(), make_log(segment_bytes=300)
    append(leader, *[1] * 20)
    follower.append_as_follower(fetched(leader, 0), DAY_ONE_MS)
    assert read_all(follower) == read_all(leader)
    assert len(follower.segments) > 5
    follower.check()


def test_a_gap_wider_than_relative_offsets_begins_a_segment() -> None:
    log = make_log()
    append(log, 1)
    far = batch(2)
    far[0:8] = (1 << 40).to_bytes(8)
    log.append_as_follower(far, DAY_ONE_MS)
    assert [segment.base_offset for segment in log.segments] == [0, 1 << 40]
    assert [record.offset for record in read_all(log)] == [0, 1 << 40, (1 << 40) + 1]
    log.check()


def test_a_follower_refuses_what_it_has_already() -> None:
    leader, follower = make_log(), make_log()
    append(leader, 1, 1)
    follower.append_as_follower(fetched(leader, 0), DAY_ONE_MS)
    with pytest.raises(KafkaError):
        follower.append_as_follower(fetched(leader, 1), DAY_ONE_MS)
    assert follower.log_end_offset == 2


# Transactions


def test_the_last_stable_offset_waits_for_open_transactions_and_markers_name_the_aborted() -> None:
    log = make_log()
    fields: dict[str, Any] = {"producer_epoch": 0, "transactional": True}
    append(log, 1)
    append(log, 2, producer_id=7, base_sequence=0, **fields)
    append(log, 1, producer_id=8, base_sequence=0, **fields)
    log.update_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == 1
    log.append_as_leader(marker(7, 0, commit=False), 0, DAY_ONE_MS, origin=Origin.coordinator)
    log.update_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == 3
    log.append_as_leader(marker(8, 0, commit=True), 0, DAY_ONE_MS, origin=Origin.coordinator)
    assert log.last_stable_offset == 3
    log.update_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == log.log_end_offset == 6
    assert [(a.producer_id, a.first_offset, a.last_offset) for a in log.aborted(0, 6)] == [
        (7, 1, 4)
    ]
    assert log.aborted(5, 6) == []


def test_a_fetch_of_part_of_a_segment_is_told_where_its_records_end() -> None:
    log = make_log(index_interval_bytes=100)
    fields: dict[str, Any] = {"producer_epoch": 0, "transactional": True, "producer_id": 7}
    for sequence in range(20):
        append(log, 1, base_sequence=sequence, **fields)
        log.append_as_leader(marker(7, 0, commit=False), 0, DAY_ONE_MS, origin=Origin.coordinator)
    found = log.read(10, 300, up_to=log.log_end_offset)
    inside = [one.last_offset for one in batches(found.data.read())]  # type: ignore[union-attr]
    assert inside[-1] < found.upper_bound < inside[-1] + 5  # type: ignore[union-attr]


# Times


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=4), min_size=1, max_size=30),
    st.lists(st.integers(-1, 32), min_size=1, max_size=8),
    st.integers(0, 3),
)
def test_the_first_record_of_a_time_is_the_one_a_full_scan_finds(
    timestamps: list[list[int]], wanted: list[int], start: int
) -> None:
    async def scenario(loop: SimLoop) -> None:
        disk = SimDisk(loop.random, SimClock(loop))
        log = open_log(disk, TopicConfig(segment_bytes=400, index_interval_bytes=100))
        for number, times in enumerate(timestamps):
            for time in times[:1]:
                append(log, len(times), timestamp=DAY_ONE_MS + time, epoch=number // 5)
        log.update_high_watermark(log.log_end_offset)
        log.increment_log_start_offset(min(start, log.log_end_offset - 1))
        records = [record for record in read_all(log) if record.offset >= log.log_start_offset]
        for time in wanted:
            at = DAY_ONE_MS + time
            expected = next(((r.timestamp, r.offset) for r in records if r.timestamp >= at), None)
            found = await log.offset_for_timestamp(at)
            assert (found and (found.timestamp, found.offset)) == expected
            assert found is None or found.leader_epoch == log.epochs.epoch_of(found.offset)
        latest = max(records, key=lambda record: record.timestamp)
        found = await log.offset_of_max_timestamp()
        assert found is not None
        assert (found.timestamp, found.offset) == (latest.timestamp, latest.offset)

    simulate(scenario, seed=1)


def test_a_log_without_records_has_no_times() -> None:
    async def scenario(loop: SimLoop) -> None:
        log = open_log(SimDisk(loop.random, SimClock(loop)))
        assert await log.offset_for_timestamp(0) is None
        assert await log.offset_of_max_timestamp() is None

    simulate(scenario, seed=1)


# Flush


def test_a_flush_covers_what_was_appended_before_it_and_many_share_one_round() -> None:
    async def scenario(loop: SimLoop) -> None:
        disk = SimDisk(loop.random, SimClock(loop))
        log = open_log(disk)
        append(log, 1, 1)
        first = loop.create_task(log.flush())
        await asyncio.sleep(0)
        append(log, 1)
        others = [loop.create_task(log.flush()) for _ in range(10)]
        await first
        disk.counts.clear()
        assert await asyncio.gather(*others) == [3] * 10
        assert log.recovery_point == 3
        assert disk.counts["sync"] == 1

    simulate(scenario, seed=1)


def test_nothing_is_synced_twice() -> None:
    async def scenario(loop: SimLoop) -> None:
        disk = SimDisk(loop.random, SimClock(loop))
        log = open_log(disk)
        append(log, 1)
        await log.flush()
        disk.counts.clear()
        assert await log.flush() == 1
        assert not disk.counts

    simulate(scenario, seed=1)


def test_a_caller_that_is_cancelled_leaves_the_flush_running() -> None:
    async def scenario(loop: SimLoop) -> None:
        disk = SimDisk(loop.random, SimClock(loop))
        log = open_log(disk)
        append(log, 1)
        log.assign_epoch(4, 1)
        impatient = loop.create_task(log.flush())
        await asyncio.sleep(0)
        impatient.cancel()
        await log.close()
        assert log.recovery_point == 1
        assert disk.read_file(f"{DIRECTORY}/{LEADER_EPOCHS}") == b"0\n2\n0 0\n4 1\n"

    simulate(scenario, seed=1)


def test_a_roll_and_too_many_unflushed_records_ask_for_a_flush() -> None:
    keeper = Keeper()
    log = make_log(keeper=keeper, flush_messages=3)
    append(log, 1)
    keeper.wants_flush.clear()
    append(log, 1)
    assert not keeper.wants_flush
    append(log, 1)
    assert log in keeper.wants_flush
    keeper.wants_flush.clear()
    log.roll(DAY_ONE_MS)
    assert log in keeper.wants_flush


def test_an_epoch_is_on_disk_with_the_next_flush() -> None:
    async def scenario(loop: SimLoop) -> None:
        keeper = Keeper()
        disk = SimDisk(loop.random, SimClock(loop))
        log = open_log(disk, keeper=keeper)
        append(log, 2, epoch=5)
        log.assign_epoch(9, 2)
        assert log in keeper.wants_flush
        await log.flush()
        assert disk.read_file(f"{DIRECTORY}/{LEADER_EPOCHS}") == b"0\n2\n5 0\n9 2\n"

    simulate(scenario, seed=1)


# A failing disk


@pytest.mark.parametrize("operation", ["write_at", "sync", "open"])
def test_a_failing_disk_is_reported_once_and_ends_all_appends(operation: str) -> None:
    async def scenario(loop: SimLoop) -> None:
        disk, keeper = SimDisk(loop.random, SimClock(loop)), Keeper()
        log = open_log(disk, TopicConfig(segment_bytes=200), keeper=keeper)
        append(log, 1)
        disk.fail(operation, errno.EIO, times=1)

        async def fill() -> None:
            for _ in range(3):
                append(log, 1)
                await log.flush()

        with pytest.raises(StorageError, match=DIRECTORY):
            await fill()
        with pytest.raises(StorageError, match=DIRECTORY):
            append(log, 1)
        with pytest.raises(StorageError, match=DIRECTORY):
            await log.flush()
        assert keeper.failures == [log.failure]

    simulate(scenario, seed=1)


def test_what_a_full_disk_took_in_part_is_cut_at_the_next_start() -> None:
    disk = make_disk()
    log = make_log(disk)
    append(log, 1, 1)
    disk.capacity_bytes = 3 * len(batch())
    with pytest.raises(StorageError, match=DIRECTORY):
        append(log, 1, 1, 1)
    disk.capacity_bytes = 1 << 30
    log = open_log(disk.kill())
    log.check()
    assert log.log_end_offset >= 2


# Deletion


def test_deleted_segments_wait_under_another_name_and_readers_keep_them() -> None:
    disk, keeper = make_disk(), Keeper()
    log = make_log(disk, keeper, segment_bytes=300, retention_bytes=400)
    append(log, *[1] * 12)
    log.update_high_watermark(12)
    held = log.read(0, 1 << 20, up_to=12)
    files = {name for name in disk.list(DIRECTORY) if name.startswith(f"{0:020d}")}
    assert log.delete_old_segments(DAY_ONE_MS) == 2
    assert (log.log_start_offset, log.segments[0].base_offset) == (6, 6)
    assert {path for path in keeper.removals if f"{0:020d}" in path} == {
        f"{DIRECTORY}/{name}.deleted" for name in files
    }
    for path in keeper.removals:
        disk.remove(path)
    assert len(list(batches(held.data.read()))) == 3  # type: ignore[union-attr]
    log.check()


def test_a_search_that_runs_while_segments_are_deleted_ends_well() -> None:
    async def scenario(loop: SimLoop) -> None:
        disk = SimDisk(loop.random, SimClock(loop))
        config = TopicConfig(segment_bytes=500, index_interval_bytes=100)
        log = open_log(disk, config)
        for number in range(40):
            append(log, 1, timestamp=DAY_ONE_MS + number)
        await log.close()
        log = open_log(disk, config, StoredOffsets(clean=True, recovery_point=40))
        log.update_high_watermark(40)
        searches = [
            loop.create_task(log.offset_for_timestamp(DAY_ONE_MS + number)) for number in range(40)
        ]
        await asyncio.sleep(0)
        log.increment_log_start_offset(30)
        assert log.delete_old_segments(DAY_ONE_MS) > 3
        found = await asyncio.gather(*searches)
        assert [one and one.offset for one in found] == list(range(40))
        assert log.failure is None

    simulate(scenario, seed=1)


def test_when_all_is_old_the_log_rolls_and_ends_empty_where_it_ended() -> None:
    log = make_log(retention_ms=10)
    append(log, 1, 1)
    log.update_high_watermark(2)
    assert log.delete_old_segments(DAY_ONE_MS + 11) == 1
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (2, 2, 0)
    append(log, 1)
    log.check()
    assert [record.offset for record in read_all(log)] == [2]


def test_the_log_start_rises_within_the_high_watermark_only() -> None:
    log = make_log()
    append(log, 1, 1, 1, epoch=0)
    append(log, 1, epoch=1)
    log.update_high_watermark(3)
    with pytest.raises(KafkaError) as raised:
        log.increment_log_start_offset(4)
    assert raised.value.code is ErrorCode.offset_out_of_range
    assert log.increment_log_start_offset(3)
    assert not log.increment_log_start_offset(2)
    assert log.epochs.entries == ((1, 3),)


# Close


def test_a_closed_log_refuses_everything_and_opens_as_it_was() -> None:
    async def scenario(loop: SimLoop) -> None:
        disk = SimDisk(loop.random, SimClock(loop))
        disk.make_directories("/data")
        disk.sync_directory("/")
        log = open_log(disk, TopicConfig(segment_bytes=500))
        fields: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0}
        for sequence in range(9):
            append(log, 1, base_sequence=sequence, **fields)
        records = read_all(log)
        await log.close()
        with pytest.raises(StorageError, match="closed"):
            append(log, 1)
        disk = disk.crash(keep=0.0)
        disk.counts.clear()
        again = open_log(
            disk, TopicConfig(segment_bytes=500), StoredOffsets(clean=True, recovery_point=9)
        )
        assert disk.counts["read_at"] < 20
        again.check()
        assert read_all(again) == records
        assert again.producers.producers[7].next_sequence == 9
        assert again.recovery_point == 9

    simulate(scenario, seed=1)


@pytest.mark.parametrize("segment_bytes", [500, 1 << 20])
@pytest.mark.parametrize("others", [0, 4, 30])
def test_an_opened_log_recognizes_each_of_the_last_five_batches_sent_again(
    segment_bytes: int, others: int
) -> None:
    async def scenario(loop: SimLoop) -> None:
        disk = SimDisk(loop.random, SimClock(loop))
        disk.make_directories("/data")
        disk.sync_directory("/")
        config = TopicConfig(segment_bytes=segment_bytes, index_interval_bytes=100)
        log = open_log(disk, config)
        fields: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0}
        for sequence in range(9):
            append(log, 1, base_sequence=sequence, **fields)
            append(log, *[1] * others)
        kept = log.producers.producers[7].batches.copy()
        end = log.log_end_offset
        await log.close()
        again = open_log(disk, config, StoredOffsets(clean=True, recovery_point=end))
        # Only so far back as the index leads: among many batches of others, fewer are known.
        known = again.producers.producers[7].batches
        assert known == kept[-len(known) :]
        assert (len(known) == 5) is (others < 30)
        for sequence in range(9 - len(known), 9):
            sent_again = batch(1, base_sequence=sequence, **fields)
            assert again.append_as_leader(sent_again, 0, DAY_ONE_MS).duplicate
        again.check()

    simulate(scenario, seed=1)


@pytest.mark.parametrize("segment_bytes", [500, 1 << 20])
def test_a_truncated_log_recognizes_the_batches_before_the_cut_sent_again(
    segment_bytes: int,
) -> None:
    async def scenario(loop: SimLoop) -> None:
        disk = SimDisk(loop.random, SimClock(loop))
        disk.make_directories("/data")
        disk.sync_directory("/")
        config = TopicConfig(segment_bytes=segment_bytes, index_interval_bytes=100)
        log = open_log(disk, config)
        fields: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0}
        for sequence in range(9):
            append(log, 1, base_sequence=sequence, **fields)
        await log.close()
        log = open_log(disk, config, StoredOffsets(clean=True, recovery_point=9))
        append(log, 1, base_sequence=9, **fields)
        await log.truncate_to(9)
        assert [b.first_sequence for b in log.producers.producers[7].batches] == [4, 5, 6, 7, 8]
        log.check()

    simulate(scenario, seed=1)


def test_only_batches_that_lead_to_a_producers_last_one_are_recalled() -> None:
    async def scenario(loop: SimLoop) -> None:
        disk = SimDisk(loop.random, SimClock(loop))
        disk.make_directories("/data")
        disk.sync_directory("/")
        log = open_log(disk, TopicConfig())
        for producer_id, epoch, sequences in ((7, 0, (0, 1)), (7, 1, (0, 1)), (8, 0, (5, 6))):
            for sequence in sequences:
                fields = {"producer_id": producer_id, "producer_epoch": epoch}
                append(log, 1, base_sequence=sequence, **fields)
        # A producer that was forgotten may go on with any sequence (KIP-360).
        log.producers.clear()
        append(log, 1, producer_id=8, producer_epoch=0, base_sequence=9)
        append(log, 1, producer_id=7, producer_epoch=1, base_sequence=2)
        await log.close()
        again = open_log(disk, TopicConfig(), StoredOffsets(clean=True, recovery_point=8))
        sequences_of = {
            producer_id: [b.first_sequence for b in state.batches]
            for producer_id, state in again.producers.producers.items()
        }
        assert sequences_of == {7: [0, 1, 2], 8: [9]}
        again.check()

    simulate(scenario, seed=1)


def test_batches_carry_the_epoch_of_the_leader_that_took_them() -> None:
    log = make_log()
    append(log, 1, epoch=6)
    assert RecordBatch(fetched(log, 0)).leader_epoch == 6
