"""Test that the log manager deletes logs, and that a crash meanwhile leaves nothing."""

from __future__ import annotations

import asyncio

import pytest

from kserver.errors import StorageError
from tests.support.logs import read_all
from tests.unit.log.test_manager import Host, run


def test_a_deleted_log_leaves_its_name_at_once_and_its_files_after_the_delay() -> None:
    async def scenario(host: Host) -> None:
        manager = await host.start()
        log = host.create()
        host.append(log, 3)
        held = log.read(0, 1 << 20, up_to=3)
        manager.delete(log.topic_partition)
        assert manager.get(log.topic_partition) is None
        with pytest.raises(StorageError, match="deleted"):
            host.append(log)
        again = host.create()
        host.append(again, 1)
        left = [name for name in host.disk.list("/logs") if name.endswith("-delete")]
        assert len(left) == 1
        await asyncio.sleep(61)
        assert not [name for name in host.disk.list("/logs") if name.endswith("-delete")]
        assert len(held.data.read()) > 0  # type: ignore[union-attr]
        assert len(read_all(again)) == 1

    run(scenario)


def test_a_flush_of_a_deleted_log_leaves_one_of_its_name_alone() -> None:
    async def scenario(host: Host) -> None:
        await host.start()
        old = host.create()
        old.assign_epoch(7, 0)
        host.append(old)
        flush = host.loop.create_task(old.flush())
        await asyncio.sleep(host.loop.random.expovariate(1 / 0.005))
        host.manager.delete(old.topic_partition)
        new = host.create()
        new.assign_epoch(0, 0)
        host.append(new)
        await new.flush()
        await asyncio.gather(flush, return_exceptions=True)
        assert new.failure is None
        assert host.disk.read_file(f"{new.directory}/leader-epoch-checkpoint") == b"0\n1\n0 0\n"

    for seed in range(60):
        run(scenario, seed=seed)


def test_what_a_crash_left_of_a_deleted_log_is_removed_by_the_next_start() -> None:
    async def scenario(host: Host) -> None:
        manager = await host.start()
        manager.delete(host.create().topic_partition)
        await host.kill()
        assert len([name for name in host.disk.list("/logs") if "delete" in name]) == 1
        manager = await host.start()
        assert not manager.logs
        await asyncio.sleep(1)
        assert not [name for name in host.disk.list("/logs") if "delete" in name]

    run(scenario)


def test_a_log_that_finds_no_room_is_opened_once_what_was_deleted_is_gone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(host: Host) -> None:
        manager = await host.start()
        host.append(host.create(0), 6, size=5000)
        host.append(host.create(1), 4, size=10)
        deleted = host.create(2)
        host.append(deleted, 4, size=5000)
        manager.delete(deleted.topic_partition)
        await host.kill()
        # Recovery makes it anew, which takes room.
        host.disk.remove("/logs/t-0/00000000000000000000.index")
        host.disk.capacity_bytes = host.disk.used_bytes()
        manager = await host.start()
        assert "t-0: loading postponed" in caplog.text
        found = {key.partition: len(read_all(log)) for key, log in manager.logs.items()}
        assert found == {0: 6, 1: 4}
        assert not [name for name in host.disk.list("/logs") if "delete" in name]

    run(scenario, segment_bytes=10_500)
