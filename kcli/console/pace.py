"""RecordPace: limits records per second.

Pure: the time is passed in.
"""

from __future__ import annotations

# Seconds of unused credit that are kept, so that a long pause is not followed by a burst.
BURST_S = 0.1


class RecordPace:
    """Times are seconds of any one clock."""

    def __init__(self, per_second: float, now: float) -> None:
        self._per_second = per_second
        self._max_credit = max(1.0, per_second * BURST_S)
        self._credit = 1.0
        self._at = now

    def take(self, most: int, now: float) -> int:
        """Return how many of `most` records may be sent now."""
        earned = (now - self._at) * self._per_second
        self._credit = min(self._max_credit, self._credit + earned)
        self._at = now
        count = min(most, int(self._credit))
        self._credit -= count
        return count

    @property
    def pause_s(self) -> float:
        """Seconds until the next record may be sent, or several at a high rate."""
        return max((1.0 - self._credit) / self._per_second, BURST_S / 10)
