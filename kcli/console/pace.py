"""Pace: so many records in a second and no more.

Pure: the time is handed in.
"""

from __future__ import annotations

# What was not used is made up for, for so long: a long pause is followed by no flood.
BURST_S = 0.1


class RecordPace:
    """Times are seconds of any one clock."""

    def __init__(self, per_second: float, now: float) -> None:
        self._per_second = per_second
        self._most = max(1.0, per_second * BURST_S)
        self._credit = 1.0
        self._at = now

    def take(self, most: int, now: float) -> int:
        """How many may go now, of so many that want to."""
        earned = (now - self._at) * self._per_second
        self._credit = min(self._most, self._credit + earned)
        self._at = now
        taken = min(most, int(self._credit))
        self._credit -= taken
        return taken

    @property
    def pause_s(self) -> float:
        """How long until the next may go, or until several may at a high rate."""
        return max((1.0 - self._credit) / self._per_second, BURST_S / 10)
