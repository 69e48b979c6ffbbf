"""CRC-32C, the checksum of record batches (RFC 3720, appendix B.4).

Pure: bytes to a number.

The package that computes it at memory speed takes 60 ms to import.  A command that sends or prints
only a few records is faster without it, so it is imported only after BY_HAND_BYTES.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

Buffer = bytes | bytearray | memoryview

BY_HAND_BYTES = 1 << 12
"""Bytes computed in Python, in half a millisecond, before the package is imported."""

_POLYNOMIAL = 0x82F63B78
_left_by_hand = BY_HAND_BYTES


def crc32c(data: Buffer, before: int = 0) -> int:
    """Return the checksum of `data`; `before` is the checksum of the preceding bytes."""
    global _left_by_hand
    if _left_by_hand >= 0:
        _left_by_hand -= len(data)
        if _left_by_hand >= 0:
            return crc32c_by_hand(data, before)
    return _package()(data, before)


def crc32c_by_hand(data: Buffer, before: int = 0) -> int:
    table = _table()
    crc = before ^ 0xFFFFFFFF
    for byte in bytes(data):
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


@functools.cache
def _table() -> list[int]:
    """Return the table of the byte-wise algorithm."""
    table = list(range(256))
    for _ in range(8):
        table = [crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0) for crc in table]
    return table


@functools.cache
def _package() -> Callable[[Buffer, int], int]:
    import crc32c

    checksum: Callable[[Buffer, int], int] = crc32c.crc32c
    return checksum
