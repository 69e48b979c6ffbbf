"""Validation of a batch's records by the C extension `_walk.c`.

If no C compiler was available at the installation, a stand-in leaves every batch to the validation
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
        """Stand-in for the function in `_walk.pyi`; validates nothing."""
        return None
