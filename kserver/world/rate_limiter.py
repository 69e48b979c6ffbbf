"""RateLimiter: limits the rate of background work, by waiting."""

from __future__ import annotations

import time

_WAIT_S = 0.05
"""Seconds: shorter waits are postponed until they add up to this."""
_FORGOTTEN_S = 1.0
"""Seconds: time that was not used for longer than this does not count."""
_NO_LIMIT = 1e300


class RateLimiter:
    """Spends `bytes_per_second` on average; blocks its thread."""

    def __init__(self, bytes_per_second: float) -> None:
        self._rate = bytes_per_second
        self._due: float | None = None
        """The time by which all that was spent so far is allowed."""

    def spend(self, size: int) -> None:
        if self._rate >= _NO_LIMIT:
            return
        now = time.monotonic()
        if self._due is None or self._due < now - _FORGOTTEN_S:
            self._due = now
        self._due += size / self._rate
        if self._due - now > _WAIT_S:
            time.sleep(self._due - now)
