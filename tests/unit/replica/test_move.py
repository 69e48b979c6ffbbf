"""A replica between two disks, while its log is cut and grows on."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses

import pytest

from kserver.errors import StorageError
from kserver.log.log import Log
from kserver.metadata import ClusterMetadata, MetadataCache
from kserver.model import BrokerId
from kserver.peers.node_to_controller import NodeToControllerChannel
from kserver.replica.manager import ReplicaManager
from kserver.replica.move import Moves
from kserver.replica.purgatory import Purgatory
from kserver.world import World
from tests.support.logs import batch
from tests.unit.log.test_manager import Host, run
from tests.unit.replica.test_manager import become, state, stop

ME: BrokerId = 0
SLOW = "replica.alter.log.dirs.io.max.bytes.per.second=300"
QUICK = "replica.alter.log.dirs.io.max.bytes.per.second=1000000"
SLOWEST = "replica.alter.log.dirs.io.max.bytes.per.second=1"


async def moving(host: Host, batches: int = 10) -> tuple[ReplicaManager, Moves]:
    """A follower's log of these batches in epoch 1 is on its way to the other disk."""
    logs = await host.start()
    metadata = MetadataCache(ClusterMetadata("cluster"))
    to_controller = NodeToControllerChannel(ME, "test", lambda: host.config, metadata)
    replicas = ReplicaManager(
        ME,
        lambda: host.config,
        logs,
        metadata,
        Purgatory(host.loop),
        host.loop,
        host.clock,
        to_controller,
        lambda: 0,
    )
    become(replicas, "a", state(0, leader=1, epoch=1))
    grow(host, replicas.get("a", 0).log, batches, epoch=1)
    world = World(
        host.clock,
        host.disk,
        None,  # type: ignore[arg-type]
        host.loop.random,
        "boot 1",
    )
    moves = Moves(world, logs, replicas, lambda: host.config)
    own = replicas.get("a", 0).log
    (target,) = (d.path for d in logs.directories if not own.directory.startswith(d.path))
    moves.begin("a", 0, target)
    host.loop.create_task(moves.run())
    return replicas, moves


def grow(host: Host, log: Log, batches: int, *, epoch: int) -> None:
    """Each batch is of one record, and another one in each epoch."""
    for _ in range(batches):
        log.append_as_leader(batch(tag=b"%d" % epoch), epoch, host.clock.now_ms())


def whole(log: Log) -> bytes:
    return b"".join(s.file.read_at(0, s.size) for s in log.segments)


@pytest.mark.parametrize("seed", range(20))
def test_a_copy_is_cut_where_its_log_was(seed: int) -> None:
    async def scenario(host: Host) -> None:
        replicas, _ = await moving(host)
        partition, logs = replicas.get("a", 0), host.manager
        source = partition.log
        for epoch in range(2, 5):
            await asyncio.sleep(host.loop.random.expovariate(0.5))
            if partition.log is not source:
                break
            await source.truncate_to(host.loop.random.randrange(10))
            grow(host, source, 10, epoch=epoch)
        expected = whole(partition.log)
        while logs.futures:
            await asyncio.sleep(0.1)
        assert partition.log is not source
        assert whole(partition.log) == expected
        partition.log.check()

    run(scenario, SLOW, seed=seed, directories="/one,/two")


@pytest.mark.parametrize("seed", range(20))
def test_what_was_flushed_until_the_move_is_not_lost_by_power_right_after_it(seed: int) -> None:
    async def scenario(host: Host) -> None:
        replicas, _ = await moving(host)
        partition = replicas.get("a", 0)
        source, flushed = partition.log, 0
        async with asyncio.timeout(600):
            while partition.log is source:
                grow(host, source, 1, epoch=1)
                with contextlib.suppress(StorageError):  # the move was faster, and removed it
                    flushed = await source.flush()
                await asyncio.sleep(host.loop.random.expovariate(1000))
        expected = whole(source)
        await host.end_run()
        host.disk = host.disk.crash(keep=0.0)
        await host.start()
        (log,) = host.manager.logs.values()
        assert log.log_end_offset >= flushed
        assert whole(log) == expected[: len(whole(log))]

    run(scenario, QUICK, seed=seed, directories="/one,/two")


@pytest.mark.parametrize("seed", range(20))
def test_a_replica_that_is_dropped_and_hosted_again_while_it_moves_has_its_log(seed: int) -> None:
    """The controller does not name it, and then does."""

    async def scenario(host: Host) -> None:
        replicas, _ = await moving(host)
        logs = host.manager
        while logs.futures:
            stop(replicas, "a", 0, 1, delete=False)
            become(replicas, "a", state(0, leader=1, epoch=1))
            await asyncio.sleep(host.loop.random.expovariate(1000))
        partition = replicas.get("a", 0)
        assert partition.log is logs.get(partition.topic_partition)
        assert partition.log.failure is None
        grow(host, partition.log, 1, epoch=1)

    run(scenario, QUICK, seed=seed, directories="/one,/two")


def test_a_replica_that_is_deleted_while_it_moves_leaves_nothing() -> None:
    async def scenario(host: Host) -> None:
        replicas, _ = await moving(host)
        await asyncio.sleep(0.5)
        assert host.manager.futures
        stop(replicas, "a", 0, 1, delete=True)
        assert not host.manager.futures
        await asyncio.sleep(2 * host.topic.file_delete_delay_ms / 1000)
        for directory in ("/one", "/two"):
            assert not [name for name in host.disk.list(directory) if name.startswith("a-0")]

    run(scenario, SLOW, directories="/one,/two")


def test_a_greater_rate_ends_the_wait_for_the_one_before() -> None:
    """One batch at a byte a second would be waited for longer than the test runs."""

    async def scenario(host: Host) -> None:
        replicas, _ = await moving(host)
        await asyncio.sleep(5)
        assert host.manager.futures
        host.config = dataclasses.replace(
            host.config, replica_alter_log_dirs_io_max_bytes_per_second=1_000_000
        )
        await asyncio.sleep(2)
        assert not host.manager.futures
        own = replicas.get("a", 0).log
        assert own.log_end_offset == 10

    run(scenario, SLOWEST, directories="/one,/two")


def test_copies_keep_to_the_rate() -> None:
    """Within a tenth, over more than ten seconds."""

    async def scenario(host: Host) -> None:
        replicas, _ = await moving(host, 60)
        expected_s = len(whole(replicas.get("a", 0).log)) / 300
        assert expected_s > 10
        began_s = host.loop.time()
        while host.manager.futures:
            await asyncio.sleep(0.1)
        assert host.loop.time() - began_s == pytest.approx(expected_s, rel=0.1)

    run(scenario, SLOW, directories="/one,/two")
