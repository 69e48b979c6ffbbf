"""The four compression codecs of record batches, in the framing of Java's clients.

    gzip    a gzip member; several in a row are read too, and other bytes after one are ignored
    snappy  blocks of 32 KB in the framing of Java's SnappyOutputStream (Xerial): a magic number,
            two versions, then each block's length and bytes; streams in a row and a bare block are
            read too, and up to three bytes at the end are ignored
    lz4     a frame of independent 64 KB blocks without checksums; the first frame is read, which
            must be at the start, and everything after it is ignored
    zstd    a frame; several in a row are read too, also with skippable frames between them

Java's clients read and ignore the same, with these exceptions: frames of linked lz4 blocks are
read (`has_linked_blocks` detects them); reserved header flags of gzip, and an lz4 frame's size and
checksum, are verified; and a zstd frame may not end in its magic number.

`decompress` never returns more than `limit_bytes`, whatever its input would expand to. The codecs
are imported when they are first used.
"""

from __future__ import annotations

import enum
import functools
import struct
import zlib
from collections.abc import Callable
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
    """Compress data; `level` is as in `compression.*.level`, None for the default; snappy has
    none."""
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
            return bytes(
                _cramjam().zstd.compress(data, level=_ZSTD_LEVEL if level is None else level)
            )


def decompress(codec: Compression, data: bytes | memoryview, limit_bytes: int) -> bytes:
    """Decompress data.  Raises KafkaError(corrupt_message) if it is malformed or truncated, and
    Oversized if it has more than `limit_bytes`."""
    match codec:
        case Compression.none:
            return bytes(data)
        case Compression.gzip:
            return _decompress_stream(_gzip_member, memoryview(data), limit_bytes, "gzip")
        case Compression.snappy:
            return _decompress_snappy(memoryview(data), limit_bytes)
        case Compression.lz4:
            return _decompress_lz4(memoryview(data), limit_bytes)
        case Compression.zstd:
            return _decompress_zstd(memoryview(data), limit_bytes)


def has_linked_blocks(data: memoryview) -> bool:
    """Return whether this is an lz4 frame of linked blocks, which Java's clients reject."""
    return data[:4] == _LZ4_MAGIC and len(data) > 4 and not data[4] & _LZ4_INDEPENDENT_BLOCKS


_GZIP = 31  # zlib's window bits for a gzip wrapper with a window of 32 KB
_XERIAL = struct.pack(">8sii", b"\x82SNAPPY\x00", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * 1024
_CHUNK_BYTES = 32 * 1024
_GZIP_MAGIC = b"\x1f\x8b\x08"
_GZIP_SHORTEST_MEMBER = 19
"""Java's GZIPInputStream ignores fewer bytes than this after a member, whatever they are."""
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_INDEPENDENT_BLOCKS, _LZ4_BLOCK_CHECKSUM = 32, 16
_LZ4_CONTENT_SIZE, _LZ4_CONTENT_CHECKSUM, _LZ4_RESERVED = 8, 4, 3
_LZ4_STORED_BLOCK = 1 << 31
_JAVAS_FAST_LZ4_LEVEL = 9
_LZ4_GROWTH = 8
_ZSTD_GROWTH = 8
_ZSTD_LEVEL = 3


class Oversized(KafkaError):
    """Data that decompresses to more than the limit: a zip bomb, or just very repetitive."""


def _oversized(name: str, limit_bytes: int) -> Oversized:
    text = f"{name} data decompresses to more than {limit_bytes} bytes"
    return Oversized(ErrorCode.corrupt_message, text)


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
    """Common interface of zlib's and lz4's incremental decompressors."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: memoryview, max_length: int, /) -> bytes: ...


def _gzip_member() -> _Decompressor:
    return zlib.decompressobj(_GZIP)


def _decompress_stream(
    new: Callable[[], _Decompressor], data: memoryview, limit_bytes: int, name: str
) -> bytes:
    """Decompress one member after the other, each with a decompressor from `new`, until other
    bytes follow.

    The input is passed in chunks, as the unused data after a member is copied: otherwise, many
    tiny members would take quadratic time.
    """
    member = new()
    parts: list[bytes] = []
    at, remaining = 0, limit_bytes
    while at < len(data):
        if member.eof:
            if len(data) - at < _GZIP_SHORTEST_MEMBER or data[at : at + 3] != _GZIP_MAGIC:
                break
            member = new()
        chunk = data[at : at + _CHUNK_BYTES]
        try:
            part = member.decompress(chunk, remaining + 1)
        except (zlib.error, RuntimeError) as error:
            raise _corrupt(f"broken {name} data: {error}") from error
        remaining -= len(part)
        if remaining < 0:
            raise _oversized(name, limit_bytes)
        parts.append(part)
        at += len(chunk) - len(member.unused_data or b"")
    if not member.eof:
        raise _corrupt(f"truncated {name} data")
    return b"".join(parts)


def _decompress_lz4(data: memoryview, limit_bytes: int) -> bytes:
    """Decompress one frame in one call if it expands to a few times its size, as nearly all do: to
    allocate a buffer as large as the limit takes three times as long as to fill what is needed."""
    data = _first_lz4_frame(data)
    frame = _lz4().LZ4FrameDecompressor
    member = frame()
    try:
        likely: bytes = member.decompress(data, min(limit_bytes, _LZ4_GROWTH * len(data)))
    except RuntimeError as error:
        raise _corrupt(f"broken lz4 data: {error}") from error
    if member.eof:
        return likely
    return _decompress_stream(frame, data, limit_bytes, "lz4")


def _first_lz4_frame(data: memoryview) -> memoryview:
    """Return the frame at the start; Java's reader ignores everything after it."""
    if data[:4] != _LZ4_MAGIC:
        raise _corrupt("lz4 data does not start with a frame")
    flags = data[4] if len(data) > 4 else 0
    if flags & _LZ4_RESERVED:
        raise _corrupt("an lz4 frame has reserved flags or a dictionary")
    at = 7 + (8 if flags & _LZ4_CONTENT_SIZE else 0)
    after_block = 4 if flags & _LZ4_BLOCK_CHECKSUM else 0
    while at + 4 <= len(data):
        size = int.from_bytes(data[at : at + 4], "little") & ~_LZ4_STORED_BLOCK
        at += 4
        if not size:
            at += 4 if flags & _LZ4_CONTENT_CHECKSUM else 0
            if at <= len(data):
                return data[:at]
        at += size + after_block
    raise _corrupt("truncated lz4 data")


def _compress_lz4(data: bytes | memoryview, level: int | None) -> bytes:
    # Java's clients use their fast compressor for the default level, the dense one for all others.
    dense = level is not None and level != _JAVAS_FAST_LZ4_LEVEL
    lz4 = _lz4()
    packed: bytes = lz4.compress(
        data,
        compression_level=max(level or 0, lz4.COMPRESSIONLEVEL_MINHC) if dense else 0,
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
    at, remaining = len(_XERIAL), limit_bytes
    while at + 4 <= len(data):
        if data[at : at + 8] == _XERIAL[:8]:
            at += len(_XERIAL)
            continue
        size = int.from_bytes(data[at : at + 4])
        at += 4
        part = _decompress_block(data[at : at + size], remaining)
        parts.append(part)
        remaining -= len(part)
        at += size
    if at > len(data):
        raise _corrupt("truncated snappy data")
    return b"".join(parts)


def _decompress_block(block: memoryview, limit_bytes: int) -> bytes:
    cramjam = _cramjam()
    try:
        if cramjam.snappy.decompress_raw_len(block) > limit_bytes:
            raise _oversized("snappy", limit_bytes)
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise _corrupt(f"broken snappy data: {error}") from error


def _decompress_zstd(data: memoryview, limit_bytes: int) -> bytes:
    """Decompress into a buffer that is enlarged until the data fits, as Java's writer does not
    store the decompressed size."""
    cramjam = _cramjam()
    size = min(limit_bytes, _ZSTD_GROWTH * max(len(data), _CHUNK_BYTES))
    while True:
        out = bytearray(size)
        try:
            return bytes(memoryview(out)[: cramjam.zstd.decompress_into(data, out)])
        except cramjam.DecompressionError as error:
            # The only indication that the buffer is too small.
            if "write whole buffer" not in str(error):
                raise _corrupt(f"broken zstd data: {error}") from error
        if size == limit_bytes:
            raise _oversized("zstd", limit_bytes)
        size = min(limit_bytes, size * _ZSTD_GROWTH)
