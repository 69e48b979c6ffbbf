from __future__ import annotations

import asyncio
import errno

import pytest

from kserver.errors import NoRoom
from kserver.log.checkpoint import LOG_STARTS, RECOVERY_POINTS
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


@pytest.mark.parametrize("fully", [True, False])
def test_a_log_that_cannot_be_truncated_is_as_it_was_and_is_truncated_later(fully: bool) -> None:
    async def scenario(loop: SimLoop) -> None:
        host = Host(loop)
        await host.start()
        log = host.create()
        host.append(log, 10)
        assert await log.flush() == 10
        full = host.disk.fail("replace_file", errno.ENOSPC, path=f"*{RECOVERY_POINTS}")

        async def truncate() -> None:
            await (log.truncate_fully_and_start_at(7) if fully else log.truncate_to(7))

        for _ in range(2):
            with pytest.raises(NoRoom):
                await truncate()
            assert log.failure is None
            assert (log.log_end_offset, log.recovery_point) == (10, 10)
        host.append(log, 1)
        full.clear()
        await truncate()
        assert (log.log_start_offset, log.log_end_offset) == (7 if fully else 0, 7)
        await host.kill()
        await host.start()
        (log,) = host.manager.logs.values()
        assert (log.log_end_offset, log.failure) == (7, None)
        await host.stop()

    simulate(scenario, seed=1)
