"""The wall clock of a simulation: the loop's time since a fixed day."""

from __future__ import annotations

import asyncio

DAY_ONE_MS = 1_700_000_000_000


class SimClock:
    def __init__(self, loop: asyncio.AbstractEventLoop, ahead_ms: int = 0) -> None:
        self.ahead_ms = ahead_ms
        """How far this host's clock is off; tests may change it at any time."""
        self._loop = loop

    def now_ms(self) -> int:
        return DAY_ONE_MS + self.ahead_ms + int(self._loop.time() * 1000)
