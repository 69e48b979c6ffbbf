"""CRC-32C, the checksum of record batches (RFC 3720, appendix B.4).

Pure: bytes to a number.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

Buffer = bytes | bytearray | memoryview


def crc32c(data: Buffer, before: int = 0) -> int:
    """The checksum of `data`, or of all so far where `before` is that of what came before it."""
    return _checksum()(data, before)


@functools.cache
def _checksum() -> Callable[[Buffer, int], int]:
    """Imported at the first call: the package takes 70 ms to load, which most commands spare."""
    import crc32c

    checksum: Callable[[Buffer, int], int] = crc32c.crc32c
    return checksum
