"""Variable-length integers: seven bits per byte, least significant first.

The high bit is set on all bytes except the last one.

Pure: values and bytes only.

`encode` and `decode` take signed numbers in zigzag order (0, -1, 1, -2, ...), as in the fields of
a record; the `_unsigned` pair takes unsigned ones, as in flexible messages (KIP-482), whose tagged
fields are read here too.  Numbers have at most 64 bits, which is ten bytes.
"""

from __future__ import annotations

from kserver.errors import ProtocolError

MAX_TAGGED_FIELDS = 1000
_MAX_SHIFT = 63
# Nearly all lengths and counts of a message; these two shortcuts halve the time of a response.
_ONE_BYTE = [bytes((number,)) for number in range(0x80)]


def encode(number: int) -> bytes:
    return encode_unsigned(number << 1 if number >= 0 else ~(number << 1))


def encode_unsigned(number: int) -> bytes:
    assert 0 <= number < 1 << 64
    if number < 0x80:
        return _ONE_BYTE[number]
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def decode(buffer: bytes | memoryview, at: int) -> tuple[int, int]:
    """Return the number that starts at position `at`, and the position after it."""
    zigzag, at = decode_unsigned(buffer, at)
    return zigzag >> 1 ^ -(zigzag & 1), at


def decode_unsigned(buffer: bytes | memoryview, at: int) -> tuple[int, int]:
    """Return the number that starts at position `at`, and the position after it."""
    if at < len(buffer) and (byte := buffer[at]) < 0x80:
        return byte, at + 1
    number = shift = 0
    while at < len(buffer) and shift <= _MAX_SHIFT:
        byte = buffer[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            if number >> 64:
                break
            return number, at
        shift += 7
    raise ProtocolError("a varint that is truncated or has more than 64 bits")


def size(number: int) -> int:
    """Return the number of bytes that `encode` takes."""
    return size_unsigned(number << 1 if number >= 0 else ~(number << 1))


def size_unsigned(number: int) -> int:
    """Return the number of bytes that `encode_unsigned` takes."""
    return max(1, (number.bit_length() + 6) // 7)


def tagged_fields(frame: memoryview, at: int) -> tuple[int, int]:
    """Return the number of tagged fields that begin at `at`, and the position of the first."""
    count, at = decode_unsigned(frame, at)
    if count > MAX_TAGGED_FIELDS:
        raise ProtocolError(f"{count} tagged fields")
    return count, at


def skip_tagged_fields(frame: memoryview, at: int) -> int:
    """Return the position after the tagged fields that begin at `at`."""
    if at < len(frame) and frame[at] == 0:
        return at + 1
    count, at = tagged_fields(frame, at)
    for _ in range(count):
        _tag, at = decode_unsigned(frame, at)
        size, at = decode_unsigned(frame, at)
        at += size
        if at > len(frame):
            raise ProtocolError("truncated tagged field")
    return at
