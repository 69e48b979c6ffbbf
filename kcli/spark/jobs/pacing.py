"""Pace: so many records a second, however many ask.

    pace = Pace(per_s=100)
    wait_s = pace.take(25, now_s)         # then send 25

Each who asks gets a stretch of time of its own after all that were given before, so that the rate
holds over all of them together.  Time in which nobody asked is not made up for.

Pure: the clock is handed in.
"""

from __future__ import annotations

CHUNKS_A_SECOND = 10
"""How often a task asks: so finely is the rate kept, and so much does asking cost."""


class RowPace:
    def __init__(self, per_s: float) -> None:
        self._per_s = per_s
        self._free_s = float("-inf")

    def take(self, count: int, now_s: float) -> float:
        """How long to wait before so many are sent."""
        begin = max(self._free_s, now_s)
        self._free_s = begin + count / self._per_s
        return begin - now_s


def chunk(per_s: float) -> int:
    """How many to ask for at once."""
    return max(1, int(per_s / CHUNKS_A_SECOND))
