"""The wall clock of a simulation: the loop's time since a fixed day."""

from __future__ import annotations

import asyncio
from random import Random

JUMPS_MS = (-20 * 60_000, 0, 20 * 60_000)
DAY_ONE_MS = 1_700_000_000_000


class SimClock:
    def __init__(self, loop: asyncio.AbstractEventLoop, ahead_ms: int = 0) -> None:
        self.ahead_ms = ahead_ms
        """Milliseconds by which this host's clock is wrong; tests may change it at any time."""
        self._loop = loop

    def jump(self, random: Random) -> None:
        """Set the clock to another error, as an administrator does: between two jumps it may go
        back forty minutes.
        """
        self.ahead_ms = random.choice(JUMPS_MS)

    def now_ms(self) -> int:
        return DAY_ONE_MS + self.ahead_ms + int(self._loop.time() * 1000)


class StillClock:
    """A clock that moves only when a test moves it."""

    def __init__(self, now_ms: int = DAY_ONE_MS) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def advance(self, ms: int) -> None:
        self._now_ms += ms
