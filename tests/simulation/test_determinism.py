"""The ground under all simulations: one seed, one run."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kserver.world.zookeeper import ZooKeeperError
from tests.support.clock import SimClock
from tests.support.disk import SimDisk
from tests.support.loop import SimLoop, host, simulate
from tests.support.zookeeper import SimEnsemble

ROOT = Path(__file__).parents[2]


class Echo(asyncio.BufferedProtocol):
    """Sends back what it gets, and stops reading while the way back is full."""

    def connection_made(self, transport):
        self.transport = transport
        self.buffer = bytearray(1000)

    def get_buffer(self, sizehint):
        return self.buffer

    def buffer_updated(self, size):
        self.transport.write(self.buffer[:size])

    def pause_writing(self):
        self.transport.pause_reading()

    def resume_writing(self):
        self.transport.resume_reading()


async def client(loop: SimLoop, server: str) -> int:
    """Talks for ten rounds; returns how often the connection broke."""
    breaks = done = 0
    while done < 10:
        try:
            reader, writer = await asyncio.open_connection(server, 7)
            while done < 10:
                sent = loop.random.randbytes(loop.random.randrange(1, 200_000))
                writer.write(sent)
                assert await reader.readexactly(len(sent)) == sent
                await asyncio.sleep(loop.random.random())
                done += 1
            writer.close()
        except OSError:
            breaks += 1
            await asyncio.sleep(0.1)
    return breaks


async def echoes(loop: SimLoop) -> tuple[str, float, set[int]]:
    """Two servers, four clients, a cut that heals and a reset."""
    servers = []
    for name in ("a", "b"):
        with host(name):
            servers.append(await loop.create_server(Echo, port=7))
    async with asyncio.TaskGroup() as group:
        tasks = []
        for number, server in enumerate("abab"):
            with host(f"client-{number}"):
                tasks.append(group.create_task(client(loop, server)))
        await asyncio.sleep(1)
        loop.network.cut("client-0", "a")
        await asyncio.sleep(30)
        loop.network.heal("client-0", "a")
        loop.network.reset("client-1", "b")
    for server in servers:
        server.close()
    return loop.trace.digest, loop.time(), {task.result() for task in tasks}


async def coordination(loop: SimLoop) -> tuple[str, float, bytes]:
    """Two clients race over one ZooKeeper, whose sessions end; what they win goes to a disk that
    loses some of it."""
    clock = SimClock(loop)
    ensemble, disk = SimEnsemble(loop, clock), SimDisk(loop.random, clock)
    disk.make_directories("/data")
    disk.sync_directory("/")
    log = disk.open("/data/log", create=True)
    disk.sync_directory("/data")

    async def race(name: bytes) -> None:
        zookeeper = ensemble.client()
        await zookeeper.start()
        for _ in range(20):
            try:
                await zookeeper.create("/leader", name, ephemeral=True)
                log.write_at(log.size(), name)
                if loop.random.random() < 0.5:
                    await disk.offload(log.sync)
                await zookeeper.delete("/leader")
            except ZooKeeperError:
                zookeeper.expire()
                await asyncio.sleep(loop.random.random())
        await zookeeper.close()

    async with asyncio.TaskGroup() as group:
        for name in (b"a", b"b", b"c"):
            group.create_task(race(name))
    return loop.trace.digest, loop.time(), disk.crash().read_file(log.path)


SCENARIOS = [echoes, coordination]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_one_seed_gives_one_run(scenario):
    assert simulate(scenario, seed=1) == simulate(scenario, seed=1)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_another_seed_gives_another_run(scenario):
    assert simulate(scenario, seed=1)[0] != simulate(scenario, seed=2)[0]


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_another_process_gives_the_same_run(scenario, hash_seed):
    program = (
        f"from tests.simulation.test_determinism import {scenario.__name__}, simulate\n"
        f"print(simulate({scenario.__name__}, seed=1))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == str(simulate(scenario, seed=1)), done.stderr


def test_a_day_of_idling_costs_next_to_nothing():
    async def idle(loop):
        for _ in range(24 * 60):
            await asyncio.sleep(60)
        return loop.trace.length, loop.time()

    events, elapsed_s = simulate(idle, seed=0)
    assert events == 0
    assert elapsed_s == pytest.approx(24 * 60 * 60)


def test_a_failure_names_its_seed():
    async def fail(loop):
        raise ValueError("as it must")

    with pytest.raises(ValueError) as caught:
        simulate(fail, seed=42)
    assert any("seed 42" in note for note in caught.value.__notes__)
