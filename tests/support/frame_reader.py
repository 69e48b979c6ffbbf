"""Frames: an int32 length, then that many bytes.

Pure: bytes in, frames out.
"""

from __future__ import annotations

from kserver.errors import ProtocolError

LENGTH_SIZE = 4


class FrameReader:
    """Splits a stream of bytes, fed in any pieces, into frames of at most `limit_bytes`."""

    __slots__ = ("_limit_bytes", "_received")

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._received = bytearray()

    def feed(self, data: bytes | bytearray | memoryview) -> list[bytes]:
        """Return the frames that `data` completes, without their length.

        Raises ProtocolError if a length is negative or over the limit, as soon as it is received.
        """
        received = self._received
        received += data
        frames: list[bytes] = []
        at = 0
        while len(received) - at >= LENGTH_SIZE:
            start = at + LENGTH_SIZE
            size = int.from_bytes(received[at:start], signed=True)
            if not 0 <= size <= self._limit_bytes:
                raise ProtocolError(f"a frame of {size} bytes")
            if len(received) - start < size:
                break
            at = start + size
            frames.append(bytes(received[start:at]))
        del received[:at]
        return frames
