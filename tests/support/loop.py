"""A deterministic asyncio loop: virtual time, seeded delays, an in-memory network.

    def test_a_promise_holds():
        simulate(scenario, seed=7)

    async def scenario(loop: SimLoop) -> None:
        with host("broker-1"):
            server = await loop.create_server(Echo, port=9092)
        ...

The same seed gives the same run, event for event, in any process: time passes only when nothing is
ready, and then jumps to the next timer. Chance comes from `loop.random` alone, and affects delays,
never the order of asyncio's ready queue. Tasks and futures hash by serial number, so that sets of
them iterate alike. `loop.trace` has a digest of all events, for comparing runs.

`loop.pause("broker-1")` stops that host's process, as SIGSTOP does: callbacks that are due there
run after `loop.resume("broker-1")`.

There are no threads, sockets or signals: requests for them raise.
"""

from __future__ import annotations

import asyncio
import collections
import contextvars
import gc
import hashlib
import heapq
import itertools
import socket
from collections.abc import Callable, Coroutine
from random import Random
from types import SimpleNamespace
from typing import Any, TypeVar

from tests.support.network import HOST, Network, SimServer, SimTransport, host
from tests.support.stage import EVENTS, SEED

__all__ = ["SimLoop", "Trace", "host", "simulate"]

T = TypeVar("T")

OWNER: contextvars.ContextVar[str] = contextvars.ContextVar("owner", default="")
"""The owner of tasks that are started: one life of a broker, or empty."""

TURN_S = 1e-6
"""The least duration of a turn of the loop: loops that wait for a deadline must reach it."""
MAX_SIMULATED_S = 2 * 86_400
MAX_TURNS = 1_500_000
"""Ten times the turns of any test, and less than two minutes: a run that waits for ever fails with
its seed and the waiting tasks.
"""
TURNS_PER_COLLECTION = 100_000
"""Finalizers have effects (a lost StreamWriter closes), so they must run at fixed turns."""
MAX_TIMERS = 100
"""With more timers than this, at most half may be cancelled ones."""
LEFT_OVER = "unhandled exception during asyncio.run() shutdown"
"""asyncio's message for tasks of a process that died, whose last steps had not failed when the run
ended.
"""
MAX_LAST_STEPS = 20
"""Steps in which a killed broker may wait for its disk at the end of a run."""
LAST_EVENTS = 20
MAX_EVENTS = 100_000
"""Events that a trace keeps undigested."""


def simulate(main: Callable[[SimLoop], Coroutine[Any, Any, T]], seed: int) -> T:
    """Run `main` to its end. A failure names the seed that repeats it. So does an error that only a
    callback or an unreferenced task saw.
    """
    try:
        return _simulate(main, seed)
    finally:
        # Brokers and their disks are few objects in cycles, which Python counts, and many bytes,
        # which it does not: a thousand runs took 24 GB. Collect all generations: objects in the log
        # records that pytest keeps are old when the next run ends.
        gc.collect()


def _simulate(main: Callable[[SimLoop], Coroutine[Any, Any, T]], seed: int) -> T:
    loop = SimLoop(seed)
    collects_garbage = gc.isenabled()
    gc.disable()
    try:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            try:
                result = runner.run(main(loop))
            finally:
                loop.resume_all()
                loop.is_ending = True
            loop.raise_error()
    except BaseException as error:
        error.add_note(EVENTS)
        for event in loop.trace.last:
            error.add_note(f"    {event}")
        error.add_note(f"{SEED} {seed}, {loop.time():.6f} s")
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
        self.is_ending = False
        """Whether the run is over, and its tasks are being cancelled."""
        self._cancelled_again = 0
        self._now = 0.0
        self._turns = 0
        self._max_s: float = MAX_SIMULATED_S
        self._max_turns = MAX_TURNS
        self._serials = itertools.count()
        self._scheduled: list[tuple[float, asyncio.TimerHandle]] = []
        self._paused: dict[str, list[asyncio.Handle]] = {}
        """The handles that wait on each paused host."""
        self._ready = _Ready(self._paused)
        self.set_task_factory(self._make_task)
        self.set_exception_handler(self._keep_error)

    def time(self) -> float:
        return self._now

    def pause(self, name: str) -> None:
        self.trace.add("pause", name)
        self._paused.setdefault(name, [])

    def resume(self, name: str) -> None:
        self.trace.add("resume", name)
        self._ready.extend(self._paused.pop(name, ()))

    def resume_all(self) -> None:
        """Resume all hosts, so that the tasks of a failed run can end."""
        for name in list(self._paused):
            self.resume(name)

    def is_paused(self, name: str) -> bool:
        return name in self._paused

    # asyncio's own turn calls a selector, and its own timers are compared in Python. Without both,
    # and with a trace whose text is made later, 20 swarms took 0.92 s of CPU each instead of 0.94.

    def call_at(
        self, when: float, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        self._check_closed()
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._scheduled, (when, timer))
        timer._scheduled = True
        return timer

    def call_later(
        self, delay: float, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def _run_once(self) -> None:
        """Run one turn: the ready handles and the due timers."""
        self._drop_cancelled()
        if self._errors:
            self.raise_error()
        timers, ready = self._scheduled, self._ready
        timer: Any
        handle: Any
        now = self._now
        if not ready and not self._stopping:
            if not timers:
                self._deadlocked()
                return
            now = self._now = now + max(timers[0][0] - now, TURN_S)
            if now > self._max_s:
                raise self._stuck(f"not ended after {MAX_SIMULATED_S} simulated seconds")
        else:
            now = self._now = now + TURN_S
        self._turns += 1
        if self._turns % TURNS_PER_COLLECTION == 0:
            gc.collect()
            if self._turns >= self._max_turns:
                raise self._stuck(f"not ended after {MAX_TURNS} turns of the loop")
        end = now + 1e-9
        while timers and timers[0][0] < end:
            timer = heapq.heappop(timers)[1]
            timer._scheduled = False
            ready.append(timer)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()
        # As in asyncio's own turn: on Python 3.13 the traceback of a task's error holds this frame,
        # and so the task itself, whose error would never be reported.
        handle = timer = None

    def _drop_cancelled(self) -> None:
        timers, cancelled = self._scheduled, self._timer_cancelled_count
        if len(timers) > MAX_TIMERS and cancelled > len(timers) / 2:
            for _, timer in timers:
                timer._scheduled = not timer._cancelled
            self._scheduled = [one for one in timers if not one[1]._cancelled]
            heapq.heapify(self._scheduled)
            self._timer_cancelled_count = 0
            return
        while timers and timers[0][1]._cancelled:
            self._timer_cancelled_count -= 1
            heapq.heappop(timers)[1]._scheduled = False

    def _deadlocked(self) -> None:
        """Raise, except at the end: a killed broker waits for its dead disk in each of its last
        steps, and is cancelled in each.
        """
        if not self.is_ending or self._cancelled_again == MAX_LAST_STEPS:
            raise self._stuck("deadlock: nothing is ready and no timer is set")
        self._cancelled_again += 1
        for task in asyncio.all_tasks(self):
            task.cancel()

    def _stuck(self, why: str) -> RuntimeError:
        waiting = "\n".join(sorted(map(repr, asyncio.all_tasks(self))))
        # The end of the run, in which its tasks are cancelled, has the same limit again.
        self._max_s += MAX_SIMULATED_S
        self._max_turns += MAX_TURNS
        return RuntimeError(f"{why}\n{waiting}")

    def raise_error(self) -> None:
        """Raise an error that only a callback or an unreferenced task saw."""
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

    async def getaddrinfo(
        self, host: Any, port: Any, **_: Any
    ) -> list[tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[str, int]]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (host, port))]

    def _make_task(self, _: object, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
        return _SimTask(next(self._serials), coroutine, loop=self, **options)

    def tasks_of(self, owner: str) -> list[asyncio.Task[Any]]:
        """Return the unfinished tasks that were started under `OWNER`, in the order of creation."""
        found = [t for t in asyncio.all_tasks(self) if isinstance(t, _SimTask) and t.owner == owner]
        return sorted(found, key=hash)

    def _keep_error(self, _: object, context: dict[str, Any]) -> None:
        if context["message"] == LEFT_OVER:
            return
        self._errors.append(context.get("exception") or RuntimeError(context["message"]))

    def _write_to_self(self) -> None:
        pass


_NOTHING = SimpleNamespace(_cancelled=True)
"""A handle that asyncio skips."""


class _Ready(collections.deque[asyncio.Handle]):
    """asyncio's queue of ready handles, except that those of paused hosts are held back."""

    def __init__(self, paused: dict[str, list[asyncio.Handle]]) -> None:
        super().__init__()
        self._paused = paused

    def popleft(self) -> Any:
        handle = super().popleft()
        if self._paused:
            held = self._paused.get(handle._context.get(HOST, ""))
            if held is not None:
                held.append(handle)
                return _NOTHING
        return handle


class Trace:
    """A digest of all events, and the text of the last ones. The text is made on demand, which most
    runs never need, so events must not change after `add`.
    """

    def __init__(self, loop: SimLoop) -> None:
        self.length = 0
        self._loop = loop
        self._hash = hashlib.sha256()
        self._events: list[tuple[float, tuple[object, ...]]] = []
        self._hashed = 0
        """How many of these events are in the digest."""

    def add(self, *event: object) -> None:
        self.length += 1
        self._events.append((self._loop.time(), event))
        if len(self._events) >= MAX_EVENTS:
            self._digest_all()

    @property
    def last(self) -> list[str]:
        return [_line(*event) for event in self._events[-LAST_EVENTS:]]

    @property
    def digest(self) -> str:
        self._digest_all()
        return self._hash.hexdigest()

    def _digest_all(self) -> None:
        for event in self._events[self._hashed :]:
            self._hash.update(_line(*event).encode())
        self._events = self._events[-LAST_EVENTS:]
        self._hashed = len(self._events)


def _line(at_s: float, event: tuple[object, ...]) -> str:
    return f"{at_s:.9f} {' '.join(map(str, event))}"


class _SimFuture(asyncio.Future):
    def __init__(self, serial: int, loop: SimLoop) -> None:
        self._serial = serial
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._serial


class _SimTask(asyncio.Task):
    def __init__(self, serial: int, *arguments: Any, **options: Any) -> None:
        self._serial = serial
        self.owner = OWNER.get()
        super().__init__(*arguments, **options)

    def __hash__(self) -> int:
        return self._serial
