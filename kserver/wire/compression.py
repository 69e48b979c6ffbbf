"""The four codecs a record batch can be packed with, each in the framing that Java's clients use.

    gzip    one gzip member, or several in a row
    snappy  blocks in the framing of Java's SnappyOutputStream (Xerial); a bare block is read too
    lz4     an LZ4 frame of independent 64 KB blocks
    zstd    one zstd frame, or several in a row

`decompress` never makes more than `limit_bytes`, however much the input would unfold to.
The codecs are imported when they are first used.
"""

from __future__ import annotations

import enum
import functools
import struct
import zlib
from typing import Any, Protocol

from kserver.errors import ErrorCode, KafkaError


class Compression(enum.IntEnum):
    """The low three bits of a batch's attributes."""

    none = 0
    gzip = 1
    snappy = 2
    lz4 = 3
    zstd = 4


def compress(codec: Compression, data: bytes | memoryview, level: int | None = None) -> bytes:
    """`level` is the codec's own scale, None its default; snappy has none."""
    match codec:
        case Compression.none:
            return bytes(data)
        case Compression.gzip:
            return zlib.compress(data, -1 if level is None else level, wbits=_GZIP)
        case Compression.snappy:
            return _compress_xerial(memoryview(data))
        case Compression.lz4:
            return _compress_lz4(data, level)
        case Compression.zstd:
            return bytes(_cramjam().zstd.compress(data, level=3 if level is None else level))


def decompress(codec: Compression, data: bytes | memoryview, limit_bytes: int) -> bytes:
    """Raises KafkaError(corrupt_message) for garbage, a torn end, or more than `limit_bytes`."""
    match codec:
        case Compression.none:
            return bytes(data)
        case Compression.gzip:
            return _decompress_members(lambda: zlib.decompressobj(_GZIP), data, limit_bytes, "gzip")
        case Compression.snappy:
            return _decompress_snappy(memoryview(data), limit_bytes)
        case Compression.lz4:
            frame = _lz4().LZ4FrameDecompressor
            return _decompress_members(frame, data, limit_bytes, "lz4")
        case Compression.zstd:
            return _decompress_zstd(memoryview(data), limit_bytes)


_GZIP = 31  # zlib's window bits for a gzip wrapper with a window of 32 KB
_XERIAL = struct.pack(">8sii", b"\x82SNAPPY\x00", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * 1024
_FIRST_GUESS_BYTES = 64 * 1024


def _corrupt(text: str) -> KafkaError:
    return KafkaError(ErrorCode.corrupt_message, text)


@functools.cache
def _cramjam() -> Any:
    import cramjam

    return cramjam


@functools.cache
def _lz4() -> Any:
    import lz4.frame

    return lz4.frame


class _Decompressor(Protocol):
    """What zlib's and lz4's incremental decompressors share."""

    eof: bool
    unused_data: bytes

    def decompress(self, data: Any, max_length: int) -> bytes: ...


def _decompress_members(new: Any, data: Any, limit_bytes: int, name: str) -> bytes:
    """Member after member until the input ends."""
    out = b""
    while True:
        member: _Decompressor = new()
        try:
            out += member.decompress(data, limit_bytes - len(out) + 1)
        except (zlib.error, RuntimeError) as error:
            raise _corrupt(f"broken {name} data: {error}") from error
        if len(out) > limit_bytes:
            raise _corrupt(f"{name} data unfolds to more than {limit_bytes} bytes")
        if not member.eof:
            raise _corrupt(f"{name} data ends early")
        if not member.unused_data:
            return out
        data = member.unused_data


def _compress_lz4(data: bytes | memoryview, level: int | None) -> bytes:
    lz4 = _lz4()
    packed: bytes = lz4.compress(
        data,
        compression_level=0 if level is None else level,
        block_size=lz4.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    return packed


def _compress_xerial(data: memoryview) -> bytes:
    snappy = _cramjam().snappy
    parts = [_XERIAL]
    for at in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(snappy.compress_raw(data[at : at + _XERIAL_BLOCK_BYTES]))
        parts += (len(block).to_bytes(4), block)
    return b"".join(parts)


def _decompress_snappy(data: memoryview, limit_bytes: int) -> bytes:
    if data[:8] != _XERIAL[:8]:
        return _decompress_block(data, limit_bytes)
    parts: list[bytes] = []
    at, left = len(_XERIAL), limit_bytes
    if len(data) < at:
        raise _corrupt("snappy data ends early")
    while at < len(data):
        size = int.from_bytes(data[at : at + 4])
        at += 4
        if at + size > len(data):
            raise _corrupt("snappy data ends early")
        part = _decompress_block(data[at : at + size], left)
        parts.append(part)
        left -= len(part)
        at += size
    return b"".join(parts)


def _decompress_block(block: memoryview, limit_bytes: int) -> bytes:
    cramjam = _cramjam()
    try:
        if cramjam.snappy.decompress_raw_len(block) > limit_bytes:
            raise _corrupt(f"snappy data unfolds to more than {limit_bytes} bytes")
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise _corrupt(f"broken snappy data: {error}") from error


def _decompress_zstd(data: memoryview, limit_bytes: int) -> bytes:
    cramjam = _cramjam()
    size = min(limit_bytes, max(_FIRST_GUESS_BYTES, 4 * len(data)))
    while True:
        out = bytearray(size)
        try:
            return bytes(memoryview(out)[: cramjam.zstd.decompress_into(data, out)])
        except cramjam.DecompressionError as error:
            if "write whole buffer" not in str(error):
                raise _corrupt(f"broken zstd data: {error}") from error
            if size == limit_bytes:
                raise _corrupt(f"zstd data unfolds to more than {limit_bytes} bytes") from error
        size = min(limit_bytes, 4 * size)
