"""The wall clock. Deadlines use the event loop's time, which a simulation controls."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Return milliseconds since 1970, UTC."""


class WallClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000
