"""Incoming: a record decoded from a piece of input, before it is sent.

Pure: values alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from kserver.wire.batch import Headers


class Unreadable(Exception):
    """Invalid input, or an invalid config of its reader; the text has the reason."""


class TooLarge(Exception):
    """An input line or record is longer than any request may be; the rest of it is skipped."""


class Incoming(NamedTuple):
    """A record to send. None stands for null (value, key), the producer's choice (partition), now
    (timestamp), the command's topic.
    """

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int | None = None
    timestamp: int | None = None
    topic: str | None = None


class InputFormat(Protocol):
    """Splits a stream of bytes into pieces, and decodes each piece as a record.

    If the end of a piece cannot be found, the last piece is the error, Unreadable.
    """

    @property
    def unit(self) -> str:
        """Name of a piece in messages."""

    @property
    def is_plain(self) -> bool:
        """Whether each piece is the value of a record, as it is."""

    def feed(self, data: bytes) -> Sequence[Any]:
        """Return the pieces that `data` completes."""

    def end(self) -> Sequence[Any]:
        """Return the last piece, if the input ended without completing it."""

    def read(self, piece: Any, number: int) -> Incoming:
        """Decode the `number`th record of the input. Raises Unreadable and TooLarge."""
