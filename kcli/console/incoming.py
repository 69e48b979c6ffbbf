"""Incoming: a record as a piece of input describes it, before it is sent.

Pure: values alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from kserver.wire.batch import Headers


class Unreadable(Exception):
    """Input, or a setting of its reader, that makes no sense; the text says why."""


class TooLarge(Exception):
    """A piece of input of which the end was not kept, since no request could hold it."""


class Incoming(NamedTuple):
    """None stands for: null (value, key), the producer's choice (partition), now (timestamp),
    the command's topic.
    """

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int | None = None
    timestamp: int | None = None
    topic: str | None = None


class InputFormat(Protocol):
    """A stream of bytes into pieces, and each piece into a record.

    A format that cannot find where a piece ends gives the reason, Unreadable, as its last one.
    """

    @property
    def unit(self) -> str:
        """What a piece is, for a person."""

    @property
    def is_plain(self) -> bool:
        """Whether each piece is the value of a record, as it is."""

    def feed(self, data: bytes) -> Sequence[Any]:
        """The pieces that `data` completes."""

    def end(self) -> Sequence[Any]:
        """The last piece, where the input ended without completing it."""

    def read(self, piece: Any, number: int) -> Incoming:
        """The record, the `number`th of the input.  Raises Unreadable and TooLarge."""
