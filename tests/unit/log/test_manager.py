from __future__ import annotations

import asyncio
import errno
import re
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from kserver.config.broker import BrokerConfig
from kserver.config.topic import TopicConfig
from kserver.errors import StorageError
from kserver.log.log import Log
from kserver.log.manager import LogManager
from kserver.log.recovery import DamagedLog
from kserver.model import TopicPartition
from kserver.world import World
from tests.support.clock import DAY_ONE_MS, SimClock
from tests.support.disk import SimDisk
from tests.support.logs import batch, read_all
from tests.support.loop import SimLoop, simulate

TOPIC_ID = UUID(int=5)


class Host:
    """A machine whose log manager can be started, stopped, killed and cut from power."""

    def __init__(self, loop: SimLoop, *overrides: str, directories: str = "/logs", **topic: Any):
        self.loop = loop
        self.clock = SimClock(loop)
        self.disk = SimDisk(loop.random, self.clock)
        self.config = BrokerConfig.load(None, [f"log.dirs={directories}", *overrides])
        self.topic = TopicConfig(**{"segment_index_bytes": 4096, **topic})
        self.boots = 1
        self.manager: LogManager
        self.running: asyncio.Task[None]

    async def start(self) -> LogManager:
        world = World(
            self.clock,
            self.disk,
            None,  # type: ignore[arg-type]
            self.loop.random,
            f"boot {self.boots}",
        )
        self.manager = LogManager(world, self.config)
        await self.manager.lock()
        self.manager.identify(0, "cluster")
        await self.manager.open(lambda topic: self.topic)
        self.running = self.loop.create_task(self.manager.run())
        await asyncio.sleep(0)
        return self.manager

    async def stop(self) -> None:
        await self.end_run()
        await self.manager.close()
        self.manager.unlock()

    async def kill(self) -> None:
        await self.end_run()
        self.disk = self.disk.kill()

    async def lose_power(self) -> None:
        self.boots += 1
        await self.end_run()
        self.disk = self.disk.crash()

    async def end_run(self) -> None:
        self.running.cancel()
        await asyncio.wait([self.running])

    def create(self, partition: int = 0, topic: str = "t") -> Log:
        return self.manager.create(TopicPartition(topic, partition), TOPIC_ID, self.topic)

    def append(self, log: Log, batches: int = 1, **fields: Any) -> None:
        for _ in range(batches):
            log.append_as_leader(batch(**fields), 0, self.clock.now_ms())
        log.update_high_watermark(log.log_end_offset)


def run(
    scenario: Callable[[Host], Awaitable[None]], *overrides: str, seed: int = 1, **options: Any
) -> None:
    async def main(loop: SimLoop) -> None:
        await scenario(Host(loop, *overrides, **options))

    simulate(main, seed)


# Start and stop


def test_after_a_clean_stop_nothing_is_scanned_and_all_is_there() -> None:
    async def scenario(host: Host) -> None:
        await host.start()
        for partition in range(3):
            host.append(host.create(partition), 20 + partition)
        await host.stop()
        await host.lose_power()
        host.disk.counts.clear()
        manager = await host.start()
        assert host.disk.counts["read_at"] < 30
        found = sorted(manager.logs.values(), key=lambda log: log.topic_partition)
        assert [(log.log_end_offset, log.topic_id) for log in found] == [
            (20, TOPIC_ID),
            (21, TOPIC_ID),
            (22, TOPIC_ID),
        ]
        for log in manager.logs.values():
            assert log.high_watermark == log.recovery_point == log.log_end_offset
            log.check()

    run(scenario)


def test_a_killed_broker_loses_nothing_and_one_without_power_only_what_was_not_flushed() -> None:
    async def scenario(host: Host) -> None:
        await host.start()
        log = host.create()
        host.append(log, 10)
        await host.kill()
        manager = await host.start()
        log = manager.logs[TopicPartition("t", 0)]
        assert len(read_all(log)) == 10
        host.append(log, 5)
        await log.flush()
        host.append(log, 5)
        await host.lose_power()
        manager = await host.start()
        log = manager.logs[TopicPartition("t", 0)]
        log.check()
        assert 15 <= len(read_all(log)) <= 20

    for seed in range(10):
        run(scenario, seed=seed)


@pytest.mark.parametrize("cut", [Host.kill, Host.lose_power])
def test_a_gap_that_one_start_has_taken_the_next_one_takes(
    cut: Callable[[Host], Awaitable[None]],
) -> None:
    """Where no checkpoint names the log, a gap may be compaction's from long ago."""

    async def scenario(host: Host) -> None:
        await host.start()
        host.append(host.create(), 9, size=5000)
        await host.kill()
        host.disk.open("/logs/t-0/00000000000000000002.log").truncate(0)
        points = "/logs/recovery-point-offset-checkpoint"
        if host.disk.exists(points):
            host.disk.remove(points)
        manager = await host.start()
        log = manager.logs[TopicPartition("t", 0)]
        left = [record.offset for record in read_all(log)]
        assert left == [0, 1, *range(4, 9)]
        await log.flush()
        assert log.recovery_point == 9
        await asyncio.sleep(2 * host.config.log_flush_offset_checkpoint_interval_ms / 1000)
        assert b"t 0 9" in host.disk.read_file(points)
        await cut(host)
        manager = await host.start()
        assert [r.offset for r in read_all(manager.logs[TopicPartition("t", 0)])] == left

    run(scenario, segment_bytes=10_500)


def test_the_log_start_survives() -> None:
    async def scenario(host: Host) -> None:
        await host.start()
        log = host.create()
        host.append(log, 10)
        log.increment_log_start_offset(4)
        await asyncio.sleep(61)
        await host.kill()
        manager = await host.start()
        assert manager.logs[TopicPartition("t", 0)].log_start_offset == 4

    run(scenario)


def test_a_log_that_is_damaged_is_refused_and_its_directory_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(host: Host) -> None:
        await host.start()
        for partition in range(2):
            host.append(host.create(partition), 10)
        await host.stop()
        host.disk.open(f"/logs/t-0/{0:020d}.log").truncate(100)
        for _ in range(3):  # what is known of it stays, whatever the stop
            host.disk = host.disk.kill()
            manager = await host.start()
            (told,) = [r.getMessage() for r in caplog.records if "log is damaged" in r.getMessage()]
            assert re.search(r"/logs/t-0/0+\.log is damaged at position 91", told)
            caplog.clear()
            assert list(manager.logs) == [TopicPartition("t", 1)]
            with pytest.raises(StorageError, match="/logs/t-0 is damaged"):
                host.create()
            assert manager.directories[0].failure is None
            await host.stop()

        manager = await host.start()
        manager.delete(TopicPartition("t", 0))
        host.append(host.create(), 1)
        await host.stop()
        host.disk = host.disk.kill()
        assert len((await host.start()).logs) == 2

    run(scenario)


def test_the_same_partition_in_two_directories_ends_the_start() -> None:
    async def scenario(host: Host) -> None:
        await host.start()
        host.append(log := host.create(), 1)
        await host.stop()
        host.disk = host.disk.kill()
        copy_segment(host, log, "/b/t-0" if log.directory == "/a/t-0" else "/a/t-0")
        with pytest.raises(DamagedLog, match="t-0 is in both"):
            await host.start()

    run(scenario, directories="/a,/b")


def copy_segment(host: Host, log: Log, to: str) -> None:
    """Copy a log's first segment to the directory `to`, which is created."""
    segment = f"{0:020d}.log"
    host.disk.make_directories(to)
    host.disk.replace_file(f"{to}/{segment}", host.disk.read_file(f"{log.directory}/{segment}"))


async def append_elsewhere(host: Host, full: str) -> None:
    """Append to t-0 while one directory is full.

    The directory t-0 that was created and removed there is restored, as by a power loss.
    """
    await host.start()
    fault = host.disk.fail("write_at", errno.ENOSPC, path=f"{full}/*")
    host.append(host.create(), 10)
    fault.clear()
    await host.kill()
    host.disk.make_directories(f"{full}/t-0")


@pytest.mark.parametrize("full", ["/a", "/b"])
def test_a_log_whose_creation_failed_is_removed_where_there_is_another(full: str) -> None:
    async def scenario(host: Host) -> None:
        await append_elsewhere(host, full)
        manager = await host.start()
        (log,) = manager.logs.values()
        assert len(read_all(log)) == 10
        assert host.disk.exists(log.directory)
        assert not host.disk.exists(f"{full}/t-0")
        await host.stop()

    run(scenario, directories="/a,/b")


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("full", ["/a", "/b", "/c"])
def test_a_third_log_is_noticed_while_such_a_log_is_removed(full: str, seed: int) -> None:
    async def scenario(host: Host) -> None:
        await append_elsewhere(host, full)
        (log,) = host.manager.logs.values()
        for directory in {"/a", "/b", "/c"} - {full, log.directory[:2]}:
            copy_segment(host, log, f"{directory}/t-0")
        with pytest.raises(DamagedLog, match="t-0 is in both"):
            await host.start()

    run(scenario, directories="/a,/b,/c", seed=seed)


@pytest.mark.parametrize("full", ["/a", "/b"])
def test_a_directory_that_refuses_the_removal_of_such_a_log_goes_offline(full: str) -> None:
    async def scenario(host: Host) -> None:
        await append_elsewhere(host, full)
        host.disk.fail("remove_tree", errno.EIO, path=f"{full}/t-0")
        manager = await host.start()
        assert [d.path for d in manager.directories if d.failure] == [full]
        (log,) = manager.logs.values()
        assert len(read_all(log)) == 10

    run(scenario, directories="/a,/b")


@pytest.mark.parametrize("directories", [("/a", "/b"), ("/b", "/a")])
def test_of_two_topics_of_one_name_the_former_s_log_is_set_aside(
    directories: tuple[str, str],
) -> None:
    """A directory was offline while its topic was deleted, and created again in another one."""

    async def scenario(host: Host) -> None:
        ids, batches = (TOPIC_ID, UUID(int=6)), (10, 3)
        for directory, topic_id, count in zip(directories, ids, batches, strict=True):
            host.config = BrokerConfig.load(None, [f"log.dirs={directory}"])
            manager = await host.start()
            log = manager.create(TopicPartition("t", 0), topic_id, host.topic)
            host.append(log, count)
            await host.stop()
            await asyncio.sleep(1)
        host.config = BrokerConfig.load(None, ["log.dirs=/a,/b"])
        for _ in range(2):
            manager = await host.start()
            (log,) = manager.logs.values()
            assert (log.directory, log.topic_id) == (f"{directories[1]}/t-0", ids[1])
            assert log.log_end_offset == 3
            (stray,) = [n for n in host.disk.list(directories[0]) if n.endswith("-stray")]
            assert host.disk.exists(f"{directories[0]}/{stray}/{0:020d}.log")
            await host.stop()

    run(scenario)


@pytest.mark.parametrize("directories", [("/a", "/b"), ("/b", "/a")])
def test_the_directory_that_does_not_let_a_former_log_be_set_aside_goes_offline(
    directories: tuple[str, str],
) -> None:
    """Not the other one, whichever of the two is read last."""

    async def scenario(host: Host) -> None:
        former, present = directories
        for directory, topic_id in ((former, TOPIC_ID), (present, UUID(int=6))):
            host.config = BrokerConfig.load(None, [f"log.dirs={directory}"])
            manager = await host.start()
            manager.create(TopicPartition("t", 0), topic_id, host.topic)
            manager.create(TopicPartition(f"only-in-{directory[1]}", 0), topic_id, host.topic)
            await host.stop()
            await asyncio.sleep(1)
        host.config = BrokerConfig.load(None, ["log.dirs=/a,/b"])
        host.disk.fail("rename", errno.EIO, path=f"{former}/t-0")
        manager = await host.start()
        assert [d.path for d in manager.directories if d.failure] == [former]
        assert {log.directory for log in manager.logs.values()} == {
            f"{present}/t-0",
            f"{present}/only-in-{present[1]}-0",
        }

    run(scenario)


def test_a_damaged_partition_that_is_in_another_directory_too_ends_the_start() -> None:
    async def scenario(host: Host) -> None:
        manager = await host.start()
        log = host.create()
        host.append(log, 10)
        await host.stop()
        spoilt = manager.directories[0].path if "/a/" in log.directory else "/b"
        host.disk.open(f"{spoilt}/t-0/{0:020d}.log").truncate(100)
        host.disk = host.disk.kill()
        host.disk.make_directories(f"{'/b' if spoilt == '/a' else '/a'}/t-0")
        with pytest.raises(DamagedLog, match="t-0 is in both"):
            await host.start()

    run(scenario, directories="/a,/b")


def test_meta_properties_names_the_broker_before_anyone_else_does() -> None:
    async def scenario(host: Host) -> None:
        manager = await host.start()
        assert manager.stored_broker_id is None
        await host.stop()
        manager = await host.start()
        assert manager.stored_broker_id == 0
        other = LogManager(manager._world, host.config)
        with pytest.raises(StorageError, match="another broker"):
            await other.lock()

    run(scenario)


# Directories


def test_new_logs_go_where_the_fewest_are_and_not_into_cordoned_directories() -> None:
    async def scenario(host: Host) -> None:
        await host.start()
        logs = [host.create(partition) for partition in range(6)]
        assert [log.directory[:2] for log in logs] == ["/a", "/b", "/a", "/b", "/a", "/b"]

    run(scenario, "cordoned.log.dirs=/c", directories="/a,/b,/c")


def test_a_failed_directory_goes_offline_alone() -> None:
    async def scenario(host: Host) -> None:
        manager = await host.start()
        first, second, third = (host.create(partition) for partition in range(3))
        host.disk.fail("write_at", errno.EIO, path="/a/*")
        with pytest.raises(StorageError, match="/a/t-0"):
            host.append(first)
        with pytest.raises(StorageError, match="/a"):
            host.append(third)
        host.append(second)
        assert list(manager.logs) == [TopicPartition("t", 1)]
        assert host.create(9).directory.startswith("/b")
        await host.stop()
        assert host.disk.exists("/b/.kafka_cleanshutdown")
        assert not host.disk.exists("/a/.kafka_cleanshutdown")

    run(scenario, directories="/a,/b")


def test_when_the_last_directory_fails_run_ends() -> None:
    async def scenario(host: Host) -> None:
        await host.start()
        log = host.create()
        host.disk.fail("write_at", errno.EIO)
        with pytest.raises(StorageError):
            host.append(log)
        with pytest.raises(StorageError, match="all log directories have failed"):
            await host.running

    run(scenario)


# While it runs


def test_a_new_log_is_named_in_the_checkpoint_at_once() -> None:
    async def scenario(host: Host) -> None:
        await host.start()
        host.create()
        await asyncio.sleep(1)
        assert host.disk.read_file("/logs/recovery-point-offset-checkpoint") == b"0\n1\nt 0 0\n"

    run(scenario)


def test_a_sealed_segment_is_flushed_soon() -> None:
    async def scenario(host: Host) -> None:
        await host.start()
        log = host.create()
        host.append(log, 10)
        assert log.recovery_point == 0
        await asyncio.sleep(1)
        assert log.recovery_point >= log.segments[-1].base_offset > 0

    run(scenario, segment_bytes=300)


def test_records_are_flushed_before_they_are_older_than_flush_ms() -> None:
    async def scenario(host: Host) -> None:
        await host.start()
        log = host.create()
        host.append(log)
        await asyncio.sleep(3)
        host.append(log)
        assert log.recovery_point == 1
        await asyncio.sleep(0.6)
        assert log.recovery_point == 2

    run(scenario, flush_ms=500)


def test_what_is_old_is_deleted_and_its_files_after_the_delay() -> None:
    async def scenario(host: Host) -> None:
        await host.start()
        log = host.create()
        host.append(log, 10, timestamp=DAY_ONE_MS)
        first = f"/logs/t-0/{0:020d}.log"
        await asyncio.sleep(301)
        assert not host.disk.exists(first)
        assert host.disk.exists(first + ".deleted")
        await asyncio.sleep(61)
        assert not host.disk.exists(first + ".deleted")
        log.check()

    run(scenario, segment_bytes=300, retention_ms=1000)


def test_a_lowered_recovery_point_is_on_disk_before_the_cut() -> None:
    async def scenario(host: Host) -> None:
        manager = await host.start()
        log = host.create()
        host.append(log, 10)
        await log.flush()
        await asyncio.sleep(61)
        await log.truncate_to(4)
        await host.lose_power()
        manager = await host.start()
        assert manager.logs[TopicPartition("t", 0)].log_end_offset == 4

    run(scenario)


def test_a_log_that_is_being_truncated_is_left_out_of_the_deletion() -> None:
    async def scenario(host: Host) -> None:
        await host.start()
        log = host.create()
        host.append(log, 5)
        for _ in range(100):
            host.append(log)
            await log.truncate_to(5)
        assert not host.running.done()
        assert log.log_end_offset == 5

    run(scenario, "log.retention.check.interval.ms=1")


def test_a_cut_whose_recovery_point_cannot_be_written_fails_with_the_disk() -> None:
    async def scenario(host: Host) -> None:
        await host.start()
        log = host.create()
        host.append(log, 10)
        await log.flush()
        await asyncio.sleep(61)
        host.disk.fail("replace_file", errno.EIO)
        with pytest.raises(StorageError, match="/logs"):
            await log.truncate_to(4)
        with pytest.raises(StorageError):
            await host.running

    run(scenario)


def test_what_the_broker_is_told_reaches_the_logs_that_fall_back_to_it() -> None:
    async def scenario(host: Host) -> None:
        manager = await host.start()
        mine, other = host.create(topic="t"), host.create(topic="u")
        mine.reconfigure(TopicConfig.of({"retention.ms": "5"}, host.config))
        changed = BrokerConfig.load(
            None, ["log.dirs=/logs", "log.retention.ms=7", "producer.id.expiration.ms=9"]
        )
        manager.configure(changed)
        assert (mine.config.retention_ms, other.config.retention_ms) == (5, 7)
        later = host.create(topic="v")
        assert {one.producers.expiration_ms for one in (mine, other, later)} == {9}

    run(scenario)


def test_producers_that_write_no_more_are_forgotten() -> None:
    async def scenario(host: Host) -> None:
        await host.start()
        log = host.create()
        fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
        host.append(log, timestamp=host.clock.now_ms(), **fields)
        await asyncio.sleep(250)
        assert 7 in log.producers.producers
        await asyncio.sleep(900)
        assert 7 not in log.producers.producers

    run(scenario, "producer.id.expiration.ms=600000")
