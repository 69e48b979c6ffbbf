"""The deterministic loop: what it refuses, and what it does not let pass unnoticed."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.clock import DAY_ONE_MS, SimClock
from tests.support.loop import simulate


def test_a_deadlock_is_told():
    async def main(loop):
        await loop.create_future()

    with pytest.raises(RuntimeError, match="deadlock"):
        simulate(main, 0)


@pytest.mark.parametrize(
    ("pause_s", "limit"), [(600, "172800 simulated seconds"), (0, "1500000 turns")]
)
def test_a_wait_that_has_no_bound_ends_with_the_seed_and_the_tasks_that_wait(pause_s, limit):
    async def never():
        while True:
            await asyncio.sleep(pause_s)

    async def main(loop):
        await asyncio.create_task(never(), name="the one that hangs")

    with pytest.raises(RuntimeError, match=f"not ended after {limit}") as ended:
        simulate(main, 4711)
    assert "the one that hangs" in str(ended.value)
    assert "simulated with seed 4711" in "".join(ended.value.__notes__)


def test_a_callback_that_fails_ends_the_simulation():
    async def main(loop):
        loop.call_later(1, lambda: 1 // 0)
        await asyncio.sleep(100)

    with pytest.raises(ZeroDivisionError):
        simulate(main, 0)


def test_a_forgotten_task_that_fails_ends_the_simulation():
    async def fail():
        raise ValueError("nobody awaits this")

    async def main(loop):
        task = asyncio.create_task(fail())
        await asyncio.sleep(1)
        del task
        await asyncio.sleep(100)

    with pytest.raises(ValueError, match="nobody awaits this"):
        simulate(main, 0)


def test_there_are_no_threads():
    async def main(loop):
        await asyncio.to_thread(print)

    with pytest.raises(RuntimeError, match="no threads"):
        simulate(main, 0)


def test_a_loop_that_waits_for_a_deadline_reaches_it():
    async def main(loop):
        turns, deadline = 0, loop.time() + 0.001
        while loop.time() < deadline:
            await asyncio.sleep(0)
            turns += 1
        return turns

    assert simulate(main, 0) <= 1000


def test_sets_of_tasks_iterate_in_the_order_of_creation():
    async def main(loop):
        tasks = [asyncio.create_task(asyncio.sleep(0)) for _ in range(100)]
        done, _ = await asyncio.wait(tasks)
        assert list(done) == sorted(tasks, key=hash)
        futures = [loop.create_future() for _ in range(100)]
        assert list(set(futures)) == sorted(futures, key=hash)

    simulate(main, 0)


def test_the_wall_clock_goes_with_the_loop():
    async def main(loop):
        clock, fast = SimClock(loop), SimClock(loop, ahead_ms=60_000)
        assert clock.now_ms() == DAY_ONE_MS
        await asyncio.sleep(1.5)
        assert clock.now_ms() == DAY_ONE_MS + 1500
        assert fast.now_ms() == clock.now_ms() + 60_000

    simulate(main, 0)
