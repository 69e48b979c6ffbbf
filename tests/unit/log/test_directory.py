from __future__ import annotations

import asyncio
import errno
import random
import re
from functools import partial

import pytest

from kserver.errors import StorageError
from kserver.log.checkpoint import HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS
from kserver.log.directory import LogDirectory, parse_log_name
from kserver.log.recovery import StoredOffsets
from kserver.model import TopicPartition
from tests.support.clock import SimClock, StillClock
from tests.support.disk import SimDisk
from tests.support.loop import SimLoop, simulate

T0, T1 = TopicPartition("t", 0), TopicPartition("a-b.c_d", 11)


def make_disk() -> SimDisk:
    return SimDisk(random.Random(0), StillClock())


def test_a_directory_is_made_and_is_there_after_a_crash() -> None:
    disk = make_disk()
    directory = LogDirectory(disk, "/logs")
    assert directory.lock() is None
    assert disk.crash(keep=0.0).exists("/logs")


def test_a_second_broker_is_kept_out_until_the_first_leaves() -> None:
    disk = make_disk()
    first, second = LogDirectory(disk, "/logs"), LogDirectory(disk, "/logs")
    first.lock()
    with pytest.raises(StorageError, match="/logs is used by another broker"):
        second.lock()
    first.unlock()
    second.lock()


def test_it_is_written_whose_the_directory_is() -> None:
    disk = make_disk()
    directory = LogDirectory(disk, "/logs")
    directory.lock()
    directory.identify(3, "cluster", random.Random(1))
    written = disk.read_file("/logs/meta.properties")
    assert re.fullmatch(
        rb"version=0\nbroker.id=3\ncluster.id=cluster\ndirectory.id=[\w-]{22}\n", written
    )
    assert directory.id in written.decode()
    again = LogDirectory(disk.kill(), "/logs")
    stored = again.lock()
    assert stored is not None
    assert (stored.broker_id, stored.cluster_id) == (3, "cluster")
    again.identify(3, "cluster", random.Random(2))
    assert again.id == directory.id


@pytest.mark.parametrize(
    ("broker_id", "cluster_id", "message"),
    [
        (4, "cluster", "broker.id 4 doesn't match stored broker.id 3"),
        (3, "other", "Cluster ID other doesn't match stored clusterId cluster"),
        (3, "other", "zookeeper.connect may be wrong"),
    ],
)
def test_another_brokers_directory_is_refused(
    broker_id: int, cluster_id: str, message: str
) -> None:
    directory = LogDirectory(make_disk(), "/logs")
    directory.lock()
    directory.identify(3, "cluster", random.Random(1))
    with pytest.raises(StorageError, match=message):
        directory.identify(broker_id, cluster_id, random.Random(2))


def test_logs_are_told_from_deleted_ones_and_from_all_else() -> None:
    disk = make_disk()
    gone = f"t-1.{'0123456789abcdef' * 2}-delete"
    for name in ("t-0", "a-b.c_d-11", gone, "lost+found", "t-2.future"):
        disk.make_directories(f"/logs/{name}")
    disk.open("/logs/file-0", create=True)
    directory = LogDirectory(disk, "/logs")
    assert [parse_log_name(name) for name in directory.begin()] == [T1, T0]
    assert directory.deleted() == [f"/logs/{gone}"]


def test_a_clean_stop_counts_once() -> None:
    async def scenario(loop: SimLoop) -> None:
        disk = SimDisk(loop.random, SimClock(loop))
        directory = LogDirectory(disk, "/logs")
        directory.lock()
        directory.begin()
        assert directory.stored_offsets(T0, "boot") == StoredOffsets()
        await directory.write_offsets(RECOVERY_POINTS, lambda: {T0: 7, T1: 0})
        await directory.write_offsets(LOG_STARTS, lambda: {T0: 2})
        await directory.write_offsets(HIGH_WATERMARKS, lambda: {T0: 6})
        directory.mark_clean()
        disk = disk.crash(keep=0.0)
        for clean in (True, False):
            directory = LogDirectory(disk, "/logs")
            directory.begin()
            assert directory.stored_offsets(T0, "boot") == StoredOffsets(clean, 7, 2, 6)
            assert directory.stored_offsets(T1, "boot") == StoredOffsets(clean, 0, None, 0)
            assert directory.stored_offsets(TopicPartition("new", 0), "boot") == StoredOffsets(
                clean
            )
            disk = disk.crash(keep=0.0)

    simulate(scenario, seed=1)


def test_a_checkpoint_is_written_one_at_a_time_and_only_when_it_changed() -> None:
    async def scenario(loop: SimLoop) -> None:
        disk = SimDisk(loop.random, SimClock(loop))
        directory = LogDirectory(disk, "/logs")
        directory.lock()
        directory.begin()
        disk.counts.clear()
        await asyncio.gather(
            *(
                directory.write_offsets(LOG_STARTS, partial(dict, {T0: offset}))
                for offset in (1, 2, 2, 3)
            )
        )
        assert disk.read_file(f"/logs/{LOG_STARTS}") == b"0\n1\nt 0 3\n"
        assert disk.counts["replace_file"] == 3

    simulate(scenario, seed=1)


def test_a_checkpoint_that_failed_is_tried_again() -> None:
    async def scenario(loop: SimLoop) -> None:
        disk = SimDisk(loop.random, SimClock(loop))
        directory = LogDirectory(disk, "/logs")
        directory.lock()
        directory.begin()
        disk.fail("replace_file", errno.EIO, times=1)
        with pytest.raises(OSError, match="Input/output"):
            await directory.write_offsets(LOG_STARTS, lambda: {T0: 1})
        await directory.write_offsets(LOG_STARTS, lambda: {T0: 1})
        assert disk.exists(f"/logs/{LOG_STARTS}")

    simulate(scenario, seed=1)


def test_the_name_of_a_deleted_log_fits_into_the_file_system() -> None:
    disk, of = make_disk(), TopicPartition("t" * 249, 1000)
    directory = LogDirectory(disk, "/logs")
    disk.make_directories(directory.log_path(of))
    path = directory.rename(directory.log_path(of), of, "delete", random.Random(1))
    assert disk.exists(path)
    name = path.rsplit("/", 1)[1]
    assert len(name) == 255
    assert name.startswith("ttt")
    assert name.endswith("-delete")
    assert "-1000." in name


@pytest.mark.parametrize(
    ("before", "now", "stayed_up"),
    [("one", "one", True), ("one", "other", False), ("", "", False)],
)
def test_a_machine_has_stayed_up_where_its_boot_is_the_same(
    before: str, now: str, stayed_up: bool
) -> None:
    disk = make_disk()
    disk.make_directories("/logs")
    first = LogDirectory(disk, "/logs")
    first.begin()
    first.begin_incarnation(before, "first")
    second = LogDirectory(disk, "/logs")
    second.begin()
    assert second.stored_offsets(T0, now).is_same_boot is stayed_up
