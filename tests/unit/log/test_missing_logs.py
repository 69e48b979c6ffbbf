"""A partition's log that was in a log directory, and is in none of them at the next start."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from kserver.errors import StorageError
from kserver.log.directory import LogDirectory
from kserver.log.log import Log
from kserver.log.missing import MissingLog, accept_loss, proven_end
from kserver.log.recovery import StoredOffsets
from kserver.model import TopicPartition
from tests.support.logs import read_all
from tests.unit.log.test_manager import TOPIC_ID, Host, run

T0 = TopicPartition("t", 0)
RECORDS = 7


def host_again(host: Host, *, may_begin_empty: bool = False) -> Log:
    return host.manager.create(
        T0, TOPIC_ID, host.topic, is_new=False, may_begin_empty=may_begin_empty
    )


async def lost(host: Host, end: Callable[[Host], Awaitable[None]] = Host.stop) -> None:
    """A partition with records and one without have no directories any more."""
    await host.start()
    log = host.create()
    host.append(log, RECORDS)
    await log.flush()
    host.create(1)
    host.append(host.create(2), 1)
    await host.manager.forget_deleted()  # writes all checkpoints
    await end(host)
    for partition in range(2):
        host.disk.remove_tree(f"/a/t-{partition}")
        host.disk.sync_directory("/a")


@pytest.mark.parametrize("end", [Host.stop, Host.kill, Host.lose_power])
def test_it_is_refused_at_every_start(end: Callable[[Host], Awaitable[None]]) -> None:
    async def scenario(host: Host) -> None:
        await lost(host, end)
        for next_end in (Host.stop, Host.kill, Host.lose_power):
            manager = await host.start()
            with pytest.raises(MissingLog, match="/a/t-0 is missing") as refused:
                host_again(host)
            text = str(refused.value)
            assert f"its records before offset {RECORDS} would be lost" in text
            assert "Mount the disk" in text
            assert "k storage accept-loss --topic t --partition 0" in text
            assert len(read_all(manager.logs[TopicPartition("t", 2)])) == 1
            await next_end(host)

    run(scenario, directories="/a")


def test_what_was_empty_at_a_clean_stop_begins_empty_again() -> None:
    async def scenario(host: Host) -> None:
        await lost(host)
        manager = await host.start()
        manager.create(
            TopicPartition("t", 1), TOPIC_ID, host.topic, is_new=False, may_begin_empty=False
        )

    run(scenario, directories="/a")


def test_it_is_replicated_to_another_directory_and_not_refused_again() -> None:
    async def scenario(host: Host) -> None:
        await lost(host)
        host.disk.make_directories("/b")
        await host.start()
        assert host_again(host, may_begin_empty=True).log_end_offset == 0
        await host.stop()
        host.disk.remove_tree("/a/t-0")
        await host.start()
        assert host_again(host).log_end_offset == 0

    run(scenario, directories="/a")


def test_one_that_the_cluster_does_not_place_here_is_forgotten() -> None:
    async def scenario(host: Host) -> None:
        await lost(host)
        manager = await host.start()
        manager.missing.keep([T0])
        with pytest.raises(MissingLog):
            host_again(host)
        manager.missing.keep([])
        assert host_again(host).log_end_offset == 0

    run(scenario, directories="/a")


def test_while_a_directory_is_lost_only_new_and_followed_partitions_begin() -> None:
    async def scenario(host: Host) -> None:
        manager = await host.start()
        manager.missing.lost_directories = {"id": "/mnt/disk"}
        with pytest.raises(MissingLog, match=r"missing or empty: /mnt/disk\. Mount"):
            host_again(host)
        assert host_again(host, may_begin_empty=True).log_end_offset == 0

    run(scenario, directories="/a")


@pytest.mark.parametrize(
    ("stored", "end"),
    [
        (StoredOffsets(), None),
        (StoredOffsets(clean=True), None),
        (StoredOffsets(clean=True, recovery_point=0), None),
        (StoredOffsets(clean=True, recovery_point=5, high_watermark=4), 5),
        (StoredOffsets(clean=True, high_watermark=4), 4),
        (StoredOffsets(recovery_point=0), None),
        (StoredOffsets(recovery_point=0, high_watermark=4), None),
        (StoredOffsets(recovery_point=3, high_watermark=4), 4),
        (StoredOffsets(recovery_point=0, is_same_boot=True), 0),
        (StoredOffsets(recovery_point=0, high_watermark=4, is_same_boot=True), 4),
        (StoredOffsets(is_same_boot=True), None),
    ],
)
def test_what_the_checkpoints_prove(stored: StoredOffsets, end: int | None) -> None:
    assert proven_end(stored) == end


def accepted(host: Host) -> tuple[str, int | None]:
    directories = [LogDirectory(host.disk, path) for path in host.config.log_directories]
    return accept_loss(host.disk, directories, T0)


@pytest.mark.parametrize("end", [Host.stop, Host.kill])
def test_after_the_loss_is_accepted_it_begins_where_the_lost_records_ended(
    end: Callable[[Host], Awaitable[None]],
) -> None:
    async def scenario(host: Host) -> None:
        await lost(host, end)
        assert accepted(host) == ("/a/t-0", RECORDS)
        host.disk = host.disk.crash(keep=0.0)
        manager = await host.start()
        log = manager.logs[T0]
        assert (log.log_start_offset, log.log_end_offset, log.topic_id) == (RECORDS, RECORDS, None)
        host.append(log)
        await host.stop()
        manager = await host.start()
        assert [record.offset for record in read_all(manager.logs[T0])] == [RECORDS]

    run(scenario, directories="/a")


def test_what_is_left_of_a_log_is_kept() -> None:
    async def scenario(host: Host) -> None:
        await host.start()
        log = host.create()
        host.append(log, 30)
        bases = [segment.base_offset for segment in log.segments]
        await host.stop()
        host.disk.remove(f"/a/t-0/{bases[0]:020d}.log")
        manager = await host.start()
        assert T0 not in manager.logs
        await host.stop()
        assert accepted(host) == ("/a/t-0", None)
        manager = await host.start()
        found = [record.offset for record in read_all(manager.logs[T0])]
        assert found == list(range(bases[1], 30))

    run(scenario, directories="/a", segment_bytes=500)


def test_the_loss_is_not_accepted_beside_a_running_broker_nor_without_a_directory() -> None:
    async def scenario(host: Host) -> None:
        await host.start()
        with pytest.raises(StorageError, match="/a is used by another broker"):
            accepted(host)
        await host.stop()
        host.disk.remove_tree("/b")
        with pytest.raises(StorageError, match="/b does not exist"):
            accepted(host)

    run(scenario, directories="/a,/b")
