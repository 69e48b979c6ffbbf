"""A deterministic asyncio loop: virtual time, seeded delays, an in-memory network.

    def test_a_promise_holds():
        simulate(scenario, seed=7)

    async def scenario(loop: SimLoop) -> None:
        with host("broker-1"):
            server = await loop.create_server(Echo, port=9092)
        ...

The same seed gives the same run, event for event, in any process: time passes only when nothing is
ready, and then jumps to the next timer; chance comes from `loop.random` alone, and goes into
delays, never into the order of asyncio's ready queue; tasks and futures hash by serial number, so
that sets of them iterate alike.  `loop.trace` digests what happened, for comparing runs.

There are no threads, sockets or signals: whatever asks for one is refused.
"""

from __future__ import annotations

import asyncio
import collections
import gc
import hashlib
import itertools
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, TypeVar

from tests.support.network import Network, SimServer, SimTransport, host

__all__ = ["SimLoop", "Trace", "host", "simulate"]

T = TypeVar("T")

TURN_S = 1e-6
"""What a turn of the loop costs at least: loops that wait for a deadline must reach it."""
TURNS_PER_COLLECTION = 100_000
"""Finalizers act too (a lost StreamWriter closes), so they must not come at any time."""


def simulate(main: Callable[[SimLoop], Coroutine[Any, Any, T]], seed: int) -> T:
    """Run `main` to its end.  A failure names the seed that repeats it, as does an error that only
    a callback or a forgotten task saw."""
    try:
        return _simulate(main, seed)
    finally:
        # Brokers and their disks are few objects in cycles, which Python counts, and many bytes,
        # which it does not: a thousand runs took 24 GB.  All generations: what the log records that
        # pytest keeps still name has grown old when the next run ends.
        gc.collect()


def _simulate(main: Callable[[SimLoop], Coroutine[Any, Any, T]], seed: int) -> T:
    loop = SimLoop(seed)
    collects_garbage = gc.isenabled()
    gc.disable()
    try:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            result = runner.run(main(loop))
            loop.raise_error()
    except BaseException as error:
        error.add_note(f"simulated with seed {seed}, {loop.time():.6f} s; the last events:")
        for event in loop.trace.last:
            error.add_note(f"    {event}")
        raise
    finally:
        if collects_garbage:
            gc.enable()
    return result


class SimLoop(asyncio.BaseEventLoop):
    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed
        self.random = Random(seed)
        self.trace = Trace(self)
        self.network = Network(self)
        self._errors: list[BaseException] = []
        self._now = 0.0
        self._turns = 0
        self._serials = itertools.count()
        self._selector = self
        self._clock_resolution = 1e-9
        self.set_task_factory(self._make_task)
        self.set_exception_handler(self._keep_error)

    def time(self) -> float:
        return self._now

    def select(self, timeout: float | None) -> list[object]:
        """The selector that asyncio waits in: asked to wait, it moves the clock instead."""
        self.raise_error()
        if timeout is None:
            waiting = "\n".join(sorted(map(repr, asyncio.all_tasks(self))))
            raise RuntimeError(f"deadlock: nothing is ready and no timer is set\n{waiting}")
        self._now += max(timeout, TURN_S)
        self._turns += 1
        if self._turns % TURNS_PER_COLLECTION == 0:
            gc.collect()
        return []

    def raise_error(self) -> None:
        """Raise what only a callback or a forgotten task saw."""
        if self._errors:
            raise self._errors.pop(0)

    def create_future(self) -> asyncio.Future[Any]:
        return _SimFuture(next(self._serials), self)

    def run_in_executor(self, *_: object) -> Any:
        raise RuntimeError("there are no threads in a simulation: use disk.offload")

    async def create_server(
        self, factory: Any, host: Any = None, port: Any = None, **_: Any
    ) -> SimServer:
        return self.network.listen(factory, host, port or 0)

    async def create_connection(
        self, factory: Any, host: Any = None, port: Any = None, **_: Any
    ) -> tuple[SimTransport, Any]:
        return await self.network.connect(factory, host, port)

    def _make_task(self, _: object, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
        return _SimTask(next(self._serials), coroutine, loop=self, **options)

    def _keep_error(self, _: object, context: dict[str, Any]) -> None:
        self._errors.append(context.get("exception") or RuntimeError(context["message"]))

    def _process_events(self, _: object) -> None:
        pass

    def _write_to_self(self) -> None:
        pass


class Trace:
    """A digest of all that happened, and the last of it in clear."""

    def __init__(self, loop: SimLoop) -> None:
        self.last: collections.deque[str] = collections.deque(maxlen=20)
        self.length = 0
        self._loop = loop
        self._hash = hashlib.sha256()

    def add(self, *event: object) -> None:
        line = f"{self._loop.time():.9f} {' '.join(map(str, event))}"
        self.length += 1
        self.last.append(line)
        self._hash.update(line.encode())

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()


class _SimFuture(asyncio.Future):
    def __init__(self, serial: int, loop: SimLoop) -> None:
        self._serial = serial
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._serial


class _SimTask(asyncio.Task):
    def __init__(self, serial: int, *arguments: Any, **options: Any) -> None:
        self._serial = serial
        super().__init__(*arguments, **options)

    def __hash__(self) -> int:
        return self._serial
