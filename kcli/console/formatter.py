"""A formatter of consumed records, and its one error; `formatters.py` has those of Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kcli.client.consumer import FetchedBatch, Record


class Unprintable(Exception):
    """A record that a deserializer cannot read; the text says why."""


class Formatter(Protocol):
    def lines(self, batch: FetchedBatch) -> bytes:
        """All records of a batch.  Raises Unprintable."""

    def line(self, batch: FetchedBatch, record: Record) -> bytes:
        """One of them."""
