"""Consumers of a group and their broker on one loop: they come, go, crash, sleep and are cut off,
and the broker restarts; then it is calm, and everything has been read."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from tests.support.group_run import BROKER, CLASSIC, PROTOCOLS, GroupRun, read_by_a_group
from tests.support.loop import SimLoop, simulate
from tests.support.seeds import seeds
from tests.support.simulated import SimulatedBroker

SEEDS = seeds(len(PROTOCOLS))


async def group(loop: SimLoop, settings: Mapping[str, str]) -> str:
    broker = SimulatedBroker(loop, BROKER)
    await broker.start()

    async def restart(run: GroupRun) -> None:
        await (broker.kill() if loop.random.random() < 0.5 else broker.stop())
        await asyncio.sleep(loop.random.expovariate(1))
        await broker.start()
        run.disturbed("restart")

    async def jump(_: GroupRun) -> None:
        broker.clock.jump(loop.random)

    run = GroupRun(loop, [broker], settings)
    await read_by_a_group(run, 1, {"restart": restart, "clock": jump})
    await broker.stop()
    assert not broker.bugs
    return loop.trace.digest


@pytest.mark.parametrize("seed", SEEDS)
def test_a_group_of_consumers_reads_everything_whatever_breaks(seed):
    simulate(lambda loop: group(loop, PROTOCOLS[seed % len(PROTOCOLS)]), seed)


def test_the_same_seed_gives_the_same_run_of_a_group():
    first, second = (simulate(lambda loop: group(loop, CLASSIC), 1) for _ in range(2))
    assert first == second
