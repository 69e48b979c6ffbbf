"""Test what a start does with moves between directories that a crash left."""

from __future__ import annotations

import asyncio
import errno

import pytest

from kserver.errors import StorageError
from kserver.log.recovery import DamagedLog
from kserver.model import TopicPartition
from tests.support.logs import read_all
from tests.unit.log.test_manager import TOPIC_ID, Host, run


def future_of(path: str) -> str:
    return f"{path}.{'0123456789abcdef' * 2}-future"


def test_a_log_that_was_given_up_for_another_is_there_under_its_name_after_a_start() -> None:
    async def scenario(host: Host) -> None:
        await host.start()
        host.append(host.create(), 10)
        await host.kill()
        host.disk.rename("/a/t-0", future_of("/a/t-0"))
        manager = await host.start()
        assert len(read_all(manager.logs[TopicPartition("t", 0)])) == 10
        assert host.disk.exists("/a/t-0")
        assert not host.disk.exists(future_of("/a/t-0"))

    run(scenario, directories="/a,/b")


def test_a_copy_is_forgotten_where_the_log_is_there() -> None:
    async def scenario(host: Host) -> None:
        manager = await host.start()
        log = host.create()
        host.append(log, 10)
        manager.create_future(log, manager.directories[1])
        await host.kill()
        manager = await host.start()
        assert not manager.futures
        assert len(read_all(manager.logs[TopicPartition("t", 0)])) == 10
        await asyncio.sleep(1)
        assert not any(name.startswith("t-") for name in host.disk.list("/b"))

    run(scenario, directories="/a,/b")


def test_a_copy_is_left_alone_while_the_log_may_be_in_a_directory_that_failed() -> None:
    async def scenario(host: Host) -> None:
        manager = await host.start()
        log = host.create()
        manager.create_future(log, manager.directories[1])
        (copy,) = (name for name in host.disk.list("/b") if name.endswith("-future"))
        await host.kill()
        fault = host.disk.fail("list", errno.EIO, path="/a")
        manager = await host.start()
        assert not manager.logs
        assert host.disk.exists(f"/b/{copy}")
        with pytest.raises(StorageError, match="t-0 may be in one of the log directories"):
            manager.create(TopicPartition("t", 0), TOPIC_ID, host.topic, is_new=False)
        assert host.create(partition=1).directory == "/b/t-1"
        await host.kill()
        fault.clear()
        manager = await host.start()
        assert manager.logs[TopicPartition("t", 0)].directory == "/a/t-0"

    run(scenario, directories="/a,/b")


def test_two_copies_without_the_log_end_the_start() -> None:
    async def scenario(host: Host) -> None:
        await host.start()
        host.append(host.create())
        await host.kill()
        host.disk.rename("/a/t-0", future_of("/a/t-0"))
        host.disk.make_directories(future_of("/b/t-0"))
        with pytest.raises(DamagedLog, match="rename the one that is newest to t-0"):
            await host.start()

    run(scenario, directories="/a,/b")
