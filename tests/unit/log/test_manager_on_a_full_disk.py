from __future__ import annotations

import asyncio
import errno

from kserver.log.checkpoint import LOG_STARTS
from tests.support.loop import SimLoop, simulate
from tests.unit.log.test_manager import Host


def test_the_log_starts_are_written_soon_after_there_is_room_again() -> None:
    async def scenario(loop: SimLoop) -> None:
        host = Host(loop)
        manager = await host.start()
        log = host.create()
        host.append(log, 10)
        await log.flush()
        log.update_high_watermark(10)
        full = host.disk.fail("replace_file", errno.ENOSPC, path=f"*{LOG_STARTS}")
        log.increment_log_start_offset(7)
        await manager.write_log_starts()
        await asyncio.sleep(5)
        assert log.failure is None
        full.clear()
        await asyncio.sleep(2)  # far less than log.flush.start.offset.checkpoint.interval.ms
        await host.kill()
        await host.start()
        assert [log.log_start_offset for log in host.manager.logs.values()] == [7]
        await host.stop()

    simulate(scenario, seed=1)
