"""A store that is made anew on a disk that fails; tests/fault/test_store.py has the rest."""

from __future__ import annotations

import errno

import pytest

from kserver.broker.rebuild import Rebuild
from kserver.config.broker import BrokerConfig
from kserver.errors import StorageError
from kserver.log import checkpoint
from kserver.world import World
from kserver.world.embedded import COORDINATION, EmbeddedZooKeeper
from tests.support.clock import SimClock
from tests.support.disk import SimDisk
from tests.support.loop import SimLoop, simulate

STORE = f"/logs/{COORDINATION}"


def rebuild(loop: SimLoop, disk: SimDisk) -> Rebuild:
    clock = SimClock(loop)
    store = EmbeddedZooKeeper(disk, STORE, clock)
    config = BrokerConfig.load(None, ["log.dirs=/logs"])
    return Rebuild(World(clock, disk, store, loop.random, "boot"), config, store)


def test_a_rebuild_that_fails_leaves_no_half_store() -> None:
    async def scenario(loop: SimLoop) -> None:
        disk = SimDisk(loop.random, SimClock(loop))
        disk.make_directories("/logs/t-0")
        properties = checkpoint.MetaProperties(0, "cluster")
        checkpoint.write_meta_properties(disk, f"/logs/{checkpoint.META_PROPERTIES}", properties)
        # The first frame is there by then.
        fault = disk.fail("sync", errno.ENOSPC, path=STORE)
        with pytest.raises(StorageError, match="cannot be written"):
            await rebuild(loop, disk).run()
        assert not disk.exists(STORE)
        fault.times = 0
        (topic,) = await rebuild(loop, disk).run()
        assert (topic.name, topic.partitions, topic.missing) == ("t", 1, [])
        assert disk.exists(STORE)

    simulate(scenario, seed=1)
