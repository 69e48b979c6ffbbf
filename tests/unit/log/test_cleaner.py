from __future__ import annotations

import asyncio
import dataclasses
import errno
from typing import Any
from uuid import UUID

import pytest

from kserver.log import checkpoint
from kserver.log.log import Log, Origin
from kserver.log.segment import CLEANED, SNAPSHOT, SWAP
from kserver.model import TopicPartition
from kserver.wire.batch import Record, encode_batch
from tests.support.logs import marker, read_all
from tests.support.loop import SimLoop, simulate
from tests.unit.log.test_manager import Host

TP = TopicPartition("t", 0)
KEYS = 5
PRODUCER_ID = 7
PATIENCE_S = 600


class CompactedHost(Host):
    """One compacted log, written to by rounds: each gives every key a new value."""

    def __init__(self, loop: SimLoop, *overrides: str, **topic: Any) -> None:
        super().__init__(
            loop,
            "log.cleaner.backoff.ms=100",
            *overrides,
            **{
                "cleanup_policy": ("compact",),
                "segment_bytes": 400,
                "min_cleanable_dirty_ratio": 0.01,
                "file_delete_delay_ms": 1000,
                **topic,
            },
        )
        self.rounds = 0

    @property
    def log(self) -> Log:
        return self.manager.logs[TP]

    async def begin(self) -> None:
        await self.start()
        self.manager.create(TP, UUID(int=1), self.topic)

    async def start_again(self) -> None:
        await self.start()
        self.log.commit_all()

    def write(self, rounds: int = 1) -> None:
        for _ in range(rounds):
            self.rounds += 1
            for key in range(KEYS):
                now_ms = self.clock.now_ms()
                row = (now_ms, b"%d" % key, b"%d" % self.rounds, ())
                self.log.append_as_leader(memoryview(bytearray(encode_batch([row]))), 0, now_ms)
                self.log.commit_all()

    async def cleaned(self) -> None:
        self.log.roll(self.clock.now_ms())
        await self.log.flush()
        async with asyncio.timeout(PATIENCE_S):
            while self.log.cleaned_to != self.log.segments[-1].base_offset:
                await asyncio.sleep(0.05)

    def newest(self) -> dict[bytes | None, bytes | None]:
        self.log.check()
        return {record.key: record.value for record in read_all(self.log)}

    def expected(self) -> dict[bytes, bytes]:
        return {b"%d" % key: b"%d" % self.rounds for key in range(KEYS)}


def test_only_the_newest_record_of_a_key_is_left_in_few_segments():
    async def main(loop: SimLoop) -> None:
        host = CompactedHost(loop)
        await host.begin()
        host.write(20)
        before = {record.offset: record for record in read_all(host.log)}
        await host.cleaned()
        left: list[Record] = read_all(host.log)
        assert [record.offset for record in left] == list(range(95, 100))
        assert all(before[record.offset] == record for record in left)
        assert host.newest() == host.expected()
        host.write()
        await host.cleaned()
        assert [record.offset for record in read_all(host.log)] == list(range(100, 105))
        assert len(host.log.segments) < 10
        await host.stop()

    simulate(main, 1)


def test_cleaning_goes_on_where_the_last_one_ended_also_after_a_start():
    async def main(loop: SimLoop) -> None:
        host = CompactedHost(loop)
        await host.begin()
        host.write(5)
        await host.cleaned()
        cleaned_to = host.log.cleaned_to
        path = f"/logs/{checkpoint.CLEANED}"
        assert checkpoint.read_offsets(host.disk, path) == {TP: cleaned_to}
        await host.kill()
        await host.start_again()
        assert host.log.cleaned_to == cleaned_to
        await asyncio.sleep(5)
        assert host.manager.cleaner.cleanings == 0
        host.write(5)
        await host.cleaned()
        assert host.manager.cleaner.cleanings > 0
        assert host.newest() == host.expected()
        await host.stop()

    simulate(main, 1)


@pytest.mark.parametrize("seed", range(10))
def test_power_brings_back_no_segment_of_which_nothing_stayed(seed):
    """What is noted to be clean is not looked through for old records again."""

    async def main(loop: SimLoop) -> None:
        host = CompactedHost(loop, cleanup_policy=("delete",), segment_bytes=4000)
        await host.begin()
        now_ms = host.clock.now_ms()
        # Two segments that become one, of the second of which nothing stays, and one that is as it
        # was: no later one is put in place, which would make the names durable.
        for key, value in ((b"0", b"stays"), (None, b"without a key"), (b"1", b"x" * 3900)):
            records = encode_batch([(now_ms, key, value, ())])
            host.log.append_as_leader(memoryview(bytearray(records)), 0, now_ms)
            host.log.commit_all()
            host.log.roll(now_ms)
        await host.log.flush()
        host.topic = dataclasses.replace(host.topic, cleanup_policy=("compact",))
        host.log.reconfigure(host.topic)
        async with asyncio.timeout(PATIENCE_S):
            while host.log.cleaned_to != host.log.segments[-1].base_offset:
                await asyncio.sleep(0)
        await host.end_run()
        host.disk = host.disk.crash(keep=0.0)
        await host.start_again()
        assert [record.offset for record in read_all(host.log)] == [0, 2]
        await host.stop()

    simulate(main, seed)


def test_the_last_batch_of_a_producer_outlives_its_records():
    """So that one whose state is read from the log goes on with its next sequence."""

    async def main(loop: SimLoop) -> None:
        host = CompactedHost(loop)
        await host.begin()

        def append(sequence: int) -> int:
            row = (host.clock.now_ms(), b"0", b"of a producer", ())
            given = {"producer_id": PRODUCER_ID, "producer_epoch": 0, "base_sequence": sequence}
            records = memoryview(bytearray(encode_batch([row], **given)))
            appended = host.log.append_as_leader(records, 0, host.clock.now_ms())
            host.log.commit_all()
            return appended.first_offset

        offsets = [append(sequence) for sequence in range(4)]
        host.write(5)
        await host.cleaned()
        assert host.newest() == host.expected()
        kept = [
            header.base_sequence
            for segment in host.log.segments
            for _, header in segment.headers()
            if header.producer_id == PRODUCER_ID
        ]
        assert kept == [3]
        await host.kill()
        for name in host.disk.list(host.log.directory):
            if name.endswith(SNAPSHOT):
                host.disk.remove(f"{host.log.directory}/{name}")
        await host.start_again()
        assert append(3) == offsets[3], "it is known to be there"
        assert append(4) == host.log.log_end_offset - 1
        await host.stop()

    simulate(main, 1)


async def operations_of_a_cleaning(loop: SimLoop) -> tuple[int, int]:
    host = CompactedHost(loop)
    await host.begin()
    host.write(12)
    await host.log.flush()
    before = sum(host.disk.counts.values())
    await host.cleaned()
    after = sum(host.disk.counts.values())
    await host.stop()
    return before, after


async def stopped_at(loop: SimLoop, operations: int, *, power: bool) -> None:
    host = CompactedHost(loop)
    await host.begin()
    host.write(12)
    await host.log.flush()
    host.disk.operations_left = operations
    try:
        await host.cleaned()
    except Exception:
        # The manager ends too, with its only directory.
        await asyncio.wait([host.running])
        host.running.exception()
    else:
        await host.end_run()
    host.disk = host.disk.crash() if power else host.disk.kill()
    await host.start_again()
    assert host.newest() == host.expected()
    await host.cleaned()
    assert host.newest() == host.expected()
    names = host.disk.list(host.log.directory)
    assert not [name for name in names if name.endswith((CLEANED, SWAP))]
    await host.stop()


@pytest.mark.parametrize("power", [False, True])
def test_wherever_a_cleaning_stops_nothing_is_lost(power):
    before, after = simulate(operations_of_a_cleaning, 3)
    assert after - before > 100
    for operations in range(0, after - before, 11):
        simulate(lambda loop, n=operations: stopped_at(loop, n, power=power), operations)


def test_a_full_disk_puts_it_off():
    async def main(loop: SimLoop) -> None:
        host = CompactedHost(loop)
        await host.begin()
        host.write(12)
        full = host.disk.fail("write_at", errno.ENOSPC, path="*.cleaned")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await host.cleaned()
        assert host.newest() == host.expected()
        full.clear()
        host.write()
        await host.cleaned()
        assert host.newest() == host.expected()
        await host.stop()

    simulate(main, 1)


@pytest.mark.parametrize(("position", "what"), [(65, "CRC mismatch"), (2, "offset out of order")])
def test_a_batch_that_makes_no_sense_is_never_thrown_away(position, what):
    async def main(loop: SimLoop) -> None:
        host = CompactedHost(loop)
        await host.begin()
        host.write(12)
        segment = host.log.segments[1]
        segment.file.write_at(position, b"\xff\xff\xff")
        host.log.roll(host.clock.now_ms())
        await host.log.flush()
        async with asyncio.timeout(PATIENCE_S):
            while not host.manager.cleaner.uncleanable:
                await asyncio.sleep(0.05)
        (error,) = host.manager.cleaner.uncleanable.values()
        assert str(error) == f"{segment.file.path}: {what} at position 0"
        assert host.log.cleaned_to is None
        assert len(host.log.segments) > 5
        names = host.disk.list(host.log.directory)
        assert not [name for name in names if name.endswith(CLEANED)]
        await host.stop()

    simulate(main, 1)


def test_a_log_may_be_deleted_or_truncated_while_it_is_cleaned():
    async def main(loop: SimLoop) -> None:
        for deletes in (True, False):
            host = CompactedHost(loop)
            await host.begin()
            host.write(12)
            host.log.roll(host.clock.now_ms())
            await host.log.flush()
            async with asyncio.timeout(PATIENCE_S):
                while not host.manager.cleaner.is_cleaning(host.log):
                    await asyncio.sleep(0.001)
            if deletes:
                host.manager.delete(TP)
                host.manager.create(TP, UUID(int=2), host.topic)
                host.rounds = 0
            else:
                await host.log.truncate_to(32)
                assert host.log.log_end_offset == 32
                assert (host.log.cleaned_to or 0) <= 32
            host.write(3)
            await host.cleaned()
            assert host.newest() == host.expected()
            assert host.manager.cleaner.uncleanable == {}
            await host.stop()

    for seed in range(10):
        simulate(main, seed)


@pytest.mark.parametrize("meanwhile", [False, True])
def test_a_transaction_whose_end_a_crash_may_take_back_costs_no_older_record(meanwhile):
    """The end is written right before the cleaning begins, or when it has just flushed the log."""

    async def main(loop: SimLoop) -> None:
        host = CompactedHost(loop)
        await host.begin()

        def append(records: memoryview | bytes) -> None:
            records = memoryview(bytearray(records))
            host.log.append_as_leader(records, 0, host.clock.now_ms(), origin=Origin.coordinator)
            host.log.commit_all()

        def end(*, commit: bool) -> None:
            append(marker(PRODUCER_ID, 0, commit=commit))

        host.write(3)
        row = (host.clock.now_ms(), b"0", b"of a transaction", ())
        given = {"producer_id": PRODUCER_ID, "producer_epoch": 0, "base_sequence": 0}
        append(encode_batch([row], transactional=True, **given))
        host.log.roll(host.clock.now_ms())
        await host.log.flush()
        if meanwhile:
            append(encode_batch([(row[0], b"1", b"to be flushed", ())]))
        else:
            end(commit=True)
        assert not host.manager.cleaner.is_cleaning(host.log)
        while not host.manager.cleaner.is_cleaning(host.log):
            await asyncio.sleep(0.0001)
        if meanwhile:
            while host.log.recovery_point < host.log.log_end_offset:
                await asyncio.sleep(0)
            end(commit=True)
        while host.manager.cleaner.cleanings == 0:
            await asyncio.sleep(0.0001)
        await host.end_run()
        host.disk = host.disk.crash(keep=0.0)
        await host.start_again()
        is_open = host.log.last_stable_offset < host.log.log_end_offset
        assert is_open is meanwhile
        if is_open:
            end(commit=False)
            assert {r.value for r in read_all(host.log) if r.key == b"0"} > {row[2]}
        else:
            assert host.newest()[b"0"] == row[2]
        await host.stop()

    simulate(main, 1)


def test_what_has_its_own_compaction_lag_waits():
    async def main(loop: SimLoop) -> None:
        host = CompactedHost(loop, min_compaction_lag_ms=60_000)
        await host.begin()
        host.write(12)
        host.log.roll(host.clock.now_ms())
        await host.log.flush()
        await asyncio.sleep(50)
        assert host.manager.cleaner.cleanings == 0
        await asyncio.sleep(20)
        assert host.manager.cleaner.cleanings == 1
        await host.stop()

    simulate(main, 1)


def test_an_overdue_record_is_cleaned_below_the_ratio_after_a_start_too():
    async def main(loop: SimLoop) -> None:
        host = CompactedHost(loop, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=60_000)
        await host.begin()
        host.write(12)
        host.log.roll(host.clock.now_ms())
        await host.log.flush()
        await host.stop()
        await host.start_again()
        await asyncio.sleep(30)
        assert host.manager.cleaner.cleanings == 0
        await asyncio.sleep(40)
        assert host.manager.cleaner.cleanings == 1
        await host.stop()

    simulate(main, 1)


def test_a_log_that_is_both_compacted_and_deleted_loses_old_segments():
    async def main(loop: SimLoop) -> None:
        host = CompactedHost(
            loop,
            "log.retention.check.interval.ms=1000",
            cleanup_policy=("compact", "delete"),
            retention_ms=60_000,
        )
        await host.begin()
        host.write(12)
        await host.cleaned()
        await asyncio.sleep(120)
        assert host.log.log_start_offset == 60
        assert read_all(host.log) == []
        await host.stop()

    simulate(main, 1)


def test_the_cleaner_can_be_switched_off():
    async def main(loop: SimLoop) -> None:
        host = CompactedHost(loop, "log.cleaner.enable=false")
        await host.begin()
        host.write(12)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60):
                await host.cleaned()
        assert len(read_all(host.log)) == 60
        await host.stop()

    simulate(main, 1)
