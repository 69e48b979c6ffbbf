"""Payloads: the values of the records that a performance test sends.

Pure: the random source is passed in. `take(first, count)` returns the values of the records from
`first` on, at least one and at most `count`.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Protocol

from kcli.patterns import java_patterns

POOL_BYTES = 4 << 20
"""Far more than a batch, so that no value occurs twice in a compressed batch."""

_TO_LETTER = bytes(ord("A") + byte * 26 // 256 for byte in range(256))


class Payloads(Protocol):
    @property
    def size(self) -> int | None:
        """Bytes of each value; None if they differ."""

    def take(self, first: int, count: int) -> Sequence[bytes]: ...


def letters(size: int, random: Random) -> bytes:
    """Return `size` random upper-case letters."""
    return random.randbytes(size).translate(_TO_LETTER)


class Letters:
    """Values of one size, created once: creating each would cost more than sending it."""

    def __init__(self, size: int, count: int, random: Random) -> None:
        self.size = size
        different = max(2, min(count, POOL_BYTES // size))
        text = letters(different * size, random)
        self._pool = [text[at : at + size] for at in range(0, len(text), size)]

    def take(self, first: int, count: int) -> Sequence[bytes]:
        at = first % len(self._pool)
        return self._pool[at : at + count]


class OfFile:
    """Random values of a file."""

    size = None

    def __init__(self, values: Sequence[bytes], random: Random) -> None:
        self._values = values
        self._random = random

    def take(self, first: int, count: int) -> Sequence[bytes]:
        return self._random.choices(self._values, k=count)


class Counting:
    """The number of each record, in decimal."""

    size = None

    def take(self, first: int, count: int) -> Sequence[bytes]:
        return [b"%d" % number for number in range(first, first + count)]


def split(text: str, delimiter: str) -> list[bytes]:
    """Return the parts between matches of a pattern, without empty ones at the end: Java's split.

    Raises PatternError.
    """
    return [part.encode() for part in java_patterns.split(java_patterns.compiled(delimiter), text)]
