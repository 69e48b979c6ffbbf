"""Parts run from their start until their end, or that of their owner."""

from __future__ import annotations

import asyncio
import contextlib

from kserver.world.running_parts import RunningParts
from tests.support.loop import SimLoop, simulate


class Part:
    def __init__(self) -> None:
        self.runs = False

    async def run(self) -> None:
        self.runs = True
        try:
            await asyncio.Event().wait()
        finally:
            self.runs = False


def test_a_part_runs_between_its_start_and_its_stop_while_its_owner_runs():
    async def main(loop: SimLoop):
        parts: RunningParts[Part] = RunningParts()
        early, late = Part(), Part()
        parts.start(early)
        running = loop.create_task(parts.run())
        await asyncio.sleep(1)
        parts.start(late)
        await asyncio.sleep(1)
        assert early.runs
        assert late.runs
        assert parts.is_running
        parts.stop(early)
        await asyncio.sleep(1)
        assert late.runs
        assert not early.runs
        running.cancel()
        await asyncio.wait([running])
        assert not late.runs
        assert not parts.is_running

    simulate(main, 1)


def test_a_part_that_is_started_after_the_end_never_runs_and_can_be_stopped():
    async def main(loop: SimLoop):
        parts: RunningParts[Part] = RunningParts()
        running = loop.create_task(parts.run())
        await asyncio.sleep(1)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        late = Part()
        parts.start(late)
        await asyncio.sleep(1)
        assert not late.runs
        parts.stop(late)

    simulate(main, 1)
