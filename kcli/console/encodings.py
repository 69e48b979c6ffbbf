"""Encodings of binary keys and values as text: hex, base64, whole numbers.

Pure: bytes in, bytes out.

    text      as they are
    hex       two digits a byte
    base64    the standard alphabet, with padding
    short     2 bytes as a decimal number, as in Kafka's ShortSerializer: signed, big-endian
    integer   likewise of 4 bytes
    long      likewise of 8 bytes
"""

from __future__ import annotations

import binascii
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType


class NotEncodable(Exception):
    """Bytes, or a text, that cannot be converted by an encoding; the text has the reason."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """`shown` converts bytes to text, `read` text to bytes; both raise NotEncodable."""

    shown: Callable[[bytes], bytes]
    read: Callable[[bytes], bytes]


_DECIMAL = re.compile(rb"[+-]?[0-9]{1,20}")


def _read_hex(text: bytes) -> bytes:
    try:
        return binascii.unhexlify(text)
    except binascii.Error:
        raise NotEncodable(f"'{_start_of(text)}' is not hex") from None


def _read_base64(text: bytes) -> bytes:
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except binascii.Error:
        raise NotEncodable(f"'{_start_of(text)}' is not base64") from None


def _shown_number(layout: struct.Struct, data: bytes) -> bytes:
    if len(data) != layout.size:
        raise NotEncodable(f"a number of {layout.size} bytes cannot be made of {len(data)}")
    return str(*layout.unpack(data)).encode()


def _read_number(layout: struct.Struct, text: bytes) -> bytes:
    try:
        if _DECIMAL.fullmatch(text):
            return layout.pack(int(text))
    except struct.error:
        pass
    raise NotEncodable(f"'{_start_of(text)}' is not a whole number of {layout.size} bytes")


def _numbers(format: str) -> Encoding:
    layout = struct.Struct(format)
    return Encoding(partial(_shown_number, layout), partial(_read_number, layout))


def _start_of(text: bytes) -> str:
    shown = text[:40].decode(errors="replace")
    return shown if len(text) <= 40 else f"{shown}..."


ENCODINGS: Mapping[str, Encoding] = MappingProxyType(
    {
        "hex": Encoding(binascii.hexlify, _read_hex),
        "base64": Encoding(partial(binascii.b2a_base64, newline=False), _read_base64),
        "short": _numbers(">h"),
        "integer": _numbers(">i"),
        "long": _numbers(">q"),
    }
)
TEXT = "text"


class UnknownEncoding(Exception):
    """An unknown encoding; the text lists the known ones."""


def encoding(name: str) -> Encoding | None:
    """Return the encoding of a name; None for text. Raises UnknownEncoding."""
    if name == TEXT:
        return None
    if name not in ENCODINGS:
        names = ", ".join((TEXT, *ENCODINGS))
        raise UnknownEncoding(f"'{name}' is not an encoding; encodings are {names}")
    return ENCODINGS[name]
