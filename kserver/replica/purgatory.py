"""The purgatory: requests that cannot be answered yet, and the keys whose changes may end the wait.

    wait(keys, ready, deadline)   `ready` is called whenever one of the keys is checked
    check(key)                    the key changed, which also checks its dependents
    the deadline passes           `expired` is called instead

`ready` sends the response itself and returns True, or returns False to continue waiting.  It is
called synchronously, in the order in which the waits began.  (Kafka: DelayedOperationPurgatory,
without its timing wheel: the event loop has timers.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable, Sequence


class Wait:
    __slots__ = ("_is_trying", "_purgatory", "_ready", "_timer", "done", "keys")

    def __init__(
        self, purgatory: Purgatory, keys: Sequence[Hashable], ready: Callable[[], bool]
    ) -> None:
        self._purgatory = purgatory
        self._ready = ready
        self._timer: asyncio.TimerHandle | None = None
        self.keys = keys
        self.done = False
        self._is_trying = False

    def try_complete(self) -> None:
        # Sending a response lets the connection's next request in, which may check the same key.
        if self.done or self._is_trying:
            return
        self._is_trying = True
        try:
            if self._ready():
                self.end()
        finally:
            self._is_trying = False

    def end(self) -> None:
        """Stop waiting; `expired` is not called any more."""
        if self.done:
            return
        self.done = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._purgatory.forget(self)

    def begin(
        self, loop: asyncio.AbstractEventLoop, deadline_s: float, expired: Callable[[], None]
    ) -> None:
        def expire() -> None:
            if not self.done:
                self.end()
                expired()

        self._timer = loop.call_at(deadline_s, expire)


class Purgatory:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: dict[Hashable, dict[Wait, None]] = {}
        self.dependents: Callable[[Hashable], Iterable[Hashable]] = lambda key: ()
        """Keys to check before a key.  A request that often waits for any of many keys can wait for
        one dependent key instead."""

    def __len__(self) -> int:
        return len({wait for waits in self._waiting.values() for wait in waits})

    def wait(
        self,
        keys: Sequence[Hashable],
        ready: Callable[[], bool],
        deadline_s: float,
        expired: Callable[[], None],
    ) -> Wait:
        """Park a request until `ready()` returns True or the loop's time is `deadline_s`."""
        wait = Wait(self, keys, ready)
        for key in keys:
            self._waiting.setdefault(key, {})[wait] = None
        wait.begin(self._loop, deadline_s, expired)
        return wait

    def check(self, key: Hashable) -> None:
        for dependent in self.dependents(key):
            self._try_complete(dependent)
        self._try_complete(key)

    def _try_complete(self, key: Hashable) -> None:
        waits = self._waiting.get(key)
        if waits:
            for wait in list(waits):
                wait.try_complete()

    def forget(self, wait: Wait) -> None:
        for key in wait.keys:
            waits = self._waiting.get(key)
            if waits is not None:
                waits.pop(wait, None)
                if not waits:
                    del self._waiting[key]

    def close(self) -> None:
        """End every wait without a response: the connections are being closed."""
        for waits in list(self._waiting.values()):
            for wait in list(waits):
                wait.end()
