"""Pace: N records a second, over all callers.

    pace = RowPace(per_s=100)
    wait_s = pace.take(25, now_s)         # then send 25

Each call gets a time slot after all earlier ones, so that the rate holds over all callers together.
Unused time is not made up for.

Pure: the clock is passed in.
"""

from __future__ import annotations

CHUNKS_A_SECOND = 10
"""How often a task asks: a trade-off between precision and cost."""


class RowPace:
    def __init__(self, per_s: float) -> None:
        self._per_s = per_s
        self._free_s = float("-inf")

    def take(self, count: int, now_s: float) -> float:
        """Return the seconds to wait before `count` records are sent."""
        begin = max(self._free_s, now_s)
        self._free_s = begin + count / self._per_s
        return begin - now_s


def chunk(per_s: float) -> int:
    """Return the number of records to ask for at once."""
    return max(1, int(per_s / CHUNKS_A_SECOND))
