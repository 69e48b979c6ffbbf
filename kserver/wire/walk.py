"""The records of a batch, looked through by `_walk.c`.

Where no C compiler was at hand when this was installed, a stand-in leaves every batch to the walk
in Python.
"""

from __future__ import annotations

__all__ = ["IS_BUILT", "largest_timestamp"]

try:
    from kserver.wire._walk import largest_timestamp

    IS_BUILT = True
except ImportError:
    IS_BUILT = False

    def largest_timestamp(
        body: bytes | memoryview,
        count: int,
        base_timestamp: int,
        earliest: int,
        latest: int,
        keyed: bool,
        /,
    ) -> int | None:
        """Stands for the one in `_walk.pyi`, which does something."""
        return None
