"""Frames: an int32 length, then so many bytes.

Pure: bytes in, frames out.
"""

from __future__ import annotations

from collections.abc import Iterator

from kserver.errors import ProtocolError

LENGTH_SIZE = 4


class FrameReader:
    """Cuts a stream of bytes, fed in any pieces, into frames of at most `limit_bytes`."""

    __slots__ = ("_limit_bytes", "_received")

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._received = bytearray()

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[bytes]:
        """The frames that `data` completes, without their length.

        Raises ProtocolError for a length that is negative or over the limit, as soon as it is seen.
        """
        self._received += data
        at = 0
        while len(self._received) - at >= LENGTH_SIZE:
            size = int.from_bytes(self._received[at : at + LENGTH_SIZE], signed=True)
            if not 0 <= size <= self._limit_bytes:
                raise ProtocolError(f"a frame of {size} bytes")
            end = at + LENGTH_SIZE + size
            if end > len(self._received):
                break
            yield bytes(self._received[at + LENGTH_SIZE : end])
            at = end
        del self._received[:at]
