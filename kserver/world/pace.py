"""How fast work in the background may go: it waits where it was too fast."""

from __future__ import annotations

import time

_WAIT_S = 0.05
"""Shorter waits are put off until they come to this."""
_FORGOTTEN_S = 1.0
"""What was not used up for longer cannot be made up for."""
_NO_LIMIT = 1e300


class Pace:
    """`bytes_per_second` on average; blocks its thread."""

    def __init__(self, bytes_per_second: float) -> None:
        self._rate = bytes_per_second
        self._due: float | None = None
        """When all that was spent so far may have been."""

    def spend(self, size: int) -> None:
        if self._rate >= _NO_LIMIT:
            return
        now = time.monotonic()
        if self._due is None or self._due < now - _FORGOTTEN_S:
            self._due = now
        self._due += size / self._rate
        if self._due - now > _WAIT_S:
            time.sleep(self._due - now)
