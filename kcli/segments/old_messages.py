"""Messages of format versions 0 and 1, from before Kafka 0.11: read, not written.

Pure: bytes in, values out.

    offset i64 | size i32 | crc u32 | magic i8 | attributes i8 | timestamp i64, version 1 only
        | key length i32, -1: null | key | value length i32 | value

Attributes: bits 0-2 compression, 3 timestamp type. The value of a compressed message contains
messages itself. Their offsets are absolute in version 0; in version 1 they are relative, such that
the last one has the offset of the message around them (KIP-31). The CRC is CRC-32 of the bytes
after it.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

from kserver.errors import ProtocolError
from kserver.wire.batch import LOG_APPEND_TIME, LOG_OVERHEAD, TimestampType
from kserver.wire.compression import Compression, decompress

_HEAD = struct.Struct(">qiIbb")
_TIMESTAMP = struct.Struct(">q")
_LENGTH = struct.Struct(">i")
_MAX_BYTES = 1 << 28
"""Maximum size of the messages in one message after decompression."""


class OldRecord(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    crc: int
    is_valid_crc: bool


class OldBatch:
    """One message of the log: a record, or the wrapper of several.

    Raises ProtocolError if the bytes are invalid.
    """

    __slots__ = (
        "attributes",
        "buffer",
        "crc",
        "key",
        "last_offset",
        "magic",
        "max_timestamp",
        "size",
        "value",
    )

    def __init__(self, data: memoryview, position: int = 0) -> None:
        try:
            self.last_offset, length, self.crc, self.magic, self.attributes = _HEAD.unpack_from(
                data, position
            )
            self.size = LOG_OVERHEAD + length
            self.buffer = data[position : position + self.size]
            at = _HEAD.size
            self.max_timestamp = -1
            if self.magic == 1:
                (self.max_timestamp,) = _TIMESTAMP.unpack_from(self.buffer, at)
                at += _TIMESTAMP.size
            self.key, at = _bytes(self.buffer, at)
            self.value, at = _bytes(self.buffer, at)
        except struct.error as error:
            raise ProtocolError("truncated message") from error
        if self.magic not in (0, 1) or at != len(self.buffer):
            raise ProtocolError(f"a broken message at offset {self.last_offset}")

    @property
    def compression(self) -> Compression:
        return Compression(self.attributes & 0x07)

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType(bool(self.attributes & LOG_APPEND_TIME))

    def is_valid_crc(self) -> bool:
        return bool(zlib.crc32(self.buffer[16:]) == self.crc)

    def records(self) -> list[OldRecord]:
        """Return the record itself, or those inside, oldest first."""
        if not self.compression:
            return [self._record(self.last_offset, self.max_timestamp)]
        data = memoryview(decompress(self.compression, self.value or b"", _MAX_BYTES))
        inner: list[OldBatch] = []
        at = 0
        while at < len(data):
            inner.append(OldBatch(data, at))
            at += inner[-1].size
        shift = self.last_offset - inner[-1].last_offset if inner and self.magic == 1 else 0
        append_time = self.timestamp_type is TimestampType.log_append_time
        return [
            message._record(
                message.last_offset + shift,
                self.max_timestamp if append_time else message.max_timestamp,
            )
            for message in inner
        ]

    def _record(self, offset: int, timestamp: int) -> OldRecord:
        return OldRecord(offset, timestamp, self.key, self.value, self.crc, self.is_valid_crc())


def _bytes(buffer: memoryview, at: int) -> tuple[bytes | None, int]:
    """Return a field with its length before it, and the position of the next one."""
    (length,) = _LENGTH.unpack_from(buffer, at)
    at += _LENGTH.size
    if length < -1 or at + length > len(buffer):
        raise ProtocolError(f"a message with a field of {length} bytes")
    return (None, at) if length < 0 else (bytes(buffer[at : at + length]), at + length)
