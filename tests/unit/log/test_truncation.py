"""Logs that are cut, or begin anew."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kserver.config.topic import TopicConfig
from kserver.errors import ErrorCode
from kserver.log.log import Log
from kserver.log.recovery import StoredOffsets
from kserver.wire.batch import Record
from tests.support.clock import SimClock
from tests.support.disk import SimDisk
from tests.support.logs import Keeper, batch, open_log, read_all
from tests.support.loop import SimLoop, simulate
from tests.unit.log.test_log import append, make_log, refused
from tests.unit.log.test_manager import Host, run


@pytest.mark.parametrize("offset", range(15))
def test_after_a_truncation_the_log_is_what_it_was_when_it_ended_there(offset: int) -> None:
    async def scenario(loop: SimLoop) -> None:
        disk, keeper = SimDisk(loop.random, SimClock(loop)), Keeper()
        config = TopicConfig(segment_bytes=350, index_interval_bytes=100)
        log = open_log(disk, config, keeper=keeper)
        fields: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0}
        before: dict[int, tuple[list[Record], Any, Any]] = {}
        for number in range(7):
            before[log.log_end_offset] = (
                read_all(log),
                log.epochs.entries,
                [vars_of(p) for p in log.producers.producers.values()],
            )
            append(log, 2, base_sequence=2 * number, epoch=number // 3, **fields)
        log.update_high_watermark(14)
        await log.flush()
        await log.truncate_to(offset)
        end = offset // 2 * 2 if offset < 14 else 14
        assert log.log_end_offset == log.high_watermark == log.recovery_point == end
        assert keeper.lowered == ([end] if offset < 14 else [])
        if offset < 14:
            records, epochs, producers = before[end]
            assert read_all(log) == records
            assert log.epochs.entries == epochs
            assert [vars_of(p) for p in log.producers.producers.values()] == producers
        log.check()
        append(log, 2, base_sequence=end, epoch=9, **fields)
        log.check()
        assert (
            open_log(disk.kill(), config, StoredOffsets(recovery_point=end)).log_end_offset
            == end + 2
        )

    def vars_of(producer: Any) -> tuple[Any, ...]:
        return producer.epoch, producer.next_sequence

    simulate(scenario, seed=1)


def test_what_was_cut_off_before_is_not_remembered_of_producers() -> None:
    async def scenario(loop: SimLoop) -> None:
        disk = SimDisk(loop.random, SimClock(loop))
        log = open_log(disk)
        for number in range(3):
            append(log, 2, producer_id=7, producer_epoch=0, base_sequence=2 * number)
        await log.close()
        log = open_log(disk, stored=StoredOffsets(clean=True, recovery_point=6))
        assert {i: p.next_sequence for i, p in log.producers.producers.items()} == {7: 6}
        await log.truncate_to(2)
        append(log, *[1] * 6)
        await log.truncate_to(7)
        assert log.log_end_offset == 7
        assert {i: p.next_sequence for i, p in log.producers.producers.items()} == {7: 2}

    simulate(scenario, seed=1)


def test_appends_are_refused_while_the_log_is_cut() -> None:
    async def scenario(loop: SimLoop) -> None:
        log = open_log(SimDisk(loop.random, SimClock(loop)))
        append(log, 1, 1)
        cutting = loop.create_task(log.truncate_to(1))
        await asyncio.sleep(0)
        assert refused(log, batch()) is ErrorCode.not_leader_or_follower
        await cutting
        append(log, 1)
        assert log.log_end_offset == 2

    simulate(scenario, seed=1)


def test_a_log_can_begin_anew_at_any_offset() -> None:
    async def scenario(loop: SimLoop) -> None:
        disk, keeper = SimDisk(loop.random, SimClock(loop)), Keeper()
        log = open_log(disk, keeper=keeper)
        append(log, 1, 1, epoch=2)
        await log.flush()
        await log.truncate_fully_and_start_at(0)
        assert keeper.lowered == [0]
        assert (log.log_start_offset, log.log_end_offset, log.epochs.entries) == (0, 0, ())
        append(log, 1)
        await log.truncate_fully_and_start_at(70)
        append(log, 1)
        log.check()
        assert [record.offset for record in read_all(log)] == [70]

    simulate(scenario, seed=1)


def test_what_an_epoch_ended_with_is_told() -> None:
    log = make_log()
    append(log, 1, 1, epoch=1)
    append(log, 1, epoch=4)
    assert log.end_offset_for_epoch(1) == (1, 2)
    assert log.end_offset_for_epoch(3) == (1, 2)
    assert log.end_offset_for_epoch(4) == (4, 3)
    assert log.end_offset_for_epoch(5) == (-1, -1)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("fully", [True, False])
def test_a_flush_during_a_truncation_does_not_count_what_is_cut_off(fully: bool, seed: int) -> None:
    """Else the next start, after a kill, takes the log for damaged, and the partition is lost."""

    async def scenario(host: Host) -> None:
        await host.start()
        log = host.create()
        host.append(log, 10)
        flushing = asyncio.create_task(flush_often(host, log))
        await asyncio.sleep(host.loop.random.uniform(0, 0.01))
        await (log.truncate_fully_and_start_at(4) if fully else log.truncate_to(4))
        log.check()
        host.append(log, 1)
        flushing.cancel()
        await asyncio.wait([flushing])
        log.check()
        await host.manager.write_checkpoints(log)
        await host.kill()
        await host.start()
        (log,) = host.manager.logs.values()
        assert (log.log_end_offset, log.failure) == (5, None)
        await host.stop()

    async def flush_often(host: Host, log: Log) -> None:
        while True:
            await asyncio.sleep(host.loop.random.expovariate(1000))
            log.assign_epoch(log.epochs.latest_epoch + 1, log.log_end_offset)
            await log.flush()

    run(scenario, seed=seed)
